//! Programs from outside that some commands need.

use crate::{
    Result,
    args::Args,
    process::{command, run},
};

/// Programs that run on the drop-in libraries in `acceptance`.
pub const OUTSIDE: [&str; 4] = ["ibv_devinfo", "fi_pingpong", "ib_send_bw", "mpicc"];

/// `install-deps [--all]`: what building, testing and the checks need; `--all` adds the rivals
/// that performance figures are compared with.
pub fn install(args: &mut Args) -> Result {
    let all = args.flag("--all");
    args.end()?;
    let mut tools = vec!["cc", "c++", "valgrind", "ip"];
    tools.extend(OUTSIDE);
    if all {
        tools.push("iperf3");
    }
    ensure(&tools)?;
    println!("present: {}", tools.join(", "));
    Ok(())
}

/// Installs what is missing if that can be done without asking; else an error naming the command.
pub fn ensure(tools: &[&str]) -> Result {
    let mut args = vec!["scripts/apt-ensure"];
    args.extend(tools);
    let mut c = command("sh", &args);
    let status = c.status().map_err(|e| format!("cannot start `sh scripts/apt-ensure`: {e}"))?;
    if status.success() { Ok(()) } else { Err(format!("needed: {}", tools.join(", "))) }
}

/// The machine's target triple, as rustc names it.
pub fn host() -> Result<String> {
    let version = crate::process::output(&mut command("rustc", &["-vV"]))?;
    let host = version.lines().find_map(|l| l.strip_prefix("host: "));
    host.map(String::from).ok_or_else(|| "`rustc -vV` names no host".into())
}

/// Builds a package's binary in release and returns its path.
pub fn build_release(package: &str, binary: &str) -> Result<std::path::PathBuf> {
    run(&mut crate::process::cargo(&["build", "--release", "-p", package, "--bin", binary]))?;
    Ok(crate::process::target_dir().join("release").join(binary))
}
