//! How many packets the machine's network links have carried, below a root.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Packets in and out of every link but the loopback since it is there, by name.
pub struct Links(BTreeMap<String, u64>);

impl Links {
    /// Read them; `None` where the kernel doesn't tell, or there is no link.
    pub fn read(root: &Path) -> Option<Links> {
        let table = fs::read_to_string(root.join("proc/net/dev")).ok()?;
        // Two lines of headings.
        let links: Option<BTreeMap<String, u64>> = table.lines().skip(2).map(link).collect();
        let mut links = links?;
        links.remove("lo");
        (!links.is_empty()).then_some(Links(links))
    }

    /// Packets since an earlier reading; `None` where a link has gone, or was made anew, in between.
    pub fn since(&self, earlier: &Links) -> Option<u64> {
        let is_there = earlier.0.keys().all(|name| self.0.contains_key(name));
        let of = |(name, packets): (&String, &u64)| packets.checked_sub(earlier.0.get(name).copied().unwrap_or(0));
        is_there.then(|| self.0.iter().map(of).sum::<Option<u64>>())?
    }
}

/// Name and packets of a line.
fn link(line: &str) -> Option<(String, u64)> {
    let (name, numbers) = line.split_once(':')?;
    let numbers: Vec<u64> = numbers.split_whitespace().map_while(|number| number.parse().ok()).collect();
    // Eight of what came in, then as many of what went out; packets are the second of each.
    Some((name.trim().to_owned(), numbers.get(1)?.checked_add(*numbers.get(9)?)?))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    /// As Linux 6.1 says it on a machine with a cable; synthetic numbers.
    fn table(eth0: [u64; 2], more: &str) -> String {
        let [received, sent] = eth0;
        format!(
            "Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo: 10000      99    0    0    0     0          0         0    10000      99    0    0    0     0       0          0
  eth0:123456789 {received}    0    7    0     0          0        12 98765432 {sent}    0    0    0     0       0          0
{more}"
        )
    }

    fn read(table: &str) -> Option<Links> {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("proc/net")).unwrap();
        fs::write(root.path().join("proc/net/dev"), table).unwrap();
        Links::read(root.path())
    }

    #[test]
    fn packets_of_all_links_but_the_loopback_are_added_up() {
        let before = read(&table([1000, 2000], "")).unwrap();
        assert_eq!(read(&table([1003, 2004], "")).unwrap().since(&before), Some(7));
        let tunnel = "  tun0: 9 5 0 0 0 0 0 0 9 6 0 0 0 0 0 0\n";
        let both = read(&table([1000, 2000], tunnel)).unwrap();
        assert_eq!(both.since(&before), Some(11), "what comes up meanwhile counts from its beginning");
        assert_eq!((before.since(&both), read(&table([0, 2], "")).unwrap().since(&before)), (None, None));
    }

    #[test]
    fn without_a_link_or_with_a_table_of_another_form_there_is_no_number() {
        let alone = table([0, 0], "").lines().take(3).collect::<Vec<_>>().join("\n");
        for table in [alone, table([1, 2], "wlan0 5 6\n"), table([1, 2], "wlan0: 5 6\n")] {
            assert!(read(&table).is_none(), "{table}");
        }
        assert!(Links::read(Path::new("/nowhere")).is_none());
    }
}
