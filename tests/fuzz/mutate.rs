//! Real inputs with random faults, the same ones for the same seed: of their bytes, and of the values in them where they are JSON.

use serde_json::Value;

/// What is put in, wherever something may stand: values at their limits, text that steers a terminal or names another place, and the words
/// and signs of YAML and JSON.
const PIECES: &[&str] = &[
    "null",
    "~",
    "true",
    "false",
    "on",
    "1",
    "-1",
    "0",
    "1.5",
    "1e999",
    "\"1\"",
    "''",
    "99999999999999999999",
    "0o17",
    "12:30:45",
    "1_000",
    "é",
    "{threads}",
    "\"{\"",
    "\"{{\"",
    "\"{build.bench}\"",
    "\"{model.path}\"",
    "${HOME}",
    "\"${secret:TOKEN}\"",
    "${GONE}",
    "${A:-${B}}",
    "$${",
    "[",
    "]",
    "{",
    "}",
    ",",
    ":",
    "- ",
    "\n",
    "\n  ",
    "\n      ",
    "\t",
    "&a ",
    "*a",
    "<<: *a",
    "!!str ",
    "|",
    "#",
    "---\n",
    "\u{feff}",
    "\\0",
    "[[1, 2], 3]",
    "[]",
    "{}",
    "[1, 2]",
    "[a, b]",
    "zip: [{ threads: [1, 2], params: { q: [a, b] } }]",
    "include: [{ threads: 3 }]",
    "include: [{ device: here, env.A: '{x}' }]",
    "exclude: [{ threads: 1 }]",
    "when: threads <= device.logical_cpus",
    "when: \"threads == 'a' or not (1 in [threads])\"",
    "env: { A: [a, b], B: ~ }",
    "flags: { -a: [true, false, [x, y]] }",
    "cpus: [\"0-3\", all]",
    "build: [old, new]",
    "model: [digits]",
    "use: devices.yaml",
    "defaults: { env: { A: x } }",
    "backend: command",
    "backend: builtin",
    "backend: onnx",
    "threads: [1, 2]",
    "params: { a: [1, \"1\"] }",
    "argv: [x, \"{a}\"]",
    "timeout: 5m",
    "prepare: { settle: 1s }",
    "success: { exit: [0] }",
    "metrics: { m: { from: stdout, regex: '(a)', unit: s, better: lower } }",
    "description: ${X}",
    "18446744073709551615",
    "9223372036854775808",
    "-9223372036854775808",
    "4294967295",
    "1e308",
    "-1e308",
    "5e-324",
    "\"\"",
    "\"\\u0000\"",
    "\"\\u001b[2J\"",
    "\"\\ud800\"",
    "\"=1+1\"",
    "\"../../x\"",
    "\"a/b\\nc\"",
    "[null]",
    "{\"a\": 1}",
    "\"base64\"",
    "\"ok\"",
    "\"failed\"",
    "\u{202e}",
    "\u{9b}2J",
];

pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).expect("31 bits") % n.max(1)
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}

/// Places where an input may be cut: at its ends and around signs and blanks.
fn places(input: &[u8]) -> Vec<usize> {
    let sign = |byte: &u8| byte.is_ascii_whitespace() || b"[]{},:\"'-\0".contains(byte);
    let around = input.iter().enumerate().filter(|(_, byte)| sign(byte)).flat_map(|(at, _)| [at, at + 1]);
    std::iter::once(0).chain(around).chain([input.len()]).collect()
}

/// The input with one fault more; `others` give lines to it.
pub fn mutated(input: &[u8], others: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let mut lines: Vec<Vec<u8>> = input.split(|&byte| byte == b'\n').map(<[u8]>::to_vec).collect();
    let line = random.below(lines.len());
    if random.below(4) > 0
        && let Ok(mut value @ (Value::Object(_) | Value::Array(_))) = serde_json::from_slice(&lines[line])
    {
        change(&mut value, random);
        lines[line] = value.to_string().into_bytes();
        return lines.join(&b'\n');
    }
    bytes_mutated(input, others, random)
}

/// Another value somewhere in a document: from [`PIECES`], from elsewhere in it, or none.
fn change(document: &mut Value, random: &mut Random) {
    let copied = random_value(document, random).clone();
    let value = random_value(document, random);
    match (value, random.below(8)) {
        (Value::Object(map), 0..2) => _ = map.keys().nth(random.below(map.len())).cloned().and_then(|key| map.shift_remove(&key)),
        (Value::Object(map), 2) => _ = map.insert(random.of(PIECES).to_owned(), copied),
        (Value::Array(list), 0..2) => list.truncate(random.below(list.len())),
        (Value::Array(list), 2) => list.push(copied),
        (Value::String(text), 0..4) => *text = format!("{text}{}", random.of(PIECES)),
        (value, 4) => *value = copied,
        (value, _) => *value = serde_json::from_str(random.of(PIECES)).unwrap_or_else(|_| random.of(PIECES).into()),
    }
}

/// One of a document's values, the deeper ones as likely as those above.
fn random_value<'v>(value: &'v mut Value, random: &mut Random) -> &'v mut Value {
    let n = match value {
        Value::Array(list) => list.len(),
        Value::Object(map) => map.len(),
        _ => 0,
    };
    if n == 0 || random.below(6) == 0 {
        return value;
    }
    let at = random.below(n);
    let inner = match value {
        Value::Array(list) => list.get_mut(at),
        Value::Object(map) => map.values_mut().nth(at),
        _ => None,
    };
    random_value(inner.expect("it is one of them"), random)
}

fn bytes_mutated(input: &[u8], others: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let places = places(input);
    let (a, b) = (random.of(&places), random.of(&places));
    let (start, end) = (a.min(b), a.max(b));
    // The end of the word that begins at `start`.
    let near = places[places.partition_point(|place| *place <= start + 1).min(places.len() - 1)].max(start);
    let is_near = end - start < 400;
    match random.below(10) {
        0 => [&input[..start], &input[near..]].concat(),
        1 => [&input[..near], &input[start..]].concat(),
        2 if is_near => [&input[..start], &input[end..]].concat(),
        3 if is_near => [&input[..end], &input[start..]].concat(),
        4 => {
            let mut lines: Vec<&[u8]> = input.split(|&byte| byte == b'\n').collect();
            let (i, j) = (random.below(lines.len()), random.below(lines.len()));
            lines.swap(i, j);
            lines.join(&b'\n')
        }
        5 => {
            let lines: Vec<&[u8]> = others[random.below(others.len())].split(|&byte| byte == b'\n').collect();
            [&input[..start], b"\n", random.of(&lines), b"\n", &input[start..]].concat()
        }
        6 if start < input.len() => {
            let mut flipped = input.to_vec();
            flipped[start] ^= 1 << random.below(8);
            flipped
        }
        7 => input[..end].to_vec(),
        8 => [&input[..start], random.of(PIECES).as_bytes(), &input[start..]].concat(),
        _ => [&input[..start], random.of(PIECES).as_bytes(), &input[near..]].concat(),
    }
}
