//! Issues: coded remarks on a record.

use crate::registry::Code;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;

/// A coded remark on a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Issue {
    /// One of the codes of `docs/issues.md`; `isotherm explain CODE` says what it means.
    pub code: CodeText,
    pub severity: Severity,
    /// What was seen.
    pub message: String,
    /// What it is about: a path, a metric, a sensor.
    pub subject: Option<String>,
    /// The value seen, where there is one.
    pub value: Option<Value>,
    /// What to do about it.
    pub hint: Option<String>,
}

impl Issue {
    /// An issue with the severity and the hint that its code has.
    #[must_use]
    pub fn new(code: Code, message: impl Into<String>) -> Issue {
        let entry = code.entry();
        let (severity, hint) = (entry.severity, Some(entry.hint.into()));
        Issue { code: code.into(), severity, message: message.into(), subject: None, value: None, hint }
    }
}

/// A code as it stands in a record. One that is made here is registered; one that is read may be of another version.
///
/// ```
/// use isotherm::{registry::Code, store::issue::CodeText};
/// assert_eq!(CodeText::from(Code::Suspended).as_str(), "suspended");
/// ```
///
/// ```compile_fail
/// use isotherm::store::issue::CodeText;
/// let code = CodeText::from("made_up");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline)]
pub struct CodeText(String);

impl CodeText {
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<Code> for CodeText {
    fn from(code: Code) -> CodeText {
        CodeText(code.entry().code.into())
    }
}

impl PartialEq<Code> for CodeText {
    fn eq(&self, code: &Code) -> bool {
        self.0 == code.entry().code
    }
}

impl fmt::Display for CodeText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// How serious an issue is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// To be known; the record stays `valid`.
    Note,
    /// Makes the record `degraded`.
    Warning,
    /// Makes the record `invalid`.
    Error,
}

impl Severity {
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Severity::Note => "note",
            Severity::Warning => "warning",
            Severity::Error => "error",
        }
    }
}
