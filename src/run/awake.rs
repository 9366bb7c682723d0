//! Keeps this machine from sleeping while a campaign runs. Takes nothing, gives a lock that ends with its holder and what came of asking
//! for it; must not know what runs.
//!
//! `systemd-inhibit` holds the lock for as long as its command lives, and that is `cat` on a pipe of ours: it ends when we do, however
//! that may be.

use crate::store::record::SleepInhibited;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

const PROGRAM: &str = "systemd-inhibit";
const ARGUMENTS: [&str; 5] =
    ["--what=sleep:idle:handle-lid-switch", "--mode=block", "--who=isotherm", "--why=a measurement campaign is running", "cat"];
/// The lock is granted within this time, or the campaign goes on without.
const GRANTED_WITHIN: Duration = Duration::from_secs(5);
/// `cat` ends within this time after its pipe, or is left.
const ENDS_WITHIN: Duration = Duration::from_secs(1);
/// Read of what a refusal says, bytes.
const MOST_WORDS: u64 = 4096;

/// The lock; given back when this is dropped.
pub(super) struct Inhibitor {
    child: Child,
    /// Granted, or why not; disconnected once nobody is there any more.
    told: Receiver<Result<(), String>>,
}

/// Ask for the lock, and say what came of it.
pub(super) fn hold() -> (Option<Inhibitor>, SleepInhibited) {
    match Inhibitor::start() {
        Ok(inhibitor) => (Some(inhibitor), SleepInhibited { held: true, reason: None }),
        Err(reason) => (None, SleepInhibited { held: false, reason: Some(reason) }),
    }
}

impl Inhibitor {
    fn start() -> Result<Inhibitor, String> {
        let failed = |e: std::io::Error| format!("{PROGRAM}: {e}");
        let mut command = Command::new(PROGRAM);
        command.args(ARGUMENTS).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // A Ctrl-C of the terminal is for us, who may go on for hours.
        let mut child = command.process_group(0).spawn().map_err(failed)?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let (sender, told) = channel();
        let mut inhibitor = Inhibitor { child, told };
        thread::Builder::new()
            .name("awake".into())
            .spawn(move || {
                let (Some(mut stdout), Some(mut stderr)) = (stdout, stderr) else { return };
                let granted = stdout.read_exact(&mut [0]).is_ok();
                let _ = sender.send(if granted { Ok(()) } else { Err(words(&mut stderr)) });
                let _ = stdout.read_to_end(&mut Vec::new());
            })
            .map_err(failed)?;
        // `cat` is started once the lock is granted: who answers holds it.
        if let Some(stdin) = &mut inhibitor.child.stdin {
            let _ = stdin.write_all(b"\n");
        }
        let silent = |_| Err(format!("{PROGRAM}: no answer within {} s", GRANTED_WITHIN.as_secs()));
        inhibitor.told.recv_timeout(GRANTED_WITHIN).unwrap_or_else(silent).map(|()| inhibitor)
    }
}

impl Drop for Inhibitor {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        if self.told.recv_timeout(ENDS_WITHIN) == Err(RecvTimeoutError::Timeout) {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}

/// What it says of its failure, in its own words.
fn words(stderr: impl Read) -> String {
    let mut words = Vec::new();
    let _ = stderr.take(MOST_WORDS).read_to_end(&mut words);
    match String::from_utf8_lossy(&words).trim() {
        "" => format!("{PROGRAM}: ended without a word"),
        said => format!("{PROGRAM}: {said}"),
    }
}
