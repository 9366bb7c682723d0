//! Another reading of a run in the place of its record: the earlier one is kept whole, and at no moment is there none.

use super::durable::{self, Existing};
use super::index::{self, Entry, SUPERSEDED};
use super::record::{Read, ReadAgain, Record};
use super::{StoreError, file, io_error, seal, sidecar};
use crate::clock;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Put `new` in the place of `old`, the record at `place` relative to the results directory; its index entry, and where the earlier one
/// is kept: `superseded/<run_id>.<n>.json`, its sidecars beside it. Those that both readings name are shared.
///
/// # Errors
/// [`StoreError::Io`]: then one of the two stands at its place, whole.
pub fn rewrite(results: &Path, place: &str, old: &Record, mut new: Record) -> Result<(Entry, String), StoreError> {
    let path = results.join(place);
    let dir = path.parent().unwrap_or(results).to_owned();
    let kept = results.join(SUPERSEDED);
    durable::create_dir_below(results, &kept)?;
    for sidecar in sidecar::of(old) {
        share(&dir.join(&sidecar.name), &kept.join(&sidecar.name))?;
    }
    let bytes = file::read(&path).map_err(io_error("read", &path))?;
    let earlier = format!("{SUPERSEDED}/{}", keep(&kept, &old.ids.run_id, &bytes)?);

    let at = clock::utc_seconds();
    if let Some(Read { again, .. }) = &mut new.read {
        again.push(ReadAgain { at, isotherm: env!("CARGO_PKG_VERSION").into(), earlier: earlier.clone() });
    }
    let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    for (name, content) in sidecar::take_out(&mut new, &stem) {
        durable::write(&dir.join(name), &content, Existing::Replace)?;
    }
    let bytes = seal::seal(&new);
    durable::write(&path, &bytes, Existing::Replace)?;
    // What the earlier reading alone names lies beside it now.
    let named: BTreeSet<&str> = sidecar::of(&new).into_iter().map(|sidecar| sidecar.name.as_str()).collect();
    for sidecar in sidecar::of(old).into_iter().filter(|sidecar| !named.contains(sidecar.name.as_str())) {
        let _ = fs::remove_file(dir.join(&sidecar.name));
    }
    let meta = fs::metadata(&path).map_err(io_error("read", &path))?;
    Ok((index::entry(&new, place.to_owned(), &meta, &bytes), earlier))
}

/// Keep the bytes of a record under the next free number; the file's name. A reading that was kept before an interruption is not kept twice.
fn keep(kept: &Path, run_id: &str, bytes: &[u8]) -> Result<String, StoreError> {
    let mut n = 0;
    loop {
        let name = format!("{run_id}.{n}.json");
        let path = kept.join(&name);
        match file::read(&path) {
            Ok(there) if there == bytes => return Ok(name),
            Ok(_) => n += 1,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                durable::write(&path, bytes, Existing::Keep)?;
                return Ok(name);
            }
            Err(e) => return Err(io_error("read", &path)(e)),
        }
    }
}

/// One file under two names; a copy where the file system has no links.
fn share(from: &Path, to: &Path) -> Result<(), StoreError> {
    match fs::hard_link(from, to) {
        Ok(()) => Ok(()),
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        Err(_) => {
            let bytes = file::read(from).map_err(io_error("read", from))?;
            durable::write(to, &bytes, Existing::Replace)
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_reading_is_kept_once_under_a_number_of_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let names: Vec<String> = [b"one", b"two", b"one"].iter().map(|bytes| keep(dir.path(), "r", *bytes).unwrap()).collect();
        assert_eq!(names, ["r.0.json", "r.1.json", "r.0.json"]);
        assert_eq!(fs::read(dir.path().join("r.1.json")).unwrap(), b"two");
    }
}
