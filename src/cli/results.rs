//! `isotherm report`, `status`, `verify`, `schema`: what a results directory holds.

use super::{DirArgs, Format, Include, ReportArgs, SchemaOf, complain, exit, print, words};
use crate::report::{self, Model, ReportInput, ReportOptions, StatusMatrix};
use crate::store::index::{self, AllRecords, SUPERSEDED};
use crate::store::{Broken, StoreError, plan_file, results, seal, sidecar};
use serde_json::json;
use std::fs;
use std::io::IsTerminal;
use std::path::Path;

/// Everything that a report is made from.
fn input(dir: &Path) -> Result<ReportInput, StoreError> {
    let id = results::read_id(dir)?;
    let AllRecords { records, mut broken, newer } = index::read_all(dir)?;
    broken.extend(newer.into_iter().map(named));
    let plan = plan_file::read(dir).unwrap_or_else(|why| {
        broken.push(why);
        None
    });
    Ok(ReportInput::new(id.campaign, plan, records, broken))
}

pub(super) fn refused(error: &StoreError) -> u8 {
    complain(&error.to_string(), error.hint().as_deref());
    if matches!(error, StoreError::NotResults { .. } | StoreError::Newer { .. }) { exit::USAGE } else { exit::INTERNAL }
}

/// Columns of the terminal; `None` = not a terminal, don't fold.
fn width() -> Option<usize> {
    let stdout = std::io::stdout();
    let size = rustix::termios::tcgetwinsize(&stdout).ok()?;
    (stdout.is_terminal() && size.ws_col > 0).then_some(usize::from(size.ws_col))
}

pub fn report(args: &ReportArgs) -> u8 {
    let input = match input(&args.dir) {
        Ok(input) => input,
        Err(e) => return refused(&e),
    };
    let input = match args.annotate.as_deref().map(|file| super::draft(file, &[])) {
        None => input,
        Some(Ok(draft)) => input.annotated(&draft.campaign),
        Some(Err(code)) => return code,
    };
    let model = Model::of(&input, ReportOptions { include_degraded: args.include == Some(Include::Degraded) });
    let format = if args.json { Format::Json } else { args.format };
    print(&match format {
        Format::Terminal => report::terminal(&model, width(), super::color(&std::io::stdout())),
        Format::Markdown => report::markdown(&model),
        Format::Csv => report::csv(&model),
        Format::Json => report::json(&model),
    })
}

pub fn status(args: &DirArgs) -> u8 {
    let input = match input(&args.dir) {
        Ok(input) => input,
        Err(e) => return refused(&e),
    };
    let matrix = StatusMatrix::of(&input);
    let code = print(&if args.json { matrix.json() } else { matrix.terminal(width(), super::color(&std::io::stdout())) });
    match code {
        exit::OK if !matrix.complete() => exit::NOT_ALL,
        code => code,
    }
}

pub fn verify(args: &DirArgs) -> u8 {
    match verified(&args.dir) {
        Err(e) => refused(&e),
        Ok(Verified { checked, damaged, newer }) => {
            let code = if args.json {
                let list = |files: &[Broken]| files.iter().map(|b| json!({"path": b.path, "why": b.why})).collect::<Vec<_>>();
                print(&report::line(&json!({"checked": checked, "damaged": list(&damaged), "newer": list(&newer)})))
            } else {
                let mut text = String::new();
                for (what, files) in [("damaged", &damaged), ("newer  ", &newer)] {
                    for Broken { path, why } in files {
                        text += &format!("{what}  {}: {}\n", words::plain(path), words::plain(why));
                    }
                }
                let unread = if newer.is_empty() { String::new() } else { format!(", {} of a newer isotherm", newer.len()) };
                let whole = checked - damaged.len() - newer.len();
                text += &format!("{} checked: {whole} whole, {} damaged{unread}\n", words::count(checked, "file"), damaged.len());
                print(&text)
            };
            if code == exit::OK && !(damaged.is_empty() && newer.is_empty()) { exit::NOT_ALL } else { code }
        }
    }
}

fn named((path, newer): (String, StoreError)) -> Broken {
    Broken { path, why: newer.reason() }
}

struct Verified {
    checked: usize,
    damaged: Vec<Broken>,
    newer: Vec<Broken>,
}

/// Every record and sidecar by its hash, the superseded ones too.
fn verified(dir: &Path) -> Result<Verified, StoreError> {
    results::read_id(dir)?;
    let mut all = index::read_all(dir)?;
    for entry in fs::read_dir(dir.join(SUPERSEDED)).into_iter().flatten().flatten() {
        let name = format!("{SUPERSEDED}/{}", entry.file_name().to_string_lossy());
        // What was already damaged when it was replaced is kept under that name.
        if name.ends_with(".json") && !name.contains("/damaged.") {
            all.read(name, &entry.path());
        }
    }
    let AllRecords { records, broken: mut damaged, newer } = all;
    let mut newer: Vec<Broken> = newer.into_iter().map(named).collect();
    let mut checked = records.len() + damaged.len() + newer.len();
    for (path, record) in &records {
        let parent = Path::new(path).parent().unwrap_or(Path::new(""));
        for sidecar in sidecar::of(record) {
            checked += 1;
            if let Err(why) = sidecar::read(&dir.join(parent), sidecar) {
                damaged.push(Broken { path: path.clone(), why });
            }
        }
    }
    damaged.sort();
    newer.sort();
    Ok(Verified { checked, damaged, newer })
}

pub fn schema(of: SchemaOf) -> u8 {
    let schema = match of {
        SchemaOf::Record => seal::schema(),
        SchemaOf::Campaign => crate::config::campaign_schema(),
    };
    print(&format!("{schema:#}\n"))
}
