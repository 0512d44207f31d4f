//! `install` and `uninstall`: for those who have a checkout. The list of what was installed lies
//! with the libraries, and only what is in it is removed.

use super::{Parts, stage, tree, tree::Tree};
use crate::Result;
use std::{
    fmt::Write as _,
    fs,
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
    if prefix.join(LIST).exists() {
        uninstall(prefix)?;
    }
    let all = tree::entries(&folder)?;
    for path in &all {
        let to = prefix.join(path);
        if !folder.join(path).is_dir() && fs::symlink_metadata(&to).is_ok() {
            return Err(format!(
                "{} exists, and no installation of software SRD put it there; nothing was \
                 installed. Remove it, or choose another --prefix",
                to.display()
            ));
        }
    }
    let mut list = String::new();
    // Folders last, so that only new ones are listed: look before anything is copied.
    let new: Vec<&PathBuf> = all.iter().filter(|path| !prefix.join(path).exists()).collect();
    for path in &new {
        let _ = writeln!(list, "{}", path.display());
    }
    let list_file = prefix.join(LIST);
    make_folder(&list_file)?;
    fs::write(&list_file, list).map_err(|e| format!("{}: {e}", list_file.display()))?;
    new.iter().try_for_each(|path| place(&folder.join(path), &prefix.join(path)))
}

/// Removes what the list names; returns the number of files.
///
/// # Errors
/// There is no list, or a file cannot be removed.
pub fn uninstall(prefix: &Path) -> Result<usize> {
    let file = prefix.join(LIST);
    let list = fs::read_to_string(&file).map_err(|e| {
        format!("{}: {e}; `./x install` did not install below this prefix", file.display())
    })?;
    fs::remove_file(&file).map_err(|e| format!("{}: {e}", file.display()))?;
    let mut removed = 0;
    for line in list.lines() {
        let path = Path::new(line);
        if !path.components().all(|part| matches!(part, Component::Normal(_))) {
            return Err(format!("{}: `{line}` is no path below the prefix", file.display()));
        }
        let path = prefix.join(path);
        match fs::symlink_metadata(&path) {
            // Others may have put files there since.
            Ok(found) if found.is_dir() => drop(fs::remove_dir(&path)),
            Ok(_) => {
                fs::remove_file(&path).map_err(|e| format!("{}: {e}", path.display()))?;
                removed += 1;
            }
            Err(_) => {}
        }
    }
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
        return fs::create_dir_all(to).map_err(fail);
    }
    make_folder(to)?;
    match fs::read_link(from) {
        Ok(link) => symlink(link, to).map_err(fail),
        Err(_) => fs::copy(from, to).map(|_| ()).map_err(fail),
    }
}

fn make_folder(file: &Path) -> Result {
    let folder = file.parent().unwrap_or(file);
    fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))
}
