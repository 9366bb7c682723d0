//! Puts the agent for this machine's architecture into the controller, and the companion, so that one executable is all there is to install.
//!
//! The agent, in this order: `ISOTHERM_AGENT_BIN` names a prebuilt one; the workspace's `agent/` is built, static; else nothing is embedded.
//! The companion is built from `agent/companion/`, dynamic; where that fails, the controller does without and the build says so.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::{env, fs};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=ISOTHERM_AGENT_BIN");
    // The companion is built beside a prebuilt agent, too. A path that isn't there would be a change every time.
    ["agent", "Cargo.lock"].iter().filter(|path| Path::new(path).exists()).for_each(|path| println!("cargo::rerun-if-changed={path}"));
    let out = PathBuf::from(var("OUT_DIR"));
    let agent = prebuilt().or_else(|| build(&out));
    let companion = agent.is_some().then(|| build_companion(&out)).flatten();
    let constant = |name: &str, path: &Option<PathBuf>| match path {
        Some(path) => format!("pub const {name}: Option<&[u8]> = Some(include_bytes!({path:?}));\n"),
        None => format!("pub const {name}: Option<&[u8]> = None;\n"),
    };
    let code = constant("EMBEDDED", &agent) + &constant("EMBEDDED_COMPANION", &companion);
    fs::write(out.join("embedded_agent.rs"), code).expect("OUT_DIR can be written");
    println!("cargo::rustc-env=ISOTHERM_TARGET={}", var("TARGET"));
}

fn var(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("cargo sets {name}"))
}

fn prebuilt() -> Option<PathBuf> {
    let path = PathBuf::from(env::var_os("ISOTHERM_AGENT_BIN")?);
    println!("cargo::rerun-if-changed={}", path.display());
    assert!(path.is_file(), "ISOTHERM_AGENT_BIN={} is not a file", path.display());
    let (machine, here) = (machine_of(&path), var("CARGO_CFG_TARGET_ARCH"));
    assert!(machine.as_deref() == Ok(&here), "ISOTHERM_AGENT_BIN={} {}, and this controller is for {here}", path.display(), {
        machine.as_ref().map_or_else(Clone::clone, |machine| format!("is for {machine}"))
    });
    Some(fs::canonicalize(path).expect("it was there a moment ago"))
}

/// Architecture of an ELF executable, in cargo's words; else what is wrong with the file.
fn machine_of(path: &Path) -> Result<String, String> {
    let file = fs::read(path).map_err(|e| format!("can't be read: {e}"))?;
    match file.get(..20) {
        _ if file.is_empty() => Err("is empty".into()),
        Some(head) if head.starts_with(b"\x7fELF") => Ok(match u16::from_le_bytes([head[18], head[19]]) {
            40 => "arm".into(),
            62 => "x86_64".into(),
            183 => "aarch64".into(),
            243 => format!("riscv{}", 32 * u32::from(head[4])),
            other => format!("ELF machine {other}"),
        }),
        _ => Err("is no ELF executable".into()),
    }
}

fn build(out: &Path) -> Option<PathBuf> {
    let root = PathBuf::from(var("CARGO_MANIFEST_DIR"));
    if !root.join("agent/Cargo.toml").is_file() {
        println!("cargo::warning=no agent/ beside this package: nothing is embedded, `local` devices won't work");
        return None;
    }
    if var("CARGO_CFG_TARGET_OS") != "linux" {
        println!("cargo::warning=the agent runs on Linux: nothing is embedded, `local` devices won't work here");
        return None;
    }
    let target = var("TARGET");
    let first = cargo_build(&root, out, &target, &AGENT);
    let binary = match first {
        Ok(binary) => binary,
        Err(error) => {
            let musl = format!("{}-unknown-linux-musl", var("CARGO_CFG_TARGET_ARCH"));
            assert!(
                target != musl && target_is_installed(&musl),
                "building the static agent failed:\n{error}\n\
                 If it is the linking that failed, the static C library is missing: Debian and Ubuntu have it in libc6-dev, Fedora and \
                 RHEL in glibc-static, openSUSE in glibc-devel-static; or `rustup target add {musl}`."
            );
            cargo_build(&root, out, &musl, &AGENT).unwrap_or_else(|e| panic!("building the static agent for {musl} failed:\n{e}"))
        }
    };
    Some(binary)
}

/// It can't be static: a static program loads no library. So it is for machines whose C library is not older than this one's.
fn build_companion(out: &Path) -> Option<PathBuf> {
    let root = PathBuf::from(var("CARGO_MANIFEST_DIR"));
    let target = var("TARGET");
    let built = if !root.join("agent/companion/Cargo.toml").is_file() {
        Err("no agent/companion/ beside this package".into())
    } else if target.contains("musl") {
        // NVIDIA's library is for glibc.
        Err(format!("{target} can't load it"))
    } else {
        cargo_build(&root, out, &target, &COMPANION)
    };
    let why = built.as_ref().err().map(|error| error.lines().rfind(|line| line.starts_with("error")).unwrap_or(error).to_owned());
    if let Some(why) = why {
        println!("cargo::warning=no companion for NVIDIA's library in this build, its GPUs are asked by nvidia-smi: {why}");
    }
    built.ok()
}

/// A program to be embedded.
struct Embedded {
    package: &'static str,
    rustflags: &'static str,
}

const AGENT: Embedded = Embedded { package: "isotherm-agent", rustflags: "-C target-feature=+crt-static" };
const COMPANION: Embedded = Embedded { package: "isotherm-companion", rustflags: "" };

/// Build for one target in a target folder of its own: the outer build holds the lock of its own one.
fn cargo_build(root: &Path, out: &Path, target: &str, program: &Embedded) -> Result<PathBuf, String> {
    // OUT_DIR is <target>/…/build/<package>/out; the target folder is the one that cargo tagged.
    let target_dir = out.ancestors().find(|dir| dir.join("CACHEDIR.TAG").is_file()).unwrap_or(out);
    let own = target_dir.join("agent-build").join(target);
    let mut cargo = Command::new(var("CARGO"));
    cargo.current_dir(root).args(["build", "--locked", "--package", program.package, "--profile", "agent", "--target", target]);
    cargo.arg("--target-dir").arg(&own);
    // Always with --target, so that build scripts and proc macros don't get the flag.
    cargo.env("RUSTFLAGS", program.rustflags);
    for name in ["CARGO_ENCODED_RUSTFLAGS", "RUSTC_WORKSPACE_WRAPPER", "RUSTC_WRAPPER", "CARGO_BUILD_TARGET"] {
        cargo.env_remove(name);
    }
    let Output { status, stderr, .. } = cargo.output().map_err(|e| format!("starting cargo: {e}"))?;
    if !status.success() {
        return Err(String::from_utf8_lossy(&stderr).into_owned());
    }
    Ok(own.join(target).join("agent").join(program.package))
}

fn target_is_installed(target: &str) -> bool {
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).args(["--print", "target-libdir", "--target", target]).output();
    output.is_ok_and(|o| o.status.success() && Path::new(String::from_utf8_lossy(&o.stdout).trim()).is_dir())
}
