//! The files of an installation, below its prefix.

use super::{Parts, VERSION};
use crate::{
    Result,
    process::{command, output, root, run},
};
use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
};

/// The drop-in libraries, and the names by which some programs open them.
pub const LIBRARIES: [(&str, &str); 2] =
    [("libibverbs.so.1", "libibverbs.so"), ("libefa.so.1", "libefa.so")];
/// The library that is only preloaded.
pub const PLACES: &str = "libsrd_places.so.1";
/// Their folder: a system's own libraries are elsewhere, and `srd run` finds it.
pub const LIBRARY_DIR: &str = "lib/srd";
/// Licenses and changes.
pub const DOC_DIR: &str = "share/doc/software-srd";
/// The notebook, among the examples and in [`DOC_DIR`].
pub const NOTEBOOK: &str = "figures.ipynb";

/// An empty folder that gets the files.
pub struct Tree(PathBuf);

impl Tree {
    /// Files below this folder.
    pub fn at(folder: &Path) -> Self {
        Self(folder.to_path_buf())
    }

    /// The tool, at `path`.
    pub fn tool(&self, parts: &Parts, path: &str) -> Result {
        self.stripped(parts, &parts.srd, path, 0o755)
    }

    /// The drop-in libraries, without the links to them.
    pub fn dropin(&self, parts: &Parts) -> Result {
        for name in LIBRARIES.map(|(name, _)| name).into_iter().chain([PLACES]) {
            let library = parts.verbs.join(name);
            self.stripped(parts, &library, &format!("{LIBRARY_DIR}/{name}"), 0o644)?;
        }
        Ok(())
    }

    /// The links to the drop-in libraries.
    pub fn dropin_links(&self) -> Result {
        LIBRARIES.iter().try_for_each(|(to, at)| self.link(to, &format!("{LIBRARY_DIR}/{at}")))
    }

    /// Manual pages and completions.
    pub fn help(&self, parts: &Parts) -> Result {
        let srd = parts.help.as_ref().unwrap_or(&parts.srd).display().to_string();
        let man = self.place("share/man/man1/srd.1")?;
        let dir = man.parent().unwrap_or(&self.0).display().to_string();
        output(&mut command(&srd, &["man", "--dir", &dir]))?;
        for (shell, path) in [
            ("bash", "share/bash-completion/completions/srd"),
            ("zsh", "share/zsh/site-functions/_srd"),
            ("fish", "share/fish/vendor_completions.d/srd.fish"),
        ] {
            self.write(path, &output(&mut command(&srd, &["completions", shell]))?)?;
        }
        Ok(())
    }

    /// The Python module.
    pub fn python(&self, parts: &Parts) -> Result {
        let native = parts.python.as_ref().ok_or("the Python module is not built")?;
        self.stripped(parts, native, "srd/_native.abi3.so", 0o644)?;
        let sources = root().join("bindings/python/srd");
        for path in entries(&sources)? {
            let known = path.extension().is_some_and(|e| e == "py" || e == "pyi" || e == "typed");
            if known {
                let to = format!("srd/{}", path.display());
                self.copy(&sources.join(&path), &to, 0o644)?;
            }
        }
        Ok(())
    }

    /// The notebook of the paper's figures, for those who have no checkout.
    pub fn notebook(&self) -> Result {
        let from = root().join("bindings/python/examples").join(NOTEBOOK);
        self.copy(&from, &format!("{DOC_DIR}/{NOTEBOOK}"), 0o644)
    }

    /// The C library with header and pkg-config file.
    pub fn c(&self, parts: &Parts, library: &Path) -> Result {
        let soname = super::elf::Elf::read(library)?.soname.ok_or("libsrd_c.so has no SONAME")?;
        self.stripped(parts, library, &format!("lib/{soname}"), 0o644)?;
        self.link(&soname, "lib/libsrd_c.so")?;
        self.copy(&root().join("bindings/c/include/srd.h"), "include/srd.h", 0o644)?;
        self.write(
            "lib/pkgconfig/srd.pc",
            &include_str!("files/srd.pc").replace("@VERSION@", VERSION),
        )
    }

    /// The systemd unit of `srd serve`, for a tool in `prefix`.
    pub fn unit(&self, prefix: &Path) -> Result {
        let program = quoted(&prefix.join("bin/srd").display().to_string());
        let text = include_str!("files/srd-serve.service").replace("@PROGRAM@", &program);
        self.write("lib/systemd/system/srd-serve.service", &text)
    }

    /// What the kernel and a firewall of a host may be told: `systemd-sysctl` reads the first at
    /// the next start, and firewalld offers the others as services that are off until enabled.
    pub fn host_files(&self) -> Result {
        self.write("lib/sysctl.d/90-srd.conf", include_str!("files/90-srd.conf"))?;
        let services = "lib/firewalld/services";
        for (name, text) in [
            ("software-srd", include_str!("files/software-srd.xml")),
            ("software-srd-rails", include_str!("files/software-srd-rails.xml")),
        ] {
            self.write(&format!("{services}/{name}.xml"), text)?;
        }
        Ok(())
    }

    /// Licenses and changes.
    pub fn documents(&self, dir: &str) -> Result {
        for name in ["LICENSE-APACHE", "LICENSE-MIT", "CHANGELOG.md"] {
            self.copy(&root().join(name), &format!("{dir}/{name}"), 0o644)?;
        }
        Ok(())
    }

    /// Writes a text.
    pub fn write(&self, path: &str, text: &str) -> Result {
        let to = self.place(path)?;
        fs::write(&to, text).map_err(|e| format!("{}: {e}", to.display()))?;
        mode(&to, 0o644)
    }

    fn copy(&self, from: &Path, path: &str, bits: u32) -> Result {
        let to = self.place(path)?;
        fs::copy(from, &to).map_err(|e| format!("{} to {}: {e}", from.display(), to.display()))?;
        mode(&to, bits)
    }

    /// Copies a program or a library without its debug information.
    fn stripped(&self, parts: &Parts, from: &Path, path: &str, bits: u32) -> Result {
        if parts.is_foreign() {
            // Its linker has done so.
            return self.copy(from, path, bits);
        }
        let to = self.place(path)?;
        run(command("strip", &["-o"]).arg(&to).arg(from))?;
        mode(&to, bits)
    }

    fn link(&self, to: &str, path: &str) -> Result {
        let at = self.place(path)?;
        symlink(to, &at).map_err(|e| format!("{}: {e}", at.display()))
    }

    /// The place of a file, whose folder is made.
    fn place(&self, path: &str) -> Result<PathBuf> {
        let place = self.0.join(path);
        make_folders(place.parent().unwrap_or(&self.0))?;
        Ok(place)
    }
}

/// A path as systemd reads it in a command line: spaces separate words, `%` begins a specifier.
fn quoted(path: &str) -> String {
    let path = path.replace('%', "%%");
    if path.contains([' ', '\t', '"', '\'', '\\']) {
        return format!("\"{}\"", path.replace('\\', r"\\").replace('"', r#"\""#));
    }
    path
}

/// Makes a folder, and those above it, that all users can read: root's umask may forbid that, and
/// `dpkg-deb` refuses such folders.
pub fn make_folders(folder: &Path) -> Result {
    let fail = |e| format!("{}: {e}", folder.display());
    let new: Vec<&Path> = folder.ancestors().take_while(|f| !f.exists()).collect();
    fs::create_dir_all(folder).map_err(fail)?;
    new.into_iter().try_for_each(|folder| mode(folder, 0o755))
}

/// Sets the permissions of a file or a folder.
pub fn mode(path: &Path, bits: u32) -> Result {
    fs::set_permissions(path, fs::Permissions::from_mode(bits))
        .map_err(|e| format!("{}: {e}", path.display()))
}

/// Files, links and folders below a folder, relative to it; each folder after what is in it.
pub fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    fn walk(folder: &Path, base: &Path, out: &mut Vec<PathBuf>) -> std::io::Result<()> {
        let mut here: Vec<_> = fs::read_dir(folder)?.collect::<std::io::Result<_>>()?;
        here.sort_by_key(fs::DirEntry::file_name);
        for entry in here {
            let path = entry.path();
            if entry.file_type()?.is_dir() {
                walk(&path, base, out)?;
            }
            out.extend(path.strip_prefix(base).map(Path::to_path_buf));
        }
        Ok(())
    }
    let mut out = Vec::new();
    walk(folder, folder, &mut out).map_err(|e| format!("{}: {e}", folder.display()))?;
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn systemd_reads_a_path_as_one_word() {
        assert_eq!(quoted("/usr/bin/srd"), "/usr/bin/srd");
        assert_eq!(quoted("/opt/my srd/bin/srd"), "\"/opt/my srd/bin/srd\"");
        assert_eq!(quoted(r#"/a"b\c%d"#), r#""/a\"b\\c%%d""#);
    }
}
