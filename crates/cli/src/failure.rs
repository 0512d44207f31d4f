//! Why a command failed: a text that says what to do, and the exit code.

use std::{fmt, io};

/// Result of an operation whose failure ends the command.
pub type Result<T = (), E = Failure> = std::result::Result<T, E>;

/// Exit code: the operation failed.
const FAILED: u8 = 1;
/// Exit code: invalid command line (clap uses the same).
const USAGE: u8 = 2;
/// Exit code: interrupted, as shells report it (128 + SIGINT).
const INTERRUPTED: u8 = 130;

/// An unsuccessful end of a command.
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

    /// The command line is invalid.
    pub fn usage(text: impl Into<String>) -> Self {
        Self { code: USAGE, text: text.into() }
    }

    /// The operation failed, with an exit code of its own.
    pub fn with_code(code: u8, text: impl Into<String>) -> Self {
        Self { code, text: text.into() }
    }

    /// The user pressed Ctrl-C, or the process received SIGTERM.
    pub fn interrupted() -> Self {
        Self { code: INTERRUPTED, text: "interrupted".into() }
    }

    /// The operation failed, and the output has reported it.
    pub fn reported() -> Self {
        Self { code: FAILED, text: String::new() }
    }

    /// The reader of the output has exited (`srd … | head`): the tool ends without a message.
    pub fn output_closed() -> Self {
        Self { code: FAILED, text: String::new() }
    }

    /// Exit code.
    pub fn code(&self) -> u8 {
        self.code
    }

    /// Prints the text to standard error, if there is one.
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
        match e {
            srd::DeviceError::Key(_) | srd::DeviceError::Seal(_) => Self::usage(e.to_string()),
            _ => Self::new(e.to_string()),
        }
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
