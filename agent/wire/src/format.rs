//! Versions of file formats: takes a document of any version, gives what it says in the current one, or that a newer isotherm wrote it.
//!
//! A format is the key of its version and the steps from each version to the next, so its version can't be raised without saying what
//! becomes of files that are there. Must not know what the documents mean.

use serde::Deserializer;
use serde::de::{DeserializeOwned, DeserializeSeed, IgnoredAny, MapAccess, Visitor};
use serde_json::{Map, Value};
use std::fmt;

/// From one version to the next: pure, and the same for every document. In words why a document can't be had in the next one.
pub type Step = fn(&mut Map<String, Value>) -> Result<(), String>;

/// A file format. Every document of it is a JSON object that says its version, which is never inferred.
#[derive(Debug, Clone, Copy)]
pub struct Format {
    key: &'static str,
    /// The first one leads from version 1 to 2.
    steps: &'static [Step],
}

/// Why a document was not read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unread {
    /// It has more than can be understood here, and may not be changed, dropped or written over.
    Newer { found: u64, reads: u32 },
    /// It is none of this format, or damaged: in words.
    Shape(String),
}

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unread::Newer { found, reads } => write!(f, "it was written by a newer isotherm (version {found}, this one reads up to {reads})"),
            Unread::Shape(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for Unread {}

impl Format {
    #[must_use]
    pub const fn new(key: &'static str, steps: &'static [Step]) -> Format {
        Format { key, steps }
    }

    /// What is written now.
    #[must_use]
    pub const fn version(&self) -> u32 {
        1 + self.steps.len() as u32
    }

    /// Read a document; one of the current version is parsed once, without a detour.
    ///
    /// # Errors
    /// [`Unread`].
    pub fn read<T: DeserializeOwned>(&self, json: &[u8]) -> Result<T, Unread> {
        let shape = |e: serde_json::Error| Unread::Shape(e.to_string());
        if self.check(json)? == u64::from(self.version()) {
            return serde_json::from_slice(json).map_err(shape);
        }
        self.upgrade(serde_json::from_slice(json).map_err(shape)?)
    }

    /// The version that a document says it has. Nothing is read behind it, and it is written first.
    ///
    /// # Errors
    /// `Newer`, or `Shape` if it is no object or says none.
    pub fn check(&self, json: &[u8]) -> Result<u64, Unread> {
        let mut found = None;
        let version = VersionIn { key: self.key, found: &mut found };
        match version.deserialize(&mut serde_json::Deserializer::from_slice(json)) {
            // With a version the error is that the rest was left unread.
            Err(e) if found.is_none() => Err(Unread::Shape(e.to_string())),
            _ => self.known(found),
        }
    }

    /// Read a document that was parsed already.
    ///
    /// # Errors
    /// [`Unread`].
    pub fn upgrade<T: DeserializeOwned>(&self, mut document: Value) -> Result<T, Unread> {
        let map = document.as_object_mut().ok_or_else(|| Unread::Shape("it is no JSON object".into()))?;
        let found = self.known(map.get(self.key).and_then(Value::as_u64))?;
        for (step, from) in self.steps.iter().zip(1u64..).skip_while(|(_, from)| *from < found) {
            step(map).map_err(|why| Unread::Shape(format!("it can't be had in version {}: {why}", from + 1)))?;
            map.insert(self.key.into(), (from + 1).into());
        }
        serde_json::from_value(document).map_err(|e| Unread::Shape(e.to_string()))
    }

    fn known(&self, found: Option<u64>) -> Result<u64, Unread> {
        match found {
            Some(found) if found > u64::from(self.version()) => Err(Unread::Newer { found, reads: self.version() }),
            Some(found @ 1..) => Ok(found),
            _ => Err(Unread::Shape(format!("it does not say its version (`{}`)", self.key))),
        }
    }
}

/// Finds one number of an object, and stops there.
struct VersionIn<'a> {
    key: &'static str,
    found: &'a mut Option<u64>,
}

impl<'de> DeserializeSeed<'de> for VersionIn<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for VersionIn<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            if key == self.key {
                *self.found = Some(map.next_value()?);
                break;
            }
            map.next_value::<IgnoredAny>()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use serde_json::json;

    /// A format with a history: `name` was `title` in version 1, and version 3 has `tags`.
    const NOTE: Format = Format::new(
        "note_version",
        &[
            |note| {
                let title = note.remove("title").ok_or("it has no `title`")?;
                note.insert("name".into(), title);
                Ok(())
            },
            |note| {
                note.insert("tags".into(), json!([]));
                Ok(())
            },
        ],
    );

    #[derive(Debug, PartialEq, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Note {
        note_version: u32,
        name: String,
        tags: Vec<String>,
    }

    fn read(document: Value) -> Result<Note, Unread> {
        let read = NOTE.read(document.to_string().as_bytes());
        assert_eq!(read, NOTE.upgrade(document), "parsed or not, it is the same");
        read
    }

    #[test]
    fn every_version_up_to_the_current_one_says_the_same() {
        let current = Note { note_version: 3, name: "a".into(), tags: vec![] };
        assert_eq!(NOTE.version(), 3);
        assert_eq!(read(json!({"note_version": 1, "title": "a"})).unwrap(), current);
        assert_eq!(read(json!({"note_version": 2, "name": "a"})).unwrap(), current);
        assert_eq!(read(json!({"note_version": 3, "name": "a", "tags": []})).unwrap(), current);
    }

    #[test]
    fn a_newer_version_is_refused_by_its_number_whatever_else_it_says() {
        assert_eq!(read(json!({"note_version": 4, "moon": true})).unwrap_err(), Unread::Newer { found: 4, reads: 3 });
        assert_eq!(NOTE.check(br#"{"body": {"note_version": 1}, "note_version": 9}"#), Err(Unread::Newer { found: 9, reads: 3 }));
    }

    #[test]
    fn a_version_is_never_inferred_and_a_step_may_refuse() {
        for document in [json!({"name": "a", "tags": []}), json!({"note_version": 0, "name": "a"})] {
            assert!(matches!(read(document), Err(Unread::Shape(why)) if why.contains("`note_version`")));
        }
        assert!(matches!(NOTE.read::<Note>(b"[1]"), Err(Unread::Shape(_))));
        assert!(matches!(NOTE.read::<Note>(b"{\"note_version\": 1, "), Err(Unread::Shape(_))));
        assert_eq!(read(json!({"note_version": 1})).unwrap_err(), Unread::Shape("it can't be had in version 2: it has no `title`".into()));
    }
}
