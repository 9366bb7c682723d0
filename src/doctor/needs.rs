//! What a device is asked, from the points that are to run there.

use crate::config::model::Device;
use crate::plan::{Point, files};
use crate::run::manifest;
use isotherm_wire::inspect::{FileQuery, FileRole};
use isotherm_wire::readiness::Needs;
use std::collections::BTreeSet;

/// Processes that work a disk or a CPU for minutes, whoever started them; the kernel cuts names to 15 letters.
const DISTURBERS: [&str; 19] = [
    "apt",
    "apt-get",
    "apt.systemd.dai",
    "aptitude",
    "unattended-upgr",
    "dpkg",
    "dpkg-deb",
    "dnf",
    "yum",
    "rpm",
    "zypper",
    "pacman",
    "apk",
    "updatedb",
    "updatedb.mlocat",
    "updatedb.plocat",
    "mandb",
    "fstrim",
    "btrfs-scrub",
];

/// Everything that is looked at for these points of a device.
#[must_use]
pub fn needs(device: &Device, points: &[&Point]) -> Needs {
    // What is copied there lies here.
    let queries = points.iter().flat_map(|point| files::of_point(point)).filter(|file| !file.is_pushed).map(|file| file.query);
    // An argument may be a file and need not be.
    let files: BTreeSet<FileQuery> = queries.filter(|query| query.role != FileRole::Argument).collect();
    let mut steps = Vec::new();
    for step in points.iter().flat_map(|point| manifest::steps(&point.settings.prepare)) {
        if !steps.contains(&step) {
            steps.push(step);
        }
    }
    let state_dir = device.transport.state_dir().map(str::to_owned);
    Needs { files: files.into_iter().collect(), state_dir, steps, processes: DISTURBERS.map(str::to_owned).into() }
}
