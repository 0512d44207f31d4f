//! Rules on what lies where: names allowed in the root, and packages that the guides leave out.

use super::{Finding, settings::Settings, tree::Tree};
use std::collections::BTreeSet;

/// Documents that must name the folder of every package.
const GUIDES: [&str; 2] = ["ARCHITECTURE.md", "CONTRIBUTING.md"];

/// All rules of this file.
pub fn check(tree: &Tree, settings: &Settings, out: &mut Vec<Finding>) {
    check_root(tree, settings, out);
    for guide in GUIDES {
        let Some(text) = tree.text(guide) else { continue };
        for folder in packages(tree).filter(|f| !text.contains(&format!("`{f}`"))) {
            let message = format!("does not say what `{folder}` is: add a row to its table");
            out.push(Finding::new(guide, 0, message));
        }
    }
}

/// A stranger reads the root first: only what is listed may lie there.
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

/// Folders that hold a package. The root's manifest is the workspace's.
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
    fn only_listed_names_lie_in_the_root() {
        let files = [("README.md", ""), ("NOTE.md", ""), ("docs/a.md", "")];
        let got = findings(&files, "\"README.md\", \"docs\"");
        assert_eq!(got.len(), 1);
        assert_eq!(got[0].0, "NOTE.md");
        let got = findings(&files, "\"README.md\", \"docs\", \"NOTE.md\", \"gone\"");
        assert_eq!(got.len(), 1);
        assert!(got[0].1.contains("`gone`"));
    }

    #[test]
    fn guides_name_every_package() {
        let guide = "| [`crates/a`](crates/a/src/lib.rs) | what it holds |";
        let files =
            [("ARCHITECTURE.md", guide), ("crates/a/Cargo.toml", ""), ("crates/b/Cargo.toml", "")];
        let got = findings(&files, "\"ARCHITECTURE.md\", \"crates\"");
        assert_eq!(got.len(), 1);
        assert!(got[0].1.contains("`crates/b`"));
    }
}
