//! Parallel HDF5: ranks on two hosts write and read one file of a folder that both see, over SRD
//! and over Open MPI's TCP. Each rank reads what others wrote, and both files must be equal.

use super::{
    cases::{checked_by, expect_end_over},
    fabric::Fabric,
    share,
};
use crate::{
    Result,
    mpi::stage::Transport,
    process::{command, root, run as build},
};
use std::fs;

/// Time limit of a run in seconds.
const LIMIT_S: u32 = 150;
/// Number of ranks, two on each host.
const RANKS: u32 = 4;
/// Least payload of a run in MB that the device must have counted: about half of the data set of
/// 9.2 MB goes to the host that writes it.
const MB_MIN: f64 = 1.0;
const NAME: &str = "hdf5_check";

/// Runs the program over both; returns a remark for the table.
///
/// # Errors
/// The program cannot be compiled, fails, or reports wrong numbers, or the files differ.
pub fn run(f: &Fabric) -> Result<String> {
    let program = f.folder().join(NAME);
    let source = root().join(format!("bindings/ibverbs/tests/programs/{NAME}.c"));
    let flags = ["-O2", "-Wall", "-Wextra", "-Werror", "-o"];
    build(command("h5pcc.openmpi", &flags).arg(&program).arg(source).current_dir(f.folder()))?;
    let one = |over: Transport, file: &str| {
        let file = f.folder().join(file);
        let _ = fs::remove_file(&file);
        let line = format!("{} {}", program.display(), file.display());
        let said = f.mpi_over(over, LIMIT_S, RANKS, &line)?;
        expect_end_over(over, &said)?;
        let bytes = fs::read(&file).map_err(|e| format!("{}: {e}", file.display()))?;
        Ok::<_, String>((said, bytes))
    };
    let (_, tcp) = one(Transport::TcpBtl, "tcp.h5")?;
    let (said, srd) = one(Transport::Srd, "srd.h5")?;
    share::bytes_check(&said, MB_MIN)?;
    if srd.is_empty() || srd != tcp {
        return Err(format!("the file ({} bytes) differs from that over TCP", srd.len()));
    }
    let remark = checked_by(NAME, &said)?;
    Ok(format!("file of {} bytes as over TCP; {remark}", srd.len()))
}
