//! The manual names every field that the parser of specs knows, and no others.

use srd_core::guards::Guard;
use srd_lab::spec::SpecFile;
use std::collections::BTreeSet;
use std::path::Path;

type Names = BTreeSet<String>;

/// Names in backticks.
fn quoted(text: &str) -> Names {
    text.split('`').skip(1).step_by(2).map(String::from).collect()
}

/// Names that the parser expects in place of an unknown one; `line` is the spec's line that has it.
fn expected(line: &str) -> Names {
    let text = format!(
        "name = \"test\"\ntitle = \"test\"\nnetwork.shape = \"back-to-back\"\n\
         workload.pattern = \"permutation\"\n{line}\n"
    );
    let error = SpecFile::parse(&text, Path::new("."), false).expect_err(line);
    let (_, names) = error.split_once("`zz`, expected ").unwrap_or_else(|| panic!("{error}"));
    quoted(names.split(" in `").next().unwrap())
}

fn manual() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/lab.md");
    std::fs::read_to_string(path).unwrap()
}

/// Cells of the table rows of a section, without its head.
fn rows(heading: &str) -> Vec<Vec<String>> {
    let text = manual();
    let (_, section) = text.split_once(&format!("\n### {heading}\n")).expect(heading);
    let section = section.split("\n#").next().unwrap();
    let rows = section.lines().filter(|l| l.starts_with("| `"));
    rows.map(|l| l.trim_matches('|').split(" | ").map(String::from).collect()).collect()
}

#[test]
fn every_field_of_the_parser_is_in_the_manual_and_no_other() {
    for (heading, line) in [
        ("The experiment and its cases", "zz = 1"),
        ("`network`", "network.zz = 1"),
        ("`workload`", "workload.zz = 1"),
        ("`workload.poisson`", "workload.poisson.zz = 1"),
        ("`engine`", "engine.zz = 1"),
        ("`tcp`", "tcp.zz = 1"),
        ("`rc`", "rc.zz = 1"),
        ("`ue`", "ue.zz = 1"),
        ("`measure`", "measure.zz = 1"),
        ("`goal`", "goal = [{ zz = 1 }]"),
        ("`plot`", "plot = [{ zz = 1 }]"),
    ] {
        let documented: Names = rows(heading).iter().flat_map(|row| quoted(&row[0])).collect();
        assert_eq!(documented, expected(line), "left: docs/lab.md, {heading}; right: the parser");
    }
    for row in rows("`host`, `saa`, `copa`, `static`") {
        let table = row[0].trim().trim_matches('`');
        let fields = row[1].split(':').next().unwrap();
        assert_eq!(quoted(fields), expected(&format!("{table}.zz = 1")), "table {table}");
    }
}

#[test]
fn every_kind_of_fault_is_in_the_manual_with_its_fields() {
    let rows = rows("`fault`");
    let kinds: Names = rows.iter().flat_map(|row| quoted(&row[0])).collect();
    assert_eq!(kinds, expected("fault = [{ kind = \"zz\" }]"));
    for row in &rows {
        let kind = row[0].trim().trim_matches('`');
        let line = format!("fault = [{{ kind = \"{kind}\", zz = 1 }}]");
        assert_eq!(quoted(&row[1]), expected(&line), "kind {kind}");
    }
}

#[test]
fn every_guard_is_in_the_manual() {
    let text = manual();
    let (_, list) = text.split_once("gives its value:\n").unwrap();
    let list = list.split("\n\n").next().unwrap();
    let guards: Names = Guard::ALL.iter().map(|g| g.name().to_string()).collect();
    assert_eq!(quoted(list), guards);
}
