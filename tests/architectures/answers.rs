//! What an agent answers by itself, without a keeper.

use crate::emulated::foreign;
use crate::lab::{Lab, Ran, copy_executable};
use isotherm::device::{Architecture, agents};
use isotherm_wire::task::{InferOutput, InferTask, OUTPUT_DIGEST_METHOD};
use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// Models with the digests that the example campaign expects of them.
pub fn models() -> Vec<(String, String)> {
    let campaign = fs::read_to_string(format!("{ROOT}/configs/smoke.yaml")).unwrap();
    let values = |key: &str| {
        let lines = campaign.lines().filter_map(|line| line.trim().strip_prefix(key)?.strip_prefix(": "));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let (paths, digests) = (values("path"), values("output_digest"));
    assert_eq!((paths.len(), digests.len()), (2, 2), "of configs/smoke.yaml");
    paths.iter().map(|path| format!("{ROOT}/configs/{path}")).zip(digests).collect()
}

pub fn task(model: &str) -> InferTask {
    InferTask { model: model.into(), threads: 1, warmup: 1, rounds: 1, iterations: 2, window: None, cooldown_ms: 0, seed: 1 }
}

fn infer(mut command: Command, task: &InferTask) -> InferOutput {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(&serde_json::to_vec(task).unwrap()).unwrap();
    let said = Ran::of(child).expect(0);
    serde_json::from_str(&said.stdout()).unwrap()
}

#[test]
fn each_says_its_version_and_what_it_was_built_for() {
    for agent in foreign() {
        let said = Ran(agent.command(&["--version"]).output().unwrap()).expect(0).stdout();
        assert_eq!(said, format!("isotherm-agent {} {}\n", env!("CARGO_PKG_VERSION"), agent.architecture.triple()));
    }
}

#[test]
fn each_infers_what_this_machine_infers() {
    let agents = foreign();
    let lab = Lab::new();
    let (carried, native) = (lab.path("carried"), lab.path("agent"));
    let here = Architecture::of_this_machine().expect("there is an agent for this machine");
    fs::write(&carried, agents::agent_for(here).unwrap()).unwrap();
    copy_executable(&carried, &native);
    for (model, digest) in models() {
        let mut command = Command::new(&native);
        command.arg("infer").env_clear();
        let expected = infer(command, &task(&model));
        assert_eq!((&expected.output_digest, expected.output_digest_method.as_str()), (&digest, OUTPUT_DIGEST_METHOD), "{model}");
        for agent in &agents {
            for threads in [1, 2] {
                let output = infer(agent.command(&["infer"]), &InferTask { threads, ..task(&model) });
                let name = format!("{model} on {} with {threads} threads", agent.architecture);
                assert_eq!(output.output_digest, digest, "{name}");
                assert_eq!(output.inputs, expected.inputs, "{name}");
                assert_eq!((output.engine, output.engine_version), (expected.engine.clone(), expected.engine_version.clone()), "{name}");
                assert_eq!((output.threads, output.rounds_ns[0].len()), (threads, 2), "{name}");
            }
        }
    }
}

#[test]
fn each_names_a_model_that_it_can_not_hold() {
    let lab = Lab::new();
    let model = lab.path("large.onnx");
    // Nothing is behind it on the disk; 3 GiB are more than a program of 32 bits can have in one piece.
    fs::File::create(&model).unwrap().set_len(3 << 30).unwrap();
    for agent in foreign().into_iter().filter(|agent| agent.architecture == Architecture::Armv7) {
        let mut child = agent.command(&["infer"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(&serde_json::to_vec(&task(model.to_str().unwrap())).unwrap()).unwrap();
        let said = Ran::of(child).expect(1).stderr();
        assert!(said.contains(&format!("model {}: can't be read: out of memory", model.display())), "{said}");
    }
}
