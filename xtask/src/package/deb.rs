//! The package for Debian and Ubuntu, by `dpkg-deb`. Its drop-in libraries lie in `/usr/lib/srd`,
//! where they hide nothing of rdma-core's.

use super::{Parts, VERSION, elf::Elf, install, out_dir, stage, tree, tree::Tree};
use crate::{
    Result,
    process::{command, output, root, run},
};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Name of the package.
pub const NAME: &str = "software-srd";

/// Builds the package.
///
/// # Errors
/// `dpkg-deb` is missing, or a file cannot be written.
pub fn build(parts: &Parts) -> Result<PathBuf> {
    let no = |e| format!("{e}\n`deb` needs dpkg and dpkg-deb of Debian or Ubuntu");
    let architecture = output(&mut command("dpkg", &["--print-architecture"])).map_err(no)?;
    let architecture = architecture.trim();
    let folder = stage("deb")?;
    let usr = folder.join("usr");
    install::fill(parts, &usr, Path::new("/usr"))?;
    debianize(&usr)?;
    let tree = Tree::at(&folder);
    tree.write("DEBIAN/control", &control(&folder, architecture)?)?;
    // The loader's cache learns of the C library.
    tree.write("DEBIAN/triggers", "activate-noawait ldconfig\n")?;
    let file = out_dir().join(format!("{NAME}_{VERSION}_{architecture}.deb"));
    run(command("dpkg-deb", &["--root-owner-group", "--build"]).arg(&folder).arg(&file))?;
    Ok(file)
}

/// Names and forms that Debian wants.
fn debianize(usr: &Path) -> Result {
    let fail = |e: std::io::Error| format!("{}: {e}", usr.display());
    let (zsh, vendor) = (usr.join("share/zsh/site-functions"), "share/zsh/vendor-completions");
    fs::rename(zsh, usr.join(vendor)).map_err(fail)?;
    let doc = usr.join(tree::DOC_DIR);
    fs::rename(doc.join("CHANGELOG.md"), doc.join("changelog")).map_err(fail)?;
    fs::remove_file(doc.join("LICENSE-APACHE")).map_err(fail)?;
    fs::remove_file(doc.join("LICENSE-MIT")).map_err(fail)?;
    let mit = fs::read_to_string(root().join("LICENSE-MIT")).map_err(fail)?;
    let copyright = include_str!("files/copyright").replace("@MIT@", &indented(&mit));
    Tree::at(usr).write(&format!("{}/copyright", tree::DOC_DIR), &copyright)?;
    let mut gzip = command("gzip", &["--best", "--no-name"]);
    gzip.arg(doc.join("changelog"));
    for page in fs::read_dir(usr.join("share/man/man1")).map_err(fail)? {
        gzip.arg(page.map_err(fail)?.path());
    }
    run(&mut gzip)
}

/// A text as a field's continuation lines.
fn indented(text: &str) -> String {
    let line = |l: &str| if l.trim().is_empty() { " .".to_owned() } else { format!(" {l}") };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// The version, followed by time and name of the commit, so that apt takes a package of a later
/// commit for an update: one of the same version it does not install. `~` sorts before the end.
/// Without git the version alone.
fn version() -> String {
    let line = ["log", "-1", "--date=format-local:%Y%m%d%H%M%S", "--format=%cd.g%h"];
    let commit = output(command("git", &line).env("TZ", "UTC")).unwrap_or_default();
    of_commit(commit.trim())
}

fn of_commit(commit: &str) -> String {
    if commit.is_empty() { VERSION.into() } else { format!("{VERSION}~{commit}") }
}

fn control(folder: &Path, architecture: &str) -> Result<String> {
    let (mut bytes, mut glibc) = (0, (2, 17));
    for path in tree::entries(folder)? {
        let file = folder.join(&path);
        let found = fs::symlink_metadata(&file).map_err(|e| format!("{}: {e}", file.display()))?;
        bytes += found.len();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if found.is_file() && (name.contains(".so") || path.ends_with("bin/srd")) {
            glibc = glibc.max(Elf::read(&file)?.glibc);
        }
    }
    let (major, minor) = glibc;
    Ok(format!(
        "Package: {NAME}\nVersion: {}\nArchitecture: {architecture}\n\
         Maintainer: The software SRD project\nInstalled-Size: {}\n\
         Depends: libc6 (>= {major}.{minor}), libgcc-s1\n\
         Suggests: openmpi-bin, libfabric-bin, perftest\nSection: net\nPriority: optional\n\
         Homepage: {}\n\
         Description: Scalable Reliable Datagram in software\n \
         AWS's Scalable Reliable Datagram for any Ethernet/IP network: reliable datagrams and\n \
         RDMA over UDP, sprayed over many paths. Programs for EFA (MPI, libfabric, perftest) run\n \
         unmodified by `srd run`; the package replaces no file of rdma-core's.\n",
        version(),
        bytes / 1024,
        env!("CARGO_PKG_REPOSITORY")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether dpkg takes `new` for an update of `old`.
    fn is_update(new: &str, old: &str) -> bool {
        let mut dpkg = command("dpkg", &["--compare-versions", new, "gt", old]);
        dpkg.status().expect("dpkg runs").success()
    }

    #[test]
    fn a_later_commit_is_an_update_and_the_release_is_one_of_all() {
        let (old, new) = ("20261127090000.gffffff", "20261127090001.g000000");
        assert_eq!(of_commit(""), VERSION);
        if std::path::Path::new("/usr/bin/dpkg").exists() {
            assert!(is_update(&of_commit(new), &of_commit(old)));
            assert!(is_update(VERSION, &of_commit(new)));
        }
    }
}
