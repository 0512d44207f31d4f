//! `package-check`: each package is installed in a place of its own, used there, and removed.

use super::{Parts, VERSION, deb, install, python, stage, tree, wheel};
use crate::{
    Result,
    process::{cargo, command, output, root, run},
    tools,
};
use std::{
    fs,
    io::{BufRead as _, BufReader},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Instant,
};

/// First UDP port of the servers that are started here.
const PORT_BASE: &str = "23500";
/// What crates.io would get: the library for Rust, and the crates of this workspace that it uses.
const PUBLISHED: [&str; 6] =
    ["srd-wire", "srd-core", "srd-seal", "srd-datapath", "srd-share", "srd"];
/// What the Debian package depends on.
const BASE: [&str; 2] = ["libc6", "libgcc-s1"];

/// Builds all packages and checks them.
///
/// # Errors
/// A package cannot be built, installed, used or removed.
pub fn run_all() -> Result {
    tools::ensure(&["cc", "mpicc", "pkg-config", "python3-venv"])?;
    crates().map_err(|e| format!("crates: {e}"))?;
    let parts = Parts::build()?.with_python()?;
    for (name, check) in [
        ("install --prefix", prefix as fn(&Parts) -> Result),
        ("wheel", by_pip),
        ("deb", by_dpkg),
        ("cargo install", by_cargo),
    ] {
        let began = Instant::now();
        check(&parts).map_err(|e| format!("{name}: {e}"))?;
        println!("pass   {:>5.1} s  {name}", began.elapsed().as_secs_f64());
    }
    Ok(())
}

/// Packs the crates for crates.io as `cargo publish` does, without building them from what was
/// packed: their manifests must have all that it asks for.
fn crates() -> Result {
    let mut line = cargo(&["package", "--offline", "--no-verify", "--allow-dirty"]);
    line.arg("--exclude-lockfile").args(PUBLISHED.iter().flat_map(|name| ["-p", name]));
    let said = all_of(&mut line)?;
    expect(!said.contains("warning"), &said)?;
    let packed = said.matches("Packaged ").count();
    expect(packed == PUBLISHED.len(), &said)
}

/// Installs below a folder, compiles the C example there, and uninstalls.
fn prefix(parts: &Parts) -> Result {
    let folder = stage("check-prefix")?;
    let foreign = folder.join("bin/srd");
    put(&foreign, "of somebody else")?;
    let refused = install::install(parts, &folder).err().unwrap_or_default();
    expect(refused.contains("bin/srd exists"), &refused)?;
    fs::remove_file(&foreign).map_err(|e| format!("{}: {e}", foreign.display()))?;
    install::install(parts, &folder)?;
    // Again: an update.
    install::install(parts, &folder)?;
    version_of(&mut command(&text(&folder.join("bin/srd")), &["--version"]))?;
    let program = example(&folder.join("lib/pkgconfig"), &folder.join("pingpong"))?;
    let mut c = command(&text(&program), &["200"]);
    let said = all_of(c.env("LD_LIBRARY_PATH", folder.join("lib")))?;
    expect(said.contains("200 round trips"), &said)?;
    fs::remove_file(&program).map_err(|e| format!("{}: {e}", program.display()))?;
    install::uninstall(&folder)?;
    // The folder `bin` was there before.
    let left = tree::entries(&folder)?;
    expect(left == [Path::new("bin")], &format!("uninstall left {left:?}"))
}

/// Installs the wheel into a fresh virtual environment, without Rust and without a network, and
/// runs an MPI program and the Python module by it.
fn by_pip(parts: &Parts) -> Result {
    let file = wheel::build(parts)?;
    let folder = stage("check-venv")?;
    run(command("python3", &["-m", "venv"]).arg(&folder))?;
    let bin = folder.join("bin");
    let plain = |program: &Path, args: &[&str]| {
        let mut c = command(&text(program), args);
        c.env_clear().env("HOME", &folder).current_dir(&folder);
        c.env("PATH", format!("{}:/usr/bin:/bin", bin.display()));
        c.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        c
    };
    let pip = bin.join("pip");
    run(plain(&pip, &["install", "--quiet", "--no-index", "--no-deps"]).arg(&file))?;
    let srd = bin.join("srd");
    let version = version_of(&mut plain(&srd, &["--version"]))?;
    let source = root().join("bindings/ibverbs/tests/programs/mpi_check.c");
    run(command("mpicc", &["-O2", "-o"]).arg(folder.join("mpi_check")).arg(source))?;
    let line = ["run", "--", "mpirun", "--oversubscribe", "-n", "2", "./mpi_check", "4096"];
    let said = all_of(&mut plain(&srd, &line))?;
    expect(said.contains("srd: 2 processes, ") && said.contains(" through SRD"), &said)?;
    for library in ["libibverbs.so", "libefa.so"] {
        let code = format!(
            "import ctypes; a = ctypes.CDLL({library:?}); b = ctypes.CDLL('{library}.1'); \
             at = lambda l: ctypes.cast(l.{0}, ctypes.c_void_p).value; assert at(a) == at(b)",
            if library == "libefa.so" { "efadv_query_device" } else { "ibv_get_device_list" }
        );
        all_of(&mut plain(&srd, &["run", "--allow-fallback", "--", "python3", "-c", &code]))?;
    }
    python::check(&plain, &bin, &version)?;
    run(&mut plain(&pip, &["uninstall", "--quiet", "--yes", "software-srd"]))?;
    let left: Vec<_> = tree::entries(&folder)?.into_iter().filter(|path| is_of_srd(path)).collect();
    expect(left.is_empty(), &format!("pip uninstall left {left:?}"))
}

fn is_of_srd(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    ["srd", "software_srd", "figures.ipynb", "libibverbs", "libefa"]
        .iter()
        .any(|word| name.starts_with(word))
}

/// Installs the Debian package by `dpkg` into a root that has the C library and nothing else, runs
/// it there, and removes it.
fn by_dpkg(parts: &Parts) -> Result {
    let file = deb::build(parts)?;
    let folder = stage("check-root")?;
    if let Err(e) = output(&mut command("unshare", &["-r", "-m", "true"])) {
        println!("SKIPPED: deb in a root of its own: {e}");
        return Ok(());
    }
    base_system(&folder)?;
    let before = tree::entries(&folder)?;
    let dpkg = |action: &str, what: &Path| {
        let root = format!("--root={}", folder.display());
        all_of(command("unshare", &["-r", "dpkg", &root, action]).arg(what))
    };
    dpkg("--install", &file)?;
    let program = folder.join("usr/bin/pingpong");
    example(&folder.join("usr/lib/pkgconfig"), &program)?;
    let said = all_of(&mut inside(&folder, "/usr/bin/pingpong 200"))?;
    expect(said.contains("200 round trips"), &said)?;
    fs::remove_file(&program).map_err(|e| format!("{}: {e}", program.display()))?;
    version_of(&mut inside(&folder, "/usr/bin/srd --version"))?;
    let said =
        all_of(&mut inside(&folder, "/usr/bin/srd run --allow-fallback -- /usr/bin/srd man"))?;
    expect(said.contains(".TH") && !said.contains("preload"), &said)?;
    copies(&folder, &|line| inside(&folder, &format!("/usr/bin/srd {}", line.join(" "))))?;
    dpkg("--remove", Path::new(deb::NAME))?;
    let after: Vec<_> = tree::entries(&folder)?;
    let left: Vec<_> =
        after.iter().filter(|p| !before.contains(p) && p.starts_with("usr")).collect();
    expect(left.is_empty(), &format!("dpkg --remove left {left:?}"))
}

/// Installs the tool with the libraries in it by `cargo install`, and runs a program on them. As a
/// debug build, most of which the tests have built, and with the libraries that are built already.
fn by_cargo(parts: &Parts) -> Result {
    let folder = stage("check-cargo")?;
    // For release, so that what the tool is made of is already there.
    let mut line = cargo(&["install", "--quiet", "--offline", "--locked"]);
    line.args(["--path", "crates/cli", "--root"]).arg(&folder);
    run(line.env("SRD_BUILT_LIBRARIES", std::path::absolute(&parts.verbs).unwrap_or_default()))?;
    let tool = text(&folder.join("bin/srd"));
    let mut c = command(&tool, &["run", "--allow-fallback", "--", &tool, "env"]);
    let said = all_of(c.env_clear().env("HOME", &folder).env("PATH", "/usr/bin:/bin"))?;
    let place = text(&folder.join(".cache/srd/libraries-"));
    let loaded = format!("export LD_LIBRARY_PATH='{place}");
    expect(said.contains(&loaded) && !said.contains("cannot be preloaded"), &said)?;
    fs::remove_dir_all(folder.join(".cache")).map_err(|e| e.to_string())?;
    run(cargo(&["uninstall", "--quiet", "srd-cli", "--root"]).arg(&folder))?;
    let left: Vec<_> = tree::entries(&folder)?.into_iter().filter(|path| is_of_srd(path)).collect();
    expect(left.is_empty(), &format!("cargo uninstall left {left:?}"))
}

/// A server and a client of the tool that `srd` starts copy a file in a root, which has `tmp`.
pub fn copies(folder: &Path, srd: &dyn Fn(&[&str]) -> Command) -> Result {
    let content: String = (0..20_000).map(|n| format!("{n}\n")).collect();
    put(&folder.join("tmp/from"), &content)?;
    fs::create_dir_all(folder.join("tmp/inbox")).map_err(|e| e.to_string())?;
    let mut server = srd(&["serve", "--once", "--dir", "/tmp/inbox", "--port-base", PORT_BASE])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| format!("cannot start a server: {e}"))?;
    // Its first line says that it serves.
    let mut first = String::new();
    let stdout = server.stdout.take().ok_or("the server has no output")?;
    let mut lines = BufReader::new(stdout);
    let read = lines.read_line(&mut first).map_err(|e| e.to_string());
    let line = ["cp", "--port-base", PORT_BASE, "/tmp/from", "127.0.0.1:to"];
    let copied = read.and_then(|_| all_of(&mut srd(&line)));
    if copied.is_err() {
        // Otherwise it ends by itself.
        let _ = server.kill();
    }
    let mut rest = String::new();
    while lines.read_line(&mut rest).is_ok_and(|n| n > 0) {}
    server.wait().map_err(|e| e.to_string())?;
    copied?;
    let to = fs::read_to_string(folder.join("tmp/inbox/to")).map_err(|e| e.to_string())?;
    expect(to == content, "the copied file differs")?;
    for path in ["tmp/from", "tmp/inbox/to"] {
        fs::remove_file(folder.join(path)).map_err(|e| format!("{path}: {e}"))?;
    }
    Ok(())
}

/// The packages of [`BASE`], and the one that libgcc-s1 needs, whose name has GCC's version.
fn base_packages() -> Result<Vec<String>> {
    let line = ["--show", "--showformat=${Depends}", "libgcc-s1"];
    let needs = output(&mut command("dpkg-query", &line))?;
    let names = needs.split([',', ' ']).filter(|name| name.ends_with("-base"));
    Ok(BASE.into_iter().chain(names).map(str::to_owned).collect())
}

/// A root with these packages, as installed on this machine, for dpkg and the loader.
fn base_system(folder: &Path) -> Result {
    let fail = |e: std::io::Error| format!("{}: {e}", folder.display());
    for name in ["lib", "lib64", "bin", "sbin"] {
        fs::create_dir_all(folder.join("usr").join(name)).map_err(fail)?;
        symlink(format!("usr/{name}"), folder.join(name)).map_err(fail)?;
    }
    for name in
        ["proc", "dev", "tmp", "var/lib/dpkg/info", "var/lib/dpkg/updates", "var/lib/dpkg/triggers"]
    {
        fs::create_dir_all(folder.join(name)).map_err(fail)?;
    }
    let mut status = String::new();
    for package in base_packages()? {
        status.push_str(&output(&mut command("dpkg-query", &["--status", &package]))?);
        status.push('\n');
        let files = output(&mut command("dpkg-query", &["--listfiles", &package]))?;
        let list = folder.join(format!("var/lib/dpkg/info/{package}.list"));
        fs::write(list, &files).map_err(fail)?;
        for file in files.lines().map(Path::new).filter(|f| !f.is_dir() && f.exists()) {
            let to = folder.join(file.strip_prefix("/").unwrap_or(file));
            fs::create_dir_all(to.parent().unwrap_or(folder)).map_err(fail)?;
            run_quietly(command("cp", &["-P", "--preserve=mode"]).arg(file).arg(&to))?;
        }
    }
    fs::write(folder.join("var/lib/dpkg/status"), status).map_err(fail)
}

/// A command in the root.
fn inside(folder: &Path, line: &str) -> Command {
    let root = folder.display();
    let script = format!(
        "mount --rbind /proc {root}/proc; mount --rbind /dev {root}/dev; exec chroot {root} {line}"
    );
    let mut c = command("unshare", &["-r", "-m", "sh", "-ec", &script]);
    c.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    c
}

/// Compiles the C example as pkg-config says.
fn example(pkg_config: &Path, program: &Path) -> Result<PathBuf> {
    let mut c = command("pkg-config", &["--cflags", "--libs", "srd"]);
    let flags = output(c.env("PKG_CONFIG_LIBDIR", pkg_config))?;
    let mut cc = command("cc", &[]);
    cc.arg(root().join("bindings/c/examples/pingpong.c")).args(flags.split_whitespace());
    run(cc.arg("-o").arg(program))?;
    Ok(program.to_path_buf())
}

/// Requires that `srd --version` names version and commit; returns what it says.
pub fn version_of(c: &mut Command) -> Result<String> {
    let said = all_of(c)?;
    let wanted = format!("srd {VERSION} (commit ");
    expect(said.starts_with(&wanted), &format!("`srd --version` says {said}"))?;
    Ok(said)
}

/// Output and errors of a program that must succeed.
pub fn all_of(c: &mut Command) -> Result<String> {
    let shown = format!("{c:?}");
    let out = c.output().map_err(|e| format!("cannot start {shown}: {e}"))?;
    let mut text = String::from_utf8_lossy(&out.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&out.stderr));
    if out.status.success() { Ok(text) } else { Err(format!("{shown}: {}\n{text}", out.status)) }
}

fn run_quietly(c: &mut Command) -> Result {
    output(c).map(|_| ())
}

pub fn expect(holds: bool, otherwise: &str) -> Result {
    if holds { Ok(()) } else { Err(otherwise.to_owned()) }
}

fn put(file: &Path, content: &str) -> Result {
    let fail = |e| format!("{}: {e}", file.display());
    fs::create_dir_all(file.parent().unwrap_or(file)).map_err(fail)?;
    fs::write(file, content).map_err(fail)
}

pub fn text(path: &Path) -> String {
    path.display().to_string()
}
