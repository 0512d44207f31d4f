//! The checked files.

use crate::{Result, process};
use std::{collections::BTreeSet, fs, path::Path};

/// One file of the repository.
pub struct File {
    /// Path, relative to the root, with `/`.
    pub path: String,
    /// Size in bytes.
    pub bytes: u64,
    /// Content; `None` for binary files.
    pub text: Option<String>,
}

/// All files that are, or would be, committed.
pub struct Tree {
    /// Sorted by path.
    pub files: Vec<File>,
}

/// Folders that are skipped if git is not available.
const SKIPPED: [&str; 3] = ["target", ".git", "node_modules"];

impl Tree {
    /// Reads the files that git tracks or would add; without git (in an unpacked archive), all
    /// files.
    pub fn read(root: &Path) -> Result<Self> {
        let list = ["ls-files", "--cached", "--others", "--exclude-standard", "-z"];
        let mut paths: BTreeSet<String> = BTreeSet::new();
        match process::output(&mut process::command("git", &list)) {
            Ok(names) => paths.extend(names.split_terminator('\0').map(String::from)),
            Err(_) => walk(root, "", &mut paths)?,
        }
        let mut files = Vec::new();
        for path in paths {
            // Skips links, and files that were deleted but are still in git's index.
            let full = root.join(&path);
            if !fs::symlink_metadata(&full).is_ok_and(|m| m.is_file()) {
                continue;
            }
            let content = fs::read(&full).map_err(|e| format!("cannot read {path}: {e}"))?;
            let bytes = content.len() as u64;
            files.push(File { path, bytes, text: String::from_utf8(content).ok() });
        }
        Ok(Self { files })
    }

    /// Text of the file at `path`.
    pub fn text(&self, path: &str) -> Option<&str> {
        self.files.iter().find(|f| f.path == path)?.text.as_deref()
    }

    /// Text files whose path ends with `end`, with their content.
    pub fn ending<'a>(&'a self, end: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.files
            .iter()
            .filter(move |f| f.path.ends_with(end))
            .filter_map(|f| Some((f.path.as_str(), f.text.as_deref()?)))
    }

    /// Whether there is a file or folder at `path`.
    pub fn has(&self, path: &str) -> bool {
        let folder = format!("{path}/");
        path.is_empty() || self.files.iter().any(|f| f.path == path || f.path.starts_with(&folder))
    }

    /// A tree of sample files.
    #[cfg(test)]
    pub fn sample(files: &[(&str, &str)]) -> Self {
        let file = |(path, text): &(&str, &str)| File {
            path: (*path).into(),
            bytes: text.len() as u64,
            text: Some((*text).into()),
        };
        Self { files: files.iter().map(file).collect() }
    }
}

fn walk(root: &Path, folder: &str, out: &mut BTreeSet<String>) -> Result {
    let fail = |e: std::io::Error| format!("cannot read folder `{folder}`: {e}");
    for entry in fs::read_dir(root.join(folder)).map_err(fail)? {
        let entry = entry.map_err(fail)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
        if entry.file_type().map_err(fail)?.is_dir() {
            if !SKIPPED.contains(&name.as_str()) {
                walk(root, &path, out)?;
            }
        } else {
            out.insert(path);
        }
    }
    Ok(())
}
