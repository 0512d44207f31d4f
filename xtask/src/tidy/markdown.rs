//! Documents: every link has a target, and every page of docs/ has one title.

use super::{Finding, tree::Tree};
use std::collections::BTreeSet;

/// All rules of this module.
pub fn check(tree: &Tree, out: &mut Vec<Finding>) {
    for (path, text) in tree.ending(".md") {
        for (at, line) in prose(text) {
            for target in links(line) {
                if let Some(wrong) = judge(tree, path, target) {
                    out.push(Finding::new(path, at, wrong));
                }
            }
        }
        let titles = prose(text).filter(|(_, l)| l.starts_with("# ")).count();
        if path.starts_with("docs/") && titles != 1 {
            out.push(Finding::new(path, 0, format!("{titles} titles (`# …`), must be one")));
        }
    }
}

/// Numbered lines outside of code blocks.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(at, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        (!fenced && !fence).then_some((at + 1, line))
    })
}

/// Targets of `[text](target)` in a line.
fn links(line: &str) -> impl Iterator<Item = &str> {
    // Text between backquotes is code.
    line.split('`').step_by(2).flat_map(|part| part.split("](").skip(1)).filter_map(|rest| {
        let target = rest.split(')').next()?;
        target.split_whitespace().next()
    })
}

/// The problem of a link, if it has one.
fn judge(tree: &Tree, from: &str, target: &str) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
    let Some(path) = resolve(from, file) else {
        return Some(format!("link leads out of the repository: {target}"));
    };
    if !tree.has(&path) {
        return Some(format!("link to a file that does not exist: {target}"));
    }
    let text = tree.text(&path).filter(|_| path.ends_with(".md") && !anchor.is_empty())?;
    (!anchors(text).contains(anchor)).then(|| format!("{path} has no heading #{anchor}"))
}

/// Path of a link's target, relative to the root.
fn resolve(from: &str, file: &str) -> Option<String> {
    if file.is_empty() {
        return Some(from.into());
    }
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in file.trim_end_matches('/').split('/') {
        match part {
            "." => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

/// Anchors of a document's headings, as hosting sites generate them.
fn anchors(text: &str) -> BTreeSet<String> {
    let heading = |(_, line): (usize, &str)| {
        let title = line.trim_start_matches('#');
        let level = line.len() - title.len();
        if level == 0 || !title.starts_with(' ') {
            return None;
        }
        let kept = |c: char| c.is_alphanumeric() || c == ' ' || c == '-' || c == '_';
        let title = title.trim().to_lowercase();
        Some(title.chars().filter(|&c| kept(c)).collect::<String>().replace(' ', "-"))
    };
    prose(text).filter_map(heading).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(readme: &str) -> Vec<String> {
        let page = "# The page\n\n## Why `this`, not that\n";
        let tree = Tree::sample(&[
            ("README.md", readme),
            ("docs/a.md", page),
            ("src/lib.rs", "fn f() {}"),
        ]);
        let mut out = Vec::new();
        check(&tree, &mut out);
        out.into_iter().map(|f| f.message).collect()
    }

    #[test]
    fn follows_links() {
        let good = "# R\n[a](docs/a.md) [s](src) [s](./src/) [w](https://x.y/z) [h](#r)\n\
            [b](docs/a.md#why-this-not-that) `[c](none)`\n```\n[d](none)\n```\n";
        assert_eq!(messages(good), Vec::<String>::new());
        assert!(messages("[a](docs/b.md)")[0].contains("does not exist"));
        assert!(messages("[a](../b.md)")[0].contains("out of the repository"));
        assert!(messages("[a](docs/a.md#gone)")[0].contains("no heading"));
        assert_eq!(messages("[a](x) and [b](y)").len(), 2);
    }

    #[test]
    fn pages_have_one_title() {
        for (text, titles) in [("text", 0), ("# A\n# B\n", 2)] {
            let tree = Tree::sample(&[("docs/b.md", text)]);
            let mut out = Vec::new();
            check(&tree, &mut out);
            assert_eq!(out[0].message, format!("{titles} titles (`# …`), must be one"));
        }
    }
}
