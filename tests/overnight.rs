//! The nights of `configs/` as they stand, but for their devices and model files, as far as this build has their backends: real tools of
//! llama.cpp, models of random numbers, a board whose input is monitored.
#![expect(clippy::unwrap_used, reason = "tests")]

#[expect(dead_code, reason = "each test binary uses a part of it")]
#[path = "support/held.rs"]
mod held;
#[expect(dead_code, reason = "each test binary uses a part of it")]
#[path = "support/lab.rs"]
mod lab;
#[expect(dead_code, reason = "each test binary uses a part of it")]
#[path = "support/llama.rs"]
mod llama;

#[expect(dead_code, reason = "each test binary uses a part of it")]
#[path = "device/board.rs"]
mod board;

use board::Board;
use lab::{Lab, Ran, User};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// What takes the time of a night, and what an ordinary machine isn't asked for.
const SHORT: [&str; 8] = [
    "repetitions=1",
    "iterations=1",
    "retry_contaminated=0",
    "timeout=2m",
    "prepare.settle=0s",
    "prepare.reset_swap=off",
    "prepare.drop_caches=off",
    "measure.sample_hz=20",
];

const BUILT: &str = "backend=llama-bench,llama-server";

const LEFT_OUT: &str = "left out: 8 points of backend `onnx`, not in this build yet";

/// The tree of `configs/` with this device being the machine itself, and its models tiny; false where the tools aren't there, which is said.
fn lay(lab: &Lab, device: &str) -> bool {
    let Some([bench, server]) = llama::tool("llama-bench").zip(llama::tool("llama-server")).map(|(bench, server)| [bench, server]) else {
        return false;
    };
    let configs = Path::new(env!("CARGO_MANIFEST_DIR")).join("configs");
    for night in ["pi-overnight.yaml", "laptop-overnight.yaml", "thread-cliff.yaml", "int8-study.yaml"] {
        lab.write(&format!("configs/{night}"), fs::read(configs.join(night)).unwrap());
    }
    let shared = |name: &str| fs::read_to_string(configs.join("shared").join(name)).unwrap();
    // Of their formats, what the tiny ones have.
    let models: String = shared("models.yaml").lines().map(|line| tiny(lab, line) + "\n").collect();
    lab.write("configs/shared/models.yaml", models);
    let place = |text: String| {
        let text = text.replace("ssh: { host: pi5 }", "local: {}").replace("~/models", &lab.path("models").display().to_string());
        text.replace("~/llama.cpp/build/bin/llama-bench", bench.to_str().unwrap())
            .replace("~/llama.cpp/build/bin/llama-server", server.to_str().unwrap())
    };
    for other in ["pi5", "laptop"] {
        let text = shared(&format!("{other}.yaml"));
        lab.write(&format!("configs/shared/{other}.yaml"), if other == device { place(text) } else { text });
    }
    true
}

/// A line of the models with a file behind it, and the format that this one has.
fn tiny(lab: &Lab, line: &str) -> String {
    let after = |key: &str| line.split(&format!("{key}: ")).nth(1).and_then(|rest| rest.split(',').next());
    match (after("path"), after("quantization")) {
        (Some(file), Some(quantization)) if file.ends_with(".gguf") => {
            let (name, own) = if quantization.starts_with("Q8") { ("tiny-q8_0.gguf", "Q8_0") } else { ("tiny-f16.gguf", "F16") };
            lab.write(&format!("models/{file}"), trained_for(16384, fs::read(llama::model(name)).unwrap()));
            line.replace(&format!("quantization: {quantization}"), &format!("quantization: {own}"))
        }
        _ => line.to_owned(),
    }
}

/// A model that takes the longest prompt of a night: one number of its header is another one.
fn trained_for(tokens: u32, mut model: Vec<u8>) -> Vec<u8> {
    let key = b"llama.context_length";
    // Behind the key, which type the value has.
    let at = model.windows(key.len()).position(|bytes| bytes == key).unwrap() + key.len() + 4;
    model[at..at + 4].copy_from_slice(&tokens.to_le_bytes());
    model
}

/// `COMMAND configs/NIGHT.yaml`, short.
fn args<'a>(command: &'a str, file: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [command, file].into_iter().chain(SHORT.iter().flat_map(|set| ["--set", set])).chain(more.iter().copied()).collect()
}

/// (backend, kind) → records, all of which are answers.
fn answers(lab: &Lab, night: &str) -> BTreeMap<(String, String), usize> {
    let mut answers = BTreeMap::new();
    for (path, record) in lab.records(night) {
        assert_eq!(
            (&record["status"], record["validity"] != "invalid"),
            (&"ok".into(), true),
            "{}: {} {}",
            path.display(),
            record["message"],
            record["issues"]
        );
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        *answers.entry((text(&record["ids"]["point"]["backend"]), text(&record["ids"]["kind"]))).or_default() += 1;
    }
    answers
}

fn counts(of: &[(&str, &str, usize)]) -> BTreeMap<(String, String), usize> {
    of.iter().map(|(backend, kind, n)| (((*backend).to_owned(), (*kind).to_owned()), *n)).collect()
}

fn said_once(ran: &Ran, what: &str) {
    assert_eq!(ran.stderr().matches(what).count(), 1, "{what:?} in:\n{}", ran.stderr());
}

#[test]
fn the_night_of_the_pi_runs_as_far_as_its_backends_are_built() {
    let Some(board) = Board::new(User::Caller) else { return };
    let lab = &board.lab;
    for (file, text) in [("name", "ina226"), ("power1_label", "VDD_IN"), ("power1_input", "6000000")] {
        board.set(&format!("class/hwmon/hwmon0/{file}"), text);
    }
    lab.write("sys/class/powercap", "");
    if !lay(lab, "pi5") {
        return;
    }
    let file = "configs/pi-overnight.yaml";
    let args = |command, more: &[&'static str]| args(command, "configs/pi-overnight.yaml", more);
    let refused = board.run(&args("run", &[])).expect(2);
    assert!(refused.stderr().contains("`backend: onnx` is not in this build yet") && refused.stderr().contains(BUILT), "{}", refused.stderr());
    assert!(!lab.path("results").exists());

    for looking in [&args("run", &["--dry-run"]), &args("plan", &["--refresh"])] {
        let refused = board.run(looking).expect(2);
        assert!(refused.stderr().contains(BUILT) && !lab.path("results").exists(), "{}", refused.stderr());
    }
    let planned = board.run(&args("plan", &["--refresh", "--filter", BUILT])).expect(0);
    said_once(&planned, LEFT_OUT);
    assert!(planned.stdout().contains("pi-overnight: 33 points, 33 timing + 13 power runs on 1 device\n"), "{}", planned.stdout());

    // A night in two parts.
    let part = board.run(&args("run", &["--filter", "backend=llama-server"])).expect(0);
    said_once(&part, LEFT_OUT);
    assert!(part.stderr().contains("12 jobs: 12 ok"), "{}", part.stderr());
    let rest = board.run(&args("run", &["--filter", BUILT])).expect(0);
    assert!(rest.stderr().contains("34 new · 12 reused · 34 jobs to run\n") && rest.stderr().contains("46 jobs: 46 ok"), "{}", rest.stderr());
    // 12 of threads, 7 of formats with power, 4 of lengths, 4 of depths; 6 of latency with power.
    let expected = [("llama-bench", "timing", 27), ("llama-bench", "power", 7), ("llama-server", "timing", 6), ("llama-server", "power", 6)];
    assert_eq!(answers(lab, "pi-overnight"), counts(&expected));
    let again = board.run(&args("run", &["--filter", BUILT])).expect(0);
    assert!(again.stderr().contains("nothing to do: 46 jobs with a valid record"), "{}", again.stderr());

    // The images are planned and missing, and nothing of them has failed.
    let status: Value = serde_json::from_str(&lab.run(&["status", "results/pi-overnight", "--json"]).expect(1).stdout()).unwrap();
    let total = |name: &str| status["totals"]["runs"][name].as_u64().unwrap_or_else(|| panic!("{status}"));
    assert_eq!([total("missing"), total("failed"), total("invalid")], [16, 0, 0], "{status}");
    let report = lab.run(&["report", "results/pi-overnight"]).expect(0);
    assert!(report.stdout().contains("energy_per_token_mj"), "{}", report.stdout());
    lab.run(&["watch", "results/pi-overnight"]).expect(0);
    lab.run(&["verify", "results/pi-overnight"]).expect(0);
    board.run(&["collect", file, "--into", "rescued"]).expect(0);
    board.run(&["cancel", file]).expect(0);
    let reread = lab.run(&["reparse", "results/pi-overnight", "--campaign", file, "--dry-run"]).expect(0);
    assert!(reread.stderr().contains("46 "), "{}", reread.stderr());
}

#[test]
fn the_night_of_the_laptop_runs_as_far_as_its_backends_are_built() {
    let lab = &Lab::new();
    if !lay(lab, "laptop") {
        return;
    }
    let file = "configs/laptop-overnight.yaml";
    let refused = lab.run(&args("run", file, &[])).expect(2);
    assert!(refused.stderr().contains(BUILT), "{}", refused.stderr());
    let ran = lab.run(&args("run", file, &["--set", "measure.power=off", "--filter", BUILT])).expect(0);
    said_once(&ran, "left out: 15 points of backend `onnx`, not in this build yet");
    // Threads as far as this machine has CPUs, 10 formats, 7 lengths, 8 of depth; 12 of latency.
    let cpus = std::thread::available_parallelism().unwrap().get();
    let of_threads = 5 * [1, 4, 8, 14, 20].iter().filter(|threads| **threads <= cpus).count();
    let expected = [("llama-bench", "timing", of_threads + 10 + 7 + 8), ("llama-server", "timing", 12)];
    assert_eq!(answers(lab, "laptop-overnight"), counts(&expected));
}
