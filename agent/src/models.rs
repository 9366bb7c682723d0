//! Models that controllers have copied here, by content: `<root>/models/<sha256>/<name>`, and `<sha256>.part` of one that isn't whole.
//! Files of one model lie beside each other in `<root>/models/<set>/`, each copied by its own content.
//!
//! Takes chunks, gives whole files; must not know campaigns. A name says what a file must contain, not that it does: whoever asks for one
//! has it looked at. Machines may share the directory, as they may share a home: what one writes is what another would.

use crate::inspect::{
    files::{self, HashCache},
    gguf,
};
use crate::{dirs, sys};
use isotherm_wire::inspect::FileFact;
use isotherm_wire::models::{Cached, Have, Wanted};
use isotherm_wire::session::Failure;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

const PART: &str = ".part";
/// Beside a model: who asked for it last, and by its time when. No model's name begins with a dot.
const USED: &str = ".used";
/// A copy is on the disk this often, bytes: a loss of power costs no more, and its end doesn't wait for all of it.
const SYNC_BYTES: u64 = 32 << 20;

pub struct Cache {
    dir: PathBuf,
}

impl Cache {
    /// Below the root of a state directory. Nothing is made until something is copied.
    pub fn below(root: &Path) -> Cache {
        Cache { dir: root.join("models") }
    }

    /// How much of a model is there. One that is complete is looked at, and thrown away if it isn't what it should be; `hashes` spares
    /// reading what was read before.
    ///
    /// # Errors
    /// `ContentDiffers` once for a copy that is; `StateDirectory` where nothing can be kept.
    pub fn have(&self, wanted: &Wanted, campaign: &str, hashes: &mut HashCache) -> Result<Have, Failure> {
        check(wanted)?;
        self.make_ours(&self.dir)?;
        let _held = self.hold().map_err(|e| self.unusable(&e))?;
        let own = self.dir.join(wanted.set.as_ref().unwrap_or(&wanted.sha256));
        if fs::symlink_metadata(&own).is_ok() {
            self.make_ours(&own)?;
            if let Some(fact) = whole(&own, wanted, hashes) {
                note(&own, campaign);
                return Ok(Have::Whole(fact));
            }
            // The other files of a set may be right.
            let wrong = if wanted.set.is_some() { remove_any(&own.join(&wanted.name)) } else { fs::remove_dir_all(&own) };
            wrong.map_err(|e| self.unusable(&e))?;
        }
        let so_far = |offset| match sys::free_space(&self.dir) {
            Ok((free_bytes, _)) => Ok(Have::Part { offset, free_bytes }),
            Err(e) => Err(self.unusable(&e)),
        };
        if wanted.bytes > 0 && fs::symlink_metadata(self.part_path(&wanted.sha256)).is_err() {
            return so_far(0);
        }
        let part = self.part(&wanted.sha256, true).map_err(|e| self.unusable(&e))?;
        let offset = part.metadata().map_err(|e| self.unusable(&e))?.len();
        if offset > wanted.bytes {
            // Of something else; no copy becomes right by going on.
            part.set_len(0).map_err(|e| self.unusable(&e))?;
            return so_far(0);
        }
        if offset < wanted.bytes {
            return so_far(offset);
        }
        let got = part.sync_all().and_then(|()| files::hash(&part)).map_err(|e| self.unusable(&e))?;
        if got != wanted.sha256 {
            fs::remove_file(self.part_path(&wanted.sha256)).map_err(|e| self.unusable(&e))?;
            return Err(Failure::ContentDiffers { expected: wanted.sha256.clone(), got });
        }
        self.make_ours(&own)?;
        let path = own.join(&wanted.name);
        let fact = fs::rename(self.part_path(&wanted.sha256), &path)
            .and_then(|()| File::open(&own)?.sync_all())
            .and_then(|()| File::open(&self.dir)?.sync_all())
            .and_then(|()| fact(&path, &part.metadata()?, got));
        note(&own, campaign);
        Ok(Have::Whole(fact.map_err(|e| self.unusable(&e))?))
    }

    /// Add bytes that begin at `offset` to the copy of a model; how long it is now. Where it ends elsewhere, nothing is written.
    pub fn put(&self, sha256: &str, offset: u64, bytes: &[u8]) -> Result<u64, Failure> {
        check_sha256(sha256)?;
        self.make_ours(&self.dir)?;
        let add = || {
            let part = match self.part(sha256, false) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => {
                    let _held = self.hold()?;
                    // Another machine's keeper may have brought it to its end meanwhile.
                    if let Some(model) = model_in(&self.dir.join(sha256)) {
                        return Ok(fs::symlink_metadata(model)?.len());
                    }
                    self.part(sha256, true)?
                }
                part => part?,
            };
            // And it may be at the same copy.
            part.lock()?;
            let end = part.metadata()?.len();
            if end != offset {
                return Ok(end);
            }
            part.write_all_at(bytes, offset)?;
            let end = offset + bytes.len() as u64;
            if end / SYNC_BYTES != offset / SYNC_BYTES {
                part.sync_data()?;
            }
            Ok(end)
        };
        add().map_err(|e: io::Error| self.unusable(&e))
    }

    /// Everything that is kept, by content.
    pub fn list(&self) -> io::Result<Vec<Cached>> {
        let entries = match fs::read_dir(&self.dir) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut cached: Vec<Cached> = entries.flatten().filter_map(|entry| cached(&entry.path())).collect();
        cached.sort_by(|a, b| (&a.sha256, &a.name).cmp(&(&b.sha256, &b.name)));
        Ok(cached)
    }

    /// Remove a model, and what was copied of it; how many bytes that were.
    pub fn evict(&self, sha256: &str) -> Result<u64, Failure> {
        check_sha256(sha256)?;
        let _held = match self.hold() {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(0),
            held => held.map_err(|e| self.unusable(&e))?,
        };
        let (own, part) = (self.dir.join(sha256), self.part_path(sha256));
        let bytes = [&own, &part].iter().filter_map(|path| Some(cached(path)?.bytes)).sum();
        remove_any(&own).and_then(|()| remove_any(&part)).map_err(|e| self.unusable(&e))?;
        Ok(bytes)
    }

    fn part_path(&self, sha256: &str) -> PathBuf {
        self.dir.join(format!("{sha256}{PART}"))
    }

    /// As long as this is held no other keeper takes a copy for complete, puts one into its place or removes one.
    fn hold(&self) -> io::Result<File> {
        let dir = File::open(&self.dir)?;
        dir.lock()?;
        Ok(dir)
    }

    /// The copy of a model as far as it has come, where there is none yet made if it is `to_begin`.
    fn part(&self, sha256: &str, to_begin: bool) -> io::Result<File> {
        let mut options = File::options();
        options.read(true).write(true).create(to_begin).truncate(false).mode(0o600).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
        let file = options.open(self.part_path(sha256))?;
        if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("not a regular file")) }
    }

    fn make_ours(&self, dir: &Path) -> Result<(), Failure> {
        dirs::private_dir(dir).map_err(|reason| unusable(dir, reason))
    }

    fn unusable(&self, error: &io::Error) -> Failure {
        unusable(&self.dir, error.to_string())
    }
}

fn unusable(dir: &Path, reason: String) -> Failure {
    let hint = "make room there (`isotherm models` lists what is kept and evicts it), or set `state_dir` of the device".into();
    Failure::StateDirectory { path: dir.display().to_string(), reason, hint }
}

/// Remove what is there. A link that somebody has put there goes, what it points to stays.
fn remove_any(path: &Path) -> io::Result<()> {
    let is_dir = fs::symlink_metadata(path).is_ok_and(|meta| meta.is_dir());
    let removed = if is_dir { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    removed.or_else(|e| if e.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(e) })
}

/// The model if it has the content that is wanted, by the name that is wanted. Two models of one content are two names of it, or one where a
/// file system has no hard links; a file of a set has the name that the others look for.
fn whole(own: &Path, wanted: &Wanted, hashes: &mut HashCache) -> Option<FileFact> {
    let path = own.join(&wanted.name);
    let there = if is_model(&path) || wanted.set.is_some() {
        path
    } else {
        model_in(own).map(|there| if fs::hard_link(&there, &path).is_ok() { path } else { there })?
    };
    hashes.model(&there).ok().filter(|fact| fact.sha256 == wanted.sha256)
}

/// Losing it costs nothing but knowing.
fn note(own: &Path, campaign: &str) {
    let used = own.join(USED);
    let _ = fs::remove_file(&used);
    let _ = File::create_new(used).and_then(|mut file| file.write_all(campaign.as_bytes()));
}

/// The first model in a directory of its own, by name.
fn model_in(own: &Path) -> Option<PathBuf> {
    models_in(own).into_iter().next()
}

/// All files there, by name: names of one content, or the files of a set.
fn models_in(own: &Path) -> Vec<PathBuf> {
    let mut models: Vec<PathBuf> =
        fs::read_dir(own).into_iter().flatten().flatten().map(|entry| entry.path()).filter(|path| is_model(path)).collect();
    models.sort();
    models
}

fn is_model(path: &Path) -> bool {
    let hidden = path.file_name().is_none_or(|name| name.as_encoded_bytes().starts_with(b"."));
    !hidden && fs::symlink_metadata(path).is_ok_and(|meta| meta.is_file())
}

fn fact(path: &Path, meta: &fs::Metadata, sha256: String) -> io::Result<FileFact> {
    let files::Stat { bytes, mtime_ns, inode, .. } = files::Stat::of(meta);
    let fact = FileFact { path: fs::canonicalize(path)?.display().to_string(), named: None, bytes, mtime_ns, inode, sha256, header: None };
    let header = gguf::header(path, fact.bytes);
    Ok(FileFact { header, ..fact })
}

/// What lies at a path of the cache; `None` for what isn't ours.
fn cached(path: &Path) -> Option<Cached> {
    let meta = fs::symlink_metadata(path).ok()?;
    let name = path.file_name()?.to_str()?;
    let sha256 = name.strip_suffix(PART).filter(|_| meta.is_file()).unwrap_or(name).to_owned();
    check_sha256(&sha256).ok()?;
    let models = if meta.is_dir() { models_in(path) } else { Vec::new() };
    // A content with two names is there once.
    let by_inode: BTreeMap<u64, u64> =
        models.iter().filter_map(|model| fs::symlink_metadata(model).ok()).map(|meta| (meta.ino(), meta.len())).collect();
    let bytes = if meta.is_file() { meta.len() } else { by_inode.values().sum() };
    let model = models.into_iter().next();
    let of_model = model.as_ref().and_then(|model| fs::symlink_metadata(model).ok());
    let used = path.join(USED);
    let of_note = fs::symlink_metadata(&used).ok();
    let last_used = of_note.clone().or(of_model).unwrap_or(meta).mtime();
    Some(Cached {
        sha256,
        name: model.and_then(|model| Some(model.file_name()?.to_string_lossy().into_owned())),
        bytes,
        last_used_s: u64::try_from(last_used).unwrap_or(0),
        campaign: of_note.filter(fs::Metadata::is_file).and_then(|_| fs::read_to_string(used).ok()),
    })
}

fn check(wanted: &Wanted) -> Result<(), Failure> {
    let Wanted { sha256, bytes: _, name, set } = wanted;
    let fits = !name.is_empty() && name.len() <= 255 && !name.starts_with('.') && !name.contains(['/', '\0']);
    if !fits {
        return Err(Failure::Other { message: format!("{name:?} is no name of a model's file") });
    }
    set.as_deref().map_or(Ok(()), check_sha256)?;
    check_sha256(sha256)
}

/// What becomes part of a path has the form of a hash.
fn check_sha256(text: &str) -> Result<(), Failure> {
    let fits = text.len() == 64 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    if fits { Ok(()) } else { Err(Failure::Other { message: format!("{text:?} is no sha256") }) }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::capture::sha256_hex;
    use std::os::unix::fs::symlink;

    const CONTENT: &[u8] = b"a model of few parameters";

    struct Place {
        dir: tempfile::TempDir,
        cache: Cache,
        hashes: HashCache,
    }

    impl Place {
        fn new() -> Place {
            let dir = tempfile::tempdir().unwrap();
            Place { cache: Cache::below(dir.path()), dir, hashes: HashCache::default() }
        }

        fn have(&mut self, wanted: &Wanted) -> Result<Have, Failure> {
            self.cache.have(wanted, "night", &mut self.hashes)
        }

        fn own(&self) -> PathBuf {
            self.dir.path().join("models").join(sha256_hex(CONTENT))
        }

        /// Where it lies, once it is there.
        fn filled(&mut self) -> PathBuf {
            assert!(matches!(self.have(&wanted()), Ok(Have::Part { offset: 0, .. })));
            assert_eq!(self.cache.put(&wanted().sha256, 0, CONTENT).unwrap(), CONTENT.len() as u64);
            match self.have(&wanted()) {
                Ok(Have::Whole(fact)) => fact.path.into(),
                other => panic!("{other:?}"),
            }
        }
    }

    fn wanted() -> Wanted {
        Wanted { sha256: sha256_hex(CONTENT), bytes: CONTENT.len() as u64, name: "m.onnx".into(), set: None }
    }

    #[test]
    fn a_model_is_whole_when_all_its_bytes_have_come_in_order() {
        let mut place = Place::new();
        let sha256 = wanted().sha256;
        assert!(matches!(place.have(&wanted()), Ok(Have::Part { offset: 0, free_bytes: 1.. })));
        assert!(place.cache.list().unwrap().is_empty(), "asking makes nothing");
        assert_eq!(place.cache.put(&sha256, 0, &CONTENT[..10]).unwrap(), 10);
        // Said twice, and too early: neither changes anything.
        assert_eq!(place.cache.put(&sha256, 0, &CONTENT[..10]).unwrap(), 10);
        assert_eq!(place.cache.put(&sha256, 20, &CONTENT[20..]).unwrap(), 10);
        // Whoever comes next goes on from there.
        assert!(matches!(place.have(&wanted()), Ok(Have::Part { offset: 10, .. })));
        assert_eq!(place.cache.list().unwrap()[0].name, None);
        place.cache.put(&sha256, 10, &CONTENT[10..]).unwrap();
        let Ok(Have::Whole(fact)) = place.have(&wanted()) else { panic!() };
        assert_eq!((fact.bytes, &fact.sha256), (CONTENT.len() as u64, &sha256));
        assert_eq!(fs::read(&fact.path).unwrap(), CONTENT);
        assert_eq!(place.have(&wanted()).unwrap(), Have::Whole(fact));
        let [Cached { name, bytes, campaign, .. }] = &place.cache.list().unwrap()[..] else { panic!() };
        assert_eq!((name.as_deref(), *bytes, campaign.as_deref()), (Some("m.onnx"), CONTENT.len() as u64, Some("night")));
    }

    #[test]
    fn bytes_that_come_after_another_keeper_had_the_last_ones_begin_no_copy_anew() {
        let mut place = Place::new();
        place.filled();
        for offset in [0, 10] {
            assert_eq!(place.cache.put(&wanted().sha256, offset, &CONTENT[offset as usize..]).unwrap(), CONTENT.len() as u64);
        }
        assert!(!place.cache.part_path(&wanted().sha256).exists());
    }

    #[test]
    fn keepers_that_ask_for_one_complete_copy_at_once_all_get_the_model() {
        for _ in 0..50 {
            let mut place = Place::new();
            place.have(&wanted()).unwrap();
            place.cache.put(&wanted().sha256, 0, CONTENT).unwrap();
            let cache = &place.cache;
            let all = std::thread::scope(|scope| {
                let ask = |_| scope.spawn(move || cache.have(&wanted(), "night", &mut HashCache::default()));
                let asked: Vec<_> = (0..4).map(ask).collect();
                asked.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
            });
            assert!(all.iter().all(|have| matches!(have, Ok(Have::Whole(_)))), "{all:?}");
        }
    }

    #[test]
    fn a_copy_with_another_content_is_thrown_away_and_named() {
        let mut place = Place::new();
        place.cache.put(&wanted().sha256, 0, &vec![7; CONTENT.len()]).unwrap();
        assert!(matches!(place.have(&wanted()), Err(Failure::ContentDiffers { expected, .. }) if expected == wanted().sha256));
        place.filled();
        // One that is longer than the model is of no use either.
        let other = Wanted { sha256: sha256_hex(b"x"), bytes: 1, name: "x".into(), set: None };
        place.cache.put(&other.sha256, 0, b"xyz").unwrap();
        assert!(matches!(place.have(&other), Ok(Have::Part { offset: 0, .. })));
    }

    #[test]
    fn a_model_that_rots_is_copied_again() {
        let mut place = Place::new();
        let path = place.filled();
        fs::write(&path, vec![7; CONTENT.len()]).unwrap();
        assert_eq!(place.filled(), path);
        assert_eq!(fs::read(path).unwrap(), CONTENT);
    }

    #[test]
    fn two_models_of_one_content_are_one_file() {
        let mut place = Place::new();
        let path = place.filled();
        let Ok(Have::Whole(fact)) = place.have(&Wanted { name: "n.onnx".into(), ..wanted() }) else { panic!() };
        assert!(fact.path.ends_with("/n.onnx"));
        assert_eq!(fact.inode, fs::metadata(&path).unwrap().ino());
        // Whoever asks next finds its own name, and what it had found before.
        for name in ["m.onnx", "n.onnx"] {
            let Ok(Have::Whole(again)) = place.have(&Wanted { name: name.into(), ..wanted() }) else { panic!("{name}") };
            assert!(again.path.ends_with(name) && again.inode == fact.inode);
        }
        // A link in place of the name is passed over.
        fs::remove_file(&path).unwrap();
        symlink("/etc/hostname", &path).unwrap();
        assert!(matches!(place.have(&wanted()), Ok(Have::Whole(fact)) if fact.path.ends_with("/n.onnx")));
    }

    #[test]
    fn files_of_one_model_lie_beside_each_other_and_are_one_model() {
        let mut place = Place::new();
        let set = sha256_hex(b"all of them");
        let contents = [&b"the first"[..], b"another one", b"the first"];
        let wanted = |at: usize| Wanted {
            sha256: sha256_hex(contents[at]),
            bytes: contents[at].len() as u64,
            name: format!("m-{:05}-of-00003.gguf", at + 1),
            set: Some(set.clone()),
        };
        let own = place.dir.path().join("models").join(&set);
        for (at, content) in contents.iter().enumerate() {
            let wanted = wanted(at);
            assert!(matches!(place.have(&wanted), Ok(Have::Part { offset: 0, .. })), "{at}");
            place.cache.put(&wanted.sha256, 0, content).unwrap();
            let Ok(Have::Whole(fact)) = place.have(&wanted) else { panic!("{at}") };
            assert_eq!(Path::new(&fact.path), fs::canonicalize(own.join(&wanted.name)).unwrap());
        }
        let [Cached { sha256, name, bytes, .. }] = &place.cache.list().unwrap()[..] else { panic!() };
        assert_eq!((sha256, name.as_deref(), *bytes), (&set, Some("m-00001-of-00003.gguf"), 29));
        // One that isn't what it should be is copied again, and the others are not.
        fs::write(own.join(&wanted(1).name), "something else").unwrap();
        assert!(matches!(place.have(&wanted(1)), Ok(Have::Part { offset: 0, .. })));
        assert!(matches!(place.have(&wanted(0)), Ok(Have::Whole(_))) && !own.join(&wanted(1).name).exists());
        assert_eq!(place.cache.evict(&set).unwrap(), 18);
        assert!(place.cache.list().unwrap().is_empty());
    }

    #[test]
    fn an_empty_model_is_a_model() {
        let wanted = Wanted { sha256: sha256_hex(b""), bytes: 0, name: "empty".into(), set: None };
        assert!(matches!(Place::new().have(&wanted), Ok(Have::Whole(fact)) if fact.bytes == 0));
    }

    #[test]
    fn what_is_evicted_is_gone_and_nothing_else() {
        let mut place = Place::new();
        place.filled();
        let other = sha256_hex(b"another");
        place.cache.put(&other, 0, b"ano").unwrap();
        assert_eq!(place.cache.evict(&wanted().sha256).unwrap(), CONTENT.len() as u64);
        let [left] = &place.cache.list().unwrap()[..] else { panic!() };
        assert_eq!((&left.sha256, &left.name, left.bytes), (&other, &None, 3));
        assert_eq!(place.cache.evict(&other).unwrap(), 3);
        assert_eq!(place.cache.evict(&other).unwrap(), 0);
        assert!(place.cache.list().unwrap().is_empty());
    }

    #[test]
    fn no_link_is_followed_out_of_the_cache() {
        let mut place = Place::new();
        let outside = tempfile::tempdir().unwrap();
        let victim = outside.path().join("victim");
        fs::write(&victim, "precious").unwrap();
        let models = place.dir.path().join("models");
        dirs::private_dir(&models).unwrap();
        // As the copy.
        let part = models.join(format!("{}.part", wanted().sha256));
        symlink(&victim, &part).unwrap();
        assert!(matches!(place.have(&wanted()), Err(Failure::StateDirectory { .. })));
        assert!(place.cache.put(&wanted().sha256, 0, CONTENT).is_err());
        fs::remove_file(&part).unwrap();
        // As the model itself: it is copied anew in its place.
        dirs::private_dir(&place.own()).unwrap();
        symlink(&victim, place.own().join("m.onnx")).unwrap();
        place.filled();
        place.cache.evict(&wanted().sha256).unwrap();
        // As its directory.
        symlink(outside.path(), place.own()).unwrap();
        assert!(matches!(place.have(&wanted()), Err(Failure::StateDirectory { reason, .. }) if reason == "is a symbolic link"));
        place.cache.evict(&wanted().sha256).unwrap();
        // As the cache.
        fs::remove_dir_all(&models).unwrap();
        symlink(outside.path(), &models).unwrap();
        assert!(matches!(place.have(&wanted()), Err(Failure::StateDirectory { .. })));
        assert_eq!(fs::read_to_string(victim).unwrap(), "precious");
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_name_can_not_climb_out_of_the_cache() {
        let mut place = Place::new();
        for name in ["", ".", "..", "../x", "a/b", ".used", "a\0b"] {
            assert!(place.have(&Wanted { name: name.into(), ..wanted() }).is_err(), "{name:?}");
        }
        for sha256 in ["", "..", "../../x", &"A".repeat(64), &format!("{}/", "a".repeat(63))] {
            assert!(place.have(&Wanted { sha256: sha256.into(), ..wanted() }).is_err(), "{sha256:?}");
            assert!(place.have(&Wanted { set: Some(sha256.into()), ..wanted() }).is_err(), "{sha256:?}");
            assert!(place.cache.put(sha256, 0, b"x").is_err() && place.cache.evict(sha256).is_err());
        }
    }
}
