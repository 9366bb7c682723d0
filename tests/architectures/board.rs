//! An agent for another architecture, and a board made of this machine and an emulated processor.

use crate::client::{Client, hello};
use crate::lab::Lab;
use isotherm::device::{Architecture, agents};
use isotherm_wire::session::{Reply, Welcome};
use std::ffi::OsStr;
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
    /// `isotherm-agent ARGS`, not started yet. It can't start itself again: that takes a [`Board`].
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.emulator);
        command.arg(&self.path).args(args).env_clear();
        command
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

/// A user namespace in which the kernel hands programs of another architecture to their emulator; other programs are this machine's.
/// It takes no privilege and changes nothing outside.
pub struct Board<'a> {
    pub lab: Lab,
    agent: &'a Agent,
    /// What the agent is started through, if anything.
    through: &'static [&'static str],
}

/// As of Linux 6.7 a user namespace has a `binfmt_misc` of its own. `F` opens the emulator now, whatever becomes of paths.
const ENTER: &str =
    r#"mount -t binfmt_misc none /proc/sys/fs/binfmt_misc && printf %s "$1" > /proc/sys/fs/binfmt_misc/register && shift && exec "$@""#;

impl<'a> Board<'a> {
    pub fn of(agent: &'a Agent) -> Board<'a> {
        Board::through(agent, &[])
    }

    /// One whose agent is started by another program.
    pub fn through(agent: &'a Agent, through: &'static [&'static str]) -> Board<'a> {
        let board = Board { lab: Lab::new(), agent, through };
        let output = board.command(&[OsStr::new("--version")]).output().unwrap();
        assert!(output.status.success(), "an emulated board needs Linux 6.7 with user namespaces: {}", String::from_utf8_lossy(&output.stderr));
        board
    }

    fn command(&self, args: &[&OsStr]) -> Command {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount", "/bin/sh", "-c", ENTER, "board", &self.registration()]);
        command.args(self.through).arg(&self.agent.path).args(args).env_clear();
        command.envs(self.lab.isotherm(&[]).get_envs().filter_map(|(name, value)| Some((name, value?))));
        command
    }

    /// A line for `binfmt_misc`: everything whose ELF header, up to the machine, is that of the agent, except for the byte of the system.
    fn registration(&self) -> String {
        let head = fs::read(&self.agent.path).unwrap();
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("\\x{byte:02x}")).collect::<String>();
        let mut mask = [0xff; 20];
        // EI_OSABI, and the low bit that tells position-independent executables from others.
        (mask[7], mask[16]) = (0, 0xfe);
        format!(":isotherm-agent:M::{}:{}:{}:F", hex(&head[..20]), hex(&mask), self.agent.emulator.display())
    }

    /// A connection that has been greeted and hasn't said hello.
    pub fn connect(&self) -> Client {
        Client::greeted_by(&mut self.command(&["serve", "--nonce", "n0"].map(OsStr::new)))
    }

    /// A connection of a campaign.
    #[track_caller]
    pub fn session(&self) -> (Client, Welcome) {
        let mut client = self.connect();
        match client.ask(hello("a campaign")) {
            Reply::Welcome(welcome) => (client, welcome),
            other => panic!("{}: {other:?}", self.agent.architecture),
        }
    }
}
