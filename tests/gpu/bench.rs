//! A lab with a stand-in of NVIDIA's library.

use crate::lab::{Lab, Ran, User, eventually};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Says that it runs, then waits for the end.
const WORKLOAD: &str = "#!/bin/sh\necho >> started\nwhile [ ! -e end ]; do sleep 0.01; done\n";

pub struct Bench {
    pub lab: Lab,
    library: PathBuf,
}

impl Bench {
    pub fn new(user: User) -> Bench {
        Bench::with(user, &[])
    }

    /// The stand-in is compiled with these flags.
    pub fn with(user: User, flags: &[&str]) -> Bench {
        let lab = Lab::of(user);
        lab.write("workload.sh", WORKLOAD);
        lab.write(
            "c.yaml",
            "campaign: c
devices: { here: { local: {} } }
defaults: { repetitions: 1, retry_contaminated: 0, timeout: 60s, warmup: 0, prepare: { settle: 0ms }, measure: { sample_hz: 50, power: together } }
matrix:
  - { devices: here, backend: command, argv: [./workload.sh] }
",
        );
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/gpu/fake_nvml.c");
        fs::create_dir_all(lab.path("driver")).unwrap();
        let library = lab.path("driver/libnvidia-ml.so.1");
        let gcc = Command::new("gcc").args(["-shared", "-fPIC", "-w"]).args(flags).arg("-o").args([&library, &source]).arg("-ldl").status();
        assert!(gcc.unwrap().success());
        Bench { lab, library }
    }

    /// A machine whose driver came without the library: `nvidia-smi` is there.
    pub fn with_smi_only(user: User) -> Bench {
        let bench = Bench::new(user);
        fs::remove_file(&bench.library).unwrap();
        bench.lab.write("bin/nvidia-smi", include_str!("fake_nvidia_smi.sh").replace("$DIR", &bench.lab.path("driver").display().to_string()));
        fs::set_permissions(bench.lab.path("driver"), fs::Permissions::from_mode(0o777)).unwrap();
        bench
    }

    /// What the driver says from now on.
    pub fn says(&self, lines: &[&str]) {
        // By rename: it is read at any moment.
        self.lab.write("driver/nvml.conf", lines.join("\n") + "\n");
    }

    /// Wait until this has been read a few times more.
    pub fn reads_on(&self, name: &str) {
        let file = self.lab.write(&format!("driver/{name}.reads"), "");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
        eventually(&format!("{name} is read"), || (fs::metadata(&file).unwrap().len() > 3).then_some(()));
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.lab.isotherm(args);
        command.env("ISOTHERM_NVML", &self.library).env("PATH", format!("{}:/usr/bin:/bin", self.lab.path("bin").display()));
        command
    }

    pub fn run(&self, args: &[&str]) -> Ran {
        Ran(self.command(args).output().unwrap())
    }

    pub fn start(&self, args: &[&str]) -> Child {
        self.command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Let the workload end, and the campaign with it.
    pub fn end(&self, controller: Child) -> Ran {
        self.lab.write("end", "");
        Ran(controller.wait_with_output().unwrap())
    }

    #[track_caller]
    pub fn record(&self) -> Value {
        self.lab.only_record("c")
    }
}

/// A reading of a snapshot by metric and source.
#[track_caller]
pub fn reading<'r>(snapshot: &'r Value, metric: &str, source: &str) -> &'r Value {
    let mut readings = snapshot["readings"].as_array().unwrap().iter();
    readings.find(|r| r["metric"] == metric && r["source"] == source).unwrap_or_else(|| panic!("no {metric} from {source} in {snapshot}"))
}

/// A capability of the first device of a probe.
#[track_caller]
pub fn capability<'a>(probe: &'a Value, id: &str) -> &'a Value {
    let all = probe["devices"][0]["capabilities"].as_array().unwrap();
    all.iter().find(|c| c["id"] == id).unwrap_or_else(|| panic!("no {id} in {probe:#}"))
}
