//! What a device has of earlier controllers, and runs that left nothing.

use super::Stop;
use super::device_night::DeviceNight;
use super::event::Event;
use super::line::Stake;
use super::manifest::Manifest;
use super::watch::{Ended, OVERDUE};
use crate::device::Session;
use crate::plan::identity::point_identity;
use crate::registry::Code;
use crate::store::index::{self, Entry};
use crate::store::issue::Issue;
use crate::store::record::Reason;
use crate::store::write::Valid;
use isotherm_wire::session::{RunState, SpoolEntry};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How long past its own limits a run of an earlier controller is waited for before it is asked about again.
const ATTACHED_DEADLINE: Duration = Duration::from_secs(3600);

impl DeviceNight<'_, '_> {
    /// What an earlier controller left: sealed results are collected, a running job is waited for. What stays there, in words.
    pub(super) fn collect_spool(&mut self) -> Result<Vec<String>, Stop> {
        let mut stays = Vec::new();
        let mut others: BTreeMap<String, usize> = BTreeMap::new();
        let listed = self.asking(Session::list)?;
        let boot = self.boot();
        for SpoolEntry { run_id, state, manifest } in listed {
            // Of one that was lost before, nobody here has seen in which boot it was.
            self.run_boot = matches!(state, RunState::Running { .. }).then(|| boot.clone()).flatten();
            let manifest = match Manifest::of(manifest, &state) {
                Ok(manifest) => manifest,
                Err(why) => {
                    stays.push(format!("run {run_id} stays on device `{}`: {why}", self.line.device.id));
                    continue;
                }
            };
            if manifest.results_id != self.line.night.constants.results_id {
                *others.entry(manifest.campaign).or_insert(0usize) += 1;
                continue;
            }
            // Of another name of this machine, whose turn it will be.
            if manifest.point.device != self.line.device.id && self.line.night.crew.is_at_work(&manifest.point.device) {
                continue;
            }
            let (label, kind, repetition) = (manifest.label.clone(), manifest.kind, manifest.repetition);
            let (bytes, sha256) = match state {
                RunState::Sealed { bytes, sha256 } => (bytes, sha256),
                RunState::Running { .. } => {
                    self.line.emit(Event::Attached {
                        run_id: run_id.clone(),
                        device: self.line.device.id.clone(),
                        label: label.clone(),
                        kind,
                        repetition,
                    });
                    let longest = ATTACHED_DEADLINE + longest(&manifest);
                    self.stake = Stake::Run { until: Instant::now() + longest + OVERDUE };
                    let ended = match self.attach(&run_id)? {
                        Some(ended) => ended,
                        None => self.follow(&run_id, &manifest.job_id, longest)?,
                    };
                    self.stake = Stake::Jobs;
                    match ended {
                        Ended::Sealed { bytes, sha256 } => (bytes, sha256),
                        Ended::Lost { reason, restarted } => {
                            self.lost(&run_id, &manifest, reason, restarted)?;
                            continue;
                        }
                        Ended::Unsealed { reason } => {
                            self.lost(&run_id, &manifest, reason, false)?;
                            continue;
                        }
                    }
                }
                RunState::Lost { reason, restarted } => {
                    self.lost(&run_id, &manifest, reason, restarted)?;
                    continue;
                }
            };
            self.line.night.state().summary.collected += 1;
            self.line.emit(Event::Collected { run_id: run_id.clone(), device: self.line.device.id.clone(), label, kind, repetition });
            self.store(&run_id, bytes, &sha256, manifest, Valid::Stays)?;
        }
        for (campaign, n) in others {
            let device = &self.line.device.id;
            let results = if n == 1 { "result" } else { "results" };
            stays.push(format!("device `{device}` keeps {n} {results} of campaign `{campaign}` until a `run` of that campaign collects them"));
        }
        Ok(stays)
    }

    /// A run that left no result. One that its device didn't survive has a record all the same, so that it is tried twice and not for ever.
    pub(super) fn lost(&mut self, run_id: &str, manifest: &Manifest, why: String, restarted: bool) -> Result<Lost, Stop> {
        // The machine of its record isn't known from an older keeper; our own finds the run there as well.
        if restarted && self.session.welcome().is_err() {
            return Ok(Lost::Unrecorded);
        }
        let Manifest { label, kind, repetition, .. } = manifest.clone();
        self.line.emit(Event::RunLost { run_id: run_id.to_owned(), device: self.line.device.id.clone(), label, kind, repetition, why: why.clone() });
        let known = self.line.night.state().scan.entries.iter().any(|e| e.run_id == run_id);
        let lost = match restarted && !known {
            false => Lost::Unrecorded,
            true if self.restarted_before(manifest) => Lost::Recorded(Reason::DeviceLost),
            true => Lost::Recorded(Reason::Interrupted),
        };
        if let Lost::Recorded(reason) = lost {
            let again = if reason == Reason::DeviceLost { ", for the second time" } else { "" };
            let mut record = self.without_result(manifest.clone(), run_id, reason, format!("{why}{again}"));
            record.device.machine.iter_mut().for_each(|machine| machine.boot_id.clone_from(&self.run_boot));
            record.issues.push(Issue::new(Code::DeviceRestarted, why));
            self.keep(record, manifest.label.clone(), Valid::Stays)?;
        }
        match lost {
            Lost::Recorded(Reason::DeviceLost) => self.dismiss(run_id, "")?,
            // Its job is started again.
            _ => self.forget(run_id, "")?,
        }
        Ok(lost)
    }

    /// Has this job, as it is now, met a start of its device before?
    fn restarted_before(&self, manifest: &Manifest) -> bool {
        let identity = point_identity(&manifest.identity);
        let is_of_job = |e: &&Entry| {
            let same = e.point_identity == identity && (e.kind, e.repetition) == (manifest.kind, manifest.repetition);
            same && matches!(e.reason, Some(Reason::Interrupted | Reason::DeviceLost))
        };
        let state = self.line.night.state();
        let records = state.scan.entries.iter().filter(is_of_job).map(|e| index::read_record(&self.line.night.results.dir.join(&e.path)));
        records.flatten().any(|record| record.issues.iter().any(|issue| issue.code == Code::DeviceRestarted))
    }
}

/// What became of a run without a result.
pub(super) enum Lost {
    /// Its job is as if it had not been started.
    Unrecorded,
    Recorded(Reason),
}

/// The time that a run of an earlier controller was given, at most.
fn longest(manifest: &Manifest) -> Duration {
    let requested = |name: &str| manifest.requested.get(name).and_then(serde_json::Value::as_u64).unwrap_or(0);
    let settle_ms = manifest.settle.map_or(manifest.settle_ms, |rule| rule.timeout_ms);
    Duration::from_millis(requested("timeout_ms").saturating_mul(requested("warmup").saturating_add(1)).saturating_add(settle_ms))
}
