//! Tells the tool, and the Python module, the commit that they are built from. Without git, or
//! outside of a repository, it is not known; changes after the commit are not seen.

use std::process::Command;

fn git(args: &[&str]) -> Option<String> {
    let out = Command::new("git").args(args).output().ok().filter(|out| out.status.success())?;
    Some(String::from_utf8(out.stdout).ok()?.trim().to_string())
}

fn main() {
    // Seen from every package that is built by it: all are two folders below the root.
    println!("cargo::rerun-if-changed=../../crates/cli/build.rs");
    println!("cargo::rerun-if-env-changed=SRD_COMMIT");
    // HEAD names a branch, whose commit is in a file of its own, or among the packed ones.
    let branch = git(&["rev-parse", "--symbolic-full-name", "HEAD"]).unwrap_or_default();
    for file in ["HEAD", branch.as_str(), "packed-refs"].into_iter().filter(|f| !f.is_empty()) {
        let path = git(&["rev-parse", "--git-path", file]);
        if let Some(path) = path.filter(|p| std::path::Path::new(p).exists()) {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    let given = std::env::var("SRD_COMMIT").ok().filter(|commit| !commit.is_empty());
    let commit = given.or_else(|| git(&["rev-parse", "HEAD"]));
    if let Some(commit) = &commit {
        println!("cargo::rustc-env=SRD_COMMIT={commit}");
    }
    let commit = commit.as_deref().unwrap_or("unknown");
    println!("cargo::rustc-env=SRD_VERSION={} (commit {commit})", env!("CARGO_PKG_VERSION"));
}
