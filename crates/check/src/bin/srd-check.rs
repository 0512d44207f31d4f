//! The fault checker as a separate program, which needs no sockets; `srd check` is the same.
#![forbid(unsafe_code)]

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use srd_check::Trouble;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // Registered in this order, the first signal only sets the flag and the second one ends the
        // process. Without these handlers a signal would end a run without its summary.
        let _ = flag::register_conditional_default(signal, Arc::clone(&stop));
        let _ = flag::register(signal, Arc::clone(&stop));
    }
    match srd_check::cli(&args, &stop) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) | Err(Trouble::Unread) => ExitCode::FAILURE,
        Err(Trouble::Usage(message)) => {
            eprintln!("srd-check: {message}");
            ExitCode::from(2)
        }
        Err(Trouble::Failed(message)) => {
            eprintln!("srd-check: {message}");
            ExitCode::FAILURE
        }
    }
}
