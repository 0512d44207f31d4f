//! Lengths of files and functions. Exceptions state the current length: growth is an error, as is
//! an exception that is larger than needed, so the list can only shrink.

use super::{Finding, settings::LongEntry, settings::Settings, source, source::Source, tree::Tree};

/// Lines of code in a file, without blank lines and comments.
const FILE_LINES_MAX: usize = 600;
/// Lines of a function, from `fn` to its closing brace.
const FUNCTION_LINES_MAX: usize = 100;
/// Lines of a function on the data path.
const DATA_PATH_LINES_MAX: usize = 80;
/// Packages of the data path.
const DATA_PATH: [&str; 4] =
    ["crates/wire/src/", "crates/core/src/", "crates/datapath/src/", "crates/srd/src/"];
/// Extensions of the checked files.
const COUNTED: [&str; 4] = [".rs", ".c", ".h", ".py"];

/// All rules of this module.
pub fn check(tree: &Tree, sources: &[Source<'_>], settings: &Settings, out: &mut Vec<Finding>) {
    let mut used = vec![false; settings.long.len()];
    for (path, text) in COUNTED.iter().flat_map(|end| tree.ending(end)) {
        if !source::is_test_file(path) {
            let entry = find(&settings.long, path, None);
            let size = Size { path, function: None, line: 0, lines: code_lines(text) };
            judge(&size, FILE_LINES_MAX, entry, &mut used, out);
        }
    }
    for source in sources {
        for f in &source.functions {
            let data_path = !f.test && DATA_PATH.iter().any(|p| source.path.starts_with(p));
            let limit = if data_path { DATA_PATH_LINES_MAX } else { FUNCTION_LINES_MAX };
            let entry = find(&settings.long, source.path, Some(&f.name));
            let function = Some(f.name.as_str());
            let size = Size { path: source.path, function, line: f.line, lines: f.lines };
            judge(&size, limit, entry, &mut used, out);
        }
    }
    for (entry, _) in settings.long.iter().zip(used).filter(|(_, used)| !used) {
        let what = entry.function.as_deref().unwrap_or("the file");
        let message = format!("[[long]] for {what} is no longer needed: remove it");
        out.push(Finding::new(&entry.path, 0, message));
    }
}

/// The length of a file or function.
struct Size<'a> {
    path: &'a str,
    function: Option<&'a str>,
    line: usize,
    lines: usize,
}

fn find<'a>(
    long: &'a [LongEntry],
    path: &str,
    function: Option<&str>,
) -> Option<(usize, &'a LongEntry)> {
    long.iter().enumerate().find(|(_, e)| e.path == path && e.function.as_deref() == function)
}

fn judge(
    size: &Size<'_>,
    limit: usize,
    entry: Option<(usize, &LongEntry)>,
    used: &mut [bool],
    out: &mut Vec<Finding>,
) {
    if size.lines <= limit {
        return;
    }
    let what = size.function.map_or_else(|| "code".into(), |f| format!("fn {f}"));
    let mut limit = limit;
    if let Some((at, entry)) = entry {
        used[at] = true;
        limit = entry.lines;
        if size.lines < limit {
            let message =
                format!("{what} has shrunk: set `lines = {}` in its [[long]]", size.lines);
            out.push(Finding::new(size.path, size.line, message));
        }
    }
    if size.lines > limit {
        let message = format!("{what}: {} lines, at most {limit}", size.lines);
        out.push(Finding::new(size.path, size.line, message));
    }
}

fn code_lines(text: &str) -> usize {
    let comment = |l: &str| ["//", "/*", "* ", "*/"].iter().any(|mark| l.starts_with(mark));
    text.lines().map(str::trim).filter(|l| !l.is_empty() && !comment(l)).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(files: &[(&str, &str)], settings: &str) -> Vec<String> {
        let tree = Tree::sample(files);
        let mut out = Vec::new();
        let sources = source::parse_all(&tree, &mut out);
        check(&tree, &sources, &Settings::parse(settings).unwrap(), &mut out);
        out.into_iter().map(|f| f.message).collect()
    }

    fn function(lines: usize) -> String {
        format!("fn f() {{{}}}\n", "\n".repeat(lines - 1))
    }

    #[test]
    fn functions_on_the_data_path_are_shorter() {
        assert!(messages(&[("crates/cli/src/a.rs", &function(100))], "").is_empty());
        assert_eq!(messages(&[("crates/cli/src/a.rs", &function(101))], "").len(), 1);
        assert!(messages(&[("crates/core/src/a.rs", &function(80))], "").is_empty());
        assert_eq!(messages(&[("crates/core/src/a.rs", &function(81))], "").len(), 1);
        assert!(messages(&[("crates/core/src/a/tests.rs", &function(81))], "").is_empty());
    }

    #[test]
    fn files_count_code_only() {
        let text = format!("{}{}", "// c\n\n".repeat(700), "const _: () = ();\n".repeat(600));
        assert!(messages(&[("a.rs", &text)], "").is_empty());
        let more = format!("{text}const _: () = ();\n");
        assert_eq!(messages(&[("a.rs", &more)], ""), ["code: 601 lines, at most 600"]);
        assert!(messages(&[("a/tests/b.rs", &more)], "").is_empty());
    }

    #[test]
    fn exceptions_may_only_shrink() {
        let entry = |lines| {
            let what = "path = \"a.rs\"\nfunction = \"f\"\nreason = \"one long table\"";
            format!("[[long]]\n{what}\nlines = {lines}\n")
        };
        assert!(messages(&[("a.rs", &function(120))], &entry(120)).is_empty());
        assert!(messages(&[("a.rs", &function(121))], &entry(120))[0].contains("at most 120"));
        assert!(messages(&[("a.rs", &function(119))], &entry(120))[0].contains("lines = 119"));
        assert!(messages(&[("a.rs", &function(100))], &entry(120))[0].contains("remove"));
        assert!(messages(&[], &entry(120))[0].contains("remove"));
    }
}
