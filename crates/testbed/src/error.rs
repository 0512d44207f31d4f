//! Why a command failed, with what to do.

use std::{fmt, io};

/// Result of an operation whose failure ends the command.
pub type Result<T = (), E = NetError> = std::result::Result<T, E>;

/// An unsuccessful end of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetError {
    text: String,
    usage: bool,
}

impl NetError {
    /// The operation failed.
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), usage: false }
    }

    /// The command line is invalid.
    pub fn usage(text: impl Into<String>) -> Self {
        Self { text: text.into(), usage: true }
    }

    /// `what` failed with an error of the system.
    pub fn system(what: &str, error: impl fmt::Display) -> Self {
        Self::new(format!("{what}: {error}"))
    }

    /// Whether the command line is invalid, rather than the operation having failed.
    pub fn is_usage(&self) -> bool {
        self.usage
    }
}

impl fmt::Display for NetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for NetError {}

impl From<io::Error> for NetError {
    fn from(e: io::Error) -> Self {
        Self::new(e.to_string())
    }
}

macro_rules! from_text {
    ($($type:ty),*) => {$(
        impl From<$type> for NetError {
            fn from(e: $type) -> Self {
                Self::new(e.to_string())
            }
        }
    )*};
}

from_text!(
    srd::datapath::OpenError,
    srd::Error,
    srd::DeviceError,
    srd::PostError,
    rustix::io::Errno,
    serde_json::Error
);
