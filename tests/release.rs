//! The release archive as `scripts/release` packs it: the same files give the same bytes, and what is unpacked works.
#![expect(clippy::unwrap_used, reason = "tests")]

use isotherm::device::{Architecture, agents};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const WITH_COMPANION: [Architecture; 2] = [Architecture::X86_64, Architecture::Aarch64];

/// A directory with four agents and two companions. Where the tests were given none of other architectures, copies of this machine's stand
/// in for them: what can be tried then is the packing.
fn agents_dir(dir: &Path) -> PathBuf {
    let place = dir.join("agents");
    fs::create_dir(&place).unwrap();
    let given = std::env::var_os(agents::AGENTS_DIR_VARIABLE).map(PathBuf::from);
    assert!(given.is_some() || std::env::var_os("CI").is_none(), "{} has to be set where CI is", agents::AGENTS_DIR_VARIABLE);
    let here = Architecture::of_this_machine().unwrap();
    let (agent, companion) = (agents::agent_for(here).unwrap(), agents::companion_for(here).unwrap().expect("it is embedded"));
    let programs = Architecture::ALL.map(|architecture| (architecture, agents::file_name(architecture), &agent));
    let companions = WITH_COMPANION.map(|architecture| (architecture, agents::companion_name(architecture), &companion));
    for (architecture, name, own) in programs.into_iter().chain(companions) {
        let program = match &given {
            _ if architecture == here => own.to_vec(),
            Some(given) => fs::read(given.join(&name)).unwrap(),
            None => {
                eprintln!("skipped: packing {name}, {} is not set", agents::AGENTS_DIR_VARIABLE);
                own.to_vec()
            }
        };
        fs::write(place.join(name), program).unwrap();
    }
    place
}

fn release(agents: &Path, out: &Path, more: &[&str]) -> Output {
    let mut command = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/release"));
    command.args(["--controller", env!("CARGO_BIN_EXE_isotherm"), "--agents"]).arg(agents).arg("--out").arg(out).args(more);
    command.output().unwrap()
}

#[track_caller]
fn succeeds(output: Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn archive_in(dir: &Path) -> PathBuf {
    dir.join(format!("isotherm-{}-x86_64-linux.tar.gz", env!("CARGO_PKG_VERSION")))
}

/// Unpack as a user would; the directory that came out.
fn unpack(archive: &Path, into: &Path) -> PathBuf {
    fs::create_dir(into).unwrap();
    succeeds(Command::new("tar").arg("-xzf").arg(archive).arg("-C").arg(into).output().unwrap());
    into.join(format!("isotherm-{}-x86_64-linux", env!("CARGO_PKG_VERSION")))
}

fn sums_fit(dir: &Path) -> bool {
    Command::new("sha256sum").args(["--quiet", "--strict", "-c", "SHA256SUMS"]).current_dir(dir).output().unwrap().status.success()
}

#[test]
fn a_release_is_whole_runs_its_example_and_is_packed_the_same_twice() {
    if std::env::consts::ARCH != "x86_64" {
        eprintln!("skipped: releases are made on x86_64");
        return;
    }
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let agents = agents_dir(dir.path());
    let [first, second] = ["first", "second"].map(|name| dir.path().join(name));
    // The script itself runs the example campaign from the unpacked archive.
    let said = succeeds(release(&agents, &first, &[]));
    assert!(said.contains("-x86_64-linux.tar.gz  ") && said.contains("  sha256 "), "{said}");
    succeeds(release(&agents, &second, &["--skip-trial"]));
    assert!(fs::read(archive_in(&first)).unwrap() == fs::read(archive_in(&second)).unwrap(), "the same files, other bytes");
    assert!(sums_fit(&first));

    let unpacked = unpack(&archive_in(&first), &dir.path().join("unpacked"));
    let listed = fs::read_to_string(unpacked.join("SHA256SUMS")).unwrap();
    let names: Vec<&str> = listed.lines().filter_map(|line| Some(line.split_once("  ")?.1)).collect();
    assert!(names.is_sorted(), "{names:?}");
    for name in ["isotherm", "LICENSE-MIT", "LICENSE-APACHE", "README.md", "configs/smoke.yaml", "configs/models/tiny-cnn.onnx", "docs/README.md"] {
        assert!(names.contains(&name), "{name} is missing in {names:?}");
    }
    for architecture in Architecture::ALL {
        assert!(names.contains(&format!("agents/{}", agents::file_name(architecture)).as_str()), "{architecture}");
    }
    for architecture in WITH_COMPANION {
        assert!(names.contains(&format!("agents/{}", agents::companion_name(architecture)).as_str()), "{architecture}");
    }
    // A byte that is another one, a file that is gone: each is seen.
    assert!(sums_fit(&unpacked));
    let campaign = fs::read(unpacked.join("configs/smoke.yaml")).unwrap();
    fs::write(unpacked.join("configs/smoke.yaml"), [&campaign[..], b"\n"].concat()).unwrap();
    assert!(!sums_fit(&unpacked));
    fs::remove_file(unpacked.join("configs/smoke.yaml")).unwrap();
    assert!(!sums_fit(&unpacked));
}

#[test]
fn an_agent_that_is_missing_or_cut_makes_no_release() {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let agents = agents_dir(dir.path());
    let out = dir.path().join("out");
    let path = agents.join(agents::file_name(Architecture::Riscv64));
    let whole = fs::read(&path).unwrap();
    for (content, fault) in [(Some(&whole[..whole.len() - 1]), "is cut"), (Some(&b""[..]), "is empty"), (None, "is not there")] {
        match content {
            Some(content) => fs::write(&path, content).unwrap(),
            None => fs::remove_file(&path).unwrap(),
        }
        let output = release(&agents, &out, &["--skip-trial"]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(&format!("{} {fault}", path.display())), "{said}");
        assert!(!archive_in(&out).exists());
    }
}
