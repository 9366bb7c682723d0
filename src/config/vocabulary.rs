//! Which keys each level of the file has, and which it has in the design but not in this build.

/// A map of the file with a fixed set of keys.
#[derive(Debug)]
pub struct Level {
    /// What it is, for a message: "a device".
    pub what: &'static str,
    /// In front of its keys in a message: `prepare.`.
    pub prefix: &'static str,
    pub keys: &'static [&'static str],
    /// Known, but not in this build yet.
    pub later: &'static [&'static str],
    /// Keys of a block with another backend, and that backend.
    pub foreign: &'static [(&'static str, &'static str)],
}

pub static TOP: Level = Level {
    what: "a campaign",
    prefix: "",
    keys: &["campaign", "description", "devices", "models", "defaults", "matrix"],
    later: &["use"],
    foreign: &[],
};

pub static DEVICE: Level = Level {
    what: "a device",
    prefix: "",
    keys: &["local", "models_dir", "env"],
    later: &["ssh", "pod", "resource_group", "ceilings", "builds", "conditions", "limits"],
    foreign: &[],
};

pub static LOCAL: Level = Level { what: "`local`", prefix: "local.", keys: &["bin_dir", "state_dir"], later: &[], foreign: &[] };

pub static MODEL: Level = Level {
    what: "a model",
    prefix: "",
    keys: &["path", "paths", "quantization", "tags", "sha256", "output_digest"],
    later: &["push"],
    foreign: &[],
};

pub static DEFAULTS: Level = Level {
    what: "`defaults`",
    prefix: "",
    keys: &["repetitions", "timeout", "prepare", "measure", "order", "warmup", "rounds", "iterations", "cooldown", "env"],
    later: LATER_SETTINGS,
    foreign: &[],
};

pub static BUILTIN_BLOCK: Level = Level {
    what: "a block with backend `builtin`",
    prefix: "",
    keys: &[
        "devices",
        "backend",
        "model",
        "threads",
        "env",
        "exclude",
        "repetitions",
        "timeout",
        "prepare",
        "measure",
        "order",
        "warmup",
        "rounds",
        "iterations",
        "cooldown",
    ],
    later: LATER_IN_BLOCK,
    foreign: &[("params", "command"), ("argv", "command"), ("inputs", "command"), ("metrics", "command"), ("success", "command")],
};

pub static COMMAND_BLOCK: Level = Level {
    what: "a block with backend `command`",
    prefix: "",
    keys: &[
        "devices",
        "backend",
        "argv",
        "model",
        "threads",
        "params",
        "env",
        "inputs",
        "metrics",
        "success",
        "exclude",
        "repetitions",
        "timeout",
        "prepare",
        "measure",
        "order",
        "warmup",
    ],
    later: LATER_IN_BLOCK,
    foreign: &[("rounds", "builtin"), ("iterations", "builtin"), ("cooldown", "builtin")],
};

/// A block whose backend is missing or unknown: the keys of all of them.
pub static ANY_BLOCK: Level = Level {
    what: "a block",
    prefix: "",
    keys: &[
        "devices",
        "backend",
        "model",
        "threads",
        "params",
        "env",
        "argv",
        "inputs",
        "metrics",
        "success",
        "exclude",
        "repetitions",
        "timeout",
        "prepare",
        "measure",
        "order",
        "warmup",
        "rounds",
        "iterations",
        "cooldown",
    ],
    later: LATER_IN_BLOCK,
    foreign: &[],
};

pub static PREPARE: Level =
    Level { what: "`prepare`", prefix: "prepare.", keys: &["settle"], later: &["reset_swap", "drop_caches", "governor", "frequency"], foreign: &[] };

pub static MEASURE: Level = Level { what: "`measure`", prefix: "measure.", keys: &["sample_hz"], later: &["power", "window"], foreign: &[] };

pub static METRIC: Level =
    Level { what: "a metric", prefix: "", keys: &["from", "json", "regex", "take", "unit", "better"], later: &[], foreign: &[] };

pub static SUCCESS: Level = Level { what: "`success`", prefix: "success.", keys: &["exit", "output_digest"], later: &[], foreign: &[] };

pub static OUTPUT_DIGEST: Level =
    Level { what: "`output_digest`", prefix: "success.output_digest.", keys: &["from", "json", "regex"], later: &[], foreign: &[] };

const LATER_SETTINGS: &[&str] = &[
    "order_seed",
    "stable",
    "retry_contaminated",
    "startup_timeout",
    "limits",
    "control",
    "interleave",
    "slo",
    "conditions",
    "cpus",
    "flags",
    "dominance",
];

const LATER_IN_BLOCK: &[&str] = &[
    "zip",
    "when",
    "include",
    "cpus",
    "flags",
    "dominance",
    "build",
    "policy",
    "tensor_batch",
    "n_prompt",
    "n_gen",
    "depth",
    "n_ctx",
    "n_batch",
    "n_ubatch",
    "order_seed",
    "stable",
    "retry_contaminated",
    "startup_timeout",
    "limits",
    "control",
    "interleave",
    "slo",
    "conditions",
    "push",
];

pub const LATER_BACKENDS: &[&str] = &["llama-bench", "llama-server", "onnx", "membw"];

pub const LATER_ORDERS: &[&str] = &["shuffled"];

/// Names of a block's parameters that mean something else already.
pub const RESERVED_AXES: &[&str] = &["threads", "model", "device", "repetition", "env"];

/// Where a key that is unknown at its place would be at home.
#[must_use]
pub fn home_of(key: &str) -> Option<&'static str> {
    let levels = [(&TOP, "the top level"), (&DEVICE, "a device"), (&MODEL, "a model"), (&PREPARE, "`prepare`"), (&MEASURE, "`measure`")];
    let late =
        [(&DEFAULTS, "`defaults` or a block of `matrix`"), (&ANY_BLOCK, "a block of `matrix`"), (&METRIC, "a metric"), (&SUCCESS, "`success`")];
    levels.into_iter().chain(late).find(|(level, _)| level.keys.contains(&key)).map(|(_, home)| home)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_key_is_both_there_and_not_there_yet() {
        for level in [&TOP, &DEVICE, &LOCAL, &MODEL, &DEFAULTS, &BUILTIN_BLOCK, &COMMAND_BLOCK, &ANY_BLOCK, &PREPARE, &MEASURE, &METRIC, &SUCCESS] {
            for key in level.keys {
                assert!(!level.later.contains(key), "{}: {key}", level.what);
                assert!(!level.foreign.iter().any(|(foreign, _)| foreign == key), "{}: {key}", level.what);
            }
        }
    }

    #[test]
    fn a_block_of_any_backend_has_the_keys_of_each() {
        for level in [&BUILTIN_BLOCK, &COMMAND_BLOCK] {
            assert!(level.keys.iter().all(|key| ANY_BLOCK.keys.contains(key)));
            assert!(level.foreign.iter().all(|(key, _)| ANY_BLOCK.keys.contains(key)));
            assert_eq!(level.keys.len() + level.foreign.len(), ANY_BLOCK.keys.len());
        }
        assert!(DEFAULTS.keys.iter().all(|key| ANY_BLOCK.keys.contains(key)));
    }

    #[test]
    fn a_misplaced_key_has_a_home() {
        for (key, home) in [
            ("sample_hz", "`measure`"),
            ("settle", "`prepare`"),
            ("repetitions", "`defaults` or a block of `matrix`"),
            ("threads", "a block of `matrix`"),
            ("models", "the top level"),
        ] {
            assert_eq!(home_of(key), Some(home));
        }
        assert_eq!(home_of("voltage"), None);
    }
}
