//! `isotherm models`.

use super::words::{count, plain};
use super::{ModelsArgs, collect, complain, draft, exit, print, probe};
use crate::clock;
use crate::device::DeviceError;
use crate::report;
use crate::run::{self, Evict, Models, ModelsError};
use crate::size::size;
use isotherm_wire::models::Cached;
use serde_json::json;

pub fn models(args: &ModelsArgs) -> u8 {
    let device = match &args.file {
        None => Ok(probe::this_machine()),
        Some(file) => draft(file, &[]).and_then(|draft| collect::one_device(draft.campaign.devices.into_values().collect(), args.device.as_deref())),
    };
    let device = match device {
        Ok(device) => device,
        Err(code) => return code,
    };
    let evict = if args.evict_all { Evict::All } else { Evict::These(args.evict.clone()) };
    let Models { kept, evicted } = match run::models(&device, &evict, &run::controller()) {
        Ok(models) => models,
        Err(error) => return refused(&error),
    };
    if !args.json {
        for model in &evicted {
            say!("evicted from `{}`: {} ({})", device.id, plain(&name(model)), size(model.bytes));
        }
        say!("{} kept on `{}`, {} in all", count(kept.len(), "model"), device.id, size(kept.iter().map(|model| model.bytes).sum()));
    }
    print(&if args.json {
        let all = |models: &[Cached]| models.iter().map(entry).collect::<Vec<_>>();
        report::document(&json!({ "device": device.id, "kept": all(&kept), "evicted": all(&evicted) }))
    } else {
        kept.iter().map(line).collect()
    })
}

fn line(model: &Cached) -> String {
    let campaign = model.campaign.as_deref().map_or_else(String::new, |campaign| format!("  campaign {}", plain(campaign)));
    let (sha256, bytes, used) = (model.sha256.get(..12).unwrap_or(&model.sha256), size(model.bytes), clock::utc_of(model.last_used_s));
    format!("{}  {bytes:>9}  {}  {}{campaign}\n", plain(sha256), used, plain(&name(model)))
}

fn name(model: &Cached) -> String {
    model.name.clone().unwrap_or_else(|| "(copied in part)".into())
}

fn entry(model: &Cached) -> serde_json::Value {
    let Cached { sha256, name, bytes, last_used_s, campaign } = model;
    json!({ "sha256": sha256, "name": name, "bytes": bytes, "last_used": clock::utc_of(*last_used_s), "campaign": campaign })
}

fn refused(error: &ModelsError) -> u8 {
    let (hint, code) = match error {
        ModelsError::Device(e @ DeviceError::Refused { .. }) if e.is_in_use() => {
            (Some("wait until that campaign has ended: it may need them".to_owned()), exit::NO_DEVICE)
        }
        ModelsError::Device(e) => (e.hint(), exit::NO_DEVICE),
        ModelsError::NotOne { .. } => (Some("six digits or more, as `isotherm models` lists them".into()), exit::USAGE),
    };
    complain(&error.to_string(), hint.as_deref());
    code
}
