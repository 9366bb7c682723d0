//! `drop_caches`: what is outstanding is written back, then the page cache is emptied. Nothing is borrowed.

use super::act::Action;
use super::{Bench, Stop};
use crate::inspect::machine::kib;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

const CONTROL: &str = "proc/sys/vm/drop_caches";
/// Page cache, dentries and inodes; Documentation/admin-guide/sysctl/vm.rst.
const ALL: &str = "3";
/// With less than this to drop, what others read meanwhile may outweigh it, bytes.
const WORTH_JUDGING_BYTES: u64 = 256 << 20;

pub fn reading(root: &Path) -> Option<Value> {
    Some(json!({ "cached_bytes": Cached::read(root)?.all }))
}

pub fn drop_caches(bench: &mut Bench<'_>) -> Result<(), Stop> {
    let control = bench.root.join(CONTROL);
    if !control.exists() {
        return Err(Stop::Unsupported("this kernel can't drop its caches".into()));
    }
    let before = Cached::read(bench.root);
    bench.act.act(&Action::Sync)?;
    bench.act.act(&Action::Write { path: control, value: ALL.into() })?;
    match (before, Cached::read(bench.root)) {
        (Some(before), Some(after)) if before.droppable >= WORTH_JUDGING_BYTES && after.all >= before.all => {
            Err(Stop::Failed(format!("the page cache did not shrink: {} MiB before and {} MiB after it", before.all >> 20, after.all >> 20)))
        }
        _ => Ok(()),
    }
}

/// Of `/proc/meminfo`, bytes.
struct Cached {
    all: u64,
    /// Without shared memory and what processes have mapped, which stay.
    droppable: u64,
}

impl Cached {
    fn read(root: &Path) -> Option<Cached> {
        let meminfo = fs::read_to_string(root.join("proc/meminfo")).ok()?;
        let all = kib(&meminfo, "Cached")?;
        let stays = ["Shmem", "Mapped"].iter().filter_map(|name| kib(&meminfo, name)).sum();
        Some(Cached { all, droppable: all.saturating_sub(stays) })
    }
}
