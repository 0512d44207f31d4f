//! The documents agree with the code: the map of published claims, and the manual.

use srd_lab::spec::{SpecFile, embedded};
use srd_lab::{jobs_of, run_all};
use std::path::{Path, PathBuf};

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

/// Rows of the tables: cells of each, without the head.
fn rows(text: &str) -> Vec<Vec<&str>> {
    let row = |l: &'_ str| l.starts_with("| ") && !l.starts_with("| |");
    text.lines()
        .filter(|l| row(l))
        .map(|l| l.trim_matches('|').split(" | ").map(str::trim).collect())
        .collect()
}

/// Every `[text](target)` of a cell.
fn links(cell: &str) -> Vec<(&str, &str)> {
    let parts = cell.split('[').skip(1);
    parts
        .filter_map(|part| {
            let (text, rest) = part.split_once("](")?;
            Some((text.trim_matches('`'), rest.split_once(')')?.0))
        })
        .collect()
}

#[test]
fn every_row_has_a_number_and_a_status_and_what_it_needs() {
    let text = std::fs::read_to_string(docs().join("paper-map.md")).unwrap();
    let rows = rows(&text);
    assert!(rows.len() > 80, "{} rows", rows.len());
    for source in ["P", "S", "Z", "C"] {
        let numbers: Vec<&str> =
            rows.iter().map(|r| r[0]).filter(|n| n.starts_with(source)).collect();
        let want: Vec<String> = (1..=numbers.len()).map(|n| format!("{source}{n}")).collect();
        assert_eq!(numbers, want);
    }
    for row in &rows {
        assert_eq!(row.len(), 6, "{row:?}");
        let (status, place, test, ours) = (row[2], row[3], row[4], row[5]);
        match status {
            // The claim must be verifiable.
            "holds" => assert!(place != "–" && (test != "–" || ours.contains("`srd ")), "{row:?}"),
            "in part" | "differs" | "not public: our choice" => {
                assert!(place != "–" && ours != "–", "say how: {row:?}");
            }
            "planned" | "not ours" => assert!(place != "–" || ours != "–", "say why: {row:?}"),
            other => panic!("the status {other} is none: {row:?}"),
        }
    }
}

#[test]
fn the_spec_in_the_manual_can_be_run() {
    let text = std::fs::read_to_string(docs().join("lab.md")).unwrap();
    let block = text.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
    let file = SpecFile::parse(block, Path::new("."), true).unwrap();
    let names: Vec<&str> = file.cases.iter().map(|c| c.case.as_str()).collect();
    assert_eq!(names.len(), 4);
    assert_eq!(names[3], "a spine is a black hole, TCP");
    let mut jobs = jobs_of(&file, None);
    assert_eq!(jobs.len(), 4, "one seed with --quick");
    for job in &mut jobs {
        job.spec.workload.bytes = 20_000;
    }
    let results = run_all(&jobs, 2, &|_| ()).unwrap();
    assert!(results.iter().all(|r| r.unfinished() == 0));
}

#[test]
fn every_file_test_and_experiment_of_the_map_exists() {
    let text = std::fs::read_to_string(docs().join("paper-map.md")).unwrap();
    let mut tests = 0;
    for row in rows(&text) {
        for (name, target) in links(row[3]).into_iter().chain(links(row[4])) {
            let path = docs().join(target.split('#').next().unwrap());
            let file = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{target}: {e}"));
            if row[4].contains(&format!("[`{name}`]")) {
                assert!(file.contains(&format!("fn {name}()")), "{target} has no test {name}");
                tests += 1;
            }
        }
        for command in row[5].split("`srd lab run ").skip(1) {
            let name = command.split(['`', ' ']).next().unwrap();
            assert!(embedded(name).is_some(), "there is no experiment {name}: {row:?}");
        }
    }
    assert!(tests > 60, "{tests} tests named");
}
