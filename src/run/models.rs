//! Models that a device keeps: listed, and removed when a user says so. Nothing else ever removes one that is whole.

use super::collect::holder;
use crate::config::model::Device;
use crate::device::{DeviceError, NEVER, Session};
use isotherm_wire::models::Cached;
use std::sync::mpsc::channel;
use thiserror::Error;

/// Fewer digits of a sha256 name no model: too easily it would be another one's.
const LEAST_DIGITS: usize = 6;

/// What is to be removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Evict {
    All,
    /// Each by its sha256 or the beginning of it.
    These(Vec<String>),
}

/// Why nothing could be listed or removed.
#[derive(Debug, Error)]
pub enum ModelsError {
    #[error(transparent)]
    Device(#[from] DeviceError),
    #[error("`{asked}` names {} of the models on device `{device}`", if *.found == 0 { "none".to_owned() } else { .found.to_string() })]
    NotOne { device: String, asked: String, found: usize },
}

/// What a device keeps.
#[derive(Debug, Default)]
pub struct Models {
    /// By content.
    pub kept: Vec<Cached>,
    pub evicted: Vec<Cached>,
}

/// List the models of a device; those that are to be removed are removed first, all of them or, where one isn't known, none.
///
/// # Errors
/// A campaign holds the device, or it can't be reached; or a name that isn't one model's.
pub fn models(device: &Device, evict: &Evict, controller: &str) -> Result<Models, ModelsError> {
    let (sender, _happenings) = channel();
    let holder = holder(&uuid::Uuid::new_v4().to_string(), "isotherm models", controller);
    let mut session = Session::open(device, &holder, &sender, NEVER)?;
    let listed = list(&mut session, &device.id, evict);
    // Even where something failed: the device is given back.
    let ended = session.end();
    let listed = listed?;
    ended?;
    Ok(listed)
}

fn list(session: &mut Session, device: &str, evict: &Evict) -> Result<Models, ModelsError> {
    let kept = session.models()?;
    let mut doomed = vec![matches!(evict, Evict::All); kept.len()];
    if let Evict::These(asked) = evict {
        for asked in asked {
            let fits = |model: &Cached| asked.len() >= LEAST_DIGITS && model.sha256.starts_with(&asked.to_ascii_lowercase());
            let mut found: Vec<&str> = kept.iter().filter(|model| fits(model)).map(|model| model.sha256.as_str()).collect();
            // A whole one and the rest of a copy of it go together.
            found.dedup();
            if found.len() != 1 {
                return Err(ModelsError::NotOne { device: device.to_owned(), asked: asked.clone(), found: found.len() });
            }
            kept.iter().zip(&mut doomed).for_each(|(model, doomed)| *doomed |= model.sha256 == found[0]);
        }
    }
    let mut models = Models::default();
    for (model, doomed) in kept.into_iter().zip(doomed) {
        if doomed {
            session.evict(&model.sha256)?;
            models.evicted.push(model);
        } else {
            models.kept.push(model);
        }
    }
    Ok(models)
}
