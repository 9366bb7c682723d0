//! The campaign language as a page of the reference, made from the same table as the decoders.

use super::{
    condition::{DEVICE_NAMES, MODEL_NAMES},
    level::Key,
    vocabulary::{BACKENDS, LEVELS},
};
use std::fmt::Write as _;

/// The page, Markdown.
#[must_use]
pub fn campaign_reference() -> String {
    let mut page = String::from(
        "# Keys of the campaign file\n\n\
         Every key, what may stand behind it, what holds without it. [campaign.md](campaign.md) tells how they work together.\n\n\
         *Axis* means: one value is a constant, a list is swept. *Later* means: known by name, checked, shown by `isotherm plan`, and \
         refused by `isotherm run` ([more](campaign.md#later-builds)). A key without a backend is for all of them. `null` goes back to the built-in value.\n\n\
         ## Backends\n\n| backend | | |\n|---|---|---|\n",
    );
    for backend in &BACKENDS {
        let _ = writeln!(page, "| `{}` | {} | {} |", backend.word, backend.about, if backend.built { "" } else { "later" });
    }
    for level in LEVELS {
        let _ = write!(page, "\n## {}\n\n", level.title);
        let with_backends = level.keys.iter().any(|key| !key.on.is_empty());
        let backends = if with_backends { " backend |" } else { "" };
        let rule = if with_backends { "---|" } else { "" };
        let _ = write!(page, "| key | value | built-in |{backends} |\n|---|---|---|{rule}---|\n");
        for key in level.keys {
            row(&mut page, key, with_backends);
        }
    }
    page += "\n## Names in `when`\n\n\
             The block's axes but `model`, and:\n\n";
    for name in DEVICE_NAMES.iter().chain(&MODEL_NAMES).chain(&["model.tags.NAME"]) {
        let _ = writeln!(page, "* `{name}`");
    }
    page
}

fn row(page: &mut String, key: &Key, with_backends: bool) {
    let default = match key.default {
        "" if key.required => "required".to_owned(),
        "" => String::new(),
        default if default.contains(' ') => default.to_owned(),
        default => format!("`{default}`"),
    };
    let backends =
        if with_backends { format!(" {} |", key.on.iter().map(|on| format!("`{on}`")).collect::<Vec<_>>().join(", ")) } else { String::new() };
    let later = if key.built { "" } else { "*Later.* " };
    let _ = writeln!(page, "| `{}` | {} | {default} |{backends} {later}{} |", key.name, key.shape.told(), key.about);
}
