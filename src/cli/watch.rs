//! `isotherm watch`: the journal of a night, followed. It reads and writes nothing else, so whoever watches can come and go.

use super::night_view::Watch;
use super::{DirArgs, exit, print, results};
use crate::report;
use crate::store::journal::Follow;
use crate::store::{StoreError, results as store};
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::thread;
use std::time::Duration;

/// Between two looks. Nothing is drawn unless something has happened.
const LOOK_EVERY: Duration = Duration::from_secs(1);

pub fn watch(args: &DirArgs) -> u8 {
    match follow(&args.dir, args.json) {
        Ok(code) => code,
        Err(e) => results::refused(&e),
    }
}

fn follow(dir: &Path, json: bool) -> Result<u8, StoreError> {
    store::read_id(dir)?;
    let mut journal = Follow::open(dir)?;
    let mut screen = Screen { in_place: std::io::stdout().is_terminal(), lines: 0 };
    let mut watch = Watch::default();
    loop {
        // Looked at first: whoever has gone by then has said everything.
        let in_use = store::is_in_use(dir);
        let events = journal.more()?;
        for event in &events {
            watch.hear(event);
            if json && print(&report::line(event)) != exit::OK {
                return Ok(exit::OK);
            }
        }
        if !events.is_empty() && !json && screen.show(&watch.text()).is_err() {
            return Ok(exit::OK);
        }
        if watch.is_over() {
            return Ok(exit::OK);
        }
        if in_use == Some(false) {
            say!("no controller is at work on {}: what runs on its devices goes on, and the next `run` collects it", dir.display());
            return Ok(exit::NOT_ALL);
        }
        thread::sleep(LOOK_EVERY);
    }
}

/// Where the view is shown: on a terminal always at the same place, else one after the other.
struct Screen {
    in_place: bool,
    lines: usize,
}

impl Screen {
    fn show(&mut self, text: &str) -> std::io::Result<()> {
        let mut out = std::io::stdout().lock();
        if self.in_place {
            // Up to where the last one began; a line that doesn't fit is cut, so that each takes one.
            if self.lines > 0 {
                write!(out, "\x1b[{}A\x1b[J", self.lines)?;
            }
            let width = rustix::termios::tcgetwinsize(&out).map_or(80, |size| usize::from(size.ws_col).max(20));
            for line in text.lines() {
                writeln!(out, "{}", line.chars().take(width - 1).collect::<String>())?;
            }
            self.lines = text.lines().count();
        } else {
            writeln!(out, "{text}")?;
        }
        out.flush()
    }
}
