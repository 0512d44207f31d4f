//! Locations: names allowed in the root; and the guides' tables of packages and commands, which
//! must be complete and up to date.

use super::{Finding, settings::Settings, tree::Tree};
use std::collections::BTreeSet;

/// Documents with a table of all packages, by folder.
const GUIDES: [&str; 2] = ["ARCHITECTURE.md", "CONTRIBUTING.md"];
/// The document with a table of all commands.
const COMMANDS_GUIDE: &str = "CONTRIBUTING.md";
/// Folders whose subfolders are packages.
const ROOMS: [&str; 3] = ["crates/", "bindings/", "bench/"];

/// All rules of this module.
pub fn check(tree: &Tree, settings: &Settings, out: &mut Vec<Finding>) {
    check_root(tree, settings, out);
    for guide in GUIDES {
        if let Some(text) = tree.text(guide) {
            check_packages(tree, guide, text, out);
        }
    }
    if let Some(text) = tree.text(COMMANDS_GUIDE) {
        check_commands(text, crate::HELP, out);
    }
}

/// Rows of all tables of a document: line number, cells.
fn table_rows(text: &str) -> impl Iterator<Item = (usize, Vec<&str>)> {
    let rows = text.lines().enumerate().filter(|(_, l)| l.starts_with("| "));
    rows.map(|(at, l)| (at + 1, l.trim_matches('|').split(" | ").map(str::trim).collect()))
}

/// The name in a cell: the text between its first two backquotes.
fn named(cell: &str) -> Option<&str> {
    cell.split('`').nth(1)
}

/// A guide must have a row for each package, and no row for a package that does not exist.
fn check_packages(tree: &Tree, guide: &str, text: &str, out: &mut Vec<Finding>) {
    let mut seen = BTreeSet::new();
    for (at, cells) in table_rows(text) {
        let Some(folder) = cells.first().and_then(|c| named(c)) else { continue };
        seen.insert(folder);
        let room = ROOMS.iter().find_map(|r| folder.strip_prefix(r));
        if room.is_some_and(|name| !name.contains('/')) {
            if tree.text(&format!("{folder}/Cargo.toml")).is_none() {
                let message = format!("there is no package in `{folder}`: remove its row");
                out.push(Finding::new(guide, at, message));
            } else if cells.iter().any(|c| c.is_empty()) {
                out.push(Finding::new(guide, at, format!("`{folder}`: a cell is empty")));
            }
        }
    }
    for folder in packages(tree).filter(|f| !seen.contains(f)) {
        let message = format!("does not say what `{folder}` is: add a row to its table");
        out.push(Finding::new(guide, 0, message));
    }
}

/// Commands in a help text: the first words of lines that are indented by two spaces.
fn commands(help: &str) -> BTreeSet<&str> {
    let listed = help.lines().filter_map(|l| l.strip_prefix("  "));
    listed
        .filter(|l| !l.starts_with([' ', '-', '[']))
        .filter_map(|l| l.split_whitespace().next())
        .collect()
}

/// The guide must have a row for each command, and no row for a command that does not exist.
fn check_commands(text: &str, help: &str, out: &mut Vec<Finding>) {
    let commands = commands(help);
    let mut seen = BTreeSet::new();
    for (at, cells) in table_rows(text) {
        let command = cells.first().and_then(|c| named(c));
        let Some(command) = command.and_then(|c| c.strip_prefix("cargo xtask ")) else { continue };
        let word = command.split(' ').next().unwrap_or_default();
        seen.insert(word);
        if !commands.contains(word) {
            let message = format!("`cargo xtask --help` has no command `{word}`");
            out.push(Finding::new(COMMANDS_GUIDE, at, message));
        }
    }
    for command in commands.difference(&seen) {
        let message = format!("does not name `cargo xtask {command}`: add a row to its table");
        out.push(Finding::new(COMMANDS_GUIDE, 0, message));
    }
}

/// Readers see the root first, so only listed names are allowed there.
fn check_root(tree: &Tree, settings: &Settings, out: &mut Vec<Finding>) {
    let names: BTreeSet<&str> =
        tree.files.iter().map(|f| f.path.split('/').next().unwrap_or_default()).collect();
    for name in names.iter().filter(|n| !settings.root.iter().any(|r| r == *n)) {
        let message = "is not listed in [root] of xtask/tidy.toml: move it, or list it there";
        out.push(Finding::new(name, 0, message));
    }
    for name in settings.root.iter().filter(|n| !names.contains(n.as_str())) {
        let message = format!("[root] lists `{name}`, which is not there: remove it");
        out.push(Finding::new("xtask/tidy.toml", 0, message));
    }
}

/// Folders that contain a package, without the root, whose manifest is the workspace's.
fn packages(tree: &Tree) -> impl Iterator<Item = &str> {
    tree.ending("/Cargo.toml").filter_map(|(path, _)| path.strip_suffix("/Cargo.toml"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(files: &[(&str, &str)], root: &str) -> Vec<(String, String)> {
        let settings = Settings::parse(&format!("[root]\nnames = [{root}]\n")).unwrap();
        let mut out = Vec::new();
        check(&Tree::sample(files), &settings, &mut out);
        out.into_iter().map(|f| (f.path, f.message)).collect()
    }

    #[test]
    fn only_listed_names_are_allowed_in_the_root() {
        let files = [("README.md", ""), ("NOTE.md", ""), ("docs/a.md", "")];
        let got = findings(&files, "\"README.md\", \"docs\"");
        assert_eq!(got.len(), 1);
        assert_eq!(got[0].0, "NOTE.md");
        let got = findings(&files, "\"README.md\", \"docs\", \"NOTE.md\", \"gone\"");
        assert_eq!(got.len(), 1);
        assert!(got[0].1.contains("`gone`"));
    }

    #[test]
    fn guides_name_every_package_and_no_other() {
        let guide = "| [`crates/a`](crates/a/src/lib.rs) | what it holds |\n\
            | `crates/gone` | what it held |\nThe text may name `crates/b`.\n";
        let files =
            [("ARCHITECTURE.md", guide), ("crates/a/Cargo.toml", ""), ("crates/b/Cargo.toml", "")];
        let got = findings(&files, "\"ARCHITECTURE.md\", \"crates\"");
        assert_eq!(got.len(), 2, "{got:?}");
        assert!(got[0].1.contains("no package in `crates/gone`"));
        assert!(got[1].1.contains("does not say what `crates/b` is"));
    }

    #[test]
    fn rows_of_packages_have_no_empty_cell() {
        let files = [("ARCHITECTURE.md", "| `crates/a` |  | b |\n"), ("crates/a/Cargo.toml", "")];
        let got = findings(&files, "\"ARCHITECTURE.md\", \"crates\"");
        assert!(got.len() == 1 && got[0].1.contains("a cell is empty"), "{got:?}");
    }

    #[test]
    fn the_table_of_commands_is_that_of_the_help() {
        let help = "cargo xtask COMMAND\n\nRuns\n  test [--quick]   all tests\n  \
            \u{20}                long\n  demo --net       x\n  demo             y\n";
        let messages = |text: &str| {
            let mut out = Vec::new();
            check_commands(text, help, &mut out);
            out.into_iter().map(|f| f.message).collect::<Vec<_>>()
        };
        let both = "| `cargo xtask test` | x |\n| `cargo xtask demo --net` | x |\n";
        assert_eq!(messages(both), Vec::<String>::new());
        let got = messages("| `cargo xtask test` | x |\n| `cargo xtask more` | x |\n");
        assert_eq!(got.len(), 2, "{got:?}");
        assert!(got[0].contains("no command `more`") && got[1].contains("`cargo xtask demo`"));
    }
}
