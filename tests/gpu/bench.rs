//! A lab with a stand-in of NVIDIA's library.

use crate::lab::{Lab, Ran, User, spawn};
use crate::{driver, held};
use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command};

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
        held::campaign(&lab);
        let library = driver::library(&lab, "gcc", flags);
        Bench { lab, library }
    }

    /// A machine whose driver came without the library: `nvidia-smi` is there.
    pub fn with_smi_only(user: User) -> Bench {
        let bench = Bench::new(user);
        fs::remove_file(&bench.library).unwrap();
        driver::smi(&bench.lab);
        bench
    }

    /// What the driver says from now on.
    pub fn says(&self, lines: &[&str]) {
        driver::says(&self.lab, lines);
    }

    /// Wait until this has been read a few times more.
    pub fn reads_on(&self, name: &str) {
        driver::reads_on(&self.lab, name);
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.lab.isotherm(args);
        command.env("ISOTHERM_NVML", &self.library).env("PATH", format!("{}:/usr/bin:/bin", self.lab.path("bin").display()));
        command
    }

    pub fn run(&self, args: &[&str]) -> Ran {
        Ran::by(&mut self.command(args))
    }

    pub fn start(&self, args: &[&str]) -> Child {
        spawn(&mut self.command(args))
    }

    /// Let the workload end, and the campaign with it.
    pub fn end(&self, controller: Child) -> Ran {
        held::end(&self.lab, controller)
    }

    #[track_caller]
    pub fn record(&self) -> Value {
        self.lab.only_record("c")
    }
}

/// A capability of the first device of a probe.
#[track_caller]
pub fn capability<'a>(probe: &'a Value, id: &str) -> &'a Value {
    let all = probe["devices"][0]["capabilities"].as_array().unwrap();
    all.iter().find(|c| c["id"] == id).unwrap_or_else(|| panic!("no {id} in {probe:#}"))
}
