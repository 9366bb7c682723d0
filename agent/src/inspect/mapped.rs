//! Files that a workload has mapped executable from outside the system directories: the libraries that ran and that argv doesn't name.
//!
//! Looked at every few milliseconds after the start and then ever more rarely: a look costs a fraction of a millisecond per process.
//! What is mapped for less than that can be missed.

use crate::looking::Looking;
use crate::processes::descendants;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Directories whose content belongs to the operating system, whose version the record has.
const SYSTEM: [&str; 12] = [
    "/bin/",
    "/sbin/",
    "/usr/bin/",
    "/usr/sbin/",
    "/lib/",
    "/lib32/",
    "/lib64/",
    "/usr/lib/",
    "/usr/lib32/",
    "/usr/lib64/",
    "/usr/libexec/",
    "/usr/share/",
];
/// Looks follow each other at this distance while programs usually start, ns; afterwards each waits twice as long as the last.
const LOOK_NS: u64 = 5_000_000;
const DENSE_LOOKS: u32 = 40;
const LONGEST_WAIT_NS: u64 = 30_000_000_000;

/// Look at the processes below `init`.
pub fn watch(init: i32) -> io::Result<Looking<BTreeSet<PathBuf>>> {
    Looking::start("mapped", move |stopped| {
        let mut found = BTreeSet::new();
        let mut wait = LOOK_NS;
        let mut looks = 0;
        while !stopped.within(wait) {
            for pid in descendants(init) {
                if let Ok(maps) = fs::read_to_string(format!("/proc/{pid}/maps")) {
                    found.extend(libraries(&maps));
                }
            }
            looks += 1;
            if looks > DENSE_LOOKS {
                wait = (wait * 2).min(LONGEST_WAIT_NS);
            }
        }
        // The agent is below `init` for an instant, and its own file is no part of a workload.
        if let Ok(own) = fs::read_link("/proc/self/exe") {
            found.remove(&own);
        }
        found
    })
}

/// Executable mappings of files outside the system.
fn libraries(maps: &str) -> impl Iterator<Item = PathBuf> + '_ {
    maps.lines().filter_map(|line| {
        // address permissions offset device inode path
        let mut fields = line.splitn(6, ' ');
        let permissions = fields.nth(1)?;
        let path = fields.nth(3)?.trim_start();
        let counts = permissions.contains('x')
            && path.starts_with('/')
            && !path.ends_with(" (deleted)")
            && !path.starts_with("/memfd:")
            && !SYSTEM.iter().any(|dir| path.starts_with(dir));
        counts.then(|| Path::new(path).to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_code_from_outside_the_system_counts() {
        let maps = "\
55d0-55d1 r--p 00000000 fe:01 11 /opt/tool/bin/tool
55d1-55d2 r-xp 00001000 fe:01 11                         /opt/tool/bin/tool
7f00-7f01 r-xp 00001000 fe:01 12                         /usr/lib/x86_64-linux-gnu/libc.so.6
7f02-7f03 r-xp 00001000 fe:01 13                         /opt/tool/lib/lib with space.so
7f04-7f05 r-xp 00001000 fe:01 14                         /opt/old.so (deleted)
7f06-7f07 r--p 00001000 fe:01 15                         /models/m.gguf
7fff-8000 r-xp 00000000 00:00 0                          [vdso]
";
        let found: Vec<PathBuf> = libraries(maps).collect();
        assert_eq!(found, [PathBuf::from("/opt/tool/bin/tool"), PathBuf::from("/opt/tool/lib/lib with space.so")]);
    }
}
