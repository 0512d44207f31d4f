//! rdma-core's own tests: the suite of pyverbs, from a built source tree given on the command line.
//! Its code is not part of this repository.

use super::{
    fabric::Fabric,
    suite::{End, Row, quoted},
};
use crate::{Result, process::root};
use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

/// Time limit of one test in seconds.
const TEST_SECONDS_MAX: u32 = 60;
/// Time limit of all tests in seconds.
const SUITE_SECONDS_MAX: u32 = 900;
/// Words in the names of modules for other hardware or for the kernel's connection manager.
const FOREIGN: [&str; 3] = ["mlx5", "cuda", "rdmacm"];

/// A source tree of rdma-core with built pyverbs.
pub struct Pyverbs {
    source: PathBuf,
    modules: Vec<String>,
}

impl Pyverbs {
    /// Checks whether the source tree is complete.
    ///
    /// # Errors
    /// The folder is not a source tree, or pyverbs is not built.
    pub fn at(source: &Path) -> Result<Self> {
        let source = fs::canonicalize(source).map_err(|e| format!("{}: {e}", source.display()))?;
        let shown = source.display().to_string();
        if !source.join("tests/test_efa_srd.py").is_file() {
            return Err(format!("--pyverbs-src: {shown} is not a source tree of rdma-core"));
        }
        if !source.join("build/python/pyverbs").is_dir() {
            return Err(format!(
                "--pyverbs-src: pyverbs is not built; with cython installed, in {shown}: \
                 mkdir -p build && cd build && cmake -GNinja -DIN_PLACE=1 -DNO_MAN_PAGES=1 .. && \
                 ninja"
            ));
        }
        let listed = fs::read_dir(source.join("tests")).map_err(|e| format!("{shown}: {e}"))?;
        let names = listed.filter_map(|e| e.ok()?.file_name().into_string().ok());
        let module = |name: String| Some(name.strip_suffix(".py")?.to_owned());
        let mut modules: Vec<String> = names.filter_map(module).filter(|n| wanted(n)).collect();
        modules.sort();
        Ok(Self { source, modules })
    }

    /// Version given in the source tree.
    pub fn version(&self) -> String {
        let text = fs::read_to_string(self.source.join("CMakeLists.txt")).unwrap_or_default();
        let version = text.lines().find_map(|l| l.trim().strip_prefix("set(PACKAGE_VERSION \""));
        format!("rdma-core {}", version.and_then(|v| v.split('"').next()).unwrap_or("?"))
    }

    /// Runs all tests on one host; both sides of a test run in its process.
    ///
    /// # Errors
    /// The tests cannot be started, or none ran.
    pub fn run(&self, f: &Fabric) -> Result<Vec<Row>> {
        let tools = stand_ins(f.folder())?;
        let runner = root().join("bindings/ibverbs/tests/programs/pyverbs_run.py");
        let text = |path: &Path| quoted(&path.display().to_string());
        let mut rows: Vec<Row> = Vec::new();
        loop {
            let program = format!(
                "python3 {} {} {} {} {TEST_SECONDS_MAX} --dev srd0",
                text(&runner),
                text(&self.source),
                self.modules.join(","),
                rows.len(),
            );
            let line = format!(
                "env PATH={}:\"$PATH\" PYTHONPATH={} {}",
                text(&tools),
                text(&self.source.join("build/python")),
                f.under("--allow-fallback", &program)
            );
            let said = f.plain("h0x0", SUITE_SECONDS_MAX, &line)?;
            let before = rows.len();
            let ended = collect(&said.text, &mut rows);
            if ended {
                return Ok(rows);
            }
            if rows.len() == before {
                return Err(format!("pyverbs' tests do not start, {}", said.tail()));
            }
        }
    }
}

fn wanted(module: &str) -> bool {
    module.starts_with("test_") && !FOREIGN.iter().any(|word| module.contains(word))
}

/// The suite runs the tool `rdma` to map devices to network interfaces, which fails without kernel
/// RDMA. This writes a replacement that lists no devices.
fn stand_ins(folder: &Path) -> Result<PathBuf> {
    let tools = folder.join("stand-ins");
    let rdma = tools.join("rdma");
    let fail = |e| format!("{}: {e}", rdma.display());
    fs::create_dir_all(&tools).map_err(fail)?;
    fs::write(&rdma, "#!/bin/sh\necho '[]'\n").map_err(fail)?;
    fs::set_permissions(&rdma, fs::Permissions::from_mode(0o755)).map_err(fail)?;
    Ok(tools)
}

/// Parses the runner's lines; returns whether the runner reached its end. A test that began and did
/// not end has terminated the process.
fn collect(text: &str, rows: &mut Vec<Row>) -> bool {
    let mut running: Option<&str> = None;
    for line in text.lines().filter_map(|l| l.strip_prefix("conformance\t")) {
        let mut fields = line.splitn(3, '\t');
        let (word, name) = (fields.next().unwrap_or(""), fields.next().unwrap_or(""));
        let end = match word {
            "begin" => {
                running = Some(name);
                continue;
            }
            "end" => return true,
            "pass" => End::Pass,
            "skip" => End::Skip,
            _ => End::Fail,
        };
        running = None;
        rows.push(row(name, end, fields.next().unwrap_or("")));
    }
    if let Some(name) = running {
        rows.push(row(name, End::Fail, "ended the process, or took too long"));
    }
    false
}

fn row(name: &str, end: End, said: &str) -> Row {
    let name = name.strip_prefix("tests.").unwrap_or(name).to_owned();
    Row { name, end, beside: None, said: said.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_that_ends_the_process_has_failed() {
        let text = "noise\nconformance\tbegin\ttests.a\t\nconformance\tskip\ttests.a\tno gpu\n\
                    conformance\tbegin\ttests.b\t\n";
        let mut rows = Vec::new();
        assert!(!collect(text, &mut rows));
        assert_eq!((rows.len(), rows[0].end, rows[1].end), (2, End::Skip, End::Fail));
        assert_eq!((rows[0].name.as_str(), rows[0].said.as_str()), ("a", "no gpu"));
        assert!(collect("conformance\tend\tm\t\n", &mut rows));
        assert_eq!(rows.len(), 2);
    }

    #[test]
    fn modules_for_other_hardware_are_left_out() {
        assert!(wanted("test_qpex") && wanted("test_efadv"));
        assert!(!wanted("test_mlx5_dr") && !wanted("utils") && !wanted("test_rdmacm"));
    }
}
