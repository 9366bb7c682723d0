//! What a run uses of GPUs by way of the kernel's display drivers, as `fdinfo` of its processes' descriptors tells it.
//!
//! Takes the run's first process, gives engine time and memory by device; must not know what is measured. Looked at once a second, at a
//! cost of some microseconds per open descriptor, and not at all where there is no such device.

use crate::looking::Looking;
use crate::{processes, sys};
use isotherm_wire::result::DrmUse;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// Devices of the kernel's display drivers.
const DEVICES: &str = "dev/dri";
/// The first look, ns: a program needs that long to open its device; and the distance of all others.
const FIRST_NS: u64 = 100_000_000;
const EVERY_NS: u64 = 1_000_000_000;

/// Look at the processes below `init`; `None` where there is nothing to look for.
pub fn watch(init: i32) -> Option<io::Result<Looking<Vec<DrmUse>>>> {
    let root = PathBuf::from("/");
    let is_there = root.join(DEVICES).exists();
    is_there.then(|| {
        Looking::start("drm", move |stopped| {
            let mut seen = Seen::default();
            let mut wait = FIRST_NS;
            while !stopped.within(wait) {
                seen.look(&root, &processes::descendants(init), sys::monotonic_ns());
                wait = EVERY_NS;
            }
            seen.told()
        })
    })
}

/// Driver and device.
type Device = (String, String);

/// All clients that were ever seen: the time of one that is gone counts on.
#[derive(Default)]
struct Seen {
    /// By the driver's number of each, so that a descriptor that was duplicated or inherited is counted once.
    clients: BTreeMap<(Device, u64), BTreeMap<String, u64>>,
    /// The most that all of them together held at one look, by region.
    memory: BTreeMap<Device, BTreeMap<String, u64>>,
    last_ns: BTreeMap<Device, u64>,
}

impl Seen {
    fn look(&mut self, root: &Path, pids: &[i32], now_ns: u64) {
        let mut held: BTreeMap<(Device, u64), BTreeMap<String, u64>> = BTreeMap::new();
        for client in pids.iter().flat_map(|pid| clients(&root.join(format!("proc/{pid}")))) {
            let key = (client.device, client.id);
            self.last_ns.insert(key.0.clone(), now_ns);
            // Counters: what was read last is the most, but for a driver that steps back.
            let engines = self.clients.entry(key.clone()).or_default();
            for (engine, ns) in client.engines {
                let most = engines.entry(engine).or_default();
                *most = ns.max(*most);
            }
            held.insert(key, client.memory);
        }
        let mut now: BTreeMap<Device, BTreeMap<String, u64>> = BTreeMap::new();
        for ((device, _), regions) in held {
            let sums = now.entry(device).or_default();
            regions.into_iter().for_each(|(region, bytes)| *sums.entry(region).or_default() += bytes);
        }
        for (device, regions) in now {
            let peaks = self.memory.entry(device).or_default();
            for (region, bytes) in regions {
                let peak = peaks.entry(region).or_default();
                *peak = bytes.max(*peak);
            }
        }
    }

    fn told(self) -> Vec<DrmUse> {
        let Seen { clients, mut memory, last_ns } = self;
        let mut engines_ns: BTreeMap<Device, BTreeMap<String, u64>> = BTreeMap::new();
        for ((device, _), engines) in clients {
            let sums = engines_ns.entry(device).or_default();
            engines.into_iter().for_each(|(engine, ns)| *sums.entry(engine).or_default() += ns);
        }
        let told = |(device, seen_ns): (Device, u64)| DrmUse {
            engines_ns: engines_ns.remove(&device).unwrap_or_default(),
            memory_bytes: memory.remove(&device).unwrap_or_default(),
            driver: device.0,
            device: device.1,
            seen_ns,
        };
        last_ns.into_iter().map(told).collect()
    }
}

/// One open device as its driver describes it.
struct Client {
    device: Device,
    id: u64,
    /// ns.
    engines: BTreeMap<String, u64>,
    /// Bytes.
    memory: BTreeMap<String, u64>,
}

/// Those of one process.
fn clients(process: &Path) -> Vec<Client> {
    let of_descriptor = |entry: fs::DirEntry| {
        // Reading a link is cheap; only those of a device are read further.
        let target = fs::read_link(entry.path()).ok().filter(|target| target.starts_with(Path::new("/").join(DEVICES)))?;
        let text = fs::read_to_string(process.join("fdinfo").join(entry.file_name())).ok()?;
        client(&text, &target.display().to_string())
    };
    fs::read_dir(process.join("fd")).into_iter().flatten().flatten().filter_map(of_descriptor).collect()
}

/// Driver and engines of a device whose times are told to whoever opens it, as we do; it is closed again.
///
/// # Errors
/// What the system says of opening it.
pub fn engines(node: &Path) -> io::Result<Option<(String, Vec<String>)>> {
    let device = File::open(node)?;
    let text = fs::read_to_string(format!("/proc/self/fdinfo/{}", device.as_raw_fd()))?;
    let client = client(&text, &node.display().to_string()).filter(|client| !client.engines.is_empty());
    Ok(client.map(|client| (client.device.0, client.engines.into_keys().collect())))
}

/// What the kernel's document `drm-usage-stats` describes; `None` for a driver that tells nothing.
fn client(text: &str, node: &str) -> Option<Client> {
    let fields: Vec<(&str, &str)> = text.lines().filter_map(|line| line.split_once(':')).map(|(name, value)| (name, value.trim())).collect();
    let of = |name: &str| fields.iter().find(|(field, _)| *field == name).map(|(_, value)| *value);
    // A device that is no PCI one is known by its node.
    let device = (of("drm-driver")?.to_owned(), of("drm-pdev").unwrap_or(node).to_owned());
    let below = |prefix: &str, read: fn(&str) -> Option<u64>| -> BTreeMap<String, u64> {
        fields.iter().filter_map(|(name, value)| Some((name.strip_prefix(prefix)?.to_owned(), read(value)?))).collect()
    };
    let mut engines = below("drm-engine-", |value| value.strip_suffix(" ns")?.parse().ok());
    // Of several engines of one kind the driver says how many there are: no time.
    engines.retain(|engine, _| !engine.starts_with("capacity-"));
    // Older drivers have the first, newer ones the second; both mean what is in that memory now.
    let memory = Some(below("drm-memory-", bytes)).filter(|regions| !regions.is_empty()).unwrap_or_else(|| below("drm-resident-", bytes));
    Some(Client { device, id: of("drm-client-id")?.parse().ok()?, engines, memory })
}

/// `123 KiB`.
fn bytes(text: &str) -> Option<u64> {
    let (number, unit) = text.split_once(' ').unwrap_or((text, ""));
    let factor = match unit.trim() {
        "" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(factor)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use std::os::unix::fs::symlink;

    const AMDGPU: &str = "pos:\t0\nflags:\t02100002\ndrm-driver:\tamdgpu\ndrm-client-id:\t7\ndrm-pdev:\t0000:03:00.0\n\
        drm-memory-vram:\t2048 KiB\ndrm-memory-gtt: \t1 MiB\ndrm-engine-gfx:\t1000 ns\ndrm-engine-compute:\t500 ns\n";

    /// A process with these descriptors: number, device, what `fdinfo` says.
    fn process(root: &Path, pid: i32, descriptors: &[(u32, &str, String)]) {
        let dir = root.join(format!("proc/{pid}"));
        let _ = fs::remove_dir_all(&dir);
        for part in ["fd", "fdinfo"] {
            fs::create_dir_all(dir.join(part)).unwrap();
        }
        for (fd, target, text) in descriptors {
            symlink(target, dir.join(format!("fd/{fd}"))).unwrap();
            fs::write(dir.join(format!("fdinfo/{fd}")), text).unwrap();
        }
    }

    #[test]
    fn time_is_summed_over_clients_each_counted_once_and_memory_is_the_most_at_one_look() {
        let dir = tempfile::tempdir().unwrap();
        let node = "/dev/dri/renderD128";
        let second = || AMDGPU.replace("client-id:\t7", "client-id:\t8").replace("1000 ns", "40 ns");
        let mut seen = Seen::default();
        // A descriptor that was duplicated, and inherited by a child; a file that is none of a GPU.
        process(dir.path(), 10, &[(3, node, AMDGPU.into()), (4, node, AMDGPU.into()), (5, "/tmp/x", AMDGPU.replace("\t7", "\t9"))]);
        process(dir.path(), 11, &[(3, node, AMDGPU.into()), (6, node, second())]);
        seen.look(dir.path(), &[10, 11, 12], 1);
        // The second client has gone with its process; the first has worked on and holds less.
        process(dir.path(), 10, &[(3, node, AMDGPU.replace("1000 ns", "9000 ns").replace("2048 KiB", "512 KiB"))]);
        seen.look(dir.path(), &[10], 2);
        let [used] = &seen.told()[..] else { panic!("one device") };
        assert_eq!((used.driver.as_str(), used.device.as_str(), used.seen_ns), ("amdgpu", "0000:03:00.0", 2));
        assert_eq!(used.engines_ns, [("compute".to_owned(), 1000), ("gfx".to_owned(), 9040)].into());
        assert_eq!(used.memory_bytes, [("gtt".to_owned(), 2 << 20), ("vram".to_owned(), 4 << 20)].into());
    }

    #[test]
    fn a_driver_of_a_board_has_its_node_and_one_that_tells_nothing_is_not_there() {
        let v3d = "drm-driver:\tv3d\ndrm-client-id:\t3\ndrm-engine-render:\t12 ns\ndrm-engine-capacity-render:\t2\ndrm-resident-memory:\t4 KiB\n";
        let client = client(v3d, "/dev/dri/renderD129").unwrap();
        assert_eq!(client.device, ("v3d".to_owned(), "/dev/dri/renderD129".to_owned()));
        assert_eq!((client.engines, client.memory), ([("render".to_owned(), 12)].into(), [("memory".to_owned(), 4096)].into()));
        assert!(super::client("pos:\t0\nflags:\t02\n", "/dev/dri/card0").is_none());
        assert_eq!((bytes("1 GiB"), bytes("many KiB"), bytes("17")), (None, None, Some(17)));
    }
}
