//! Tells the agent which target it was built for.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-env=ISOTHERM_TARGET={}", std::env::var("TARGET").unwrap_or_default());
}
