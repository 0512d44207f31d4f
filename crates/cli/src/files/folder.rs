//! The folder of a server: names from strangers lead nowhere else.

use super::{Target, failure, folder_open, read_open};
use crate::failure::{Failure, Result};
use rustix::fs::CWD;
use std::{
    fs::File,
    os::fd::{AsFd, OwnedFd},
    path::Path,
};

/// Folders within folders at most.
const DEPTH_MAX: usize = 64;

/// A folder that files are read from and written to.
///
/// A name is a relative path of plain parts. Each part is opened from the folder before it
/// without following symbolic links, so that neither `..` nor a link nor a race leads outside.
#[derive(Debug)]
pub struct Folder {
    root: OwnedFd,
}

impl Folder {
    /// Opens the folder itself, which may be named through symbolic links.
    ///
    /// # Errors
    /// It does not exist, or is none.
    pub fn open(path: &Path) -> Result<Self> {
        let root = folder_open(CWD, path, true);
        let fail = |e| failure(&path.display().to_string(), e);
        Ok(Self { root: root.map_err(fail)? })
    }

    /// Opens a file for reading: it, and its size in bytes.
    ///
    /// # Errors
    /// The name leads outside, or to nothing that can be read.
    pub fn read(&self, name: &str) -> Result<(File, u64)> {
        let (parent, last) = self.walk(name)?;
        read_open(parent, Path::new(last), name, false)
    }

    /// Begins a file that will be complete under its name or not there at all.
    ///
    /// # Errors
    /// The name leads outside, or no file can be made there.
    pub fn create(&self, name: &str, size: u64) -> Result<Target> {
        let (parent, last) = self.walk(name)?;
        Target::create(parent, Path::new(last), name, size)
    }

    /// The folder that a name lies in, and its last part.
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

/// The parts of a name.
fn parts_of(name: &str) -> Result<Vec<&str>> {
    if name.is_empty() {
        return Err(bad(name, "is empty"));
    }
    if name.starts_with('/') {
        return Err(bad(name, "is absolute"));
    }
    if name.contains('\0') {
        return Err(bad(&name.replace('\0', "?"), "holds a zero byte"));
    }
    let parts: Vec<&str> = name.split('/').collect();
    if parts.contains(&"..") {
        return Err(bad(name, "holds `..`"));
    }
    if parts.iter().any(|p| p.is_empty() || *p == ".") {
        return Err(bad(name, "holds an empty part or `.`"));
    }
    if parts.len() > DEPTH_MAX {
        return Err(bad(name, "has too many parts"));
    }
    Ok(parts)
}
