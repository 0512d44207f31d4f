//! External programs that some commands need.

use crate::{
    Result,
    args::Args,
    process::{command, run},
};

/// Programs that run on the drop-in libraries in `acceptance`, and C headers of what is compiled
/// there.
pub const OUTSIDE: [&str; 6] =
    ["ibv_devinfo", "infiniband/efadv.h", "fi_pingpong", "rdma/fabric.h", "ib_send_bw", "mpicc"];

/// `install-deps [--all]`: installs what builds, tests and checks need; `--all` adds the programs
/// that performance is compared with.
pub fn install(args: &mut Args) -> Result {
    let all = args.flag("--all");
    args.end()?;
    let mut tools = vec!["cc", "c++", "valgrind", "ip", "tshark"];
    tools.extend(OUTSIDE);
    if all {
        tools.push("iperf3");
    }
    ensure(&tools)?;
    println!("present: {}", tools.join(", "));
    Ok(())
}

/// Installs missing programs if possible without asking; otherwise fails and names the command.
pub fn ensure(tools: &[&str]) -> Result {
    let mut args = vec!["scripts/apt-ensure"];
    args.extend(tools);
    let mut c = command("sh", &args);
    let status = c.status().map_err(|e| format!("cannot start `sh scripts/apt-ensure`: {e}"))?;
    if status.success() { Ok(()) } else { Err(format!("needed: {}", tools.join(", "))) }
}

/// The machine's target triple, as given by rustc.
pub fn host() -> Result<String> {
    let version = crate::process::output(&mut command("rustc", &["-vV"]))?;
    let host = version.lines().find_map(|l| l.strip_prefix("host: "));
    host.map(String::from).ok_or_else(|| "`rustc -vV` names no host".into())
}

/// Builds a package's binary in release mode and returns its path.
pub fn build_release(package: &str, binary: &str) -> Result<std::path::PathBuf> {
    build(package, binary, &[])
}

/// Builds the tool `srd` in release mode and returns its path. It contains no drop-in libraries:
/// they are files beside it.
pub fn build_tool() -> Result<std::path::PathBuf> {
    build("srd-cli", "srd", &["--no-default-features"])
}

fn build(package: &str, binary: &str, options: &[&str]) -> Result<std::path::PathBuf> {
    let mut line = crate::process::cargo(&["build", "--release", "-p", package, "--bin", binary]);
    run(line.args(options))?;
    Ok(crate::process::target_dir().join("release").join(binary))
}
