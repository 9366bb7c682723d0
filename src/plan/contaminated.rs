//! Runs that something else disturbed, and whether they are repeated once more.
//!
//! Takes what is stored, gives codes in words; must not know how a run is repeated.

use crate::store::index::{self, Entry, Scan};
use crate::store::record::{Kind, Status, Validity};
use std::path::Path;

/// What disturbed the run behind a record, if it is to be repeated once more; `None` = it stands as it is.
#[must_use]
pub fn to_repeat(results: &Path, scan: &Scan, entry: &Entry, retries: u32) -> Option<String> {
    let by = by(results, entry);
    (!by.is_empty() && repeats(results, scan, entry) < retries).then(|| by.join(", "))
}

/// [`Record::contaminated_by`](crate::store::record::Record::contaminated_by) of a record that is read for that only if it isn't as good
/// as it can be.
#[must_use]
pub fn by(results: &Path, entry: &Entry) -> Vec<&'static str> {
    if entry.status != Status::Ok || entry.validity == Validity::Valid {
        return Vec::new();
    }
    index::read_record(&results.join(&entry.path)).map_or_else(|_| Vec::new(), |record| record.contaminated_by())
}

/// How often the run has been repeated already: disturbed runs before it, and repeats after it that failed and stand beside it.
fn repeats(results: &Path, scan: &Scan, of: &Entry) -> u32 {
    let is_repeated = |other: &&Entry| other.attempt > of.attempt || !by(results, other).is_empty();
    let attempts = scan.entries.iter().filter(|other| other.is_earlier_attempt() && is_of(other, &of.point_identity, of.kind, of.repetition));
    attempts.filter(is_repeated).count() as u32
}

/// Is it a run of this job?
#[must_use]
pub fn is_of(entry: &Entry, identity: &str, kind: Kind, repetition: u32) -> bool {
    (entry.point_identity.as_str(), entry.kind, entry.repetition) == (identity, kind, repetition)
}
