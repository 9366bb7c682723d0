//! The `command` backend: any program, its numbers read from what it printed or wrote by the campaign's rules.

use super::output::{NOT_WRITTEN, Stream};
use super::{RawOutput, Reading, check_digest, last_words, measured, metric_of, omitted};
use crate::config::model::{MetricRule, Pick, Settings, Success, Take, TextSource};
use crate::digest::sha256_hex;
use crate::plan::identity::canonical;
use crate::plan::point::CommandWork;
use crate::registry::MetricId;
use crate::store::record::{Metric, Reason};
use indexmap::IndexMap;
use isotherm_wire::task::{ProcessTask, Task};
use regex::Regex;
use serde_json::{Value, json};

pub(super) fn task(work: &CommandWork, argv: Vec<String>, settings: &Settings) -> Task {
    Task::Process(ProcessTask { argv, warmup: settings.warmup, collect: work.collected(), stamp_lines: false })
}

pub(super) fn read(metrics: &IndexMap<String, MetricRule>, success: &Success, raw: &RawOutput, exit_code: i32) -> Reading {
    let mut reading = Reading::default();
    if !success.exit.contains(&exit_code) {
        let words = last_words(raw).map_or_else(String::new, |words| format!(": {words}"));
        reading.failure = Some((Reason::ExitCode, format!("exit code {exit_code}{words}")));
    }
    for (name, rule) in metrics {
        let definition = definition(name, rule);
        let metric = match values(&rule.from, &rule.pick, raw) {
            Ok(samples) => {
                let metric = metric_of(&samples, &rule.unit, rule.better, &definition);
                Metric { samples: if samples.len() > 1 { samples } else { Vec::new() }, ..metric }
            }
            Err(why) => {
                // A run that failed anyway keeps its own reason.
                reading.failure.get_or_insert_with(|| (Reason::Parse, format!("metric `{name}`: {why}")));
                omitted(&rule.unit, rule.better, &definition, why)
            }
        };
        reading.metrics.insert(name.clone(), metric);
    }
    if let Some(rule) = &success.output_digest {
        match picked(&rule.from, &rule.pick, raw) {
            Ok(values) => check_digest(&mut reading, sha256_hex(Value::Array(values).to_string().as_bytes()), "picked_json_v1", None),
            Err(why) => _ = reading.failure.get_or_insert_with(|| (Reason::Parse, format!("output digest: {why}"))),
        }
    }
    if let Some(wall_s) = raw.wall_s {
        let (name, wall) = measured(MetricId::Wall, &[wall_s]);
        reading.metrics.entry(name).or_insert(wall);
    }
    if let Some(usage) = &raw.usage {
        let (name, rss) = measured(MetricId::MaxRss, &[usage.max_rss_bytes as f64]);
        reading.metrics.entry(name).or_insert(rss);
    }
    if let Some(peak) = raw.peak_rss {
        let (name, rss) = measured(MetricId::PeakRss, &[peak.bytes as f64]);
        reading.metrics.entry(name).or_insert(rss);
    }
    reading.executed.insert("warmup".into(), raw.n_warmups.into());
    reading
}

/// Definition id of a campaign's metric: `command.NAME.` and 8 hex digits of the sha256 over the canonical JSON of `from` and `pick`, so
/// that no table holds numbers of two rules. Unit and direction stand beside it in the record, and tables part by them anyway.
#[must_use]
pub fn definition(name: &str, rule: &MetricRule) -> String {
    let how = canonical(&json!({"from": rule.from, "pick": rule.pick}));
    format!("command.{name}.{}", &sha256_hex(how.as_bytes())[..8])
}

/// Finite numbers picked by a rule; at least one.
fn values(from: &TextSource, pick: &Pick, raw: &RawOutput) -> Result<Vec<f64>, String> {
    let numbers: Vec<f64> = picked(from, pick, raw)?
        .iter()
        .map(|value| match value {
            Value::Number(number) => number.as_f64().ok_or_else(|| format!("{number} is out of range")),
            Value::String(text) => text.trim().parse().map_err(|_| format!("{text:?} is not a number")),
            other => Err(format!("{other} is not a number")),
        })
        .collect::<Result<_, _>>()?;
    match numbers.iter().find(|n| !n.is_finite()) {
        Some(number) => Err(format!("{number} is not a finite number")),
        None if numbers.is_empty() => Err("an empty list".into()),
        None => Ok(numbers),
    }
}

/// What a rule picks: one value, or all of an array or of several matches.
fn picked(from: &TextSource, pick: &Pick, raw: &RawOutput) -> Result<Vec<Value>, String> {
    let text = text(from, raw)?;
    match pick {
        Pick::Json(pointer) => {
            let whole: Value = serde_json::from_str(&text).map_err(|e| format!("{} is not JSON: {e}", told(from)))?;
            match whole.pointer(pointer) {
                Some(Value::Array(list)) => Ok(list.clone()),
                Some(value) => Ok(vec![value.clone()]),
                None => Err(format!("nothing at {pointer} in {}", told(from))),
            }
        }
        Pick::Regex { pattern, take } => {
            let regex = Regex::new(pattern).map_err(|e| e.to_string())?;
            let matches = || regex.captures_iter(&text).filter_map(|c| Some(Value::String(c.get(1)?.as_str().to_owned())));
            let found: Vec<Value> = match take {
                Take::First => matches().next().into_iter().collect(),
                Take::Last => matches().last().into_iter().collect(),
                Take::All => matches().collect(),
            };
            if found.is_empty() { Err(format!("no match of `{pattern}` in {}", told(from))) } else { Ok(found) }
        }
    }
}

pub(super) fn told(from: &TextSource) -> String {
    match from {
        TextSource::Stdout => "stdout".into(),
        TextSource::StdoutLastLine => "the last line of stdout".into(),
        TextSource::Stderr => "stderr".into(),
        TextSource::File(name) => name.clone(),
    }
}

fn text(from: &TextSource, raw: &RawOutput) -> Result<String, String> {
    let stream = match from {
        TextSource::Stdout | TextSource::StdoutLastLine => &raw.stdout,
        TextSource::Stderr => &raw.stderr,
        TextSource::File(name) => match raw.files.get(name) {
            Some(Ok(stream)) => stream,
            Some(Err(why)) if why == NOT_WRITTEN => return Err(format!("{name} was {NOT_WRITTEN}")),
            Some(Err(why)) => return Err(format!("{name}: {why}")),
            None => return Err(format!("{name} was not collected")),
        },
    };
    let Stream { bytes, kept, cut_at, line_ns: _ } = stream;
    let cut = || format!("{} has {bytes} bytes, of which only the ends were kept", told(from));
    if *from == TextSource::StdoutLastLine {
        let text = String::from_utf8_lossy(&kept[cut_at.unwrap_or(0)..]).into_owned();
        // The first line behind a gap has lost its beginning.
        let line = text.lines().skip(usize::from(cut_at.is_some())).filter(|line| !line.trim().is_empty()).last();
        return line.map(str::to_owned).ok_or_else(|| if cut_at.is_some() { cut() } else { "stdout is empty".into() });
    }
    // The middle is gone: what a rule finds in the rest may be another thing than it would find in all of it.
    if cut_at.is_some() {
        return Err(cut());
    }
    Ok(String::from_utf8_lossy(kept).into_owned())
}
