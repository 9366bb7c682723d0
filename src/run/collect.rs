//! Results that nobody came back for: fetched from a device without the campaign they are of, and a running job that is ended.

use super::assemble;
use super::manifest::Manifest;
use super::reparse::earlier_digest;
use crate::clock;
use crate::config::model::Device;
use crate::device::{DeviceError, Happening, NEVER, Session};
use crate::store::index::{self, Scan};
use crate::store::record::Status;
use crate::store::results::{Results, ResultsId};
use crate::store::write::Valid;
use crate::store::{StoreError, results};
use isotherm_wire::result::RunResult;
use isotherm_wire::session::{Event, GivenBack, Holder, Phase, RunState, SpoolEntry};
use isotherm_wire::task::SWAPOFF_DEADLINE_MS;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::mpsc::channel;
use std::time::Duration;
use thiserror::Error;

/// A run that is ended is sealed within TERM, grace, KILL and what collecting its files takes.
const SEALED_WITHIN: Duration = Duration::from_secs(120);

/// Why nothing could be collected or cancelled.
#[derive(Debug, Error)]
pub enum CollectError {
    #[error(transparent)]
    Device(#[from] DeviceError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What became of the runs on a device.
#[derive(Debug, Default)]
pub struct Collected {
    pub stored: Vec<Stored>,
    /// Could not be stored, or there is nothing to store: the run or its campaign, and why.
    pub left: Vec<(String, String)>,
    /// What keepers of before had borrowed of the device.
    pub given_back: GivenBack,
}

/// A record that was made.
#[derive(Debug)]
pub struct Stored {
    pub campaign: String,
    pub label: String,
    pub repetition: u32,
    pub status: Status,
    /// Of the results directory, as given.
    pub dir: String,
    /// Of the record in it.
    pub path: String,
}

/// Fetch every sealed result of a device into `<into>/<campaign>`; what is stored there is dropped on the device unless `keep`.
///
/// # Errors
/// The device can't be used, or a directory can't be written; what was stored before stays.
pub fn collect(device: &Device, into: &Path, keep: bool, controller: &str) -> Result<Collected, CollectError> {
    let (sender, _happenings) = channel();
    let mut session = Session::open(device, &holder(&uuid::Uuid::new_v4().to_string(), "isotherm collect", controller), &sender, NEVER)?;
    let outcome = collect_all(&mut session, into, keep, controller);
    // Even where something failed: the device is given back.
    let ended = session.end();
    Ok(Collected { given_back: ended?, ..outcome? })
}

pub(super) fn holder(results_id: &str, campaign: &str, controller: &str) -> Holder {
    let since = clock::utc_seconds();
    Holder { results_id: results_id.to_owned(), campaign: campaign.to_owned(), controller: controller.to_owned(), since }
}

fn collect_all(session: &mut Session, into: &Path, keep: bool, controller: &str) -> Result<Collected, CollectError> {
    let mut collected = Collected::default();
    // results_id → its directory here, locked, with what is in it.
    let mut places: BTreeMap<String, (Results, Scan)> = BTreeMap::new();
    for SpoolEntry { run_id, state, manifest } in session.list()? {
        let manifest = match Manifest::of(manifest, &state) {
            Ok(manifest) => manifest,
            Err(why) => {
                collected.left.push((format!("run {run_id}"), why));
                continue;
            }
        };
        let told = format!("{} r{}{} of campaign `{}`", manifest.label, manifest.repetition, manifest.kind.after_label(), manifest.campaign);
        let (bytes, sha256) = match state {
            RunState::Sealed { bytes, sha256 } => (bytes, sha256),
            RunState::Running { .. } => {
                collected.left.push((told, "it is running".into()));
                continue;
            }
            RunState::Lost { reason, .. } => {
                collected.left.push((told, format!("it left no result: {reason}")));
                continue;
            }
        };
        let result = session.collect(&run_id, bytes, &sha256)?;
        let result = match assemble::result(&result, &run_id) {
            Ok(result) => result,
            Err(why) => {
                collected.left.push((told, format!("its result can't be read: {why}")));
                continue;
            }
        };
        if !places.contains_key(&manifest.results_id) {
            let results = Results::of_strangers(into, &manifest.campaign, &manifest.results_id, controller)?;
            let scan = index::scan(&results.dir)?;
            places.insert(manifest.results_id.clone(), (results, scan));
        }
        let Some((results, scan)) = places.get_mut(&manifest.results_id) else { continue };
        let stored = store(results, scan, result, manifest)?;
        collected.stored.push(stored);
        if !keep {
            session.forget(&run_id, &sha256)?;
        }
    }
    for (results, scan) in places.values() {
        index::write_index(&results.dir, scan.entries.iter().chain(&scan.gone))?;
    }
    Ok(collected)
}

fn store(results: &Results, scan: &mut Scan, result: RunResult, manifest: Manifest) -> Result<Stored, StoreError> {
    let (label, repetition) = (manifest.label.clone(), manifest.repetition);
    let earlier = earlier_digest(&scan.entries, &manifest, &assemble::files(&result, &manifest));
    let mut record = assemble::record(result, manifest, &results.id.salt, earlier.as_deref());
    let written = results.write(&mut record, Valid::Stays)?;
    let stored = Stored {
        campaign: record.ids.campaign.clone(),
        label,
        repetition,
        status: record.status,
        dir: results.dir.display().to_string(),
        path: written.entry.path.clone(),
    };
    scan.put(written);
    Ok(stored)
}

/// End what runs on a device for a results directory; its result is sealed there as cancelled, for the next `run` to collect. Labels of
/// what was ended, and what was given back where no controller was left to do it.
///
/// # Errors
/// `NotResults`, or the device can't be used, or belongs to another campaign.
pub fn cancel(device: &Device, dir: &Path, controller: &str) -> Result<(Vec<String>, GivenBack), CollectError> {
    let ResultsId { results_id, campaign, .. } = results::read_id(dir)?;
    // A controller that is still there keeps the device; else nobody does, and none starts meanwhile.
    let lock = match Results::existing(dir, &format!("campaign `{campaign}` is cancelled by {controller}")) {
        Ok(results) => Some(results),
        Err(StoreError::Locked { .. }) => None,
        Err(e) => return Err(e.into()),
    };
    let (sender, happenings) = channel();
    let mut session = Session::open(device, &holder(&results_id, &campaign, controller), &sender, NEVER)?;
    let mut ended = Vec::new();
    for SpoolEntry { run_id, state, manifest } in session.list()? {
        if !matches!(state, RunState::Running { .. }) {
            continue;
        }
        // It may have ended by itself meanwhile. A step of its preparation is never ended in the middle.
        let within = match session.attach(&run_id)? {
            RunState::Running { phase: Phase::Prepare } => SEALED_WITHIN + Duration::from_millis(SWAPOFF_DEADLINE_MS),
            RunState::Running { .. } => SEALED_WITHIN,
            RunState::Sealed { .. } | RunState::Lost { .. } => continue,
        };
        session.cancel(&run_id)?;
        // Sealed, or its keeper says why not: after that nothing of it is left.
        loop {
            match happenings.recv_timeout(within) {
                Ok(Happening::Event(Event::Sealed { run_id: of, .. } | Event::SealFailed { run_id: of, .. })) if of == run_id => break,
                Ok(Happening::LinkLost { reason, .. }) => return Err(DeviceError::LinkLost { device: device.id.clone(), reason }.into()),
                Ok(_) => {}
                Err(_) => {
                    return Err(DeviceError::NoAnswer { device: device.id.clone(), reason: "the run was told to end and did not".into() }.into());
                }
            }
        }
        ended.push(manifest["label"].as_str().map_or_else(|| format!("run {run_id}"), str::to_owned));
    }
    let given_back = match lock {
        Some(_) => session.end()?,
        None => {
            session.detach();
            GivenBack::default()
        }
    };
    Ok((ended, given_back))
}
