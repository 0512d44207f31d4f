//! What is built for a package: the tool, the drop-in libraries, and the C library.

use super::{out_dir, stage};
use crate::{
    Result,
    process::{cargo, command, run, target_dir},
    tools, verbs,
};
use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

/// The linker for older C libraries: Zig's, which has the symbols of each version of glibc.
const ZIG: &str = "ziglang==0.17.1";

/// Built files.
pub struct Parts {
    /// The tool.
    pub srd: PathBuf,
    /// Folder of both drop-in libraries.
    pub verbs: PathBuf,
    /// The C library; not for wheels.
    pub c: Option<PathBuf>,
    /// C compiler that links small libraries for the same systems.
    pub compiler: String,
}

impl Parts {
    /// Builds the tool and the drop-in libraries.
    pub fn build_dropin() -> Result<Self> {
        let srd = tools::build_release("srd-cli", "srd")?;
        Ok(Self { srd, verbs: verbs::build(None)?, c: None, compiler: "cc".into() })
    }

    /// Builds everything.
    pub fn build() -> Result<Self> {
        let parts = Self::build_dropin()?;
        run(&mut cargo(&["build", "--release", "-p", "srd-c", "--lib"]))?;
        Ok(Self { c: Some(target_dir().join("release/libsrd_c.so")), ..parts })
    }

    /// Builds the tool and the drop-in libraries for systems with this version of glibc or a newer
    /// one.
    pub fn build_for(glibc: &str) -> Result<Self> {
        let number = |part: &str| part.parse::<u32>().is_ok();
        if !matches!(glibc.split_once('.'), Some(("2", minor)) if number(minor)) {
            return Err(format!("--glibc {glibc}: write a version as 2.28"));
        }
        let compiler = zig(glibc)?.display().to_string();
        let linker = format!("linker={compiler}");
        let line = ["rustc", "--release", "-p", "srd-cli", "--bin", "srd", "--", "-C", &linker];
        run(&mut cargo(&line))?;
        // Cargo's own place has the program of the last build; a later one may differ.
        let srd = stage("glibc")?.join("srd");
        fs::copy(target_dir().join("release/srd"), &srd).map_err(|e| format!("srd: {e}"))?;
        let verbs = verbs::build_by(&compiler, Some(out_dir().join("glibc/verbs")))?;
        Ok(Self { srd, verbs, c: None, compiler })
    }
}

/// Installs Zig in a virtual environment, and writes a script that compiles C by it.
fn zig(glibc: &str) -> Result<PathBuf> {
    let folder = out_dir().join("zig");
    let python = folder.join("bin/python");
    if !folder.join("ready").exists() {
        run(command("python3", &["-m", "venv"]).arg(&folder))?;
        run(&mut command(&text(&python), &["-m", "pip", "install", "--quiet", ZIG]))?;
        fs::write(folder.join("ready"), "").map_err(|e| format!("{}: {e}", folder.display()))?;
    }
    let script = out_dir().join(format!("zig/cc-{glibc}"));
    let target = format!("{}-linux-gnu.{glibc}", std::env::consts::ARCH);
    let lines =
        format!("#!/bin/sh\nexec {} -m ziglang cc -target {target} \"$@\"\n", text(&python));
    let fail = |e| format!("{}: {e}", script.display());
    fs::write(&script, lines).map_err(fail)?;
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).map_err(fail)?;
    Ok(script)
}

fn text(path: &Path) -> String {
    path.display().to_string()
}
