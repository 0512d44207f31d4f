//! Checks of an installed wheel by Python.

use super::{
    check::{all_of, expect, text},
    tree,
};
use crate::{
    Result,
    process::{command, root, run},
};
use std::{path::Path, process::Command};

/// What runs notebooks, from PyPI.
const NOTEBOOKS: [&str; 2] = ["nbclient==0.11.0", "ipykernel==7.4.0"];
/// Python versions that the module works with begin here.
const OLDEST: (u32, u32) = (3, 11);

/// Uses the module in a virtual environment: its tests, its examples and its notebook. `plain`: a
/// command that sees nothing but this environment; `version`: what the tool says of itself.
pub fn check(plain: &dyn Fn(&Path, &[&str]) -> Command, bin: &Path, version: &str) -> Result {
    let python = bin.join("python");
    let of = "import sys; print(*sys.version_info[:2])";
    let said = all_of(&mut plain(&python, &["-c", of]))?;
    let mut numbers = said.split_whitespace().map(|n| n.parse().unwrap_or(0));
    let found = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if found < OLDEST {
        println!("SKIPPED: the module needs Python {OLDEST:?} or newer, this is {found:?}");
        return Ok(());
    }
    let of = "import srd; print(f'srd {srd.__version__} (commit {srd.__commit__ or \"unknown\"})')";
    let said = all_of(&mut plain(&python, &["-c", of]))?;
    expect(said.trim() == version.trim(), &format!("the module is {said}, the tool {version}"))?;
    // Whatever is in PATH, the tool is the one that was installed with the module.
    let of = "import srd; print(srd._tool.path())";
    let said = all_of(plain(&python, &["-c", of]).env("PATH", "/usr/bin:/bin"))?;
    let same =
        std::fs::canonicalize(said.trim()).ok() == std::fs::canonicalize(bin.join("srd")).ok();
    expect(same, &format!("the module takes {said} for its tool"))?;
    let bindings = root().join("bindings/python");
    let tests = text(&bindings.join("tests"));
    run(&mut plain(&python, &["-m", "unittest", "discover", "-s", &tests]))?;
    for example in ["ping_pong.py", "asyncio_rdma.py", "lab_sweep.py"] {
        all_of(&mut plain(&python, &[&text(&bindings.join("examples").join(example))]))?;
    }
    let installed = bin.join("..").join(tree::DOC_DIR).join(tree::NOTEBOOK);
    notebook(plain, bin, &installed)
}

/// Runs the notebook if what runs it can be installed.
fn notebook(plain: &dyn Fn(&Path, &[&str]) -> Command, bin: &Path, file: &Path) -> Result {
    // With the settings of this machine's pip, which may name an index of its own.
    let mut install = command(&text(&bin.join("pip")), &["install", "--quiet"]);
    if let Err(e) = all_of(install.args(NOTEBOOKS)) {
        println!("SKIPPED: notebook: {}", e.lines().last().unwrap_or_default());
        return Ok(());
    }
    let script = root().join("scripts/notebook-run");
    run(plain(&bin.join("python"), &[&text(&script)]).arg(file))
}
