//! `isotherm probe`.

use super::words::plain;
use super::{ProbeArgs, complain, draft, exit, print, run};
use crate::config::model::{Device, Limits, Local, Transport};
use crate::device::{self, Answer, DeviceError, agents};
use crate::energy::polling;
use crate::plan::power::LEAST_POLLING_HZ;
use crate::probe::{self, Row, Section};
use crate::report;
use indexmap::IndexMap;
use isotherm_wire::probe::{PROBE_VERSION, ProbeRequest, Probed};
use isotherm_wire::session::Failure;
use serde_json::{Value, json};

/// Columns are as wide as most of their cells; a longer cell moves only its own line.
const WIDEST_NAME: usize = 34;
const WIDEST_SOURCE: usize = 52;

/// This machine, as a campaign's device `here: { local: {} }` would be.
pub fn this_machine() -> Device {
    Device {
        id: "here".into(),
        transport: Transport::Local(Local::default()),
        resource_group: None,
        models_dir: None,
        env: IndexMap::new(),
        builds: IndexMap::new(),
        conditions: IndexMap::new(),
        ceilings: IndexMap::new(),
        limits: Limits::default(),
    }
}

pub fn probe(args: &ProbeArgs) -> u8 {
    let devices = match devices(args) {
        Ok(devices) => devices,
        Err(code) => return code,
    };
    let root = match &args.root {
        None => "/".to_owned(),
        Some(root) => match std::fs::canonicalize(root).and_then(|root| std::fs::read_dir(&root).map(|_| root)) {
            Ok(root) => root.display().to_string(),
            Err(e) => {
                let hint = "give a directory that holds a copy of a machine's `proc` and `sys`";
                complain(&format!("failed to look at {}: {e}", root.display()), Some(hint));
                return exit::USAGE;
            }
        },
    };
    let mut reached = 0;
    let mut entries = Vec::new();
    let mut text = String::new();
    for (device, hz) in &devices {
        let (root, models) = (root.clone(), Vec::new());
        let request =
            ProbeRequest { probe_version: PROBE_VERSION, force: args.force, root, models, search: None, needs: None, polling_hz: Some(*hz) };
        match device::probe(device, &request) {
            Ok(Answer { probed, unfit }) => {
                reached += 1;
                if let Some(why) = &unfit {
                    say!("warning: `{}` {}", device.id, plain(&agents::without_companion(why)));
                    say!("  hint: {}", plain(&why.hint()));
                }
                if let Some(holder) = &probed.held_by {
                    say!("warning: `{}` is held by campaign `{}`: this probe may have disturbed a run", device.id, plain(&holder.campaign));
                }
                text += &page(&device.id, &probed);
                entries.push(entry(&device.id, &probed));
            }
            Err(error) => {
                let hint = hint(&error);
                complain(&error.to_string(), hint.as_deref());
                entries.push(json!({ "device": device.id, "error": error.to_string(), "hint": hint }));
            }
        }
    }
    let out = if args.json { report::document(&json!({ "probe_version": PROBE_VERSION, "devices": entries })) } else { text };
    match (print(&out), reached) {
        (exit::OK, 0) => exit::NO_DEVICE,
        (exit::OK, n) if n < devices.len() => exit::NOT_ALL,
        (code, _) => code,
    }
}

/// Devices to ask: this machine, or those of a campaign. With each, how many samples a second its instruments have to bear.
fn devices(args: &ProbeArgs) -> Result<Vec<(Device, f64)>, u8> {
    let Some(file) = &args.file else { return Ok(vec![(this_machine(), LEAST_POLLING_HZ)]) };
    // A campaign of a later build has devices that can be asked today.
    let campaign = draft(file, &[])?.campaign;
    let is_used = |device: &&Device| campaign.blocks.iter().any(|block| block.devices.contains(&device.id));
    let with_hz = |device: &Device| {
        let blocks = campaign.blocks.iter().filter(|block| block.devices.contains(&device.id));
        (device.clone(), blocks.map(|block| block.settings.sample_hz).fold(LEAST_POLLING_HZ, f64::max))
    };
    let Some(id) = &args.device else { return Ok(campaign.devices.values().filter(is_used).map(with_hz).collect()) };
    match campaign.devices.get(id) {
        Some(device) => Ok(vec![with_hz(device)]),
        None => {
            complain(&run::no_device(id), Some(&run::devices_of(&campaign)));
            Err(exit::USAGE)
        }
    }
}

/// A probe has a way of its own out of a held device.
pub fn hint(error: &DeviceError) -> Option<String> {
    match error {
        DeviceError::Refused { failure, .. } if matches!(**failure, Failure::LeaseHeld(_)) => Some(
            "a probe beside a measurement disturbs it: wait until that campaign has ended, or look all the same with `isotherm probe --force`".into(),
        ),
        DeviceError::NoAnswer { .. } => Some("try again; `dmesg` may name a driver that hangs".into()),
        other => other.hint(),
    }
}

fn entry(device: &str, probed: &Probed) -> Value {
    let mut entry = json!(probed);
    entry["device"] = device.into();
    entry["summary"] = probe::machine_line(&probed.machine).into();
    for (capability, shown) in probed.capabilities.iter().zip(entry["capabilities"].as_array_mut().into_iter().flatten()) {
        if capability.present().is_some_and(|present| present.polled.is_some()) {
            shown["found"]["present"]["polling"] = json!(polling::verdict(capability));
        }
        if capability.absent().is_some() {
            shown["found"]["absent"]["remedy"] = probe::remedy(capability, &probed.machine).into();
        }
    }
    entry
}

/// What people see of one device.
fn page(device: &str, probed: &Probed) -> String {
    let copy = if probed.root == "/" { String::new() } else { format!(" (files below {})", probed.root) };
    let mut text = format!("{}: {}{}\n", plain(device), plain(&probe::machine_line(&probed.machine)), plain(&copy));
    for (section, rows) in probe::sections(probed) {
        text += &format!("  {}\n", title(section));
        text += &lines(&rows);
    }
    text
}

fn title(section: Section) -> &'static str {
    match section {
        Section::CanMeasure => "can measure (in every run)",
        Section::CanRun => "can run",
        Section::NotYet => "there, but no part of a record in this build yet",
        Section::Cannot => "cannot",
        Section::MayDo => "may do (to contain a run, and to prepare the device for it)",
    }
}

fn lines(rows: &[Row]) -> String {
    let width = |of: fn(&Row) -> &str, most: usize| rows.iter().map(|row| plain(of(row)).chars().count()).filter(|n| *n <= most).max().unwrap_or(0);
    let (name, source) = (width(|row| &row.name, WIDEST_NAME), width(|row| &row.source, WIDEST_SOURCE));
    let has_source = rows.iter().any(|row| !row.source.is_empty());
    let has_cost = rows.iter().any(|row| row.cost_ns.is_some());
    let mut text = String::new();
    for row in rows {
        let mut cells = vec![format!("{:name$}", plain(&row.name))];
        if has_source {
            cells.push(format!("{:source$}", plain(&row.source)));
        }
        if has_cost {
            cells.push(format!("{:>14}", row.cost_ns.map(cost).unwrap_or_default()));
        }
        cells.push(plain(&row.text));
        text += &format!("    {}\n", cells.join("  ").trim_end());
        if let Some(remedy) = &row.remedy {
            text += &format!("    {:name$}  → {}\n", "", plain(remedy));
        }
    }
    text
}

/// `0.012 ms/read`.
fn cost(ns: u64) -> String {
    let ms = ns as f64 / 1e6;
    let decimals = if ms >= 10.0 {
        0
    } else if ms >= 1.0 {
        1
    } else if ms >= 0.1 {
        2
    } else {
        3
    };
    format!("{ms:.decimals$} ms/read")
}
