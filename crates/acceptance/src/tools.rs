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

#[cfg(test)]
mod tests {
    use std::{env, fs, os::unix::fs::symlink, path::Path, process::Command};

    /// Runs `apt-ensure curl` where there is none and installing does nothing, in this folder.
    fn ensure_curl(folder: &Path) {
        let script = crate::process::root().join("scripts/apt-ensure");
        let mut c = Command::new("/bin/sh");
        c.arg(script).arg("curl").env_clear().env("PATH", folder.join("bin"));
        c.env("TMPDIR", folder).env("XDG_CACHE_HOME", folder.join("cache"));
        assert!(!c.output().unwrap().status.success(), "curl is still not there");
    }

    #[test]
    fn packages_are_updated_once_and_no_link_of_others_is_followed() {
        let folder = env::temp_dir().join(format!("srd-apt-ensure-{}", std::process::id()));
        let bin = folder.join("bin");
        fs::create_dir_all(&bin).unwrap();
        for tool in ["env", "find", "mkdir", "rm", "touch", "sh"] {
            let at = ["/usr/bin", "/bin"].map(|d| Path::new(d).join(tool));
            symlink(at.iter().find(|t| t.exists()).unwrap(), bin.join(tool)).unwrap();
        }
        let calls = folder.join("calls");
        let apt = format!("#!/bin/sh\necho \"$*\" >> {}\n", calls.display());
        for (name, text) in [("apt-get", apt.as_str()), ("id", "#!/bin/sh\necho 0\n")] {
            fs::write(bin.join(name), text).unwrap();
            let mut c = Command::new("chmod");
            assert!(c.arg("+x").arg(bin.join(name)).status().unwrap().success());
        }
        let kept = folder.join("kept");
        fs::write(&kept, "of the user").unwrap();
        // Of two days ago, so that an update is due: a stamp there would be written through it.
        let old = ["-d", "2 days ago"];
        assert!(Command::new("touch").args(old).arg(&kept).status().unwrap().success());
        symlink(&kept, folder.join("srd-apt-updated-0")).unwrap();
        ensure_curl(&folder);
        ensure_curl(&folder);
        let calls = fs::read_to_string(&calls).unwrap();
        assert_eq!(calls.matches("update").count(), 1, "{calls}");
        assert_eq!(calls.matches(" install -y").count(), 2, "{calls}");
        assert_eq!(fs::read_to_string(&kept).unwrap(), "of the user");
        fs::remove_dir_all(&folder).unwrap();
    }
}
