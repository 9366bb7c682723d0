//! What is particular to blocks of backend `llama-server`: values that hold without a key, and options that have a key of their own.

/// Its name among the tools of a build.
pub const TOOL: &str = "llama_server";

/// Axes that a block has which doesn't name them.
pub const IMPLIED: [(&str, i64); 3] = [("n_prompt", 512), ("n_gen", 128), ("concurrency", 1)];

/// Options that are given by a key, or by isotherm itself.
pub const TAKEN: &[(&[&str], &str)] = &[
    (&["-m", "--model", "-mu", "--model-url", "-hf", "-hfr", "--hf-repo", "-hff", "--hf-file", "--models-dir"], "`model` says which file"),
    (&["--host", "--port"], "it listens on a port that is free, and is asked there"),
    (&["--api-key", "--api-key-file"], "requests carry no key"),
    (&["-n", "--predict", "--n-predict"], "write `n_gen`"),
    (&["-c", "--ctx-size"], "write `n_ctx`"),
    (&["-np", "--parallel"], "write `concurrency`"),
    (&["-t", "--threads"], "write `threads`"),
    (&["-b", "--batch-size"], "write `n_batch`"),
    (&["-ub", "--ubatch-size"], "write `n_ubatch`"),
    (&["-h", "--help", "--usage", "--version", "--list-devices"], "with it nothing is served"),
];
