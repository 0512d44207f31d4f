//! Rules about plain text: line lengths, marks of unfinished work, machine paths, file sizes, and
//! bans.

use super::{Finding, tree::Tree};

/// Longest line of code in columns.
const COLUMNS_MAX: usize = 100;
/// Largest file in bytes that may be committed.
const BYTES_MAX: u64 = 512 * 1024;
/// Code files, by extension or name.
const CODE: [&str; 9] = [".rs", ".c", ".h", ".py", ".sh", ".toml", "/.ci/run", "/x", "/apt-ensure"];
/// Packages in which clocks are banned.
pub const DETERMINISTIC: [&str; 7] = ["wire", "core", "fabric", "check", "rivals", "saa", "copa"];
/// Names that their clippy.toml must ban.
const BANS: [&str; 5] = [
    "std::time::Instant::now",
    "std::time::SystemTime::now",
    "std::thread::spawn",
    "std::collections::HashMap::new",
    "std::collections::HashSet::new",
];

/// Marks of unfinished work, split so that this file does not contain them.
const MARKS: [&str; 6] = [
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
    concat!("to", "do!"),
    concat!("unimple", "mented!"),
    concat!("db", "g!"),
];

/// Folders that exist only on one machine.
const MACHINE: [&str; 2] = [concat!("/wo", "rk/"), concat!("/ro", "ot/")];

/// All rules of this module.
pub fn check(tree: &Tree, out: &mut Vec<Finding>) {
    for file in &tree.files {
        if file.bytes > BYTES_MAX {
            let kib = file.bytes / 1024;
            out.push(Finding::new(&file.path, 0, format!("{kib} KiB; at most 512 are committed")));
        }
        let Some(text) = file.text.as_deref() else { continue };
        let slashed = format!("/{}", file.path);
        let code = CODE.iter().any(|end| slashed.ends_with(end)) && !is_generated(text);
        for (at, line) in text.lines().enumerate() {
            check_line(&file.path, at + 1, line, code, out);
        }
    }
    check_bans(tree, out);
}

/// Whether the first lines of a file say that it is generated.
fn is_generated(text: &str) -> bool {
    text.lines().take(10).any(|l| l.contains("@generated") || l.contains("enerated with cbindgen"))
}

fn check_line(path: &str, at: usize, line: &str, code: bool, out: &mut Vec<Finding>) {
    let columns = line.chars().count();
    // URLs cannot be wrapped.
    if code && columns > COLUMNS_MAX && !line.contains("https://") {
        out.push(Finding::new(path, at, format!("{columns} columns, at most {COLUMNS_MAX}")));
    }
    for mark in MARKS.iter().filter(|m| has_word(line, m)) {
        out.push(Finding::new(path, at, format!("`{mark}`: finish it, or open an issue")));
    }
    for folder in MACHINE.iter().filter(|f| has_path(line, f)) {
        out.push(Finding::new(path, at, format!("path of one machine: `{folder}`")));
    }
}

/// Whether `line` contains `word` with no letter, digit or `_` before or after it.
fn has_word(line: &str, word: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        !before.is_some_and(part) && (word.ends_with('!') || !after.is_some_and(part))
    })
}

/// Whether `line` contains `folder` at the start of a path.
fn has_path(line: &str, folder: &str) -> bool {
    line.match_indices(folder).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || "_-./}".contains(c))
    })
}

/// The deterministic crates must ban clocks, threads and random hashing, with the same text in
/// each.
fn check_bans(tree: &Tree, out: &mut Vec<Finding>) {
    let path_of = |c: &str| format!("crates/{c}/clippy.toml");
    let first = tree.text(&path_of(DETERMINISTIC[0]));
    for package in DETERMINISTIC.iter().filter(|c| tree.has(&format!("crates/{c}"))) {
        let path = path_of(package);
        let text = tree.text(&path).unwrap_or_default();
        for ban in BANS.iter().filter(|b| !text.contains(&format!("\"{b}\""))) {
            out.push(Finding::new(&path, 0, format!("must ban `{ban}`")));
        }
        if first.is_some_and(|f| f != text) {
            let message = format!("differs from {}", path_of(DETERMINISTIC[0]));
            out.push(Finding::new(&path, 0, message));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(path: &str, text: &str) -> Vec<String> {
        let mut out = Vec::new();
        check(&Tree::sample(&[(path, text)]), &mut out);
        out.into_iter().map(|f| f.message).collect()
    }

    #[test]
    fn finds_long_lines_of_code_only() {
        let long = "x".repeat(101);
        assert!(messages("a.rs", &long)[0].contains("101 columns"));
        assert!(messages("a.rs", &"é".repeat(100)).is_empty(), "columns, not bytes");
        assert!(messages("a.md", &long).is_empty());
        assert!(messages("a.rs", &format!("// https://{long}")).is_empty());
        assert!(messages("a.h", &format!("/* Generated with cbindgen */\n{long}")).is_empty());
    }

    #[test]
    fn finds_marks_as_words() {
        for mark in MARKS {
            assert_eq!(messages("a.md", &format!("x {mark}(y)")).len(), 1, "{mark}");
            assert_eq!(messages("a.md", &format!("a{mark}")), Vec::<String>::new(), "{mark}");
        }
        assert!(messages("a.sh", "mktemp /tmp/a.XXXXXX").is_empty());
    }

    #[test]
    fn finds_machine_paths() {
        for folder in MACHINE {
            assert_eq!(messages("a.md", &format!("see {folder}x")).len(), 1);
            assert!(messages("a.md", &format!("see docs{folder}x")).is_empty());
        }
    }

    #[test]
    fn finds_large_files() {
        let mut tree = Tree::sample(&[("a.bin", "")]);
        tree.files[0].bytes = BYTES_MAX + 1;
        let mut out = Vec::new();
        check(&tree, &mut out);
        assert!(out[0].message.contains("512 KiB") || out[0].message.contains("512"));
    }

    #[test]
    fn finds_missing_bans() {
        let mut all: String = BANS.iter().map(|b| format!("\"{b}\"\n")).collect();
        assert!(messages("crates/wire/clippy.toml", &all).is_empty());
        all = all.replace(BANS[2], "std::thread::other");
        assert_eq!(messages("crates/wire/clippy.toml", &all), [format!("must ban `{}`", BANS[2])]);
        assert_eq!(messages("crates/core/src/lib.rs", "").len(), BANS.len(), "no file at all");
    }
}
