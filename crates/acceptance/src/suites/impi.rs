//! Intel MPI as wheels from PyPI, which up to version 2021.14 contain a libfabric.

use super::{
    cases,
    fabric::{Fabric, Shell},
};
use crate::{
    Result,
    process::{command, output, root, run as build},
};
use std::path::Path;

/// Time limit of a run in seconds.
const LIMIT_S: u32 = 120;

/// Version of the Intel MPI in the folder, for the table.
///
/// # Errors
/// The folder is not a virtual environment with Intel MPI.
pub fn version(folder: &Path) -> Result<String> {
    let launcher = folder.join("bin/mpiexec.hydra").display().to_string();
    let no = || {
        format!(
            "{} does not contain Intel MPI: python3 -m venv DIR; DIR/bin/pip install \
             impi-rt==2021.14.2 impi-devel==2021.14.2",
            folder.display()
        )
    };
    let text = output(command(&launcher, &["--version"]).env("I_MPI_ROOT", folder));
    let text = text.map_err(|_| no())?;
    let version = text.split("Version ").nth(1).and_then(|t| t.split_whitespace().next());
    version.map(|v| format!("Intel MPI {v} (wheel)")).ok_or_else(no)
}

/// The same checks as with the system's Open MPI, compiled with the wheel's headers; returns a
/// remark for the table.
///
/// # Errors
/// The program fails, or reports wrong results.
pub fn run(f: &Fabric, folder: &Path, ranks: u32, by: Shell) -> Result<String> {
    let program = f.folder().join("mpi_check_impi");
    let source = root().join("bindings/ibverbs/tests/programs/mpi_check.c");
    // Without warnings: its headers cause some about MPI_STATUSES_IGNORE.
    let mut cc = command(&folder.join("bin/mpicc").display().to_string(), &["-O2", "-w", "-o"]);
    build(cc.env("I_MPI_ROOT", folder).arg(&program).arg(source))?;
    let line = by.rank(&format!("{} 65536", program.display()));
    let said = f.mpi_intel(LIMIT_S, ranks, folder, by, &line)?;
    by.heeded(cases::checked(&said)?)
}
