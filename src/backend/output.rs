//! What a run printed and wrote, as backends read it: of a result that has just come in, or of a record on disk. Both give the same.

use super::ParseSpec;
use crate::config::model::TextSource;
use crate::store::record::{RawStream, Reason, Record, Status};
use crate::store::sidecar;
use isotherm_wire::columns::ColumnName;
use isotherm_wire::result::{Captured, CollectedFile, PeakRss, RunResult, Usage};
use isotherm_wire::telemetry::Snapshot;
use std::collections::BTreeMap;
use std::path::Path;

/// Said of a file that is there and is the one from before the run; the same words in a record.
pub const NOT_WRITTEN: &str = "not written by this run";

/// What was kept of a stream.
#[derive(Debug, Clone, Default)]
pub struct Stream {
    /// Length of all of it.
    pub bytes: u64,
    /// All of it, or its beginning and its end one after the other.
    pub kept: Vec<u8>,
    /// Where in `kept` the end begins; `None` where nothing was dropped.
    pub cut_at: Option<usize>,
    /// When the end of each line arrived, CLOCK_MONOTONIC of the device, ns: of none, all, or the first ones.
    pub line_ns: Vec<u64>,
}

/// The raw output of a run.
#[derive(Debug, Clone, Default)]
pub struct RawOutput {
    /// Command line, as it was executed.
    pub argv: Vec<String>,
    pub stdout: Stream,
    pub stderr: Stream,
    /// Files that were collected, by the name the campaign gives them; or why there is no content.
    pub files: BTreeMap<String, Result<Stream, String>>,
    pub n_warmups: usize,
    /// Spawn and exit of the measured invocation, CLOCK_MONOTONIC of the device, ns.
    pub window: Option<(u64, u64)>,
    /// Between the two, s.
    pub wall_s: Option<f64>,
    pub usage: Option<Usage>,
    /// Largest resident set of the run's processes together.
    pub peak_rss: Option<PeakRss>,
    /// The machine's count of processes that the kernel ended for want of memory has grown during the run.
    pub oom_kills: bool,
}

/// Has the count grown between two readings?
fn oom_kills(before: Option<&Snapshot>, after: Option<&Snapshot>) -> bool {
    let count = |snapshot: Option<&Snapshot>| snapshot?.value(ColumnName::OomKills.entry().name);
    matches!((count(before), count(after)), (Some(before), Some(after)) if after > before)
}

impl RawOutput {
    #[must_use]
    pub fn of_result(result: &RunResult) -> RawOutput {
        let file = |file: &CollectedFile| match file {
            CollectedFile::Written(captured) => Ok(Stream::of_captured(captured)),
            CollectedFile::NotWritten => Err(NOT_WRITTEN.to_owned()),
            CollectedFile::Missing(why) => Err(why.clone()),
        };
        let window = result.times.spawn_ns.zip(result.times.exit_ns);
        RawOutput {
            argv: result.executed.argv.clone(),
            stdout: Stream::of_captured(&result.stdout),
            stderr: Stream::of_captured(&result.stderr),
            files: result.files.iter().map(|(name, content)| (name.clone(), file(content))).collect(),
            n_warmups: result.warmup.len(),
            window,
            wall_s: window.map(|(spawn, exit)| exit.saturating_sub(spawn) as f64 / 1e9),
            usage: result.usage.clone(),
            peak_rss: result.peak_rss,
            oom_kills: oom_kills(Some(&result.before), Some(&result.after)),
        }
    }

    /// The output that a record keeps; `dir` is the record's directory, for its sidecars.
    ///
    /// # Errors
    /// In words: a sidecar that is missing or another than the record names.
    pub fn of_record(record: &Record, dir: &Path) -> Result<RawOutput, String> {
        let mut files = BTreeMap::new();
        for (name, stream) in &record.raw.files {
            let content = match &stream.absent {
                Some(why) => Err(why.clone()),
                None => Ok(Stream::of_record(stream, dir)?),
            };
            files.insert(name.clone(), content);
        }
        let time = &record.time;
        let window = time.spawn_monotonic_ns.zip(time.exit_monotonic_ns);
        // Older records have the difference alone; as whole nanoseconds it is what it was.
        let measured = || time.measure_ms.map(|ms| (ms * 1e6).round() / 1e9);
        Ok(RawOutput {
            argv: record.backend.executed.as_ref().map_or_else(Vec::new, |executed| executed.argv.clone()),
            stdout: Stream::of_record(&record.raw.stdout, dir)?,
            stderr: Stream::of_record(&record.raw.stderr, dir)?,
            files,
            n_warmups: record.raw.warmup.len(),
            window,
            wall_s: window.map(|(spawn, exit)| exit.saturating_sub(spawn) as f64 / 1e9).or_else(measured),
            usage: record.context.usage.clone(),
            peak_rss: record.context.peak_rss,
            oom_kills: oom_kills(record.context.before.as_ref(), record.context.after.as_ref()),
        })
    }
}

impl Stream {
    fn of_captured(captured: &Captured) -> Stream {
        let head = sidecar::decode(&captured.head).unwrap_or_default();
        let cut_at = captured.tail.as_ref().map(|_| head.len());
        let tail = captured.tail.as_ref().and_then(|tail| sidecar::decode(tail).ok()).unwrap_or_default();
        Stream { bytes: captured.bytes, kept: [head, tail].concat(), cut_at, line_ns: captured.line_ns.clone() }
    }

    fn of_record(stream: &RawStream, dir: &Path) -> Result<Stream, String> {
        let cut_at = stream.kept_head_bytes.and_then(|bytes| usize::try_from(bytes).ok());
        Ok(Stream { bytes: stream.bytes, kept: kept(stream, dir)?, cut_at, line_ns: stream.line_ns.clone() })
    }
}

/// Kept bytes of a recorded stream, wherever they are.
///
/// # Errors
/// In words: a sidecar that is missing or another than the record names, or text that can't be decoded.
pub fn kept(stream: &RawStream, dir: &Path) -> Result<Vec<u8>, String> {
    match &stream.sidecar {
        Some(file) => sidecar::unpack(dir, file),
        None => Ok(stream.head.iter().chain(&stream.tail).map(sidecar::decode).collect::<Result<Vec<_>, _>>()?.concat()),
    }
}

/// Was the record's output read by rules at all? Not if the workload was ended, or never ran.
#[must_use]
pub fn was_read(status: Status, reason: Option<Reason>, rules_known: bool) -> bool {
    // A record without its rules tells it by what only reading can conclude.
    rules_known || status == Status::Ok || matches!(reason, Some(Reason::ExitCode | Reason::Parse | Reason::ModelMissing))
}

/// Why these rules can't be answered from what a record keeps as they would have been right after the run; `None` = they can.
#[must_use]
pub fn unanswered(rules: &ParseSpec, record: &Record, dir: &Path) -> Option<String> {
    if let Some(why) = sidecar::of(record).into_iter().find_map(|file| sidecar::read(dir, file).err()) {
        return Some(why);
    }
    rules.sources().into_iter().find_map(|from| {
        let stream = match from {
            TextSource::Stdout | TextSource::StdoutLastLine => &record.raw.stdout,
            TextSource::Stderr => &record.raw.stderr,
            TextSource::File(name) => match record.raw.files.get(name) {
                Some(stream) => stream,
                None => return Some(format!("{name} was not collected")),
            },
        };
        let whole = stream.kept_head_bytes.is_none() || *from == TextSource::StdoutLastLine;
        (!whole).then(|| format!("{} has {} bytes, of which only the ends were kept", super::command::told(from), stream.bytes))
    })
}
