//! What lies beside the records: campaign, plan, device reports, journal.

use super::record::{Names, machine};
use super::secrets::Secrets;
use super::walk;
use crate::plan::identity::DeviceReport;
use crate::store::plan_file::StoredPlan;
use regex::Regex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The campaign's text; a variable's value in it is what stands behind its name, unless that is a list and so an axis.
pub fn campaign(text: &str, secrets: &Secrets) -> String {
    let mut text = text.to_owned();
    for name in secrets.variables.names() {
        let value = r#"("[^"\n]*"|'[^'\n]*'|[^\s\[{,}\]#"'&*|>][^,}\]#\n]*)"#;
        let Ok(pattern) = Regex::new(&format!(r#"(^|[\s{{,"'])({}["']?\s*:\s+){value}"#, regex::escape(name))) else { continue };
        text = pattern.replace_all(&text, |found: &regex::Captures<'_>| format!("{}{}\"<redacted>\"", &found[1], &found[2])).into_owned();
    }
    secrets.text(&text)
}

/// The plan, with the identities that the records have in the copy.
pub fn plan(plan: &StoredPlan, secrets: &Secrets, names: &Names) -> Result<Vec<u8>, String> {
    let mut plan: StoredPlan = scrubbed(plan, secrets)?;
    plan.campaign_sha256 = names.campaign_sha256(&plan.campaign_sha256);
    for point in &mut plan.points {
        // Without a record there is nothing that could have this identity.
        point.point_identity = point.point_identity.as_deref().and_then(|old| names.identity(old)).map(str::to_owned);
    }
    pretty(&plan)
}

pub fn report(report: &DeviceReport, secrets: &Secrets) -> Result<Vec<u8>, String> {
    let mut report = report.clone();
    machine(&mut report.machine, secrets, "", &mut Vec::new());
    pretty(&scrubbed::<DeviceReport>(&report, secrets)?)
}

/// The journal, line by line.
pub fn journal(events: &[Value], secrets: &Secrets, names: &Names) -> Vec<u8> {
    let mut text = String::new();
    for event in events {
        let mut event = event.clone();
        renamed(&mut event, names);
        walk::scrub(&mut event, secrets, "", &mut Vec::new());
        text += &format!("{event}\n");
    }
    text.into_bytes()
}

/// Paths of records as they are in the copy.
fn renamed(value: &mut Value, names: &Names) {
    match value {
        Value::String(text) if text.contains('/') => *text = names.places(text),
        Value::Array(list) => list.iter_mut().for_each(|value| renamed(value, names)),
        Value::Object(map) => map.values_mut().for_each(|value| renamed(value, names)),
        _ => {}
    }
}

fn scrubbed<T: Serialize + DeserializeOwned>(value: &T, secrets: &Secrets) -> Result<T, String> {
    let mut value = serde_json::to_value(value).map_err(|e| e.to_string())?;
    walk::scrub(&mut value, secrets, "", &mut Vec::new());
    serde_json::from_value(value).map_err(|e| e.to_string())
}

fn pretty(value: &impl Serialize) -> Result<Vec<u8>, String> {
    let mut bytes = serde_json::to_vec_pretty(value).map_err(|e| e.to_string())?;
    bytes.push(b'\n');
    Ok(bytes)
}
