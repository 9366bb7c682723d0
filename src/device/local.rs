//! The `local` transport: the agent as a process of this machine, detached from our terminal.

use super::agents::AgentError;
use super::link::{Link, Role};
use super::{Architecture, DeviceError, agent, agents};
use crate::config::model::Local;
use crate::digest::sha256_hex;
use isotherm_wire::companion::{COMPANION_VARIABLE, NVML_VARIABLE};
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

/// Variables that the agent needs of our environment; a workload gets none of them from it.
const PASSED_ON: [&str; 9] = [
    "HOME",
    "USER",
    "XDG_STATE_HOME",
    "ISOTHERM_LEASE",
    "ISOTHERM_LINGER_MS",
    "ISOTHERM_CLOCK",
    isotherm_wire::PROTOCOL_VARIABLE,
    NVML_VARIABLE,
    "PATH",
];

/// Variables by which a probe finds what a user has installed.
const PASSED_TO_PROBE: [&str; 4] = ["ORT_DYLIB_PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "PYENV_ROOT"];

fn inherited(names: &'static [&'static str]) -> impl Iterator<Item = (&'static str, OsString)> {
    names.iter().filter_map(|name| Some((*name, std::env::var_os(name)?)))
}

/// The companion, installed beside the agent where there is a driver for it to ask. Where it can't be, the agent does without and says so.
///
/// # Errors
/// The one that is there is none for this machine.
fn companion(dir: &Path) -> Result<Option<PathBuf>, AgentError> {
    let named = std::env::var_os(NVML_VARIABLE).is_some_and(|path| !path.is_empty());
    // Of a machine without NVIDIA's driver nothing is to be had; on WSL the device is the host's.
    let is_needed = named || ["/proc/driver/nvidia", "/dev/nvidiactl", "/dev/dxg"].iter().any(|path| Path::new(path).exists());
    let Some(here) = Architecture::of_this_machine().filter(|_| is_needed) else { return Ok(None) };
    let bytes = agents::companion_for(here)?;
    Ok(bytes.and_then(|bytes| agent::install(dir, agent::COMPANION, &bytes, &sha256_hex(&bytes)).ok()))
}

/// Start the agent in a role.
pub fn start(device: &str, local: &Local, role: Role, nonce: &str) -> Result<Link, DeviceError> {
    let (Some(bytes), Some(sha256)) = (agent::EMBEDDED, agent::embedded_sha256()) else {
        return Err(DeviceError::NoAgent { device: device.into() });
    };
    let mut refusals = Vec::new();
    for dir in agent::bin_dirs(local.bin_dir.as_deref()) {
        let path = match agent::install(&dir, agent::AGENT, bytes, sha256) {
            Ok(path) => path,
            Err(why) => {
                refusals.push(why);
                continue;
            }
        };
        let mut command = Command::new(&path);
        command.env_clear().envs(inherited(&PASSED_ON));
        let (companion, unfit) = companion(&dir).map_or_else(|e| (None, Some(Arc::new(e))), |path| (path, None));
        command.envs(companion.map(|path| (COMPANION_VARIABLE, path)));
        match role {
            Role::Serve => {
                command.args(["serve", "--nonce", nonce]);
                if let Some(dir) = &local.state_dir {
                    command.args(["--state-dir", dir]);
                }
            }
            Role::Probe => _ = command.args(["probe", "--nonce", nonce]).envs(inherited(&PASSED_TO_PROBE)),
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // A process group of its own: Ctrl-C is for us to handle.
        command.process_group(0);
        match command.spawn() {
            Ok(child) => {
                let link = Link::of_child(child).map_err(|e| DeviceError::NoAnswer { device: device.into(), reason: e.to_string() })?;
                return Ok(Link { unfit, ..link });
            }
            // A file system mounted `noexec` says "permission denied"; what is no program of this machine, "exec format error".
            Err(e) => {
                let fault = Architecture::of_this_machine().and_then(|here| here.fault_of(bytes));
                let fault = fault.map_or_else(String::new, |fault| format!(": it {fault}"));
                refusals.push(format!("{}: {e}{fault}", path.display()));
            }
        }
    }
    Err(DeviceError::Deploy { device: device.into(), reason: refusals.join("; ") })
}
