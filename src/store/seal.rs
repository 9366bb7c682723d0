//! The seal: the last key of a record is the sha256 of every byte before it, so that a torn or edited file is told from a whole one.
//!
//! It proves integrity, not origin: whoever can edit a record can seal it again.

use super::formats;
use super::record::{Record, is_run_id};
use crate::digest::sha256_hex;
use isotherm_wire::format::{Format, Unread};
use serde::de::DeserializeOwned;
use thiserror::Error;

const BEFORE: &[u8] = b"\"seal\":\"";
const AFTER: &[u8] = b"\"}\n";
const HEX: usize = 64;

/// Why a file is no record.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SealError {
    #[error("it has no seal at its end: cut off, or not a record")]
    NoSeal,
    #[error("its seal does not fit its content: it was edited or damaged")]
    Broken,
    /// Whole, and not to be understood here, see [`Unread`].
    #[error("{}", unread(.0))]
    Unread(#[from] Unread),
}

fn unread(why: &Unread) -> String {
    match why {
        Unread::Newer { .. } => why.to_string(),
        Unread::Shape(why) => format!("its content is not that of a record: {why}"),
    }
}

/// The record's file: one top-level key per line, the seal last.
///
/// # Panics
/// Never: a record is plain JSON.
#[must_use]
pub fn seal(record: &Record) -> Vec<u8> {
    let value = serde_json::to_value(record).expect("a record is plain JSON");
    let mut text = String::from("{\n");
    for (key, value) in value.as_object().into_iter().flatten() {
        text += &format!("{}:{value},\n", serde_json::Value::String(key.clone()));
    }
    let mut bytes = text.into_bytes();
    let digest = sha256_hex(&bytes);
    bytes.extend_from_slice(BEFORE);
    bytes.extend_from_slice(digest.as_bytes());
    bytes.extend_from_slice(AFTER);
    bytes
}

/// JSON Schema of a record's file, the seal included.
#[must_use]
pub fn schema() -> serde_json::Value {
    let mut schema = schemars::schema_for!(Record).to_value();
    if let Some(properties) = schema.get_mut("properties").and_then(serde_json::Value::as_object_mut) {
        let description = "sha256 (hex) of every byte of the file before this key.";
        properties.insert("seal".into(), serde_json::json!({"type": "string", "pattern": "^[0-9a-f]{64}$", "description": description}));
    }
    in_json_words(&mut schema);
    if let Some(required) = schema.get_mut("required").and_then(serde_json::Value::as_array_mut) {
        required.push("seal".into());
    }
    schema
}

/// The types' own words say `None`, as Rust does; the file says `null`.
fn in_json_words(schema: &mut serde_json::Value) {
    match schema {
        serde_json::Value::Object(map) => {
            if let Some(serde_json::Value::String(description)) = map.get_mut("description") {
                *description = description.replace("`None`", "`null`");
            }
            map.values_mut().for_each(in_json_words);
        }
        serde_json::Value::Array(list) => list.iter_mut().for_each(in_json_words),
        _ => {}
    }
}

/// Check the seal and read the record, of whatever version: the seal is that of the bytes as they were written.
///
/// # Errors
/// [`SealError`]; nothing of such a file may be used.
pub fn open(bytes: &[u8]) -> Result<Record, SealError> {
    let record: Record = open_as(formats::RECORD, bytes)?;
    if !is_run_id(&record.ids.run_id) {
        return Err(Unread::Shape(format!("{:?} is no id of a run", record.ids.run_id)).into());
    }
    Ok(record)
}

fn open_as<T: DeserializeOwned>(format: Format, bytes: &[u8]) -> Result<T, SealError> {
    let content = bytes.len().checked_sub(BEFORE.len() + HEX + AFTER.len()).ok_or(SealError::NoSeal)?;
    let (content, seal) = bytes.split_at(content);
    let digest = seal.strip_prefix(BEFORE).and_then(|s| s.strip_suffix(AFTER)).ok_or(SealError::NoSeal)?;
    if digest != sha256_hex(content).as_bytes() {
        return Err(SealError::Broken);
    }
    // Without the seal it is a plain record: its last comma becomes the closing brace.
    let content = content.strip_suffix(b",\n").ok_or_else(|| Unread::Shape("no field before the seal".into()))?;
    Ok(format.read(&[content, b"}"].concat())?)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::report::records::{point, run};

    /// Any content with a right seal.
    fn sealed(content: &str) -> Vec<u8> {
        let mut bytes = content.as_bytes().to_vec();
        let digest = sha256_hex(&bytes);
        bytes.extend_from_slice(format!("\"seal\":\"{digest}\"}}\n").as_bytes());
        bytes
    }

    #[test]
    fn a_cut_or_edited_file_is_told_from_a_whole_one() {
        let whole = sealed("{\n\"schema_version\":1,\n");
        assert!(matches!(open(&whole), Err(SealError::Unread(Unread::Shape(_)))), "the seal fits, the record is incomplete");
        for cut in 0..whole.len() {
            assert!(matches!(open(&whole[..cut]), Err(SealError::NoSeal)), "cut at {cut}");
        }
        for at in 0..whole.len() {
            let mut edited = whole.clone();
            edited[at] ^= 1;
            assert!(matches!(open(&edited), Err(SealError::NoSeal | SealError::Broken)), "edited at {at}");
        }
    }

    #[test]
    fn an_id_that_would_name_a_file_elsewhere_makes_no_record() {
        let (_, mut record) = run(&point(&[]), 0).stored();
        assert_eq!(open(&seal(&record)), Ok(record.clone()));
        for id in ["../../x", "/x", "a.b", "", "é", &"x".repeat(65)] {
            record.ids.run_id = id.into();
            assert!(matches!(open(&seal(&record)), Err(SealError::Unread(Unread::Shape(why))) if why.contains("is no id of a run")), "{id:?}");
        }
    }

    #[test]
    fn an_older_record_is_read_by_steps_and_its_seal_is_that_of_its_own_bytes() {
        let format = Format::new("schema_version", &[|record| Ok(_ = record.insert("moon".into(), "none".into()))]);
        let older = sealed("{\n\"schema_version\":1,\n\"status\":\"ok\",\n");
        let read: serde_json::Value = open_as(format, &older).unwrap();
        assert_eq!(read, serde_json::json!({"schema_version": 2, "status": "ok", "moon": "none"}));
        let edited = String::from_utf8(older).unwrap().replace("ok", "no");
        assert_eq!(open_as::<serde_json::Value>(format, edited.as_bytes()).unwrap_err(), SealError::Broken);
    }

    #[test]
    fn a_newer_record_is_refused_by_its_version() {
        let newer = Unread::Newer { found: 99, reads: formats::RECORD.version() };
        assert_eq!(open(&sealed("{\n\"schema_version\":99,\n")).unwrap_err(), SealError::Unread(newer));
    }
}
