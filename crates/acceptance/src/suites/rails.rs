//! Two interfaces of each host: two devices in one process, and ranks on either.

use super::{
    cases::{self, checked_by},
    fabric::Fabric,
};
use crate::{
    Result,
    process::{command, output, root},
};
use std::path::Path;

/// Limit of each, in seconds.
const LIMIT_S: u32 = 60;

/// One process of each host opens both devices; a remark for the table.
///
/// # Errors
/// The program cannot be compiled, ended badly, or something was wrong.
pub fn verbs(f: &Fabric) -> Result<String> {
    if !Path::new("/usr/include/infiniband/efadv.h").exists() {
        return Err("libibverbs-dev is missing; `sh scripts/apt-ensure mpicc`".into());
    }
    pair(f, "rails_check", &["-libverbs", "-lefa"], "srd0 srd1")
}

/// One process of each host opens a domain on each device; without libfabric's headers, only that
/// both domains are there and carry messages. A remark for the table.
///
/// # Errors
/// As [`verbs`].
pub fn libfabric(f: &Fabric) -> Result<String> {
    if Path::new("/usr/include/rdma/fabric.h").exists() {
        return pair(f, "rails_fabric", &["-lfabric"], "");
    }
    let line = both_devices("fi_pingpong -p efa -e rdm -d srd1-rdm -c -I 50 -S 4096");
    let [server, client] = f.pair_rails(LIMIT_S, [&line, &format!("{line} 10.61.0.10")])?;
    cases::expect_end(&server)?;
    cases::expect_end(&client)?;
    Ok("only the second domain: libfabric-dev is missing".into())
}

/// The ranks of each host take one interface each; a remark for the table.
///
/// # Errors
/// It ended badly, or results were wrong.
pub fn mpi(f: &Fabric) -> Result<String> {
    let said = f.mpi_rails(150, &format!("{} 65536", cases::program(f)))?;
    cases::checked(&said)
}

/// Compiles a checker and runs it on a host of each leaf.
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

/// Both interfaces are devices.
fn both_devices(line: &str) -> String {
    format!("env SRD_INTERFACE=e0,e1 {line}")
}
