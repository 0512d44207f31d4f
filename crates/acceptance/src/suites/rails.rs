//! Two interfaces per host: two devices in one process, and ranks on different interfaces.

use super::{
    cases::{self, checked_by},
    fabric::Fabric,
};
use crate::{
    Result,
    process::{command, output, root},
};

/// Time limit of each run in seconds.
const LIMIT_S: u32 = 60;

/// Runs one process per host that opens both devices; returns a remark for the table.
///
/// # Errors
/// The program cannot be compiled, fails, or reports an error.
pub fn verbs(f: &Fabric) -> Result<String> {
    pair(f, "rails_check", &["-libverbs", "-lefa"], "srd0 srd1")
}

/// Runs one process per host that opens a domain on each device; returns a remark for the table.
///
/// # Errors
/// Those of [`verbs`].
pub fn libfabric(f: &Fabric) -> Result<String> {
    pair(f, "rails_fabric", &["-lfabric"], "")
}

/// Runs the ranks of each host on one interface each; returns a remark for the table.
///
/// # Errors
/// The program fails, or reports wrong results.
pub fn mpi(f: &Fabric) -> Result<String> {
    let said = f.mpi_rails(150, &format!("{} 65536", cases::program(f)))?;
    cases::checked(&said)
}

/// Compiles a checker and runs it on one host of each leaf.
fn pair(f: &Fabric, name: &str, libraries: &[&str], arguments: &str) -> Result<String> {
    let program = f.folder().join(name);
    let source = root().join(format!("bindings/ibverbs/tests/programs/{name}.c"));
    let mut cc = command("cc", &["-O2", "-Wall", "-Werror", "-o"]);
    output(cc.arg(&program).arg(source).args(libraries))?;
    let line = both_devices(&format!("{} {arguments}", program.display()));
    let [server, client] = f.pair_rails(LIMIT_S, [&line, &format!("{line} 10.1.0.10")])?;
    checked_by(name, &server)?;
    checked_by(name, &client)
}

/// The command line with both interfaces as devices.
fn both_devices(line: &str) -> String {
    format!("env SRD_INTERFACE=e0,e1 {line}")
}
