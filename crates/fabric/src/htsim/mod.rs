//! Readers of htsim's connection matrices (`.cm`) and topologies (`.topo`).
//!
//! Both readers are strict: an unknown line, or one that asks for something that is not simulated,
//! is an error with the line number and the reason. Nothing is skipped or truncated.

mod cm;
mod topo;

pub use cm::{CmFile, Connection, Failure, StartUnit, Trigger, TriggerKind};
pub use topo::{TopoFile, TopoTier};

use std::fmt;

/// Error of a reader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadError {
    /// Line number from 1; 0 = the file as a whole.
    pub line: usize,
    /// What is wrong and what to do.
    pub message: String,
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => f.write_str(&self.message),
            line => write!(f, "line {line}: {}", self.message),
        }
    }
}
impl std::error::Error for ReadError {}

fn fail<T>(line: usize, message: impl Into<String>) -> Result<T, ReadError> {
    Err(ReadError { line, message: message.into() })
}

/// The words of each line that has any, with the line number. `#` starts a comment.
fn lines(text: &str) -> impl Iterator<Item = (usize, Vec<&str>)> {
    text.lines().enumerate().filter_map(|(i, line)| {
        let code = line.split('#').next().unwrap_or_default();
        let words: Vec<&str> = code.split_whitespace().collect();
        (!words.is_empty()).then_some((i + 1, words))
    })
}

/// Parses a word as a whole number.
fn number<T: std::str::FromStr>(
    line: usize,
    word: Option<&&str>,
    what: &str,
) -> Result<T, ReadError> {
    let Some(word) = word else { return fail(line, format!("{what}: a number is missing")) };
    let digits = word.bytes().all(|b| b.is_ascii_digit());
    match word.parse() {
        Ok(n) if digits => Ok(n),
        _ => fail(line, format!("{what}: `{word}` is not a whole number that fits")),
    }
}

#[cfg(test)]
mod tests;
