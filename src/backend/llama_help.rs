//! Options of a build of llama.cpp's tools, as its `--help` names them: they come and go between builds. Pure.

use crate::config::llama_option;
use std::collections::BTreeSet;

/// Names that are offered for an unknown one, at most.
const MOST_OFFERED: usize = 3;

/// An option that a build hasn't.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unknown {
    pub option: String,
    /// Of the build's own, the most alike first.
    pub nearest: Vec<String>,
}

/// Names of the options in a help text; empty where it is none.
#[must_use]
pub fn options(help: &str) -> BTreeSet<&str> {
    help.lines().flat_map(names).collect()
}

/// `  -fa, --flash-attn <on|off|auto>   (default: auto)`: names stand first on their line.
fn names(line: &str) -> impl Iterator<Item = &str> {
    let words = line.split([' ', '\t', ',']).filter(|word| !word.is_empty());
    words.take_while(|word| word.starts_with('-') && word.len() > 1)
}

/// The options of a command line that a build hasn't; none where its help says nothing. A value behind a `=` is none: the tools take the
/// whole word for the option.
#[must_use]
pub fn unknown(help: &str, argv: &[String]) -> Vec<Unknown> {
    let known = options(help);
    let is_option = |word: &&String| word.starts_with('-') && word.len() > 1 && word.parse::<f64>().is_err();
    let missing = argv.iter().filter(is_option).filter(|word| !known.is_empty() && !known.contains(&*llama_option(word)));
    let mut unknown: Vec<Unknown> = missing.map(|option| Unknown { option: option.clone(), nearest: nearest(option, &known) }).collect();
    unknown.dedup();
    unknown
}

/// By what is different in them, without their dashes.
fn nearest(option: &str, known: &BTreeSet<&str>) -> Vec<String> {
    let plain = |name: &str| name.trim_start_matches('-').to_lowercase();
    let mut by_distance: Vec<(usize, &str)> = known.iter().map(|name| (strsim::damerau_levenshtein(&plain(option), &plain(name)), *name)).collect();
    by_distance.sort();
    by_distance.into_iter().take(MOST_OFFERED).map(|(_, name)| name.to_owned()).collect()
}

/// The version that a build states, in its own words: `0.5.0-dev (build 1, commit 0c1e570)`; `None` of one that has no `--version`.
#[must_use]
pub fn version(said: &str) -> Option<&str> {
    said.lines().find_map(|line| line.strip_prefix("version:")).map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn argv(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn names_of_options_stand_first_on_their_lines() {
        let help = "usage: llama-bench [options]\n\n  -h, --help\n  -pg <pp,tg>          (default: )\n  -ot --override-tensor <pattern>=<type>;...\n\
                    \x20 -o, --output <csv|json>   output format (default: md), or -md\n  --delay <0...N> (seconds)  delay -x\n   - no option\n";
        let expected = ["--delay", "--help", "--output", "--override-tensor", "-h", "-o", "-ot", "-pg"];
        assert_eq!(options(help).into_iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn values_are_no_options_and_a_text_without_options_knows_nothing() {
        let help = "  -ngl, --n-gpu-layers <n>\n  -m, --model <file>\n";
        assert_eq!(unknown(help, &argv("llama-bench -m x -ngl -1")), []);
        assert_eq!(unknown("Illegal instruction", &argv("llama-bench --frobnicate")), []);
        // As the tools take them: `_` for `-` in long options, and no value behind a `=`.
        assert_eq!(unknown(help, &argv("llama-bench --n_gpu_layers 3")), []);
        assert_eq!(unknown(help, &argv("llama-bench --n-gpu-layers=3"))[0].nearest[0], "--n-gpu-layers");
        let found = unknown(help, &argv("llama-bench -m x --n-gpu-layer 3"));
        assert_eq!((found.len(), found[0].option.as_str(), found[0].nearest[0].as_str()), (1, "--n-gpu-layer", "--n-gpu-layers"));
    }
}
