//! `isotherm reparse`.

use super::words::{count, metric, plain};
use super::{ReparseArgs, complain, exit, print, runnable};
use crate::report;
use crate::run::{self, Change, ReadAnew, ReparseError, Reparsed};
use crate::store::StoreError;
use serde_json::json;

/// Longest text of a change; all of it stands in the records.
const MOST_CHARS: usize = 100;

pub fn reparse(args: &ReparseArgs) -> u8 {
    if args.campaign.is_none() && !args.set.set.is_empty() {
        complain("`--set` changes a campaign, and there is none", Some("add `--campaign FILE`"));
        return exit::USAGE;
    }
    let campaign = match args.campaign.as_deref().map(|file| runnable(file, &args.set.set)).transpose() {
        Ok(draft) => draft.map(|draft| draft.campaign),
        Err(code) => return code,
    };
    let done = match run::reparse(&args.dir, campaign.as_ref(), &run::controller(), args.dry_run) {
        Ok(done) => done,
        Err(error) => return refused(&error),
    };
    let code = if args.json { print(&json(&done, args.dry_run)) } else { print(&text(&done)) };
    if !args.json {
        summary(&done, args.dry_run);
    }
    if code == exit::OK && !done.left.is_empty() { exit::NOT_ALL } else { code }
}

fn refused(error: &ReparseError) -> u8 {
    let hint = match error {
        ReparseError::Plan(e) => Some(e.hint()),
        ReparseError::Store(e) => e.hint(),
    };
    complain(&error.to_string(), hint.as_deref());
    match error {
        ReparseError::Plan(_) | ReparseError::Store(StoreError::NotResults { .. } | StoreError::Newer { .. }) => exit::USAGE,
        ReparseError::Store(StoreError::Locked { .. }) => exit::NO_DEVICE,
        ReparseError::Store(_) => exit::INTERNAL,
    }
}

/// What changed, record by record, and what could not be read.
fn text(done: &Reparsed) -> String {
    let mut text = String::new();
    for ReadAnew { path, changes, .. } in &done.changed {
        text += &format!("changed  {}\n", plain(path));
        for change in changes {
            text += &format!("         {}\n", changed(change));
        }
    }
    for left in &done.left {
        text += &format!("left     {}: {}\n", plain(&left.path), plain(&left.why));
    }
    text
}

fn changed(change: &Change) -> String {
    match change {
        Change::Field { field, old, new } if *field == "rules" || *field == "output_digest" => format!("{field}  {} → {}", short(old), short(new)),
        Change::Field { field, old, new } => format!("{field}  {} → {}", shortened(old), shortened(new)),
        Change::Metric { name, old, new } => {
            // The name stands in front once.
            let value =
                |m: &Option<Box<crate::store::record::Metric>>| m.as_ref().map_or_else(|| "none".to_owned(), |m| metric("", m).trim().to_owned());
            let definition = match (old, new) {
                (Some(old), Some(new)) if old.definition != new.definition => format!("   ({} → {})", plain(&old.definition), plain(&new.definition)),
                _ => String::new(),
            };
            format!("{}  {} → {}{definition}", plain(name), value(old), value(new))
        }
    }
}

fn shortened(text: &str) -> String {
    let text = plain(text);
    if text.chars().count() > MOST_CHARS { text.chars().take(MOST_CHARS).collect::<String>() + "…" } else { text }
}

/// The first digits of a hash.
fn short(text: &str) -> String {
    match text.get(..8) {
        Some(first) if text.len() == 64 => format!("{}…", plain(first)),
        _ => plain(text),
    }
}

fn summary(done: &Reparsed, dry_run: bool) {
    let all = done.changed.len() + done.unchanged + done.left.len() + done.elsewhere;
    let would = if dry_run { "would change" } else { "changed" };
    let elsewhere = if done.elsewhere > 0 { format!(" · {} of points that the campaign doesn't have", done.elsewhere) } else { String::new() };
    say!("{}: {} {would} · {} unchanged · {} left{elsewhere}", count(all, "record"), done.changed.len(), done.unchanged, done.left.len());
}

fn json(done: &Reparsed, dry_run: bool) -> String {
    let left: Vec<_> = done.left.iter().map(|left| json!({"path": left.path, "why": left.why})).collect();
    let document = json!({
        "reparse_version": 1,
        "dry_run": dry_run,
        "changed": done.changed,
        "unchanged": done.unchanged,
        "left": left,
        "elsewhere": done.elsewhere,
    });
    report::document(&document)
}
