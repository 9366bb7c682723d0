//! The targets of `tests/fuzz/` under libFuzzer, which goes where new code is reached. `scripts/fuzz` calls it; `ISOTHERM_FUZZ_TARGET` names the
//! target, `ISOTHERM_FUZZ_CORPUS` a directory that gets its real inputs.
#![no_main]

#[path = "../tests/fuzz/corpus.rs"]
mod corpus;
#[path = "../tests/fuzz/memory.rs"]
mod memory;
#[path = "../tests/fuzz/mutate.rs"]
mod mutate;
#[path = "../tests/fuzz/targets.rs"]
mod targets;

use libfuzzer_sys::{Corpus, fuzz_mutator, fuzz_target, fuzzer_mutate};
use std::path::Path;
use std::sync::LazyLock;
use targets::Target;

#[global_allocator]
static MEMORY: memory::Counting = memory::Counting;

static TARGET: LazyLock<&Target> = LazyLock::new(|| Target::named(&std::env::var("ISOTHERM_FUZZ_TARGET").expect("scripts/fuzz sets it")));
static SEEDS: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| TARGET.seeds());

fuzz_target!(
    init: {
        let corpus = std::env::var_os("ISOTHERM_FUZZ_CORPUS").expect("scripts/fuzz sets it");
        for (at, seed) in SEEDS.iter().enumerate() {
            std::fs::write(Path::new(&corpus).join(format!("seed-{at}")), seed).expect("the corpus can be written");
        }
    },
    |input: &[u8]| -> Corpus {
        TARGET.execute(input);
        Corpus::Keep
    }
);

// Half of the faults are ours, which know signs and JSON; the other half libFuzzer's, which know what was compared with what.
fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    if seed % 2 == 0 {
        return fuzzer_mutate(data, size, max_size);
    }
    let mutated = mutate::mutated(&data[..size], &SEEDS, &mut mutate::Random(seed.into()));
    let size = mutated.len().min(max_size);
    data[..size].copy_from_slice(&mutated[..size]);
    size
});
