//! `isotherm-agent`: the static binary that runs on the device under test.
//!
//! It prepares, executes, samples and seals results; it interprets nothing and knows no campaign. Std threads, no async runtime.

mod aside;
mod capture;
mod clock;
mod contain;
mod copies;
mod dirs;
mod gpu;
mod heat;
mod init;
mod inspect;
mod keep;
mod load;
mod looking;
#[cfg(test)]
mod matrix;
mod models;
mod prepare;
mod probe;
mod processes;
mod sampler;
mod scope;
mod serve;
mod settle;
mod spool;
mod sys;
mod task;
mod thrash;
#[cfg(test)]
mod trees;

use std::process::ExitCode;

const HELP: &str = "\
isotherm-agent: the part of isotherm that runs on the device under test

usage: isotherm-agent serve --nonce HEX [--state-dir DIR]   one connection, on stdin and stdout
       isotherm-agent keep --state-dir DIR                  the keeper of this device; started by serve
       isotherm-agent init --level LEVEL                    first process of a run; started by the keeper
       isotherm-agent alter ACTION                          one change of the machine before a run; started by the keeper
       isotherm-agent probe --nonce HEX                     what can be measured here; a question on stdin, the answer on stdout
       isotherm-agent smi PROGRAM                           asks nvidia-smi what it is asked itself; started by the keeper
       isotherm-agent ask                                   executes a program for what it says; started by the keeper
       isotherm-agent infer                                 builtin inference; a task on stdin, its output on stdout
       isotherm-agent served                                starts a server, asks it, stops it; a task on stdin, its output on stdout
       isotherm-agent --version

The controller copies this program to a device and starts it; nobody needs to call it by hand.
";

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    let role = args.next();
    let rest: Vec<_> = args.collect();
    let outcome = match role.as_ref().and_then(|r| r.to_str()) {
        Some("serve") => serve::main(rest),
        Some("keep") => keep::main(rest),
        Some("init") => init::main(rest),
        Some("alter") => prepare::act::main(rest),
        Some("probe") => probe::main(rest),
        Some("ask") => inspect::programs::main(),
        Some("smi") => gpu::smi::main(rest),
        Some("infer") => task::infer::run(&mut std::io::stdin().lock(), &mut std::io::stdout().lock()).map_err(|e| e.to_string()),
        Some("served") => task::served::run(&mut std::io::stdin().lock(), &mut std::io::stdout().lock()),
        Some("--version" | "version") => {
            println!("isotherm-agent {} {}", env!("CARGO_PKG_VERSION"), sys::TARGET);
            Ok(())
        }
        Some("--help" | "-h" | "help") => {
            print!("{HELP}");
            Ok(())
        }
        _ => {
            eprint!("{HELP}");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("isotherm-agent: {message}");
            ExitCode::FAILURE
        }
    }
}
