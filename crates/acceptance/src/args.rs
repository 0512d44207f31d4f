//! A minimal parser of command-line arguments, instead of a parser crate.

use crate::Result;
use std::str::FromStr;

/// Arguments that have not been taken yet.
pub struct Args(Vec<String>);

impl Args {
    /// Parses the process's arguments without its name. Splits `--name=value`.
    pub fn new(args: impl Iterator<Item = String>) -> Self {
        let mut out = Vec::new();
        for arg in args {
            match arg.split_once('=') {
                Some((name, value)) if name.starts_with("--") => {
                    out.extend([name.to_string(), value.to_string()]);
                }
                _ => out.push(arg),
            }
        }
        Self(out)
    }

    /// Takes the command: the first argument, unless it is an option.
    pub fn command(&mut self) -> Option<String> {
        let first = self.0.first()?;
        if first.starts_with('-') { None } else { Some(self.0.remove(0)) }
    }

    /// Takes a flag; returns whether it was given.
    pub fn flag(&mut self, name: &str) -> bool {
        let before = self.0.len();
        self.0.retain(|a| a != name);
        self.0.len() != before
    }

    /// Takes the first `name VALUE`.
    pub fn value<T: FromStr>(&mut self, name: &str) -> Result<Option<T>> {
        let Some(at) = self.0.iter().position(|a| a == name) else { return Ok(None) };
        if at + 1 == self.0.len() {
            return Err(format!("{name} needs a value"));
        }
        let text = self.0.remove(at + 1);
        self.0.remove(at);
        text.parse().map(Some).map_err(|_| format!("{name}: cannot use `{text}` as its value"))
    }

    /// Takes all occurrences of `name VALUE`.
    pub fn values(&mut self, name: &str) -> Result<Vec<String>> {
        let mut out = Vec::new();
        while let Some(value) = self.value(name)? {
            out.push(value);
        }
        Ok(out)
    }

    /// Takes all remaining arguments, for another program.
    pub fn rest(&mut self) -> Vec<String> {
        std::mem::take(&mut self.0)
    }

    /// Requires that all arguments have been taken.
    pub fn end(&self) -> Result {
        match self.0.first() {
            None => Ok(()),
            Some(arg) => {
                Err(format!("`{arg}` is not an argument of this command; see `cargo xtask --help`"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(text: &str) -> Args {
        Args::new(text.split_whitespace().map(String::from))
    }

    #[test]
    fn parses_flags_and_values_and_rejects_the_rest() {
        let mut a = args("fuzz --seconds=5 --check --skip a --skip b left");
        assert_eq!(a.command().as_deref(), Some("fuzz"));
        assert_eq!(a.value::<u64>("--seconds"), Ok(Some(5)));
        assert!(a.flag("--check") && !a.flag("--check"));
        assert_eq!(a.values("--skip").unwrap(), ["a", "b"]);
        assert!(a.end().unwrap_err().contains("left"));
    }

    #[test]
    fn names_the_option_of_a_bad_value() {
        assert!(args("--seconds").value::<u64>("--seconds").unwrap_err().contains("--seconds"));
        assert!(args("--seconds x").value::<u64>("--seconds").unwrap_err().contains("`x`"));
    }

    #[test]
    fn an_option_is_no_command_and_the_rest_goes_to_another_program() {
        assert_eq!(args("--check fuzz").command(), None);
        assert_eq!(args("").command(), None);
        let mut a = args("run --times 3 a --b c=d");
        assert_eq!(a.command().as_deref(), Some("run"));
        assert_eq!(a.value::<u32>("--times"), Ok(Some(3)));
        assert_eq!(a.value::<u32>("--times"), Ok(None), "it was taken");
        assert_eq!(a.rest(), ["a", "--b", "c=d"], "only options are split at `=`");
        assert_eq!((a.end(), a.rest().len()), (Ok(()), 0));
    }
}
