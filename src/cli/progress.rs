//! A campaign as it goes: a line per finished job, and on a terminal a bar with percentage, current point and ETA.
//!
//! Nothing ticks by itself: on a machine that the controller shares with the device it draws only between windows.

use super::words::{count, duration, metric, plain, program, shell_word};
use crate::report;
use crate::run::{Event, Finished, Settled, Summary};
use crate::size::size;
use crate::store::record::{Status, Validity};
use indexmap::IndexMap;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::{Duration, Instant};

pub struct Progress {
    json: bool,
    bar: Option<ProgressBar>,
    results: PathBuf,
    /// The command that goes on.
    again: String,
    done: u64,
    to_run: u64,
    /// By run.
    running: IndexMap<String, Running>,
    /// Time of finished jobs, from start to record.
    spent: Duration,
}

struct Running {
    what: String,
    phase: String,
    started: Instant,
}

impl Progress {
    pub fn new(json: bool, results: PathBuf, again: String) -> Progress {
        let bar = (!json && std::io::stderr().is_terminal()).then(|| {
            let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::hidden());
            let style = ProgressStyle::with_template("  {bar:24} {pos}/{len} {percent} %   {wide_msg}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("━╸ "));
            bar
        });
        Progress { json, bar, results, again, done: 0, to_run: 0, running: IndexMap::new(), spent: Duration::ZERO }
    }

    /// Take one event.
    pub fn hear(&mut self, event: &Event) {
        if self.json {
            super::print(&report::line(event));
            return;
        }
        match event {
            Event::CampaignStarted { .. } | Event::DeviceReady { .. } | Event::DeviceReleased { .. } | Event::DeviceDone { .. } => {}
            Event::OlderKeeper { device } => self.talk(&format!("  {device}  an older isotherm's keeper is there: its runs are finished first")),
            Event::Polling { device, hz } => {
                self.talk(&format!(
                    "  {device}  its energy instruments are read rarely and {hz} times a second in turn, for 8 to 12 s: does that change them?"
                ));
            }
            Event::PushStarted { device, model, bytes, offset, .. } => {
                let goes_on = if *offset > 0 { format!(", of which {} are there", size(*offset)) } else { String::new() };
                self.talk(&format!("  {device}  copying model `{model}`: {}{goes_on}", size(*bytes)));
                let phase = "copying".into();
                self.running.insert(push(device), Running { what: format!("{device}: {model}"), phase, started: Instant::now() });
            }
            Event::Pushing { device, bytes, offset, .. } => self.enters(&push(device), format!("{} of {}", size(*offset), size(*bytes))),
            Event::Pushed { device, .. } => {
                self.running.shift_remove(&push(device));
                self.draw();
            }
            Event::DeviceFailed { device, message, hint } => {
                self.running.shift_remove(&push(device));
                self.talk(&format!("  {device}  ✗ {}", plain(message)));
                if let Some(hint) = hint {
                    self.talk(&format!("  hint: {}", plain(hint)));
                }
            }
            Event::DevicePlanned { device, states, to_run, reasons } => {
                let states: Vec<String> = states.iter().map(|(state, n)| format!("{n} {state}")).collect();
                let states = if states.is_empty() { "no points".to_owned() } else { states.join(" · ") };
                self.talk(&format!("  {device}  {states} · {} to run", count(*to_run, "job")));
                for (why, n) in reasons {
                    self.talk(&format!("        {}: {}", count(*n, "job"), plain(why)));
                }
                self.to_run += *to_run as u64;
                if let Some(bar) = &self.bar {
                    // Shown only from here on: until now there is nothing to show the progress of.
                    bar.set_length(self.to_run);
                    if bar.is_hidden() && self.to_run > 0 {
                        bar.set_draw_target(ProgressDrawTarget::stderr());
                    }
                }
            }
            Event::Attached { device, label, kind, repetition, .. } => {
                self.talk(&format!("  {device}  {} r{repetition}{} is still running: waiting for it", plain(label), kind.after_label()));
            }
            Event::Collected { device, label, kind, repetition, .. } => {
                self.talk(&format!("  {device}  {} r{repetition}{} ran meanwhile: collected", plain(label), kind.after_label()));
            }
            Event::RunLost { run_id, device, label, kind, repetition, why } => {
                self.running.shift_remove(run_id);
                self.talk(&format!("  {device}  ! {} r{repetition}{} left no result: {}", plain(label), kind.after_label(), plain(why)));
            }
            Event::Started { run_id, device, label, kind, repetition, .. } => {
                let what = format!("{device}: {} r{repetition}{}", plain(label), kind.after_label());
                self.running.insert(run_id.clone(), Running { what, phase: "starting".into(), started: Instant::now() });
                self.draw();
            }
            // Nothing is drawn once the window has begun, so this has to do for it too.
            Event::Phase { run_id, phase } if *phase != "collecting" => self.enters(run_id, format!("{phase}, then measuring")),
            Event::Phase { run_id, phase } => self.enters(run_id, (*phase).to_owned()),
            Event::Settling { run_id, temperature_c, limit_c } => {
                let temperatures = temperature_c.zip(*limit_c).map_or_else(String::new, |(now, limit)| format!(" ({now:.1} °C → {limit:.1} °C)"));
                self.enters(run_id, format!("settling{temperatures}, then measuring"));
            }
            Event::Finished(finished) => self.finished(finished),
            Event::Repeating { device, runs } => {
                self.to_run += *runs as u64;
                if let Some(bar) = &self.bar {
                    bar.set_length(self.to_run);
                }
                self.talk(&format!("  {device}  {} of this pass disturbed: once more", count(*runs, "run")));
            }
            Event::Superseded { .. } | Event::RecordReadAgain { .. } => {}
            Event::ReadAgain { device, records } => self.talk(&format!("  {device}  {records} read again by the new rules")),
            Event::LinkLost { device, reason } => self.talk(&format!("  {device}  ! connection lost ({}): reconnecting", plain(reason))),
            Event::LinkBack { device } => self.talk(&format!("  {device}  connected again")),
            Event::OutOfReach { device, reason, again_s } => {
                let again = duration(Duration::from_secs(*again_s));
                self.talk(&format!("  {device}  ! out of reach ({}): trying again in {again}", plain(reason)));
            }
            Event::GroupTaken { device, group, holder } => {
                self.talk(&format!("  {device}  waits for {}, which has group `{group}`", plain(holder)));
            }
            Event::SameMachine { device, others } => {
                self.talk(&format!("  {device}  is the same machine as {}: their runs take turns", others.join(", ")));
            }
            Event::GivenBack { device, restored, failed } => {
                if let Some(first) = restored.first() {
                    let more = if restored.len() > 1 { format!(", and {} more", restored.len() - 1) } else { String::new() };
                    self.talk(&format!("  {device}  given back: {}{more}", plain(first)));
                }
                for what in failed {
                    self.talk(&format!("  {device}  ! not given back: {}", plain(what)));
                }
                if !failed.is_empty() {
                    self.talk(&format!("  hint: {} restore tries again", program()));
                }
            }
            Event::Stopping { how } => self.talk(&format!("  {how}")),
            Event::Warning { message } => self.talk(&format!("warning: {}", plain(message))),
            Event::CampaignEnded(summary) => {
                if let Some(bar) = &self.bar {
                    bar.finish_and_clear();
                }
                self.summary(summary);
            }
        }
    }

    /// Leave the terminal as it was.
    pub fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    fn finished(&mut self, finished: &Finished) {
        self.done += 1;
        if let Some(run) = self.running.shift_remove(&finished.run_id) {
            self.spent += run.started.elapsed();
        }
        let Finished { device, label, kind, repetition, status, reason, message, validity, issues, headline, settle, temperature_c, .. } = finished;
        let mark = match (status, validity) {
            (Status::Ok, Validity::Valid) => '✓',
            (Status::Ok, Validity::Degraded) => '!',
            (Status::Skipped, _) => '–',
            _ => '✗',
        };
        let what = match (status, headline) {
            (Status::Ok, _) if *validity == Validity::Invalid => format!("invalid: {}", plain(&issues.join(", "))),
            (Status::Ok, Some((name, value))) => metric(name, value),
            (Status::Ok, None) => "ok".into(),
            _ => {
                let reason = reason.map_or("", |r| r.name());
                format!("{}: {reason}: {}", status.name(), plain(message.as_deref().unwrap_or("")))
            }
        };
        let issues = if issues.is_empty() || *validity == Validity::Invalid { String::new() } else { format!("   [{}]", plain(&issues.join(", "))) };
        let temperature = temperature_c.map_or_else(String::new, |(start, end)| format!("   {start:.1} → {end:.1} °C"));
        let settled = settle.as_ref().map_or_else(String::new, |settle| format!("   {}", settled(settle)));
        let line = format!("  {device}  {mark} {}  r{repetition}{}   {what}{temperature}{settled}{issues}", plain(label), kind.after_label());
        match &self.bar {
            Some(bar) => {
                bar.suspend(|| super::print(&format!("{line}\n")));
                bar.set_position(self.done);
                self.draw();
            }
            None => _ = super::print(&format!("{line}\n")),
        }
    }

    fn enters(&mut self, run_id: &str, phase: String) {
        if let Some(run) = self.running.get_mut(run_id) {
            run.phase = phase;
            self.draw();
        }
    }

    fn draw(&self) {
        let Some(bar) = &self.bar else { return };
        let left = self.to_run.saturating_sub(self.done);
        // As many at once as there are now.
        let beside = u32::try_from(self.running.len().max(1)).unwrap_or(u32::MAX);
        let eta = match u32::try_from(self.done) {
            Ok(done @ 1..) => format!("ETA {}   ", duration(self.spent / done * u32::try_from(left).unwrap_or(u32::MAX) / beside)),
            _ => String::new(),
        };
        let running: Vec<String> = self.running.values().map(|run| format!("{} {}", run.what, run.phase)).collect();
        bar.set_message(format!("{eta}{}", running.join("   ")));
        bar.tick();
    }

    /// Say something beside the data.
    fn talk(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| say!("{line}")),
            None => say!("{line}"),
        }
    }

    fn summary(&self, summary: &Summary) {
        let Summary {
            jobs,
            ok,
            degraded,
            contaminated,
            repeated,
            failed,
            skipped,
            pending,
            left_running,
            ran,
            collected,
            failures,
            devices_refused,
            interrupted_by,
            ..
        } = summary;
        if *ran == 0 && *collected == 0 && ok == jobs {
            say!("nothing to do: {} with a valid record", count(*jobs, "job"));
        }
        let contaminated = if *contaminated > 0 { format!(", {contaminated} contaminated") } else { String::new() };
        let degraded = if *degraded > 0 { format!(" ({degraded} degraded{contaminated})") } else { String::new() };
        let repeated = if *repeated > 0 { format!(" · {repeated} repeated") } else { String::new() };
        let running = if *left_running > 0 { format!(" · {left_running} left on its device") } else { String::new() };
        let skipped = if *skipped > 0 { format!(" · {skipped} skipped") } else { String::new() };
        say!(
            "{}: {ok} ok{degraded} · {failed} failed{skipped} · {pending} pending{running}{repeated}   {}",
            count(*jobs, "job"),
            plain(&self.results.display().to_string())
        );
        for failure in failures {
            say!("  failed   {}", plain(failure));
        }
        for refused in devices_refused {
            say!("  not run  {}", plain(refused));
        }
        let report = format!("{} report {}", program(), shell_word(&self.results));
        if interrupted_by.is_some() && *pending > 0 {
            say!("next: {}   # goes on from here", plain(&self.again));
        } else if *failed > 0 {
            say!("next: {report}   # says what to do about what failed");
        } else if *ok > 0 {
            say!("next: {report}");
        }
    }
}

/// A copy among what is going on, where runs have their ids.
fn push(device: &str) -> String {
    format!("push {device}")
}

/// `settled 41 s`, `steady 60 s`, `not settled in 180 s`.
fn settled(settle: &Settled) -> String {
    let after = duration(Duration::from_secs_f64(settle.after_s));
    match settle.verdict.as_str() {
        "settled" => format!("settled {after}"),
        "settled_steady" => format!("steady {after}"),
        _ => format!("not settled in {after}"),
    }
}
