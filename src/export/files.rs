//! What lies beside the records: campaign, plan, device reports, journal.

use super::record::{Names, REDACTED, machine, slug};
use super::secrets::Secrets;
use super::{variables, walk};
use crate::config::{self, Declared};
use crate::plan::identity::DeviceReport;
use crate::store::plan_file::StoredPlan;
use regex::Regex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The campaign's text. A variable's value in it goes wherever it is declared, and behind its name in a comment, unless that is a list and
/// so an axis.
///
/// # Errors
/// In words: it can't be told from the text where the values stand.
pub fn campaign(text: &str, secrets: &Secrets) -> Result<String, String> {
    let private = |text: &str| {
        let declared = config::variables_of(text).ok_or("it is no YAML, so it can't be told where its variables are")?;
        Ok::<_, String>(declared.into_iter().filter(|one| !variables::is_public(&one.name)).collect::<Vec<_>>())
    };
    let mut text = text.to_owned();
    for Declared { span, .. } in private(&text)?.into_iter().rev() {
        let written = &text[span.start..span.end];
        let lines_around = (written.len() - written.trim_start().len(), written.trim_end().len());
        text.replace_range(span.start + lines_around.0..span.start + lines_around.1, "\"<redacted>\"");
    }
    for name in secrets.variables.names() {
        let value = r#"("[^"\n]*"|'[^'\n]*'|[^\s\[{,}\]#"'&*|>][^,}\]#\n]*)"#;
        let Ok(pattern) = Regex::new(&format!(r#"(^|[\s{{,"'])({}["']?\s*:\s+){value}"#, regex::escape(name))) else { continue };
        text = pattern.replace_all(&text, |found: &regex::Captures<'_>| format!("{}{}\"<redacted>\"", &found[1], &found[2])).into_owned();
    }
    let text = secrets.text(&text);
    match private(&text)?.into_iter().find(|one| one.value.trim().trim_matches('"') != REDACTED) {
        Some(one) => Err(format!("the value of {} can't be taken out of its text", one.name)),
        None => Ok(text),
    }
}

/// The plan, with the identities that the records have in the copy.
pub fn plan(plan: &StoredPlan, secrets: &Secrets, names: &Names) -> Result<Vec<u8>, String> {
    let slugs: Vec<String> = plan.points.iter().map(|point| slug(&point.point, secrets)).collect();
    let mut plan: StoredPlan = scrubbed(plan, secrets)?;
    plan.campaign_sha256 = names.campaign_sha256(&plan.campaign_sha256);
    for (point, slug) in plan.points.iter_mut().zip(slugs) {
        point.point.slug = slug;
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
