//! `install` and `uninstall`: for those who have a checkout. The list of what was installed lies
//! with the libraries, and only what is in it is removed.

use super::{Parts, stage, tree, tree::Tree};
use crate::Result;
use std::{
    fmt::Write as _,
    fs,
    io::ErrorKind,
    os::unix::fs::symlink,
    path::{Component, Path, PathBuf},
};

/// The list: a path below the prefix in each line, folders after what is in them.
const LIST: &str = "lib/srd/installed.txt";

/// Installs below `prefix`.
///
/// # Errors
/// A file cannot be written, or one that is no part of an installation would be replaced.
pub fn install(parts: &Parts, prefix: &Path) -> Result {
    let folder = stage("install")?;
    fill(parts, &folder, prefix)?;
    put(&folder, prefix)
}

/// Requires that files can be made below `prefix`, or where it would be made: to be asked before
/// everything is built.
///
/// # Errors
/// They cannot.
pub fn writable(prefix: &Path) -> Result {
    for folder in ["bin", "lib/srd", "include", "share"] {
        let folder = prefix.join(folder);
        let Some(there) = folder.ancestors().find(|f| fs::symlink_metadata(f).is_ok()) else {
            continue;
        };
        let probe = there.join(format!(".srd-install-{}", std::process::id()));
        fs::File::create_new(&probe).and_then(|_| fs::remove_file(&probe)).map_err(|e| {
            format!(
                "cannot install into {}: {e}; choose another --prefix (--prefix ~/.local needs no \
                 root), run it as a user who may write there, or make a package (`./x deb`), which \
                 `sudo apt install` installs",
                there.display()
            )
        })?;
    }
    Ok(())
}

/// Installs the files in `folder` below `prefix`, in place of an installation that is there.
fn put(folder: &Path, prefix: &Path) -> Result {
    let all = tree::entries(folder)?;
    let old = listed(prefix)?.unwrap_or_default();
    for path in all.iter().filter(|path| !folder.join(path).is_dir() && !old.contains(path)) {
        let to = prefix.join(path);
        if fs::symlink_metadata(&to).is_ok() {
            return Err(format!(
                "{} exists, and no installation of software SRD put it there; nothing was \
                 installed. Remove it, or choose another --prefix",
                to.display()
            ));
        }
    }
    if !old.is_empty() {
        uninstall(prefix)?;
    }
    let mut list = String::new();
    // Folders last, so that only new ones are listed: look before anything is copied.
    let new: Vec<&PathBuf> = all.iter().filter(|path| !prefix.join(path).exists()).collect();
    for path in &new {
        let _ = writeln!(list, "{}", path.display());
    }
    if !prefix.exists() {
        // The prefix itself, whose path below the prefix is empty.
        list.push('\n');
    }
    let list_file = prefix.join(LIST);
    make_folder(&list_file)?;
    fs::write(&list_file, list).map_err(|e| format!("{}: {e}", list_file.display()))?;
    tree::mode(&list_file, 0o644)?;
    new.iter().try_for_each(|path| place(&folder.join(path), &prefix.join(path)))
}

/// The paths of an installation, relative to its prefix; `None`: there is none.
fn listed(prefix: &Path) -> Result<Option<Vec<PathBuf>>> {
    let file = prefix.join(LIST);
    let list = match fs::read_to_string(&file) {
        Ok(list) => list,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(format!("{}: {e}", file.display())),
    };
    for line in list.lines() {
        if !Path::new(line).components().all(|part| matches!(part, Component::Normal(_))) {
            return Err(format!("{}: `{line}` is no path below the prefix", file.display()));
        }
    }
    Ok(Some(list.lines().map(PathBuf::from).collect()))
}

/// Removes what the list names; returns the number of files. After an error the list is still
/// there, so that it can be tried again.
///
/// # Errors
/// There is no list, or a file cannot be removed.
pub fn uninstall(prefix: &Path) -> Result<usize> {
    let file = prefix.join(LIST);
    let list = listed(prefix)?.ok_or_else(|| {
        format!("there is no {}: `./x install` did not install below this prefix", file.display())
    })?;
    let mut removed = 0;
    let remove = |path: &Path| match fs::symlink_metadata(path) {
        Ok(found) if !found.is_dir() => {
            fs::remove_file(path).map(|()| 1).map_err(|e| format!("{}: {e}", path.display()))
        }
        _ => Ok(0),
    };
    for path in &list {
        removed += remove(&prefix.join(path))?;
    }
    remove(&file)?;
    // Others may have put files into the folders since: only empty ones are removed.
    list.iter().for_each(|path| drop(fs::remove_dir(prefix.join(path))));
    Ok(removed)
}

/// Writes all files of an installation whose prefix will be `prefix` into `folder`.
pub fn fill(parts: &Parts, folder: &Path, prefix: &Path) -> Result {
    let tree = Tree::at(folder);
    tree.tool(parts, "bin/srd")?;
    tree.dropin(parts)?;
    tree.dropin_links()?;
    tree.help(parts)?;
    parts.c.as_deref().map_or(Ok(()), |library| tree.c(parts, library))?;
    tree.unit(prefix)?;
    tree.host_files()?;
    tree.documents(tree::DOC_DIR)
}

fn place(from: &Path, to: &Path) -> Result {
    let fail = |e| format!("{}: {e}", to.display());
    if from.is_dir() {
        return tree::make_folders(to);
    }
    make_folder(to)?;
    match fs::read_link(from) {
        Ok(link) => symlink(link, to).map_err(fail),
        Err(_) => fs::copy(from, to).map(|_| ()).map_err(fail),
    }
}

fn make_folder(file: &Path) -> Result {
    tree::make_folders(file.parent().unwrap_or(file))
}

#[cfg(test)]
mod tests;
