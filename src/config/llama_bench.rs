//! What is particular to blocks of backend `llama-bench`: values that hold without a key, and options that have a key of their own.

use super::{
    axes::FoundAxis,
    diagnose::{Diagnostics, tick},
};
use std::borrow::Cow;

/// Its name among the tools of a build.
pub const TOOL: &str = "llama_bench";

/// Axes that a block has which doesn't name them: as the tool has it.
pub const IMPLIED: [(&str, i64); 3] = [("n_prompt", 512), ("n_gen", 128), ("depth", 0)];

/// Options that are given by a key, or by isotherm itself.
pub const TAKEN: &[(&[&str], &str)] = &[
    (&["-m", "--model", "-hf", "-hfr", "--hf-repo", "-hff", "--hf-file"], "`model` says which file"),
    (&["-p", "--n-prompt"], "write `n_prompt`"),
    (&["-n", "--n-gen"], "write `n_gen`"),
    (&["-d", "--n-depth"], "write `depth`"),
    (&["-pg"], "prefill and decode are measured as tests of their own: write `n_prompt` and `n_gen`"),
    (&["-t", "--threads"], "write `threads`"),
    (&["-b", "--batch-size"], "write `n_batch`"),
    (&["-ub", "--ubatch-size"], "write `n_ubatch`"),
    (&["-r", "--repetitions"], "write `iterations`"),
    (&["-o", "--output"], "the tool's JSON lines are what is read"),
    (&["-oe", "--output-err"], "the tool's JSON lines are what is read"),
    (&["--progress"], "it is given anyway"),
    (&["-h", "--help", "--version", "--list-devices"], "with it nothing is measured"),
];

/// An option as the tools of llama.cpp read it: in a long one `_` is `-`.
#[must_use]
pub fn llama_option(option: &str) -> Cow<'_, str> {
    if option.starts_with("--") && option.contains('_') { option.replace('_', "-").into() } else { option.into() }
}

/// What `flags` of a tool of llama.cpp can't say.
pub fn check_flags<'a>(backend: &str, axes: impl Iterator<Item = &'a FoundAxis>, taken: &[(&[&str], &str)], out: &mut Diagnostics) {
    for found in axes {
        let Some(flag) = found.axis.name.strip_prefix("flags.") else { continue };
        if let Some((_, hint)) = taken.iter().find(|(flags, _)| flags.contains(&&*llama_option(flag))) {
            out.error(found.key, format!("{} is no option for `flags` of {}", tick(flag), tick(backend))).hint(*hint);
        }
    }
}
