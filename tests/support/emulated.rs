//! Agents for other architectures, and what executes them here.

use isotherm::device::{Architecture, agents};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The architectures whose agents can be tried here: those of other machines than this one, whose agent all other tests try.
///
/// Without agents or without an emulator a test says so and tries nothing; in CI, both have to be there.
pub fn foreign() -> Vec<Agent> {
    let required = std::env::var_os("CI").is_some();
    let skip = |why: String| {
        assert!(!required, "this has to run where CI is set: {why}");
        eprintln!("skipped: {why}");
    };
    let Some(dir) = std::env::var_os(agents::AGENTS_DIR_VARIABLE) else {
        skip(format!("{} is not set; scripts/build-agents makes what it has to name", agents::AGENTS_DIR_VARIABLE));
        return Vec::new();
    };
    let others = Architecture::ALL.into_iter().filter(|a| Some(*a) != Architecture::of_this_machine());
    let found = others.filter_map(|architecture| {
        let path = Path::new(&dir).join(agents::file_name(architecture));
        let emulator = emulator_of(architecture);
        match (fs::canonicalize(&path), &emulator) {
            (Ok(path), Some(emulator)) => return Some(Agent { architecture, path, emulator: emulator.clone() }),
            (Err(e), _) => skip(format!("{}: {e}", path.display())),
            (_, None) => skip(format!("no qemu for {architecture}: apt-get install qemu-user-static")),
        }
        None
    });
    found.collect()
}

/// An agent and what executes it here.
pub struct Agent {
    pub architecture: Architecture,
    pub path: PathBuf,
    pub emulator: PathBuf,
}

impl Agent {
    /// `isotherm-agent ARGS`, not started yet. It can't start itself again: that takes a board.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.emulator);
        command.arg(&self.path).args(args).env_clear();
        command
    }

    /// A line for `binfmt_misc`: everything whose ELF header, up to the machine, is that of the agent, except for the byte of the system.
    pub fn registration(&self) -> String {
        let head = fs::read(&self.path).unwrap();
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("\\x{byte:02x}")).collect::<String>();
        let mut mask = [0xff; 20];
        // EI_OSABI, and the low bit that tells position-independent executables from others.
        (mask[7], mask[16]) = (0, 0xfe);
        format!(":isotherm-agent:M::{}:{}:{}:PF", hex(&head[..20]), hex(&mask), self.emulator.display())
    }
}

fn emulator_of(architecture: Architecture) -> Option<PathBuf> {
    let name = match architecture {
        Architecture::Armv7 => "arm".to_owned(),
        other => other.to_string(),
    };
    let dirs = std::env::var_os("PATH")?;
    let mut places = std::env::split_paths(&dirs).flat_map(|dir| [dir.join(format!("qemu-{name}-static")), dir.join(format!("qemu-{name}"))]);
    places.find(|path| path.is_file())
}
