//! The `isotherm` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    isotherm::cli::main()
}
