//! What a campaign file means.

use indexmap::IndexMap;
use isotherm::config::{
    self,
    model::{
        Axis, AxisValue, Backend, Better, Campaign, Command, Local, MetricRule, Order, Pick, Settings, Settle, Take, TemplatePart, TextSource,
        Transport,
    },
};
use std::{path::Path, time::Duration};

fn parse(source: &str) -> Campaign {
    config::parse(source, Path::new("configs/trial.yaml")).unwrap_or_else(|errors| panic!("{errors}"))
}

/// One block of backend `command` with more lines, and anything in front.
fn block(front: &str, lines: &str) -> Campaign {
    parse(&format!("{front}\ndevices: {{ here: {{ local: {{}} }} }}\nmatrix:\n  - devices: here\n    backend: command\n    argv: [./bench]\n{lines}"))
}

fn axes(campaign: &Campaign) -> Vec<(&str, bool, Vec<AxisValue>)> {
    campaign.blocks[0].axes().map(|axis| (axis.name.as_str(), axis.swept, axis.values.clone())).collect()
}

fn command(campaign: &Campaign) -> &Command {
    match &campaign.blocks[0].backend {
        Backend::Command(command) => command,
        Backend::Builtin | Backend::LlamaBench | Backend::LlamaServer | Backend::Later(_) => panic!("a command"),
    }
}

fn text(value: &str) -> AxisValue {
    AxisValue::Text(value.to_owned())
}

const FULL: &str = r#"
campaign: pi5-threads
description: Where does decode stop scaling?
x-note: { anything: [goes, here] }
devices:
  here: { local: {} }
  board:
    local: { bin_dir: /opt/isotherm, state_dir: /var/lib/isotherm }
    models_dir: ~/models
    env: { LD_LIBRARY_PATH: /opt/lib, NAME: "{device.id}" }
models:
  digits: { path: models/digits.onnx, quantization: fp32, tags: { family: mnist, size: 7 }, sha256: ABCDEF0123456789ABCDEF0123456789ABCDEF0123456789ABCDEF0123456789 }
  big: { paths: { here: /m/big.onnx, board: big.onnx } }
defaults:
  repetitions: 6
  timeout: 1h30m
  prepare: { settle: 20s }
  measure: { sample_hz: 2.5 }
  order: sequential
  env: { OMP_PROC_BIND: close }
matrix:
  - devices: [here, board]
    backend: builtin
    model: [digits, big]
    threads: [1, 2, 4]
    rounds: 3
    cooldown: 0s
    repetitions: ~
    exclude: [{ device: board, threads: 4 }, { model: big, env.OMP_PROC_BIND: close }]
  - devices: here
    backend: command
    model: digits
    params: { mode: [fast, exact], size: 8 }
    threads: 2
    argv: [./bench, --mode, "{mode}", "--model={model.path}", "{{literal}}", 0o17, on]
    env: { OMP_PROC_BIND: [close, spread], OMP_NUM_THREADS: "{threads}" }
    inputs: ["data/*.bin", other.bin]
    warmup: 0
    metrics:
      latency_ms: { from: stdout_last_line, json: /results/latency, unit: ms, better: lower }
      score: { from: file:out.txt, regex: 'score: ([0-9.]+)', take: all, unit: points, better: higher }
    success: { exit: [0, 3], output_digest: { json: /tokens } }
"#;

#[test]
fn a_full_file_is_understood() {
    let campaign = parse(FULL);
    assert_eq!(campaign.name, "pi5-threads");
    assert_eq!(campaign.description.as_deref(), Some("Where does decode stop scaling?"));
    assert_eq!(campaign.file, Path::new("configs/trial.yaml"));
    assert!(campaign.dir.is_absolute() && campaign.dir.ends_with("configs"));
    assert_eq!(campaign.source, FULL);
    assert!(campaign.warnings.is_empty(), "{:?}", campaign.warnings);

    assert_eq!(campaign.devices.keys().collect::<Vec<_>>(), ["here", "board"]);
    let board = &campaign.devices["board"];
    assert_eq!(board.transport, Transport::Local(Local { bin_dir: Some("/opt/isotherm".into()), state_dir: Some("/var/lib/isotherm".into()) }));
    assert_eq!(board.models_dir.as_deref(), Some("~/models"));
    assert_eq!(board.env["NAME"].parts, [TemplatePart::Name("device.id".into())]);
    assert_eq!(board.env["LD_LIBRARY_PATH"].source, "/opt/lib");

    let digits = &campaign.models["digits"];
    assert_eq!((digits.path.as_deref(), digits.quantization.as_deref()), (Some("models/digits.onnx"), Some("fp32")));
    assert_eq!(digits.tags["size"], "7");
    assert_eq!(digits.sha256, Some("abcdef0123456789".repeat(4)));
    assert_eq!(campaign.models["big"].paths["board"], "big.onnx");

    let builtin = &campaign.blocks[0];
    assert_eq!(builtin.line, 22);
    assert_eq!(builtin.devices, ["here", "board"]);
    assert_eq!(builtin.backend.name(), "builtin");
    let expected = Settings {
        repetitions: 4,
        timeout: Duration::from_secs(5400),
        settle: Settle::Fixed(Duration::from_secs(20)),
        sample_hz: 2.5,
        order: Order::Sequential,
        rounds: 3,
        cooldown: Duration::ZERO,
        ..Settings::builtin_defaults("builtin")
    };
    assert_eq!(builtin.settings, expected);
    assert_eq!(
        axes(&campaign),
        [
            ("model", true, vec![text("digits"), text("big")]),
            ("threads", true, vec![AxisValue::Int(1), AxisValue::Int(2), AxisValue::Int(4)]),
            ("env.OMP_PROC_BIND", false, vec![text("close")]),
        ]
    );
    assert_eq!(
        builtin.exclude,
        [
            IndexMap::from([("device".to_owned(), text("board")), ("threads".to_owned(), AxisValue::Int(4))]),
            IndexMap::from([("model".to_owned(), text("big")), ("env.OMP_PROC_BIND".to_owned(), text("close"))]),
        ]
    );

    let block = &campaign.blocks[1];
    let names: Vec<&str> = block.axes().map(|axis| axis.name.as_str()).collect();
    assert_eq!(names, ["model", "mode", "size", "threads", "env.OMP_PROC_BIND", "env.OMP_NUM_THREADS"]);
    assert_eq!(*block.axes().nth(2).expect("an axis"), Axis { name: "size".into(), swept: false, values: vec![AxisValue::Int(8)] });
    assert_eq!(block.axes().nth(5).expect("an axis").values, [text("{threads}")]);
    assert_eq!((block.settings.warmup, block.settings.repetitions), (0, 6));
    let Backend::Command(command) = &block.backend else { panic!("a command") };
    let argv: Vec<&str> = command.argv.iter().map(|element| element.source.as_str()).collect();
    assert_eq!(argv, ["./bench", "--mode", "{mode}", "--model={model.path}", "{{literal}}", "0o17", "on"]);
    assert_eq!(command.argv[3].parts, [TemplatePart::Literal("--model=".into()), TemplatePart::Name("model.path".into())]);
    assert_eq!(command.argv[4].parts, [TemplatePart::Literal("{literal}".into())]);
    assert_eq!(command.inputs, ["data/*.bin", "other.bin"]);
    let latency =
        MetricRule { from: TextSource::StdoutLastLine, pick: Pick::Json("/results/latency".into()), unit: "ms".into(), better: Better::Lower };
    assert_eq!(command.metrics["latency_ms"], latency);
    assert_eq!(command.metrics["score"].from, TextSource::File("out.txt".into()));
    assert_eq!(command.metrics["score"].pick, Pick::Regex { pattern: "score: ([0-9.]+)".into(), take: Take::All });
    assert_eq!(command.success.exit, [0, 3]);
    let digest = command.success.output_digest.as_ref().expect("a digest");
    assert_eq!((&digest.from, &digest.pick), (&TextSource::StdoutLastLine, &Pick::Json("/tokens".into())));
}

#[test]
fn the_smallest_file_gets_its_name_and_the_built_in_settings() {
    let campaign = parse("devices: { here: { local: } }\nmodels: { m: { path: m.onnx } }\nmatrix: [{ devices: here, backend: builtin, model: m }]\n");
    assert_eq!(campaign.name, "trial");
    assert_eq!(campaign.blocks[0].settings, Settings::builtin_defaults("builtin"));
    assert_eq!(axes(&campaign), [("model", false, vec![text("m")]), ("threads", false, vec![AxisValue::Int(1)])]);
}

#[test]
fn a_command_needs_neither_model_nor_threads() {
    let campaign = block("", "");
    assert_eq!(axes(&campaign), []);
    assert_eq!(campaign.blocks[0].settings.warmup, 1);
    assert_eq!(command(&campaign).success.exit, [0]);
}

#[test]
fn variables_are_text_as_written() {
    let campaign = block("", "    env: { A: [on, off, none, 0o17, 1_000, 12:30:45, 007, 1.50, true, \"\", \"null\"], B: 1e3 }\n");
    let expected = ["on", "off", "none", "0o17", "1_000", "12:30:45", "007", "1.50", "true", "", "null"];
    assert_eq!(axes(&campaign)[0].2, expected.map(text));
    assert_eq!(axes(&campaign)[1].2, [text("1e3")]);
    assert!(campaign.warnings.is_empty());
}

#[test]
fn parameters_have_the_type_they_are_written_with() {
    let campaign = block("", "    params: { a: [on, off, none, 0o17, 0x1F, 1_000, 12:30:45], b: [true, 1, -2, 1.0, 0.25, \"3\", text], c: '7' }\n");
    assert_eq!(axes(&campaign)[0].2, ["on", "off", "none", "0o17", "0x1F", "1_000", "12:30:45"].map(text));
    let typed =
        [AxisValue::Bool(true), AxisValue::Int(1), AxisValue::Int(-2), AxisValue::Float(1.0), AxisValue::Float(0.25), text("3"), text("text")];
    assert_eq!(axes(&campaign)[1].2, typed);
    assert_eq!(axes(&campaign)[2].2, [text("7")]);
    assert!(campaign.warnings.is_empty(), "{:?}", campaign.warnings);
}

#[test]
fn a_number_that_is_not_passed_on_as_written_is_a_warning() {
    let campaign = block("", "    params: { a: [1.50, 007, 1e3, True] }\n");
    assert_eq!(axes(&campaign)[0].2, [AxisValue::Float(1.5), AxisValue::Int(7), AxisValue::Float(1000.0), AxisValue::Bool(true)]);
    let firsts: Vec<&str> = campaign.warnings.iter().map(|warning| warning.lines().next().expect("a line")).collect();
    assert_eq!(
        firsts,
        [
            "warning: `1.50` is passed on as `1.5`",
            "warning: `007` is passed on as `7`",
            "warning: `1e3` is passed on as `1000.0`",
            "warning: `True` is passed on as `true`"
        ]
    );
}

#[test]
fn a_block_overrides_defaults_leaf_by_leaf_and_null_resets() {
    let front = "defaults: { repetitions: 8, prepare: { settle: 1s }, measure: { sample_hz: 5 }, timeout: 2m, warmup: 3, env: { A: x, B: y, C: z } }";
    let campaign = block(front, "    repetitions: 2\n    prepare: { settle: ~ }\n    timeout: null\n    env: { B: q, C: , D: w }\n");
    let settings = &campaign.blocks[0].settings;
    let builtin = Settings::builtin_defaults("command");
    assert_eq!((settings.repetitions, settings.settle, settings.timeout), (2, builtin.settle, builtin.timeout));
    assert_eq!((settings.sample_hz, settings.warmup), (5.0, 3));
    let env: Vec<_> = axes(&campaign).into_iter().map(|(name, _, values)| (name.to_owned(), values)).collect();
    assert_eq!(env, [("env.B".to_owned(), vec![text("q")]), ("env.D".to_owned(), vec![text("w")]), ("env.A".to_owned(), vec![text("x")])]);
    assert_eq!(axes(&block(front, "    env: ~\n")), []);
}

#[test]
fn anchors_merge_keys_and_explicit_text_work() {
    let campaign = parse(
        "x-base: &base { devices: [here], backend: command, argv: &argv [./bench, !!str 5] }\ndevices: { here: { local: {} } }\nmatrix:\n  - { <<: *base, params: { a: [1, 2] } }\n  - { devices: here, backend: command, argv: *argv }\n",
    );
    assert_eq!(campaign.blocks.len(), 2);
    assert_eq!(campaign.blocks[0].axes().next().expect("an axis").name, "a");
    let Backend::Command(second) = &campaign.blocks[1].backend else { panic!("a command") };
    assert_eq!(second.argv[1].source, "5");
}

#[test]
fn many_repetitions_are_a_located_warning() {
    let campaign = block("defaults: { repetitions: 30 }", "");
    insta::assert_snapshot!(campaign.warnings.join("\n"), @r"
    warning: 30 repetitions of every point
       ╭─[configs/trial.yaml:1:26]
     1 │ defaults: { repetitions: 30 }
       ·                          ─┬
       ·                           ╰── each repetition is a fresh process; did you mean `iterations`?
       ╰────
      hint: `iterations` repeats inside a process of `builtin`; a command needs an option of its own
    ");
    assert!(block("defaults: { repetitions: 19 }", "").warnings.is_empty());
}

#[test]
fn a_setting_that_reaches_no_block_is_a_warning() {
    let campaign = block("defaults: { rounds: 3 }", "");
    assert_eq!(campaign.warnings.len(), 1);
    assert!(campaign.warnings[0].starts_with("warning: `rounds` has no effect"), "{}", campaign.warnings[0]);
}

#[test]
fn a_description_may_contain_what_looks_like_a_variable() {
    let front = "description: ${HOME} is fine here";
    let campaign = block(front, "    metrics: { a: { from: stdout, regex: '^x$|(z)', unit: ms, better: lower } }\n");
    assert_eq!(command(&campaign).metrics.len(), 1);
}

#[test]
fn a_million_points_are_possible() {
    let hundred = (0..100).map(|n| n.to_string()).collect::<Vec<_>>().join(", ");
    let campaign = block("", &format!("    params: {{ a: [{hundred}], b: [{hundred}], c: [{hundred}] }}\n"));
    assert_eq!(campaign.blocks[0].axes().count(), 3);
}

#[test]
fn dos_line_ends_and_a_byte_order_mark_change_nothing() {
    let dos = format!("\u{feff}{}", FULL.trim_start().replace('\n', "\r\n"));
    let (unix, dos) = (parse(FULL.trim_start()), parse(&dos));
    assert_eq!(format!("{:?}", unix.models), format!("{:?}", dos.models));
    assert_eq!(format!("{:?}", unix.blocks), format!("{:?}", dos.blocks));
}

#[test]
fn a_file_on_disk_is_loaded_with_its_directory() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("night-run.yaml");
    std::fs::write(&file, "devices: { here: { local: {} } }\nmatrix: [{ devices: here, backend: command, argv: [x] }]\n").expect("written");
    let campaign = config::load(&file, &[]).unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!((campaign.name.as_str(), campaign.dir.as_path()), ("night-run", dir.path()));
}
