//! cgroups of this process, v1 and v2, host and private namespaces, by one rule:
//! directory = mount point + (own path − root of the mount as `mountinfo` names it).

use super::text;
use crate::sys;
use isotherm_wire::inspect::Limits;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Directories of our own groups.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Groups {
    pub unified: Option<PathBuf>,
    /// v1 controller → directory.
    pub v1: BTreeMap<String, PathBuf>,
}

impl Groups {
    /// `v1`, `v2`, `hybrid`; `None` without any mount.
    pub fn version(&self) -> Option<&'static str> {
        match (&self.unified, self.v1.is_empty()) {
            (Some(_), true) => Some("v2"),
            (Some(_), false) => Some("hybrid"),
            (None, false) => Some("v1"),
            (None, true) => None,
        }
    }
}

/// Find them under `root` (`/` on a real machine).
pub fn locate(root: &Path) -> Groups {
    let own = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let mounts = fs::read_to_string(root.join("proc/self/mountinfo")).unwrap_or_default();
    let mut groups = Groups::default();
    // id:controllers:path
    let paths: Vec<(&str, &str)> = own.lines().filter_map(|l| l.split_once(':')?.1.split_once(':')).collect();
    for line in mounts.lines() {
        // id parent major:minor root mountpoint options … - type source superoptions
        let Some((left, right)) = line.split_once(" - ") else { continue };
        let left: Vec<&str> = left.split(' ').collect();
        let right: Vec<&str> = right.split(' ').collect();
        let (Some(mount_root), Some(mount_point), Some(&kind)) = (left.get(3), left.get(4), right.first()) else { continue };
        // A path with `..` is that of a group outside of what this namespace shows.
        let directory = |own_path: &str| {
            let below = own_path.strip_prefix(mount_root.trim_end_matches('/')).unwrap_or("").trim_start_matches('/');
            let is_shown = !below.split('/').any(|part| part == "..");
            is_shown.then(|| root.join(mount_point.trim_start_matches('/')).join(below))
        };
        match kind {
            "cgroup2" => {
                let own = paths.iter().find(|(controllers, _)| controllers.is_empty());
                groups.unified = groups.unified.or_else(|| directory(own?.1));
            }
            "cgroup" => {
                for (controllers, path) in &paths {
                    for controller in controllers.split(',').filter(|c| !c.is_empty()) {
                        let is_here = right.get(2).is_some_and(|options| options.split(',').any(|o| o == controller));
                        if let Some(dir) = directory(path).filter(|_| is_here) {
                            groups.v1.entry(controller.to_owned()).or_insert(dir);
                        }
                    }
                }
            }
            _ => {}
        }
    }
    groups
}

/// CPU time of everything that has been in a group of the unified tree, or below it, ns; `None` where its kernel doesn't say.
pub fn used_ns(dir: &Path) -> Option<u64> {
    let us: u64 = text(dir, "cpu.stat")?.lines().find_map(|line| line.strip_prefix("usage_usec "))?.parse().ok()?;
    Some(us.saturating_mul(1000))
}

/// Effective limits on this process.
pub fn limits(root: &Path) -> Limits {
    let groups = locate(root);
    let mut limits =
        Limits { cgroup: groups.version().map(str::to_owned), affinity_cpus: sys::affinity().map(|cpus| cpus.len() as u32), ..Limits::default() };
    if limits.affinity_cpus.is_none() {
        limits.unknown.insert("affinity_cpus".into(), "sched_getaffinity failed".into());
    }
    let missing = "no cgroup mount with that controller";
    let v1 = |controller: &str| groups.v1.get(controller).map(PathBuf::as_path);
    // A v1 controller wins where both are mounted: in a hybrid set-up the unified tree has no controllers.
    let quota = match (v1("cpu"), &groups.unified) {
        (Some(dir), _) if text(dir, "cpu.cfs_quota_us").is_none() => Err(format!("{}/cpu.cfs_quota_us is not readable", dir.display())),
        (Some(dir), _) => smallest(dir, "cpu.cfs_quota_us", |dir, quota| quota_of(quota, &text(dir, "cpu.cfs_period_us")?)),
        (None, Some(dir)) => smallest(dir, "cpu.max", |_, max| {
            let (quota, period) = max.split_once(' ')?;
            quota_of(quota, period)
        }),
        (None, None) => Err(missing.into()),
    };
    let cpuset = match (v1("cpuset"), &groups.unified) {
        (Some(dir), _) => text(dir, "cpuset.effective_cpus").or_else(|| text(dir, "cpuset.cpus")),
        (None, Some(dir)) => text(dir, "cpuset.cpus.effective"),
        (None, None) => None,
    };
    let cpuset = cpuset.as_deref().and_then(sys::cpu_count).map(Some).ok_or_else(|| missing.to_owned());
    let memory = match (v1("memory"), &groups.unified) {
        (Some(dir), _) => smallest(dir, "memory.limit_in_bytes", |_, bytes| limit(bytes)),
        (None, Some(dir)) => smallest(dir, "memory.max", |_, bytes| limit(bytes)),
        (None, None) => Err(missing.into()),
    };
    limits.quota_cpus = known(quota, "quota_cpus", &mut limits.unknown);
    limits.cpuset_cpus = known(cpuset, "cpuset_cpus", &mut limits.unknown);
    limits.memory_bytes = known(memory, "memory_bytes", &mut limits.unknown);
    limits
}

/// A limit, or a note of why it isn't known.
fn known<T>(limit: Result<Option<T>, String>, field: &str, unknown: &mut BTreeMap<String, String>) -> Option<T> {
    limit.unwrap_or_else(|why| {
        unknown.insert(field.into(), why);
        None
    })
}

/// The smallest of the limits in this directory and its parents, as far as they have the file; `Ok(None)` = unlimited.
///
/// # Errors
/// What one of them reads can't be understood.
fn smallest<T: PartialOrd>(dir: &Path, file: &str, parse: impl Fn(&Path, &str) -> Option<Option<T>>) -> Result<Option<T>, String> {
    let mut least: Option<T> = None;
    for (dir, text) in dir.ancestors().filter_map(|dir| Some((dir, text(dir, file)?))) {
        let limit = parse(dir, &text).ok_or_else(|| format!("{}/{file} reads {text:?}", dir.display()))?;
        if limit.as_ref().is_some_and(|limit| least.as_ref().is_none_or(|least| limit < least)) {
            least = limit;
        }
    }
    Ok(least)
}

/// CPUs of a quota and its period, both µs; `Some(None)` for `max` and -1, `None` for what can't be.
fn quota_of(quota: &str, period: &str) -> Option<Option<f64>> {
    let period: u64 = period.parse().ok().filter(|period| *period > 0)?;
    match quota {
        "max" | "-1" => Some(None),
        quota => quota.parse::<u64>().ok().filter(|quota| *quota > 0).map(|quota| Some(quota as f64 / period as f64)),
    }
}

/// `Some(None)` for the three ways of writing "unlimited": `max`, `-1`, and the largest page-aligned i64 (any page size).
fn limit(text: &str) -> Option<Option<u64>> {
    match text {
        "max" | "-1" => Some(None),
        bytes => bytes.parse::<u64>().ok().map(|bytes| (bytes < i64::MAX as u64 - (64 << 10)).then_some(bytes)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trees::of_files as tree;

    #[test]
    fn a_container_with_v1_and_a_private_root_finds_its_own_limits() {
        let dir = tree(&[
            ("proc/self/cgroup", "5:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n0::/docker/abc\n"),
            (
                "proc/self/mountinfo",
                "30 1 0:1 /docker/abc /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n31 1 0:2 /docker/abc /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n",
            ),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "4294967296\n"),
            ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "150000\n"),
            ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n"),
        ]);
        let limits = limits(dir.path());
        assert_eq!(limits.cgroup.as_deref(), Some("v1"));
        assert_eq!(limits.memory_bytes, Some(4 << 30));
        assert_eq!(limits.quota_cpus, Some(1.5));
        assert!(limits.unknown.contains_key("cpuset_cpus"));
    }

    #[test]
    fn the_smallest_v2_limit_on_the_way_up_counts() {
        let dir = tree(&[
            ("proc/self/cgroup", "0::/a/b\n"),
            ("proc/self/mountinfo", "30 1 0:1 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"),
            ("sys/fs/cgroup/a/memory.max", "1000\n"),
            ("sys/fs/cgroup/a/b/memory.max", "max\n"),
            ("sys/fs/cgroup/a/cpu.max", "max 100000\n"),
            ("sys/fs/cgroup/a/b/cpu.max", "50000 100000\n"),
            ("sys/fs/cgroup/a/b/cpuset.cpus.effective", "0-1\n"),
        ]);
        let limits = limits(dir.path());
        assert_eq!((limits.memory_bytes, limits.quota_cpus, limits.cpuset_cpus), (Some(1000), Some(0.5), Some(2)));
        assert_eq!(limits.cgroup.as_deref(), Some("v2"));
        assert!(limits.unknown.is_empty());
    }

    #[test]
    fn unlimited_is_written_in_three_ways() {
        for text in ["max", "-1", "9223372036854771712"] {
            assert_eq!(limit(text), Some(None), "{text}");
        }
        assert_eq!(limit("0"), Some(Some(0)));
    }

    #[test]
    fn what_no_limit_can_be_is_unknown_and_not_unlimited() {
        for text in ["0 0", "0 100000", "-5 100000", "nan 100000", "50000", "max 0", "1e3 10"] {
            let dir = tree(&[
                ("proc/self/cgroup", "0::/a\n"),
                ("proc/self/mountinfo", "30 1 0:1 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"),
                ("sys/fs/cgroup/a/cpu.max", text),
                ("sys/fs/cgroup/a/memory.max", "-9223372036854775808"),
            ]);
            let limits = limits(dir.path());
            assert_eq!((limits.quota_cpus, limits.memory_bytes), (None, None), "{text}");
            assert!(limits.unknown["quota_cpus"].contains("cpu.max reads"), "{limits:?}");
            assert!(limits.unknown.contains_key("memory_bytes"), "{limits:?}");
        }
    }

    #[test]
    fn a_group_without_a_controller_is_held_to_the_limits_above_it() {
        let dir = tree(&[
            ("proc/self/cgroup", "4:cpu:/a/b\n0::/a/b\n"),
            ("proc/self/mountinfo", "30 1 0:1 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n31 1 0:2 / /cpu rw - cgroup cgroup rw,cpu\n"),
            ("sys/fs/cgroup/a/memory.max", "1000\n"),
            ("sys/fs/cgroup/a/b/cgroup.procs", ""),
            ("cpu/a/b/cpu.cfs_quota_us", "-1\n"),
            ("cpu/a/b/cpu.cfs_period_us", "100000\n"),
            ("cpu/a/cpu.cfs_quota_us", "50000\n"),
            ("cpu/a/cpu.cfs_period_us", "100000\n"),
        ]);
        let limits = limits(dir.path());
        assert_eq!((limits.memory_bytes, limits.quota_cpus), (Some(1000), Some(0.5)));
    }

    #[test]
    fn no_mount_is_unknown_and_not_unlimited() {
        let dir = tree::<&str>(&[]);
        let limits = limits(dir.path());
        assert_eq!(limits.cgroup, None);
        assert!(limits.unknown.contains_key("memory_bytes") && limits.unknown.contains_key("quota_cpus"));
    }
}
