//! Output for the user. No function here panics if the reader of the output has exited.

use crate::failure::{Failure, Result};
use std::io::{self, Write};

/// Writes one line to standard output and flushes it.
///
/// # Errors
/// The reader of the output has exited, or the output file's disk is full.
pub fn line(text: &str) -> Result {
    let mut out = io::stdout().lock();
    let done = writeln!(out, "{text}").and_then(|()| out.flush());
    done.map_err(|e| match e.kind() {
        io::ErrorKind::BrokenPipe => Failure::output_closed(),
        _ => Failure::new(format!("cannot write the output: {e}")),
    })
}

/// Writes one line to standard error. A failed write is ignored, because it cannot be reported.
pub fn note(text: &str) {
    // In one call, so that lines of processes that share the terminal stay whole.
    let _ = io::stderr().lock().write_all(format!("{text}\n").as_bytes());
}
