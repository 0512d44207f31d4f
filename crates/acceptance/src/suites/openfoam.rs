//! OpenFOAM's motorBike over SRD and over Open MPI's TCP in turns, on a reduced mesh. Both must
//! print the same residuals.

use super::cases::{expect_end_over, through};
use super::fabric::{Fabric, Said};
use super::share;
use crate::process::{command, output};
use crate::{Result, mpi::stage::Transport};
use std::{fs, path::Path, path::PathBuf, thread::sleep, time::Duration};

/// Where the packages `openfoam` and `openfoam-examples` install what is used here.
const PROJECT: &str = "/usr/share/openfoam";
const EXAMPLES: &str = "/usr/share/doc/openfoam-examples/examples";
/// Steps of the solver; each prints six residuals.
const STEPS: usize = 20;
const RESIDUALS: usize = 6 * STEPS;
/// Time limit of a run in seconds.
const LIMIT_S: u32 = 300;
/// Least payload of a run in MB that the device must have counted.
const MB_MIN: f64 = 10.0;

/// Changes of the tutorial that reduce the mesh from some 350,000 cells to some 30,000: file, text
/// and replacement.
const MESH: [(&str, &str, &str); 4] = [
    ("system/snappyHexMeshDict", "addLayers       true;", "addLayers       false;"),
    ("system/snappyHexMeshDict", "level 6;", "level 4;"),
    ("system/snappyHexMeshDict", "level (5 6);", "level (3 4);"),
    ("system/snappyHexMeshDict", "levels ((1E15 4));", "levels ((1E15 3));"),
];

/// One run.
struct Ran {
    residuals: Vec<String>,
    share: share::Share,
    said: Said,
}

/// Runs the solver over TCP and over SRD, twice in turns; `faults`: whether each spine in turn is
/// dead for a second meanwhile. Returns a remark for the table.
///
/// # Errors
/// A run fails, or the residuals differ.
pub fn run(f: &Fabric, hosts: u32, faults: bool) -> Result<String> {
    let case = prepared(f.folder(), hosts)?;
    let library = share::library(f)?;
    let mut runs: Vec<(Transport, Ran)> = Vec::new();
    for over in [Transport::TcpBtl, Transport::Srd, Transport::TcpBtl, Transport::Srd] {
        runs.push((over, solved(f, over, hosts, &case, &library, faults)?));
    }
    for (over, ran) in &runs {
        let (name, n) = (over.name(), ran.residuals.len());
        if n != RESIDUALS {
            return Err(format!("{name}: {n} residuals, not {RESIDUALS}"));
        }
        let differ = ran.residuals.iter().zip(&runs[0].1.residuals).filter(|(a, b)| a != b);
        let differ = differ.count();
        if differ > 0 {
            return Err(format!(
                "{name}: {differ} of {RESIDUALS} residuals are not the first run's"
            ));
        }
    }
    let of = |over: Transport| runs.iter().filter(move |(o, _)| *o == over).map(|(_, r)| r);
    let shares = |over| of(over).map(|r| r.share).collect::<Vec<_>>();
    for ran in of(Transport::Srd) {
        share::bytes_check(&ran.said, MB_MIN)?;
    }
    let last = of(Transport::Srd).next_back().ok_or("no run over SRD")?;
    Ok(format!(
        "{RESIDUALS} of {RESIDUALS} residuals as over TCP; {}; {}",
        share::compare(&shares(Transport::Srd), &shares(Transport::TcpBtl)),
        through(&last.said)?
    ))
}

fn solved(
    f: &Fabric,
    over: Transport,
    hosts: u32,
    case: &Path,
    library: &Path,
    faults: bool,
) -> Result<Ran> {
    let line = format!(
        "env WM_PROJECT_DIR={PROJECT} LD_PRELOAD={} simpleFoam -parallel -case {}",
        library.display(),
        case.display()
    );
    let said = std::thread::scope(|s| {
        let running = s.spawn(|| f.mpi_spread(over, LIMIT_S, hosts, &line));
        let mut breaking = Vec::new();
        if faults {
            for (spine, after_ms) in [(0, 4_000), (1, 3_000)] {
                sleep(Duration::from_millis(after_ms));
                breaking.push(f.fail(&format!("spine --blackhole --for 1s {spine}"))?);
            }
        }
        let said = running.join().map_err(|_| "the run's thread ended early".to_string())??;
        for mut child in breaking {
            child.wait().map_err(|e| format!("breaking the fabric: {e}"))?;
        }
        Ok::<Said, String>(said)
    });
    if faults {
        f.heal()?;
    }
    let said = said?;
    expect_end_over(over, &said)?;
    let residuals = said.text.lines().filter(|l| l.contains("Initial residual = "));
    let residuals = residuals.map(str::to_owned).collect();
    Ok(Ran { residuals, share: share::Share::of(&said)?, said })
}

/// The case with its mesh, divided among the ranks. The mesh is made once and kept.
fn prepared(folder: &Path, ranks: u32) -> Result<PathBuf> {
    let mesh = folder.join("motorBike");
    if !mesh.join("meshed").exists() {
        meshed(&mesh)?;
    }
    let case = folder.join(format!("motorBike-{ranks}"));
    let _ = fs::remove_dir_all(&case);
    copied(&mesh, &case)?;
    let dictionary = format!(
        "FoamFile {{ version 2.0; format ascii; class dictionary; object decomposeParDict; }}\n\
         numberOfSubdomains {ranks};\nmethod hierarchical;\ncoeffs {{ n ({ranks} 1 1); }}\n"
    );
    written(&case.join("system/decomposeParDict"), &dictionary)?;
    foam(&case, "decomposePar")?;
    Ok(case)
}

fn meshed(mesh: &Path) -> Result {
    let _ = fs::remove_dir_all(mesh);
    let tutorial = Path::new(EXAMPLES).join("incompressible/simpleFoam/motorBike");
    if !tutorial.exists() {
        return Err(format!("{} is missing: install openfoam-examples", tutorial.display()));
    }
    copied(&tutorial, mesh)?;
    copied(&mesh.join("0.orig"), &mesh.join("0"))?;
    let surface = Path::new(EXAMPLES).join("resources/geometry/motorBike.obj.gz");
    let place = mesh.join("constant/triSurface/motorBike.obj.gz");
    fs::copy(&surface, place).map_err(|e| format!("{}: {e}", surface.display()))?;
    // Debian compresses larger files of examples.
    if mesh.join("system/snappyHexMeshDict.gz").exists() {
        let mut c = command("gunzip", &["system/snappyHexMeshDict.gz"]);
        output(c.current_dir(mesh))?;
    }
    for (file, old, new) in MESH {
        let path = mesh.join(file);
        let text = read(&path)?;
        if !text.contains(old) {
            return Err(format!("{} has no `{old}`: another version?", path.display()));
        }
        written(&path, &text.replacen(old, new, 1))?;
    }
    // Without the tutorial's functions, which write files; they stand at the end.
    let control = mesh.join("system/controlDict");
    let text = read(&control)?;
    let text = text.split("functions").next().unwrap_or_default();
    let number = text.split("endTime ").last().and_then(|t| t.split(';').next());
    let number = number.map(str::trim).ok_or("controlDict has no endTime")?;
    let end = format!("{number};");
    written(&control, &text.replacen(&end, &format!("{STEPS};"), 1))?;
    for program in ["surfaceFeatureExtract", "blockMesh", "snappyHexMesh -overwrite"] {
        foam(mesh, program)?;
    }
    written(&mesh.join("meshed"), "")
}

/// Runs one of OpenFOAM's programs, alone, in a case.
fn foam(case: &Path, line: &str) -> Result {
    let mut words = line.split(' ');
    let mut c = command(words.next().unwrap_or_default(), &[]);
    c.args(words).current_dir(case).env("WM_PROJECT_DIR", PROJECT);
    output(&mut c).map(|_| ())
}

fn copied(from: &Path, to: &Path) -> Result {
    let (from, to) = (from.display().to_string(), to.display().to_string());
    output(&mut command("cp", &["-r", &from, &to])).map(|_| ())
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))
}

fn written(path: &Path, text: &str) -> Result {
    fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()))
}
