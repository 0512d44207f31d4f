//! Options `--name VALUE` of the programs that the report starts.

use crate::Result;
use std::{collections::BTreeMap, error::Error, str::FromStr};

/// Options that have not been taken yet.
pub struct Options(BTreeMap<String, String>);

impl Options {
    /// Parses arguments that are alternately names and values.
    pub fn new(args: impl IntoIterator<Item = String>) -> Result<Self> {
        let mut out = BTreeMap::new();
        let mut args = args.into_iter();
        while let Some(name) = args.next() {
            let short =
                name.strip_prefix("--").ok_or_else(|| format!("`{name}` is not an option"))?;
            let value = args.next().ok_or_else(|| format!("{name} needs a value"))?;
            if out.insert(short.to_owned(), value).is_some() {
                return Err(format!("{name} is given twice").into());
            }
        }
        Ok(Self(out))
    }

    /// Takes a required option.
    pub fn need<T: FromStr<Err: Error>>(&mut self, name: &str) -> Result<T> {
        self.get(name)?.ok_or_else(|| format!("--{name} is missing").into())
    }

    /// Takes an option that has a default.
    pub fn or<T: FromStr<Err: Error>>(&mut self, name: &str, default: T) -> Result<T> {
        Ok(self.get(name)?.unwrap_or(default))
    }

    /// Takes an optional option.
    pub fn get<T: FromStr<Err: Error>>(&mut self, name: &str) -> Result<Option<T>> {
        let Some(text) = self.0.remove(name) else { return Ok(None) };
        text.parse().map(Some).map_err(|e| format!("--{name} {text}: {e}").into())
    }

    /// Requires that all options have been taken.
    pub fn end(&self) -> Result<()> {
        match self.0.keys().next() {
            None => Ok(()),
            Some(name) => Err(format!("--{name} is not an option of this command").into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(text: &str) -> Result<Options> {
        Options::new(text.split_whitespace().map(String::from))
    }

    #[test]
    fn parses_values_and_rejects_unknown_options() {
        let mut o = options("--size 1400 --op send --left 1").unwrap();
        assert_eq!(o.need::<u32>("size").unwrap(), 1400);
        assert_eq!(o.or("depth", 7).unwrap(), 7);
        assert_eq!(o.need::<String>("op").unwrap(), "send");
        assert!(o.end().unwrap_err().to_string().contains("--left"));
        assert!(o.need::<u32>("size").unwrap_err().to_string().contains("missing"));
        assert!(o.need::<f32>("left").is_ok() && o.end().is_ok());
    }

    #[test]
    fn errors_name_the_option() {
        assert!(options("size 3").is_err() && options("--size").is_err());
        assert!(options("--a 1 --a 2").is_err());
        let bad = options("--size x").unwrap().need::<u32>("size").unwrap_err();
        assert!(bad.to_string().contains("--size x"));
    }
}
