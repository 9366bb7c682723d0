//! A board made of this machine and an emulated processor.

use crate::client::{Client, hello};
use crate::emulated::Agent;
use crate::lab::Lab;
use isotherm_wire::session::{Reply, Welcome};
use std::ffi::OsStr;
use std::process::Command;

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
        command.args(["--user", "--map-root-user", "--mount", "/bin/sh", "-c", ENTER, "board", &self.agent.registration()]);
        command.args(self.through).arg(&self.agent.path).args(args).env_clear();
        command.envs(self.lab.isotherm(&[]).get_envs().filter_map(|(name, value)| Some((name, value?))));
        command
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
