//! What programs say of themselves: a role of the agent of its own, beside the keeper, that executes them contained. What they say is for
//! the controller to understand.

use super::files;
use crate::aside::Aside;
use crate::probe::execute::Runner;
use crate::{dirs, sys};
use isotherm_wire::inspect::{FileRole, ProgramAnswer, ProgramQuery};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{self, BufRead, Read, Write};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::Duration;

/// A program that loads a GPU's libraries first takes seconds.
const LIMIT: Duration = Duration::from_secs(20);
/// Until whoever executes it has told, or is given up.
const PATIENCE: Duration = Duration::from_secs(30);

/// What is executed, one line of JSON.
#[derive(Serialize, Deserialize)]
struct Order {
    argv: Vec<String>,
    env: BTreeMap<String, String>,
    cwd: String,
}

/// Ask each of them. What a program costs is a moment of its start; nothing else is to be measured meanwhile.
pub fn ask(queries: &[ProgramQuery]) -> BTreeMap<String, ProgramAnswer> {
    queries.iter().map(|query| (query.key.clone(), answer(query).unwrap_or_else(ProgramAnswer::Silent))).collect()
}

fn answer(query: &ProgramQuery) -> Result<ProgramAnswer, String> {
    let ProgramQuery { key: _, program, args, env } = query;
    if program.role != FileRole::Program {
        return Err("no program was named".into());
    }
    let paths = files::resolve(program).map_err(|_| "there is no such program".to_owned())?;
    let path = paths.first().ok_or("there is no such program")?.display().to_string();
    let order = Order {
        argv: [path].into_iter().chain(args.iter().cloned()).collect(),
        env: env.clone(),
        cwd: dirs::expand_home(&program.base).display().to_string(),
    };
    let words = |e: io::Error| e.to_string();
    let mut aside = Aside::start(Path::new("/proc/self/exe"), &["ask"]).map_err(words)?;
    let line = serde_json::to_string(&order).map_err(|e| e.to_string())? + "\n";
    aside.stdin.write_all(line.as_bytes()).map_err(words)?;
    let (mut told, mut chunk) = (Vec::new(), vec![0; 64 << 10]);
    let until = sys::boottime_ns() + PATIENCE.as_nanos() as u64;
    loop {
        let left = until.saturating_sub(sys::boottime_ns());
        if left == 0 || !sys::poll_readable(&[aside.stdout.as_raw_fd()], Some(left))[0] {
            return Err(format!("no answer within {} s", PATIENCE.as_secs()));
        }
        match aside.stdout.read(&mut chunk).map_err(words)? {
            0 => break,
            n => told.extend_from_slice(&chunk[..n]),
        }
    }
    serde_json::from_slice(&told).map_err(|e| format!("its answer was not understood: {e}"))
}

/// Executes one order of stdin; the answer goes to stdout.
///
/// # Errors
/// In words: what was asked for can't be read, or the answer not be written.
pub fn main() -> Result<(), String> {
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line).map_err(|e| e.to_string())?;
    let Order { argv, env, cwd } = serde_json::from_str(&line).map_err(|e| e.to_string())?;
    let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
    let output = Runner::contained().map_err(|e| e.to_string())?.ask_in(&cwd, &env, &argv, LIMIT);
    let answer = match output {
        Ok(output) => ProgramAnswer::Said(output.stdout + &output.stderr),
        Err(absent) => ProgramAnswer::Silent(absent.reason),
    };
    serde_json::to_writer(io::stdout(), &answer).map_err(|e| e.to_string())
}
