//! What the registries promise is what runs leave behind.

use crate::kit::Bench;
use crate::lab::User;
use isotherm::registry::{Code, ColumnName, Given, MetricId};
use serde_json::Value;
use std::collections::BTreeSet;

/// One run of each backend; the command leaves a process behind and declares no metric.
fn both_backends() -> Bench {
    let bench = Bench::empty(User::Caller);
    bench.lab.write(
        "c.yaml",
        "campaign: c
devices: { here: { local: {} } }
models: { m: { path: m.onnx } }
defaults: { retry_contaminated: 0, repetitions: 1, timeout: 20s, warmup: 1, prepare: { settle: 0ms } }
matrix:
  - { devices: here, backend: builtin, model: m, threads: 1, rounds: 1, iterations: 2, cooldown: 0ms }
  - { devices: here, backend: command, argv: [./bench.sh] }
",
    );
    bench.script("bench.sh", "sleep 1000 >/dev/null 2>&1 &");
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/configs/models/tiny-cnn.onnx");
    bench.lab.write("m.onnx", std::fs::read(model).unwrap());
    bench.run(&[]).expect(0);
    bench
}

#[test]
fn each_backend_gives_the_metrics_that_the_table_says_it_gives_and_no_others() {
    let records = both_backends().lab.records("c");
    assert_eq!(records.len(), 2);
    for (_, record) in &records {
        let backend = record["backend"]["name"].as_str().unwrap();
        let of_table: BTreeSet<[String; 4]> = MetricId::ALL
            .iter()
            .map(|id| id.entry())
            .filter(|entry| entry.given == Given::Yes && entry.backends.contains(&backend))
            // Energy is given where it is asked for, and there is an instrument.
            .filter(|entry| !["energy.", "power."].iter().any(|energy| entry.definition.starts_with(energy)))
            .map(|entry| {
                let better = serde_json::to_value(entry.better).unwrap();
                [entry.name, entry.unit.symbol(), better.as_str().unwrap(), entry.definition].map(str::to_owned)
            })
            .collect();
        let of_record: BTreeSet<[String; 4]> = record["metrics"]
            .as_object()
            .unwrap()
            .iter()
            .map(|(name, metric)| {
                let text = |field: &str| metric[field].as_str().unwrap().to_owned();
                [name.clone(), text("unit"), text("better"), text("definition")]
            })
            .collect();
        assert_eq!(of_record, of_table, "{backend}");
        assert!(!of_table.is_empty());
    }
}

#[test]
fn an_issue_has_the_severity_and_the_hint_of_its_code() {
    let records = both_backends().lab.records("c");
    let issues: Vec<&Value> = records.iter().flat_map(|(_, record)| record["issues"].as_array().unwrap()).collect();
    let entry = Code::LeftProcesses.entry();
    assert_eq!(issues.len(), 1);
    let found = ["code", "severity", "hint"].map(|field| issues[0][field].as_str().unwrap());
    assert_eq!(found, [entry.code, entry.severity.name(), entry.hint]);
}

#[test]
fn telemetry_of_a_run_has_the_columns_of_the_table_with_their_units() {
    let records = both_backends().lab.records("c");
    let named = |column: &ColumnName| (column.entry().name, column.entry().unit.symbol());
    let of_table: BTreeSet<(&str, &str)> = ColumnName::ALL.iter().map(named).collect();
    // What is of the machine as a whole is there or says why not; sensors are those that this one has.
    let of_any_machine = ColumnName::ALL.iter().filter(|column| **column < ColumnName::Temperature).map(named).collect();
    for (_, record) in &records {
        let before = columns(record, "/context/before/readings");
        assert!(before.is_subset(&of_table) && before.is_superset(&of_any_machine), "{before:?}");
        assert!(columns(record, "/samples/inline/columns").is_subset(&of_table));
    }
}

/// Name and unit of each.
fn columns<'a>(record: &'a Value, list: &str) -> BTreeSet<(&'a str, &'a str)> {
    let list = record.pointer(list).and_then(Value::as_array).unwrap();
    list.iter().map(|one| (one["metric"].as_str().unwrap(), one["unit"].as_str().unwrap())).collect()
}

#[test]
fn explain_answers_in_words_and_in_json_and_knows_what_a_typo_means() {
    let bench = Bench::empty(User::Caller);
    let text = bench.lab.run(&["explain", "output_differs"]).expect(0).stdout();
    assert!(text.starts_with("output_differs (issue)\n") && text.contains("severity        error"), "{text}");
    let json: Value = serde_json::from_str(&bench.lab.run(&["explain", "latency_ms", "--json"]).expect(0).stdout()).unwrap();
    assert_eq!(json["entries"][0]["facts"]["definition"], "inference.wall.v1");
    let list = bench.lab.run(&["explain"]).expect(0).stdout();
    let all: Value = serde_json::from_str(&bench.lab.run(&["explain", "--json"]).expect(0).stdout()).unwrap();
    for entry in all["entries"].as_array().unwrap() {
        assert!(list.contains(&format!("  {} ", entry["name"].as_str().unwrap())), "{entry}");
    }

    let typo = bench.lab.run(&["explain", "latency_mss"]).expect(2);
    assert_eq!(typo.stdout(), "");
    assert!(typo.stderr().contains("hint: did you mean `latency_ms`? `isotherm explain latency_ms`"), "{}", typo.stderr());
    let nonsense = bench.lab.run(&["explain", "\u{1b}[2J"]).expect(2);
    assert!(!nonsense.stderr().contains('\u{1b}'), "{}", nonsense.stderr());
}

#[test]
fn reference_prints_a_page_and_names_those_there_are() {
    let bench = Bench::empty(User::Caller);
    let page = bench.lab.run(&["reference", "issues"]).expect(0).stdout();
    assert_eq!(page, isotherm::reference::Page::Issues.markdown());
    let unknown = bench.lab.run(&["reference", "nothing"]).expect(2).stderr();
    assert!(unknown.contains("metrics") && unknown.contains("issues") && unknown.contains("record"), "{unknown}");
}
