//! The campaign file: takes YAML text, gives a [`Campaign`] or every error of the file at once, each with its place.
//! Must not know devices' state, plans or records. Only `yaml` knows YAML; the decoders work on its tree of positions and texts.
//!
//! A fault never stops the decoding: what it touches is left out and the rest is read on, so that one look shows all faults.

mod axes;
mod block;
mod campaign;
mod command;
mod condition;
mod declared;
mod diagnose;
mod exceptions;
mod expression;
mod fields;
mod level;
mod llama_bench;
mod llama_server;
mod merge;
pub mod model;
mod reference;
mod schema;
mod settings;
mod shape;
mod sources;
mod template;
mod transport;
mod units;
mod used;
mod variables;
mod vocabulary;
mod yaml;

pub use condition::{Condition, Verdict};
pub use declared::{Declared, reached_by, variables_of};
pub(crate) use diagnose::nearest;
pub use diagnose::{ConfigErrors, Diagnostic, Severity, Span};
pub use expression::Known;
pub use llama_bench::llama_option;
pub use model::{Block, Campaign};
pub use reference::campaign_reference;
pub use schema::campaign_schema;
pub use sources::Sources;
pub use template::TemplateFault;
pub use units::{cpu_list, safe_name};

use diagnose::Diagnostics;
use rustix::fs::{Mode, OFlags};
use std::{
    fs::File,
    io::{self, Read as _},
    path::Path,
};

/// A campaign is written by hand, and so is what it uses: what is larger is some other file.
const MAX_BYTES: u64 = 4 << 20;

/// What a campaign takes from outside of its file.
pub struct Outside<'a> {
    /// Reads a file that `use` names.
    pub read: &'a dyn Fn(&Path) -> io::Result<Vec<u8>>,
    /// A variable of the environment.
    pub variable: &'a dyn Fn(&str) -> Option<String>,
    /// `--set`s: `KEY=VALUE`.
    pub set: &'a [String],
    /// Directory of the campaign file as the user names it, for messages about files beside it.
    pub dir: Option<&'a Path>,
}

/// A campaign, and what of it this build cannot do yet.
#[derive(Debug)]
pub struct Draft {
    pub campaign: Campaign,
    /// `None` = it can run.
    pub later: Option<ConfigErrors>,
}

impl Draft {
    /// Can this build run at least some blocks, and does it lack nothing for them?
    #[must_use]
    pub fn runs_in_part(&self) -> bool {
        let lacks_blocks_alone = self.later.as_ref().is_none_or(|errors| errors.diagnostics.iter().all(|error| error.of_later_block));
        lacks_blocks_alone && self.campaign.blocks.iter().any(Block::is_built)
    }

    /// The campaign, if this build can run all of it.
    ///
    /// # Errors
    /// All that it cannot do.
    pub fn runnable(self) -> Result<Campaign, ConfigErrors> {
        self.later.map_or(Ok(self.campaign), Err)
    }
}

/// Reads a campaign file that is to run, with `--set`s of the command line.
///
/// # Errors
/// The file cannot be read, isn't UTF-8, isn't YAML, or isn't a campaign; then all that is wrong with it. Also where it asks for what
/// this build cannot do.
pub fn load(path: &Path, set: &[String]) -> Result<Campaign, ConfigErrors> {
    draft(path, set)?.runnable()
}

/// Reads a campaign file that is to be planned, not run: what this build cannot do is no obstacle.
///
/// # Errors
/// As [`load`], without the last.
pub fn draft(path: &Path, set: &[String]) -> Result<Draft, ConfigErrors> {
    let read = contents(path);
    let mut out = Diagnostics::default();
    let errors =
        |out: Diagnostics, source: &str| ConfigErrors { sources: Sources::of(&path.display().to_string(), source), diagnostics: out.finish().0 };
    let bytes = match read {
        Ok(bytes) => bytes,
        Err(error) => {
            let hint = match error.kind() {
                io::ErrorKind::NotFound => "check the path; campaign files usually lie in `configs/`; `isotherm init` writes a first one",
                io::ErrorKind::IsADirectory => "name the campaign file; for results there are `isotherm report` and `isotherm status`",
                io::ErrorKind::Other => "write the campaign into a file: a run names it, and looks for what it uses beside it",
                _ => "check the path and its permissions",
            };
            out.file_error(format!("cannot read {}: {}", path.display(), plain(&error))).hint(hint);
            return Err(errors(out, ""));
        }
    };
    if bytes.len() as u64 > MAX_BYTES {
        out.file_error(format!("{} has more than {} MiB", path.display(), MAX_BYTES >> 20))
            .hint("a campaign file is text written by hand: check the path");
        return Err(errors(out, ""));
    }
    let source = match String::from_utf8(bytes) {
        Ok(source) => source,
        Err(error) => {
            let at = error.utf8_error().valid_up_to();
            let encoding =
                if error.as_bytes().starts_with(&[0xff, 0xfe]) || error.as_bytes().starts_with(&[0xfe, 0xff]) { "utf-16" } else { "latin1" };
            let source = String::from_utf8_lossy(error.as_bytes()).into_owned();
            let place = Span { start: at, end: at + char::REPLACEMENT_CHARACTER.len_utf8() };
            out.error(place, "not UTF-8 text")
                .label("the first byte that isn't")
                .hint(format!("save the file as UTF-8, or convert it: `iconv -f {encoding} -t utf-8 {}`", path.display()));
            return Err(errors(out, &source));
        }
    };
    let variable = |name: &str| std::env::var(name).ok();
    let outside = Outside { read: &contents, variable: &variable, set, dir: path.parent() };
    let mut draft = understand(&source, path, &outside)?;
    // As the agent names files: with links resolved.
    let dir = std::fs::canonicalize(&draft.campaign.dir);
    draft.campaign.dir = dir.unwrap_or(draft.campaign.dir);
    if draft.campaign.dir.to_str().is_none() {
        out.file_error(format!("the path of {} is not UTF-8 text", path.display())).hint("move the campaign to a directory whose path is");
        return Err(errors(out, &source));
    }
    Ok(draft)
}

/// Understands the text of a campaign file that uses nothing from outside of it; `file` names it in messages and places relative paths.
///
/// # Errors
/// All that is wrong with it, and what this build cannot do.
pub fn parse(source: &str, file: &Path) -> Result<Campaign, ConfigErrors> {
    let read = |_: &Path| Err(io::Error::from(io::ErrorKind::NotFound));
    understand(source, file, &Outside { read: &read, variable: &|_| None, set: &[], dir: None })?.runnable()
}

/// Understands the text of a campaign file. Nothing is read from anywhere but through `outside`.
///
/// # Errors
/// All that is wrong with it, and with what it uses.
pub fn understand(source: &str, file: &Path, outside: &Outside<'_>) -> Result<Draft, ConfigErrors> {
    // Some editors put a mark in front; it isn't part of the first line's columns.
    let text = source.strip_prefix('\u{feff}').unwrap_or(source);
    let mut out = Diagnostics::default();
    let mut sources = Sources::of(&file.display().to_string(), text);
    let campaign = yaml::read_file(text, 0, "a campaign has at least `devices` and `matrix`", &mut out)
        .and_then(|root| campaign::campaign(&root, campaign::Parts { file, sources: &mut sources, outside }, &mut out));
    let has_errors = out.has_errors();
    let (found, warnings) = out.finish();
    match campaign {
        Some(mut campaign) if !has_errors => {
            campaign.source = source.to_owned();
            campaign.warnings = diagnose::render_warnings(&warnings, &sources);
            let later = (!found.is_empty()).then_some(ConfigErrors { sources, diagnostics: found });
            Ok(Draft { campaign, later })
        }
        _ => Err(ConfigErrors { sources, diagnostics: found }),
    }
}

/// A file up to one byte beyond its limit. Only a regular one: a FIFO would be waited for.
fn contents(path: &Path) -> io::Result<Vec<u8>> {
    let file = File::from(rustix::fs::open(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())?);
    let kind = file.metadata()?.file_type();
    if !kind.is_file() && !kind.is_dir() {
        return Err(io::Error::other("it is no regular file"));
    }
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The system's words without its number.
fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_lowercase()
}
