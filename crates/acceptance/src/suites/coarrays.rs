//! Fortran coarrays (OpenCoarrays on Open MPI): one image on each of two hosts, and two on each.

use super::{cases::checked_by, fabric::Fabric};
use crate::{
    Result,
    mpi::stage::Transport,
    process::{command, root, run as build},
};

/// Time limit of a run in seconds.
const LIMIT_S: u32 = 150;
const NAME: &str = "coarray_check";

/// Runs so many images on two hosts; returns a remark for the table.
///
/// # Errors
/// The program cannot be compiled, fails, or reports wrong numbers.
pub fn run(f: &Fabric, images: u32) -> Result<String> {
    let program = f.folder().join(NAME);
    let source = root().join(format!("bindings/ibverbs/tests/programs/{NAME}.f90"));
    build(command("caf", &["-O2", "-o"]).arg(&program).arg(source).current_dir(f.folder()))?;
    let line = program.display().to_string();
    let said = match images {
        2 => f.mpi_spread(Transport::Srd, LIMIT_S, 2, &line),
        _ => f.mpi(LIMIT_S, images, &line),
    };
    checked_by(NAME, &said?)
}
