//! One results directory: who it belongs to, who writes in it now.

use super::durable::{self, Existing};
use super::record::{ExportNote, Record};
use super::write::{self, Valid, Written};
use super::{StoreError, formats, io_error, lock};
use crate::clock;
use crate::config::model::Campaign;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

pub const ID_FILE: &str = ".isotherm-id";
const LOCK_FILE: &str = ".lock";
/// In place of a campaign file that nobody has named; no file has this name.
const NO_FILE: &str = "(collected)";

/// What a results directory is, for good.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResultsId {
    pub id_version: u32,
    /// UUID: devices know this directory's controllers by it.
    pub results_id: String,
    /// Hex; host names and serials in records are HMACs with it.
    pub salt: String,
    pub campaign: String,
    /// The campaign file, relative to this directory where that is possible.
    pub campaign_file: String,
    /// A public copy; nothing can be run into it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exported: Option<ExportNote>,
}

impl ResultsId {
    /// Of a directory that has none yet, with a salt of its own.
    fn new(results_id: String, campaign: &str, campaign_file: String) -> ResultsId {
        let salt = format!("{}{}", uuid::Uuid::new_v4().simple(), uuid::Uuid::new_v4().simple());
        ResultsId { id_version: formats::ID.version(), results_id, salt, campaign: campaign.to_owned(), campaign_file, exported: None }
    }
}

/// A results directory that this process alone writes to. The lock dies with the process.
#[derive(Debug)]
pub struct Results {
    pub dir: PathBuf,
    pub id: ResultsId,
    /// What `.lock` said when it was taken: who was here last.
    pub before: String,
    lock: File,
}

impl Results {
    /// Make or open `<parent>/<campaign>` and lock it.
    ///
    /// # Errors
    /// `Locked` with the holder, `OtherCampaign` if it belongs to another campaign file.
    pub fn open(parent: &Path, campaign: &Campaign, controller: &str) -> Result<Results, StoreError> {
        let dir = parent.join(&campaign.name);
        durable::create_dir(&dir)?;
        let (lock, before) = take(&dir, &format!("campaign `{}` is run by {controller}", campaign.name))?;
        let id_path = dir.join(ID_FILE);
        let file = relative_to(&campaign.file, &dir);
        let id = match read_id(&dir) {
            Ok(ResultsId { exported: Some(_), .. }) => return Err(StoreError::PublicCopy { path: dir }),
            Ok(mut id) => {
                if id.campaign_file != file {
                    // A file that is gone was renamed or moved; one that is there has the older claim.
                    if dir.join(&id.campaign_file).exists() {
                        return Err(StoreError::OtherCampaign { path: dir, owner: id.campaign_file, claimant: file });
                    }
                    id.campaign_file = file;
                    write_id(&id_path, &id, Existing::Replace)?;
                }
                id
            }
            Err(StoreError::NotResults { .. }) => {
                let id = ResultsId::new(uuid::Uuid::new_v4().to_string(), &campaign.name, file);
                write_id(&id_path, &id, Existing::Keep)?;
                id
            }
            Err(e) => return Err(e),
        };
        Ok(Results { dir, id, before, lock })
    }

    /// Make or open, and lock, a directory for records of another results directory: `<parent>/<campaign>`, or with the beginning of
    /// `results_id` behind it where that name belongs to others. The campaign's file may claim it later.
    ///
    /// # Errors
    /// `Locked` with the holder, or [`StoreError::Io`].
    pub fn of_strangers(parent: &Path, campaign: &str, results_id: &str, doing: &str) -> Result<Results, StoreError> {
        let digits: String = results_id.chars().filter(char::is_ascii_hexdigit).take(8).collect();
        let is_others = |dir: &Path| dir.exists() && !read_id(dir).is_ok_and(|id| id.results_id == results_id && id.exported.is_none());
        let mut dir = parent.join(campaign);
        if is_others(&dir) {
            dir = parent.join(format!("{campaign}-{digits}"));
        }
        durable::create_dir(&dir)?;
        let (lock, before) = take(&dir, &format!("results of campaign `{campaign}` are collected by {doing}"))?;
        let id = match read_id(&dir) {
            Ok(id) => id,
            Err(StoreError::NotResults { .. }) => {
                let id = ResultsId::new(results_id.to_owned(), campaign, NO_FILE.to_owned());
                write_id(&dir.join(ID_FILE), &id, Existing::Keep)?;
                id
            }
            Err(e) => return Err(e),
        };
        Ok(Results { dir, id, before, lock })
    }

    /// Lock a results directory that is there. `doing`: what for, for whoever finds it locked.
    ///
    /// # Errors
    /// `NotResults`, or `Locked` with the holder.
    pub fn existing(dir: &Path, doing: &str) -> Result<Results, StoreError> {
        let id = read_id(dir)?;
        // A public copy names nobody, whoever tries it before it is given away.
        let doing = if id.exported.is_some() { "another isotherm uses it" } else { doing };
        let (lock, before) = take(dir, doing)?;
        Ok(Results { dir: dir.to_owned(), id, before, lock })
    }

    /// [`write::write`] into this directory.
    ///
    /// # Errors
    /// Those of it, and of [`Results::still_there`].
    pub fn write(&self, record: &mut Record, valid: Valid) -> Result<Written, StoreError> {
        self.still_there()?;
        write::write(&self.dir, record, valid)
    }

    /// Is the directory still the one that was locked? What is written into another in its place is nobody's.
    ///
    /// # Errors
    /// `Gone` if it was deleted, moved or replaced, or if its lock was.
    pub fn still_there(&self) -> Result<(), StoreError> {
        let locked = self.lock.metadata().map_err(io_error("look at", &self.dir))?;
        match fs::metadata(self.dir.join(LOCK_FILE)) {
            Ok(now) if (now.dev(), now.ino()) == (locked.dev(), locked.ino()) => Ok(()),
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(io_error("look at", &self.dir)(e)),
            _ => Err(StoreError::Gone { path: self.dir.clone() }),
        }
    }
}

/// Who a results directory belongs to; read without the lock.
///
/// # Errors
/// `NotResults` where there is no id file.
pub fn read_id(dir: &Path) -> Result<ResultsId, StoreError> {
    let path = dir.join(ID_FILE);
    match formats::read(formats::ID, &path) {
        Err(StoreError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotADirectory => {
            Err(StoreError::NotResults { path: dir.to_owned() })
        }
        id => id?.ok_or_else(|| StoreError::NotResults { path: dir.to_owned() }),
    }
}

/// Directories listed in a hint.
const MOST_NEARBY: usize = 5;

/// Does a process write to a results directory now? Looked up, and nothing is locked for it; `None` = it can't be told here.
#[must_use]
pub fn is_in_use(dir: &Path) -> Option<bool> {
    let inode = fs::metadata(dir.join(LOCK_FILE)).ok()?.ino();
    let locks = fs::read_to_string("/proc/locks").ok()?;
    // `1: FLOCK  ADVISORY  WRITE 1234 fe:00:56789 0 EOF`
    let is_it = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words.get(1) == Some(&"FLOCK") && words.get(5).and_then(|file| file.rsplit(':').next()?.parse().ok()) == Some(inode)
    };
    Some(locks.lines().any(is_it))
}

/// Which results directory may have been meant by a path that is none.
#[must_use]
pub fn nearby(path: &Path) -> String {
    if path.is_file() && path.extension().is_some_and(|e| e == "yaml" || e == "yml") {
        return "that is a campaign file; its results lie in a directory of the campaign's name, such as results/smoke".into();
    }
    let is_results = |dir: &PathBuf| dir.join(ID_FILE).is_file();
    let below = |dir: PathBuf| fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()).filter(is_results);
    let shown = |dir: PathBuf| dir.strip_prefix(".").unwrap_or(&dir).display().to_string();
    let mut found: Vec<String> = below(path.to_owned()).chain(below(path.join("results"))).map(shown).collect();
    if found.is_empty() {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        found.extend(below(parent.to_owned()).map(shown));
    }
    found.sort();
    found.truncate(MOST_NEARBY);
    if found.is_empty() { "name the directory of one campaign, such as results/smoke".into() } else { format!("there is {}", found.join(", ")) }
}

/// Write the id file.
///
/// # Errors
/// [`StoreError::Io`].
pub fn write_id(path: &Path, id: &ResultsId, existing: Existing) -> Result<(), StoreError> {
    let mut bytes = serde_json::to_vec_pretty(id).map_err(|e| StoreError::Damaged { path: path.to_owned(), reason: e.to_string() })?;
    bytes.push(b'\n');
    durable::write(path, &bytes, existing)
}

fn take(dir: &Path, doing: &str) -> Result<(File, String), StoreError> {
    let path = dir.join(LOCK_FILE);
    let file = lock::take(&path).map_err(io_error("lock", &path))?.map_err(|holder| {
        let holder = if holder.is_empty() { "by a controller that has just started".to_owned() } else { holder };
        StoreError::Locked { path: dir.to_owned(), holder }
    })?;
    formats::none_is_newer(dir)?;
    let before = lock::text(&file).map_err(io_error("read", &path))?;
    lock::say(&file, &format!("{doing} since {}", clock::utc_seconds())).map_err(io_error("write", &path))?;
    Ok((file, before))
}

/// `to` as seen from the directory `from`, if both can be resolved; else absolute.
fn relative_to(to: &Path, from: &Path) -> String {
    let (Ok(to), Ok(from)) = (fs::canonicalize(to), fs::canonicalize(from)) else { return to.display().to_string() };
    let shared = to.components().zip(from.components()).take_while(|(a, b)| a == b).count();
    let up = std::iter::repeat_n("..", from.components().count() - shared);
    let path: PathBuf = up.map(PathBuf::from).chain(to.components().skip(shared).map(|c| PathBuf::from(c.as_os_str()))).collect();
    path.display().to_string()
}
