//! The manifests of `docs/clusters`: validated by the schemas of Kubernetes, and the commands of
//! their init containers run in a folder.

use super::fabric::Fabric;
use crate::{
    Result,
    process::{command, output, root},
};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// The validator, with the schemas of many versions, on PyPI.
const PACKAGE: &str = "kubernetes-validate==1.37.0";
/// Versions of Kubernetes: an old one that is still in use, and the newest one of the package.
const VERSIONS: [&str; 2] = ["1.28", "1.37"];
/// Manifests in the file.
const MANIFESTS: usize = 3;
/// Prints the commands of all init containers, separated by zero bytes.
const COMMANDS: &str = "\
import sys, yaml
for d in yaml.safe_load_all(open(sys.argv[1])):
    spec = d['spec'].get('template', d)['spec']
    for c in spec.get('initContainers', []):
        assert c['command'][:2] == ['sh', '-ec'] and len(c['command']) == 3, c
        print(c['command'][2], end='\\0')
";

/// A virtual environment with the validator.
///
/// # Errors
/// It cannot be made; the text says why.
pub fn environment(folder: &Path) -> Result<PathBuf> {
    let place = folder.join("kubernetes");
    let bin = place.join("bin");
    let pip = bin.join("pip").display().to_string();
    if !bin.join("kubernetes-validate").exists() {
        let why = |e: String| {
            let line = e.lines().last().unwrap_or_default().to_owned();
            let how = "needs PyPI, and `sh scripts/apt-ensure python3-venv`";
            format!("{PACKAGE} cannot be installed ({how}): {line}")
        };
        output(command("python3", &["-m", "venv"]).arg(&place)).map_err(why)?;
        output(&mut command(&pip, &["install", "--quiet", PACKAGE])).map_err(why)?;
    }
    Ok(bin)
}

/// Validates the manifests, and copies the files as they do.
///
/// # Errors
/// A manifest is invalid, a wrong one is not refused, or a command copies other files.
pub fn run(fabric: &Fabric, bin: &Path) -> Result<String> {
    let manifests = root().join("docs/clusters/kubernetes.yaml");
    let validator = bin.join("kubernetes-validate").display().to_string();
    let validate = |version: &str, file: &Path| {
        output(command(&validator, &["--strict", "--quiet", "-k", version]).arg(file))
    };
    let read =
        |path: &Path| fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()));
    let text = read(&manifests)?;
    let count = text.lines().filter(|line| line.starts_with("kind: ")).count();
    if count != MANIFESTS {
        return Err(format!("{count} manifests instead of {MANIFESTS}"));
    }
    // A validator that refuses nothing would say nothing.
    let wrong = fabric.folder().join("wrong.yaml");
    let broken = text.replace("hostPath: {path:", "hostPath: {pathname:");
    fs::write(&wrong, &broken).map_err(|e| format!("{}: {e}", wrong.display()))?;
    for version in VERSIONS {
        validate(version, &manifests)?;
        if broken == text || validate(version, &wrong).is_ok() {
            return Err(format!("a wrong manifest passes the schema of {version}"));
        }
    }
    let python = bin.join("python3").display().to_string();
    let commands = output(command(&python, &["-c", COMMANDS]).arg(&manifests))?;
    let commands: Vec<&str> = commands.split('\0').filter(|c| !c.is_empty()).collect();
    for command in &commands {
        copied(fabric, command)?;
    }
    let versions = VERSIONS.join(" and ");
    Ok(format!("{MANIFESTS} manifests by the schemas of {versions}; {} copies", commands.len()))
}

/// Runs the command of an init container twice on the files of this tool, and runs the copy.
fn copied(fabric: &Fabric, script: &str) -> Result {
    let base = fabric.folder().join("kubernetes-files");
    let _ = fs::remove_dir_all(&base);
    let (image, node) = (base.join("image"), base.join("srd"));
    let fail = |e: std::io::Error| format!("{}: {e}", base.display());
    let (tool, verbs) = fabric.installed_in();
    for folder in ["image/usr/bin", "image/usr/lib/srd", "srd"] {
        fs::create_dir_all(base.join(folder)).map_err(fail)?;
    }
    std::os::unix::fs::symlink(tool.join("srd"), image.join("usr/bin/srd")).map_err(fail)?;
    for entry in fs::read_dir(verbs).map_err(fail)? {
        let path = entry.map_err(fail)?.path();
        let name = path.file_name().unwrap_or_default();
        fs::copy(&path, image.join("usr/lib/srd").join(name)).map_err(fail)?;
    }
    // In the container these are the paths themselves.
    let (image, node) = (image.display().to_string(), node.display().to_string());
    let script = script.replace("/usr/", &format!("{image}/usr/")).replace("/opt/srd", &node);
    // The DaemonSet's pods start again; an `emptyDir` is new.
    let runs = if script.contains("old-") { 2 } else { 1 };
    for _ in 0..runs {
        output(&mut command("sh", &["-ec", &script]))?;
    }
    let tool = format!("{node}/bin/srd");
    let env = output(command(&tool, &["env"]).env_remove("SRD_VERBS_DIR"))?;
    let wanted = format!("export LD_LIBRARY_PATH='{node}/lib/srd");
    if env.lines().any(|line| line.starts_with(&wanted)) {
        fs::remove_dir_all(&base).map_err(fail)
    } else {
        Err(format!("the copied tool does not find the copied libraries: {env}"))
    }
}
