//! What the user sees. Nothing here panics when the reader of the output has gone.

use crate::failure::{Failure, Result};
use std::io::{self, Write};

/// Writes one line to standard output at once.
///
/// # Errors
/// The reader of the output has gone, or the file it goes to is full.
pub fn line(text: &str) -> Result {
    let mut out = io::stdout().lock();
    let done = writeln!(out, "{text}").and_then(|()| out.flush());
    done.map_err(|e| match e.kind() {
        io::ErrorKind::BrokenPipe => Failure::output_closed(),
        _ => Failure::new(format!("cannot write the output: {e}")),
    })
}

/// Writes one line to standard error. A failure to do so cannot be reported and is ignored.
pub fn note(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}
