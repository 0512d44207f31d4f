//! The server's folder. File names from clients cannot lead outside it.

use super::{Target, failure, folder_open, read_open};
use crate::failure::{Failure, Result};
use rustix::{fs::CWD, io::Errno};
use std::{
    fs::File,
    os::fd::{AsFd, OwnedFd},
    path::Path,
};

/// Deepest nesting of folders in a name.
const DEPTH_MAX: usize = 64;

/// A folder from which files are read and to which files are written.
///
/// A name is a relative path. Each component is opened relative to the folder before it, without
/// following symbolic links, so neither `..`, links nor races lead outside.
#[derive(Debug)]
pub struct Folder {
    root: OwnedFd,
}

impl Folder {
    /// Opens the folder. Its own path may contain symbolic links.
    ///
    /// # Errors
    /// The folder does not exist, or is not a folder.
    pub fn open(path: &Path) -> Result<Self> {
        let root = folder_open(CWD, path, true);
        let what = path.display();
        let fail = |e| match e {
            Errno::NOENT => {
                Failure::new(format!("{what}: no such file or folder; make it first (mkdir)"))
            }
            e => failure(&what.to_string(), e),
        };
        Ok(Self { root: root.map_err(fail)? })
    }

    /// Opens a file for reading. Returns it and its size in bytes.
    ///
    /// # Errors
    /// The name leads outside the folder, or to no readable regular file.
    pub fn read(&self, name: &str) -> Result<(File, u64)> {
        let (parent, last) = self.walk(name)?;
        read_open(parent, Path::new(last), name, false)
    }

    /// Creates a file that appears under its name only when it is complete.
    ///
    /// # Errors
    /// The name leads outside the folder, or the file cannot be created.
    pub fn create(&self, name: &str, size: u64) -> Result<Target> {
        let (parent, last) = self.walk(name)?;
        Target::create(parent, Path::new(last), name, size)
    }

    /// Opens the folder that contains a name. Returns it and the last component.
    fn walk<'a>(&self, name: &'a str) -> Result<(OwnedFd, &'a str)> {
        let parts = parts_of(name)?;
        let (last, parents) = parts.split_last().ok_or_else(|| bad(name, "is empty"))?;
        let fail = |e| failure(name, e);
        let mut at = folder_open(self.root.as_fd(), Path::new("."), false).map_err(fail)?;
        for part in parents {
            at = folder_open(&at, Path::new(part), false).map_err(fail)?;
        }
        Ok((at, last))
    }
}

fn bad(name: &str, why: &str) -> Failure {
    Failure::new(format!("the name `{name}` {why}; name a file below the server's folder"))
}

/// The components of a name.
fn parts_of(name: &str) -> Result<Vec<&str>> {
    if name.is_empty() {
        return Err(bad(name, "is empty"));
    }
    if name.starts_with('/') {
        return Err(bad(name, "is absolute"));
    }
    if name.contains('\0') {
        return Err(bad(&name.replace('\0', "?"), "contains a zero byte"));
    }
    let parts: Vec<&str> = name.split('/').collect();
    if parts.contains(&"..") {
        return Err(bad(name, "contains `..`"));
    }
    if parts.iter().any(|p| p.is_empty() || *p == ".") {
        return Err(bad(name, "contains an empty part or `.`"));
    }
    if parts.len() > DEPTH_MAX {
        return Err(bad(name, "has too many parts"));
    }
    Ok(parts)
}
