//! Suites of many tests: expected results, actual results, and tables of both.

use super::{fabric::Fabric, fabtests::Fabtests, pyverbs::Pyverbs};
use crate::{Result, args::Args, process::root};
use std::{
    fmt::{self, Write as _},
    fs,
    path::{Path, PathBuf},
};

/// Document with the tables of the suites.
const DOCUMENT: &str = "docs/conformance.md";
/// Folder with the lists of expected results.
const EXPECTED: &str = "bindings/ibverbs/tests/expected";

/// Paths of suites from outside.
#[derive(Default)]
pub struct Paths {
    pyverbs: Option<PathBuf>,
    fabtests: Option<PathBuf>,
}

impl Paths {
    /// Takes `--pyverbs-src DIR` and `--fabtests-bin DIR`.
    pub fn take(args: &mut Args) -> Result<Self> {
        let pyverbs = args.value("--pyverbs-src")?;
        Ok(Self { pyverbs, fabtests: args.value("--fabtests-bin")? })
    }

    /// Opens the suites whose paths were given.
    pub fn open(&self) -> Result<Suites> {
        let pyverbs = self.pyverbs.as_deref().map(Pyverbs::at).transpose()?;
        Ok(Suites { pyverbs, fabtests: self.fabtests.as_deref().map(Fabtests::at).transpose()? })
    }
}

/// The available suites.
pub struct Suites {
    pyverbs: Option<Pyverbs>,
    fabtests: Option<Fabtests>,
}

impl Suites {
    /// Runs the selected suites, and prints which are not available. Returns the number of tests
    /// with an unexpected result.
    ///
    /// # Errors
    /// A suite cannot be run, or a list or document cannot be read or written.
    pub fn run(&self, f: &Fabric, only: Option<&str>, update: bool) -> Result<usize> {
        let wanted = |name: &str| only.is_none_or(|word| name.contains(word));
        let mut unexpected = 0;
        if wanted("pyverbs") {
            unexpected += match &self.pyverbs {
                Some(suite) => judge("pyverbs", &suite.version(), &suite.run(f)?, update)?,
                None => missing("pyverbs", "--pyverbs-src DIR (a built source tree of rdma-core)"),
            };
        }
        if wanted("fabtests") {
            unexpected += match &self.fabtests {
                Some(suite) => judge("fabtests", &suite.version(), &suite.run(f)?, update)?,
                None => missing("fabtests", "--fabtests-bin DIR (libfabric's built tests)"),
            };
        }
        Ok(unexpected)
    }
}

fn missing(name: &str, option: &str) -> usize {
    println!("SKIPPED: ALL TESTS OF {}: use {option}", name.to_uppercase());
    0
}

/// Compares the results with the expected ones; with `update`, writes the table.
fn judge(name: &str, version: &str, rows: &[Row], update: bool) -> Result<usize> {
    let expected = Expected::read(&root().join(EXPECTED).join(format!("{name}.txt")))?;
    println!("{name} of {version}: {}", counts(rows));
    if update {
        let table = format!("{version}: {}.\n\n{}", counts(rows), expected.table(rows));
        super::replace(
            DOCUMENT,
            &format!("<!-- {name}: made by `cargo xtask acceptance` -->"),
            &table,
        )?;
    }
    let differences = expected.differences(rows);
    for line in &differences {
        println!("NOT AS EXPECTED: {line}");
    }
    Ok(differences.len())
}

/// Result of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Pass,
    Fail,
    /// The test reports that it does not apply.
    Skip,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pass => "pass",
            Self::Fail => "fail",
            Self::Skip => "skip",
        })
    }
}

/// One executed test.
pub struct Row {
    pub name: String,
    pub end: End,
    /// Result on libfabric's tcp provider, if the test ran there.
    pub beside: Option<End>,
    /// Text of the test about a failure or a skip.
    pub said: String,
}

/// Tests that are not expected to pass, with the evidence.
struct Expected(Vec<Line>);

struct Line {
    /// `None` accepts any result.
    end: Option<End>,
    /// Name of a test; with a trailing `*`, a prefix of names.
    name: String,
    evidence: String,
}

impl Line {
    fn covers(&self, name: &str) -> bool {
        match self.name.strip_suffix('*') {
            Some(start) => name.starts_with(start),
            None => self.name == name,
        }
    }
}

impl Expected {
    /// Reads a list: `fail`, `skip` or `any`, the test's name, ` | `, the evidence; `#` begins a
    /// comment.
    ///
    /// # Errors
    /// A line is malformed, or lacks the evidence.
    fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
        Self::parse(&text).map_err(|line| {
            format!("{}: `{line}` is not `fail/skip/any NAME | EVIDENCE`", path.display())
        })
    }

    fn parse(text: &str) -> std::result::Result<Self, String> {
        let lines = text.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#'));
        let parse = |line: &str| {
            let (what, evidence) = line.split_once(" | ")?;
            let (word, name) = what.trim().split_once(' ')?;
            let end = match word {
                "fail" => Some(End::Fail),
                "skip" => Some(End::Skip),
                "any" => None,
                _ => return None,
            };
            let (name, evidence) = (name.trim().to_owned(), evidence.trim().to_owned());
            (!evidence.is_empty()).then_some(Line { end, name, evidence })
        };
        let all = lines.map(|line| parse(line).ok_or_else(|| line.to_owned()));
        all.collect::<std::result::Result<_, _>>().map(Self)
    }

    /// The first line that matches a test.
    fn line(&self, name: &str) -> Option<&Line> {
        self.0.iter().find(|l| l.covers(name))
    }

    /// Differences: tests with another result, and lines that match no test.
    fn differences(&self, rows: &[Row]) -> Vec<String> {
        let wrong = rows.iter().filter_map(|row| {
            let wanted = self.line(&row.name).map_or(Some(End::Pass), |l| l.end)?;
            let said = if row.said.is_empty() { String::new() } else { format!(": {}", row.said) };
            (row.end != wanted).then(|| format!("{}: {}, not {wanted}{said}", row.name, row.end))
        });
        let used = |line: &&Line| rows.iter().any(|r| line.covers(&r.name));
        let unused = self.0.iter().filter(|l| !used(l));
        wrong.chain(unused.map(|l| format!("{}: expected, but no such test ran", l.name))).collect()
    }

    /// The table: one line per test, but one line for all tests that a pattern skips.
    fn table(&self, rows: &[Row]) -> String {
        let beside = rows.iter().any(|r| r.beside.is_some());
        let mut table = String::from(if beside {
            "| test | SRD | tcp | evidence |\n|---|---|---|---|\n"
        } else {
            "| test | result | evidence |\n|---|---|---|\n"
        });
        let mut groups: Vec<&Line> = Vec::new();
        for row in rows {
            let line = self.line(&row.name).filter(|l| l.end.is_none_or(|end| end == row.end));
            let group = line.filter(|l| l.end == Some(End::Skip) && l.name.ends_with('*'));
            let mut name = row.name.clone();
            if let Some(line) = group {
                if groups.iter().any(|g| std::ptr::eq(*g, line)) {
                    continue;
                }
                groups.push(line);
                let same = |r: &&Row| self.line(&r.name).is_some_and(|l| std::ptr::eq(l, line));
                let n = rows.iter().filter(same).filter(|r| r.end == row.end).count();
                name = format!("{} ({n} tests)", line.name.trim_end_matches('*'));
            }
            let evidence = match (line, row.end) {
                (Some(line), _) => line.evidence.as_str(),
                (None, End::Pass) => "",
                (None, _) => row.said.as_str(),
            };
            let evidence = evidence.replace('|', "/");
            let _ = match (beside, row.beside) {
                (false, _) => writeln!(table, "| {name} | {} | {evidence} |", row.end),
                (true, None) => writeln!(table, "| {name} | {} | – | {evidence} |", row.end),
                (true, Some(b)) => writeln!(table, "| {name} | {} | {b} | {evidence} |", row.end),
            };
        }
        table
    }
}

/// `12 passed, 3 failed, 4 skipped`.
fn counts(rows: &[Row]) -> String {
    let of = |end| rows.iter().filter(|r| r.end == end).count();
    format!("{} passed, {} failed, {} skipped", of(End::Pass), of(End::Fail), of(End::Skip))
}

/// Quotes a text as one word for a shell.
pub fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, end: End) -> Row {
        Row { name: name.into(), end, beside: None, said: "no".into() }
    }

    #[test]
    fn unexpected_results_and_unused_lines_are_reported() {
        let list = "# what\nfail a.one | upstream\nskip a.t* | EFA has none\nskip gone | why\n\
                    any c | chance decides\n";
        let expected = Expected::parse(list).unwrap();
        let rows = [
            row("a.one", End::Pass),
            row("a.two", End::Skip),
            row("b", End::Fail),
            row("c", End::Fail),
        ];
        let found = expected.differences(&rows);
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[0].contains("a.one: pass, not fail"), "{found:?}");
        assert!(found[1].contains("b: fail, not pass"), "{found:?}");
        assert!(found[2].contains("gone"), "{found:?}");
    }

    #[test]
    fn lines_without_evidence_are_refused() {
        assert!(Expected::parse("fail a | ").is_err());
        assert!(Expected::parse("fail a").is_err());
        assert!(Expected::parse("maybe a | b").is_err());
    }

    #[test]
    fn groups_that_are_skipped_make_one_line() {
        let expected = Expected::parse("skip a.t* | EFA has none").unwrap();
        let rows = [row("a.t1", End::Skip), row("a.t2", End::Skip), row("a.t3", End::Pass)];
        let table = expected.table(&rows);
        assert!(table.contains("| a.t (2 tests) | skip | EFA has none |"), "{table}");
        assert!(table.contains("| a.t3 | pass |  |"), "{table}");
        assert_eq!(table.lines().count(), 4);
    }

    #[test]
    fn words_survive_the_shell() {
        assert_eq!(quoted("a b"), "'a b'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
    }
}
