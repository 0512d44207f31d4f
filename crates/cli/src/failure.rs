//! Why a command failed: a text that names what to do, and the exit code.

use std::{fmt, io};

/// Result of anything that can end a command.
pub type Result<T = (), E = Failure> = std::result::Result<T, E>;

/// Exit code: the operation failed.
const FAILED: u8 = 1;
/// Exit code: the command line makes no sense (clap uses the same).
const USAGE: u8 = 2;
/// Exit code: ended by Ctrl-C, as shells report it (128 + SIGINT).
const INTERRUPTED: u8 = 130;

/// The end of a command that did not succeed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    code: u8,
    text: String,
}

impl Failure {
    /// The operation failed.
    pub fn new(text: impl Into<String>) -> Self {
        Self { code: FAILED, text: text.into() }
    }

    /// The command line makes no sense.
    pub fn usage(text: impl Into<String>) -> Self {
        Self { code: USAGE, text: text.into() }
    }

    /// The operation failed, with an exit code of its own.
    pub fn with_code(code: u8, text: impl Into<String>) -> Self {
        Self { code, text: text.into() }
    }

    /// The user pressed Ctrl-C, or the process was asked to end.
    pub fn interrupted() -> Self {
        Self { code: INTERRUPTED, text: "interrupted".into() }
    }

    /// The operation failed, and the output says so already.
    pub fn told() -> Self {
        Self { code: FAILED, text: String::new() }
    }

    /// The reader of the output has gone (`srd … | head`): the tool ends silently.
    pub fn output_closed() -> Self {
        Self { code: FAILED, text: String::new() }
    }

    /// Exit code.
    pub fn code(&self) -> u8 {
        self.code
    }

    /// Writes it to standard error.
    pub fn tell(&self) {
        if !self.text.is_empty() {
            crate::output::note(&format!("srd: {}", self.text));
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<srd::Error> for Failure {
    fn from(e: srd::Error) -> Self {
        Self::new(e.to_string())
    }
}

impl From<srd::DeviceError> for Failure {
    fn from(e: srd::DeviceError) -> Self {
        Self::new(e.to_string())
    }
}

impl From<srd::PostError> for Failure {
    fn from(e: srd::PostError) -> Self {
        Self::new(e.to_string())
    }
}

impl From<srd::CompletionError> for Failure {
    fn from(e: srd::CompletionError) -> Self {
        Self::new(srd::status_text(e.0.status))
    }
}

impl From<io::Error> for Failure {
    fn from(e: io::Error) -> Self {
        Self::new(e.to_string())
    }
}

impl From<rustix::io::Errno> for Failure {
    fn from(e: rustix::io::Errno) -> Self {
        io::Error::from(e).into()
    }
}
