//! The drop-in libraries inside the tool (feature `libraries`): `cargo install` installs programs
//! and nothing else, so that the tool brings the libraries along and unpacks them into the user's
//! cache.

use crate::failure::{Failure, Result};
use std::{
    env,
    ffi::OsString,
    fs, io,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

/// Names and contents; none in a tool that is installed with the libraries beside it.
#[cfg(not(contains_libraries))]
const CONTAINED: &[(&str, &[u8])] = &[];
#[cfg(contains_libraries)]
const CONTAINED: &[(&str, &[u8])] = {
    macro_rules! contained {
        ($($name:literal),*) => {
            &[$(($name, include_bytes!(concat!(env!("OUT_DIR"), "/libraries/", $name)))),*]
        };
    }
    contained!("libibverbs.so.1", "libefa.so.1", "libsrd_places.so.1")
};
/// Names by which some programs open the libraries.
const LINKS: [(&str, &str); 2] =
    [("libibverbs.so", "libibverbs.so.1"), ("libefa.so", "libefa.so.1")];

/// The folder of the libraries that this tool contains, unpacked; `None`: it contains none.
///
/// # Errors
/// There is no cache, or it cannot be written.
pub fn folder() -> Result<Option<PathBuf>> {
    if CONTAINED.is_empty() {
        return Ok(None);
    }
    let cache = cache(|name| env::var_os(name)).ok_or_else(|| {
        Failure::new(
            "there is no folder to unpack the libraries of this program into: set HOME or \
             XDG_CACHE_HOME",
        )
    })?;
    unpack(CONTAINED, &cache).map(Some)
}

/// The user's cache, as the XDG Base Directory Specification has it: paths that are not absolute
/// do not count.
fn cache(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let path = |name: &str| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    path("XDG_CACHE_HOME").or_else(|| Some(path("HOME")?.join(".cache")))
}

/// Unpacks the files into a folder of the cache that is named by what they contain, so that
/// programs of another version keep theirs. What is there already, and right, is not written.
fn unpack(files: &[(&str, &[u8])], cache: &Path) -> Result<PathBuf> {
    let mut hash = blake3::Hasher::new();
    for (_, bytes) in files {
        hash.update(bytes);
    }
    let name = format!("libraries-{}", &hash.finalize().to_hex()[..16]);
    let folder = cache.join("srd").join(name);
    let fail = |e: io::Error| {
        Failure::new(format!(
            "{}: cannot unpack the libraries of this program: {e}; XDG_CACHE_HOME names another \
             place for them",
            folder.display()
        ))
    };
    fs::create_dir_all(&folder).map_err(fail)?;
    // Others may unpack at the same time, or run programs with a library that is replaced here:
    // files are renamed when they are complete.
    let replaced = |name: &str, make: &dyn Fn(&Path) -> io::Result<()>| {
        let new = folder.join(format!(".{name}.{}", std::process::id()));
        make(&new).and_then(|()| fs::rename(&new, folder.join(name))).inspect_err(|_| {
            // Half a file is of no use; if it stays, it is harmless.
            let _ = fs::remove_file(&new);
        })
    };
    for (name, bytes) in files {
        if !fs::read(folder.join(name)).is_ok_and(|found| found == *bytes) {
            replaced(name, &|new| fs::write(new, bytes)).map_err(fail)?;
        }
    }
    for (name, to) in LINKS {
        if !fs::read_link(folder.join(name)).is_ok_and(|found| found == Path::new(to)) {
            replaced(name, &|new| symlink(to, new)).map_err(fail)?;
        }
    }
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILES: [(&str, &[u8]); 2] = [("libibverbs.so.1", b"verbs"), ("libefa.so.1", b"efa")];

    fn empty_cache(name: &str) -> PathBuf {
        let cache = env::temp_dir().join(format!("srd-contained-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&cache);
        cache
    }

    #[test]
    fn libraries_are_unpacked_once_and_repaired() {
        let cache = empty_cache("repaired");
        let folder = unpack(&FILES, &cache).unwrap();
        let verbs = folder.join("libibverbs.so.1");
        let written = |path: &Path| fs::metadata(path).unwrap().modified().unwrap();
        let first = written(&verbs);
        // The second time nothing is written: running programs keep their file.
        assert_eq!(unpack(&FILES, &cache).unwrap(), folder);
        assert_eq!(written(&verbs), first);
        assert_eq!(fs::read(folder.join("libefa.so")).unwrap(), b"efa");
        fs::write(&verbs, b"ver").unwrap();
        fs::remove_file(folder.join("libibverbs.so")).unwrap();
        unpack(&FILES, &cache).unwrap();
        assert_eq!(fs::read(folder.join("libibverbs.so")).unwrap(), b"verbs");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 4, "no file in between is left");
        // Others have a folder of their own.
        let other = unpack(&[("libibverbs.so.1", b"newer"), FILES[1]], &cache).unwrap();
        assert!(other != folder && fs::read(&verbs).unwrap() == b"verbs");
        fs::remove_dir_all(&cache).unwrap();
    }

    #[test]
    fn a_cache_that_cannot_be_written_is_named() {
        let cache = empty_cache("refused");
        fs::create_dir_all(&cache).unwrap();
        fs::write(cache.join("srd"), "a file").unwrap();
        let text = unpack(&FILES, &cache).unwrap_err().to_string();
        assert!(text.contains("srd/libraries-") && text.contains("XDG_CACHE_HOME"), "{text}");
        fs::remove_dir_all(&cache).unwrap();
    }

    #[test]
    fn the_cache_is_where_others_expect_it() {
        let at = |xdg: Option<&str>, home: Option<&str>| {
            cache(|name| if name == "HOME" { home } else { xdg }.map(OsString::from))
        };
        assert_eq!(at(Some("/cache"), Some("/home/a")), Some("/cache".into()));
        assert_eq!(at(Some("cache"), Some("/home/a")), Some("/home/a/.cache".into()));
        assert_eq!((at(None, Some("")), at(Some(""), None)), (None, None));
    }
}
