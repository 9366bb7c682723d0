//! The thin edge of preparation: one change of the machine, in a child of its own that is never killed in the middle.
//!
//! Takes an [`Action`], gives what came of it within its deadline; must not know why it is wanted. A child holds [`LOCK`] for as long
//! as it lives, whatever becomes of its keeper: so the next one knows of a `swapoff` that is still at it.

use super::Stop;
use crate::sys;
use isotherm_wire::task::{SWAPOFF_DEADLINE_MS, SWAPON_DEADLINE_MS, SYNC_DEADLINE_MS, WRITE_DEADLINE_MS};
use serde::{Deserialize, Serialize};
use std::ffi::{CString, OsString};
use std::fmt;
use std::fs::{File, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// In the state directory; says what its holder does.
const LOCK: &str = "step.lock";
pub const SUDO: &str = "/usr/bin/sudo";
/// Between two looks at what a driver is slow to do, ns.
const LOOK_AGAIN_NS: u64 = 10_000_000;
/// Flag of swapon(2): the priority that goes with it is meant.
const SWAP_FLAG_PREFER: i32 = 0x8000;

/// One change of the machine. Paths are derived from what the kernel lists, never read from a file of ours.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Write back everything outstanding.
    Sync,
    Write {
        path: PathBuf,
        value: String,
    },
    SwapOff {
        area: String,
    },
    /// `None` = the kernel chooses the priority.
    SwapOn {
        area: String,
        priority: Option<u16>,
    },
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::Sync => f.write_str("sync"),
            Action::Write { path, value } => write!(f, "writing {value} to {}", path.display()),
            Action::SwapOff { area } => write!(f, "swapoff {area}"),
            Action::SwapOn { area, .. } => write!(f, "swapon {area}"),
        }
    }
}

/// Who changes the machine; scripted in tests.
pub trait Act {
    /// # Errors
    /// `Denied`, `Failed`, or `Hangs` when it is still at it past its deadline, as an earlier one may be.
    fn act(&mut self, action: &Action) -> Result<(), Stop>;
    /// What an earlier one is still at, past its deadline or its keeper's end.
    fn unfinished(&self) -> Option<String>;
    /// Wait a little for what a driver does by itself.
    fn pause(&mut self);
}

/// What a child says of its action, one JSON line.
#[derive(Debug, Serialize, Deserialize)]
enum Told {
    Done,
    Denied(String),
    Failed(String),
}

/// Acts by children that hold the lock of a state directory.
pub struct Children {
    pub dir: PathBuf,
}

impl Act for Children {
    fn act(&mut self, action: &Action) -> Result<(), Stop> {
        let failed = |e: io::Error| Stop::Failed(format!("{action}: {e}"));
        let lock = match lock(&self.dir).map_err(failed)? {
            Locked::Ours(mut file) => {
                file.set_len(0).and_then(|()| file.write_all(action.to_string().as_bytes())).map_err(failed)?;
                file
            }
            Locked::Held(what) => return Err(Stop::Hangs(what)),
        };
        let mut command = Command::new("/proc/self/exe");
        command.arg0("isotherm-agent").arg("alter").arg(serde_json::to_string(action).map_err(|e| failed(e.into()))?);
        command.current_dir("/").stdin(Stdio::from(lock)).stdout(Stdio::piped()).stderr(Stdio::null());
        // SAFETY: setsid is async-signal-safe.
        unsafe { command.pre_exec(sys::new_session) };
        let mut child = command.spawn().map_err(failed)?;
        let mut told = Vec::new();
        if let Some(mut stdout) = child.stdout.take() {
            let give_up_at = sys::boottime_ns() + action.deadline_ms() * 1_000_000;
            let mut chunk = [0; 4096];
            loop {
                let left = give_up_at.saturating_sub(sys::boottime_ns());
                if sys::poll_readable(&[stdout.as_raw_fd()], Some(left))[0] {
                    match stdout.read(&mut chunk).map_err(failed)? {
                        0 => break,
                        n => told.extend_from_slice(&chunk[..n]),
                    }
                } else if left == 0 {
                    let seconds = action.deadline_ms() / 1000;
                    return Err(Stop::Hangs(format!("{action} (process {}) has not ended within {seconds} s", child.id())));
                }
            }
        }
        let _ = child.wait();
        match serde_json::from_slice(&told) {
            Ok(Told::Done) => Ok(()),
            Ok(Told::Denied(why)) => Err(Stop::Denied(format!("{action}: {why}"))),
            Ok(Told::Failed(why)) => Err(Stop::Failed(format!("{action}: {why}"))),
            Err(_) => Err(Stop::Failed(format!("{action}: its process ended without a word"))),
        }
    }

    fn unfinished(&self) -> Option<String> {
        unfinished(&self.dir)
    }

    fn pause(&mut self) {
        sys::poll_readable(&[], Some(LOOK_AGAIN_NS));
    }
}

enum Locked {
    Ours(File),
    /// By a child that is still at it: at what.
    Held(String),
}

fn lock(dir: &Path) -> io::Result<Locked> {
    let mut file = File::options().read(true).write(true).create(true).truncate(false).open(dir.join(LOCK))?;
    match file.try_lock() {
        Ok(()) => Ok(Locked::Ours(file)),
        Err(TryLockError::WouldBlock) => {
            let mut what = String::new();
            file.rewind()?;
            file.read_to_string(&mut what)?;
            Ok(Locked::Held(format!("{what}, begun earlier, has not ended")))
        }
        Err(TryLockError::Error(e)) => Err(e),
    }
}

/// What a child of this or an earlier keeper is still at, so that nothing may be started.
pub fn unfinished(dir: &Path) -> Option<String> {
    // Nothing was ever begun where there is no lock.
    if !dir.join(LOCK).exists() {
        return None;
    }
    match lock(dir) {
        Ok(Locked::Held(what)) => Some(what),
        Ok(Locked::Ours(_)) | Err(_) => None,
    }
}

/// The role `alter`: do it, and say what came of it.
pub fn main(args: Vec<OsString>) -> Result<(), String> {
    let action: Action = match args.as_slice() {
        [action] => serde_json::from_str(&action.to_string_lossy()).map_err(|e| e.to_string())?,
        _ => return Err("usage: isotherm-agent alter ACTION".into()),
    };
    let told = match action.directly() {
        Ok(()) => Told::Done,
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied && sys::uid() != 0 => action.by_sudo(),
        // A container's `/sys` and `/proc/sys`.
        Err(e) if matches!(e.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem) => Told::Denied(e.to_string()),
        Err(e) => Told::Failed(e.to_string()),
    };
    let line = serde_json::to_string(&told).map_err(|e| e.to_string())?;
    writeln!(io::stdout(), "{line}").map_err(|e| e.to_string())
}

impl Action {
    fn deadline_ms(&self) -> u64 {
        match self {
            Action::Sync => SYNC_DEADLINE_MS,
            Action::Write { .. } => WRITE_DEADLINE_MS,
            Action::SwapOff { .. } => SWAPOFF_DEADLINE_MS,
            Action::SwapOn { .. } => SWAPON_DEADLINE_MS,
        }
    }

    fn directly(&self) -> io::Result<()> {
        match self {
            Action::Sync => {
                // SAFETY: no arguments, can't fail.
                unsafe { libc::sync() };
                Ok(())
            }
            // One write: a driver takes each as a value of its own.
            Action::Write { path, value } => File::options().write(true).truncate(true).open(path)?.write_all(format!("{value}\n").as_bytes()),
            Action::SwapOff { area } => {
                let area = CString::new(area.as_str())?;
                // SAFETY: a valid C string.
                succeeded(unsafe { libc::swapoff(area.as_ptr()) })
            }
            Action::SwapOn { area, priority } => {
                let flags = priority.map_or(0, |priority| SWAP_FLAG_PREFER | i32::from(priority));
                let area = CString::new(area.as_str())?;
                // SAFETY: a valid C string and plain flags.
                succeeded(unsafe { libc::swapon(area.as_ptr(), flags) })
            }
        }
    }

    /// The same by one of the commands that `docs/protocol.md` gives a sudoers text for, with what goes to its stdin.
    pub fn as_command(&self) -> Option<(Vec<String>, &str)> {
        match self {
            Action::Sync => None,
            Action::Write { path, value } => Some((vec!["/usr/bin/tee".into(), path.to_str()?.into()], value)),
            Action::SwapOff { area } => Some((vec!["/sbin/swapoff".into(), area.clone()], "")),
            Action::SwapOn { area, priority } => {
                let priority = priority.iter().flat_map(|priority| ["-p".to_owned(), priority.to_string()]);
                Some(([String::from("/sbin/swapon")].into_iter().chain(priority).chain([area.clone()]).collect(), ""))
            }
        }
    }

    fn by_sudo(&self) -> Told {
        let Some((argv, input)) = self.as_command() else { return Told::Denied("there is no command for it".into()) };
        let mut command = Command::new(SUDO);
        command.arg("-n").args(&argv).env_clear().env("LC_ALL", "C").current_dir("/");
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let ended = command.spawn().and_then(|mut sudo| {
            // Who doesn't want it has said why on stderr.
            let _ = sudo.stdin.take().map(|mut stdin| stdin.write_all(input.as_bytes()));
            sudo.wait_with_output()
        });
        match ended {
            Ok(output) if output.status.success() => Told::Done,
            Ok(output) => said(&argv[0], &String::from_utf8_lossy(&output.stderr)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Told::Denied("not permitted, and there is no sudo".into()),
            Err(e) => Told::Denied(format!("{SUDO}: {e}")),
        }
    }
}

/// What stderr says: the tool begins its words with its name, and whatever else there is are those of sudo.
fn said(tool: &str, stderr: &str) -> Told {
    let name = tool.rsplit('/').next().unwrap_or(tool);
    let by_tool = |line: &&str| line.strip_prefix(tool).or_else(|| line.strip_prefix(name)).is_some_and(|rest| rest.starts_with(':'));
    match (stderr.lines().find(by_tool), stderr.lines().rfind(|line| !line.trim().is_empty())) {
        (Some(line), _) => Told::Failed(line.to_owned()),
        (None, Some(line)) => Told::Denied(line.to_owned()),
        (None, None) => Told::Failed(format!("{tool} failed without a word")),
    }
}

fn succeeded(result: i32) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn what_sudo_says_is_a_refusal_and_what_the_tool_says_is_a_failure() {
        let denied = |text: &str| matches!(said("/usr/bin/tee", text), Told::Denied(_));
        assert!(denied("sudo: a password is required\n"));
        assert!(denied("Sorry, user pi is not allowed to execute '/usr/bin/tee /x' as root on board.\n"));
        assert!(!denied("sudo: unable to resolve host board\n/usr/bin/tee: /sys/x: Invalid argument\n"));
        assert!(matches!(said("/sbin/swapoff", "swapoff: /s: swapoff failed: Cannot allocate memory\n"), Told::Failed(_)));
    }

    #[test]
    fn commands_are_those_that_a_sudoers_file_can_name() {
        let command = |action: Action| action.as_command().map(|(argv, input)| (argv.join(" "), input.to_owned()));
        let write = Action::Write { path: "/sys/x".into(), value: "performance".into() };
        assert_eq!(command(write), Some(("/usr/bin/tee /sys/x".into(), "performance".into())));
        assert_eq!(command(Action::SwapOff { area: "/swap".into() }), Some(("/sbin/swapoff /swap".into(), String::new())));
        let on = |priority| Action::SwapOn { area: "/swap".into(), priority };
        assert_eq!(command(on(None)), Some(("/sbin/swapon /swap".into(), String::new())));
        assert_eq!(command(on(Some(5))), Some(("/sbin/swapon -p 5 /swap".into(), String::new())));
    }

    #[test]
    fn a_lock_that_somebody_holds_says_what_is_unfinished() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(unfinished(dir.path()), None);
        let Locked::Ours(mut file) = lock(dir.path()).unwrap() else { panic!("free") };
        file.write_all(b"swapoff /swap").unwrap();
        assert_eq!(unfinished(dir.path()).as_deref(), Some("swapoff /swap, begun earlier, has not ended"));
        let again = Children { dir: dir.path().into() }.act(&Action::Sync);
        assert!(matches!(again, Err(Stop::Hangs(_))), "{again:?}");
        drop(file);
        assert_eq!(unfinished(dir.path()), None);
    }
}
