//! `use`: files with devices and models that several campaigns share.

use super::{
    MAX_BYTES, Outside,
    diagnose::{Diagnostics, Span, tick},
    fields::Slot,
    plain,
    sources::Sources,
    yaml::{self, Entry, Kind},
};
use std::path::Path;

/// What the used files say.
#[derive(Debug, Default)]
pub struct Used {
    /// Entries of all of them, one file after the other.
    pub entries: Vec<Entry>,
    /// As named, with their texts.
    pub texts: Vec<(String, String)>,
}

/// Reads what `use` names; paths start at `dir`.
pub fn read(entries: &[Entry], dir: &Path, outside: &Outside<'_>, sources: &mut Sources, out: &mut Diagnostics) -> Used {
    let mut used = Used::default();
    let Some(entry) = entries.iter().find(|entry| entry.key.text == "use" && !entry.value.is_null()) else { return used };
    let mut seen: Vec<(String, Span)> = Vec::new();
    for item in Slot::of(entry).one_or_many("use: [devices.yaml]", out).map(|found| found.0).unwrap_or_default() {
        let Some(name) = item.some_text(out) else { continue };
        if let Some((_, earlier)) = seen.iter().find(|(other, _)| *other == name) {
            out.error(item.place, format!("{} is there twice in `use`", tick(&name)))
                .label("again here")
                .also(*earlier, "first here")
                .hint("remove one of them");
            continue;
        }
        seen.push((name.clone(), item.place));
        let path = dir.join(&name);
        let text = match (outside.read)(&path) {
            Ok(bytes) if bytes.len() as u64 > MAX_BYTES => Err(format!("it has more than {} MiB", MAX_BYTES >> 20)),
            Ok(bytes) => String::from_utf8(bytes).map_err(|_| "it is not UTF-8 text".to_owned()),
            Err(error) => Err(plain(&error)),
        };
        let text = match text {
            Ok(text) => text.strip_prefix('\u{feff}').map_or(text.clone(), str::to_owned),
            Err(why) => {
                out.error(item.place, format!("cannot read {}", tick(&name))).label(why).hint(if name.starts_with("~/") {
                    format!("`~` isn't expanded here: write `${{HOME}}{}`", &name[1..])
                } else {
                    format!("paths of `use` start at the directory of this file: {}", shown(outside, &name))
                });
                continue;
            }
        };
        let base = sources.add(&shown(outside, &name), &text);
        used.texts.push((name, text.clone()));
        let Some(root) = yaml::read_file(&text, base, "it has `devices:` and `models:`, each in the first column", out) else { continue };
        match root.kind {
            Kind::Map(entries) => used.entries.extend(entries.into_iter().filter(|entry| !entry.key.text.starts_with("x-"))),
            _ => {
                let text = "a used file is a map".to_owned();
                out.error(root.span, text)
                    .label(format!("this is {}", root.describe()))
                    .hint("it has `devices:` and `models:`, each in the first column");
            }
        }
    }
    used
}

/// The file's name as the user would write it: beside the campaign's.
fn shown(outside: &Outside<'_>, name: &str) -> String {
    outside.dir.map_or_else(|| name.to_owned(), |dir| dir.join(name).display().to_string())
}
