//! Every text that comes from a device, a tool or a campaign says something that is made to do harm where it is printed.

use crate::lab::{Lab, Ran};
use crate::stranger::{POINT, Stranger, TEXT, is_harmless, sealed};
use isotherm::plan::identity::DeviceReport;
use isotherm::store::index::Entry;
use isotherm::store::plan_file::StoredPlan;
use isotherm::store::results::ResultsId;
use isotherm::store::{index, seal};
use serde_json::{Map, Value};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;

/// [`TEXT`] in front of every text and name of a document, as long as `is_read` still takes it: of the rest the reader knows all values.
fn infested(document: &Value, is_read: &dyn Fn(&Value) -> bool) -> Value {
    let mut document = document.clone();
    assert!(is_read(&document), "{document}");
    for pointer in pointers(&document) {
        let before = document.clone();
        match document.pointer_mut(&pointer).unwrap() {
            Value::String(text) => text.insert_str(0, TEXT),
            Value::Object(map) => *map = std::mem::take(map).into_iter().map(|(key, value)| (format!("{TEXT}{key}"), value)).collect(),
            _ => continue,
        }
        if !is_read(&document) {
            document = before;
        }
    }
    document
}

/// JSON pointers of all values, those inside before those around them.
fn pointers(document: &Value) -> Vec<String> {
    let children: Vec<(String, &Value)> = match document {
        Value::Array(list) => list.iter().enumerate().map(|(at, value)| (at.to_string(), value)).collect(),
        Value::Object(map) => map.iter().map(|(key, value)| (key.replace('~', "~0").replace('/', "~1"), value)).collect(),
        _ => Vec::new(),
    };
    let below = children.into_iter().flat_map(|(name, value)| pointers(value).into_iter().map(move |rest| format!("/{name}{rest}")));
    below.chain([String::new()]).collect()
}

fn is<T: serde::de::DeserializeOwned>(value: &Value) -> bool {
    serde_json::from_value::<T>(value.clone()).is_ok()
}

/// All of a directory, its names too.
fn infested_directory() -> Stranger {
    let stranger = Stranger::new();
    static RECORD: OnceLock<Value> = OnceLock::new();
    let is_record = |value: &Value| seal::open(&sealed(value)).is_ok();
    let mut record = RECORD.get_or_init(|| infested(&stranger.record(), &is_record)).clone();
    let point = stranger.path("here").join(OsStr::from_bytes(format!("{}\u{fe}", TEXT.replace(['\0', '/'], "")).as_bytes()));
    fs::rename(stranger.path(POINT), &point).unwrap();
    // An issue and a failure more, and one record that isn't whole.
    record["issues"] = serde_json::json!([{ "code": format!("{TEXT}a"), "severity": "warning", "message": TEXT }]);
    fs::write(point.join("timing-r0.json"), sealed(&record)).unwrap();
    record["ids"]["repetition"] = 1.into();
    for (name, value) in [("status", "failed"), ("reason", "exit_code"), ("validity", "invalid"), ("message", TEXT)] {
        record[name] = value.into();
    }
    fs::write(point.join("timing-r1.json"), sealed(&record)).unwrap();
    fs::write(point.join(OsStr::from_bytes(b"timing-\x1b[2Jr\xff.json")), "{}").unwrap();

    let document = |name: &str| -> Value { serde_json::from_slice(&fs::read(stranger.path(name)).unwrap()).unwrap() };
    let write = |name: &str, value: &Value| fs::write(stranger.path(name), value.to_string()).unwrap();
    write("plan.json", &infested(&document("plan.json"), &is::<StoredPlan>));
    write("devices/here.json", &infested(&document("devices/here.json"), &is::<DeviceReport>));
    let mut id = infested(&document(".isotherm-id"), &is::<ResultsId>);
    // The campaign's own file, so that it may be run.
    id["campaign_file"] = "../../c.yaml".into();
    write(".isotherm-id", &id);
    let lines = |documents: &[Value]| documents.iter().map(|line| format!("{line}\n")).collect::<String>();
    let scan = index::scan(&stranger.dir).unwrap();
    let entries = scan.entries.iter().map(|entry| infested(&serde_json::to_value(entry).unwrap(), &is::<Entry>)).collect::<Vec<_>>();
    fs::write(stranger.path("index.ndjson"), lines(&entries)).unwrap();
    let journal = fs::read_to_string(stranger.path("journal.ndjson")).unwrap();
    let events = journal.lines().map(|line| infested(&serde_json::from_str(line).unwrap(), &is::<Map<String, Value>>)).collect::<Vec<_>>();
    fs::write(stranger.path("journal.ndjson"), lines(&events)).unwrap();
    fs::write(stranger.path("campaign.yaml"), format!("# {TEXT}\ndescription: \"{TEXT}\"\n")).unwrap();
    stranger
}

#[test]
fn no_text_of_a_results_directory_steers_the_terminal() {
    let stranger = infested_directory();
    let shown: String = stranger.every_command().iter().map(|ran| ran.stdout() + &ran.stderr()).collect();
    assert!(shown.contains("\\u{1b}[2J"), "it is there to see:\n{shown}");
}

#[test]
fn neither_does_it_where_a_campaign_meets_that_directory() {
    let stranger = infested_directory();
    stranger.lab.write("c.yaml", "campaign: c\ndevices: { here: { local: {} } }\ndefaults: { repetitions: 2, warmup: 0, prepare: { settle: 0ms } }\nmatrix: [{ devices: here, backend: command, params: { level: [1] }, argv: [/bin/true] }]\n");
    for args in
        [&["plan", "c.yaml"][..], &["plan", "c.yaml", "--json"], &["run", "c.yaml", "--dry-run"], &["run", "c.yaml", "--json"], &["run", "c.yaml"]]
    {
        stranger.run(args).expect(0);
    }
    stranger.every_command();
}

#[test]
fn no_cell_of_a_table_is_a_formula() {
    let stranger = infested_directory();
    let ran = stranger.run(&["report", stranger.dir.to_str().unwrap(), "--format", "csv"]).expect(0);
    let mut table = csv::ReaderBuilder::new().has_headers(false).from_reader(ran.0.stdout.as_slice());
    let lines: Vec<csv::StringRecord> = table.records().map(Result::unwrap).collect();
    let cells: Vec<&str> = lines.iter().flatten().collect();
    let is_formula = |cell: &&str| cell.starts_with(['=', '+', '-', '@', '\t', '\r']) && cell.parse::<f64>().is_err();
    assert_eq!(cells.iter().find(|cell| is_formula(cell)), None);
    assert!(lines.len() > 2 && cells.iter().any(|cell| cell.starts_with("'=cmd")), "{lines:?}");
}

#[test]
fn a_table_in_markdown_holds_text_alone() {
    let stranger = infested_directory();
    let text = stranger.run(&["report", stranger.dir.to_str().unwrap(), "--format", "markdown"]).expect(0).stdout();
    let without_escaped = ["\\\\", "\\|", "\\`", "\\*", "\\[", "\\]", "\\$", "\\#"].iter().fold(text.clone(), |text, pair| text.replace(pair, ""));
    for markup in ["<script", "<img", "`", "**", "](", "$", "http://"] {
        assert!(!without_escaped.contains(markup), "{markup}: {text}");
    }
    // A line of a table has as many cells as its head.
    let cells = |line: &str| line.matches('|').count();
    for table in without_escaped.split("\n\n").filter(|block| block.starts_with('|')) {
        let widths: Vec<usize> = table.lines().map(cells).collect();
        assert!(widths.windows(2).all(|pair| pair[0] == pair[1]), "{widths:?}\n{table}");
    }
    assert!(text.contains("&lt;script&gt;"), "{text}");
}

#[test]
fn a_recorded_machine_that_says_anything_is_printed_as_text() {
    let lab = Lab::new();
    for (path, content) in [
        ("proc/cpuinfo", format!("model name\t: {TEXT}\n")),
        ("proc/sys/kernel/osrelease", TEXT.into()),
        ("etc/os-release", format!("PRETTY_NAME=\"{}\"\n", TEXT.replace('\n', ""))),
        ("sys/class/thermal/thermal_zone0/type", TEXT.into()),
        ("sys/class/thermal/thermal_zone0/temp", TEXT.into()),
        ("sys/class/hwmon/hwmon0/name", TEXT.into()),
        ("sys/class/power_supply/x/type", TEXT.into()),
        ("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", TEXT.into()),
        ("proc/device-tree/model", TEXT.into()),
    ] {
        lab.write(&format!("root/{path}"), content);
    }
    for args in [&["probe", "--root", "root"][..], &["probe", "--root", "root", "--json"]] {
        is_harmless(args, &lab.run(args).expect(0));
    }
}

#[test]
fn a_campaign_file_with_escape_sequences_is_shown_without_them() {
    let lab = Lab::new();
    let run = |lab: &Lab, args: &[&str]| -> Ran {
        let ran = lab.run(args);
        is_harmless(args, &ran);
        ran
    };
    // Where it stands as it is, YAML itself refuses a control character; escaped, it is one.
    for (name, text) in [
        ("raw", format!("campaign: c\n# {TEXT}\ndevices: {{ here: {{ local: {{}} }} }}\nwrong: {TEXT}\n")),
        ("escaped", "campaign: \"\\e[2J\"\n\"\\e]8;;x\\a\": 1\ndevices: { \"\\e[2J\": { local: {} } }\nmatrix: [{ devices: here, backend: \"\\x9b2J\", argv: [\"\\b\\r\\e[2J\"] }]\n".into()),
        ("shown", "campaign: c\ndescription: \"\\e[2J\"\ndevices: { here: { local: {} } }\ndefaults: { repetitions: 1, prepare: { settle: 0ms } }\nmatrix: [{ devices: here, backend: command, params: { a: [\"\\e[2J\", \"\\u202e\\r\\n\\t\"] }, argv: [/bin/echo, \"{a}\"] }]\n".into()),
        ("bidi", "campaign: c\ndevices: { here: { local: {} } }\nmatrix: [{ devices: here, backend: command, params: { a: [\"\u{202e}x\"] }, argw: [/bin/echo, \"{a}\"] }]\n".into()),
    ] {
        let file = format!("{name}.yaml");
        lab.write(&file, text);
        for args in [&["plan", &file][..], &["plan", &file, "--json"], &["run", &file, "--dry-run"], &["run", &file]] {
            run(&lab, args);
        }
    }
    run(&lab, &["report", "results/c"]).expect(0);
    run(&lab, &["run", "\u{1b}[2J.yaml"]).expect(2);
    run(&lab, &["report", "\u{1b}[2J\u{202e}"]).expect(2);
    run(&lab, &["run", "shown.yaml", "--filter", "\u{1b}[2J=\u{7}"]).expect(2);
    run(&lab, &["run", "shown.yaml", "--set", "\u{1b}[2J=\u{7}"]).expect(2);
    run(&lab, &["run", "shown.yaml", "--device", "\u{1b}[2J"]).expect(2);
    run(&lab, &["\u{1b}[2J"]).expect(2);
    run(&lab, &["explain", "\u{1b}[2J"]).expect(2);
}
