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
/// Files of manifests: how many each has, the first version of Kubernetes that they are for and the
/// newest one of the package, and a field with what makes it wrong.
const FILES: [(&str, usize, [&str; 2], [&str; 2]); 2] = [
    ("kubernetes.yaml", 3, ["1.28", "1.37"], ["hostPath: {path:", "hostPath: {pathname:"]),
    ("kubernetes-annotation.yaml", 2, ["1.36", "1.37"], ["patchType:", "patchKind:"]),
];
/// Prints the commands of all init containers, separated by zero bytes.
const COMMANDS: &str = "\
import sys, yaml
for d in yaml.safe_load_all(open(sys.argv[1])):
    spec = d['spec'].get('template', d)['spec']
    for c in spec.get('initContainers', []):
        assert c['command'][:2] == ['sh', '-ec'] and len(c['command']) == 3, c
        print(c['command'][2], end='\\0')
";

/// Prints the variables that the policy for annotated pods sets, NAME=VALUE, separated by zero
/// bytes. Its expression is a table in the form of JSON.
const VARIABLES: &str = "\
import json, sys, yaml
policy = next(yaml.safe_load_all(open(sys.argv[1])))
for name, value in json.loads(policy['spec']['variables'][0]['expression']).items():
    print(f'{name}={value}', end='\\0')
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
    let validator = bin.join("kubernetes-validate").display().to_string();
    let validate = |version: &str, file: &Path| {
        output(command(&validator, &["--strict", "--quiet", "-k", version]).arg(file))
    };
    let place = |name: &str| root().join("docs/clusters").join(name);
    let mut remark = String::new();
    for (name, manifests, versions, [field, wrong_field]) in FILES {
        let path = place(name);
        let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        let count = text.lines().filter(|line| line.starts_with("kind: ")).count();
        if count != manifests {
            return Err(format!("{name}: {count} manifests instead of {manifests}"));
        }
        // A validator that refuses nothing would say nothing.
        let wrong = fabric.folder().join("wrong.yaml");
        let broken = text.replace(field, wrong_field);
        fs::write(&wrong, &broken).map_err(|e| format!("{}: {e}", wrong.display()))?;
        for version in versions {
            validate(version, &path)?;
            if broken == text || validate(version, &wrong).is_ok() {
                return Err(format!("{name}: wrong, it passes the schema of {version}"));
            }
        }
        let versions = versions.join(" and ");
        remark += &format!("{manifests} manifests by the schemas of {versions}; ");
    }
    let python = bin.join("python3").display().to_string();
    let printed = |script: &str, name: &str| -> Result<Vec<String>> {
        let all = output(command(&python, &["-c", script]).arg(place(name)))?;
        Ok(all.split('\0').filter(|one| !one.is_empty()).map(str::to_owned).collect())
    };
    let commands = printed(COMMANDS, "kubernetes.yaml")?;
    let given = printed(VARIABLES, "kubernetes-annotation.yaml")?;
    for command in &commands {
        copied(fabric, command, &given)?;
    }
    Ok(format!("{remark}{} copies; {} variables", commands.len(), given.len()))
}

/// Runs the command of an init container twice on the files of this tool, and runs the copy. The
/// variables that it prints must be the given ones, of the folder in the container.
fn copied(fabric: &Fabric, script: &str, given: &[String]) -> Result {
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
    let mut env = command(&tool, &["env"]);
    for own in ["SRD_VERBS_DIR", "LD_LIBRARY_PATH", "LD_PRELOAD"] {
        env.env_remove(own);
    }
    let env = output(&mut env)?;
    same_variables(&env.replace(&node, "/opt/srd"), given)?;
    fs::remove_dir_all(&base).map_err(fail)
}

/// What `srd env` printed must be the given variables, but for Open MPI's lists of those that it
/// takes along to other hosts: each pod has its own.
fn same_variables(env: &str, given: &[String]) -> Result {
    let printed = env.lines().filter_map(|line| line.strip_prefix("export "));
    let mut printed: Vec<String> = printed
        .filter(|line| !line.starts_with("OMPI_MCA_mca_base_env_list"))
        .map(|line| line.replace('\'', ""))
        .collect();
    let mut given = given.to_vec();
    printed.sort();
    given.sort();
    if printed == given {
        return Ok(());
    }
    let differ = |a: &[String], b: &[String]| {
        a.iter().filter(|one| !b.contains(one)).cloned().collect::<Vec<_>>().join(" ")
    };
    Err(format!(
        "`srd env` of the copy prints {}, and the policy for pods has {}",
        differ(&printed, &given),
        differ(&given, &printed)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_of_the_policy_are_those_of_the_tool() {
        let env = "export LD_PRELOAD='/opt/srd/a.so'\nexport FI_PROVIDER='efa'\n\
                   export OMPI_MCA_mca_base_env_list_internal='A;B'\n";
        let given = ["FI_PROVIDER=efa", "LD_PRELOAD=/opt/srd/a.so"].map(str::to_owned);
        assert_eq!(same_variables(env, &given), Ok(()));
        let error = same_variables(env, &given[..1]).unwrap_err();
        assert!(error.contains("prints LD_PRELOAD=/opt/srd/a.so"), "{error}");
    }
}
