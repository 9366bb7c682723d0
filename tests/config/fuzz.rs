//! Real files with random faults: none makes the reader panic, and every remark has its place inside of the texts.

use isotherm::config::{self, ConfigErrors, Outside};
use isotherm::plan::{Work, expand};
use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

/// More with `ISOTHERM_FUZZ_ROUNDS`, other ones with `ISOTHERM_FUZZ_SEED`.
const ROUNDS: u64 = 1500;

/// What is put in.
const PIECES: [&str; 76] = [
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
];

struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).expect("31 bits") % n.max(1)
    }
}

/// Files that are campaigns, and files that are none.
fn files() -> [Vec<String>; 2] {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let below = |dir: &str| fs::read_dir(root.join(dir)).expect("a directory").flatten().map(|entry| entry.path());
    // Larger ones cost time and show nothing else.
    let texts = |dir: &str| {
        let mut paths: Vec<PathBuf> = below(dir).filter(|path| path.is_file()).collect();
        paths.sort();
        paths.iter().map(|path| fs::read_to_string(path).expect("a text")).filter(|text| text.len() < 8000).collect::<Vec<_>>()
    };
    let page = fs::read_to_string(root.join("docs/campaign.md")).expect("the page is there");
    let example = page.split("```yaml\n").nth(1).and_then(|rest| rest.split("```").next()).expect("an example").to_owned();
    let small = "devices: { here: { local: {}, builds: { old: { bench: /x } } } }
models: { digits: { path: x, quantization: q } }
defaults: { repetitions: 2, env: { L: C } }
matrix:
  - devices: here
    backend: command
    model: digits
    params: { a: [1, 2], mode: [f, s] }
    argv: [\"{build.bench}\", \"{a}\", \"{model.path}\"]
    when: a < 2 or mode == 's'
    exclude: [{ a: 1, mode: f }]
    include: [{ a: 7 }]
    warmup: 0
";
    [texts("configs").into_iter().chain([example]).chain(vec![small.to_owned(); 8]).collect(), texts("tests/configs/invalid")]
}

/// Places where a text may be cut: at its ends and around signs and blanks.
fn places(text: &str) -> Vec<usize> {
    let sign = |c: char| c.is_whitespace() || "[]{},:\"'-".contains(c);
    let around = text.char_indices().filter(|(_, c)| sign(*c)).flat_map(|(at, c)| [at, at + c.len_utf8()]);
    std::iter::once(0).chain(around).chain([text.len()]).collect()
}

fn mutated(text: &str, others: &[String], random: &mut Random) -> String {
    let places = places(text);
    let (a, b) = (places[random.below(places.len())], places[random.below(places.len())]);
    let (start, end) = (a.min(b), a.max(b));
    let near = places.iter().copied().find(|place| *place > start + 1).unwrap_or(end);
    match random.below(8) {
        0 => format!("{}{}", &text[..start], &text[near..]),
        1 => format!("{}{}{}", &text[..start], &text[start..near], &text[start..]),
        2 if end - start < 400 => format!("{}{}", &text[..start], &text[end..]),
        3 if end - start < 400 => format!("{}{}{}", &text[..end], &text[start..end], &text[end..]),
        4 => {
            let mut lines: Vec<&str> = text.lines().collect();
            let (i, j) = (random.below(lines.len()), random.below(lines.len()));
            if lines.is_empty() {
                return text.to_owned();
            }
            lines.swap(i, j);
            lines.join("\n") + "\n"
        }
        5 => {
            let other = &others[random.below(others.len())];
            let line = other.lines().nth(random.below(other.lines().count())).unwrap_or_default();
            format!("{}\n{line}\n{}", &text[..start], &text[start..])
        }
        6 => format!("{}{}{}", &text[..start], PIECES[random.below(PIECES.len())], &text[near..]),
        _ => format!("{}{}{}", &text[..start], PIECES[random.below(PIECES.len())], &text[start..]),
    }
}

fn check(errors: &ConfigErrors, file: &str) {
    assert!(!errors.diagnostics.is_empty(), "{file}");
    let text = errors.sources.text();
    for error in &errors.diagnostics {
        for (span, _) in &error.labels {
            assert!(text.get(span.start..span.end).is_some(), "{} is at {span:?} of {}\n{file}", error.message, text.len());
        }
        assert!(error.hint.is_some(), "{}\n{file}", error.message);
    }
    assert!(errors.render(false).contains("error:"), "{file}");
}

#[test]
fn no_mutation_of_a_real_file_makes_the_reader_panic_or_lose_its_place() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let files = files();
    let mut random = Random(number("ISOTHERM_FUZZ_SEED").unwrap_or(5));
    let read = |path: &Path| match path.file_name().and_then(|name| name.to_str()) {
        Some("devices.yaml") => Ok(b"devices: { here: { local: {}, builds: { old: { bench: /x } } } }\nmodels: { digits: { path: x } }\n".to_vec()),
        Some(name) => fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("configs/shared").join(name)),
        None => Err(io::Error::from(io::ErrorKind::NotFound)),
    };
    let variable = |name: &str| match name {
        "HOME" => Some("/home/{x}".to_owned()),
        "TOKEN" => Some("0123456789".to_owned()),
        _ => None,
    };
    let (mut n_campaigns, mut n_points) = (0, 0);
    for _ in 0..number("ISOTHERM_FUZZ_ROUNDS").unwrap_or(ROUNDS) {
        let of = &files[usize::from(random.below(4) == 0)];
        let mut file = of[random.below(of.len())].clone();
        for _ in 0..=random.below(3) {
            file = mutated(&file, &files[1], &mut random);
        }
        let set: Vec<String> = match random.below(4) {
            0 => vec![format!(
                "{}={}",
                ["threads", "env.A", "zip", "include", "flags.-x", "prepare.settle"][random.below(6)],
                PIECES[random.below(PIECES.len())]
            )],
            _ => Vec::new(),
        };
        let outside = Outside { read: &read, variable: &variable, set: &set, dir: None };
        match config::understand(&file, Path::new("/c/x.yaml"), &outside) {
            Err(errors) => check(&errors, &file),
            Ok(draft) => {
                n_campaigns += 1;
                draft.later.iter().for_each(|errors| check(errors, &file));
                if let Ok(plan) = expand::expand(&draft.campaign, &BTreeMap::new()) {
                    n_points += plan.points.len();
                    // What isn't later has everything that a run needs.
                    let runs = draft.later.is_none();
                    assert!(!runs || plan.points.iter().all(|point| !matches!(point.work, Work::Later)), "{file}");
                }
            }
        }
    }
    assert!(n_campaigns > 100 && n_points > 1000, "{n_campaigns} campaigns and {n_points} points were understood: the mutations are too rough");
}
