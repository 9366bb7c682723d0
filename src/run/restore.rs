//! Giving a device's settings back at once: for who will not wait until a keeper does it, or where none is left to do it.

use super::collect::{CollectError, holder};
use crate::config::model::Device;
use crate::device::{NEVER, Session};
use crate::store::StoreError;
use crate::store::results::{self, Results};
use isotherm_wire::session::GivenBack;
use std::path::Path;
use std::sync::mpsc::channel;

/// Set back what is borrowed of a device. With the results directory of a campaign, its keeper is ended for that if its controller is gone.
///
/// # Errors
/// The device can't be used: another campaign holds it, or it is executing a run. The campaign's controller lives: `Locked`.
pub fn restore(device: &Device, dir: Option<&Path>, controller: &str) -> Result<GivenBack, CollectError> {
    let known = match dir.map(results::read_id) {
        Some(Err(StoreError::NotResults { .. })) | None => None,
        Some(id) => Some(id?),
    };
    let lock = match (dir, &known) {
        (Some(dir), Some(_)) => Some(Results::existing(dir, &format!("what it borrowed is given back by {controller}"))?),
        _ => None,
    };
    let holder = match known {
        Some(id) => holder(&id.results_id, &id.campaign, controller),
        None => holder(&uuid::Uuid::new_v4().to_string(), "isotherm restore", controller),
    };
    let (sender, _happenings) = channel();
    // By a keeper that was just started, or by one that was there.
    let given_back = Session::open(device, &holder, &sender, NEVER)?.end()?;
    drop(lock);
    Ok(given_back)
}
