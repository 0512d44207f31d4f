//! A real Prometheus scrapes `srd export` on a host of the fabric, and evaluates the dashboard for
//! Grafana.

use super::{fabric::Fabric, installed, slurm::end};
use crate::{
    Result,
    process::{command, output, root},
};
use std::{fs, path::Path, process::Stdio};

/// Time limit in seconds: that of the program, and some for start and end.
const LIMIT_S: u32 = 120;
/// Share of packets that a spine loses, so that the panels of losses have something to show.
const FAULT: &str = "spine 0 --loss 2%";

/// Version for the table.
///
/// # Errors
/// Prometheus is not installed; the text says what to do.
pub fn version() -> Result<String> {
    if let Some(missing) = ["prometheus", "python3"].iter().find(|p| !installed(p)) {
        return Err(format!("{missing} is not installed; `sh scripts/apt-ensure prometheus`"));
    }
    let asked = output(&mut command("dpkg-query", &["-W", "-f", "${Version}", "prometheus"]));
    Ok(format!("Prometheus {}", asked.map_or_else(|_| "?".into(), |v| v.trim().to_owned())))
}

/// Evaluates each expression of the dashboard while a lossy transfer runs.
///
/// # Errors
/// Prometheus refuses an expression, or one has no data.
pub fn run(f: &Fabric, _: &Path) -> Result<String> {
    let folder = f.folder().join("prometheus");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let program = root().join("bindings/ibverbs/tests/programs/dashboard.py");
    let (program, shown) = (program.display(), folder.display());
    let serve = f.tool("serve --ip 10.1.1.10");
    let mut server = f.on_plain("h1x0", 2 * LIMIT_S, &serve);
    server.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut server = server.spawn().map_err(|e| format!("cannot start the server: {e}"))?;
    let mut fault = f.fail(FAULT)?;
    let tool = f.installed_in().0.join("srd");
    let line = format!("python3 {program} {} {shown} 10.1.1.10", tool.display());
    let said = f.plain("h0x0", LIMIT_S, &line);
    end(&mut server);
    // It has ended by itself, once the fault was there.
    let _ = fault.wait();
    f.heal()?;
    let said = said?;
    let summary = said.text.lines().find_map(|l| l.strip_prefix("dashboard: "));
    match (said.code, summary) {
        (0, Some(summary)) => Ok(summary.to_owned()),
        _ => Err(said.tail()),
    }
}
