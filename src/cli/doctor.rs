//! `isotherm doctor`.

use super::words::{count, duration, plain};
use super::{DoctorArgs, complain, draft, exit, print, probe, run};
use crate::config::model::{Campaign, Device, Transport};
use crate::config::{Block, Draft};
use crate::device::{self, Answer, agents};
use crate::doctor::{self, Check, Finding, Horizon, Outcome};
use crate::plan::identity::{self, DeviceReport, REPORT_VERSION};
use crate::plan::{Plan, Point, diff, expand, outlook};
use crate::report;
use crate::run as runs;
use crate::store::index::{self, Scan};
use isotherm_wire::probe::{PROBE_VERSION, ProbeRequest, Probed};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::Path;

/// What was found about one device, or about this machine as the controller.
struct Section {
    device: Option<String>,
    /// The machine in one line, and how much there is to do.
    about: String,
    reached: bool,
    findings: Vec<Finding>,
}

pub fn doctor(args: &DoctorArgs) -> u8 {
    let draft = match draft(&args.file, &args.set.set) {
        Ok(draft) => draft,
        Err(code) => return code,
    };
    let runs_in_part = draft.runs_in_part();
    let Draft { mut campaign, later } = draft;
    if let Some(errors) = &later {
        errors.later_list().lines().for_each(|line| say!("{}", plain(line)));
        say!("{}\n", if runs_in_part { "The rest is looked at." } else { "Its devices can be looked at all the same." });
    }
    if runs_in_part {
        campaign.blocks.retain(Block::is_built);
    }
    let stored = runs::stored_reports(&args.place.results.join(&campaign.name), &campaign);
    // What a device says now decides its conditions; until then all that it could be asked for counts.
    let possible = match expand::expand(&campaign, &BTreeMap::new()) {
        Ok(plan) => plan,
        Err(e) => {
            complain(&e.to_string(), Some(&e.hint()));
            return exit::USAGE;
        }
    };
    if let Some(id) = args.devices.iter().find(|id| !campaign.devices.contains_key(*id)) {
        complain(&run::no_device(id), Some(&run::devices_of(&campaign)));
        return exit::USAGE;
    }
    let is_used = |id: &str| campaign.blocks.iter().any(|block| block.devices.iter().any(|used| used == id));
    let chosen = |id: &str| if args.devices.is_empty() { is_used(id) } else { args.devices.iter().any(|chosen| chosen == id) };
    let mut sections: Vec<Section> = campaign
        .devices
        .values()
        .filter(|device| chosen(&device.id))
        .map(|device| of_device(args, &campaign, device, &possible, stored.clone()))
        .collect();
    let reached = sections.iter().filter(|section| section.reached).count();
    sections.push(of_controller(&args.place.results));
    let findings = || sections.iter().flat_map(|section| &section.findings);
    let code = match () {
        () if !runs_in_part => exit::USAGE,
        () if reached == 0 => exit::NO_DEVICE,
        () if findings().any(|finding| finding.outcome == Outcome::Problem) => exit::NOT_ALL,
        () => exit::OK,
    };
    let printed = print(&if args.json { document(&campaign, &sections) } else { sections.iter().map(page).collect() });
    if !args.json {
        let n = |outcome| findings().filter(|finding| finding.outcome == outcome).count();
        let (problems, warnings, unknown) = (n(Outcome::Problem), n(Outcome::Warning), n(Outcome::Unknown));
        say!("{} · {} · {unknown} unknown", count(problems, "problem"), count(warnings, "warning"));
    }
    if printed == exit::OK { code } else { printed }
}

fn of_device(args: &DoctorArgs, campaign: &Campaign, device: &Device, possible: &Plan, mut stored: BTreeMap<String, DeviceReport>) -> Section {
    let points: Vec<&Point> = possible.points.iter().filter(|point| point.ids.device == device.id).collect();
    let needs = Some(doctor::needs(device, &points));
    let request =
        ProbeRequest { probe_version: PROBE_VERSION, force: false, root: "/".into(), models: Vec::new(), search: None, needs, polling_hz: None };
    let Answer { probed, unfit } = match device::probe(device, &request) {
        Ok(answer) => answer,
        Err(error) => {
            let hint = if error.is_in_use() {
                Some("wait until that campaign has ended: a look beside a measurement disturbs it".into())
            } else {
                probe::hint(&error)
            };
            let finding = Finding { remedy: hint, ..Finding::new(Check::Reach, Outcome::Problem, error.to_string()) };
            return Section { device: Some(device.id.clone()), about: String::new(), reached: false, findings: vec![finding] };
        }
    };
    let Some(mut readiness) = probed.readiness.clone() else {
        let finding = Finding::new(Check::Reach, Outcome::Problem, "its agent answered without what it was asked for");
        return Section { device: Some(device.id.clone()), about: String::new(), reached: false, findings: vec![finding] };
    };
    // Identities need the files' content, which was not read: what was said of it last time has to do.
    let report = report_of(&probed, stored.remove(&device.id));
    stored.insert(device.id.clone(), report);
    let plan = expand::expand(campaign, &stored);
    let mut findings = Vec::new();
    let (points, horizon) = match &plan {
        Ok(plan) => {
            let points = plan.points.iter().filter(|point| point.ids.device == device.id).collect();
            (points, horizon(&args.place.results.join(&campaign.name), plan, &stored, &device.id))
        }
        Err(e) => {
            findings.push(Finding::new(Check::Reach, Outcome::Problem, e.to_string()).mended_by(e.hint()));
            (points, Horizon::default())
        }
    };
    let machine = crate::probe::machine_line(&probed.machine);
    let about = match (horizon.runs, horizon.about) {
        (0, _) => format!("{machine}; nothing to run"),
        (runs, Some(about)) => format!("{machine}; {} to make, about {}", count(runs, "run"), duration(about)),
        (runs, None) => format!("{machine}; {} to make", count(runs, "run")),
    };
    readiness.files.extend(runs::look_here(campaign, &points));
    let readiness = &readiness;
    let is_over_ssh = matches!(device.transport, Transport::Ssh(_));
    let mut judged =
        doctor::judge(&doctor::Device { id: &device.id, is_over_ssh, file: &args.file, probed: &probed, readiness, points: &points, horizon });
    if let Some(why) = unfit {
        let finding = Finding::new(Check::Companion, Outcome::Warning, agents::without_companion(&why)).mended_by(why.hint());
        judged.insert(1, finding);
    }
    findings.extend(judged);
    Section { device: Some(device.id.clone()), about, reached: true, findings }
}

/// What the device says of itself now, and what it said of everything else last time.
fn report_of(probed: &Probed, earlier: Option<DeviceReport>) -> DeviceReport {
    let (machine, engine) = (probed.machine.clone(), probed.engine.clone());
    match earlier {
        Some(earlier) => DeviceReport { machine, engine, ..earlier },
        None => {
            let (taken_at, files, programs) = (crate::clock::utc_seconds(), BTreeMap::new(), BTreeMap::new());
            DeviceReport { report_version: REPORT_VERSION, taken_at, machine, engine, files, programs, instruments: None, clock: None }
        }
    }
}

/// Runs that a device has still to make and, as earlier ones tell, their time.
fn horizon(results: &Path, plan: &Plan, reports: &BTreeMap<String, DeviceReport>, device: &str) -> Horizon {
    // One that can't be read is for `run` to complain about.
    let scan = if results.is_dir() { index::scan(results).unwrap_or_default() } else { Scan::default() };
    let identities = identity::of_points(&plan.points, reports);
    let jobs = diff::diff(diff::Known { plan, identities: &identities, reports, scan: &scan, results, device: None });
    let todo = || jobs.iter().filter(|job| plan.points[job.slot.point].ids.device == device && job.state.has_to_run());
    let runs = todo().count();
    let about = outlook::times(plan, todo(), &outlook::past(plan, &scan)).total().filter(|_| runs > 0);
    Horizon { runs, about }
}

/// This machine, which stores the results.
fn of_controller(results: &Path) -> Section {
    let there = std::path::absolute(results).unwrap_or_else(|_| results.to_owned());
    let space = there.ancestors().find(|dir| dir.exists()).and_then(|dir| rustix::fs::statvfs(dir).ok());
    let free_bytes = space.as_ref().map(|space| space.f_bavail.saturating_mul(space.f_frsize));
    let free_files = space.filter(|space| space.f_files > 0).map(|space| space.f_favail);
    let finding = doctor::space("results", &there.display().to_string(), free_bytes, free_files);
    Section { device: None, about: "this machine stores the results".into(), reached: true, findings: vec![finding] }
}

fn document(campaign: &Campaign, sections: &[Section]) -> String {
    let finding = |section: &Section, finding: &Finding| {
        let mut entry = json!(finding);
        entry["device"] = json!(section.device);
        entry
    };
    let findings: Vec<_> = sections.iter().flat_map(|section| section.findings.iter().map(move |f| finding(section, f))).collect();
    report::document(&json!({ "doctor_version": 1, "campaign": campaign.name, "findings": findings }))
}

fn page(section: &Section) -> String {
    let name = section.device.as_deref().unwrap_or("results");
    let mut text = if section.about.is_empty() { format!("{name}\n") } else { format!("{name}: {}\n", plain(&section.about)) };
    let width = section.findings.iter().map(|finding| finding.check.entry().name.len()).max().unwrap_or(0);
    for finding in &section.findings {
        text += &format!("  {} {:width$}  {}\n", mark(finding.outcome), finding.check.entry().name, plain(&finding.what));
        if let Some(remedy) = &finding.remedy {
            text += &format!("    {:width$}  → {}\n", "", plain(remedy));
        }
    }
    text
}

fn mark(outcome: Outcome) -> char {
    match outcome {
        Outcome::Ok => '✓',
        Outcome::Warning => '!',
        Outcome::Problem => '✗',
        Outcome::Unknown => '?',
    }
}
