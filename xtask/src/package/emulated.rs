//! A wheel for another processor, used under emulation.

use super::{
    Parts, VERSION, check::all_of, check::expect, check::text, check::version_of, stage, tree,
};
use crate::{
    Result,
    process::{command, run},
    tools,
};
use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

/// Runs programs for aarch64.
const QEMU: &str = "qemu-aarch64-static";
/// Libraries of Debian for such programs.
const SYSTEM: &str = "/usr/aarch64-linux-gnu";
/// Commands that do the same on every processor, to the last digit.
const SAME: [&[&str]; 2] = [
    &["lab", "run", "fig3", "--quick", "--case", "SRD", "--set", "workload.rounds=1", "--no-cost"],
    &["check", "--seeds", "40", "--first", "7400000", "--threads", "1", "--json"],
];

/// Runs the tool of a wheel, and loads its libraries, under emulation. The Python module is not
/// loaded: there is no interpreter for that processor here.
pub fn check(parts: &Parts, wheel: &Path) -> Result {
    if let Err(e) = tools::ensure(&[QEMU]) {
        println!("SKIPPED: {} is not used under emulation: {e}", wheel.display());
        return Ok(());
    }
    let folder = stage("emulated")?;
    run(command("python3", &["-m", "zipfile", "-e"]).arg(wheel).arg(&folder))?;
    let data = folder.join(format!("software_srd-{VERSION}.data"));
    let srd = data.join("scripts/srd");
    fs::set_permissions(&srd, fs::Permissions::from_mode(0o755))
        .map_err(|e| format!("{}: {e}", srd.display()))?;
    let there = |preload: Option<PathBuf>| -> Command {
        let mut c = command(QEMU, &["-L", SYSTEM]);
        if let Some(library) = preload {
            c.args(["-E", &format!("LD_PRELOAD={}", text(&library))]);
        }
        c.arg(&srd);
        c
    };
    version_of(there(None).arg("--version"))?;
    for name in tree::LIBRARIES.map(|(name, _)| name).into_iter().chain([tree::PLACES]) {
        let library = data.join("data").join(tree::LIBRARY_DIR).join(name);
        let said = all_of(there(Some(library)).arg("--version"))?;
        // The loader goes on without what it cannot load, and says so.
        expect(!said.contains("cannot be preloaded"), &said)?;
    }
    let here = parts.help.as_ref().ok_or("there is no tool for this machine")?;
    for line in SAME {
        let one = all_of(there(None).args(line))?;
        let other = all_of(&mut command(&text(here), line))?;
        expect(one == other, &format!("`srd {}` differs:\n{one}\n{other}", line.join(" ")))?;
    }
    println!("under emulation: the tool gives what this machine's gives, and all libraries load");
    Ok(())
}
