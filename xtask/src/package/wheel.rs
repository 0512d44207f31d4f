//! The wheel for pip. pip puts the Python module among the others, the tool beside `python`, and
//! the libraries into the environment's `lib/srd`, where the tool finds them. Tool and libraries
//! serve Python versions that are too old for the module, too, so that the wheel's tag names none.

use super::{Parts, VERSION, elf::Elf, out_dir, stage, tree, tree::Tree};
use crate::{
    Result,
    process::{command, output, root, run},
};
use std::{
    env,
    path::{Path, PathBuf},
};

/// Name of the distribution, as in file names.
const NAME: &str = "software_srd";
/// Most bytes of the file.
const BYTES_MAX: u64 = 15_000_000;
/// Variable by which `.ci/run` builds without link-time optimization.
const WITHOUT_LTO: &str = "CARGO_PROFILE_RELEASE_LTO";
/// Libraries that PEP 600 lets a wheel expect from every system, as far as they are used here.
const EXPECTED: [&str; 7] = [
    "libc.so.6",
    "libm.so.6",
    "libpthread.so.0",
    "libdl.so.2",
    "libgcc_s.so.1",
    "ld-linux-x86-64.so.2",
    "ld-linux-aarch64.so.1",
];

/// Builds the wheel.
pub fn build(parts: &Parts) -> Result<PathBuf> {
    let folder = stage("wheel")?;
    let data = format!("{NAME}-{VERSION}.data");
    let tree = Tree::at(&folder);
    tree.tool(parts, &format!("{data}/scripts/srd"))?;
    tree.python(parts)?;
    let shared = folder.join(&data).join("data");
    let inner = Tree::at(&shared);
    inner.dropin(parts)?;
    inner.help(parts)?;
    inner.notebook()?;
    let libraries = shared.join(tree::LIBRARY_DIR);
    for (library, name) in tree::LIBRARIES {
        named_like(&parts.compiler, &libraries.join(library), &libraries.join(name))?;
    }
    let tag = tag(&folder, &parts.arch)?;
    let info = format!("{NAME}-{VERSION}.dist-info");
    let readme = include_str!("files/wheel.md");
    let metadata = format!(
        "Metadata-Version: 2.1\nName: software-srd\nVersion: {VERSION}\n\
         Summary: Scalable Reliable Datagram in software: programs for EFA on any network\n\
         License: Apache-2.0 OR MIT\nProject-URL: Source, {}\nRequires-Python: >=3.8\n\
         Description-Content-Type: text/markdown\n\n{readme}",
        env!("CARGO_PKG_REPOSITORY")
    );
    tree.write(&format!("{info}/METADATA"), &metadata)?;
    let wheel = format!(
        "Wheel-Version: 1.0\nGenerator: xtask {VERSION}\nRoot-Is-Purelib: false\n\
         Tag: {tag}\n"
    );
    tree.write(&format!("{info}/WHEEL"), &wheel)?;
    tree.documents(&format!("{info}/licenses"))?;
    let file = out_dir().join(format!("{NAME}-{VERSION}-{tag}.whl"));
    // Files get the commit's time, so that the same sources give the same wheel.
    let time = output(&mut command("git", &["log", "-1", "--format=%ct"])).unwrap_or_default();
    let mut pack = command("python3", &[]);
    pack.arg(root().join("scripts/wheel-pack")).arg(&folder).arg(&file);
    run(pack.env("SOURCE_DATE_EPOCH", time.trim()))?;
    let bytes = std::fs::metadata(&file).map_err(|e| format!("{}: {e}", file.display()))?.len();
    if env::var_os(WITHOUT_LTO).is_some() {
        println!("{bytes} bytes; a wheel built without link-time optimization has no bound");
    } else if bytes > BYTES_MAX {
        return Err(format!("{} has {bytes} bytes, more than {BYTES_MAX}", file.display()));
    }
    Ok(file)
}

/// Some programs open the libraries by names that are links elsewhere. Wheels have no links: an
/// empty library that needs the real one has the same effect, because the loader looks for symbols
/// in what a library needs, too.
fn named_like(compiler: &str, library: &Path, at: &Path) -> Result {
    // `srd run` has loaded the real one before, so that it needs no search path.
    let mut cc = command(compiler, &["-shared", "-Wl,--no-as-needed"]);
    let soname = at.file_name().unwrap_or_default().to_string_lossy().into_owned();
    cc.arg(format!("-Wl,-soname,{soname}")).args(["-x", "c", "/dev/null", "-x", "none"]);
    run(cc.arg(library).arg("-o").arg(at))
}

/// The wheel's tag: what its files need of a system decides.
fn tag(folder: &Path, arch: &str) -> Result<String> {
    let mut newest = (2, 17);
    for path in tree::entries(folder)? {
        let file = folder.join(&path);
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if !file.is_file() || !(name.contains(".so") || path.ends_with("scripts/srd")) {
            continue;
        }
        let elf = Elf::read(&file)?;
        let own = |needed: &String| tree::LIBRARIES.iter().any(|(library, _)| library == needed);
        let other = elf.needed.iter().find(|n| !own(n) && !EXPECTED.contains(&n.as_str()));
        if let Some(other) = other {
            return Err(format!("{} needs {other}, which not every system has", path.display()));
        }
        newest = newest.max(elf.glibc);
    }
    let (major, minor) = newest;
    Ok(format!("py3-none-manylinux_{major}_{minor}_{arch}"))
}
