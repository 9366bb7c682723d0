//! Real inputs: campaigns, records, journals and frames as this project keeps them, and inputs that once broke something.

use isotherm::digest::sha256_hex;
use isotherm::store::index;
use isotherm_wire::codec::write_message;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// Larger ones cost time and show nothing else, bytes.
const MOST_BYTES: usize = 8000;

/// The checkout; the coverage-guided driver lies one level below it.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    if here.join("tests").is_dir() { here.to_owned() } else { here.join("..") }
}

fn read(path: &str) -> Vec<u8> {
    fs::read(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Paths of the files in a directory, sorted.
fn files(dir: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(root().join(dir)).unwrap_or_else(|error| panic!("{dir}: {error}"));
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(|path| path.is_file()).collect();
    files.sort();
    files
}

fn contents(dir: &str) -> Vec<Vec<u8>> {
    files(dir).iter().map(|path| fs::read(path).expect("it was listed")).collect()
}

/// Inputs of `found/<target>/`, where there are any.
pub fn found(target: &str) -> Vec<Vec<u8>> {
    let dir = format!("tests/fuzz/found/{target}");
    if root().join(&dir).is_dir() { contents(&dir) } else { Vec::new() }
}

/// Messages of a session, one a line, and the session as a stream.
pub fn frames() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for session in contents("tests/recorded/frames").iter().filter(|text| text.starts_with(b"{")) {
        let mut stream = Vec::new();
        for line in session.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
            let message: Value = serde_json::from_slice(line).expect("a message a line");
            write_message(&mut stream, &message).expect("it is small");
            seeds.push(line.to_vec());
        }
        seeds.push(stream);
    }
    seeds
}

/// Files that are campaigns, and files that are none.
pub fn campaigns() -> Vec<Vec<u8>> {
    let page = String::from_utf8(read("docs/campaign.md")).expect("a text");
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
    let mut campaigns = vec![example.into_bytes(), small.into()];
    campaigns.extend(contents("configs").into_iter().filter(|text| text.len() < MOST_BYTES));
    // As often as the others, of which there are many: what is refused at once reaches nothing.
    campaigns = vec![campaigns; 12].concat();
    campaigns.extend(contents("tests/configs/invalid"));
    campaigns
}

/// A record of a real run, as stored.
pub fn reference() -> Vec<u8> {
    fs::read(points()[0].join("timing-r0.json")).expect("it is shipped")
}

/// Directories of the points that are shipped.
fn points() -> Vec<PathBuf> {
    let mut points: Vec<PathBuf> = fs::read_dir(root().join("results/reference/here")).expect("it is shipped").flatten().map(|e| e.path()).collect();
    points.sort();
    points
}

/// On one line each, without their seals.
pub fn records() -> Vec<Vec<u8>> {
    let record = |point: &PathBuf| {
        let mut record: Value = serde_json::from_slice(&fs::read(point.join("timing-r0.json")).expect("it is shipped")).expect("JSON");
        record.as_object_mut().expect("a map").remove("seal");
        record.to_string().into_bytes()
    };
    points().iter().map(record).collect()
}

/// A document with a seal that fits, as whoever can edit a record can make one.
pub fn sealed(document: &[u8]) -> Vec<u8> {
    let content = [document.strip_suffix(b"}").unwrap_or(document), b",\n"].concat();
    [&content, format!("\"seal\":\"{}\"}}\n", sha256_hex(&content)).as_bytes()].concat()
}

pub fn journals() -> Vec<Vec<u8>> {
    let whole = read("results/reference/journal.ndjson");
    let lines: Vec<&[u8]> = whole.split_inclusive(|&byte| byte == b'\n').collect();
    lines.chunks(8).map(<[_]>::concat).collect()
}

pub fn indexes() -> Vec<Vec<u8>> {
    let dir = root().join("results/reference");
    let scan = index::scan(&dir).expect("it is shipped");
    let line = |entry: &index::Entry| serde_json::to_vec(entry).expect("plain JSON");
    let mut lines: Vec<Vec<u8>> = scan.entries.iter().step_by(4).map(line).collect();
    lines.push(lines.join(&b'\n'));
    lines
}

pub fn plans() -> Vec<Vec<u8>> {
    let plan: Value = serde_json::from_slice(&read("results/reference/plan.json")).expect("JSON");
    vec![plan.to_string().into_bytes()]
}
