//! `xtask/tidy.toml`: names in the root, layers and exceptions.

use crate::Result;
use std::collections::BTreeMap;
use toml::de::{DeTable, DeValue};

/// A file or function that may exceed its limit.
pub struct LongEntry {
    /// Path of the file.
    pub path: String,
    /// Name of the function; `None` for the whole file.
    pub function: Option<String>,
    /// Current length in lines, which may only shrink.
    pub lines: usize,
}

/// The parsed settings.
pub struct Settings {
    /// Files and folders that are allowed in the root.
    pub root: Vec<String>,
    /// Package → workspace packages that it may depend on.
    pub layers: BTreeMap<String, Vec<String>>,
    /// Package → additional workspace packages that its tests may use.
    pub layers_tests: BTreeMap<String, Vec<String>>,
    /// Directory of a crate → sibling directories that it may use.
    pub floors: BTreeMap<String, Vec<String>>,
    /// Directory → functions for which there must be one assertion at least.
    pub assertions: BTreeMap<String, usize>,
    /// Files in which `unsafe` is allowed.
    pub unsafe_files: Vec<String>,
    /// Files and functions over the limit.
    pub long: Vec<LongEntry>,
}

impl Settings {
    /// Parses `xtask/tidy.toml`. Every exception must have a reason.
    pub fn parse(text: &str) -> Result<Self> {
        let fail = |what: String| format!("xtask/tidy.toml: {what}");
        let table = DeTable::parse(text).map_err(|e| fail(e.to_string()))?;
        let table = table.get_ref();
        let known = ["root", "layers", "layers_tests", "floors", "assertions", "unsafe", "long"];
        let known = |k: &str| known.contains(&k);
        if let Some(unknown) = table.keys().find(|k| !known(k.get_ref())) {
            return Err(fail(format!("unknown section `{}`", unknown.get_ref())));
        }
        let mut unsafe_files = Vec::new();
        for entry in entries(table, "unsafe").map_err(fail)? {
            unsafe_files.push(entry.path);
        }
        let mut long = Vec::new();
        for entry in entries(table, "long").map_err(fail)? {
            let lines = entry.lines.ok_or_else(|| fail("[[long]] needs `lines`".into()))?;
            long.push(LongEntry { path: entry.path, function: entry.function, lines });
        }
        let root = layers(table, "root").map_err(fail)?.remove("names").unwrap_or_default();
        Ok(Self {
            root,
            layers: layers(table, "layers").map_err(fail)?,
            layers_tests: layers(table, "layers_tests").map_err(fail)?,
            floors: layers(table, "floors").map_err(fail)?,
            assertions: ratios(table, "assertions").map_err(fail)?,
            unsafe_files,
            long,
        })
    }
}

/// An exception.
struct Entry {
    path: String,
    function: Option<String>,
    lines: Option<usize>,
}

fn entries(table: &DeTable<'_>, name: &str) -> Result<Vec<Entry>> {
    let Some(list) = table.get(name) else { return Ok(Vec::new()) };
    let list = list.get_ref().as_array().ok_or_else(|| format!("`{name}` must be [[{name}]]"))?;
    let mut out = Vec::new();
    for item in list.iter() {
        let item = item.get_ref().as_table().ok_or_else(|| format!("[[{name}]]: not a table"))?;
        let text = |key| item.get(key).and_then(|v| v.get_ref().as_str()).map(String::from);
        let path = text("path").ok_or_else(|| format!("[[{name}]] needs `path`"))?;
        if text("reason").is_none_or(|r| r.trim().len() < 10 || r.contains('\n')) {
            return Err(format!("[[{name}]] {path}: give a `reason` of one line"));
        }
        let lines = match item.get("lines").map(|v| v.get_ref()) {
            None => None,
            Some(DeValue::Integer(i)) => i.as_str().parse().ok(),
            Some(_) => return Err(format!("[[{name}]] {path}: `lines` must be a number")),
        };
        out.push(Entry { path, function: text("function"), lines });
    }
    Ok(out)
}

fn layers(table: &DeTable<'_>, name: &str) -> Result<BTreeMap<String, Vec<String>>> {
    let Some(value) = table.get(name) else { return Ok(BTreeMap::new()) };
    let value = value.get_ref().as_table().ok_or_else(|| format!("`{name}` must be a table"))?;
    let mut out = BTreeMap::new();
    for (package, below) in value {
        let package = package.get_ref().to_string();
        let below = below.get_ref().as_array();
        let below = below.ok_or_else(|| format!("{name}.{package} must be a list"))?;
        let names = below.iter().filter_map(|v| v.get_ref().as_str()).map(String::from).collect();
        out.insert(package, names);
    }
    Ok(out)
}

fn ratios(table: &DeTable<'_>, name: &str) -> Result<BTreeMap<String, usize>> {
    let Some(value) = table.get(name) else { return Ok(BTreeMap::new()) };
    let value = value.get_ref().as_table().ok_or_else(|| format!("`{name}` must be a table"))?;
    let mut out = BTreeMap::new();
    for (directory, ratio) in value {
        let directory = directory.get_ref().to_string();
        let ratio = match ratio.get_ref() {
            DeValue::Integer(i) => i.as_str().parse().ok().filter(|n| *n > 0),
            _ => None,
        };
        let ratio = ratio.ok_or_else(|| format!("{name}.{directory} must be a number from 1"))?;
        out.insert(directory, ratio);
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_layers_and_exceptions() {
        let s = Settings::parse(
            "[layers]\na = [\"b\"]\n\
             [[unsafe]]\npath = \"x.rs\"\nreason = \"system calls have no safe form\"\n\
             [[long]]\npath = \"y.rs\"\nfunction = \"f\"\nlines = 120\nreason = \"one table\"\n",
        );
        assert!(s.as_ref().err().is_some_and(|e| e.contains("y.rs")), "short reason is refused");
        let s = Settings::parse("[[long]]\npath = \"y\"\nlines = 7\nreason = \"generated table\"");
        assert_eq!(s.unwrap().long[0].lines, 7);
        let s = Settings::parse("[layers]\na = [\"b\"]\n").unwrap();
        assert_eq!(s.layers["a"], ["b"]);
    }

    #[test]
    fn reads_ratios_of_assertions() {
        let s = Settings::parse("[assertions]\n\"crates/a\" = 3\n").unwrap();
        assert_eq!(s.assertions["crates/a"], 3);
        for bad in ["0", "-1", "\"3\"", "[3]"] {
            let text = format!("[assertions]\na = {bad}\n");
            assert!(Settings::parse(&text).err().unwrap().contains("assertions.a"), "{bad}");
        }
    }

    #[test]
    fn refuses_unknown_sections() {
        assert!(Settings::parse("[other]\n").err().unwrap().contains("other"));
        assert!(Settings::parse("[[unsafe]]\nreason = \"no path is given\"\n").is_err());
    }
}
