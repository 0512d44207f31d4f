//! Integration tests that share one program: a crate whose `tests/main.rs` exists turns cargo's
//! search for test files off, so a file that `main.rs` does not declare would never run.

use super::{Finding, tree::Tree};

/// The rule.
pub fn check(tree: &Tree, out: &mut Vec<Finding>) {
    for (main, declared) in tree.ending("/tests/main.rs") {
        let folder = main.trim_end_matches("main.rs");
        for (path, _) in tree.ending(".rs") {
            let Some(name) = path.strip_prefix(folder).and_then(|f| f.strip_suffix(".rs")) else {
                continue;
            };
            let line = format!("mod {name};");
            let inside = name.contains('/') || name == "main";
            if !inside && !declared.lines().any(|l| l == line) {
                out.push(Finding::new(path, 0, format!("never runs: add `{line}` to {main}")));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_file_of_tests_is_declared() {
        let mut out = Vec::new();
        let files = [
            ("a/tests/main.rs", "mod common;\nmod told;\n"),
            ("a/tests/common/mod.rs", ""),
            ("a/tests/told.rs", ""),
            ("a/tests/forgotten.rs", ""),
            ("b/tests/alone.rs", ""),
        ];
        check(&Tree::sample(&files), &mut out);
        assert_eq!(out.len(), 1, "{out:?}");
        assert_eq!(out[0].path, "a/tests/forgotten.rs");
    }
}
