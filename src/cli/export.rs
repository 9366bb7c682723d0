//! `isotherm export`.

use super::words::{count, plain, program, shell_word};
use super::{ExportArgs, complain, exit, print};
use crate::export::{self, ExportError, PublicCopy};
use crate::report;
use crate::run;
use crate::store::StoreError;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

pub fn export(args: &ExportArgs) -> u8 {
    let Some(out) = &args.public else {
        let hint = format!("{} export {} --public OUT", program(), shell_word(&args.dir));
        complain("this build makes public copies only, and needs `--public OUT`", Some(&hint));
        return exit::USAGE;
    };
    // What is half made goes with us.
    let signal = Arc::new(AtomicUsize::new(0));
    for taken in [SIGINT, SIGTERM, SIGHUP] {
        let _ = signal_hook::flag::register_usize(taken, Arc::clone(&signal), usize::try_from(taken).unwrap_or_default());
    }
    let stopped = || signal.load(Ordering::Relaxed) != 0;
    let shown = out.display().to_string();
    match export::export(&args.dir, out, &args.redact, &run::controller(), &stopped) {
        Ok(copy) => {
            for warning in &copy.warnings {
                say!("warning: {}", plain(warning));
            }
            if args.json {
                return print(&report::document(&copy));
            }
            let code = print(&text(&copy));
            say!("{} and {} in {}", count(copy.records, "record"), count(copy.sidecars, "sidecar"), plain(&shown));
            say!("next: {} verify {}", program(), shell_word(out));
            code
        }
        Err(error) => {
            complain(&error.to_string(), error.hint().as_deref());
            match error {
                ExportError::Occupied { .. } | ExportError::Inside { .. } | ExportError::Store(StoreError::NotResults { .. }) => exit::USAGE,
                ExportError::Store(StoreError::Locked { .. }) => exit::NO_DEVICE,
                ExportError::Store(_) => exit::INTERNAL,
                ExportError::Stopped => u8::try_from(128 + signal.load(Ordering::Relaxed)).unwrap_or(exit::INTERNAL),
                ExportError::Damaged { .. } | ExportError::Merged { .. } | ExportError::Shape { .. } | ExportError::Found { .. } => exit::NOT_ALL,
            }
        }
    }
}

fn text(copy: &PublicCopy) -> String {
    let mut text = String::new();
    for (what, n) in &copy.replaced {
        text += &format!("replaced  {} in {}\n", plain(what), count(*n, "field"));
    }
    for (file, why) in &copy.left_out {
        text += &format!("left out  {}: {}\n", plain(file), plain(why));
    }
    text
}
