//! Public copies: takes a results directory, gives one that can be given away: complete, whole, and without the names of the people and
//! machines it came from. Must not know what numbers mean.
//!
//! What is replaced is declared in each record, and the copy is searched once more before it appears under its name.

mod check;
mod files;
mod gather;
mod record;
mod secrets;
mod variables;
mod walk;

use crate::clock;
use crate::store::durable::{self, Existing};
use crate::store::index::{self, SUPERSEDED};
use crate::store::record::{ExportNote, Record};
use crate::store::results::{self, ID_FILE, Results, ResultsId};
use crate::store::{Broken, StoreError, seal, sidecar};
use gather::Gathered;
use secrets::Secrets;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Why there is no copy.
#[derive(Debug, Error)]
pub enum ExportError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("{} is there and not an empty directory", path.display())]
    Occupied { path: PathBuf },
    #[error("{} lies in the directory that is to be copied", path.display())]
    Inside { path: PathBuf },
    #[error("{} damaged file{} can't be searched: {}", broken.len(), if broken.len() == 1 { "" } else { "s" }, list(broken))]
    Damaged { broken: Vec<Broken>, dir: PathBuf },
    #[error("two points can't be told apart any more once what is private is replaced: {one} and {other}")]
    Merged { one: String, other: String },
    #[error("{file} would not be what it is without a replaced word: {reason}")]
    Shape { file: String, reason: String },
    /// The last search found something: nothing is left of the copy.
    #[error("the copy still has a {what} in {file}, {field}")]
    Found { what: &'static str, file: String, field: String },
    #[error("the export was interrupted; there is no copy")]
    Stopped,
}

fn list(broken: &[Broken]) -> String {
    broken.iter().map(|b| format!("{} ({})", b.path, b.why)).collect::<Vec<_>>().join("; ")
}

impl ExportError {
    /// An action for the user.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            ExportError::Store(StoreError::Io { source, .. }) => match source.kind() {
                ErrorKind::StorageFull => Some("free space there, or name another place with `--public OUT`".into()),
                ErrorKind::ReadOnlyFilesystem => Some("copy the directory to where it can be written: its lock is a file in it".into()),
                ErrorKind::PermissionDenied => Some("make it readable and writable for this user; the lock is a file in the directory, too".into()),
                ErrorKind::NotADirectory | ErrorKind::AlreadyExists => Some("name a directory that isn't there yet with `--public OUT`".into()),
                _ => None,
            },
            ExportError::Store(e) => e.hint(),
            ExportError::Stopped => None,
            ExportError::Inside { .. } => Some("name a directory outside of it".into()),
            ExportError::Occupied { .. } => Some("name a directory that isn't there yet".into()),
            ExportError::Damaged { dir, .. } => {
                Some(format!("`isotherm run` measures its jobs again; or remove the file and see `isotherm verify {}`", dir.display()))
            }
            ExportError::Merged { .. } => {
                Some("they differ in nothing but the value of a variable or a directory: export them from campaigns of their own".into())
            }
            ExportError::Shape { .. } => Some("a host or user has the name of a part of the record: rename it in the campaign".into()),
            ExportError::Found { .. } => Some("look there, and add `--redact TEXT` with the whole word that it is a part of".into()),
        }
    }
}

/// What was made.
#[derive(Debug, Default, Serialize)]
pub struct PublicCopy {
    pub records: usize,
    pub sidecars: usize,
    /// What was replaced → in how many fields of records.
    pub replaced: BTreeMap<String, usize>,
    /// Files of the directory that are not in the copy, and why.
    pub left_out: Vec<(String, String)>,
    /// What a person should know before giving it away.
    pub warnings: Vec<String>,
}

/// Make a public copy of `dir` as `out`; `redact`: texts to take out besides what is found by itself.
///
/// # Errors
/// [`ExportError`]; then there is no `out`. `stopped` is asked between files.
pub fn export(dir: &Path, out: &Path, redact: &[String], controller: &str, stopped: &dyn Fn() -> bool) -> Result<PublicCopy, ExportError> {
    let results = Results::existing(dir, &format!("it is being exported by {controller}"))?;
    if fs::symlink_metadata(out).is_ok() && !fs::read_dir(out).is_ok_and(|mut entries| entries.next().is_none()) {
        return Err(ExportError::Occupied { path: out.to_owned() });
    }
    let above = out.ancestors().skip(1).find_map(|above| fs::canonicalize(if above.as_os_str().is_empty() { Path::new(".") } else { above }).ok());
    if above.zip(fs::canonicalize(dir).ok()).is_some_and(|(above, dir)| above.starts_with(dir)) {
        return Err(ExportError::Inside { path: out.to_owned() });
    }
    let gathered = Gathered::of(&results)?;
    if !gathered.broken.is_empty() {
        return Err(ExportError::Damaged { broken: gathered.broken, dir: dir.to_owned() });
    }
    let secrets = Secrets::of(&gathered, redact);
    let name = out.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let parent = out.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    durable::create_dir(parent)?;
    remove_abandoned(parent, &name);
    let temporary = parent.join(format!(".{name}.{}.tmp", std::process::id()));
    let made = fill(&temporary, dir, &results.id, &gathered, &secrets, stopped).and_then(|copy| {
        check::search(&temporary, &secrets, stopped)?;
        durable::rename(&temporary, out, Existing::Replace).map_err(|source| StoreError::Io { what: "write", path: out.to_owned(), source })?;
        durable::sync_dir(parent)?;
        Ok(copy)
    });
    if made.is_err() {
        let _ = fs::remove_dir_all(&temporary);
    }
    made
}

/// What an export that was killed has left: nobody has searched it.
fn remove_abandoned(parent: &Path, name: &str) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let file = entry.file_name().to_string_lossy().into_owned();
        let pid = file.strip_prefix(&format!(".{name}.")).and_then(|rest| rest.strip_suffix(".tmp")).and_then(|pid| pid.parse().ok());
        let Some(pid) = pid.and_then(rustix::process::Pid::from_raw) else { continue };
        if rustix::process::test_kill_process(pid) == Err(rustix::io::Errno::SRCH) && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Everything of the copy, in a directory that has another name yet.
fn fill(
    to: &Path,
    dir: &Path,
    id: &ResultsId,
    gathered: &Gathered,
    secrets: &Secrets,
    stopped: &dyn Fn() -> bool,
) -> Result<PublicCopy, ExportError> {
    durable::create_dir(to)?;
    let note = ExportNote { at: clock::utc_seconds(), isotherm: env!("CARGO_PKG_VERSION").into() };
    let mut copy = PublicCopy { left_out: gathered.left_out.clone(), warnings: secrets.warnings.clone(), ..PublicCopy::default() };
    let results_id = uuid::Uuid::new_v4().to_string();
    let mut text_of = |name: &str, text: &str| match files::campaign(text, secrets) {
        Ok(text) => Some(text),
        Err(why) => {
            copy.left_out.push((name.to_owned(), why));
            None
        }
    };
    let campaign_text = gathered.campaign.as_deref().and_then(|text| text_of("campaign.yaml", text));
    let used: Vec<(&String, String)> = gathered.used.iter().filter_map(|(name, text)| Some((name, text_of(name, text)?))).collect();
    let names = record::Names::of(gathered, secrets, &results_id, &campaign_text)?;

    for (path, old) in &gathered.records {
        if stopped() {
            return Err(ExportError::Stopped);
        }
        let from = dir.join(path);
        let from = from.parent().unwrap_or(dir);
        let to_path = to.join(names.place(path, secrets));
        let to_dir = to_path.parent().unwrap_or(to).to_owned();
        durable::create_dir_below(to, &to_dir)?;
        let mut made = record::public(old, from, secrets, &names, &note).map_err(|reason| ExportError::Shape { file: path.clone(), reason })?;
        for (name, bytes) in made.sidecars.drain(..) {
            copy.sidecars += 1;
            durable::write(&to_dir.join(name), &bytes, Existing::Replace)?;
        }
        durable::write(&to_path, &seal::seal(&made.record), Existing::Keep)?;
        copy.records += 1;
        for replaced in made.record.exported.iter().flat_map(|exported| &exported.replaced) {
            *copy.replaced.entry(replaced.what.clone()).or_default() += 1;
        }
    }

    let put = |name: &str, bytes: &[u8]| durable::write(&to.join(name), bytes, Existing::Replace);
    if let Some(text) = &campaign_text {
        put("campaign.yaml", text.as_bytes())?;
    }
    for (name, text) in used {
        put(name, text.as_bytes())?;
    }
    let shape = |file: &str| {
        let file = file.to_owned();
        move |reason: String| ExportError::Shape { file, reason }
    };
    if let Some(plan) = &gathered.plan {
        put("plan.json", &files::plan(plan, secrets, &names).map_err(shape("plan.json"))?)?;
    }
    for (device, report) in &gathered.reports {
        durable::create_dir_below(to, &to.join(index::DEVICES))?;
        let name = format!("{}/{}.json", index::DEVICES, secrets.text(device));
        put(&name, &files::report(report, secrets).map_err(shape(&name))?)?;
    }
    if !gathered.journal.is_empty() {
        put("journal.ndjson", &files::journal(&gathered.journal, secrets, &names))?;
    }
    // The key of the pseudonyms is forgotten with this process; whoever has the copy can't try names with it.
    let salt = format!("{}{}", uuid::Uuid::new_v4().simple(), uuid::Uuid::new_v4().simple());
    let campaign = secrets.text(&id.campaign);
    let id = ResultsId { id_version: id.id_version, results_id, salt, campaign, campaign_file: "campaign.yaml".into(), exported: Some(note) };
    results::write_id(&to.join(ID_FILE), &id, Existing::Keep)?;
    Ok(copy)
}

/// Is a path one of a superseded record?
fn is_superseded(path: &str) -> bool {
    path.split('/').next() == Some(SUPERSEDED)
}

/// A record for others, with all sidecars that it names.
struct Made {
    record: Record,
    sidecars: Vec<(String, Vec<u8>)>,
}

/// Content of all sidecars of a record, as stored.
fn sidecars(record: &Record, dir: &Path) -> Result<BTreeMap<String, Vec<u8>>, String> {
    sidecar::of(record).into_iter().map(|file| Ok((file.name.clone(), sidecar::read(dir, file)?))).collect()
}
