//! What a hostile file, or a hurried user, writes.

use crate::support::{Case, HEAD, argv, one};
use isotherm::config::{self, model::AxisValue};
use isotherm::plan::{Plan, expand};
use std::{collections::BTreeMap, fs, path::Path, time::Duration};

const BUILDS: &str = "devices:
  a: { local: {}, builds: { x: { bench: /x }, y: { bench: /y, extra: /e } } }
  b: { local: {}, builds: { x: { bench: /x } } }
models: { m: { path: m.bin, quantization: q }, n: { path: n.bin } }
matrix:
";

fn labels(plan: &Plan) -> Vec<String> {
    plan.points.iter().map(|point| format!("{} {}", point.ids.device, point.label())).collect()
}

#[test]
fn what_an_include_names_is_checked_like_the_block() {
    for (block, message) in [
        ("devices: [a, b], backend: command, argv: ['{build.bench}'], build: x, include: [{ build: y }]", "device `b` has no build `y`"),
        ("devices: a, backend: command, argv: ['{build.extra}'], build: y, include: [{ build: x }]", "`{build.extra}` has no value at every point"),
        ("devices: a, backend: command, argv: [x], env: { A: [a, b] }, include: [{ env.A: '{nope}' }]", "unknown placeholder `{nope}`"),
        ("devices: a, backend: command, argv: [x], flags: { -a: [a, b] }, include: [{ flags.-a: '{' }]", "`{` without its `}`"),
        ("devices: a, backend: command, argv: ['{model.quantization}'], model: m, include: [{ model: n }]", "`{model.quantization}` has no value"),
        ("devices: a, backend: command, argv: [x], threads: 1, include: [{ threads: [2, 2] }]", "`2` is there twice in `threads`"),
        ("devices: a, backend: command, argv: [x], threads: 1, include: [{ device: [a, a], threads: 2 }]", "`a` is there twice in `device`"),
    ] {
        let errors = Case::of(&format!("{BUILDS}  - {{ {block} }}\n")).errors();
        assert!(errors.contains(message), "{block}: {errors}");
    }
    // Only where it is.
    let file =
        format!("{BUILDS}  - {{ devices: [a, b], backend: command, argv: ['{{build.bench}}'], build: x, include: [{{ device: a, build: y }}] }}\n");
    let plan = Case::of(&file).plan();
    assert_eq!((0..3).map(|i| argv(&plan, i)[0].as_str()).collect::<Vec<_>>(), ["/x", "/x", "/y"]);
    // Linked values may come again beside others.
    let file = one(", zip: [{ params: { p: [1, 2], g: [3, 4] } }], include: [{ p: [5, 5], g: [6, 7] }]");
    assert_eq!(labels(&Case::of(&file).plan())[2..], ["here p=5 g=6", "here p=5 g=7"]);
}

#[test]
fn values_of_different_types_are_different_values() {
    let plan = Case::of(&one(", params: { v: [1, 1.0, true, \"1\", \"true\"] }, exclude: [{ v: 1.0 }, { v: \"true\" }]")).plan();
    let kept: Vec<&AxisValue> = plan.points.iter().map(|point| &point.ids.axes["v"]).collect();
    assert_eq!(kept, [&AxisValue::Int(1), &AxisValue::Bool(true), &AxisValue::Text("1".into())]);
    let file = one(
        ", flags: { -e: [true, \"true\", [p, q]] }, cpus: [\"0-2\", all], exclude: [{ flags.-e: true }, { flags.-e: [p, q] }, { cpus: \"0,1,2\" }]",
    );
    let plan = Case::of(&file).plan();
    assert_eq!(labels(&plan), ["here flags.-e=true cpus=all"]);
    assert_eq!(argv(&plan, 0), ["x", "-e", "true"]);
    // No pair twice: `a, b` with `c` isn't `a` with `b, c`.
    assert_eq!(Case::of(&one(", zip: [{ params: { p: [\"a, b\", a], q: [c, \"b, c\"] } }]")).plan().points.len(), 2);
}

#[test]
fn null_is_as_if_the_key_were_not_there_at_every_level() {
    let with_nulls = "campaign: ~
description: null
use: ~
devices: { here: { local: { bin_dir: ~, state_dir: null }, ssh: ~, pod: ~, models_dir: null, builds: ~, env: null, resource_group: ~ } }
models: { m: { path: x, paths: ~, quantization: null, tags: ~, sha256: null, output_digest: ~, push: null } }
defaults: { repetitions: ~, prepare: null, env: ~, cpus: null }
matrix:
  - devices: here
    backend: command
    argv: [x]
    model: ~
    build: null
    threads: ~
    cpus: ~
    params: null
    env: ~
    flags: ~
    inputs: ~
    metrics: { n: { from: stdout, json: /a, regex: ~, take: null, unit: x, better: lower } }
    success: { exit: null, output_digest: ~ }
    zip: ~
    when: ~
    exclude: ~
    include: null
    stable: null
    repetitions: null
    timeout: ~
    prepare: { settle: ~ }
    measure: { sample_hz: ~, power: null }
    order: ~
    warmup: null
";
    let without = "devices: { here: { local: {} } }
models: { m: { path: x } }
matrix:
  - devices: here
    backend: command
    argv: [x]
    metrics: { n: { from: stdout, json: /a, unit: x, better: lower } }
";
    let with_nulls = with_nulls.replace("    stable: null\n", "");
    let (with_nulls, without) = (Case::of(&with_nulls).campaign(), Case::of(without).campaign());
    let shown = |campaign: &config::model::Campaign| {
        let mut blocks = campaign.blocks.clone();
        blocks.iter_mut().for_each(|block| block.line = 0);
        format!("{} {:?} {:?} {:?} {blocks:?}", campaign.name, campaign.description, campaign.devices, campaign.models)
    };
    assert_eq!(shown(&with_nulls), shown(&without));
    for (value, message) in [("devices: here", "`devices` takes text"), ("backend: command", "`backend` takes one of")] {
        let key = value.split(' ').next().expect("a key");
        let errors = Case::of(&one("").replace(value, &format!("{key} ~"))).errors();
        assert!(errors.contains(message), "{errors}");
    }
}

#[test]
fn variables_stand_wherever_values_stand() {
    let variables = [("DIR", "lab"), ("N", "3"), ("OPEN", "{x}"), ("MODE", "fast"), ("TOKEN", "0123456789"), ("REGEX", "z")];
    let file = "x-argv: &argv [./bench, \"${MODE}\"]
use: [\"${DIR}/devices.yaml\"]
models: { env: { path: \"${DIR}/m.bin\" }, description: { path: m.bin, tags: { description: \"${DIR}\" } } }
matrix:
  - devices: here
    backend: command
    model: [env, description]
    argv: *argv
    params: { description: \"${MODE}\", regex: [\"${REGEX}\", y], open: \"${OPEN}\" }
    env: { A: [\"a\", \"${secret:TOKEN}\"], B: \"{open} ${OPEN}\" }
    when: \"${MODE} == 1 or model.id == '${MODE}' or regex == 'z'\"
    exclude: [{ env.A: \"${secret:TOKEN}\", regex: \"${REGEX}\" }]
    include: [{ env.A: \"${OPEN}\", model: env }]
    metrics: { regex: { from: \"file:${DIR}/out\", regex: '[${](x)', unit: \"${MODE}\", better: lower } }
";
    let file = file.replace("${MODE} == 1 or ", "");
    let beside = [("lab/devices.yaml", "devices: { here: { local: {} } }\n")];
    let case = Case { variables: &variables, beside: &beside, ..Case::of(&file) };
    let plan = case.plan();
    let points: Vec<String> = plan.points.iter().map(|point| format!("{} {:?}", point.label(), point.env.values().collect::<Vec<_>>())).collect();
    assert_eq!(
        points,
        [
            "model=env regex=z env.A=a [\"a\", \"{x} {x}\"]",
            "model=description regex=z env.A=a [\"a\", \"{x} {x}\"]",
            "model=env regex=z env.A={x} [\"{x}\", \"{x} {x}\"]",
            "model=env regex=y env.A={x} [\"{x}\", \"{x} {x}\"]",
        ]
    );
    assert_eq!(argv(&plan, 0), ["./bench", "fast"]);
    let campaign = case.campaign();
    assert_eq!((campaign.models["env"].path.as_deref(), campaign.models["description"].tags["description"].as_str()), (Some("lab/m.bin"), "lab"));
}

#[test]
fn variables_of_the_command_line_are_those_of_the_file() {
    let variables = [("TOKEN", "0123456789"), ("OPEN", "{x}")];
    let set = ["env.A=${OPEN}", "env.T=${secret:TOKEN}", "flags.--a.b=${OPEN}"];
    let file = one("");
    let case = Case { variables: &variables, set: &set, ..Case::of(&file) };
    let plan = case.plan();
    assert_eq!((plan.points[0].env["A"].as_str(), plan.points[0].env["T"].as_str()), ("{x}", "${secret:TOKEN}"));
    assert_eq!(argv(&plan, 0), ["x", "--a.b", "{x}"]);
    assert_eq!(case.campaign().secrets["TOKEN"].expose(), "0123456789");
    let unset = Case { set: &["env.A=${GONE}"], ..Case::of(&file) }.errors();
    assert!(unset.contains("the variable `GONE` is not set") && unset.contains("─[--set:1:7]"), "{unset}");
    let public = Case { variables: &variables, set: &["flags.-t=${secret:TOKEN}"], ..Case::of(&file) }.errors();
    assert!(public.contains("a secret in a place that everybody sees"), "{public}");
}

#[test]
fn a_fallback_has_no_variable_inside_of_it() {
    let errors = Case::of(&one(", env: { A: '${NOPE:-${HOME}}' }")).errors();
    assert!(errors.contains("a variable inside of what `${NOPE}` falls back to"), "{errors}");
    assert!(!errors.contains("2 errors"), "{errors}");
}

#[test]
fn a_variable_of_a_device_that_no_block_names_need_not_be_set() {
    let devices = "devices: { here: { local: {} }, far: { ssh: { host: far, identity_file: \"${KEY}\" }, env: { T: \"${secret:FAR}\" } } }\n";
    let file = format!("{devices}models: {{ m: {{ path: \"${{STORE}}/m\" }} }}\nmatrix:\n  - {{ devices: here, backend: command, argv: [x] }}\n");
    assert_eq!(Case::of(&file).plan().points.len(), 1);
    let errors = Case::of(&file.replace("devices: here,", "devices: [here, far],")).errors();
    assert!(errors.contains("the variable `KEY` is not set") && errors.contains("the secret `FAR` is not set"), "{errors}");
}

#[test]
fn a_condition_asks_about_texts_as_the_workload_gets_them() {
    let file =
        one(", threads: [2, 4], env: { N: \"{threads}\" }, flags: { --n: [\"{threads}\", \"9\"] }, when: \"env.N == '4' and flags.--n == '4'\"");
    assert_eq!(labels(&Case::of(&file).plan()), ["here threads=4 flags.--n=4"]);
}

#[test]
fn a_condition_that_can_never_hold_is_an_error_and_a_slip_is_a_warning() {
    for (more, told) in [
        (", threads: [1, 2], when: \"threads == '1'\"", "leave the quotes out"),
        (", env: { N: [\"1\", \"2\"] }, when: env.N == 1", "put it in quotes"),
        (", params: { mode: [f, s] }, when: mode < 3", "only numbers are larger or smaller"),
        (", params: { mode: [f, s] }, when: mode * 1000000000 == 'f'", "arithmetic takes a number"),
    ] {
        let errors = Case::of(&one(more)).errors();
        assert!(errors.contains(told), "{more}: {errors}");
    }
    let warnings = Case::of(&one(", params: { mode: [fast, slow] }, when: \"mode != 'fats'\"")).campaign().warnings;
    assert!(warnings[0].contains("did you mean `fast`?"), "{warnings:?}");
}

#[test]
fn a_window_that_no_power_run_fills_is_a_warning() {
    let warnings = |defaults: &str, blocks: &[&str]| {
        let block = |(n, measure): (usize, &&str)| {
            format!("  - {{ devices: here, backend: builtin, model: m, threads: {}, measure: {{ {measure} }} }}\n", n + 1)
        };
        let blocks: String = blocks.iter().enumerate().map(block).collect();
        let file = format!(
            "devices: {{ here: {{ local: {{}} }} }}\nmodels: {{ m: {{ path: m.onnx }} }}\ndefaults: {{ measure: {{ {defaults} }} }}\nmatrix:\n{blocks}"
        );
        Case::of(&file).campaign().warnings.concat()
    };
    let (window, said) = ("window: { target: 10s }", "`measure.window` has no effect");
    for power in ["off", "together"] {
        let own = warnings("sample_hz: 10", &[&format!("power: {power}, {window}")]);
        assert!(own.contains(said) && own.contains("this block has no power runs"), "{own}");
    }
    assert!(warnings(window, &["sample_hz: 10"]).contains("no block of backend `builtin` has power runs"));
    for power in ["auto", "split", "only"] {
        assert_eq!(warnings(window, &["power: off", &format!("power: {power}")]), "");
        assert_eq!(warnings(&format!("power: {power}"), &[window]), "");
    }
}

#[test]
fn no_file_is_waited_for() {
    let dir = tempfile::tempdir().expect("a directory");
    rustix::fs::mknodat(rustix::fs::CWD, dir.path().join("fifo"), rustix::fs::FileType::Fifo, 0o600.into(), 0).expect("a FIFO");
    let file = dir.path().join("c.yaml");
    for (used, why) in
        [("fifo", "it is no regular file"), (".", "is a directory"), ("/dev/zero", "it is no regular file"), ("~/lab.yaml", "no such file")]
    {
        fs::write(&file, format!("use: {used}\nmatrix: [{{ devices: here, backend: command, argv: [x] }}]\n")).expect("written");
        let errors = config::load(&file, &[]).expect_err(used).render(false);
        assert!(errors.contains(&format!("cannot read `{used}`")) && errors.contains(why), "{used}: {errors}");
    }
    let errors = config::load(&dir.path().join("fifo"), &[]).expect_err("a FIFO").render(false);
    assert!(errors.contains("it is no regular file"), "{errors}");
}

#[test]
fn a_nul_is_refused_wherever_it_stands() {
    for more in [", env: { A: \"a\\0b\" }", ", params: { a: \"\\0\" }", ", flags: { -a: \"\\0\" }", ", inputs: [\"\\0\"]", ", \"a\\0\": 1"] {
        let errors = Case::of(&one(more)).errors();
        assert!(errors.contains("a NUL character"), "{more}: {errors}");
    }
}

#[test]
fn what_multiplies_is_refused_before_it_is_made() {
    // An anchored text of 1 MiB, a hundred thousand times.
    let long = format!("x-long: &a {}\nx-many: [{}]\n{}", "y".repeat(1 << 20), "*a,".repeat(100_000), one(""));
    assert!(Case::of(&long).errors().contains("the file grows beyond"));
    // Ten thousand blocks that inherit a thousand variables each.
    let variables: Vec<String> = (0..1000).map(|n| format!("V{n}: x")).collect();
    let blocks = "  - { devices: here, backend: command, argv: [x] }\n".repeat(10_000);
    let file = format!("defaults: {{ env: {{ {} }} }}\n{HEAD}{blocks}", variables.join(", "));
    assert!(Case::of(&file).errors().contains("10000 blocks that each inherit 1001 values"));
    // A million points with a thousand variables each.
    let hundred = (0..100).map(|n| n.to_string()).collect::<Vec<_>>().join(", ");
    let file = one(&format!(", params: {{ a: [{hundred}], b: [{hundred}], c: [{hundred}] }}, env: {{ {} }}", variables.join(", ")));
    let errors = Case::of(&file).errors();
    assert!(errors.contains("1000000 points with 1003 axes"), "{errors}");
}

#[test]
fn nesting_has_an_end() {
    for (open, close) in [("[", "]"), ("{ a: ", "}"), ("- ", ""), ("? ", "")] {
        let file = format!("x-deep: {}1{}\n{HEAD}", if open == "- " { "\n  " } else { "" }.to_owned() + &open.repeat(100_000), close.repeat(100_000));
        let file = if open == "? " { format!("{}1\n", open.repeat(100_000)) } else { file };
        assert!(Case::of(&file).errors().contains("error:"), "{open}");
    }
    let file = one(&format!(", threads: [1, 2], when: \"{}threads == 1{}\"", "(".repeat(100_000), ")".repeat(100_000)));
    assert!(Case::of(&file).errors().contains("the condition is not understood"));
}

#[test]
fn a_long_line_is_shown_around_its_fault() {
    let filler: String = (0..20_000).map(|n| format!("P{n}: x, ")).collect();
    let file = format!("{HEAD}  - {{ devices: here, backend: command, env: {{ {filler} }}, argv: [x], wamup: 1, wamup2: 2 }}\n");
    let errors = Case::of(&file).errors();
    assert!(errors.len() < 4000, "{} bytes", errors.len());
    let column = file.lines().nth(2).and_then(|line| line.find("wamup")).expect("a fault") + 1;
    assert!(errors.contains(&format!("x.yaml:3:{column}]")) && errors.contains("did you mean `warmup`?"), "{errors}");
    assert!(errors.contains("argv: [x], wamup: 1, wamup2: 2 }"), "{errors}");
}

#[test]
fn ten_thousand_faults_are_counted_and_two_hundred_shown() {
    let file = format!("{HEAD}{}", "  - { devices: her, backend: command, argv: [x] }\n".repeat(10_000));
    let errors = Case::of(&file).errors();
    assert!(errors.contains("9800 more errors in /c/x.yaml"), "{}", &errors[errors.len() - 100..]);
    let values: Vec<String> = (0..5000).map(|n| format!("{n}.50")).collect();
    let campaign = Case::of(&one(&format!(", params: {{ a: [{}] }}", values.join(", ")))).campaign();
    assert_eq!(campaign.warnings.len(), 201);
    assert_eq!(campaign.warnings[200], "4800 more warnings\n");
}

#[test]
fn a_misspelled_key_is_one_error() {
    for (file, key) in [
        ("devices: { here: { locl: {} } }\nmatrix: [{ devices: here, backend: command, argv: [x] }]\n", "locl"),
        ("devices: { here: { local: {} } }\nmatrix: [{ device: here, backend: command, argv: [x] }]\n", "device"),
        ("devices: { here: { local: {} } }\nmatrix: [{ devices: here, backend: command, arg: [x] }]\n", "arg"),
        ("devices: { here: { local: {} } }\nmodels: { m: { paht: x } }\nmatrix: [{ devices: here, backend: builtin, model: m }]\n", "paht"),
        ("devices: { here: { local: {} } }\nmodels: { m: { path: x } }\nmatrix: [{ devices: here, backend: builtin, modle: m }]\n", "modle"),
        ("device: { here: { local: {} } }\nmatrix: [{ devices: here, backend: command, argv: [x] }]\n", "device"),
    ] {
        let errors = Case::of(file).draft().expect_err(key);
        let messages: Vec<&str> = errors.diagnostics.iter().map(|error| error.message.as_str()).collect();
        assert_eq!(messages, [format!("unknown key `{key}`")], "{file}");
    }
}

#[test]
fn a_build_that_is_not_said_is_one_error_and_an_implied_one_is_shown_at_its_block() {
    let messages = |block: &str| {
        let file = format!("{BUILDS}  - {{ {block} }}\n");
        let errors = Case::of(&file).draft().expect_err("faults");
        errors.diagnostics.iter().map(|error| format!("{} at {}", error.message, error.labels[0].0.start - BUILDS.len())).collect::<Vec<_>>()
    };
    assert_eq!(messages("devices: a, backend: command, argv: ['{build.bench}', '{build}']"), ["a block that doesn't say which build at 4"]);
    let file = BUILDS.replace("x: { bench: /x }, y: { bench: /y, extra: /e }", "z: { bench: /z }").replace(", builds: { x: { bench: /x } }", "");
    let errors = Case::of(&format!("{file}  - {{ devices: [a, b], backend: command, argv: ['{{build.bench}}'] }}\n")).errors();
    assert!(errors.contains("device `b` has no build `z`") && errors.contains("x.yaml:6:5]"), "{errors}");
}

#[test]
fn yaml_1_1_habits_are_texts_or_told() {
    let plan = Case::of(&one(", params: { a: [on, 0o17, 1_000, 12:30:45, yes, 2024-01-01, =, ~x] }")).plan();
    assert!(plan.points.iter().all(|point| matches!(point.ids.axes["a"], AxisValue::Text(_))));
    for (file, message) in [
        (format!("{HEAD}  - {{ devices: here, backend: command, argv: [x], warmup: 1, warmup: 2 }}\n"), "the key `warmup` is there twice"),
        (format!("{HEAD}  - devices: here\n\tbackend: command\n"), "a tab"),
        (one(", [a]: 1"), "a key must be a name"),
        (one(", ~: 1"), "unknown key `~`"),
    ] {
        let errors = Case::of(&file).errors();
        assert!(errors.contains(message), "{file}: {errors}");
    }
    // A merge key gives what isn't written, wherever it stands.
    let file = format!("x-b: &b {{ warmup: 3, timeout: 5s }}\n{}", one(", <<: *b, warmup: 1"));
    let settings = Case::of(&file).plan().points[0].settings.clone();
    assert_eq!((settings.warmup, settings.timeout), (1, Duration::from_secs(5)));
    let errors = Case::of(&one("").replace("here", "\u{200b}hïer")).draft();
    assert!(errors.is_err(), "an id is a file name");
}

#[test]
fn odd_sets_are_told_or_do_what_they_say() {
    let file = one(", threads: [1, 2], zip: [{ params: { a: [1, 2], b: [3, 4] } }]");
    for (set, message) in [
        ("matrix=[]", "unknown key `matrix`"),
        ("x-a=1", "unknown key `x-a`"),
        ("zip=[{ threads: [1, 2], params: { c: [1, 2] } }]", "the axis `threads` is there twice"),
        ("params.a=[1, 2]", "the axis `a` is there twice"),
        ("devices=[there]", "unknown device `there`"),
        ("backend=builtin", "has no meaning here"),
        ("threads.x=1", "`threads` has no keys of its own here"),
        ("env.=1", "`` cannot be the name of a variable"),
        ("env..A=1", "cannot be the name of a variable"),
        (".=1", "unknown key ``"),
        ("include=[{ thread: 3 }]", "did you mean `threads`?"),
        ("when=threads <", "the condition is not understood"),
    ] {
        let errors = Case { set: &[set], ..Case::of(&file) }.errors();
        assert!(errors.contains(message) && (errors.contains("─[--set:1:") || set == "backend=builtin"), "{set}: {errors}");
    }
    let n_points = |set: &[&str]| Case { set, ..Case::of(&file) }.plan().points.len();
    assert_eq!((n_points(&[]), n_points(&["zip="]), n_points(&["threads=null"]), n_points(&["when=threads == 1"])), (4, 2, 2, 2));
    assert_eq!((n_points(&["include=[{ threads: 3 }]"]), n_points(&["threads=3", "threads=[1, 2, 3]"])), (6, 6));
}

#[test]
fn defaults_reach_a_block_leaf_by_leaf() {
    let file = "devices: { here: { local: {} } }
defaults: { env: { A: [a, b], B: x }, flags: { -v: true, -n: [1, 2] }, prepare: { settle: 1s }, measure: { sample_hz: 5 }, cpus: \"0\" }
matrix:
  - { devices: here, backend: command, argv: [x], env: { A: ~ }, flags: { -n: ~, -q: false }, prepare: ~, measure: { power: ~ }, cpus: ~ }
  - { devices: here, backend: command, argv: [y], env: ~, zip: [{ flags: { -n: [3, 4] }, cpus: [\"1\", \"2\"] }], flags: { -v: \"2\" } }
";
    let plan = Case::of(file).plan();
    assert_eq!(plan.points.len(), 1 + 2);
    let first = &plan.points[0];
    assert_eq!((argv(&plan, 0).join(" "), format!("{:?}", first.env)), ("x -v".into(), "{\"B\": \"x\"}".into()));
    assert_eq!((first.settings.settle.shortest().as_secs(), first.settings.sample_hz, first.cpus.clone()), (10, 5.0, None));
    assert_eq!((argv(&plan, 2).join(" "), plan.points[2].cpus.clone()), ("y -n 4 -v 2".into(), Some(vec![2])));
    assert!(plan.points[2].env.is_empty());
}

#[test]
fn a_condition_on_two_devices_drops_points_on_each() {
    let file = "devices: { a: { local: {} }, b: { local: {}, env: { X: \"{device.id}\" } } }
matrix:
  - { devices: [a, b], backend: command, argv: [x], threads: [1, 2], when: device.id == 'a' and threads == 1 or device.id == 'b' and threads == 2 }
";
    let campaign = Case::of(file).campaign();
    let plan = expand::expand(&campaign, &BTreeMap::new()).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((labels(&plan), plan.dropped.len()), (vec!["a threads=1".to_owned(), "b threads=2".to_owned()], 2));
    assert!(config::parse(file, Path::new("/c/x.yaml")).is_ok());
}

#[test]
fn a_secret_goes_wherever_a_variable_of_the_workload_is_given() {
    let file = "devices: { here: { local: {}, env: { D: \"${secret:TOK}\" } } }
defaults: { env: { F: \"x ${secret:TOKEN}\" } }
matrix:
  - devices: here
    backend: command
    argv: [x]
    zip: [{ threads: [1, 2], env: { Z: [a, \"${secret:TOKEN}-${secret:TOK}\"] } }]
    include: [{ threads: 3, env.Z: \"${secret:LATE}\" }]
    env: { LITERAL: \"$${secret:TOK}\" }
";
    let variables = [("TOK", "first-value"), ("TOKEN", "first-value-and-more"), ("LATE", "another-value")];
    let case = Case { variables: &variables, ..Case::of(file) };
    let (campaign, plan) = (case.campaign(), case.plan());
    assert_eq!(campaign.secrets.len(), 3);
    let of = |index: usize, name: &str| plan.points[index].env[name].as_str();
    assert_eq!((of(1, "D"), of(1, "F"), of(1, "Z")), ("${secret:TOK}", "x ${secret:TOKEN}", "${secret:TOKEN}-${secret:TOK}"));
    assert_eq!(of(2, "Z"), "${secret:LATE}");
    assert!(!format!("{plan:?}").contains("-value"));
    for place in ["models: { env: { path: \"${secret:TOK}\" } }", "description: \"x\"\nx: \"${secret:TOK}\"", "use: \"${secret:TOK}\""] {
        let errors = Case { variables: &variables, ..Case::of(&format!("{place}\n{}", one(""))) }.errors();
        assert!(errors.contains("a secret in a place that everybody sees"), "{place}: {errors}");
    }
}
