//! Expansion: points as counted by hand.

use isotherm::{
    config,
    plan::{Plan, PlanError, expand, identity::DeviceReport},
};
use std::{collections::BTreeMap, path::Path};

const HEAD: &str = "devices:
  a: { local: {}, builds: { old: { bench: /old/bench }, new: { bench: /new/bench } } }
  b: { local: {} }
models: { m: { path: m.bin, tags: { family: x } }, n: { path: n.bin } }
matrix:
";

fn reports(devices: &[(&str, u32)]) -> BTreeMap<String, DeviceReport> {
    let report = |cpus: u32| {
        let machine = isotherm_wire::inspect::Machine { logical_cpus: cpus, arch: "aarch64".into(), ram_bytes: Some(2 << 30), ..Default::default() };
        let engine = isotherm_wire::session::Engine { name: "e".into(), version: "1".into(), revision: 1 };
        DeviceReport {
            report_version: 1,
            taken_at: "2026-01-01T00:00:00Z".into(),
            machine,
            engine,
            files: BTreeMap::new(),
            programs: BTreeMap::new(),
            instruments: None,
            clock: None,
        }
    };
    devices.iter().map(|(id, cpus)| ((*id).to_owned(), report(*cpus))).collect()
}

fn plan_with(matrix: &str, reports: &BTreeMap<String, DeviceReport>) -> Result<Plan, PlanError> {
    let campaign = config::parse(&format!("{HEAD}{matrix}"), Path::new("/c/x.yaml")).unwrap_or_else(|errors| panic!("{errors}"));
    expand::expand(&campaign, reports)
}

fn labels(matrix: &str) -> Vec<String> {
    let plan = plan_with(matrix, &BTreeMap::new()).unwrap_or_else(|error| panic!("{error}"));
    plan.points.iter().map(|point| format!("{} {}", point.ids.device, point.label())).collect()
}

#[test]
fn linked_axes_turn_as_one_between_the_others() {
    // 2 thread counts × 2 linked pairs × 2 modes = 8; the group turns where `zip` stands, before the faster `mode`.
    let found = labels(
        "  - { devices: b, backend: command, argv: [x], threads: [1, 2], zip: [{ params: { batch: [512, 256], ubatch: [128, 64] } }], params: { mode: [f, s] } }\n",
    );
    assert_eq!(found.len(), 8);
    assert_eq!(
        found[..4],
        [
            "b threads=1 batch=512 ubatch=128 mode=f",
            "b threads=1 batch=512 ubatch=128 mode=s",
            "b threads=1 batch=256 ubatch=64 mode=f",
            "b threads=1 batch=256 ubatch=64 mode=s"
        ]
    );
}

#[test]
fn a_value_may_come_again_in_a_linked_axis() {
    // 3 linked pairs = 3 points.
    let found = labels("  - { devices: b, backend: command, argv: [x], zip: [{ params: { p: [1, 1, 2], g: [3, 4, 3] } }] }\n");
    assert_eq!(found, ["b p=1 g=3", "b p=1 g=4", "b p=2 g=3"]);
}

#[test]
fn an_include_crosses_with_every_axis_that_it_leaves_open() {
    // Of 2 thread counts × 2 modes × 2 devices = 8 `when` leaves 4 (threads 1); the include adds 1 × 2 modes × 1 device = 2.
    let matrix = "  - { devices: [a, b], backend: command, argv: [x], threads: [1, 2], params: { mode: [f, s] }, when: threads < 2, exclude: [{ threads: 8 }], include: [{ threads: 8, device: b }] }\n";
    let matrix = matrix.replace("exclude: [{ threads: 8 }], ", "");
    let found = labels(&matrix);
    assert_eq!(
        found,
        ["a threads=1 mode=f", "a threads=1 mode=s", "b threads=1 mode=f", "b threads=1 mode=s", "b threads=8 mode=f", "b threads=8 mode=s"]
    );
}

#[test]
fn an_include_changes_a_constant_and_the_constant_shows() {
    // 1 thread count × 2 modes = 2, and 2 with another thread count.
    let found = labels("  - { devices: b, backend: command, argv: [x], threads: 2, params: { mode: [f, s] }, include: [{ threads: 3 }] }\n");
    assert_eq!(found, ["b threads=2 mode=f", "b threads=2 mode=s", "b threads=3 mode=f", "b threads=3 mode=s"]);
}

#[test]
fn an_included_point_that_is_there_already_names_both_places() {
    let matrix = "  - { devices: b, backend: command, argv: [x], threads: [1, 2], include: [{ threads: 2 }] }\n";
    let error = plan_with(matrix, &BTreeMap::new()).expect_err("twice");
    assert!(matches!(error, PlanError::Twice { first: 6, second: 6, .. }), "{error}");
}

#[test]
fn conditions_about_a_device_drop_points_once_it_was_asked() {
    // 2 devices × 3 thread counts = 6. Unknown: all 6 stay. With 2 CPUs on `a` and 8 on `b`: `a` keeps 1 and 2, `b` all 3: 5, 1 dropped.
    let matrix = "  - { devices: [a, b], backend: command, argv: [x], threads: [1, 2, 4], when: threads <= device.logical_cpus }\n";
    let unasked = plan_with(matrix, &BTreeMap::new()).expect("a plan");
    assert_eq!((unasked.points.len(), unasked.dropped.len()), (6, 0));
    assert_eq!(unasked.undecided.values().sum::<usize>(), 6);
    let asked = plan_with(matrix, &reports(&[("a", 2), ("b", 8)])).expect("a plan");
    assert_eq!((asked.points.len(), asked.undecided.len()), (5, 0));
    assert_eq!(asked.dropped[0].label, "threads=4");
    assert_eq!(&*asked.dropped[0].condition, "threads <= device.logical_cpus");
    let none = plan_with(matrix, &reports(&[("a", 0), ("b", 0)])).expect_err("nothing left");
    assert!(matches!(none, PlanError::Empty { excluded: 0, dropped: 6 }), "{none}");
}

#[test]
fn conditions_about_models_know_their_tags() {
    // 2 models × 2 thread counts = 4; only `m` has a family: 2.
    let found = labels("  - { devices: b, backend: builtin, model: [m, n], threads: [1, 2], when: model.tags.family == 'x' }\n");
    assert_eq!(found, ["b model=m threads=1", "b model=m threads=2"]);
}

#[test]
fn builds_options_cpus_and_variables_are_axes() {
    // 2 builds × 2 CPU sets × 3 forms of an option × 2 values of a variable = 24.
    let matrix = "  - { devices: a, backend: command, argv: [\"{build.bench}\", \"{build}\"], build: [old, new], cpus: [all, \"0-1\"], flags: { -v: [true, false, [x, y]] }, env: { BIND: [close, spread] } }\n";
    let plan = plan_with(matrix, &BTreeMap::new()).expect("a plan");
    assert_eq!(plan.points.len(), 24);
    let argv = |index: usize| match &plan.points[index].work {
        isotherm::plan::Work::Command(work) => work.argv.join(" "),
        _ => panic!("a command"),
    };
    // build × cpus × flags × env: the variable turns fastest, then the option.
    assert_eq!([argv(0), argv(2), argv(4), argv(12)], ["/old/bench old -v", "/old/bench old", "/old/bench old -v x -v y", "/new/bench new -v"]);
    assert_eq!((plan.points[0].cpus.clone(), plan.points[6].cpus.clone()), (None, Some(vec![0, 1])));
    assert_eq!(plan.points[4].label(), "build=old cpus=all flags.-v=x y env.BIND=close");
}

#[test]
fn the_only_build_is_taken_where_it_is_asked_for() {
    let head = HEAD.replace(", new: { bench: /new/bench }", "");
    let text = format!("{head}  - {{ devices: a, backend: command, argv: [\"{{build.bench}}\"] }}\n");
    let campaign = config::parse(&text, Path::new("/c/x.yaml")).unwrap_or_else(|errors| panic!("{errors}"));
    let plan = expand::expand(&campaign, &BTreeMap::new()).expect("a plan");
    assert!(matches!(&plan.points[0].work, isotherm::plan::Work::Command(work) if work.argv == ["/old/bench"]));
}

#[test]
fn saying_all_cpus_is_saying_nothing() {
    let spec = |cpus: &str| {
        let matrix = format!("  - {{ devices: b, backend: command, argv: [x]{cpus} }}\n");
        isotherm::plan::identity::spec(&plan_with(&matrix, &BTreeMap::new()).expect("a plan").points[0])
    };
    assert_eq!(spec(""), spec(", cpus: all"));
    assert_ne!(spec(""), spec(", cpus: \"0\""));
}

#[test]
fn points_of_options_that_come_out_equal_are_found() {
    let matrix = "  - { devices: b, backend: command, argv: [x], threads: 2, env: { N: [\"{threads}\", \"2\"] } }\n";
    assert!(matches!(plan_with(matrix, &BTreeMap::new()), Err(PlanError::Twice { .. })));
}
