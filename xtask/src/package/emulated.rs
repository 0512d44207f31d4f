//! A wheel for aarch64, installed and used under emulation: in a root of Debian for that processor,
//! whose programs the kernel gives to QEMU in a namespace that only this check has.

use super::{
    Parts,
    check::{all_of, copies, expect, text, version_of},
    out_dir, tree,
};
use crate::{
    Result,
    process::{command, output, run},
    tools,
};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Runs programs for aarch64.
const QEMU: &str = "qemu-aarch64-static";
/// Makes the root.
const BOOTSTRAP: &str = "mmdebstrap";
/// What is in the root: an interpreter with pip, `env`, and a program that uses the drop-in
/// libraries.
const PACKAGES: &str =
    "--include=python3,python3-distutils,python3-pip-whl,coreutils,ibverbs-utils";
/// Release of Debian in the root.
const SUITE: &str = "bookworm";
/// How the kernel knows programs for aarch64 (`ELF` of 64 bits, little-endian, machine 183), by the
/// bytes at their beginning and which bits of them count; F: QEMU is opened before the root is.
const FORMAT: &str = concat!(
    r":srd:M::\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00:",
    r"\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff:",
);
/// Where the wheel is installed, seen from within the root.
const VENV: &str = "/venv";
/// An experiment that is the same on every processor, to the last digit.
const EXPERIMENT: [&str; 9] =
    ["lab", "run", "fig3", "--quick", "--case", "SRD", "--set", "workload.rounds=1", "--no-cost"];
/// Worlds of the fault checker, which are, too.
const WORLDS: [&str; 8] =
    ["check", "--seeds", "40", "--first", "7400000", "--threads", "1", "--json"];
/// The same experiment by the Python module: hashes of its rows, which the tool prints.
const MODULE: &str = r#"
import platform
from srd import lab
assert platform.machine() == "aarch64", platform.machine()
rows = lab.run("fig3", quick=True, case="SRD", set={"workload.rounds": 1})
print(*(row["hash"] for row in rows))
"#;

/// Installs the wheel by pip and uses it: the tool, both kinds of libraries, the Python module.
pub fn check(parts: &Parts, wheel: &Path) -> Result {
    if let Err(e) = tools::ensure(&[QEMU, BOOTSTRAP]).and_then(|()| emulates()) {
        println!("SKIPPED: {} is not used under emulation: {e}", wheel.display());
        return Ok(());
    }
    let root = root()?;
    installed(&root, wheel)?;
    let srd = format!("{VENV}/bin/srd");
    let version = version_of(&mut inside(&root, &[&srd, "--version"]))?;
    let here = text(parts.help.as_ref().ok_or("there is no tool for this machine")?);
    for line in [&EXPERIMENT[..], &WORLDS] {
        // Without what they say of their progress.
        let one = output(inside(&root, &[&srd]).args(line))?;
        let other = output(&mut command(&here, line))?;
        expect(one == other, &format!("`srd {}` differs:\n{one}\n{other}", line.join(" ")))?;
    }
    let libraries = format!("{VENV}/{}", tree::LIBRARY_DIR);
    // The second needs the first, of which the root has another one.
    let path = format!("LD_LIBRARY_PATH={libraries}");
    for name in tree::LIBRARIES.map(|(name, _)| name).into_iter().chain([tree::PLACES]) {
        let library = format!("LD_PRELOAD={libraries}/{name}");
        let line = ["/usr/bin/env", &path, &library, &srd, "--version"];
        let said = all_of(&mut inside(&root, &line))?;
        // The loader goes on without what it cannot load, and says so.
        expect(said == version, &said)?;
    }
    let said = all_of(&mut inside(&root, &[&srd, "run", "--", "/usr/bin/ibv_devinfo"]))?;
    expect(said.contains("software-srd"), &said)?;
    copies(&root, &|line| inside(&root, &[&[srd.as_str()], line].concat()))?;
    let python = format!("{VENV}/bin/python");
    let said = all_of(&mut inside(&root, &[&python, "-c", MODULE]))?;
    let tool = all_of(&mut command(&here, &EXPERIMENT))?;
    let same = !said.trim().is_empty() && said.split_whitespace().all(|hash| tool.contains(hash));
    expect(same, &format!("the module's results are {said}, the tool's\n{tool}"))?;
    let example = "ping_pong.py";
    let from = crate::process::root().join("bindings/python/examples").join(example);
    put(&from, &root.join("tmp").join(example))?;
    all_of(&mut inside(&root, &[&python, &format!("/tmp/{example}")]))?;
    println!("under emulation: pip installs the wheel; tool, libraries and module work, and give");
    println!("what this machine's give");
    Ok(())
}

/// Whether this kernel lets a user namespace say what runs programs for other processors.
fn emulates() -> Result {
    output(&mut command("unshare", &["-r", "-m", "sh", "-ec", &script("", ""), "sh", "true"]))
        .map(|_| ())
        .map_err(|e| format!("{e}\nIt needs Linux 6.7 with binfmt_misc and user namespaces"))
}

/// A script that registers QEMU and does `more`, then becomes the command that it gets, which
/// `wrapper` starts.
fn script(more: &str, wrapper: &str) -> String {
    let at = "/proc/sys/fs/binfmt_misc";
    format!(
        "mount -t binfmt_misc binfmt_misc {at}\n\
         printf %s '{FORMAT}'\"$(command -v {QEMU})\":F > {at}/register\n\
         {more}\nexec {wrapper} \"$@\""
    )
}

/// The root, which is made once for these packages.
fn root() -> Result<PathBuf> {
    let root = out_dir().join("aarch64");
    let ready = root.join("ready");
    if fs::read_to_string(&ready).ok().as_deref() != Some(PACKAGES) {
        if root.exists() {
            fs::remove_dir_all(&root).map_err(|e| format!("{}: {e}", root.display()))?;
        }
        let mut c = command(BOOTSTRAP, &["--quiet", "--variant=extract", "--architectures=arm64"]);
        run(c.args([PACKAGES, SUITE]).arg(&root))?;
        for folder in ["proc", "tmp/inbox"] {
            let folder = root.join(folder);
            fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        }
        fs::write(&ready, PACKAGES).map_err(|e| format!("{}: {e}", ready.display()))?;
    }
    Ok(root)
}

/// Installs the wheel by pip into a fresh virtual environment of the root.
fn installed(root: &Path, wheel: &Path) -> Result {
    let name = wheel.file_name().unwrap_or_default();
    put(wheel, &root.join("tmp").join(name))?;
    let new = ["/usr/bin/python3", "-m", "venv", "--clear", "--without-pip", VENV];
    all_of(&mut inside(root, &new))?;
    // The interpreter's own pip, which Debian has as a wheel.
    let wheels = root.join("usr/share/python-wheels");
    let pip = tree::entries(&wheels)?.into_iter().find(|path| text(path).starts_with("pip-"));
    let pip = pip.ok_or_else(|| format!("{} has no pip", wheels.display()))?;
    let path = format!("PYTHONPATH=/usr/share/python-wheels/{}", pip.display());
    let python = format!("{VENV}/bin/python");
    let line = ["/usr/bin/env", &path, &python, "-m", "pip", "install", "--quiet", "--no-index"];
    all_of(inside(root, &line).arg("--no-deps").arg(Path::new("/tmp").join(name))).map(|_| ())
}

/// A command in the root, under emulation.
fn inside(root: &Path, line: &[&str]) -> Command {
    let at = root.display();
    let mounts = format!("mount --rbind /proc {at}/proc; mount --rbind /dev {at}/dev");
    let script = script(&mounts, &format!("chroot {at}"));
    let mut c = command("unshare", &["-r", "-m", "sh", "-ec", &script, "sh"]);
    c.args(line).env_clear().env("PATH", "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    c
}

fn put(from: &Path, to: &Path) -> Result {
    fs::copy(from, to).map(|_| ()).map_err(|e| format!("{}: {e}", to.display()))
}
