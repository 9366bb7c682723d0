//! `isotherm plan`.

use super::words::{count, duration, plain};
use super::{Draft, PlanArgs, complain, draft, exit, print, run};
use crate::config::model::{Campaign, Order, Power, Settings, Settle};
use crate::plan::identity::DeviceReport;
use crate::plan::outlook::{self, Limit, PastRuns, Resolution, Times};
use crate::plan::{JobState, Plan, PlannedJob, Point, diff, expand, identity, power};
use crate::report;
use crate::run::{Filter, Options, RunError};
use crate::store::index::{self, Scan};
use crate::store::record::Kind;
use crate::store::{StoreError, formats};
use indexmap::IndexMap;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};

/// Points listed one by one; `--json` has them all.
const MOST_LINES: usize = 60;

/// Of a point's label.
const MOST_LETTERS: usize = 200;

pub fn plan(args: &PlanArgs) -> u8 {
    let draft = match draft(&args.file, &args.set.set) {
        Ok(draft) => draft,
        Err(code) => return code,
    };
    let runs_in_part = draft.runs_in_part();
    let Draft { campaign, later } = draft;
    let filter = match Filter::parse(&args.filters) {
        Ok(filter) => filter,
        Err(e) => {
            complain(&e.to_string(), None);
            return exit::USAGE;
        }
    };
    let options = Options { filter, dry_run: true, ..Options::default() };
    // All that a device could be asked for; what is wrong with that is said below.
    let possible = later.as_ref().filter(|_| runs_in_part).and_then(|_| expand::expand(&campaign, &BTreeMap::new()).ok());
    let left_out = possible.map(|plan| options.left_out(&plan));
    let can_run = later.is_none() || matches!(left_out, Some(Ok(_)));
    if let Some(Ok(Some(left_out))) = &left_out {
        say!("{left_out}\n");
    } else if let Some(errors) = &later {
        errors.later_list().lines().for_each(|line| say!("{}", plain(line)));
        let asked = if args.refresh { " `--refresh` asks no device for it." } else { "" };
        let rest = match &left_out {
            Some(Err(RunError::Later { rest: Some(rest), .. })) => format!(" With `--filter {rest}` it can run."),
            _ => String::new(),
        };
        say!("It can be planned all the same.{rest}{asked}\n");
    }
    if args.refresh && can_run {
        let mut observer = |event: &crate::run::Event| {
            if let crate::run::Event::DeviceFailed { message, hint, .. } = event {
                complain(message, hint.as_deref());
            }
        };
        match crate::run::run(&campaign, &args.place.results, &options, &mut observer) {
            Ok(summary) if summary.devices_failed > 0 => return run::none(&summary),
            Ok(_) => {}
            Err(e) => return run::refused(&e),
        }
    }
    match offline(args, &campaign, &options.filter, can_run) {
        Ok(text) if !can_run => print(&text).max(exit::USAGE),
        Ok(text) => print(&text),
        Err(code) => code,
    }
}

fn offline(args: &PlanArgs, campaign: &Campaign, filter: &Filter, can_ask: bool) -> Result<String, u8> {
    let dir = args.place.results.join(&campaign.name);
    let reports = crate::run::stored_reports(&dir, campaign);
    let plan = expand::expand(campaign, &reports).map_err(|e| {
        complain(&e.to_string(), Some(&e.hint()));
        exit::USAGE
    })?;
    filter.check(&plan).map_err(|e| {
        complain(&e.to_string(), None);
        exit::USAGE
    })?;
    let scan = if dir.is_dir() {
        formats::none_is_newer(&dir).and_then(|()| index::scan(&dir)).map_err(|e| {
            complain(&e.to_string(), e.hint().as_deref());
            if matches!(e, StoreError::Newer { .. }) { exit::USAGE } else { exit::INTERNAL }
        })?
    } else {
        Scan::default()
    };
    let identities = identity::of_points(&plan.points, &reports);
    let known = diff::Known { plan: &plan, identities: &identities, reports: &reports, scan: &scan, results: &dir, device: None };
    let mut jobs = diff::diff(known);
    jobs.retain(|job| filter.takes(&plan, &job.slot));
    let view = View { campaign, can_ask, plan: &plan, jobs: &jobs, past: outlook::past(&plan, &scan), reports: &reports };
    Ok(if args.json { view.json() } else { view.text() })
}

struct View<'a> {
    campaign: &'a Campaign,
    /// Its devices can be asked by this build.
    can_ask: bool,
    plan: &'a Plan,
    jobs: &'a [PlannedJob],
    /// What earlier records say of each point.
    past: Vec<PastRuns>,
    /// What devices said last.
    reports: &'a BTreeMap<String, DeviceReport>,
}

impl View<'_> {
    fn text(&self) -> String {
        let points: BTreeSet<usize> = self.jobs.iter().map(|j| j.slot.point).collect();
        let mut by_device: IndexMap<&str, Vec<&PlannedJob>> = IndexMap::new();
        for job in self.jobs {
            by_device.entry(self.plan.points[job.slot.point].ids.device.as_str()).or_default().push(job);
        }
        let mut text = format!(
            "{}: {}, {} on {}\n",
            plain(&self.campaign.name),
            count(points.len(), "point"),
            runs(self.jobs),
            count(by_device.len(), "device")
        );
        for (device, jobs) in &by_device {
            let states: Vec<String> = diff::counts(jobs.iter().copied()).iter().map(|(state, n)| format!("{n} {state}")).collect();
            let report = self.reports.get(*device);
            let as_of = match report {
                Some(report) => format!("files and machine as of {}{}", plain(&report.taken_at), self.asks("looks again")),
                None => format!("this device was not asked yet{}", self.asks("asks it")),
            };
            text += &format!("  {device}   {}   {}   ({as_of})\n", states.join(" · "), estimate(self.times(jobs)));
            let settings = jobs.iter().map(|job| &self.plan.points[job.slot.point].settings);
            // Rates are above 0, and so in the order of their bits.
            let asked_for: BTreeSet<(Power, u64)> = settings.map(|settings| (settings.power, settings.sample_hz.to_bits())).collect();
            let mut told = BTreeSet::new();
            for (power, hz) in asked_for.into_iter().map(|(power, bits)| (power, f64::from_bits(bits))) {
                let known = power::shortfall(power, report).or_else(|| power::because(power, hz, report));
                let unknown = || Some(format!("{}{}", power::unknown(power, hz, report)?, self.asks("asks")));
                if let Some(what) = known.map(|what| plain(&what)).or_else(unknown)
                    && told.insert(what.clone())
                {
                    text += &format!("    {what}\n");
                }
            }
        }
        let reread = self.jobs.iter().filter(|job| matches!(job.state, JobState::Reread { .. })).count();
        if reread > 0 {
            text += &format!("  {reread} to be read again by the new rules\n");
        }
        let mut reasons: IndexMap<&str, usize> = IndexMap::new();
        for why in self.jobs.iter().filter_map(|j| j.state.why()) {
            *reasons.entry(why).or_insert(0) += 1;
        }
        for (why, n) in &reasons {
            text += &format!("  {}: {}\n", count(*n, "run"), plain(why));
        }
        let mut dropped: IndexMap<&str, usize> = IndexMap::new();
        for point in &self.plan.dropped {
            *dropped.entry(&point.condition).or_insert(0) += 1;
        }
        for (condition, n) in &dropped {
            text += &format!("  left out by `when`: {} ({})\n", count(*n, "point"), plain(condition));
        }
        for (name, n) in &self.plan.undecided {
            text += &format!("  {} more may be left out: {name} is not known yet{}\n", count(*n, "point"), self.asks("asks"));
        }
        if self.plan.excluded > 0 {
            text += &format!("  left out by `exclude`: {}\n", count(self.plan.excluded, "point"));
        }
        text += "\n";
        for (shown, index) in points.iter().enumerate() {
            if shown == MOST_LINES {
                text += &format!("  … {} more; `--json` lists them all\n", points.len() - shown);
                break;
            }
            let point = &self.plan.points[*index];
            let states = diff::counts(self.jobs.iter().filter(|j| j.slot.point == *index));
            let states: Vec<String> = states.iter().map(|(state, n)| format!("{n} {state}")).collect();
            text += &format!("  {} {}: {}\n", point.ids.device, short(point), states.join(" · "));
        }
        let orders: BTreeSet<&str> = points.iter().map(|&i| order(&self.plan.points[i].settings)).collect();
        let chosen: Vec<&Point> = points.iter().map(|&i| &self.plan.points[i]).collect();
        let note = if outlook::leaves_drift(&chosen) {
            " · an odd number of repetitions leaves a part of a linear drift in the comparison; an even one cancels it"
        } else {
            ""
        };
        let mut steps: Vec<String> = chosen.iter().map(|point| point.settings.prepare.to_string()).collect();
        steps.sort();
        steps.dedup();
        let steps: String = steps.iter().filter(|steps| !steps.is_empty()).map(|steps| format!(" · prepare: {steps}")).collect();
        text += &format!("\norder: {}{note}{steps} · settle: {}\n", orders.into_iter().collect::<Vec<_>>().join(", "), self.settle(&chosen));
        text += &self.resolution();
        text += &self.limits(&points);
        text
    }

    /// The budget of waiting: `10 s each, 4 min in all`, or `within 3 °C, at worst 5 min each (6 h 0 min)`.
    fn settle(&self, points: &[&Point]) -> String {
        let times = self.all_times().unwrap_or_default();
        let mut each: Vec<String> = points.iter().map(|point| settle(point.settings.settle)).collect();
        each.sort();
        each.dedup();
        let in_all = if times.settle == times.settle_at_worst {
            format!(", {} in all", duration(times.settle))
        } else {
            format!(" ({})", duration(times.settle_at_worst))
        };
        format!("{}{in_all}", each.join(" or "))
    }

    /// What `--refresh` would do, where it can do it.
    fn asks(&self, does: &str) -> String {
        if self.can_ask { format!("; `--refresh` {does}") } else { String::new() }
    }

    /// Time of what has to run; `None` = nothing has to.
    fn times(&self, jobs: &[&PlannedJob]) -> Option<Times> {
        let todo: Vec<&PlannedJob> = jobs.iter().filter(|job| job.state.has_to_run()).copied().collect();
        (!todo.is_empty()).then(|| outlook::times(self.plan, todo.into_iter(), &self.past))
    }

    fn all_times(&self) -> Option<Times> {
        self.times(&self.jobs.iter().collect::<Vec<_>>())
    }

    fn resolution(&self) -> String {
        match outlook::resolution(self.plan, &self.past) {
            Some(Resolution { difference, repetitions, n_points }) => format!(
                "resolves differences of about {:.1} % at {repetitions} repetitions (from the spread of {} that ran earlier)\n",
                difference * 100.0,
                count(n_points, "point")
            ),
            None => String::new(),
        }
    }

    /// Time limits that earlier runs came close to, or exceeded.
    fn limits(&self, points: &BTreeSet<usize>) -> String {
        let mut text = String::new();
        for (index, limit) in outlook::limits(self.plan, &self.past).into_iter().filter(|(index, _)| points.contains(index)) {
            let point = &self.plan.points[index];
            let (what, longest) = match limit {
                Limit::Below(longest) => ("is less than an earlier run took", longest),
                Limit::Close(longest) => ("is less than twice what an earlier run took", longest),
            };
            let limit = duration(point.settings.timeout);
            text += &format!("warning: {} {}: timeout {limit} {what} ({})\n", point.ids.device, short(point), duration(longest));
        }
        text
    }

    fn json(&self) -> String {
        let job = |job: &PlannedJob| {
            let point = &self.plan.points[job.slot.point];
            json!({
                "id": job.id,
                "device": point.ids.device,
                "backend": point.ids.backend,
                "axes": point.ids.axes,
                "kind": job.slot.kind,
                "repetition": job.slot.repetition,
                "pass": job.slot.pass,
                "position": job.position,
                "state": job.state.name(),
                "why": job.state.why(),
                "point_identity": job.identity.as_ref().map(|identified| &identified.hash),
            })
        };
        let document = json!({
            "campaign": self.campaign.name,
            "points": self.plan.points.len(),
            "excluded": self.plan.excluded,
            "dropped": self.plan.dropped.iter().map(|point| json!({
                "device": point.device,
                "point": point.label,
                "when": &*point.condition,
            })).collect::<Vec<_>>(),
            "undecided": self.plan.undecided,
            "facts_as_of": self.campaign.devices.keys().map(|id| (id.clone(), json!(self.reports.get(id).map(|report| &report.taken_at)))).collect::<serde_json::Map<_, _>>(),
            "about_s": self.all_times().map(|times| times.total().map(|total| total.as_secs_f64())),
            "settle_s": self.all_times().map(|times| times.settle.as_secs_f64()),
            "settle_at_worst_s": self.all_times().map(|times| times.settle_at_worst.as_secs_f64()),
            "resolution": outlook::resolution(self.plan, &self.past).map(|found| json!({
                "difference_pct": found.difference * 100.0,
                "repetitions": found.repetitions,
                "points": found.n_points,
            })),
            "states": diff::counts(self.jobs.iter()),
            "jobs": self.jobs.iter().map(job).collect::<Vec<_>>(),
        });
        report::document(&document)
    }
}

/// A point's label on one line; `--json` has long values whole.
fn short(point: &Point) -> String {
    let label = plain(&point.label());
    let end = label.char_indices().nth(MOST_LETTERS).map_or(label.len(), |(end, _)| end);
    if end < label.len() { format!("{}…", &label[..end]) } else { label }
}

/// `72 timing + 48 power runs`; without power runs, `72 runs`.
fn runs(jobs: &[PlannedJob]) -> String {
    let power = jobs.iter().filter(|job| job.slot.kind == Kind::Power).count();
    match (jobs.len() - power, power) {
        (timing, 0) => count(timing, "run"),
        (0, power) => count(power, "power run"),
        (timing, power) => format!("{timing} timing + {}", count(power, "power run")),
    }
}

fn settle(settle: Settle) -> String {
    match settle {
        Settle::Fixed(wait) => format!("{} each", duration(wait)),
        Settle::Quiet(quiet) => format!("within {} °C, at worst {} each", quiet.temp_within_c, duration(quiet.timeout)),
    }
}

fn estimate(times: Option<Times>) -> String {
    match times.map(|times| times.total()) {
        None => "nothing to do".into(),
        Some(Some(total)) => format!("about {}", duration(total)),
        Some(None) => "time unknown until something has run".into(),
    }
}

fn order(settings: &Settings) -> &'static str {
    match settings.order {
        Order::Sequential => "sequential",
        Order::Interleaved if settings.interleave.iter().any(|axis| axis == "model") => "interleaved across models",
        Order::Interleaved => "interleaved",
    }
}
