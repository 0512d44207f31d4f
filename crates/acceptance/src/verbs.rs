//! `verbs`: builds the drop-in libraries. Cargo builds the code as a static library; the two shared
//! libraries are linked here, because the symbol versions that programs expect need a version
//! script, and a third one, which makes programs find the devices.

use crate::{
    Result,
    args::Args,
    process::{cargo, command, root, run, target_dir},
    tools,
};
use std::{
    ffi::OsStr,
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

/// `verbs [--out DIR]`.
pub fn run_command(args: &mut Args) -> Result {
    let out = args.value::<PathBuf>("--out")?;
    args.end()?;
    let out = build(out)?;
    println!("{}: libibverbs.so.1 libefa.so.1 libsrd_places.so.1", out.display());
    println!("start programs with `srd run -- PROGRAM`; see docs/drop-in.md");
    Ok(())
}

/// Builds and links the libraries; returns their folder.
pub fn build(out: Option<PathBuf>) -> Result<PathBuf> {
    tools::ensure(&["cc"])?;
    let release = target_dir().join("release");
    build_by(&By { compiler: "cc".into(), options: Vec::new(), release }, out)
}

/// What builds for other systems than this machine's.
pub struct By {
    /// C compiler, which links.
    pub compiler: String,
    /// Options of cargo.
    pub options: Vec<String>,
    /// Folder of what cargo builds with these options.
    pub release: PathBuf,
}

/// As [`build`], by another C compiler: one for an older C library, or for another processor.
pub fn build_by(by: &By, out: Option<PathBuf>) -> Result<PathBuf> {
    let compiler = by.compiler.as_str();
    // With this kind of library alone: beside a library for Rust, which tests use, Cargo leaves out
    // link-time optimization.
    let line = ["rustc", "--release", "-p", "srd-ibverbs", "--lib", "--crate-type", "staticlib"];
    run(cargo(&line).args(&by.options))?;
    let out = out.unwrap_or_else(|| target_dir().join("verbs"));
    fs::create_dir_all(&out).map_err(|e| format!("{}: {e}", out.display()))?;
    let link = root().join("bindings/ibverbs/link");
    let verbs = out.join("libibverbs.so.1");
    let objects = ["private", "job"].map(|name| out.join(name).with_extension("o"));
    for object in &objects {
        compile(compiler, &link, object)?;
    }
    let [private, job] = &objects;
    let archive = by.release.join("libsrd_ibverbs.a");
    let own = [
        "-Wl,--whole-archive".as_ref(),
        archive.as_os_str(),
        "-Wl,--no-whole-archive".as_ref(),
        private.as_os_str(),
        job.as_os_str(),
        "-Wl,--gc-sections".as_ref(),
    ];
    let system = ["-lgcc_s", "-lpthread", "-lm"].map(OsStr::new);
    let script = |name: &str| format!("-Wl,--version-script={}", link.join(name).display());
    shared(compiler, &verbs, &script("ibverbs.map"), &[&own[..], &system].concat())?;
    // The third must pass on invalid pointers, whatever the declarations promise.
    let more = [
        ("libefa.so.1", "efa.c", script("efa.map")),
        ("libsrd_places.so.1", "places.c", "-fno-delete-null-pointer-checks".into()),
    ];
    for (name, source, flag) in more {
        let source = link.join(source);
        let inputs = ["-fPIC".as_ref(), "-O2".as_ref(), source.as_os_str(), verbs.as_os_str()];
        shared(compiler, &out.join(name), &flag, &inputs)?;
    }
    for object in &objects {
        fs::remove_file(object).map_err(|e| format!("{}: {e}", object.display()))?;
    }
    // Some programs open the libraries by these names.
    for name in ["libibverbs.so", "libefa.so"] {
        link_to(&format!("{name}.1"), &out.join(name))?;
    }
    Ok(out)
}

/// Compiles the source of the object's name in `link`.
fn compile(compiler: &str, link: &Path, object: &Path) -> Result {
    let source = link.join(object.file_name().unwrap_or_default()).with_extension("c");
    let flags = ["-fPIC", "-O2", "-c"].map(OsStr::new);
    let files = [source.as_os_str(), "-o".as_ref(), object.as_os_str()];
    cc(compiler, &[flags, files].concat())
}

/// Links a shared library of the name of its file, in which no symbol is missing.
fn shared(compiler: &str, library: &Path, flag: &str, inputs: &[&OsStr]) -> Result {
    let name = library.file_name().unwrap_or_default().display();
    let soname = format!("-Wl,-soname,{name}");
    let kind = ["-shared", &soname, flag].map(OsStr::new);
    let rest = ["-Wl,-z,defs".as_ref(), "-o".as_ref(), library.as_os_str()];
    cc(compiler, &[&kind[..], inputs, &rest].concat())
}

fn cc(compiler: &str, args: &[&OsStr]) -> Result {
    run(command(compiler, &[]).args(args))
}

fn link_to(to: &str, at: &Path) -> Result {
    if fs::symlink_metadata(at).is_ok() {
        fs::remove_file(at).map_err(|e| format!("{}: {e}", at.display()))?;
    }
    symlink(to, at).map_err(|e| format!("{}: {e}", at.display()))
}
