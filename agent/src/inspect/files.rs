//! Files by content. Hashes are kept by path, size, mtime, ctime and inode, so that a model of gigabytes is read once.

use super::gguf;
use crate::{capture, dirs, sys};
use isotherm_wire::inspect::{FileAnswer, FileFact, FileQuery, FileRole};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// PATH of a workload that declares none.
pub const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What tells a file from what it was, without reading it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stat {
    pub bytes: u64,
    pub mtime_ns: i64,
    pub ctime_ns: i64,
    pub inode: u64,
}

impl Stat {
    pub fn of(meta: &Metadata) -> Stat {
        Stat {
            bytes: meta.len(),
            mtime_ns: meta.mtime() * 1_000_000_000 + meta.mtime_nsec(),
            ctime_ns: meta.ctime() * 1_000_000_000 + meta.ctime_nsec(),
            inode: meta.ino(),
        }
    }
}

/// Hashes by path; kept on disk between keepers. A cache: losing it costs time and nothing else.
#[derive(Default)]
pub struct HashCache {
    path: Option<PathBuf>,
    entries: HashMap<String, (Stat, String)>,
}

impl HashCache {
    pub fn open(path: PathBuf) -> HashCache {
        let entries = fs::read(&path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default();
        HashCache { path: Some(path), entries }
    }

    pub fn save(&self) {
        if let (Some(path), Ok(bytes)) = (&self.path, serde_json::to_vec(&self.entries)) {
            let temporary = path.with_extension("tmp");
            let _ = fs::write(&temporary, bytes).and_then(|()| fs::rename(&temporary, path));
        }
    }

    /// The file behind a path, links resolved.
    pub fn fact(&mut self, path: &Path) -> io::Result<FileFact> {
        let path = fs::canonicalize(path)?;
        let file = sys::open_regular(&path)?;
        let meta = file.metadata()?;
        let stat = Stat::of(&meta);
        let name = path.display().to_string();
        let sha256 = match self.entries.get(&name) {
            Some((known, sha256)) if *known == stat => sha256.clone(),
            _ => {
                let sha256 = hash(&file)?;
                if Stat::of(&file.metadata()?) != stat {
                    return Err(io::Error::other("is being written"));
                }
                // A file changed a moment ago may change again within the same tick of its clock: don't trust its stat yet.
                if sys::realtime_ns() as i64 - stat.ctime_ns > 2_000_000_000 {
                    self.entries.insert(name.clone(), (stat.clone(), sha256.clone()));
                }
                sha256
            }
        };
        Ok(FileFact { path: name, named: None, bytes: stat.bytes, mtime_ns: stat.mtime_ns, inode: stat.inode, sha256, header: None })
    }

    /// A model, with what its file says of it.
    pub fn model(&mut self, path: &Path) -> io::Result<FileFact> {
        let fact = self.fact(path)?;
        let header = gguf::header(path, fact.bytes);
        let named = Some(path.components().collect::<PathBuf>().display().to_string()).filter(|named| *named != fact.path);
        Ok(FileFact { header, named, ..fact })
    }

    /// Answer one question.
    pub fn answer(&mut self, query: &FileQuery) -> FileAnswer {
        let paths = match resolve(query) {
            Ok(paths) => paths,
            Err(answer) => return answer,
        };
        let mut facts = Vec::new();
        for (n, path) in paths.iter().enumerate() {
            let fact = if query.role == FileRole::Data { self.model(path) } else { self.fact(path) };
            match fact {
                Ok(fact) => facts.push(fact),
                // What its interpreter is can't be told: the program is all that there is.
                Err(_) if query.role == FileRole::Program && n > 0 => {}
                Err(e) if query.role == FileRole::Glob => return FileAnswer::Missing(format!("{}: {e}", path.display())),
                Err(e) => return FileAnswer::Missing(e.to_string()),
            }
        }
        FileAnswer::Found(facts)
    }
}

/// The paths that a question is about, in the order of its answer: a program before its interpreter, what a pattern matches sorted.
///
/// # Errors
/// The answer, where nothing has to be opened for it.
pub fn resolve(query: &FileQuery) -> Result<Vec<PathBuf>, FileAnswer> {
    let missing = |e: io::Error| FileAnswer::Missing(e.to_string());
    let base = dirs::expand_home(&query.base);
    // An argument is given to the program as written, `~` and all.
    let written = if query.role == FileRole::Argument { PathBuf::from(&query.path) } else { dirs::expand_home(&query.path) };
    let path = base.join(&written);
    match query.role {
        FileRole::Data => Ok(vec![path]),
        FileRole::Argument => match fs::metadata(&path) {
            Ok(meta) if meta.is_file() => Ok(vec![path]),
            _ => Err(FileAnswer::NotAFile),
        },
        FileRole::Glob => {
            // Only what the campaign wrote is a pattern, not the directory it lies in.
            let pattern = match written.is_absolute() {
                true => written.display().to_string(),
                false => format!("{}/{}", glob::Pattern::escape(&base.to_string_lossy()), written.display()),
            };
            let paths = glob::glob(&pattern).map_err(|e| FileAnswer::Missing(format!("not a pattern: {e}")))?;
            let paths: Result<Vec<PathBuf>, _> = paths.filter(|path| !path.as_ref().is_ok_and(|path| path.is_dir())).collect();
            paths.map_err(|e| FileAnswer::Missing(e.to_string()))
        }
        FileRole::Program => {
            let search = query.search_path.as_deref().unwrap_or(DEFAULT_PATH);
            let program = find_program(&query.path, &path, search).map_err(missing)?;
            let interpreter = interpreter(&program, search).and_then(Result::ok);
            Ok([program].into_iter().chain(interpreter).collect())
        }
    }
}

/// sha256 of a whole file, hex.
pub fn hash(mut file: &File) -> io::Result<String> {
    let mut hasher = Sha256::new();
    let mut chunk = vec![0; 128 << 10];
    loop {
        match file.read(&mut chunk)? {
            0 => return Ok(capture::hex(&hasher.finalize())),
            n => hasher.update(&chunk[..n]),
        }
    }
}

fn find_program(name: &str, path: &Path, search: &str) -> io::Result<PathBuf> {
    if name.contains('/') {
        return fs::metadata(path).map(|_| path.to_owned());
    }
    let executable = |p: &PathBuf| fs::metadata(p).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0);
    search
        .split(':')
        .map(|dir| Path::new(dir).join(name))
        .find(executable)
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("no program `{name}` in PATH {search}")))
}

/// The program that runs a script; `None` for what is no script.
///
/// # Errors
/// There is no such program.
pub fn interpreter(script: &Path, search: &str) -> Option<io::Result<PathBuf>> {
    let name = interpreter_name(script)?;
    Some(find_program(&name, Path::new(&name), search))
}

/// The program that the `#!` line of a script asks for; through `env` the one that `env` looks up.
fn interpreter_name(script: &Path) -> Option<String> {
    let mut start = [0; 256];
    let n = sys::open_regular(script).ok()?.read(&mut start).ok()?;
    let line = start[..n].strip_prefix(b"#!")?.split(|&b| b == b'\n').next()?;
    let line = std::str::from_utf8(line).ok()?;
    let mut words = line.split_whitespace();
    let program = words.next()?;
    if program.ends_with("/env") {
        return words.find(|w| !w.starts_with('-') && !w.contains('=')).map(str::to_owned);
    }
    Some(program.to_owned())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn query(path: &str, role: FileRole, base: &Path) -> FileQuery {
        FileQuery { key: "k".into(), path: path.into(), role, base: base.display().to_string(), search_path: None }
    }

    #[test]
    fn a_script_is_reported_with_its_interpreter() {
        let dir = tempfile::tempdir().unwrap();
        let script = dir.path().join("bench.sh");
        fs::write(&script, "#!/usr/bin/env -S sh -e\necho 1\n").unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        let mut cache = HashCache::default();
        let FileAnswer::Found(facts) = cache.answer(&query("./bench.sh", FileRole::Program, dir.path())) else { panic!() };
        assert_eq!(facts.len(), 2);
        assert_eq!(facts[0].sha256, capture::sha256_hex(b"#!/usr/bin/env -S sh -e\necho 1\n"));
        assert!(facts[1].path.starts_with('/'));
    }

    #[test]
    fn a_changed_file_is_hashed_again() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("m"), "one").unwrap();
        let mut cache = HashCache::open(dir.path().join("cache"));
        let first = cache.answer(&query("m", FileRole::Data, dir.path()));
        cache.save();
        // Same length, so only the stat's times and inode can tell.
        fs::write(dir.path().join("n"), "two").unwrap();
        fs::rename(dir.path().join("n"), dir.path().join("m")).unwrap();
        let mut cache = HashCache::open(dir.path().join("cache"));
        let second = cache.answer(&query("m", FileRole::Data, dir.path()));
        assert_ne!(first, second);
    }

    #[test]
    fn a_pattern_is_taken_below_a_directory_whose_own_name_looks_like_one() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().join("a [1] *");
        fs::create_dir_all(base.join("data")).unwrap();
        fs::write(base.join("data/x.bin"), "x").unwrap();
        let mut cache = HashCache::default();
        let FileAnswer::Found(facts) = cache.answer(&query("data/*.bin", FileRole::Glob, &base)) else { panic!() };
        assert_eq!(facts.len(), 1);
    }

    #[test]
    fn a_fifo_is_no_file_and_holds_nobody() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = std::ffi::CString::new(dir.path().join("fifo").to_str().unwrap()).unwrap();
        // SAFETY: a valid C string.
        assert_eq!(unsafe { libc::mkfifo(fifo.as_ptr(), 0o600) }, 0);
        let mut cache = HashCache::default();
        for role in [FileRole::Data, FileRole::Glob] {
            let answer = cache.answer(&query("fifo", role, dir.path()));
            assert!(matches!(&answer, FileAnswer::Missing(why) if why.contains("not a regular file")), "{answer:?}");
        }
        assert!(matches!(cache.answer(&query("./fifo", FileRole::Program, dir.path())), FileAnswer::Missing(_)));
    }

    #[test]
    fn what_is_not_there_is_missing_in_the_systems_words() {
        let mut cache = HashCache::default();
        let base = Path::new("/nonexistent");
        assert!(matches!(cache.answer(&query("m", FileRole::Data, base)), FileAnswer::Missing(w) if w.contains("No such file")));
        assert!(matches!(cache.answer(&query("no-such-program", FileRole::Program, base)), FileAnswer::Missing(w) if w.contains("PATH")));
        assert_eq!(cache.answer(&query("--flag", FileRole::Argument, base)), FileAnswer::NotAFile);
        assert_eq!(cache.answer(&query("*.bin", FileRole::Glob, base)), FileAnswer::Found(vec![]));
    }
}
