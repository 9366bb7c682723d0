//! Did a workload that failed run out of memory? Told by the kernel's count of kills and by the tool's own words; neither alone is enough
//! for every tool: one aborts by itself when an allocation fails, another is ended without a word.

use super::output::{RawOutput, Stream};
use regex::bytes::Regex;
use std::sync::LazyLock;

/// Bytes of the end of a stream that are looked at: what made it fail is said last.
const LOOKED_AT: usize = 64 << 10;

/// Exit code of a shell whose child was ended by KILL: 128 + 9.
const KILLED_IN_A_SHELL: i32 = 137;

/// What tools say: glibc and kernel (`ENOMEM`), C++ (`std::bad_alloc`), Python, Rust, CUDA, ggml. Whole words, so that a zoom is none.
static WORDS: LazyLock<Regex> = LazyLock::new(|| {
    let said = [
        r"\bout of memory\b",
        r"\bcannot allocate memory\b",
        r"\bENOMEM\b",
        r"\bstd::bad_alloc\b",
        r"\bMemoryError\b",
        r"\bmemory allocation of \d+ bytes failed\b",
        r"\b(CUDA|HIP|CL|VK)_ERROR_OUT_OF_(DEVICE_|HOST_)?MEMORY\b",
        r"\bfailed to allocate (\w+ )?(buffer|memory)\b",
        r"\binsufficient memory\b",
    ];
    Regex::new(&format!("(?i){}", said.join("|"))).expect("a pattern of ours")
});

/// A workload that exited with a code that is a failure. Its words count whatever the code, the kernel's count only with a code that a
/// kill leaves.
#[must_use]
pub fn ran_out(output: &RawOutput, exit_code: i32) -> bool {
    says_so(output) || exit_code == KILLED_IN_A_SHELL && output.oom_kills
}

/// A workload that was ended by a signal.
#[must_use]
pub fn was_ended(output: &RawOutput, signal: i32) -> bool {
    signal == 9 && output.oom_kills || says_so(output)
}

fn says_so(output: &RawOutput) -> bool {
    let said = |stream: &Stream| WORDS.is_match(&stream.kept[stream.kept.len().saturating_sub(LOOKED_AT)..]);
    said(&output.stderr) || said(&output.stdout)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(stderr: &str, oom_kills: bool) -> RawOutput {
        RawOutput { stderr: Stream { kept: stderr.as_bytes().to_vec(), ..Stream::default() }, oom_kills, ..RawOutput::default() }
    }

    #[test]
    fn words_of_tools_are_understood_and_words_that_contain_them_are_not() {
        for said in [
            "ggml_aligned_malloc: insufficient memory (attempted to allocate 97656.25 MB)",
            "E alloc_tensor_range: failed to allocate CPU buffer of size 102400000000",
            "failed to initialize the context: failed to allocate buffer for kv cache",
            "terminate called after throwing an instance of 'std::bad_alloc'",
            "memory allocation of 4294967296 bytes failed",
            "sh: fork: Cannot allocate memory",
            "numpy.core._exceptions._ArrayMemoryError\nMemoryError: Unable to allocate 4 GiB",
            "CUDA error: out of memory",
            "CUDA_ERROR_OUT_OF_MEMORY",
        ] {
            assert!(ran_out(&output(said, false), 1), "{said}");
            assert!(was_ended(&output(said, false), 6), "{said}");
        }
        for said in ["zoom", "boom: 3", "no room for error", "the allocator is fine", "ENOMEMORY", "mushroom", ""] {
            assert!(!ran_out(&output(said, false), 1), "{said}");
        }
        assert!(!ran_out(&output("zoom", true), 1));
    }

    #[test]
    fn a_kill_counts_with_the_kernels_word_for_it() {
        assert!(ran_out(&output("Killed", true), 137));
        assert!(!ran_out(&output("Killed", false), 137));
        assert!(was_ended(&output("", true), 9));
        assert!(!was_ended(&output("", false), 9));
        assert!(!was_ended(&output("", true), 11));
    }

    #[test]
    fn only_the_end_of_a_long_output_is_looked_at() {
        let long = format!("out of memory\n{}", "x".repeat(LOOKED_AT));
        assert!(!ran_out(&output(&long, false), 1));
    }
}
