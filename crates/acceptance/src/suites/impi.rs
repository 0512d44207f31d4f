//! Intel MPI as wheels from PyPI, which bring a libfabric of their own up to version 2021.14.

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
/// It is no virtual environment with Intel MPI.
pub fn version(folder: &Path) -> Result<String> {
    let launcher = folder.join("bin/mpiexec.hydra").display().to_string();
    let no = || {
        format!(
            "{} holds no Intel MPI: python3 -m venv DIR; DIR/bin/pip install impi-rt==2021.14.2 \
             impi-devel==2021.14.2",
            folder.display()
        )
    };
    let text = output(command(&launcher, &["--version"]).env("I_MPI_ROOT", folder));
    let text = text.map_err(|_| no())?;
    let version = text.split("Version ").nth(1).and_then(|t| t.split_whitespace().next());
    version.map(|v| format!("Intel MPI {v} (wheel)")).ok_or_else(no)
}

/// The same checks as with the system's Open MPI, compiled with the wheel's headers; a remark for
/// the table.
///
/// # Errors
/// It ended badly, or results were wrong.
pub fn run(f: &Fabric, folder: &Path, ranks: u32) -> Result<String> {
    let program = f.folder().join("mpi_check_impi");
    let source = root().join("bindings/ibverbs/tests/programs/mpi_check.c");
    // Without warnings: those of its headers about MPI_STATUSES_IGNORE are not ours.
    let mut cc = command(&folder.join("bin/mpicc").display().to_string(), &["-O2", "-w", "-o"]);
    build(cc.env("I_MPI_ROOT", folder).arg(&program).arg(source))?;
    let line = format!("{} 65536", program.display());
    let said = f.mpi_intel(LIMIT_S, ranks, folder, &line)?;
    cases::checked(&said)
}
