//! Options by which llama.cpp's tools compute elsewhere than on the CPU, and what words of a command line ask for by them. Pure.

use crate::config::llama_option;

/// Names of an option, with the server's variable for it, and its values that ask for nothing.
type Offload = (&'static [&'static str], &'static [&'static str]);
/// How many layers.
const LAYERS: Offload = (&["-ngl", "--gpu-layers", "--n-gpu-layers", "LLAMA_ARG_N_GPU_LAYERS"], &["0", "-1", "auto"]);
/// Where.
const DEVICES: Offload = (&["-dev", "--device", "LLAMA_ARG_DEVICE"], &["auto", "none"]);
pub(super) const OFFLOADS: [Offload; 2] = [LAYERS, DEVICES];

/// The options that ask for another device than the CPU, as written.
pub(super) fn offload(flags: &[String]) -> Option<String> {
    // Without a device nothing is offloaded, whatever the number of layers.
    if flags.windows(2).any(|pair| DEVICES.0.contains(&&*llama_option(&pair[0])) && pair[1] == "none") {
        return None;
    }
    let asks = |pair: &&[String]| OFFLOADS.iter().any(|(names, none)| names.contains(&&*llama_option(&pair[0])) && !none.contains(&pair[1].as_str()));
    let asked: Vec<String> = flags.windows(2).filter(asks).map(|pair| pair.join(" ")).collect();
    (!asked.is_empty()).then(|| asked.join(" "))
}

/// By options as [`offload`] gives them; `None` = that is left to the tool.
pub(super) fn layers_asked_for(flags: &str) -> Option<u64> {
    let words: Vec<&str> = flags.split(' ').collect();
    let number = words.windows(2).rfind(|pair| LAYERS.0.contains(&&*llama_option(pair[0])))?[1];
    if number == "all" { Some(u64::MAX) } else { number.parse().ok() }
}
