//! The companion of another architecture: it loads the library of that architecture, and says what that one says.

use crate::driver;
use crate::emulated::foreign;
use crate::lab::Lab;
use isotherm::device::{Architecture, agents};
use isotherm_wire::codec::{read_frame, write_message};
use isotherm_wire::companion::{Answer, COMPANION_VERSION, Getter, Question};
use std::fs;
use std::process::{Command, Stdio};

/// Where Debian's cross compiler has the loader and the C library of its programs.
const SYSROOT: &str = "/usr/aarch64-linux-gnu";
const COMPILER: &str = "aarch64-linux-gnu-gcc";

#[test]
fn it_is_found_beside_the_agent_and_answers_by_the_library_of_its_own_architecture() {
    let Some(agent) = foreign().into_iter().find(|agent| agent.architecture == Architecture::Aarch64) else { return };
    if Command::new(COMPILER).arg("--version").stdout(Stdio::null()).status().is_err() {
        assert!(std::env::var_os("CI").is_none(), "this has to run where CI is set: no {COMPILER}");
        return eprintln!("skipped: no {COMPILER}: apt-get install gcc-aarch64-linux-gnu");
    }
    let companion = agent.path.with_file_name(agents::companion_name(agent.architecture));
    let found = agents::companion_for(agent.architecture).unwrap().expect("scripts/build-agents makes it beside the agent");
    assert!(found == fs::read(&companion).unwrap());
    let lab = Lab::new();
    let library = driver::library(&lab, COMPILER, &[]);
    driver::says(&lab, &["power 20000", "temperature !15", "processes 12:1048576"]);
    let mut command = Command::new(&agent.emulator);
    command.args(["-L", SYSROOT]).arg(companion).env_clear().env("ISOTHERM_NVML", &library);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let mut ask = |question: Question| -> Answer {
        write_message(&mut stdin, &question).unwrap();
        read_frame(&mut stdout).unwrap().unwrap().message().unwrap()
    };
    let Answer::Gpus(gpus) = ask(Question::Gpus) else { panic!("it knows a GPU") };
    assert_eq!((gpus.companion_version, gpus.driver.as_deref()), (COMPANION_VERSION, Some("999.01")));
    assert_eq!((gpus.gpus[0].name.as_deref(), gpus.gpus[0].memory_bytes), (Some("Fake GPU"), Some(8 << 30)));
    assert_eq!(ask(Question::Read { gpu: 0, getter: Getter::Power }), Answer::Value(20_000));
    assert!(matches!(ask(Question::Read { gpu: 0, getter: Getter::Temperature }), Answer::Absent(why) if why.reason == "GPU is lost"));
    assert!(matches!(ask(Question::Processes { gpu: 0 }), Answer::Processes(all) if all[0].pid == 12 && all[0].memory_bytes == Some(1 << 20)));
    drop(stdin);
    assert!(child.wait().unwrap().success(), "it ends with its input");
}
