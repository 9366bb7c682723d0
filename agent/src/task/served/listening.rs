//! Who listens on which port of this machine: from the sockets that processes hold, and the kernel's table of listeners.

use crate::processes;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// State of a listening socket in `/proc/net/tcp`.
const LISTEN: &str = "0A";

/// Ports of 127.0.0.1 on which a process below this one listens, and nobody else does.
pub fn ports() -> BTreeSet<u16> {
    let own: BTreeSet<u64> = processes::descendants(std::process::id() as i32).into_iter().flat_map(sockets).collect();
    let table = fs::read_to_string("/proc/net/tcp").unwrap_or_default();
    ours(&table, &own)
}

/// Inodes of the sockets that a process has open.
fn sockets(pid: i32) -> Vec<u64> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    entries.filter_map(|entry| inode(&fs::read_link(entry.path()).ok()?)).collect()
}

fn inode(link: &Path) -> Option<u64> {
    link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

/// `own`: inodes. A port that others listen on as well, at any address, is none: who answers there couldn't be told.
fn ours(table: &str, own: &BTreeSet<u64>) -> BTreeSet<u16> {
    let loopback = format!("{:08X}", u32::from_ne_bytes([127, 0, 0, 1]));
    let listeners: Vec<(&str, u16, u64)> = table
        .lines()
        .filter_map(|line| {
            // number address remote state queues timer retransmits uid timeout inode
            let fields: Vec<&str> = line.split_whitespace().collect();
            let (address, port) = fields.get(1)?.split_once(':')?;
            (fields.get(3) == Some(&LISTEN)).then_some(())?;
            Some((address, u16::from_str_radix(port, 16).ok()?, fields.get(9)?.parse().ok()?))
        })
        .collect();
    let others: BTreeSet<u16> = listeners.iter().filter(|(_, _, inode)| !own.contains(inode)).map(|(_, port, _)| *port).collect();
    let found = listeners.iter().filter(|(address, port, inode)| *address == loopback && own.contains(inode) && !others.contains(port));
    found.map(|(_, port, _)| *port).collect()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn only_loopback_listeners_of_ours_count_and_only_where_nobody_else_listens() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 11 1 0 100 0 0 10 0
   1: 0100007F:1F91 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 12 1 0 100 0 0 10 0
   2: 00000000:1F91 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 99 1 0 100 0 0 10 0
   3: 00000000:1F92 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 13 1 0 100 0 0 10 0
   4: 0100007F:1F93 0100007F:C000 01 00000000:00000000 00:00000000 00000000     0        0 14 1 0 100 0 0 10 0
   5: 0100007F:1F94 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 98 1 0 100 0 0 10 0
";
        assert_eq!(ours(table, &[11, 12, 13, 14].into()), [8080].into());
    }

    #[test]
    fn a_socket_of_this_process_is_found_in_the_kernels_table() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let own: BTreeSet<u64> = sockets(std::process::id() as i32).into_iter().collect();
        let table = fs::read_to_string("/proc/net/tcp").unwrap();
        assert!(ours(&table, &own).contains(&port));
        assert!(!ours(&table, &BTreeSet::new()).contains(&port));
    }
}
