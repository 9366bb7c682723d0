//! The agent for a device, and its companion: the embedded ones for this controller's own architecture, files beside the controller for
//! another.

use super::agent;
use super::architecture::{Architecture, Userland};
use std::borrow::Cow;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Names a directory of agents that is looked into before all others.
pub const AGENTS_DIR_VARIABLE: &str = "ISOTHERM_AGENTS_DIR";

/// Why there is no agent to give to a device.
#[derive(Debug, Error)]
pub enum AgentError {
    #[error("there is no agent for a machine that calls itself `{machine}`{}", narrow(*.userland))]
    UnknownMachine { machine: String, userland: Option<Userland> },
    #[error("there is no agent {} for {architecture} in {}{}", version(), list(.searched), others(.there))]
    Absent {
        architecture: Architecture,
        /// Directories, in the order in which they were looked into.
        searched: Vec<PathBuf>,
        /// Names of the agents that are in them, sorted.
        there: Vec<String>,
    },
    #[error("the {} {} can't be read: {source}", word(.path), .path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("the {} {} {fault}", word(.path), .path.display())]
    Unusable { architecture: Architecture, path: PathBuf, fault: String },
}

impl AgentError {
    /// An action for the user.
    #[must_use]
    pub fn hint(&self) -> String {
        match self {
            AgentError::UnknownMachine { .. } => format!("agents are built for {}", list_of(Architecture::ALL)),
            AgentError::Absent { architecture, .. } => {
                format!(
                    "make it with `scripts/build-agents --out DIR {architecture}` and set {AGENTS_DIR_VARIABLE}=DIR, or unpack a release, which has it"
                )
            }
            AgentError::Unreadable { path, .. } => format!("chmod a+r {}", path.display()),
            AgentError::Unusable { architecture, path, .. } => {
                let dir = path.parent().unwrap_or(path);
                format!("make it again with `scripts/build-agents --out {} {architecture}`, or unpack the release again", dir.display())
            }
        }
    }
}

/// What a device is told of that has NVIDIA's driver and no companion, because of this.
#[must_use]
pub fn without_companion(why: &AgentError) -> String {
    format!("does without a companion, which asks NVIDIA's library: {why}")
}

fn narrow(userland: Option<Userland>) -> &'static str {
    if userland == Some(Userland::Bits32) { " with 32-bit programs" } else { "" }
}

/// What a file is, by its name.
fn word(path: &Path) -> &'static str {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if name.starts_with(agent::COMPANION) { "companion" } else { "agent" }
}

fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

fn list(dirs: &[PathBuf]) -> String {
    dirs.iter().map(|dir| dir.display().to_string()).collect::<Vec<_>>().join(", ")
}

fn list_of(architectures: impl IntoIterator<Item = Architecture>) -> String {
    architectures.into_iter().map(|a| a.to_string()).collect::<Vec<_>>().join(", ")
}

fn others(there: &[String]) -> String {
    if there.is_empty() { String::new() } else { format!("; there are {}", there.join(", ")) }
}

/// The architecture for what a device says of itself, see [`Architecture::of_machine`].
///
/// # Errors
/// [`AgentError::UnknownMachine`].
pub fn architecture_of(uname_m: &str, userland: Option<Userland>) -> Result<Architecture, AgentError> {
    let unknown = || AgentError::UnknownMachine { machine: uname_m.trim().into(), userland };
    Architecture::of_machine(uname_m, userland).ok_or_else(unknown)
}

/// Name of an agent's file: of this controller's version, because both speak the same protocol then.
#[must_use]
pub fn file_name(architecture: Architecture) -> String {
    format!("{}-{}-{}", agent::AGENT, version(), architecture.triple())
}

/// Likewise of a companion's.
#[must_use]
pub fn companion_name(architecture: Architecture) -> String {
    format!("{}-{}-{}", agent::COMPANION, version(), architecture.triple())
}

/// Where agents may lie, best first: as the environment says, `agents/` beside the controller's executable, the user's data directory.
#[must_use]
pub fn dirs() -> Vec<PathBuf> {
    let executable = std::env::current_exe().and_then(fs::canonicalize).ok();
    dirs_of(|name| std::env::var_os(name).filter(|value| !value.is_empty()), executable.as_deref())
}

fn dirs_of(variable: impl Fn(&str) -> Option<OsString>, executable: Option<&Path>) -> Vec<PathBuf> {
    let named = variable(AGENTS_DIR_VARIABLE).map(PathBuf::from);
    let beside = executable.and_then(Path::parent).map(|dir| dir.join("agents"));
    let data = variable("XDG_DATA_HOME").map(PathBuf::from).filter(|dir| dir.is_absolute());
    let data = data.or_else(|| Some(Path::new(&variable("HOME")?).join(".local/share")));
    [named, beside, data.map(|dir| dir.join("isotherm/agents"))].into_iter().flatten().collect()
}

/// The agent for an architecture: its bytes, whole and of that architecture.
///
/// # Errors
/// [`AgentError`]: none is there, or the one that is can't run there.
pub fn agent_for(architecture: Architecture) -> Result<Cow<'static, [u8]>, AgentError> {
    match agent::EMBEDDED {
        Some(embedded) if Architecture::of_this_machine() == Some(architecture) => Ok(embedded.into()),
        _ => read(architecture, &dirs()).map(Cow::from),
    }
}

/// The companion for an architecture, likewise; `None` where there is none, and the agent does without.
///
/// # Errors
/// [`AgentError`]: the one that is there can't run there.
pub fn companion_for(architecture: Architecture) -> Result<Option<Cow<'static, [u8]>>, AgentError> {
    match agent::EMBEDDED_COMPANION {
        Some(embedded) if Architecture::of_this_machine() == Some(architecture) => Ok(Some(embedded.into())),
        _ => Ok(find(&companion_name(architecture), architecture, &dirs())?.map(Cow::from)),
    }
}

/// From the first directory that has it. One that is damaged is an error, not passed over: it may be the newer one.
fn find(name: &str, architecture: Architecture, dirs: &[PathBuf]) -> Result<Option<Vec<u8>>, AgentError> {
    for dir in dirs {
        let path = dir.join(name);
        match fs::read(&path) {
            Ok(bytes) => {
                return match architecture.fault_of(&bytes) {
                    None => Ok(Some(bytes)),
                    Some(fault) => Err(AgentError::Unusable { architecture, path, fault }),
                };
            }
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {}
            Err(source) => return Err(AgentError::Unreadable { path, source }),
        }
    }
    Ok(None)
}

/// The agent in the first of these directories that has it.
///
/// # Errors
/// [`AgentError`].
pub fn read(architecture: Architecture, dirs: &[PathBuf]) -> Result<Vec<u8>, AgentError> {
    if let Some(agent) = find(&file_name(architecture), architecture, dirs)? {
        return Ok(agent);
    }
    let names = dirs.iter().flat_map(|dir| fs::read_dir(dir).into_iter().flatten().flatten());
    let mut there: Vec<String> = names.filter_map(|e| e.file_name().into_string().ok()).filter(|n| n.starts_with("isotherm-agent-")).collect();
    there.sort();
    there.dedup();
    Err(AgentError::Absent { architecture, searched: dirs.to_vec(), there })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::super::architecture::tests::executable;
    use super::*;

    #[test]
    fn a_machine_without_an_agent_is_named_and_those_with_one_are_listed() {
        assert_eq!(architecture_of("riscv64\n", None).unwrap(), Architecture::Riscv64);
        let error = architecture_of("armv6l\n", None).unwrap_err();
        assert_eq!(error.to_string(), "there is no agent for a machine that calls itself `armv6l`");
        assert_eq!(error.hint(), "agents are built for x86_64, aarch64, armv7, riscv64");
        let error = architecture_of("x86_64", Some(Userland::Bits32)).unwrap_err();
        assert_eq!(error.to_string(), "there is no agent for a machine that calls itself `x86_64` with 32-bit programs");
    }

    #[test]
    fn a_named_directory_comes_before_the_one_beside_the_executable_and_the_data_directory() {
        let all = |name: &str| {
            Some(match name {
                AGENTS_DIR_VARIABLE => "/named".into(),
                "XDG_DATA_HOME" => "/data".into(),
                _ => "/home/me".into(),
            })
        };
        let places = |dirs: &[&str]| dirs.iter().map(PathBuf::from).collect::<Vec<_>>();
        assert_eq!(dirs_of(all, Some(Path::new("/opt/isotherm/isotherm"))), places(&["/named", "/opt/isotherm/agents", "/data/isotherm/agents"]));
        let home_only = |name: &str| (name == "HOME").then(|| "/home/me".into());
        assert_eq!(dirs_of(home_only, None), places(&["/home/me/.local/share/isotherm/agents"]));
    }

    #[test]
    fn the_first_directory_that_has_the_agent_gives_it() {
        let dir = tempfile::tempdir().unwrap();
        let [none, first, second] = ["none", "first", "second"].map(|name| dir.path().join(name));
        for (place, mark) in [(&first, 1), (&second, 2)] {
            fs::create_dir(place).unwrap();
            let mut file = executable(Architecture::Armv7);
            file.push(mark);
            fs::write(place.join(file_name(Architecture::Armv7)), file).unwrap();
        }
        assert_eq!(read(Architecture::Armv7, &[none, first, second]).unwrap().last(), Some(&1));
    }

    #[test]
    fn what_is_missing_is_named_with_what_is_there_and_how_to_get_it() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("isotherm-agent-0.0.1-aarch64-unknown-linux-gnu"), "").unwrap();
        fs::write(dir.path().join("notes"), "").unwrap();
        let error = read(Architecture::Aarch64, &[dir.path().to_owned()]).unwrap_err();
        let place = dir.path().display();
        assert_eq!(
            error.to_string(),
            format!("there is no agent {} for aarch64 in {place}; there are isotherm-agent-0.0.1-aarch64-unknown-linux-gnu", version())
        );
        assert!(error.hint().contains("scripts/build-agents --out DIR aarch64"), "{}", error.hint());
    }

    #[test]
    fn an_agent_that_can_not_run_there_is_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(file_name(Architecture::Aarch64));
        let whole = executable(Architecture::Aarch64);
        for (content, fault) in [
            (&b""[..], "is empty"),
            (&whole[..whole.len() - 1], "is cut: 127 bytes of at least 128"),
            (&executable(Architecture::X86_64), "is for x86_64, not for aarch64"),
            (b"<html>not found</html>", "is no ELF executable"),
        ] {
            fs::write(&path, content).unwrap();
            let error = read(Architecture::Aarch64, &[dir.path().to_owned()]).unwrap_err();
            assert_eq!(error.to_string(), format!("the agent {} {fault}", path.display()));
            assert!(error.hint().contains(&format!("--out {} aarch64", dir.path().display())));
        }
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        let error = read(Architecture::Aarch64, &[dir.path().to_owned()]).unwrap_err();
        assert!(error.to_string().contains("can't be read: Is a directory"), "{error}");
    }

    #[test]
    fn a_companion_that_is_missing_is_done_without_and_one_that_can_not_run_there_is_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let dirs = [dir.path().to_owned()];
        let name = companion_name(Architecture::Aarch64);
        assert_eq!(find(&name, Architecture::Aarch64, &dirs).unwrap(), None);
        let path = dir.path().join(&name);
        fs::write(&path, executable(Architecture::X86_64)).unwrap();
        let error = find(&name, Architecture::Aarch64, &dirs).unwrap_err();
        assert_eq!(error.to_string(), format!("the companion {} is for x86_64, not for aarch64", path.display()));
        fs::write(&path, executable(Architecture::Aarch64)).unwrap();
        assert_eq!(find(&name, Architecture::Aarch64, &dirs).unwrap(), Some(executable(Architecture::Aarch64)));
    }

    #[test]
    fn the_agent_for_this_machine_is_the_embedded_one_and_whole() {
        let Some(here) = Architecture::of_this_machine() else { return };
        let agent = agent_for(here).unwrap();
        assert_eq!(Some(agent.as_ref()), agent::EMBEDDED);
        assert_eq!(here.fault_of(&agent), None);
        assert!(here.fault_of(&agent[..agent.len() - 1]).is_some(), "a cut one is seen");
    }
}
