//! What a report on a results directory shows, printed by every renderer.

#[path = "support/records.rs"]
mod records;
#[path = "support/shared.rs"]
mod shared;

use isotherm::{
    config::model::{AxisValue, Better},
    report::{Broken, Model, ReportInput, ReportOptions, StatusMatrix, csv, json, markdown, terminal},
    store::record::{Kind, PointIds, Reason, Severity},
};
use isotherm_wire::model::Gguf;
use records::{plan, point, run, text};

const HOSTILE_MODEL: &str = "=cmd|' /C calc'!A0<script>";
const HOSTILE_MESSAGE: &str = "killed \u{1b}[2J\u{1b}[31m<script>alert(1)</script> | `rm` \u{202e}\nsecond line";

fn at(model: &str, threads: i64) -> PointIds {
    PointIds {
        slug: format!("{model}-{threads}"),
        ..point(&[("model", text(model)), ("threads", AxisValue::Int(threads)), ("batch", AxisValue::Int(1))])
    }
}

/// Two models × two threads × four repetitions, and everything that can go wrong with them.
fn campaign() -> ReportInput {
    let (small_1, small_2) = (at("small", 1), at("small", 2));
    let (odd_1, odd_2) = (at(HOSTILE_MODEL, 1), at(HOSTILE_MODEL, 2));
    let beyond = at("small", 16);
    let load = |run: records::Run, ms: f64| run.metric("load_ms", Some(ms), "ms", "session.load.v1", Better::Lower);
    let mut records = Vec::new();

    // Complete; its third run was repeated.
    for (repetition, value) in [12.31, 12.42, 12.28, 12.39].into_iter().enumerate() {
        records.push(load(run(&small_1, repetition as u32).latency(value), 80.5).attempt(u32::from(repetition == 2)).stored());
    }
    let disturbed = run(&small_1, 2).latency(15.9).issue("competing_load", Severity::Warning, "1.2 cores were busy");
    records.push(disturbed.stored_as_attempt());

    // One degraded, one missing, two epochs; the load time was not printed.
    let unprinted = |run: records::Run| run.metric("load_ms", None, "ms", "session.load.v1", Better::Lower);
    records.push(unprinted(run(&small_2, 0).latency(6.91)).stored());
    records.push(unprinted(run(&small_2, 1).latency(7.02)).epoch("epoch-2").stored());
    let degraded = run(&small_2, 2).latency(9.77).issue("competing_load", Severity::Warning, "0.8 cores were busy during the window");
    records.push(unprinted(degraded).stored());

    // One failed with a hostile message; one with a note.
    records.push(load(run(&odd_1, 0).latency(101.5), 90.0).stored());
    records.push(load(run(&odd_1, 1).latency(102.25), 91.0).issue("swap_in_use", Severity::Note, "3 MiB").stored());
    records.push(run(&odd_1, 2).failed(Reason::Oom, HOSTILE_MESSAGE).stored());
    records.push(load(run(&odd_1, 3).latency(100.75), 92.0).stored());

    // Two runs of another identity.
    for (repetition, identity, value) in [(0, 'b', 55.0), (1, 'b', 56.0), (2, 'a', 50.0), (3, 'a', 51.0)] {
        records.push(load(run(&odd_2, repetition).latency(value), 90.0).identity(identity).stored());
    }

    // Not in the plan.
    records.push(load(run(&beyond, 0).latency(3.5), 80.0).stored());

    ReportInput {
        campaign: "synthetic".into(),
        plan: Some(plan(&[small_1, small_2, odd_1, odd_2], 4)),
        records,
        broken: vec![Broken { path: "here/torn/timing-r3.json".into(), why: "the seal doesn't fit: torn or edited\u{7}".into() }],
    }
}

fn model() -> Model {
    Model::of(&campaign(), ReportOptions::default())
}

/// Every rendering of an input, one after the other.
fn all_bytes(input: &ReportInput) -> Vec<String> {
    let model = Model::of(input, ReportOptions::default());
    let status = StatusMatrix::of(input);
    vec![
        terminal(&model, Some(100), true),
        terminal(&model, None, false),
        markdown(&model),
        csv(&model),
        json(&model),
        status.terminal(None, false),
        status.json(),
    ]
}

#[test]
fn the_terminal_shows_every_number_and_everything_left_out() {
    insta::assert_snapshot!(terminal(&model(), None, false));
}

#[test]
fn power_runs_have_a_table_of_their_own_and_one_with_their_timing_runs() {
    // One thread: three pairs, of which the last lacks its timing run. Two threads: power runs that took a tenth longer.
    let pair = |threads: i64, repetition: u32, timing_ms: f64, power_ms: f64, watts: f64| {
        let point = at("small", threads);
        [run(&point, repetition).latency(timing_ms), run(&point, repetition).latency(power_ms).power(watts)].map(records::Run::stored)
    };
    let mut records: Vec<_> = (0..3).flat_map(|r| pair(1, r, 12.0 + f64::from(r) / 10.0, 12.2, 4.9 + f64::from(r) / 20.0)).collect();
    records.remove(4);
    records.extend((0..3).flat_map(|r| pair(2, r, 7.0, 7.7 + f64::from(r) / 50.0, 6.2)));
    let timing = plan(&[at("small", 1), at("small", 2)], 3);
    let power = timing.points.iter().cloned().map(|point| isotherm::store::plan_file::StoredPoint { kind: Kind::Power, ..point });
    let points = timing.points.iter().cloned().zip(power).flat_map(|(timing, power)| [timing, power]).collect();
    let plan = Some(isotherm::store::plan_file::StoredPlan { points, ..timing });
    let input = ReportInput { campaign: "synthetic".into(), plan, records, broken: Vec::new() };
    let status = StatusMatrix::of(&input);
    assert!(!status.complete());
    let printed = format!("{}\n{}", terminal(&Model::of(&input, ReportOptions::default()), None, false), status.terminal(None, false));
    insta::assert_snapshot!(printed);
}

#[test]
fn a_narrow_terminal_wraps_cells() {
    insta::assert_snapshot!(terminal(&model(), Some(100), false));
}

#[test]
fn a_terminal_of_80_columns_does_without_the_range() {
    let printed = terminal(&model(), Some(80), false);
    let header = printed.lines().find(|line| line.contains("95 %")).expect("a table has a header");
    assert!(!header.contains("range") && printed.contains("range: not shown in 80 columns"), "{printed}");
    insta::assert_snapshot!(printed);
}

#[test]
fn no_table_is_wider_than_the_terminal() {
    for width in (60..=160).step_by(5) {
        let printed = terminal(&model(), Some(width), false);
        let rows = printed.lines().skip_while(|line| !line.starts_with('─')).take_while(|line| !line.trim_start().starts_with('—'));
        assert!(rows.clone().count() > 6 && rows.clone().all(|line| line.chars().count() <= width), "{width}:\n{printed}");
    }
    // Too narrow for anything, but still a report.
    assert!(terminal(&model(), Some(0), false).contains("Failed"));
}

#[test]
fn markdown_is_escaped_and_complete() {
    insta::assert_snapshot!(markdown(&model()));
}

#[test]
fn csv_has_a_line_per_point_and_metric() {
    insta::assert_snapshot!(csv(&model()));
}

#[test]
fn json_is_the_model() {
    insta::assert_snapshot!(json(&model()));
}

#[test]
fn degraded_runs_are_used_when_asked_for_and_the_report_says_so() {
    insta::assert_snapshot!(terminal(&Model::of(&campaign(), ReportOptions { include_degraded: true }), None, false));
}

#[test]
fn without_a_plan_the_report_says_that_holes_are_unknown() {
    insta::assert_snapshot!(terminal(&Model::of(&ReportInput { plan: None, ..campaign() }, ReportOptions::default()), None, false));
}

#[test]
fn the_matrix_shows_its_holes() {
    let status = StatusMatrix::of(&campaign());
    assert!(!status.complete());
    insta::assert_snapshot!(status.terminal(None, false));
}

#[test]
fn the_matrix_as_json() {
    insta::assert_snapshot!(StatusMatrix::of(&campaign()).json());
}

#[test]
fn without_a_plan_the_matrix_is_never_complete() {
    let status = StatusMatrix::of(&ReportInput { plan: None, ..campaign() });
    assert!(!status.complete());
    insta::assert_snapshot!(status.terminal(None, false));
}

#[test]
fn the_order_of_records_changes_no_byte() {
    let input = campaign();
    let expected = all_bytes(&input);
    // Knuth's MMIX generator: a fixed, varied set of orders.
    let mut state = 7_u64;
    for _ in 0..50 {
        let mut shuffled = input.clone();
        for last in (1..shuffled.records.len()).rev() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            shuffled.records.swap(last, (state >> 33) as usize % (last + 1));
        }
        assert_eq!(all_bytes(&shuffled), expected);
    }
}

#[test]
fn no_rendering_lets_a_control_character_through() {
    let input = campaign();
    let model = Model::of(&input, ReportOptions::default());
    let status = StatusMatrix::of(&input);
    for printed in [terminal(&model, None, false), markdown(&model), csv(&model), json(&model), status.terminal(None, false), status.json()] {
        assert!(printed.chars().all(|char| char == '\n' || !(char.is_control() || char == '\u{202e}')));
    }
    assert!(!markdown(&model).contains("<script>"));
    assert!(!csv(&model).lines().any(|line| line.split(',').any(|field| field.trim_matches('"').starts_with('='))));
}

#[test]
fn colour_changes_nothing_but_colour() {
    let model = model();
    for width in [None, Some(70), Some(100)] {
        let coloured = terminal(&model, width, true);
        assert!(coloured.contains("\u{1b}[31m"));
        let mut plain = coloured.replace("\u{1b}[0m", "");
        for codes in ["1", "1;31", "1;33", "31", "32", "33"] {
            plain = plain.replace(&format!("\u{1b}[{codes}m"), "");
        }
        assert_eq!(plain, terminal(&model, width, false));
    }
}

/// Decode of a run that another lab's tool has recorded: model, bytes, tokens/s.
fn decode_of(recorded: &serde_json::Value) -> Option<(&str, u64, f64)> {
    let (work, tps) = (&recorded["workload"], recorded["metrics"]["decode_tps"].as_f64());
    (recorded["status"] == "ok").then_some((work["model"].as_str()?, work["weight_bytes"].as_u64()?, tps?))
}

#[test]
fn rates_of_real_devices_over_the_size_of_models_give_the_figures_of_an_independent_report() {
    let Some(folder) = shared::recordings("mlsys") else { return };
    let report = std::fs::read_to_string(folder.join("combined-report/REPORT.md")).expect("a report");
    let section = report.split("**Decode roofline").nth(1).expect("a table");
    let folders = [
        ("laptop", "laptop-campaign/laptop"),
        ("laptop-i7-12700h", "paper12/laptop-i7-12700h"),
        ("pi5", "pi5-campaign/pi5"),
        ("pi5-2gb", "paper12/pi5-2gb"),
    ];
    for (device, runs) in folders {
        let files = std::fs::read_dir(folder.join(runs)).expect("a folder").map(|entry| entry.expect("an entry").path());
        let texts = files.filter(|file| file.extension().is_some_and(|ending| ending == "json")).map(std::fs::read_to_string);
        let recorded: Vec<serde_json::Value> = texts.map(|text| serde_json::from_str(&text.expect("text")).expect("JSON")).collect();
        // Its best point is that of a single run: so every run is a point here, told apart by its threads.
        let records = recorded.iter().filter_map(decode_of).zip(1..).map(|((model, bytes, tps), place)| {
            let axes = [("model", text(model)), ("threads", AxisValue::Int(place)), ("depth", AxisValue::Int(0))];
            let ids = PointIds { device: device.into(), backend: "llama-bench".into(), ..point(&axes) };
            let run = run(&ids, 0).metric("decode_tps", Some(tps), "tokens/s", "llama_bench.tg.v1", Better::Higher);
            // Its bytes are those of all tensors.
            let (path, mut record) = run.model(Gguf { lookup_bytes: Some(0), ..Gguf::default() }).stored();
            record.executed.insert("model_size".into(), bytes.into());
            (path, record)
        });
        let model = Model::of(&ReportInput { records: records.collect(), ..ReportInput::default() }, ReportOptions::default());
        let fit = &model.tables[0].fits[0];
        let found = format!("| {device} | {} | {:.2} | {:.2} |", fit.points.len(), fit.gb_s, fit.r_squared.expect("models differ"));
        assert!(section.contains(&found), "{found}");
    }
}
