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
    let AllRecords { records, mut broken } = index::read_all(dir)?;
    let plan = plan_file::read(dir).unwrap_or_else(|why| {
        broken.push(why);
        None
    });
    Ok(ReportInput::new(id.campaign, plan, records, broken))
}

fn refused(error: &StoreError) -> u8 {
    complain(&error.to_string(), error.hint().as_deref());
    if matches!(error, StoreError::NotResults { .. }) { exit::USAGE } else { exit::INTERNAL }
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
        Ok((checked, broken)) => {
            let code = if args.json {
                let broken: Vec<_> = broken.iter().map(|b| json!({"path": b.path, "why": b.why})).collect();
                print(&report::line(&json!({"checked": checked, "damaged": broken})))
            } else {
                let mut text = String::new();
                for Broken { path, why } in &broken {
                    text += &format!("damaged  {}: {}\n", words::plain(path), words::plain(why));
                }
                text += &format!("{} checked: {} whole, {} damaged\n", words::count(checked, "file"), checked - broken.len(), broken.len());
                print(&text)
            };
            if code == exit::OK && !broken.is_empty() { exit::NOT_ALL } else { code }
        }
    }
}

/// Every record and sidecar by its hash, the superseded ones too: number of files looked at, and which are damaged.
fn verified(dir: &Path) -> Result<(usize, Vec<Broken>), StoreError> {
    results::read_id(dir)?;
    let AllRecords { mut records, mut broken } = index::read_all(dir)?;
    for entry in fs::read_dir(dir.join(SUPERSEDED)).into_iter().flatten().flatten() {
        let name = format!("{SUPERSEDED}/{}", entry.file_name().to_string_lossy());
        // What was already damaged when it was replaced is kept under that name.
        if name.ends_with(".json") && !name.contains("/damaged.") {
            match index::read_record(&entry.path()) {
                Ok(record) => records.push((name, record)),
                Err(why) => broken.push(Broken { path: name, why }),
            }
        }
    }
    let mut checked = records.len() + broken.len();
    for (path, record) in &records {
        let parent = Path::new(path).parent().unwrap_or(Path::new(""));
        for sidecar in sidecar::of(record) {
            checked += 1;
            if let Err(why) = sidecar::read(&dir.join(parent), sidecar) {
                broken.push(Broken { path: path.clone(), why });
            }
        }
    }
    broken.sort();
    Ok((checked, broken))
}

pub fn schema(of: SchemaOf) -> u8 {
    let schema = match of {
        SchemaOf::Record => seal::schema(),
        SchemaOf::Campaign => crate::config::campaign_schema(),
    };
    print(&format!("{schema:#}\n"))
}
