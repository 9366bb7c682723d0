//! A lab with a campaign whose model is copied to its device, which is this machine.

use crate::lab::{Lab, Ran, User, eventually};
use isotherm::digest::sha256_hex;
use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use std::process::Child;

/// Says what the model contains that it was given, and where that lies.
const WORKLOAD: &str = "#!/bin/sh\nsha256sum < \"$1\"\necho \"$1\"\n";

pub struct Rig {
    pub lab: Lab,
    pub model: Vec<u8>,
}

impl Rig {
    /// With a model of a few chunks.
    pub fn new(user: User) -> Rig {
        let model: Vec<u8> = (0..700_000_u32).flat_map(|i| i.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
        let rig = Rig { lab: Lab::of(user), model };
        rig.lab.write("workload.sh", WORKLOAD);
        rig.lab.write("models/m.bin", &rig.model);
        rig.campaign("c", "path: models/m.bin, push: true");
        rig
    }

    pub fn campaign(&self, name: &str, model: &str) {
        let text = format!(
            "campaign: {name}
devices: {{ here: {{ local: {{}} }} }}
models: {{ m: {{ {model} }} }}
defaults: {{ repetitions: 1, timeout: 60s, warmup: 0, prepare: {{ settle: 0ms }} }}
matrix:
  - {{ devices: here, backend: command, model: m, argv: [./workload.sh, \"{{model.path}}\"] }}
"
        );
        self.lab.write(&format!("{name}.yaml"), text);
    }

    pub fn run(&self) -> Ran {
        self.lab.run(&["run", "c.yaml"])
    }

    /// `isotherm run c.yaml`, held in the middle of the copy; the model is as large as that takes.
    #[track_caller]
    pub fn copying(&mut self) -> Child {
        loop {
            self.model = self.model.repeat(8);
            self.lab.write("models/m.bin", &self.model);
            let mut controller = self.lab.start(&["run", "c.yaml"]);
            eventually("it copies", || (self.copied_bytes() > 0 || controller.try_wait().unwrap().is_some()).then_some(()));
            signal(&controller, libc::SIGSTOP);
            // The chunk that is on its way may still come.
            if (1..self.model.len() as u64 - (1 << 20)).contains(&self.copied_bytes()) {
                return controller;
            }
            assert!(self.model.len() < 1 << 30, "never caught");
            signal(&controller, libc::SIGCONT);
            controller.wait().unwrap();
            fs::remove_dir_all(self.lab.results("c")).unwrap();
        }
    }

    /// Of a copy that isn't whole.
    pub fn copied_bytes(&self) -> u64 {
        fs::metadata(self.part()).map_or(0, |meta| meta.len())
    }

    pub fn cache(&self) -> PathBuf {
        self.lab.path("state/isotherm/models")
    }

    pub fn sha256(&self) -> String {
        sha256_hex(&self.model)
    }

    /// The copy.
    pub fn copied(&self) -> PathBuf {
        self.cache().join(self.sha256()).join("m.bin")
    }

    pub fn part(&self) -> PathBuf {
        self.cache().join(format!("{}.part", self.sha256()))
    }

    /// Events of this name in the journal, in order.
    pub fn events(&self, name: &str) -> Vec<Value> {
        self.lab.events("c", name)
    }

    /// How many bytes each copy took.
    pub fn copies(&self) -> Vec<u64> {
        self.events("pushed").iter().map(|event| event["copied_bytes"].as_u64().unwrap()).collect()
    }

    /// The only record is of a run with the copy.
    #[track_caller]
    pub fn ran_with_the_copy(&self) {
        let record = self.lab.only_record("c");
        assert_eq!(record["status"], "ok", "{record}");
        assert_eq!(record["workload"]["model"]["sha256"], self.sha256());
        let said = record["raw"]["stdout"]["head"]["data"].as_str().unwrap();
        assert_eq!(said, format!("{}  -\n{}\n", self.sha256(), self.copied().display()));
        assert_eq!(fs::read(self.copied()).unwrap(), self.model);
        assert!(!self.part().exists());
    }
}

pub fn signal(controller: &Child, signal: i32) {
    // SAFETY: plain integers.
    unsafe { libc::kill(i32::try_from(controller.id()).unwrap(), signal) };
}
