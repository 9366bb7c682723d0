//! Models that a device is to have: takes the jobs that need them, gives the places where they lie there, by content.
//!
//! What is there is not copied again, and a copy that was cut goes on where it ended. On a machine that is being measured nothing of this
//! is done. It must not know how a device keeps them.

use super::device_night::DeviceNight;
use super::event::Event;
use super::{RunError, Stop};
use crate::config::model::Campaign;
use crate::device::DeviceError;
use crate::digest::{hex, sha256_hex};
use crate::plan::files::{self, Answers, Part, PointFile};
use crate::plan::{PlannedJob, Point};
use indexmap::IndexMap;
use isotherm_wire::codec::MAX_CHUNK_BYTES;
use isotherm_wire::inspect::{FileAnswer, FileFact, FileQuery};
use isotherm_wire::models::{Have, Wanted};
use isotherm_wire::readiness::FileLook;
use isotherm_wire::session::Failure;
use rustix::fs::OFlags;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What is left free on a device's disk, bytes: results of a night's first runs, which have 8 MiB each set aside, and their scratch.
pub const RESERVE_BYTES: u64 = 64 << 20;
/// A copy is told of this often.
const TELL_EVERY: Duration = Duration::from_secs(1);
/// A device that takes nothing of what it is sent is sent it so often.
const MOST_REFUSED: u32 = 3;

/// Files here by content, each read once in a night, however many devices get it.
#[derive(Default)]
pub(super) struct Contents(Mutex<BTreeMap<PathBuf, FileAnswer>>);

/// A model, and the answers about a device's files that hang on where it lies.
struct Push {
    model: String,
    /// As it lies here.
    here: FileFact,
    wanted: Wanted,
    keys: BTreeSet<String>,
}

impl DeviceNight<'_, '_> {
    /// What the models contain that this device gets copies of; for now they lie here.
    pub(super) fn contents(&self, points: &[Point]) -> Result<Answers, Stop> {
        let mut answers = Answers::new();
        for point in points {
            let files: Vec<PointFile> = files::of_point(point).into_iter().filter(|file| file.is_pushed).collect();
            for PointFile { query, .. } in &files {
                if !answers.contains_key(&query.key) {
                    answers.insert(query.key.clone(), self.content(&source(&self.line.night.campaign.dir, &query.path))?);
                }
            }
            // A model is all its files or none.
            let missing = |file: &PointFile| match answers.get(&file.query.key) {
                Some(FileAnswer::Missing(why)) if matches!(file.part, Part::OfModel(_)) => Some(format!("{}: {why}", file.query.path)),
                _ => None,
            };
            if let Some(why) = files.iter().find_map(missing) {
                let of_first = files.into_iter().filter(|file| !matches!(file.part, Part::OfModel(_)));
                answers.extend(of_first.map(|file| (file.query.key, FileAnswer::Missing(why.clone()))));
            }
        }
        Ok(answers)
    }

    fn content(&self, path: &Path) -> Result<FileAnswer, Stop> {
        // Whoever needs the same file waits, instead of reading it as well.
        let mut known = self.line.night.contents.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(answer) = known.get(path) {
            return Ok(answer.clone());
        }
        let answer = match open(path) {
            Ok((file, fact)) => self.hashed(&file, fact)?,
            Err(e) => FileAnswer::Missing(e.to_string()),
        };
        known.insert(path.to_owned(), answer.clone());
        Ok(answer)
    }

    fn hashed(&self, file: &File, fact: FileFact) -> Result<FileAnswer, Stop> {
        let (mut hasher, mut offset, mut chunk) = (Sha256::new(), 0, vec![0; MAX_CHUNK_BYTES]);
        loop {
            self.may_go_on()?;
            match file.read_at(&mut chunk, offset) {
                Ok(0) => break,
                Ok(n) => {
                    hasher.update(&chunk[..n]);
                    offset += n as u64;
                }
                Err(e) => return Ok(FileAnswer::Missing(e.to_string())),
            }
        }
        Ok(match file.metadata() {
            Ok(now) if is_as(&fact, &now) => FileAnswer::Found(vec![FileFact { sha256: hex(&hasher.finalize()), ..fact }]),
            Ok(_) => FileAnswer::Missing("is being written".into()),
            Err(e) => FileAnswer::Missing(e.to_string()),
        })
    }

    /// Between two pieces: not while this machine is measured, and not when a user wants to leave.
    fn may_go_on(&self) -> Result<(), Stop> {
        self.line.night.crew.work(&self.line.device.id)?;
        self.line.night.check()
    }

    /// Bring what these jobs need to the device, as far as it isn't there.
    pub(super) fn push(&mut self, todo: &[PlannedJob]) -> Result<(), Stop> {
        let (mut left, mut needed_bytes, mut least_free) = (Vec::new(), 0, u64::MAX);
        for push in self.needed(todo) {
            match self.have(&push)? {
                Have::Whole(fact) => self.lies(&push, fact),
                Have::Part { offset, free_bytes } => {
                    needed_bytes += push.here.bytes.saturating_sub(offset);
                    least_free = least_free.min(free_bytes);
                    left.push((push, offset));
                }
            }
        }
        if !left.is_empty() && needed_bytes.saturating_add(RESERVE_BYTES) > least_free {
            let device = self.line.device.id.clone();
            return Err(DeviceError::NoRoom { device, needed_bytes, reserve_bytes: RESERVE_BYTES, free_bytes: least_free }.into());
        }
        for (push, offset) in left {
            let fact = self.copy(&push, offset)?;
            self.lies(&push, fact);
        }
        Ok(())
    }

    /// How much of it is there. Of a copy that was complete and not right, nothing.
    fn have(&mut self, push: &Push) -> Result<Have, Stop> {
        match self.asking(|session| session.have(&push.wanted)) {
            Err(Stop::Device(DeviceError::Refused { failure, .. })) if matches!(*failure, Failure::ContentDiffers { .. }) => {
                self.asking(|session| session.have(&push.wanted))
            }
            other => other,
        }
    }

    /// Models of these jobs that are copied. One that can't be read here is missing there, too, and its jobs fail as they would otherwise.
    fn needed(&self, todo: &[PlannedJob]) -> Vec<Push> {
        let Some(report) = self.line.night.report(&self.line.device.id) else { return Vec::new() };
        let plan = &self.plan;
        let mut needed: IndexMap<(Option<String>, String, String), Push> = IndexMap::new();
        for point in todo.iter().map(|job| &plan.points[job.slot.point]) {
            let (Some(model), Some(Ok(_))) = (&point.model, files::model(point, &report.files)) else { continue };
            let here = |file: PointFile| match report.files.get(&file.query.key)? {
                FileAnswer::Found(facts) => Some((file.query, facts.first()?.clone())),
                _ => None,
            };
            let files: Vec<(FileQuery, FileFact)> = files::of_point(point).into_iter().filter(|file| file.is_pushed).filter_map(here).collect();
            let set = set_of(&files);
            for (query, here) in files {
                let name = name_of(&query.path);
                let push = needed.entry((set.clone(), here.sha256.clone(), name.clone())).or_insert_with(|| Push {
                    model: model.declared.id.clone(),
                    wanted: Wanted { sha256: here.sha256.clone(), bytes: here.bytes, name, set: set.clone() },
                    here,
                    keys: BTreeSet::new(),
                });
                push.keys.insert(query.key);
            }
        }
        needed.into_values().collect()
    }

    /// From now on the model is what lies there.
    fn lies(&self, push: &Push, there: FileFact) {
        let answers = push.keys.iter().map(|key| (key.clone(), FileAnswer::Found(vec![there.clone()])));
        self.line.night.learn_files(&self.line.device.id, answers);
    }

    fn copy(&mut self, push: &Push, mut offset: u64) -> Result<FileFact, Stop> {
        let (device, model, sha256) = (self.line.device.id.clone(), push.model.clone(), push.wanted.sha256.clone());
        self.line.emit(Event::PushStarted { device: device.clone(), model: model.clone(), sha256: sha256.clone(), bytes: push.here.bytes, offset });
        let mut copied_bytes = 0;
        loop {
            let went_on = offset > 0;
            copied_bytes += self.send(push, offset)?;
            match self.have(push)? {
                Have::Whole(fact) => {
                    self.line.emit(Event::Pushed { device, model, sha256, copied_bytes });
                    return Ok(fact);
                }
                // What was there of it was something else.
                Have::Part { offset: 0, .. } if went_on => offset = 0,
                Have::Part { offset, .. } => {
                    let reason = format!("of model `{model}` it has {offset} right bytes when all {} were sent", push.here.bytes);
                    return Err(DeviceError::Damaged { device, reason }.into());
                }
            }
        }
    }

    /// Send a model from an offset on; how many bytes were sent.
    fn send(&mut self, push: &Push, mut offset: u64) -> Result<u64, Stop> {
        let (device, here) = (self.line.device.id.clone(), &push.here);
        let unpushed = |why: &str| {
            Stop::Fatal(RunError::Unpushed { model: push.model.clone(), device: device.clone(), path: here.path.clone(), why: why.to_owned() })
        };
        let unreadable = |e: io::Error| unpushed(&format!("can't be read any more: {e}"));
        let changed = || unpushed("has changed since the campaign began");
        let (file, _) = open(Path::new(&here.path)).map_err(unreadable)?;
        let as_it_was = |file: &File| if is_as(here, &file.metadata().map_err(unreadable)?) { Ok(()) } else { Err(changed()) };
        as_it_was(&file)?;
        let (mut sent, mut refused, mut told, mut chunk) = (0, 0, Instant::now(), vec![0; MAX_CHUNK_BYTES]);
        while offset < here.bytes {
            self.may_go_on()?;
            let most = usize::try_from(here.bytes - offset).unwrap_or(usize::MAX).min(chunk.len());
            let n = file.read_at(&mut chunk[..most], offset).map_err(unreadable)?;
            if n == 0 {
                return Err(changed());
            }
            let end = self.asking(|session| session.put(&push.wanted.sha256, offset, &chunk[..n]))?;
            sent += n as u64;
            // A copy that ends elsewhere than was thought, as after a lost connection, goes on from there.
            refused = if end > offset { 0 } else { refused + 1 };
            if refused > MOST_REFUSED || end > here.bytes {
                let reason = format!("of model `{}` with {} bytes it has {end} after those at {offset}", push.model, here.bytes);
                return Err(DeviceError::Damaged { device, reason }.into());
            }
            offset = end;
            if told.elapsed() >= TELL_EVERY {
                told = Instant::now();
                self.line.emit(Event::Pushing { device: device.clone(), model: push.model.clone(), bytes: here.bytes, offset });
            }
        }
        as_it_was(&file)?;
        Ok(sent)
    }
}

/// Files here that the device of these points is to get copies of, by the keys of the questions that they answer; nothing is hashed.
#[must_use]
pub fn look_here(campaign: &Campaign, points: &[&Point]) -> BTreeMap<String, FileLook> {
    let pushed = points.iter().flat_map(|point| files::of_point(point)).filter(|file| file.is_pushed);
    let look = |path: &str| match open(&source(&campaign.dir, path)) {
        Ok((_, fact)) => FileLook::Found { files: 1, bytes: fact.bytes },
        Err(e) => FileLook::Missing(e.to_string()),
    };
    pushed.map(|file| (file.query.key, look(&file.query.path))).collect()
}

/// What names all files of a model in several: sha256 of their list, as `sha256sum` prints it.
fn set_of(files: &[(FileQuery, FileFact)]) -> Option<String> {
    let lines: BTreeSet<String> = files.iter().map(|(query, fact)| format!("{}  {}\n", fact.sha256, name_of(&query.path))).collect();
    (lines.len() > 1).then(|| sha256_hex(lines.into_iter().collect::<String>().as_bytes()))
}

fn name_of(path: &str) -> String {
    Path::new(path).file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

/// A path of the campaign, here.
pub(super) fn source(dir: &Path, path: &str) -> PathBuf {
    match (path.strip_prefix("~/"), std::env::var_os("HOME")) {
        (Some(rest), Some(home)) => Path::new(&home).join(rest),
        _ => dir.join(path),
    }
}

/// A regular file, and what it is but for its content. A FIFO, say, would hold us for ever.
fn open(path: &Path) -> io::Result<(File, FileFact)> {
    let path = fs::canonicalize(path)?;
    let file = File::options().read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(&path)?;
    let meta = file.metadata()?;
    if !meta.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let (bytes, mtime_ns, inode) = (meta.len(), mtime_ns(&meta), meta.ino());
    Ok((file, FileFact { path: path.display().to_string(), named: None, bytes, mtime_ns, inode, sha256: String::new(), header: None }))
}

fn is_as(fact: &FileFact, meta: &fs::Metadata) -> bool {
    (fact.bytes, fact.mtime_ns, fact.inode) == (meta.len(), mtime_ns(meta), meta.ino())
}

fn mtime_ns(meta: &fs::Metadata) -> i64 {
    meta.mtime() * 1_000_000_000 + meta.mtime_nsec()
}
