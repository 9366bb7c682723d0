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
    // Without a device or a layer for it nothing is offloaded, whatever else is asked for.
    let is_last = |(names, _): Offload, value: &str| {
        flags.windows(2).rfind(|pair| names.contains(&&*llama_option(&pair[0]))).is_some_and(|pair| pair[1] == value)
    };
    if is_last(DEVICES, "none") || is_last(LAYERS, "0") {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(options: &str) -> Option<String> {
        offload(&options.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn no_layer_or_no_device_asks_for_nothing_whatever_is_said_beside_it() {
        for options in ["-ngl 0", "-ngl 0 -dev CUDA0", "-dev CUDA0 --n_gpu_layers 0", "LLAMA_ARG_N_GPU_LAYERS 0 -dev CUDA0", "-ngl 99 -dev none"] {
            assert_eq!(asked(options), None, "{options}");
        }
        assert_eq!(asked("-ngl 0 --gpu-layers 99").as_deref(), Some("--gpu-layers 99"), "the last one counts");
        assert_eq!(asked("-ngl auto -dev CUDA0 -fa on").as_deref(), Some("-dev CUDA0"));
        assert_eq!(asked("-ngl 99 -dev CUDA0").as_deref(), Some("-ngl 99 -dev CUDA0"));
    }
}
