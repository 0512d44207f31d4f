//! Packages: what is installed, by `install` below a folder, as a wheel for pip and as a package
//! for Debian. All three have the same files, which [`tree`] names.

mod check;
mod deb;
mod elf;
mod emulated;
mod install;
mod parts;
mod python;
mod tree;
mod wheel;

use crate::{Result, args::Args, process::target_dir, tools};
use parts::Parts;
use std::{
    fs,
    path::{Path, PathBuf},
};

pub use check::run_all as check;

/// `install --prefix DIR`.
pub fn install_command(args: &mut Args) -> Result {
    let prefix = prefix(args)?;
    install::writable(&prefix)?;
    install::install(&Parts::build()?, &prefix)?;
    println!("installed below {}; `./x uninstall --prefix` removes it", prefix.display());
    let (bin, path) = (prefix.join("bin"), std::env::var_os("PATH").unwrap_or_default());
    if !std::env::split_paths(&path).any(|folder| folder == bin) {
        println!("{} is not in PATH: shells find `srd` only when it is", bin.display());
    }
    Ok(())
}

/// `uninstall --prefix DIR`.
pub fn uninstall_command(args: &mut Args) -> Result {
    let prefix = prefix(args)?;
    let removed = install::uninstall(&prefix)?;
    println!("{removed} files removed below {}", prefix.display());
    Ok(())
}

/// `wheel [--glibc VERSION] [--arch NAME]`.
pub fn wheel_command(args: &mut Args) -> Result {
    let glibc = args.value::<String>("--glibc")?;
    let arch = args.value::<String>("--arch")?;
    args.end()?;
    // It packs the wheel, after minutes of compiling.
    tools::ensure(&["python3"])?;
    let parts = if glibc.is_none() && arch.is_none() {
        Parts::build_dropin()?.with_python()?
    } else {
        let glibc = glibc.unwrap_or_else(|| parts::GLIBC.into());
        Parts::build_for(&glibc, &arch.unwrap_or_else(|| std::env::consts::ARCH.into()))?
    };
    let wheel = wheel::build(&parts)?;
    told(&wheel)?;
    if parts.is_foreign() { emulated::check(&parts, &wheel) } else { Ok(()) }
}

/// `deb`.
pub fn deb_command(args: &mut Args) -> Result {
    args.end()?;
    told(&deb::build(&Parts::build()?)?)
}

fn told(file: &Path) -> Result {
    let bytes = fs::metadata(file).map_err(|e| format!("{}: {e}", file.display()))?.len();
    println!("{} ({:.1} MB)", file.display(), bytes as f64 / 1e6);
    Ok(())
}

fn prefix(args: &mut Args) -> Result<PathBuf> {
    let prefix: Option<PathBuf> = args.value("--prefix")?;
    args.end()?;
    let prefix = prefix.ok_or("name the folder: --prefix /usr/local, or --prefix ~/.local")?;
    std::path::absolute(&prefix).map_err(|e| format!("--prefix {}: {e}", prefix.display()))
}

/// Folder of finished packages.
fn out_dir() -> PathBuf {
    target_dir().join("package")
}

/// An empty folder for the contents of a package.
fn stage(name: &str) -> Result<PathBuf> {
    let folder = out_dir().join(name);
    let fail = |e| format!("{}: {e}", folder.display());
    if folder.exists() {
        fs::remove_dir_all(&folder).map_err(fail)?;
    }
    tree::make_folders(&folder)?;
    Ok(folder)
}

/// Version of all packages.
const VERSION: &str = env!("CARGO_PKG_VERSION");
