//! `isotherm collect`, `isotherm cancel` and `isotherm restore`.

use super::words::{count, plain, program, shell_word};
use super::{CancelArgs, CollectArgs, Draft, RestoreArgs, complain, draft, exit, print, probe};
use crate::config::model::Device;
use crate::device::DeviceError;
use crate::report;
use crate::run::{self, CollectError};
use crate::store::StoreError;
use isotherm_wire::session::{Failure, GivenBack};
use serde_json::json;

pub fn collect(args: &CollectArgs) -> u8 {
    let device = match &args.file {
        None => Ok(probe::this_machine()),
        Some(file) => draft(file, &[]).and_then(|draft| one_device(draft.campaign.devices.into_values().collect(), args.device.as_deref())),
    };
    let device = match device {
        Ok(device) => device,
        Err(code) => return code,
    };
    let done = match run::collect(&device, &args.into, args.keep, &run::controller()) {
        Ok(done) => done,
        Err(error) => return refused(&error),
    };
    tell(&device, &done.given_back);
    for (what, why) in &done.left {
        say!("left: {}: {}", plain(what), plain(why));
    }
    let out = if args.json {
        let stored = done.stored.iter().map(|stored| {
            json!({
                "campaign": stored.campaign,
                "label": stored.label,
                "repetition": stored.repetition,
                "status": stored.status,
                "results": stored.dir,
                "path": stored.path,
            })
        });
        let left = done.left.iter().map(|(what, why)| json!({ "what": what, "why": why }));
        report::document(&json!({ "stored": stored.collect::<Vec<_>>(), "left": left.collect::<Vec<_>>() }))
    } else {
        done.stored.iter().map(|stored| format!("{}  {}/{}\n", stored.status.name(), plain(&stored.dir), plain(&stored.path))).collect()
    };
    let code = print(&out);
    if !args.json {
        say!("{} collected from `{}`", count(done.stored.len(), "result"), device.id);
        if let Some(stored) = done.stored.first() {
            say!("next: {} report {}", program(), shell_word(&stored.dir));
        }
    }
    if code == exit::OK && !done.left.is_empty() { exit::NOT_ALL } else { code }
}

pub fn cancel(args: &CancelArgs) -> u8 {
    let (device, dir) = match draft(&args.file, &[]) {
        Ok(Draft { campaign, .. }) => {
            let dir = args.place.results.join(&campaign.name);
            match one_device(campaign.devices.into_values().collect(), args.device.as_deref()) {
                Ok(device) => (device, dir),
                Err(code) => return code,
            }
        }
        Err(code) => return code,
    };
    match run::cancel(&device, &dir, &run::controller()) {
        Ok((ended, given_back)) => {
            for label in &ended {
                say!("cancelled on `{}`: {}", device.id, plain(label));
            }
            tell(&device, &given_back);
            if ended.is_empty() {
                say!("nothing of this campaign runs on `{}`", device.id);
            } else {
                say!("next: {} run {}   # collects what it left", program(), shell_word(&args.file));
            }
            exit::OK
        }
        Err(error) => refused(&error),
    }
}

pub fn restore(args: &RestoreArgs) -> u8 {
    let (device, dir) = match &args.file {
        None => (probe::this_machine(), None),
        Some(file) => {
            let campaign = match draft(file, &[]) {
                Ok(draft) => draft.campaign,
                Err(code) => return code,
            };
            let dir = args.place.results.join(&campaign.name);
            match one_device(campaign.devices.into_values().collect(), args.device.as_deref()) {
                Ok(device) => (device, Some(dir)),
                Err(code) => return code,
            }
        }
    };
    let given_back = match run::restore(&device, dir.as_deref(), &run::controller()) {
        Ok(given_back) => given_back,
        Err(CollectError::Device(error @ DeviceError::Refused { .. })) if error.is_in_use() => {
            let named = "`isotherm restore FILE`, with the file of that campaign, ends its keeper if its controller is gone";
            let running = "wait until the run has ended, or end it: `isotherm cancel FILE`";
            complain(&error.to_string(), Some(if args.file.is_none() { named } else { running }));
            return exit::NO_DEVICE;
        }
        Err(error) => return refused(&error),
    };
    if given_back.is_empty() {
        say!("nothing is borrowed of `{}`", device.id);
    }
    tell(&device, &GivenBack { restored: Vec::new(), failed: given_back.failed.clone() });
    let code = print(&if args.json {
        report::document(&json!({ "device": device.id, "restored": given_back.restored, "failed": given_back.failed }))
    } else {
        given_back.restored.iter().map(|what| format!("{}\n", plain(what))).collect()
    });
    if code == exit::OK && !given_back.failed.is_empty() { exit::NOT_ALL } else { code }
}

/// What was given back beside what was asked for, and what could not be.
fn tell(device: &Device, given_back: &GivenBack) {
    for what in &given_back.restored {
        say!("given back on `{}`: {}", device.id, plain(what));
    }
    for what in &given_back.failed {
        complain(&format!("not given back: {}", plain(what)), None);
    }
}

/// The one that is named, or the only one there is.
pub fn one_device(devices: Vec<Device>, named: Option<&str>) -> Result<Device, u8> {
    let known: Vec<String> = devices.iter().map(|device| device.id.clone()).collect();
    let mut found: Vec<Device> = devices.into_iter().filter(|device| named.is_none_or(|id| device.id == id)).collect();
    match (found.len(), named) {
        (1, _) => Ok(found.swap_remove(0)),
        (_, Some(id)) => {
            complain(&format!("no device `{id}` in this campaign; there are {}", known.join(", ")), None);
            Err(exit::USAGE)
        }
        (_, None) => {
            complain(&format!("the campaign has several devices: {}", known.join(", ")), Some("name one with `--device ID`"));
            Err(exit::USAGE)
        }
    }
}

fn refused(error: &CollectError) -> u8 {
    let (hint, code) = match error {
        CollectError::Device(DeviceError::Refused { failure, .. }) if matches!(**failure, Failure::LeaseHeld(_)) => {
            (Some("wait until that campaign has ended; a running one collects its own results".to_owned()), exit::NO_DEVICE)
        }
        CollectError::Device(e) => (e.hint(), exit::NO_DEVICE),
        CollectError::Store(e @ (StoreError::NotResults { .. } | StoreError::Newer { .. })) => (e.hint(), exit::USAGE),
        CollectError::Store(e @ StoreError::Locked { .. }) => (e.hint(), exit::NO_DEVICE),
        CollectError::Store(e) => (e.hint(), exit::INTERNAL),
    };
    complain(&error.to_string(), hint.as_deref());
    code
}
