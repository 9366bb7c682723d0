//! Where the time of a large plan goes: reading, expanding, identities, comparing with what is stored. Prints a table, asserts nothing.
//!
//! `cargo bench --bench expansion [-- POINTS]`

use isotherm::plan::{diff, expand, identity};
use isotherm::store::index::Scan;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

const RUNS: usize = 5;

fn campaign(n_points: usize) -> String {
    let side = (n_points as f64).sqrt().ceil() as usize;
    let values = |n: usize| (0..n).map(|i| i.to_string()).collect::<Vec<_>>().join(", ");
    format!(
        "devices: {{ here: {{ local: {{}} }} }}
matrix:
  - {{ devices: here, backend: command, params: {{ a: [{}], b: [{}] }}, argv: [./bench, \"{{a}}\", \"{{b}}\"] }}
",
        values(side),
        values(side)
    )
}

fn main() {
    let n_points = std::env::args().filter_map(|arg| arg.parse().ok()).next().unwrap_or(100_000);
    let text = campaign(n_points);
    let mut steps: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    let mut counts = (0, 0);
    for _ in 0..RUNS {
        let mut timed = |name, start: Instant| steps.entry(name).or_default().push(start.elapsed().as_secs_f64() * 1000.0);
        let start = Instant::now();
        let campaign = isotherm::config::parse(&text, Path::new("/c/x.yaml")).expect("a campaign");
        timed("1 read the file", start);
        let start = Instant::now();
        let plan = expand::expand(&campaign, &BTreeMap::new()).expect("a plan");
        timed("2 expand to points", start);
        let start = Instant::now();
        let identities = identity::of_points(&plan.points, &BTreeMap::new());
        timed("3 identities, device never asked", start);
        let start = Instant::now();
        let scan = Scan::default();
        let known =
            diff::Known { plan: &plan, identities: &identities, reports: &BTreeMap::new(), scan: &scan, device: None, results: Path::new("/none") };
        let jobs = diff::diff(known);
        timed("4 jobs in the order of the night", start);
        counts = (plan.points.len(), jobs.len());
    }
    println!("{} points, {} jobs, {RUNS} runs, ms", counts.0, counts.1);
    println!("{:36} {:>8} {:>8} {:>8}", "", "min", "median", "max");
    for (step, mut times) in steps {
        times.sort_by(f64::total_cmp);
        println!("{step:36} {:8.1} {:8.1} {:8.1}", times[0], times[RUNS / 2], times[RUNS - 1]);
    }
}
