//! Who listens on which port of this machine: from the sockets that processes hold, and the kernel's table of listeners.

use crate::processes;
use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;

/// State of a listening socket in `/proc/net/tcp`.
const LISTEN: &str = "0A";
/// The kernel's tables of sockets, of IPv4 and of IPv6.
const TABLES: [&str; 2] = ["/proc/net/tcp", "/proc/net/tcp6"];

/// Where processes below this one listen.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Listening {
    /// Ports of 127.0.0.1, or of all addresses, on which nobody else listens.
    pub ports: BTreeSet<u16>,
    /// Where they can't be asked, or where others may be who answers.
    elsewhere: BTreeSet<SocketAddr>,
}

impl Listening {
    pub fn now() -> Listening {
        let own: BTreeSet<u64> = processes::descendants(std::process::id() as i32).into_iter().flat_map(sockets).collect();
        let tables: String = TABLES.iter().map(|path| fs::read_to_string(path).unwrap_or_default()).collect();
        ours(&tables, &own)
    }

    /// Why nobody was asked.
    pub fn why_none(&self) -> String {
        let elsewhere: Vec<String> = self.elsewhere.iter().map(SocketAddr::to_string).collect();
        match elsewhere.is_empty() {
            true => "it listens on no port".into(),
            false => format!("it is asked on 127.0.0.1, and has no port there for itself: it listens on {}", elsewhere.join(", ")),
        }
    }
}

/// Inodes of the sockets that a process has open.
fn sockets(pid: i32) -> Vec<u64> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    entries.filter_map(|entry| inode(&fs::read_link(entry.path()).ok()?)).collect()
}

fn inode(link: &Path) -> Option<u64> {
    link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

/// `own`: inodes. A port that others listen on as well, at any address, is none: who answers there couldn't be told. One of theirs of IPv6 is
/// another port.
fn ours(tables: &str, own: &BTreeSet<u64>) -> Listening {
    let (ours, others): (Vec<_>, Vec<_>) = tables.lines().filter_map(listener).partition(|(_, inode)| own.contains(inode));
    let is_shared = |at: &SocketAddr| others.iter().any(|(other, _)| other.is_ipv4() && other.port() == at.port());
    let is_asked = |at: &SocketAddr| [Ipv4Addr::LOCALHOST, Ipv4Addr::UNSPECIFIED].map(IpAddr::from).contains(&at.ip()) && !is_shared(at);
    let (asked, elsewhere): (Vec<SocketAddr>, Vec<SocketAddr>) = ours.into_iter().map(|(at, _)| at).partition(is_asked);
    Listening { ports: asked.iter().map(SocketAddr::port).collect(), elsewhere: elsewhere.into_iter().collect() }
}

/// Address and inode of a listening socket.
fn listener(line: &str) -> Option<(SocketAddr, u64)> {
    // number address remote state queues timer retransmits uid timeout inode
    let fields: Vec<&str> = line.split_whitespace().collect();
    (fields.get(3) == Some(&LISTEN)).then_some(())?;
    let (ip, port) = fields.get(1)?.split_once(':')?;
    Some((SocketAddr::new(address(ip)?, u16::from_str_radix(port, 16).ok()?), fields.get(9)?.parse().ok()?))
}

/// Words of 32 bits as they lie in memory: one of IPv4, four of IPv6.
fn address(hex: &str) -> Option<IpAddr> {
    let word = |digits| Some(u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?.to_ne_bytes());
    let bytes = hex.as_bytes().chunks(8).map(word).collect::<Option<Vec<[u8; 4]>>>()?.concat();
    let v4 = <[u8; 4]>::try_from(&bytes[..]).map(IpAddr::from);
    v4.or_else(|_| <[u8; 16]>::try_from(&bytes[..]).map(IpAddr::from)).ok()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn only_where_nobody_else_listens_ours_is_asked_and_where_else_it_listens_is_told() {
        let tables = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 11 1 0 100 0 0 10 0
   1: 0100007F:1F91 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 12 1 0 100 0 0 10 0
   2: 00000000:1F91 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 99 1 0 100 0 0 10 0
   3: 00000000:1F92 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 13 1 0 100 0 0 10 0
   4: 0100007F:1F93 0100007F:C000 01 00000000:00000000 00:00000000 00000000     0        0 14 1 0 100 0 0 10 0
   5: 0100007F:1F94 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 98 1 0 100 0 0 10 0
   6: 0200000A:1F95 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 15 1 0 100 0 0 10 0
  sl  local_address                         remote_address                        st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000000000000000000001000000:1F90 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 97 1 0 100 0 0 10 0
   1: 00000000000000000000000001000000:1F96 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 16 1 0 100 0 0 10 0
";
        let of = |own: &[u64]| ours(tables, &own.iter().copied().collect());
        let all = of(&[11, 12, 13, 14, 15, 16]);
        assert_eq!(all.ports, [8080, 8082].into());
        let words = "it is asked on 127.0.0.1, and has no port there for itself: it listens on ";
        assert_eq!(of(&[12, 15, 16]).why_none(), format!("{words}10.0.0.2:8085, 127.0.0.1:8081, [::1]:8086"));
        assert_eq!((of(&[14]), of(&[14]).why_none().as_str()), (Listening::default(), "it listens on no port"));
    }

    #[test]
    fn a_socket_of_this_process_is_found_in_the_kernels_tables() {
        let own = || sockets(std::process::id() as i32).into_iter().collect::<BTreeSet<u64>>();
        let table = |path| fs::read_to_string(path).unwrap();
        for address in ["127.0.0.1:0", "0.0.0.0:0"] {
            let listener = TcpListener::bind(address).unwrap();
            let port = listener.local_addr().unwrap().port();
            assert!(ours(&table(TABLES[0]), &own()).ports.contains(&port));
            assert!(!ours(&table(TABLES[0]), &BTreeSet::new()).ports.contains(&port));
        }
        // Not every machine has IPv6.
        let Ok(listener) = TcpListener::bind("[::1]:0") else { return };
        assert!(ours(&table(TABLES[1]), &own()).elsewhere.contains(&listener.local_addr().unwrap()));
    }
}
