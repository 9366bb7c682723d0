//! Recordings of other tools that lie beside the checkout, because they are not ours to give away.

use std::path::{Path, PathBuf};

/// A folder of them: below `$ISOTHERM_SHARED`, else `../shared`. Without it the test is skipped, which CI does not accept.
pub fn recordings(name: &str) -> Option<PathBuf> {
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().find(|dir| dir.join("configs/models").is_dir());
    let beside = || checkout.expect("a crate of the checkout").join("../shared");
    let folder = std::env::var_os("ISOTHERM_SHARED").map_or_else(beside, PathBuf::from).join("data").join(name);
    if folder.is_dir() {
        return Some(folder);
    }
    assert!(std::env::var_os("CI").is_none(), "{} has to be there in CI", folder.display());
    eprintln!("skipped: recordings of {name} (no {}; ISOTHERM_SHARED says where else they are)", folder.display());
    None
}
