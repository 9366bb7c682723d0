//! Is a step of preparation permitted? By the files and calls that [`crate::prepare`] would use, none of which is used.

use super::super::execute::Runner;
use super::super::first_line;
use super::super::permission::is_admin;
use super::super::trial::Prober;
use crate::prepare::act::{Action, SUDO};
use crate::prepare::swap_areas;
use isotherm_wire::probe::Cause;
use isotherm_wire::readiness::{May, StepLook};
use isotherm_wire::task::{Frequency, Prepare};
use std::path::Path;
use std::time::Duration;

/// One that asks a directory server for its rules takes a while.
const SUDO_LIMIT: Duration = Duration::from_secs(5);
const CPUFREQ: &str = "sys/devices/system/cpu/cpufreq";

pub fn look(prober: &Prober, runner: &Runner, prepare: &Prepare) -> StepLook {
    let may = match actions(prober, prepare) {
        Ok(actions) => all(prober, runner, &actions),
        Err(why) => May::Unsupported(why),
    };
    StepLook { step: prepare.step(), may }
}

/// What the step would do on this device.
///
/// # Errors
/// It has no such thing.
fn actions(prober: &Prober, prepare: &Prepare) -> Result<Vec<Action>, String> {
    let write = |path: &Path| Action::Write { path: path.to_owned(), value: String::new() };
    match prepare {
        Prepare::DropCaches(_) => {
            let control = prober.at("proc/sys/vm/drop_caches");
            if prober.exists(&control) { Ok(vec![write(&control)]) } else { Err("this kernel can't drop its caches".into()) }
        }
        Prepare::ResetSwap(_) => Ok(swap_areas(prober.root())
            .into_iter()
            .flat_map(|(area, priority)| [Action::SwapOff { area: area.clone() }, Action::SwapOn { area, priority: u16::try_from(priority).ok() }])
            .collect()),
        Prepare::Governor(_) | Prepare::Frequency(_) => {
            let dir = prober.at(CPUFREQ);
            let policies = prober.numbered(&dir, "policy", "").map_err(|_| "no cpufreq".to_owned())?;
            let mut writes = Vec::new();
            for policy in policies {
                let dir = dir.join(&policy);
                let text = |file: &str| prober.text(&dir.join(file));
                if let Prepare::Governor(wanted) = prepare {
                    let choices = text("scaling_available_governors");
                    if let Some(choices) = choices.filter(|choices| !choices.split_whitespace().any(|choice| choice == wanted)) {
                        return Err(format!("{policy} has no governor {wanted}: {choices}"));
                    }
                    writes.push(write(&dir.join("scaling_governor")));
                } else {
                    let khz = |file: &str| text(file)?.parse::<u64>().ok();
                    let range = khz("cpuinfo_min_freq").zip(khz("cpuinfo_max_freq"));
                    let (lowest, highest) = range.ok_or_else(|| format!("the limits of {policy} can't be read"))?;
                    if let Prepare::Frequency(Frequency::Khz(khz)) = prepare
                        && !(lowest..=highest).contains(khz)
                    {
                        return Err(format!("{policy} goes from {lowest} to {highest} kHz"));
                    }
                    writes.extend(["scaling_min_freq", "scaling_max_freq"].map(|file| write(&dir.join(file))));
                }
            }
            Ok(writes)
        }
    }
}

fn all(prober: &Prober, runner: &Runner, actions: &[Action]) -> May {
    let mut may = May::Directly;
    for action in actions {
        let Err(refused) = directly(prober, action) else { continue };
        match by_sudo(prober, runner, action) {
            Ok(()) => may = May::BySudo,
            Err(why) => return May::Denied(format!("{refused}; {why}")),
        }
    }
    may
}

fn directly(prober: &Prober, action: &Action) -> Result<(), String> {
    match action {
        Action::Write { path, .. } => prober.is_writable(path).map_err(|why| format!("{}: {}", prober.shown(path), why.reason)),
        Action::SwapOff { area } | Action::SwapOn { area, .. } => match is_admin(prober) {
            Ok(true) => Ok(()),
            Ok(false) => Err(format!("{area}: no CAP_SYS_ADMIN")),
            Err(why) => Err(format!("{area}: {}", why.reason)),
        },
        Action::Sync => Ok(()),
    }
}

/// Does sudo list the command as permitted? It executes nothing for that.
fn by_sudo(prober: &Prober, runner: &Runner, action: &Action) -> Result<(), String> {
    let Some((command, _)) = action.as_command() else { return Err("there is no command for it".into()) };
    if !prober.exists(Path::new(SUDO)) {
        return Err("there is no sudo".into());
    }
    let argv: Vec<&str> = [SUDO, "-n", "-l"].into_iter().chain(command.iter().map(String::as_str)).collect();
    match runner.run(&argv, None, SUDO_LIMIT) {
        Ok(output) if output.ok => Ok(()),
        Ok(output) => Err(format!("sudo: {}", first_line(&output.stderr).unwrap_or_else(|| format!("`{}` is not permitted", command.join(" "))))),
        Err(why) if why.cause == Cause::NoAnswer => Err(format!("sudo gave {}", why.reason)),
        Err(why) => Err(format!("sudo: {}", why.reason)),
    }
}
