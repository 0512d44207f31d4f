//! Checks which directory of a crate may use which other one; as between packages, in one
//! direction.
//!
//! The compiler accepts cycles between directories, but they make code hard to read. `[floors]` of
//! `xtask/tidy.toml` lists the directories that each directory may use. Methods of one type that
//! are defined in several directories can call each other without an import, so calls
//! `self.method()` are checked, too.

use super::{Finding, settings::Settings, source, source::Source};
use std::collections::{BTreeMap, BTreeSet};

/// All rules of this module.
pub fn check(sources: &[Source<'_>], settings: &Settings, out: &mut Vec<Finding>) {
    for dir in settings.floors.keys().filter(|d| is_below_itself(d, settings)) {
        let message = format!("[floors]: `{dir}` depends on itself");
        out.push(Finding::new("xtask/tidy.toml", 0, message));
    }
    let code: Vec<_> = sources.iter().filter(|s| !source::is_test_file(s.path)).collect();
    let methods = methods_of_rooms(&code, settings);
    for s in &code {
        let Some(room) = room_of(s.path, settings) else { continue };
        let parent = parent_of(s.path, room);
        for (n, line) in lines(s.text) {
            for name in named(line, "crate::") {
                let other = format!("{parent}/{name}");
                if other != room
                    && settings.floors.contains_key(&other)
                    && !may(room, &name, settings)
                {
                    out.push(Finding::new(s.path, n, format!("must not name `{name}`")));
                }
            }
            for name in named(line, "self.").filter(|_| !types_of(s.text).is_empty()) {
                for of in types_of(s.text) {
                    let Some(home) = methods.get(&(of, name.clone())) else { continue };
                    let leaf = home.rsplit('/').next().unwrap_or(home);
                    let call = line.contains(&format!("self.{name}("));
                    let same = *home == room || parent_of_room(home) != parent;
                    if call && !same && !may(room, leaf, settings) {
                        let message = format!("must not call `{name}` of `{leaf}`");
                        out.push(Finding::new(s.path, n, message));
                    }
                }
            }
        }
    }
}

/// Lines of code without comments, with their numbers.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let code = |line: &str| !line.trim_start().starts_with("//");
    text.lines().enumerate().map(|(i, line)| (i + 1, line)).filter(move |(_, line)| code(line))
}

/// Identifiers that follow `prefix` in a line.
fn named<'a>(line: &'a str, prefix: &'a str) -> impl Iterator<Item = String> + 'a {
    line.match_indices(prefix).filter_map(move |(at, _)| {
        let before = line[..at].chars().next_back();
        if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == '.') {
            return None;
        }
        let rest = &line[at + prefix.len()..];
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        (end > 0).then(|| rest[..end].to_string())
    })
}

/// Types with methods in this file.
fn types_of(text: &str) -> BTreeSet<String> {
    let heads = text.lines().filter(|l| l.starts_with("impl") && !l.contains(" for "));
    heads
        .filter_map(|l| {
            let after = if l.starts_with("impl<") { l.split_once("> ")?.1 } else { l.get(5..)? };
            let end = after.find(|c: char| !c.is_alphanumeric())?;
            Some(after[..end].to_string())
        })
        .collect()
}

/// Type and method → the directory of the method, for types with methods in several directories.
fn methods_of_rooms(
    sources: &[&Source<'_>],
    settings: &Settings,
) -> BTreeMap<(String, String), String> {
    let mut out = BTreeMap::new();
    for s in sources {
        let Some(room) = room_of(s.path, settings) else { continue };
        let mut of = None;
        for line in s.text.lines() {
            if line.starts_with("impl") {
                of = types_of(line).into_iter().next();
            }
            let Some(of) = &of else { continue };
            let function = line.strip_prefix("    ").filter(|l| !l.starts_with(' '));
            let Some((head, tail)) = function.and_then(|l| l.split_once("fn ")) else { continue };
            let end = tail.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(0);
            if head.is_empty() || head.starts_with("pub") {
                out.insert((of.clone(), tail[..end].to_string()), room.to_string());
            }
        }
    }
    out
}

/// The deepest directory of `[floors]` that contains a file. A crate's root file is exempt.
fn room_of<'a>(path: &str, settings: &'a Settings) -> Option<&'a str> {
    if path.ends_with("/lib.rs") {
        return None;
    }
    let inside =
        |dir: &&String| path.strip_prefix(dir.as_str()).is_some_and(|r| r.starts_with('/'));
    settings.floors.keys().filter(inside).max_by_key(|d| d.len()).map(String::as_str)
}

/// The directory whose subdirectories a file can name: the parent of `room`, or `room` itself for
/// files next to directories.
fn parent_of<'a>(path: &str, room: &'a str) -> &'a str {
    let beside = path[room.len() + 1..].split('/').count() == 1 && room.ends_with("/src");
    if beside { room } else { parent_of_room(room) }
}

fn parent_of_room(room: &str) -> &str {
    room.rsplit_once('/').map_or("", |(parent, _)| parent)
}

fn may(room: &str, name: &str, settings: &Settings) -> bool {
    settings.floors.get(room).is_some_and(|below| below.iter().any(|b| b == name))
}

fn is_below_itself(dir: &str, settings: &Settings) -> bool {
    let parent = parent_of_room(dir);
    let mut seen = BTreeSet::new();
    let mut next: Vec<String> = settings.floors[dir].clone();
    while let Some(name) = next.pop() {
        let below = format!("{parent}/{name}");
        if below == dir {
            return true;
        }
        if seen.insert(below.clone()) {
            next.extend(settings.floors.get(&below).into_iter().flatten().cloned());
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::super::tree::Tree;
    use super::*;

    const FLOORS: &str = "[floors]\n\"c/src\" = []\n\"c/src/low\" = []\n\"c/src/mid\" = [\"low\"]\n\
                          \"c/src/other\" = [\"low\"]\n\"c/src/top\" = [\"mid\", \"other\"]\n";

    fn messages(floors: &str, files: &[(&str, &str)]) -> Vec<String> {
        let tree = Tree::sample(files);
        let mut out = Vec::new();
        let sources = source::parse_all(&tree, &mut out);
        check(&sources, &Settings::parse(floors).unwrap(), &mut out);
        out.into_iter().map(|f| format!("{}:{} {}", f.path, f.line, f.message)).collect()
    }

    #[test]
    fn names_go_only_downwards() {
        let down = [
            ("c/src/lib.rs", "mod low; mod top; use crate::top::T;"),
            ("c/src/ground.rs", "use crate::limits::A;"),
            ("c/src/low/mod.rs", "// crate::top is above\nuse crate::ground::A;"),
            ("c/src/mid/a.rs", "use crate::low::A; use crate::mid::B;"),
            ("c/src/top/a.rs", "use crate::{A};\nuse crate::mid::A;"),
            ("c/src/low/tests.rs", "use crate::top::T;"),
        ];
        assert!(messages(FLOORS, &down).is_empty());
        for (path, text) in [
            ("c/src/ground.rs", "use crate::low::A;"),
            ("c/src/low/a.rs", "use crate::mid::A;"),
            ("c/src/mid/a/b.rs", "fn f() { crate::other::f() }"),
            ("c/src/top/a.rs", "use crate::low::A;"),
        ] {
            assert_eq!(messages(FLOORS, &[(path, text)]).len(), 1, "{path}");
        }
    }

    #[test]
    fn calls_within_a_type_go_only_downwards() {
        let low = ("c/src/low/a.rs", "impl<O> Lane<'_, O> {\n    pub fn low(&self) {}\n}");
        let mid = ("c/src/mid/a.rs", "impl Lane<'_, ()> {\n    fn mid(&self) { self.low() }\n}");
        assert!(messages(FLOORS, &[low, mid]).is_empty());
        let up = ("c/src/other/a.rs", "impl Lane<'_, ()> {\n    fn o(&self) { self.mid() }\n}");
        let got = messages(FLOORS, &[low, mid, up]);
        assert_eq!(got, ["c/src/other/a.rs:2 must not call `mid` of `mid`"]);
        let else_where = ("c/src/other/a.rs", "impl Own {\n    fn o(&self) { self.mid() }\n}");
        assert!(messages(FLOORS, &[low, mid, else_where]).is_empty());
    }

    #[test]
    fn floors_are_acyclic() {
        let got = messages("[floors]\n\"s/a\" = [\"b\"]\n\"s/b\" = [\"a\"]\n", &[]);
        assert_eq!(got.len(), 2, "{got:?}");
    }
}
