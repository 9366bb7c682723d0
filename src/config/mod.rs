//! The campaign file: takes YAML text, gives a [`Campaign`] or every error of the file at once, each with its place.
//! Must not know devices' state, plans or records. Only `yaml` knows YAML; the decoders work on its tree of positions and texts.
//!
//! A fault never stops the decoding: what it touches is left out and the rest is read on, so that one look shows all faults.

mod axes;
mod block;
mod campaign;
mod command;
mod diagnose;
mod fields;
pub mod model;
mod settings;
mod template;
mod units;
mod vocabulary;
mod yaml;

pub(crate) use diagnose::nearest;
pub use diagnose::{ConfigErrors, Diagnostic, Severity, Span};
pub use model::Campaign;
pub use settings::{SettingRow, settings_table};
pub use template::TemplateFault;

use diagnose::Diagnostics;
use std::{fs::File, io::Read as _, path::Path};

/// A campaign is written by hand: what is larger is some other file.
const MAX_BYTES: u64 = 4 << 20;

/// Reads a campaign file.
///
/// # Errors
/// The file cannot be read, isn't UTF-8, isn't YAML, or isn't a campaign; then all that is wrong with it.
pub fn load(path: &Path) -> Result<Campaign, ConfigErrors> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MAX_BYTES + 1).read_to_end(&mut bytes));
    let mut out = Diagnostics::default();
    if let Err(error) = read {
        let hint = if error.kind() == std::io::ErrorKind::NotFound {
            "check the path; campaign files usually lie in `configs/`"
        } else {
            "check the path and its permissions"
        };
        out.file_error(format!("cannot read {}: {}", path.display(), plain(&error))).hint(hint);
        return Err(errors(out, path, String::new()));
    }
    if bytes.len() as u64 > MAX_BYTES {
        out.file_error(format!("{} has more than {} MiB", path.display(), MAX_BYTES >> 20))
            .hint("a campaign file is text written by hand: check the path");
        return Err(errors(out, path, String::new()));
    }
    match String::from_utf8(bytes) {
        Ok(source) => parse(&source, path).and_then(|mut campaign| {
            // As the agent names files: with links resolved.
            campaign.dir = std::fs::canonicalize(&campaign.dir).unwrap_or(campaign.dir);
            if campaign.dir.to_str().is_none() {
                out.file_error(format!("the path of {} is not UTF-8 text", path.display())).hint("move the campaign to a directory whose path is");
                return Err(errors(out, path, campaign.source));
            }
            Ok(campaign)
        }),
        Err(error) => {
            let at = error.utf8_error().valid_up_to();
            let source = String::from_utf8_lossy(error.as_bytes()).into_owned();
            let place = Span { start: at, end: at + char::REPLACEMENT_CHARACTER.len_utf8() };
            out.error(place, "not UTF-8 text")
                .label("the first byte that isn't")
                .hint(format!("save the file as UTF-8, or convert it: `iconv -f latin1 -t utf-8 {}`", path.display()));
            Err(errors(out, path, source))
        }
    }
}

/// Understands the text of a campaign file. Nothing is read from anywhere; `file` names it in messages and places relative paths.
///
/// # Errors
/// All that is wrong with it.
pub fn parse(source: &str, file: &Path) -> Result<Campaign, ConfigErrors> {
    // Some editors put a mark in front; it isn't part of the first line's columns.
    let text = source.strip_prefix('\u{feff}').unwrap_or(source);
    let mut out = Diagnostics::default();
    let campaign = yaml::read(text, &mut out).and_then(|root| campaign::campaign(&root, text, file, &mut out));
    let (found, warnings) = out.finish();
    match campaign {
        Some(mut campaign) if found.is_empty() => {
            campaign.source = source.to_owned();
            campaign.warnings = warnings.iter().map(|warning| diagnose::render_warning(warning, file, text)).collect();
            Ok(campaign)
        }
        _ => Err(ConfigErrors { file: file.display().to_string(), source: text.to_owned(), diagnostics: found }),
    }
}

fn errors(out: Diagnostics, file: &Path, source: String) -> ConfigErrors {
    ConfigErrors { file: file.display().to_string(), source, diagnostics: out.finish().0 }
}

/// The system's words without its number.
fn plain(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_lowercase()
}
