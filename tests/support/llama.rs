//! llama.cpp's real tools, as `scripts/build-llama` has built them, and models for them. Must not know what is measured.

use std::path::{Path, PathBuf};

/// Directory of the tools: what `scripts/build-llama` printed.
pub const DIR_VARIABLE: &str = "ISOTHERM_LLAMA_DIR";

/// `llama-bench` or `llama-server`; `None` where it isn't there, which is said, and allowed outside of CI only.
pub fn tool(name: &str) -> Option<PathBuf> {
    let tool = std::env::var_os(DIR_VARIABLE).map(|dir| Path::new(&dir).join(name)).filter(|tool| tool.is_file());
    if tool.is_none() {
        assert!(std::env::var_os("CI").is_none(), "this has to run where CI is set: {DIR_VARIABLE} names no directory with {name}");
        eprintln!("skipped: no {name}; build it with scripts/build-llama and name its directory in {DIR_VARIABLE}");
    }
    tool
}

/// One of the models of `configs/models`, absolute.
pub fn model(name: &str) -> PathBuf {
    checkout().join("configs/models").join(name)
}

/// Make a model that is slower than those: `scripts/gen_gguf.py --make`.
pub fn generated(path: &Path, width: u32, layers: u32) {
    generated_as(path, width, layers, "");
}

/// The same with more options, by spaces.
pub fn generated_as(path: &Path, width: u32, layers: u32, options: &str) {
    let (folder, name) = (path.parent().expect("a file in a folder"), path.file_name().expect("a file"));
    let mut command = std::process::Command::new("python3");
    command.arg(checkout().join("scripts/gen_gguf.py")).arg("--make").arg(name).args([width.to_string(), layers.to_string()]);
    command.args(options.split_whitespace());
    let made = command.arg("--out").arg(folder).output().expect("python3");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

fn checkout() -> &'static Path {
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().find(|dir| dir.join("configs/models").is_dir());
    checkout.expect("a crate of the checkout")
}
