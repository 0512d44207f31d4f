//! Tells the tool, and the Python module, the commit that they are built from. Without git, or
//! outside of a repository, it is not known; changes after the commit are not seen.
//!
//! With the feature `libraries` it also builds the drop-in libraries, which the tool then contains:
//! `cargo install` installs programs and nothing else. A build for tests does without, and so does
//! one for another kind of machine, for which they would have to be built otherwise.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

/// What the libraries are built from: seen from this package, as what `cargo xtask verbs` runs.
const SOURCES: [&str; 10] = [
    "Cargo.toml",
    "Cargo.lock",
    "bindings/guard",
    "bindings/ibverbs",
    "crates/core",
    "crates/datapath",
    "crates/seal",
    "crates/share",
    "crates/srd",
    "crates/wire",
];
/// The libraries, as `cargo xtask verbs` calls them.
const LIBRARIES: [&str; 3] = ["libibverbs.so.1", "libefa.so.1", "libsrd_places.so.1"];
/// Variable with a folder of libraries of these sources, which are then not built again.
const BUILT: &str = "SRD_BUILT_LIBRARIES";

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
        if let Some(path) = path.filter(|p| Path::new(p).exists()) {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    let given = env::var("SRD_COMMIT").ok().filter(|commit| !commit.is_empty());
    let commit = given.or_else(|| git(&["rev-parse", "HEAD"]));
    if let Some(commit) = &commit {
        println!("cargo::rustc-env=SRD_COMMIT={commit}");
    }
    let commit = commit.as_deref().unwrap_or("unknown");
    println!("cargo::rustc-env=SRD_VERSION={} (commit {commit})", env!("CARGO_PKG_VERSION"));
    println!("cargo::rerun-if-env-changed={BUILT}");
    println!("cargo::rustc-check-cfg=cfg(contains_libraries)");
    let built = env::var_os(BUILT).filter(|folder| !folder.is_empty()).map(PathBuf::from);
    let variable = |name: &str| env::var(name).unwrap_or_default();
    let wanted = env::var_os("CARGO_FEATURE_LIBRARIES").is_some()
        && variable("HOST") == variable("TARGET")
        && (built.is_some() || variable("PROFILE") == "release");
    if wanted {
        println!("cargo::rustc-cfg=contains_libraries");
        libraries(built, Path::new(&variable("OUT_DIR")));
    }
}

/// Puts the libraries, without debug information, into the folder `libraries` of `OUT_DIR`.
fn libraries(built: Option<PathBuf>, out: &Path) {
    let built = built.unwrap_or_else(|| {
        let built = out.join("verbs");
        build(&built, &out.join("target"));
        built
    });
    let folder = out.join("libraries");
    fs::create_dir_all(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    for name in LIBRARIES {
        let mut strip = Command::new("strip");
        succeeds(strip.arg("-o").arg(folder.join(name)).arg(built.join(name)));
    }
}

/// Runs `cargo xtask verbs` in a target folder of its own, because that of this build is locked.
fn build(built: &Path, target: &Path) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for source in SOURCES {
        println!("cargo::rerun-if-changed={}", root.join(source).display());
    }
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["run", "--locked", "--package", "xtask", "--", "verbs", "--out"]).arg(built);
    succeeds(cargo.current_dir(root).env("CARGO_TARGET_DIR", target));
}

fn succeeds(command: &mut Command) {
    let status = command.status().unwrap_or_else(|e| panic!("cannot start {command:?}: {e}"));
    assert!(status.success(), "{command:?}: {status}");
}
