//! From a shell on a device to the agent there: a fixed script is fed to the shell, which finds the agent or takes a copy, and becomes it.
//!
//! Takes the streams of a shell and programs by architecture, leaves the streams to the agent. Must not know how the shell was reached.

use crate::device::agent;
use crate::device::agents::{self, AgentError};
use crate::device::architecture::{Architecture, Userland};
use crate::device::link::Role;
use crate::digest::sha256_hex;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{self, BufRead, Read, Write};
use std::sync::{Arc, Mutex, PoisonError};
use thiserror::Error;

const SCRIPT: &str = include_str!("deploy.sh");
/// A device has said that it is alive with every so many bytes that it took.
const CHUNK_BYTES: usize = 256 << 10;
/// No line of the script is longer, bytes.
const LONGEST_LINE: u64 = 64 << 10;
/// A device that says more lines than this, its login script's among them, is not listened to any longer.
const MOST_LINES: usize = 10_000;
/// Nor one that refuses more directories than there are.
const MOST_REFUSED: usize = 8;
/// Of what came before the first line of the script, so much goes into an error, bytes.
const LONGEST_WORDS: usize = 400;

/// What the script is told.
#[derive(Debug, Clone)]
pub struct Order {
    /// Hexadecimal.
    pub nonce: String,
    pub role: Role,
    /// As configured: absolute or `~/…`, of letters, digits and `._/+-`.
    pub bin_dir: Option<String>,
    pub state_dir: Option<String>,
}

/// Why a shell did not become the agent.
#[derive(Debug, Error)]
pub enum Fault {
    #[error(transparent)]
    NoAgent(#[from] AgentError),
    /// In no directory: each with the reason.
    #[error("{}", .0.join("; "))]
    Refused(Vec<String>),
    #[error("{0}")]
    Broken(#[from] io::Error),
}

/// The programs that a device may need.
pub struct Programs {
    pub agent: Program,
    pub companion: Option<Program>,
    /// Why one that is there can't be given to it.
    pub unfit: Option<Arc<AgentError>>,
}

pub struct Program {
    bytes: Cow<'static, [u8]>,
    sha256: String,
}

impl From<Cow<'static, [u8]>> for Program {
    fn from(bytes: Cow<'static, [u8]>) -> Program {
        Program { sha256: sha256_hex(&bytes), bytes }
    }
}

/// Those of this controller for an architecture, read and hashed once for however many devices.
///
/// # Errors
/// [`AgentError`].
pub fn programs(architecture: Architecture) -> Result<Arc<Programs>, AgentError> {
    static KNOWN: Mutex<BTreeMap<Architecture, Arc<Programs>>> = Mutex::new(BTreeMap::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(programs) = known.get(&architecture) {
        return Ok(Arc::clone(programs));
    }
    let (companion, unfit) = match agents::companion_for(architecture) {
        Ok(companion) => (companion.map(Program::from), None),
        Err(e) => (None, Some(Arc::new(e))),
    };
    let programs = Arc::new(Programs { agent: agents::agent_for(architecture)?.into(), companion, unfit });
    known.insert(architecture, Arc::clone(&programs));
    Ok(programs)
}

/// Talk with the shell until it has become the agent. `alive` is called whenever something moves. Gives why it does without a companion that
/// it needs and that is there.
///
/// # Errors
/// [`Fault`].
pub fn deploy(
    stdin: &mut impl Write,
    stdout: &mut impl BufRead,
    order: &Order,
    programs: impl Fn(Architecture) -> Result<Arc<Programs>, AgentError>,
    alive: impl Fn(),
) -> Result<Option<Arc<AgentError>>, Fault> {
    // One that is gone already has said why.
    let _ = stdin.write_all(script(order).as_bytes());
    let mut seen = Vec::new();
    let mut refused = Vec::new();
    let (mut offered, mut unfit) = (None::<Arc<Programs>>, None);
    for _ in 0..MOST_LINES {
        let mut line = Vec::new();
        if stdout.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line)? == 0 {
            return Err(ended(&refused, &seen).into());
        }
        alive();
        let line = String::from_utf8_lossy(&line);
        // What was printed before need not have ended its line.
        let Some((_, said)) = line.split_once(order.nonce.as_str()) else {
            seen.extend_from_slice(line.as_bytes());
            seen.truncate(LONGEST_WORDS);
            continue;
        };
        match (said.trim().split_once(' ').unwrap_or((said.trim(), "")), &offered) {
            (("machine", facts), _) => {
                let [machine, bits, gpu] = *facts.split(' ').collect::<Vec<_>>() else { return Err(no_answer(said).into()) };
                let found = programs(agents::architecture_of(machine, Userland::of_long_bit(bits))?)?;
                let companion = found.companion.as_ref().filter(|_| gpu != "-");
                unfit = found.unfit.clone().filter(|_| gpu != "-");
                let told = |program: Option<&Program>| program.map_or_else(|| "- 0".into(), |p| format!("{} {}", p.sha256, p.bytes.len()));
                writeln!(stdin, "{} {}", told(Some(&found.agent)), told(companion))?;
                offered = Some(found);
            }
            (("send", name), Some(found)) => {
                let companion = found.companion.as_ref().filter(|_| name == agent::COMPANION);
                let bytes = &companion.unwrap_or(&found.agent).bytes;
                for chunk in bytes.chunks(CHUNK_BYTES) {
                    stdin.write_all(chunk)?;
                    alive();
                }
            }
            (("refused", why), _) if refused.len() < MOST_REFUSED => refused.push(why.to_owned()),
            (("failed", _), _) => return Err(Fault::Refused(refused)),
            (("started", _), Some(_)) => return Ok(unfit),
            _ => return Err(no_answer(said).into()),
        }
    }
    Err(io::Error::other(format!("its shell said {MOST_LINES} lines and came to nothing; the first: {:?}", String::from_utf8_lossy(&seen))).into())
}

/// The script behind its parameters, whose letters mean nothing to a shell between single quotes.
fn script(Order { nonce, role, bin_dir, state_dir }: &Order) -> String {
    let role = match role {
        Role::Serve => "serve",
        Role::Probe => "probe",
    };
    let [bin_dir, state_dir] = [bin_dir, state_dir].map(|dir| dir.as_deref().unwrap_or_default());
    for text in [nonce, bin_dir, state_dir] {
        assert!(text.chars().all(|c| c.is_ascii_alphanumeric() || "~._/+-".contains(c)), "the campaign was checked for it: {text:?}");
    }
    format!("nonce='{nonce}' role='{role}' bin_dir='{bin_dir}' state_dir='{state_dir}'\n{SCRIPT}")
}

fn no_answer(said: &str) -> io::Error {
    io::Error::other(format!("its shell answered {:?}", said.trim()))
}

fn ended(refused: &[String], seen: &[u8]) -> io::Error {
    let said = String::from_utf8_lossy(seen);
    let said = if said.trim().is_empty() { "it said nothing".to_owned() } else { format!("it said {:?}", said.trim()) };
    io::Error::other(format!("its shell ended before the agent was there: {}", refused.iter().cloned().chain([said]).collect::<Vec<_>>().join("; ")))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use std::fs;
    use std::io::BufReader;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;
    use std::process::{Command, Stdio};

    /// Says its version, and else what it was started with.
    const AGENT: &[u8] = b"#!/bin/sh\n[ \"$1\" != --version ] || { echo isotherm-agent 0 here; exit; }\necho \"$@ with ${ISOTHERM_COMPANION##*/}\"\n";

    /// Deploy to this machine through a shell: what the agent says, or why there is none; and how often something moved.
    fn deploy_here(shell: &[&str], home: &Path, path: &str, order: &Order, agent: &'static [u8]) -> (Result<String, Fault>, usize) {
        let mut command = Command::new(shell[0]);
        command.args(&shell[1..]).env_clear().env("HOME", home).env("PATH", path);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let moved = std::cell::Cell::new(0);
        let programs = |_| Ok(Arc::new(Programs { agent: Program::from(Cow::from(agent)), companion: None, unfit: None }));
        let deployed = deploy(&mut stdin, &mut stdout, order, programs, || moved.set(moved.get() + 1));
        drop(stdin);
        let mut said = String::new();
        if deployed.is_ok() {
            let _ = stdout.read_to_string(&mut said);
        }
        drop(stdout);
        child.wait().unwrap();
        (deployed.map(|_| said), moved.get())
    }

    fn order(bin_dir: Option<&str>) -> Order {
        Order { nonce: "0123abcd".into(), role: Role::Serve, bin_dir: bin_dir.map(str::to_owned), state_dir: Some("~/st+ate".into()) }
    }

    const PATH: &str = "/usr/bin:/bin";

    /// Shells that there are here, of those that devices have.
    fn shells() -> Vec<Vec<&'static str>> {
        let all = [vec!["/bin/dash"], vec!["/bin/bash"], vec!["/bin/bash", "--posix"], vec!["/bin/busybox", "sh"]];
        let (there, missing): (Vec<_>, Vec<_>) = all.into_iter().partition(|shell| Path::new(shell[0]).exists());
        assert!(missing.is_empty() || std::env::var_os("CI").is_none(), "required in CI: {missing:?}");
        missing.iter().for_each(|shell| eprintln!("skipped: {}", shell[0]));
        there
    }

    #[test]
    fn every_shell_takes_the_agent_once_and_becomes_it() {
        for shell in shells() {
            let home = tempfile::tempdir().unwrap();
            let place = home.path().join(".cache/isotherm");
            for (copies, cut) in [(1, false), (0, false), (1, true)] {
                let name = format!("isotherm-agent-{}", &sha256_hex(AGENT)[..12]);
                if cut {
                    fs::write(place.join(&name), "").unwrap();
                }
                let (said, moved) = deploy_here(&shell, home.path(), PATH, &order(None), AGENT);
                let expected = format!("serve --nonce 0123abcd --state-dir {}/st+ate with \n", home.path().display());
                assert_eq!((said.unwrap(), moved), (expected, 2 + 2 * copies), "two lines, for a copy one more and a chunk: {shell:?}");
                let there: Vec<_> = fs::read_dir(&place).unwrap().map(|entry| entry.unwrap().file_name()).collect();
                assert_eq!(there, [name.as_str()], "nothing else is left");
            }
        }
    }

    #[test]
    fn a_companion_that_is_unfit_is_told_of_where_there_is_a_driver_for_it_to_ask() {
        for (gpu, is_told) in [("nvidia", true), ("-", false)] {
            // What a device's shell may say.
            let said = format!("0123abcd machine x86_64 64 {gpu}\n0123abcd started\n");
            let programs = |architecture| {
                let fault = AgentError::Unusable { architecture, path: "agents/isotherm-companion".into(), fault: "is empty".into() };
                Ok(Arc::new(Programs { agent: Cow::from(AGENT).into(), companion: None, unfit: Some(Arc::new(fault)) }))
            };
            let unfit = deploy(&mut Vec::new(), &mut said.as_bytes(), &order(None), programs, || {}).unwrap();
            assert_eq!(unfit.map(|e| e.to_string()), is_told.then(|| "the companion agents/isotherm-companion is empty".to_owned()));
        }
    }

    #[test]
    fn an_agent_that_runs_and_says_nothing_is_refused_in_every_place() {
        let home = tempfile::tempdir().unwrap();
        for agent in [&b"#!/bin/sh\n"[..], b""] {
            let (refused, _) = deploy_here(&["/bin/sh"], home.path(), PATH, &order(Some("~/bin")), agent);
            let Err(Fault::Refused(why)) = refused else { panic!("{agent:?}") };
            assert_eq!(why, [format!("{}/bin: it runs and says nothing", home.path().display())]);
            assert_eq!(fs::read_dir(home.path().join("bin")).unwrap().count(), 0);
        }
    }

    #[test]
    fn without_a_sha256sum_it_is_copied_every_time() {
        let home = tempfile::tempdir().unwrap();
        let tools = home.path().join("tools");
        fs::create_dir(&tools).unwrap();
        for tool in ["cat", "chmod", "getconf", "head", "id", "ls", "mkdir", "mv", "rm", "sh", "sync", "tr", "uname", "wc"] {
            let found = ["/usr/bin", "/bin"].iter().map(|dir| Path::new(dir).join(tool)).find(|path| path.exists()).unwrap();
            std::os::unix::fs::symlink(found, tools.join(tool)).unwrap();
        }
        for _ in 0..2 {
            let (said, moved) = deploy_here(&["/bin/sh"], home.path(), tools.to_str().unwrap(), &order(None), AGENT);
            assert!(said.unwrap().starts_with("serve --nonce "));
            assert_eq!(moved, 4, "one copy");
        }
    }

    #[test]
    fn a_directory_that_another_machine_makes_at_the_same_moment_is_as_good_as_ones_own() {
        for shell in shells() {
            let home = tempfile::tempdir().unwrap();
            let tools = home.path().join("tools");
            fs::create_dir(&tools).unwrap();
            // The other one is faster.
            fs::write(tools.join("mkdir"), "#!/bin/sh\n/bin/mkdir \"$@\"\nexec /bin/mkdir \"$@\"\n").unwrap();
            fs::set_permissions(tools.join("mkdir"), fs::Permissions::from_mode(0o700)).unwrap();
            let path = format!("{}:{PATH}", tools.display());
            let (said, _) = deploy_here(&shell, home.path(), &path, &order(None), AGENT);
            assert!(said.unwrap().starts_with("serve --nonce "));
            assert_eq!(fs::read_dir(home.path().join(".cache/isotherm")).unwrap().count(), 1, "{shell:?}");
        }
    }

    #[test]
    fn one_that_talks_for_ever_is_not_listened_to_for_ever() {
        let home = tempfile::tempdir().unwrap();
        for endless in ["echo y", "echo 0123abcd refused /x: $nonce"] {
            let script = format!("while {endless}; do :; done 2> /dev/null");
            let (fault, _) = deploy_here(&["/bin/sh", "-c", &script], home.path(), PATH, &order(None), AGENT);
            let told = fault.unwrap_err().to_string();
            assert!(told.contains("lines and came to nothing") || told.contains("its shell answered \"refused"), "{told}");
        }
    }

    #[test]
    fn a_shell_that_is_none_says_what_it_was() {
        let home = tempfile::tempdir().unwrap();
        let (fault, _) = deploy_here(&["/bin/echo", "This account is currently not available."], home.path(), PATH, &order(None), AGENT);
        let told = fault.unwrap_err().to_string();
        // It may be gone before it is spoken to.
        assert!(told.contains("it said \"This account is currently not available.\""), "{told}");
    }
}
