//! How long finding out what is stored takes: with an index, without one, and hashing everything again. Prints a table, asserts nothing.
//!
//! `cargo bench --bench scan -- RECORD.json [COPIES]`: copies a real record that often, as records of as many points, below `/var/tmp`,
//! and removes them afterwards.

use isotherm::store::{index, seal};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

const RUNS: usize = 5;
/// Points of one device directory.
const PER_DEVICE: usize = 1000;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let Some(record) = args.first() else {
        eprintln!("usage: cargo bench --bench scan -- RECORD.json [COPIES]");
        return;
    };
    let copies: usize = args.get(1).and_then(|n| n.parse().ok()).unwrap_or(100_000);
    let bytes = fs::read(record).expect("a record");
    let dir = PathBuf::from(format!("/var/tmp/isotherm-scan-{}", std::process::id()));
    let start = Instant::now();
    for n in 0..copies {
        let point = dir.join(format!("d{}", n / PER_DEVICE)).join(format!("p{n}-00000000"));
        fs::create_dir_all(&point).expect("/var/tmp can be written");
        fs::write(point.join("timing-r0.json"), &bytes).expect("there is room");
    }
    println!("{copies} records of {} bytes, copied in {:.1} s", bytes.len(), start.elapsed().as_secs_f64());

    let cold = timed(1, || index::scan(&dir).expect("a scan").read);
    let scan = index::scan(&dir).expect("a scan");
    let written = timed(1, || index::write_index(&dir, scan.entries.iter()).map(|()| 0).expect("an index"));
    let warm = timed(RUNS, || index::scan(&dir).expect("a scan").read);
    let hashed = timed(1, || opened(&dir));
    println!("{:44} {:>8} {:>8} {:>8}   records read", "", "min s", "median s", "max s");
    for (what, (times, n)) in
        [("scan without an index", cold), ("write the index", written), ("scan by the index", warm), ("hash and parse all", hashed)]
    {
        println!("{what:44} {:8.2} {:8.2} {:8.2}   {n}", times[0], times[times.len() / 2], times[times.len() - 1]);
    }
    fs::remove_dir_all(&dir).expect("it was made here");
}

/// Times, sorted, and what the last run gave.
fn timed(runs: usize, mut work: impl FnMut() -> usize) -> (Vec<f64>, usize) {
    let mut n = 0;
    let mut times: Vec<f64> = (0..runs)
        .map(|_| {
            let start = Instant::now();
            n = work();
            start.elapsed().as_secs_f64()
        })
        .collect();
    times.sort_by(f64::total_cmp);
    (times, n)
}

/// Every record whose seal fits.
fn opened(dir: &Path) -> usize {
    let entries = |dir: &Path| fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()).collect::<Vec<_>>();
    let points = entries(dir).into_iter().filter(|path| path.is_dir()).flat_map(|device| entries(&device));
    points.filter(|point| fs::read(point.join("timing-r0.json")).is_ok_and(|bytes| seal::open(&bytes).is_ok())).count()
}
