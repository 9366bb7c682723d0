//! Hostile bytes: whatever stands in a frame, a campaign file, a record, a journal, an index or a plan, its reader neither panics nor takes
//! memory out of proportion. A modest number of faults each time, the same ones; `scripts/fuzz` goes on by coverage for as long as one likes.
//!
//! `ISOTHERM_FUZZ_ROUNDS` and `ISOTHERM_FUZZ_SEED` ask for more and for others, `ISOTHERM_FUZZ_INPUT=FILE` for one input.
#![expect(clippy::unwrap_used, reason = "tests")]

#[path = "fuzz/corpus.rs"]
mod corpus;
#[path = "fuzz/memory.rs"]
mod memory;
#[path = "fuzz/mutate.rs"]
mod mutate;
#[path = "fuzz/targets.rs"]
mod targets;

use mutate::{Random, mutated};
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use targets::Target;

#[global_allocator]
static MEMORY: memory::Counting = memory::Counting;

/// Execute an input; one that fails is kept.
fn execute(target: &Target, input: &[u8]) -> bool {
    catch_unwind(AssertUnwindSafe(|| target.execute(input))).unwrap_or_else(|panic| {
        let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}.input", target.name));
        fs::write(&kept, input).unwrap();
        eprintln!("again: ISOTHERM_FUZZ_INPUT={} cargo test --test fuzz {}", kept.display(), target.name);
        resume_unwind(panic)
    })
}

/// Seeds, and so many mutations of them. At least one in `one_in` must still be understood, or they are too rough to reach far.
fn withstands_mutations(name: &str, rounds: usize, one_in: usize) {
    let target = Target::named(name);
    if let Some(file) = std::env::var_os("ISOTHERM_FUZZ_INPUT") {
        target.execute(&fs::read(file).unwrap());
        return;
    }
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let rounds = number("ISOTHERM_FUZZ_ROUNDS").map_or(rounds, |n| usize::try_from(n).unwrap());
    let seed = number("ISOTHERM_FUZZ_SEED").unwrap_or(5);
    println!("{name}: {rounds} rounds with ISOTHERM_FUZZ_SEED={seed}");
    let seeds = target.seeds();
    for input in &seeds {
        execute(target, input);
    }
    let mut random = Random(seed);
    let mut understood = 0;
    for _ in 0..rounds {
        let mut input = seeds[random.below(seeds.len())].clone();
        for _ in 0..=random.below(3) {
            input = mutated(&input, &seeds, &mut random);
        }
        understood += usize::from(execute(target, &input));
    }
    println!("{name}: {understood} were understood");
    assert!(understood * one_in >= rounds, "only {understood} of {rounds} were understood");
}

#[test]
fn frames_with_faults_are_read_or_refused() {
    withstands_mutations("frames", 4000, 20);
}

#[test]
fn a_campaign_with_faults_is_read_or_refused() {
    withstands_mutations("campaign", 1500, 20);
}

#[test]
fn a_record_with_faults_is_read_or_refused() {
    withstands_mutations("record", 1000, 20);
}

#[test]
fn a_journal_with_faults_is_read_and_written_on() {
    withstands_mutations("journal", 1000, 2);
}

#[test]
fn an_index_with_faults_hides_no_record() {
    withstands_mutations("index", 1000, 20);
}

#[test]
fn a_plan_with_faults_is_read_or_refused() {
    withstands_mutations("plan", 1000, 20);
}
