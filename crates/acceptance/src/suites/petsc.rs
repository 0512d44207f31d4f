//! PETSc over SRD and over Open MPI's TCP: two solvers, whose residuals must have the same digits
//! in every iteration.

use super::{
    cases::{expect_end_over, expect_same, through},
    fabric::Fabric,
    share,
};
use crate::{Result, mpi::stage::Transport, process::root};
use std::{fs, path::PathBuf};

/// Time limit of a run in seconds.
const LIMIT_S: u32 = 150;
/// Number of ranks, two on each host.
const RANKS: u32 = 4;
/// Least payload of a run in MB that the device must have counted.
const MB_MIN: f64 = 0.5;
/// Where Debian has the modules of each build of PETSc.
const BUILDS: &str = "/usr/lib/petscdir";

/// The folder of the module petsc4py for real numbers; `None` if it is not installed.
pub fn module() -> Option<PathBuf> {
    let folders = |of: PathBuf| {
        let all = fs::read_dir(of).into_iter().flatten().filter_map(|entry| entry.ok());
        let mut all: Vec<PathBuf> = all.map(|entry| entry.path()).collect();
        all.sort();
        all
    };
    let builds = folders(BUILDS.into()).into_iter().flat_map(folders);
    let real = builds.filter(|build| build.to_string_lossy().ends_with("-real"));
    let mut modules = real.map(|build| build.join("lib/python3/dist-packages"));
    modules.find(|module| module.join("petsc4py/__init__.py").exists())
}

/// Runs the solvers over both; returns a remark for the table.
///
/// # Errors
/// A run fails, or the digits differ.
pub fn run(f: &Fabric) -> Result<String> {
    let module = module().ok_or("python3-petsc4py is not installed")?;
    let source = root().join("bindings/ibverbs/tests/programs/petsc_solve.py");
    let line = format!(
        "env PYTHONPATH={} OPENBLAS_NUM_THREADS=1 /usr/bin/python3 {}",
        module.display(),
        source.display()
    );
    let one = |over: Transport| {
        let said = f.mpi_over(over, LIMIT_S, RANKS, &line)?;
        expect_end_over(over, &said)?;
        let numbers = numbers(&said.text).map_err(|e| format!("{}: {e}", over.name()))?;
        Ok::<_, String>((said, numbers))
    };
    let (_, tcp) = one(Transport::TcpBtl)?;
    let (said, srd) = one(Transport::Srd)?;
    share::bytes_check(&said, MB_MIN)?;
    expect_same(&srd, &tcp)?;
    Ok(format!("{} residuals and norms, every digit as over TCP; {}", srd.len(), through(&said)?))
}

/// The lines with the numbers, of which there are as many as the last line says: a residual for
/// each iteration and the one before, and the norm of the solution, for each solver.
fn numbers(text: &str) -> Result<Vec<String>> {
    let is_number = |l: &&str| l.starts_with("residual ") || l.starts_with("solution ");
    let all: Vec<String> = text.lines().filter(is_number).map(str::to_owned).collect();
    let solvers = all.iter().filter(|l| l.starts_with("solution ")).count();
    let end = text.lines().find_map(|l| l.strip_prefix("petsc_solve: "));
    let iterations: Option<usize> = end.and_then(|l| l.split(' ').next()?.parse().ok());
    match iterations {
        Some(n) if n > 0 && solvers > 0 && all.len() == n + 2 * solvers => Ok(all),
        _ => Err(format!("{} lines of numbers, {iterations:?} iterations", all.len())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_iteration_must_have_its_line() {
        let text = "residual a 0 1.5\nnoise\nresidual a 1 0.25\nsolution a 3.0\n";
        let whole = format!("{text}petsc_solve: 1 iterations\n");
        assert_eq!(numbers(&whole).unwrap().len(), 3);
        assert!(numbers(text).is_err(), "the end is missing");
        assert!(numbers(&whole.replace("residual a 1", "residue a 1")).is_err());
        assert!(numbers("petsc_solve: 0 iterations\n").is_err());
    }
}
