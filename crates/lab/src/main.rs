//! `srd-lab`: the lab's command line.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    srd_lab::cli::main(std::env::args_os())
}
