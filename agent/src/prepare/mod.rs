//! Preparation: what is done to a device before a run, and giving back what it borrows for that.
//!
//! Takes the steps of a run and the root of `/proc` and `/sys`, gives an outcome for each; must not know what a run measures. Steps
//! decide on readings alone; whatever changes the machine goes through [`act`].
//!
//! Borrowed state belongs to the device and not to a run: it stays as long as every run asks for it, and is given back before the
//! first that doesn't, when the keeper ends, and by the next keeper where this one was killed.

pub mod act;
mod caches;
mod cpufreq;
mod journal;
mod swap;
#[cfg(test)]
mod tests;

use crate::sys;
use act::{Act, Children};
use isotherm_wire::result::{PrepareStep, StepOutcome};
use isotherm_wire::session::GivenBack;
use isotherm_wire::task::{Prepare, RunSpec, Step, When};
pub use journal::FILE as JOURNAL_FILE;
use journal::{Borrowed, Journal, JournalError, Kind};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
pub use swap::on as swap_areas;

/// Why a step is not done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    Skipped(String),
    Unsupported(String),
    Denied(String),
    Failed(String),
    /// A child is past its deadline and still at it: nothing may run beside it.
    Hangs(String),
}

impl Stop {
    fn reason(&self) -> &str {
        match self {
            Stop::Skipped(why) | Stop::Unsupported(why) | Stop::Denied(why) | Stop::Failed(why) | Stop::Hangs(why) => why,
        }
    }

    fn outcome(&self) -> StepOutcome {
        match self {
            Stop::Skipped(_) => StepOutcome::Skipped,
            Stop::Unsupported(_) => StepOutcome::Unsupported,
            Stop::Denied(_) => StepOutcome::Denied,
            Stop::Failed(_) | Stop::Hangs(_) => StepOutcome::Failed,
        }
    }
}

/// What ends a run before its settle.
#[derive(Debug, PartialEq, Eq)]
pub enum Ended {
    Cancelled,
    /// The device can't be used until this has ended.
    Hangs(String),
}

/// What a step works with.
struct Bench<'a> {
    root: &'a Path,
    act: &'a mut dyn Act,
    journal: &'a mut Result<Journal, JournalError>,
}

impl Bench<'_> {
    /// Before anything is changed: note what it is like, as subjects with their originals.
    fn borrow(&mut self, kind: Kind, things: &[(String, String)]) -> Result<(), Stop> {
        let journal = self.journal.as_mut().map_err(|e| Stop::Failed(e.to_string()))?;
        journal.borrow(kind, things).map_err(|e| Stop::Failed(format!("the restore journal can't be written: {e}")))
    }

    fn returned(&mut self, kind: Kind, subject: &str) -> Result<(), Stop> {
        let journal = self.journal.as_mut().map_err(|e| Stop::Failed(e.to_string()))?;
        journal.returned(kind, subject).map_err(|e| Stop::Failed(format!("the restore journal can't be written: {e}")))
    }
}

/// What a keeper knows of the state that its device was put in.
pub struct Preparation {
    root: PathBuf,
    act: Box<dyn Act + Send>,
    journal: Result<Journal, JournalError>,
    /// Of the last run, if there was one.
    model: Option<Option<String>>,
    /// What has been done since the first run with that model.
    done: BTreeSet<Step>,
}

impl Preparation {
    /// That of this machine, with the journal of a state directory.
    pub fn open(dir: &Path) -> Preparation {
        Preparation::with(Path::new("/"), dir, Box::new(Children { dir: dir.to_owned() }))
    }

    fn with(root: &Path, dir: &Path, act: Box<dyn Act + Send>) -> Preparation {
        Preparation { root: root.to_owned(), act, journal: Journal::open(dir, root), model: None, done: BTreeSet::new() }
    }

    /// Take notice of a run that is about to begin; is there anything to do for it?
    pub fn has_work(&mut self, spec: &RunSpec) -> bool {
        if self.model.as_ref() != Some(&spec.model) {
            self.model = Some(spec.model.clone());
            self.done.clear();
        }
        !spec.prepare.is_empty() || self.journal.as_ref().is_ok_and(|journal| journal.holds(|borrowed| !is_asked_for(borrowed, &spec.prepare)))
    }

    /// Give back what the run doesn't ask for, then do what it asks for, in its order. A step that fails doesn't keep the next ones from
    /// being done, nor the run from being made.
    ///
    /// # Errors
    /// It was cancelled, which is looked at between the steps, or the device can't be used.
    pub fn before_run(&mut self, wanted: &[Prepare], is_cancelled: impl Fn() -> bool, steps: &mut Vec<PrepareStep>) -> Result<(), Ended> {
        let borrowed_by_others = |borrowed: &Borrowed| !is_asked_for(borrowed, wanted);
        let cancelled = || if is_cancelled() { Err(Ended::Cancelled) } else { Ok(()) };
        if self.journal.as_ref().is_ok_and(|journal| journal.holds(borrowed_by_others)) {
            cancelled()?;
            let started_ns = sys::monotonic_ns();
            let (GivenBack { restored, failed }, hangs) = self.give_back_those(borrowed_by_others);
            steps.push(PrepareStep {
                step: Step::GiveBack,
                outcome: if failed.is_empty() { StepOutcome::Done } else { StepOutcome::Failed },
                reason: (!failed.is_empty()).then(|| failed.join("; ")),
                before: None,
                after: Some(json!(restored)),
                duration_ns: sys::monotonic_ns().saturating_sub(started_ns),
            });
            hangs.map_or(Ok(()), |what| Err(Ended::Hangs(what)))?;
        }
        for prepare in wanted {
            cancelled()?;
            let (step, hangs) = self.step(prepare);
            steps.push(step);
            if let Some(what) = hangs {
                return Err(Ended::Hangs(what));
            }
        }
        cancelled()
    }

    /// Set back everything that is borrowed; what can't be stays noted for the next time.
    pub fn give_back(&mut self) -> GivenBack {
        self.give_back_those(|_| true).0
    }

    fn give_back_those(&mut self, which: impl Fn(&Borrowed) -> bool) -> (GivenBack, Option<String>) {
        match &mut self.journal {
            Ok(journal) if journal.holds(&which) => journal.give_back(&self.root, self.act.as_mut(), which),
            Ok(_) => Default::default(),
            Err(e) => (GivenBack { restored: Vec::new(), failed: vec![e.to_string()] }, None),
        }
    }

    /// One step with what was read before and after it; with it what hangs.
    fn step(&mut self, prepare: &Prepare) -> (PrepareStep, Option<String>) {
        let (step, started_ns) = (prepare.step(), sys::monotonic_ns());
        let root = self.root.clone();
        let reading = || -> Option<Value> {
            match step {
                Step::ResetSwap => swap::reading(&root),
                Step::DropCaches => caches::reading(&root),
                Step::Governor | Step::Frequency => cpufreq::reading(&root),
                Step::GiveBack => None,
            }
        };
        let once = matches!(prepare, Prepare::ResetSwap(When::OnModelChange) | Prepare::DropCaches(When::OnModelChange));
        let (before, result, after) = if once && self.done.contains(&step) {
            (None, Err(Stop::Skipped("done before an earlier run with this model".into())), None)
        } else {
            let before = reading();
            let mut bench = Bench { root: &root, act: self.act.as_mut(), journal: &mut self.journal };
            let result = match prepare {
                Prepare::ResetSwap(_) => swap::reset(&mut bench),
                Prepare::DropCaches(_) => caches::drop_caches(&mut bench),
                Prepare::Governor(governor) => cpufreq::governor(&mut bench, governor),
                Prepare::Frequency(frequency) => cpufreq::frequency(&mut bench, *frequency),
            };
            (before, result, reading())
        };
        let stop = result.err();
        let outcome = stop.as_ref().map_or(StepOutcome::Done, Stop::outcome);
        if matches!(outcome, StepOutcome::Done | StepOutcome::Skipped) {
            self.done.insert(step);
        }
        let reason = stop.as_ref().map(|stop| stop.reason().to_owned());
        let duration_ns = sys::monotonic_ns().saturating_sub(started_ns);
        let hangs = if let Some(Stop::Hangs(what)) = stop { Some(what) } else { None };
        (PrepareStep { step, outcome, reason, before, after, duration_ns }, hangs)
    }
}

/// Does a run with these steps go on using it? A swap area is never meant to be off.
fn is_asked_for(borrowed: &Borrowed, wanted: &[Prepare]) -> bool {
    wanted.iter().any(|prepare| match borrowed.kind {
        Kind::SwapArea => false,
        Kind::Governor => matches!(prepare, Prepare::Governor(_)),
        Kind::FrequencyLimits => matches!(prepare, Prepare::Frequency(_)),
    })
}
