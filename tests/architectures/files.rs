//! The files as the controller looks for them.

use crate::emulated::foreign;
use crate::lab::{Lab, Ran, copy_executable};
use isotherm::device::{Architecture, agents};
use std::fs;
use std::process::Command;

#[test]
fn each_is_found_whole_and_every_piece_of_it_is_refused() {
    for agent in foreign() {
        let architecture = agent.architecture;
        let dir = agent.path.parent().unwrap().to_owned();
        let whole = agents::read(architecture, &[dir]).unwrap();
        assert!(whole == fs::read(&agent.path).unwrap());
        let lab = Lab::new();
        for length in [0, 1, 20, 4096, whole.len() / 2, whole.len() - 1] {
            let path = lab.write(&agents::file_name(architecture), &whole[..length]);
            let error = agents::read(architecture, &[lab.path("")]).unwrap_err().to_string();
            let fault = if length == 0 { "is empty" } else { "is " };
            assert!(error.starts_with(&format!("the agent {} {fault}", path.display())), "{length} bytes: {error}");
        }
    }
}

#[test]
fn one_for_another_machine_is_refused_before_it_is_sent_there() {
    let here = Architecture::of_this_machine().expect("there is an agent for this machine");
    for agent in foreign() {
        let lab = Lab::new();
        lab.write(&agents::file_name(here), fs::read(&agent.path).unwrap());
        let error = agents::read(here, &[lab.path("")]).unwrap_err();
        assert!(error.to_string().ends_with(&format!("is for {}, not for {here}", agent.architecture)), "{error}");
        // And where it is started all the same, the kernel knows.
        let path = lab.path("agent");
        copy_executable(&agent.path, &path);
        match Command::new(&path).arg("--version").output() {
            Err(e) => assert_eq!(e.raw_os_error(), Some(libc::ENOEXEC), "{e}"),
            // This machine as a whole emulates that architecture.
            Ok(output) => assert!(Ran(output).expect(0).stdout().contains(agent.architecture.triple())),
        }
    }
}
