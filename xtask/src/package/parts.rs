//! What is built for a package: the tool, the drop-in libraries, the C library, and the Python
//! module.

use super::{out_dir, stage};
use crate::{
    Result,
    process::{cargo, command, run, target_dir},
    tools, verbs,
};
use std::{
    env::consts::ARCH,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

/// The linker for older C libraries: Zig's, which has the symbols of each version of glibc.
const ZIG: &str = "ziglang==0.17.1";

/// The glibc of a wheel for other processors than this machine's, unless one is named.
pub const GLIBC: &str = "2.28";
/// The Python module's library.
const NATIVE: &str = "libsrd_native.so";

/// Processors that wheels are built for.
const ARCHS: [&str; 2] = ["x86_64", "aarch64"];

/// Built files.
pub struct Parts {
    /// The tool.
    pub srd: PathBuf,
    /// Folder of both drop-in libraries.
    pub verbs: PathBuf,
    /// The C library; not for wheels.
    pub c: Option<PathBuf>,
    /// The part of the Python module that is not written in Python; for wheels only.
    pub python: Option<PathBuf>,
    /// C compiler that links small libraries for the same systems.
    pub compiler: String,
    /// Kind of processor.
    pub arch: String,
    /// A tool that this machine can run, for manual pages; `None`: `srd`.
    pub help: Option<PathBuf>,
}

impl Parts {
    /// Builds the tool and the drop-in libraries.
    pub fn build_dropin() -> Result<Self> {
        let srd = tools::build_tool()?;
        let (c, python, help) = (None, None, None);
        let (compiler, arch) = ("cc".into(), ARCH.into());
        Ok(Self { srd, verbs: verbs::build(None)?, c, python, compiler, arch, help })
    }

    /// Adds what a wheel has besides.
    pub fn with_python(self) -> Result<Self> {
        run(&mut cargo(&["build", "--release", "-p", "srd-python", "--lib"]))?;
        Ok(Self { python: Some(target_dir().join("release").join(NATIVE)), ..self })
    }

    /// Builds everything.
    pub fn build() -> Result<Self> {
        let parts = Self::build_dropin()?;
        // With this kind of library alone Cargo optimizes it at link time.
        let line = ["rustc", "--release", "-p", "srd-c", "--lib", "--crate-type", "cdylib"];
        run(&mut cargo(&line))?;
        Ok(Self { c: Some(target_dir().join("release/libsrd_c.so")), ..parts })
    }

    /// Builds what a wheel has for systems with this version of glibc or a newer one, and with this
    /// kind of processor.
    pub fn build_for(glibc: &str, arch: &str) -> Result<Self> {
        let number = |part: &str| part.parse::<u32>().is_ok();
        if !matches!(glibc.split_once('.'), Some(("2", minor)) if number(minor)) {
            return Err(format!("--glibc {glibc}: write a version as 2.28"));
        }
        if !ARCHS.contains(&arch) {
            return Err(format!("--arch {arch}: there are {}", ARCHS.join(" and ")));
        }
        let by = by_zig(glibc, arch)?;
        let linker = format!("linker={}", by.compiler);
        let folder = stage("glibc")?;
        let build = |package: &[&str], file: &str| {
            let mut line = cargo(&["rustc", "--release"]);
            line.args(&by.options).args(package).args(["--", "-C", &linker]);
            run(&mut line)?;
            // Cargo's own place has the file of the last build; a later one may differ.
            let (from, to) = (by.release.join(file), folder.join(file));
            fs::copy(&from, &to).map_err(|e| format!("{}: {e}", from.display()))?;
            Ok::<PathBuf, String>(to)
        };
        let srd = build(&["-p", "srd-cli", "--no-default-features", "--bin", "srd"], "srd")?;
        let python = Some(build(&["-p", "srd-python", "--lib"], NATIVE)?);
        let verbs = verbs::build_by(&by, Some(folder.join("verbs")))?;
        let mut parts = Self {
            srd,
            verbs,
            c: None,
            python,
            compiler: by.compiler,
            arch: arch.into(),
            help: None,
        };
        if parts.is_foreign() {
            run(&mut cargo(&["build", "-p", "srd-cli"]))?;
            parts.help = Some(target_dir().join("debug/srd"));
        }
        Ok(parts)
    }

    /// Whether they are for other processors than this machine's.
    pub fn is_foreign(&self) -> bool {
        self.arch != ARCH
    }
}

/// How to build for systems with this version of glibc and this kind of processor.
fn by_zig(glibc: &str, arch: &str) -> Result<verbs::By> {
    let python = zig()?;
    let triple = format!("{arch}-unknown-linux-gnu");
    let target = format!("-target {arch}-linux-gnu.{glibc}");
    let name = if arch == ARCH { glibc.to_owned() } else { format!("{arch}-{glibc}") };
    if arch == ARCH {
        let compiler = script(&format!("cc-{name}"), &format!("exec {python} cc {target} \"$@\""))?;
        let release = target_dir().join("release");
        return Ok(verbs::By { compiler, options: Vec::new(), release });
    }
    // Build scripts add the target as Rust and Clang name it, which Zig does not know; strip knows
    // this machine's processor only, so that the linker strips (-s).
    let given = "for a; do shift; case $a in --target=*) ;; *) set -- \"$@\" \"$a\" ;; esac; done";
    let lines = format!("{given}\nexec {python} cc {target} -s \"$@\"");
    let compiler = script(&format!("cc-{name}"), &lines)?;
    let archiver = script(&format!("ar-{name}"), &format!("exec {python} ar \"$@\""))?;
    run(&mut command("rustup", &["target", "add", &triple]))?;
    let variable = triple.replace('-', "_");
    let mut options = vec!["--target".into(), triple.clone()];
    // A dependency that is also a shared library for C (crc-fast) is linked, too.
    options.extend(["--config".into(), format!("target.{triple}.linker={compiler:?}")]);
    for (tool, at) in [("CC", &compiler), ("AR", &archiver)] {
        options.extend(["--config".into(), format!("env.{tool}_{variable}={at:?}")]);
    }
    Ok(verbs::By { compiler, options, release: target_dir().join(triple).join("release") })
}

/// Installs Zig in a virtual environment; returns how it is called.
fn zig() -> Result<String> {
    let folder = out_dir().join("zig");
    let python = folder.join("bin/python");
    if !folder.join("ready").exists() {
        run(command("python3", &["-m", "venv"]).arg(&folder))?;
        run(&mut command(&text(&python), &["-m", "pip", "install", "--quiet", ZIG]))?;
        fs::write(folder.join("ready"), "").map_err(|e| format!("{}: {e}", folder.display()))?;
    }
    Ok(format!("{} -m ziglang", text(&python)))
}

/// Writes a shell script beside Zig; returns its path.
fn script(name: &str, lines: &str) -> Result<String> {
    let script = out_dir().join("zig").join(name);
    let fail = |e| format!("{}: {e}", script.display());
    fs::write(&script, format!("#!/bin/sh\n{lines}\n")).map_err(fail)?;
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).map_err(fail)?;
    Ok(text(&script))
}

fn text(path: &Path) -> String {
    path.display().to_string()
}
