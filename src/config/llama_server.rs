//! What is particular to blocks of backend `llama-server`: values that hold without a key, and options that have a key of their own.

/// Its name among the tools of a build.
pub const TOOL: &str = "llama_server";

/// Axes that a block has which doesn't name them.
pub const IMPLIED: [(&str, i64); 3] = [("n_prompt", 512), ("n_gen", 128), ("concurrency", 1)];

/// Options that are given by a key, or by isotherm itself.
pub const TAKEN: &[(&[&str], &str)] = &[
    (&["-m", "--model", "-mu", "--model-url", "-hf", "-hfr", "--hf-repo", "-hff", "--hf-file", "-dr", "--docker-repo"], "`model` says which file"),
    (&["--models-dir", "--models-preset", "--models-max", "--models-autoload", "--no-models-autoload"], "`model` says which file"),
    (&["--host", "--port", "--reuse-port"], "it listens on a port that is free, and is asked there"),
    (&["--api-prefix"], "it is asked at its root"),
    (&["--api-key", "--api-key-file"], "requests carry no key"),
    (&["--ssl-key-file", "--ssl-cert-file"], "requests are not encrypted: they stay on the device"),
    (&["--embedding", "--embeddings", "--rerank", "--reranking"], "it has to generate"),
    (&["-s", "--seed", "--temp", "--temperature", "--ignore-eos", "--cache-prompt", "--no-cache-prompt"], "every request says it, and that counts"),
    (&["--log-disable", "--log-file", "--log-jsonl", "--log-colors"], "its log is read as it comes"),
    (&["-n", "--predict", "--n-predict"], "write `n_gen`"),
    (&["-c", "--ctx-size"], "write `n_ctx`"),
    (&["-np", "--parallel"], "write `concurrency`"),
    (&["-t", "--threads"], "write `threads`"),
    (&["-b", "--batch-size"], "write `n_batch`"),
    (&["-ub", "--ubatch-size"], "write `n_ubatch`"),
    (&["-h", "--help", "--usage", "--version", "--list-devices", "-cl", "--cache-list", "--completion-bash"], "with it nothing is served"),
];
