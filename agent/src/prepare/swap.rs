//! `reset_swap`: every swap area that is in use off and on again, one after the other; each that was on is on when it is over.

use super::act::{Act, Action};
use super::journal::Kind;
use super::{Bench, Stop};
use crate::inspect::machine::kib;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Component, Path};

/// What the kernel appends to an area whose file was removed.
const DELETED: &str = " (deleted)";

/// One line of `/proc/swaps`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Area {
    path: String,
    used_bytes: u64,
    /// Below 0 = chosen by the kernel.
    priority: i32,
}

/// Why there is nothing to do, or that there is.
#[derive(Debug, PartialEq, Eq)]
enum Decision {
    Reset,
    NotInUse,
    /// Its pages would hardly fit.
    TooLittleMemory,
}

/// In use, and available memory of at least 1.25 times that.
fn decide(used_bytes: u64, available_bytes: u64) -> Decision {
    if used_bytes == 0 {
        Decision::NotInUse
    } else if available_bytes / 5 < used_bytes.div_ceil(4) {
        Decision::TooLittleMemory
    } else {
        Decision::Reset
    }
}

pub fn reading(root: &Path) -> Option<Value> {
    let areas = areas(root)?;
    let on: Vec<&str> = areas.iter().map(|area| area.path.as_str()).collect();
    Some(json!({ "swap_used_bytes": used(&areas), "mem_available_bytes": available(root), "areas": on }))
}

pub fn reset(bench: &mut Bench<'_>) -> Result<(), Stop> {
    let root = bench.root;
    let areas = areas(root).ok_or_else(|| Stop::Unsupported("this kernel has no swap".into()))?;
    let used_bytes = used(&areas);
    if areas.is_empty() {
        return Err(Stop::Skipped("no swap area is on".into()));
    }
    let available_bytes = available(root).ok_or_else(|| Stop::Unsupported("the kernel doesn't say how much memory is available".into()))?;
    match decide(used_bytes, available_bytes) {
        Decision::Reset => {}
        Decision::NotInUse => return Err(Stop::Skipped("no swap is in use".into())),
        Decision::TooLittleMemory => {
            let mib = |bytes: u64| bytes.div_ceil(1 << 20);
            let (used, available) = (mib(used_bytes), mib(available_bytes));
            return Err(Stop::Skipped(format!("{used} MiB of swap are in use, and no 1.25 times that are available: {available} MiB")));
        }
    }
    for area in areas.iter().filter(|area| area.used_bytes > 0) {
        let path = as_area(root, &area.path).ok_or_else(|| Stop::Unsupported(format!("swap area {:?} can't be found by its name", area.path)))?;
        bench.borrow(Kind::SwapArea, &[(path.to_owned(), area.priority.to_string())])?;
        let off = bench.act.act(&Action::SwapOff { area: path.to_owned() });
        if let Err(hangs @ Stop::Hangs(_)) = off {
            return Err(hangs);
        }
        // Whatever came of it: a swapoff that ran out of memory leaves the area on, another may not.
        bring_back(root, bench.act, path, area.priority)?;
        bench.returned(Kind::SwapArea, path)?;
        off?;
    }
    Ok(())
}

/// Switch an area on unless it is.
pub fn bring_back(root: &Path, act: &mut dyn Act, area: &str, priority: i32) -> Result<(), Stop> {
    if !is_on(root, area) {
        // The kernel has 15 bits for one that is chosen.
        let priority = u16::try_from(priority).ok().filter(|priority| *priority < 0x8000);
        act.act(&Action::SwapOn { area: area.to_owned(), priority })?;
    }
    if is_on(root, area) { Ok(()) } else { Err(Stop::Failed(format!("swap area {area} is not on"))) }
}

pub fn is_on(root: &Path, area: &str) -> bool {
    areas(root).unwrap_or_default().iter().any(|on| on.path == area)
}

/// A path that can be a swap area, and that a tool takes for nothing else: absolute, plain, a regular file or a block device.
pub fn as_area<'a>(root: &Path, path: &'a str) -> Option<&'a str> {
    let plain = |component: Component<'_>| matches!(component, Component::RootDir | Component::Normal(_));
    let fits = path.starts_with('/') && Path::new(path).components().all(plain) && !path.chars().any(char::is_control);
    let kind = fs::metadata(root.join(path.trim_start_matches('/'))).ok()?.file_type();
    (fits && (kind.is_file() || kind.is_block_device())).then_some(path)
}

/// Paths and priorities of the areas that are on.
pub fn on(root: &Path) -> Vec<(String, i32)> {
    areas(root).unwrap_or_default().into_iter().map(|area| (area.path, area.priority)).collect()
}

fn areas(root: &Path) -> Option<Vec<Area>> {
    Some(parse(&fs::read_to_string(root.join("proc/swaps")).ok()?))
}

fn used(areas: &[Area]) -> u64 {
    areas.iter().map(|area| area.used_bytes).sum()
}

fn available(root: &Path) -> Option<u64> {
    kib(&fs::read_to_string(root.join("proc/meminfo")).ok()?, "MemAvailable")
}

/// `Filename Type Size Used Priority`, sizes in KiB.
fn parse(swaps: &str) -> Vec<Area> {
    let area = |line: &str| {
        let [path, _, _, used, priority] = line.split_whitespace().collect::<Vec<_>>().try_into().ok()?;
        let used_bytes = used.parse::<u64>().ok()?.checked_mul(1024)?;
        Some(Area { path: unescaped(path), used_bytes, priority: priority.parse().ok()? })
    };
    swaps.lines().skip(1).filter_map(area).filter(|area| !area.path.ends_with(DELETED)).collect()
}

/// The kernel writes blanks, tabs, newlines and backslashes as `\040`.
fn unescaped(path: &str) -> String {
    let mut parts = path.split('\\');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        match part.get(..3).and_then(|octal| u8::from_str_radix(octal, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                bytes.extend_from_slice(&part.as_bytes()[3..]);
            }
            None => bytes.extend_from_slice(format!("\\{part}").as_bytes()),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swap_is_reset_only_where_its_pages_fit_with_room() {
        assert_eq!(decide(0, 0), Decision::NotInUse);
        assert_eq!(decide(400, 499), Decision::TooLittleMemory);
        assert_eq!(decide(400, 500), Decision::Reset);
        assert_eq!(decide(u64::MAX, u64::MAX), Decision::TooLittleMemory);
    }

    #[test]
    fn areas_are_read_as_the_kernel_writes_them() {
        let swaps = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n\
                     /dev/zram0                              partition\t1024\t\t512\t\t100\n\
                     /var/my\\040swap                         file\t\t2048\t\t0\t\t-2\n\
                     /var/gone\\040(deleted)                  file\t\t2048\t\t8\t\t-3\n";
        let area = |path: &str, used_bytes, priority| Area { path: path.into(), used_bytes, priority };
        assert_eq!(parse(swaps), [area("/dev/zram0", 512 << 10, 100), area("/var/my swap", 0, -2)]);
    }

    #[test]
    fn only_a_plain_path_of_a_file_or_device_is_an_area() {
        let root = Path::new("/");
        assert_eq!(as_area(root, "/proc/self/exe"), Some("/proc/self/exe"));
        for path in ["", "-a", "proc/self/exe", "/proc/../proc/self/exe", "/", "/nowhere", "/dev/null"] {
            assert_eq!(as_area(root, path), None, "{path:?}");
        }
    }
}
