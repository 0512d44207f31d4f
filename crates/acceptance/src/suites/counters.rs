//! Completion counters and 64-bit request numbers, through verbs.

use super::{cases::checked_by, fabric::Fabric};
use crate::{
    Result,
    process::{command, root, run as build},
};

/// Time limit of the run in seconds.
const LIMIT_S: u32 = 60;
const NAME: &str = "cntr_check";

/// Runs one process on each of two hosts, which both count; returns a remark for the table.
///
/// # Errors
/// The program cannot be compiled, fails, or reports wrong results.
pub fn run(f: &Fabric) -> Result<String> {
    let program = f.folder().join(NAME);
    let source = root().join(format!("bindings/ibverbs/tests/programs/{NAME}.c"));
    let mut cc = command("cc", &["-O2", "-Wall", "-Wextra", "-Werror", "-o"]);
    build(cc.arg(&program).arg(source).args(["-libverbs", "-lefa"]))?;
    let line = program.display().to_string();
    let [server, client] = f.pair(LIMIT_S, &line, &line)?;
    checked_by(NAME, &server)?;
    checked_by(NAME, &client)
}
