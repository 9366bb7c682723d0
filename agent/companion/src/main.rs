//! `isotherm-companion`: looks at NVIDIA's GPUs for an agent, which is static and can load no library.
//!
//! Takes questions as frames on stdin, gives what the library says as frames on stdout, in the library's units; must not know what is
//! made of it. It is dynamic, for whatever C library the machine has, and ends with its input, also in the middle of a call that hangs.

mod nvml;

use isotherm_wire::codec::{read_frame, write_message};
use isotherm_wire::companion::{Answer, Question};
use nvml::Nvml;
use std::io;
use std::process::ExitCode;
use std::sync::mpsc::channel;
use std::thread;

fn main() -> ExitCode {
    if let Some(arg) = std::env::args_os().nth(1) {
        if arg == "--version" {
            println!("isotherm-companion {}", env!("CARGO_PKG_VERSION"));
            return ExitCode::SUCCESS;
        }
        eprintln!("isotherm-companion: started by isotherm's agent, which asks it by frames on stdin");
        return ExitCode::from(2);
    }
    let (ask, asked) = channel::<Question>();
    let reader = thread::Builder::new().name("questions".into()).spawn(move || {
        let mut stdin = io::stdin().lock();
        while let Some(question) = read_frame(&mut stdin).ok().flatten().and_then(|frame| frame.message().ok()) {
            if ask.send(question).is_err() {
                break;
            }
        }
        // The agent is gone. The library may hang, and so may what it does at an orderly exit.
        // SAFETY: ends this process; nothing of it is shared.
        unsafe { libc::_exit(0) }
    });
    if let Err(e) = reader {
        eprintln!("isotherm-companion: no thread: {e}");
        return ExitCode::FAILURE;
    }
    let mut nvml = None;
    let mut stdout = io::stdout();
    for question in asked {
        // Loaded with the first question, so that what is wrong with it is an answer.
        let answer = match nvml.get_or_insert_with(Nvml::open) {
            Ok(nvml) => nvml.answer(&question),
            Err(why) => Answer::Absent(why.clone()),
        };
        if write_message(&mut stdout, &answer).is_err() {
            break;
        }
    }
    ExitCode::SUCCESS
}
