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
        let directory = |own_path: &str| {
            let below = own_path.strip_prefix(mount_root.trim_end_matches('/')).unwrap_or("").trim_start_matches('/');
            root.join(mount_point.trim_start_matches('/')).join(below)
        };
        match kind {
            "cgroup2" => {
                if let Some((_, path)) = paths.iter().find(|(controllers, _)| controllers.is_empty()) {
                    groups.unified.get_or_insert(directory(path));
                }
            }
            "cgroup" => {
                for (controllers, path) in &paths {
                    for controller in controllers.split(',').filter(|c| !c.is_empty()) {
                        if right.get(2).is_some_and(|options| options.split(',').any(|o| o == controller)) {
                            groups.v1.entry(controller.to_owned()).or_insert_with(|| directory(path));
                        }
                    }
                }
            }
            _ => {}
        }
    }
    groups
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
    match (v1("cpu"), &groups.unified) {
        (Some(dir), _) => match (number(dir, "cpu.cfs_quota_us"), number(dir, "cpu.cfs_period_us")) {
            (Some(quota), Some(period)) if quota > 0 && period > 0 => limits.quota_cpus = Some(quota as f64 / period as f64),
            (Some(_), Some(_)) => {}
            _ => _ = limits.unknown.insert("quota_cpus".into(), format!("{}/cpu.cfs_quota_us is not readable", dir.display())),
        },
        (None, Some(dir)) => limits.quota_cpus = upwards(dir, "cpu.max").filter_map(|t| quota_v2(&t)).reduce(f64::min),
        (None, None) => _ = limits.unknown.insert("quota_cpus".into(), missing.into()),
    }
    let cpuset = match (v1("cpuset"), &groups.unified) {
        (Some(dir), _) => text(dir, "cpuset.effective_cpus").or_else(|| text(dir, "cpuset.cpus")),
        (None, Some(dir)) => text(dir, "cpuset.cpus.effective"),
        (None, None) => None,
    };
    limits.cpuset_cpus = cpuset.as_deref().and_then(sys::cpu_count);
    if limits.cpuset_cpus.is_none() {
        limits.unknown.insert("cpuset_cpus".into(), missing.into());
    }
    match (v1("memory"), &groups.unified) {
        (Some(dir), _) => limits.memory_bytes = upwards(dir, "memory.limit_in_bytes").filter_map(|t| limit(&t)).min(),
        (None, Some(dir)) => limits.memory_bytes = upwards(dir, "memory.max").filter_map(|t| limit(&t)).min(),
        (None, None) => _ = limits.unknown.insert("memory_bytes".into(), missing.into()),
    }
    limits
}

/// The file's text in this directory and every parent that has it.
fn upwards<'a>(dir: &'a Path, file: &'a str) -> impl Iterator<Item = String> + 'a {
    dir.ancestors().map_while(move |d| text(d, file))
}

fn number(dir: &Path, file: &str) -> Option<i64> {
    text(dir, file)?.parse().ok()
}

/// `max 100000` or `50000 100000`.
fn quota_v2(text: &str) -> Option<f64> {
    let (quota, period) = text.split_once(' ')?;
    Some(quota.parse::<f64>().ok()? / period.parse::<f64>().ok()?)
}

/// `None` for the three ways of writing "unlimited": `max`, `-1`, and the largest page-aligned i64 (any page size).
fn limit(text: &str) -> Option<u64> {
    let bytes: i64 = text.parse().ok()?;
    (0..i64::MAX - (64 << 10)).contains(&bytes).then_some(bytes as u64)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (path, content) in files {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        dir
    }

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
            assert_eq!(limit(text), None, "{text}");
        }
        assert_eq!(limit("0"), Some(0));
    }

    #[test]
    fn no_mount_is_unknown_and_not_unlimited() {
        let dir = tree(&[]);
        let limits = limits(dir.path());
        assert_eq!(limits.cgroup, None);
        assert!(limits.unknown.contains_key("memory_bytes") && limits.unknown.contains_key("quota_cpus"));
    }
}
