//! A stand-in of NVIDIA's library in a lab, and what it says.

use crate::lab::{Lab, eventually};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Compile it with these flags. Its path, for `ISOTHERM_NVML`.
pub fn library(lab: &Lab, compiler: &str, flags: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/gpu/fake_nvml.c");
    fs::create_dir_all(lab.path("driver")).unwrap();
    let library = lab.path("driver/libnvidia-ml.so.1");
    let compiled = Command::new(compiler).args(["-shared", "-fPIC", "-w"]).args(flags).arg("-o").args([&library, &source]).arg("-ldl").status();
    assert!(compiled.unwrap().success());
    library
}

/// A machine whose driver came without the library: there is `nvidia-smi`, in `bin/`.
pub fn smi(lab: &Lab) {
    lab.write("bin/nvidia-smi", include_str!("fake_nvidia_smi.sh").replace("$DIR", &lab.path("driver").display().to_string()));
    fs::create_dir_all(lab.path("driver")).unwrap();
    fs::set_permissions(lab.path("driver"), fs::Permissions::from_mode(0o777)).unwrap();
}

/// What the driver says from now on.
pub fn says(lab: &Lab, lines: &[&str]) {
    // By rename: it is read at any moment.
    lab.write("driver/nvml.conf", lines.join("\n") + "\n");
}

/// Wait until this has been read a few times more.
pub fn reads_on(lab: &Lab, name: &str) {
    let file = lab.write(&format!("driver/{name}.reads"), "");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
    eventually(&format!("{name} is read"), || (fs::metadata(&file).unwrap().len() > 3).then_some(()));
}
