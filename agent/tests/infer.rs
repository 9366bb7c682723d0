//! `isotherm-agent infer` as its parent sees it: a task on stdin, one line on stdout or one error on stderr.
#![expect(clippy::unwrap_used, reason = "tests")]

use isotherm_wire::task::{InferOutput, InferTask, OUTPUT_DIGEST_METHOD, Window};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Digests for `seed: 1`, also stated in `configs/models/README.md`; ONNX Runtime 1.32.0 gives the same ones for the same inputs.
const GOLDEN: [(&str, &str); 2] = [
    ("tiny-cnn.onnx", "18747911c14f678d7cd9aeb783336406c1cc910598598902e487ea8bb5bd4914"),
    ("tiny-transformer.onnx", "463f4bbf0e9561d00257a0d10415f430e7ae15524fef31e0f5de0a550fbcd336"),
];

const MODELS_DIR: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../configs/models");

fn task(model: &Path) -> InferTask {
    InferTask { model: model.to_str().unwrap().to_owned(), threads: 1, warmup: 2, rounds: 3, iterations: 4, window: None, cooldown_ms: 0, seed: 1 }
}

fn example(name: &str) -> InferTask {
    task(&Path::new(MODELS_DIR).join(name))
}

fn spawn(input: &[u8], variables: &[(&str, &str)]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_isotherm-agent"))
        .arg("infer")
        .env_clear()
        .envs(variables.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    child.wait_with_output().unwrap()
}

fn infer(task: &InferTask) -> InferOutput {
    let output = spawn(&serde_json::to_vec(task).unwrap(), &[]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.matches('\n').count(), 1, "one line");
    serde_json::from_str(&text).unwrap()
}

/// Stderr of a child that has to fail: exit 1, nothing on stdout.
fn refusal(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.is_empty(), "{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn refused(task: &InferTask) -> String {
    refusal(&spawn(&serde_json::to_vec(task).unwrap(), &[]))
}

#[test]
fn both_models_give_their_golden_digest_with_one_and_with_two_threads() {
    for (name, golden) in GOLDEN {
        for threads in [1, 2] {
            let output = infer(&InferTask { threads, ..example(name) });
            assert_eq!(output.output_digest, golden, "{name} with {threads} threads");
            assert_eq!(output.output_digest_method, OUTPUT_DIGEST_METHOD);
            assert_eq!(output.threads, threads);
        }
    }
}

#[test]
fn the_readme_of_the_models_states_the_golden_digests() {
    let readme = std::fs::read_to_string(format!("{MODELS_DIR}/README.md")).unwrap();
    for (name, golden) in GOLDEN {
        assert!(readme.contains(golden), "{name}");
    }
}

#[test]
fn another_seed_gives_other_inputs_and_another_answer() {
    for (name, golden) in GOLDEN {
        let output = infer(&InferTask { seed: 2, ..example(name) });
        assert_ne!(output.output_digest, golden, "{name}");
        assert_ne!(output.inputs, infer(&example(name)).inputs, "{name}");
    }
}

#[test]
fn every_inference_is_counted_and_lies_inside_the_window() {
    for (name, _) in GOLDEN {
        let output = infer(&example(name));
        assert_eq!(output.warmup_ns.len(), 2);
        assert_eq!(output.rounds_ns.iter().map(Vec::len).collect::<Vec<_>>(), [4, 4, 4]);
        assert_eq!(output.first_inference_ns, output.warmup_ns[0]);
        let timed: Vec<u64> = output.rounds_ns.concat();
        assert!(timed.iter().chain(&output.warmup_ns).all(|&duration| duration > 0));
        assert!(output.load_ns > 0);
        assert!(output.window_start_ns > 0);
        assert!(timed.iter().sum::<u64>() <= output.window_end_ns - output.window_start_ns);
    }
}

#[test]
fn without_warm_up_the_first_inference_is_the_first_timed_one() {
    let output = infer(&InferTask { warmup: 0, rounds: 1, iterations: 1, ..example("tiny-cnn.onnx") });
    assert!(output.warmup_ns.is_empty());
    assert_eq!(output.rounds_ns, [[output.first_inference_ns]]);
    assert_eq!(output.window_end_ns - output.window_start_ns, output.first_inference_ns);
}

#[test]
fn a_window_is_one_round_of_as_many_inferences_as_fill_it() {
    let with = |target_ms, least| {
        let window = Some(Window { target_ms, least });
        infer(&InferTask { warmup: 3, rounds: 1, iterations: 9, window, ..example("tiny-cnn.onnx") }).rounds_ns
    };
    let inferences = |rounds: Vec<Vec<u64>>| rounds.iter().map(Vec::len).collect::<Vec<_>>();
    // More than it may have, and less than it must.
    assert_eq!((inferences(with(3_600_000, 1)), inferences(with(0, 4))), (vec![9], vec![4]));
}

#[test]
fn the_window_is_on_the_monotonic_clock_of_the_parent() {
    let before = monotonic_ns();
    let output = infer(&example("tiny-cnn.onnx"));
    assert!(before < output.window_start_ns && output.window_end_ns < monotonic_ns());
}

fn monotonic_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a valid timespec for the kernel to fill, and nothing else refers to it.
    assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) }, 0);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[test]
fn tensors_are_described_as_the_engine_holds_them() {
    let output = infer(&example("tiny-transformer.onnx"));
    let facts: Vec<_> =
        output.inputs.iter().chain(&output.outputs).map(|fact| (fact.name.as_str(), fact.dtype.as_str(), fact.shape.as_slice())).collect();
    assert_eq!(facts, [("ids", "i32", &[1, 64][..]), ("logits", "f32", &[1, 64, 64])]);
    assert!(output.inputs.iter().chain(&output.outputs).all(|fact| fact.sha256.len() == 64));
}

#[test]
fn a_missing_model_is_named() {
    let error = refused(&task(Path::new("/nonexistent/model.onnx")));
    assert!(error.contains("model /nonexistent/model.onnx: can't be read: No such file or directory"), "{error}");
}

#[test]
fn a_file_that_is_no_model_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notes.onnx");
    std::fs::write(&path, "This is text, and no graph at all.\n").unwrap();
    let error = refused(&task(&path));
    assert!(error.contains(&format!("model {}: not an ONNX file", path.display())), "{error}");
}

#[test]
fn a_truncated_model_is_refused_wherever_it_was_cut() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cut.onnx");
    let whole = std::fs::read(format!("{MODELS_DIR}/tiny-cnn.onnx")).unwrap();
    for length in [0, 1, 40, whole.len() / 2, whole.len() - 1] {
        std::fs::write(&path, &whole[..length]).unwrap();
        let error = refused(&task(&path));
        assert!(error.contains(&format!("model {}: ", path.display())) && error.contains("truncated"), "{length} bytes: {error}");
    }
}

#[test]
fn an_operator_that_the_engine_lacks_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("unknown-operator.onnx");
    let mut model = std::fs::read(format!("{MODELS_DIR}/tiny-cnn.onnx")).unwrap();
    // Same length, so that the lengths that enclose it stay right.
    let known = b"GlobalAveragePool";
    let place = model.windows(known.len()).position(|window| window == known).unwrap();
    model[place..place + known.len()].copy_from_slice(b"GlobalMaximumPool");
    std::fs::write(&path, model).unwrap();
    let error = refused(&task(&path));
    assert!(error.contains("the engine can't execute an operator") && error.contains("GlobalMaximumPool"), "{error}");
}

#[test]
fn an_input_that_can_not_be_generated_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("string-input.onnx");
    let mut model = std::fs::read(format!("{MODELS_DIR}/tiny-cnn.onnx")).unwrap();
    // ValueInfoProto: name (field 1) "image", type (2) { tensor_type (1) { elem_type (1) = 1 FLOAT …: made 8 STRING.
    let name = b"\x0a\x05image\x12";
    let place = model.windows(name.len()).position(|window| window == name).unwrap() + name.len();
    assert_eq!((model[place + 1], model[place + 3], model[place + 4]), (0x0a, 0x08, 1), "layout of the type");
    model[place + 4] = 8;
    std::fs::write(&path, model).unwrap();
    let error = refused(&task(&path));
    assert!(error.contains("tensor \"image\": can't generate values"), "{error}");
}

#[test]
fn an_inference_that_fails_is_reported_in_the_words_of_the_engine() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("short-input.onnx");
    let mut model = std::fs::read(format!("{MODELS_DIR}/tiny-transformer.onnx")).unwrap();
    // ValueInfoProto of the input: the dimension 64 made 63, which can't be added to 64 positions.
    let name = b"\x0a\x03ids\x12";
    let place = model.windows(name.len()).position(|window| window == name).unwrap();
    let dimension = model[place..].windows(4).position(|window| window == [0x0a, 2, 8, 64]).unwrap();
    model[place + dimension + 3] = 63;
    std::fs::write(&path, model).unwrap();
    let error = refused(&task(&path));
    assert!(error.contains(&format!("model {}: inference failed: ", path.display())), "{error}");
}

#[test]
fn numbers_that_measure_nothing_or_too_much_are_refused() {
    let good = example("tiny-cnn.onnx");
    for (task, expected) in [
        (InferTask { threads: 0, ..good.clone() }, "task: threads is 0, must be 1 to 1024"),
        (InferTask { threads: 1025, ..good.clone() }, "task: threads is 1025, must be 1 to 1024"),
        (InferTask { rounds: 0, ..good.clone() }, "task: rounds is 0"),
        (InferTask { iterations: 0, ..good.clone() }, "task: iterations is 0"),
        (InferTask { rounds: u32::MAX, iterations: u32::MAX, ..good }, "no memory for the durations"),
    ] {
        let error = refused(&task);
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn what_is_not_a_task_is_refused() {
    for input in [&b""[..], b"{}", b"{\"model\": 1}", b"not json"] {
        let error = refusal(&spawn(input, &[]));
        assert!(error.contains("task: "), "{error}");
    }
}

#[test]
fn the_engine_is_not_allowed_to_print_between_our_output() {
    let input = serde_json::to_vec(&example("tiny-cnn.onnx")).unwrap();
    let error = refusal(&spawn(&input, &[("RTEN_TIMING", "1")]));
    assert!(error.contains("RTEN_TIMING") && error.contains("hint:"), "{error}");
}
