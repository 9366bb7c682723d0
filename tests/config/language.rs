//! Parts of the language that reach outside of one block: used files, variables, secrets, `--set`, later builds.

use crate::support::{Case, HEAD, argv};
use isotherm::config::model::{AxisValue, Backend};
use isotherm::plan::expand;
use std::collections::BTreeMap;

#[test]
fn used_files_give_devices_and_models_and_anchors_stay_in_their_file() {
    let file = "use: [lab/devices.yaml, models.yaml]\nmodels: { own: { path: own.onnx } }\nmatrix:\n  - { devices: bench, backend: builtin, model: [own, shared] }\n";
    let beside = [
        ("lab/devices.yaml", "x-dir: &dir /srv/m\ndevices: { bench: { local: {}, models_dir: *dir }, unused: { ssh: { host: far } } }\n"),
        ("models.yaml", "\u{feff}models: { shared: { path: shared.onnx } }\n"),
    ];
    let case = Case { beside: &beside, ..Case::of(file) };
    let plan = case.plan();
    let paths: Vec<&str> = plan.points.iter().filter_map(|point| Some(point.model.as_ref()?.path.as_str())).collect();
    assert_eq!(paths, ["/srv/m/own.onnx", "/srv/m/shared.onnx"]);
    assert_eq!(case.campaign().used.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["lab/devices.yaml", "models.yaml"]);
}

#[test]
fn variables_are_texts_with_a_fallback_and_never_placeholders_or_numbers() {
    let file = format!(
        "{HEAD}  - {{ devices: here, backend: command, argv: [\"${{TOOL}}\", \"${{DIR:-/data}}/x\", \"$${{HOME}}\", \"${{EMPTY:-e}}\"], env: {{ A: \"${{TOOL}}\" }}, timeout: \"${{T}}\" }}\n"
    );
    let variables = [("TOOL", "{threads}"), ("T", "5m"), ("EMPTY", "")];
    let plan = Case { variables: &variables, ..Case::of(&file) }.plan();
    assert_eq!(argv(&plan, 0), ["{threads}", "/data/x", "${HOME}", "e"]);
    assert_eq!(plan.points[0].env["A"], "{threads}");
    assert_eq!(plan.points[0].settings.timeout.as_secs(), 300);
    let number = format!("{HEAD}  - {{ devices: here, backend: command, argv: [x], repetitions: \"${{N}}\" }}\n");
    let errors = Case { variables: &[("N", "2")], ..Case::of(&number) }.errors();
    assert!(errors.contains("`repetitions` takes a whole number"), "{errors}");
    let lines = Case { variables: &[("N", "a\nb")], ..Case::of(&number) }.errors();
    assert!(lines.contains("has more than one line"), "{lines}");
}

#[test]
fn a_secret_is_kept_apart_from_everything_that_is_shown_or_hashed() {
    let file = format!("{HEAD}  - {{ devices: here, backend: command, argv: [x], env: {{ AUTH: \"Bearer ${{secret:TOKEN}}\" }} }}\n");
    let case = Case { variables: &[("TOKEN", "hunter2-hunter2")], ..Case::of(&file) };
    let (campaign, plan) = (case.campaign(), case.plan());
    assert_eq!(plan.points[0].env["AUTH"], "Bearer ${secret:TOKEN}");
    assert_eq!(campaign.secrets["TOKEN"].expose(), "hunter2-hunter2");
    let shown = format!("{campaign:?} {plan:?} {}", isotherm::plan::identity::spec(&plan.points[0]));
    assert!(!shown.contains("hunter2"), "{shown}");
    let short = Case { variables: &[("TOKEN", "1234567")], ..Case::of(&file) }.errors();
    assert!(short.contains("the secret `TOKEN` has fewer than 8 bytes") && !short.contains("1234567"), "{short}");
}

#[test]
fn set_wins_over_block_and_defaults_leaf_by_leaf_and_null_resets() {
    let file = "devices: { here: { local: {} } }
defaults: { repetitions: 6, prepare: { settle: 5s }, env: { A: a, B: b } }
matrix:
  - { devices: here, backend: command, argv: [x], threads: [1, 2], repetitions: 8, measure: { sample_hz: 20 } }
";
    let set = ["repetitions=2", "prepare.settle=1s", "threads=[4]", "env.A=z", "measure.sample_hz=", "flags.-v=true", "cpus=\"0\""];
    let plan = Case { set: &set, ..Case::of(file) }.plan();
    let point = &plan.points[0];
    assert_eq!(plan.points.len(), 1);
    assert_eq!((point.settings.repetitions, point.settings.settle.shortest().as_secs(), point.settings.sample_hz), (2, 1, 10.0));
    assert_eq!(point.env.iter().map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>(), ["A=z", "B=b"]);
    assert_eq!(point.ids.axes["threads"], AxisValue::Int(4));
    assert_eq!(argv(&plan, 0), ["x", "-v"]);
    assert_eq!(point.cpus, Some(vec![0]));
}

#[test]
fn a_set_with_a_fault_is_shown_where_it_was_written() {
    let file = format!("{HEAD}  - {{ devices: here, backend: command, argv: [x] }}\n");
    for (set, message) in [
        ("repetitons=2", "did you mean `repetitions`?"),
        ("repetitions=many", "`repetitions` takes a whole number"),
        ("repetitions", "`--set` takes a key and a value"),
        ("=2", "`--set` takes a key and a value"),
        ("prepare.settel=1s", "did you mean `settle`?"),
        ("timeout.x=1s", "unknown key"),
        ("argv.x=1s", "`argv` has no keys of its own here"),
        ("rounds=3", "`rounds` has no effect"),
        ("threads=[1", "a bracket is not closed"),
    ] {
        let errors = Case { set: &[set], ..Case::of(&file) }.errors();
        assert!(errors.contains(message) || set == "timeout.x=1s", "{set}: {errors}");
        assert!(errors.contains("─[--set:1:"), "{set}: {errors}");
    }
}

#[test]
fn what_a_later_build_does_stops_the_run_and_not_the_plan() {
    let file = "devices: { pod4: { pod: { image: llama } } }
models: { q: { path: q.gguf } }
matrix:
  - { devices: pod4, backend: onnx, model: q, threads: [1, 2], tensor_batch: [1, 8], control: { point: first } }
";
    let draft = Case::of(file).draft().unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!(expand::expand(&draft.campaign, &BTreeMap::new()).expect("a plan").points.len(), 4);
    assert!(matches!(draft.campaign.blocks[0].backend, Backend::Later("onnx")));
    let errors = draft.runnable().expect_err("later").render(false);
    for what in ["`pod`", "`backend: onnx`", "`control`"] {
        assert!(errors.contains(&format!("{what} is not in this build yet")), "{errors}");
    }
}

#[test]
fn texts_of_variables_and_options_survive_as_written() {
    let file = format!(
        "{HEAD}  - devices: here\n    backend: command\n    argv: [x]\n    env: {{ A: on, B: 0o17, C: 1_000, D: 12:30:45, E: 1.10, F: ~x, G: \"\" }}\n    flags: {{ -a: off, -b: 0o17, -c: 007, -d: none, -e: true, -f: false, -g: \"true\", -h: [[p, q]] }}\n"
    );
    let plan = Case::of(&file).plan();
    let env: Vec<String> = plan.points[0].env.iter().map(|(k, v)| format!("{k}={v}")).collect();
    assert_eq!(env, ["A=on", "B=0o17", "C=1_000", "D=12:30:45", "E=1.10", "F=~x", "G="]);
    let expected = "x -a off -b 0o17 -c 007 -d none -e -g true -h p -h q";
    assert_eq!(argv(&plan, 0).join(" "), expected);
}

#[test]
fn a_default_variable_gives_way_to_a_linked_one() {
    let file = "devices: { here: { local: {} } }
defaults: { env: { N: \"0\", L: C } }
matrix:
  - { devices: here, backend: command, argv: [x], zip: [{ threads: [1, 2], env: { N: [\"1\", \"2\"] } }] }
";
    let plan = Case::of(file).plan();
    let env: Vec<&str> = plan.points.iter().map(|point| point.env["N"].as_str()).collect();
    assert_eq!(env, ["1", "2"]);
    assert!(plan.points.iter().all(|point| point.env["L"] == "C"));
}
