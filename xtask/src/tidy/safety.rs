//! `unsafe`: forbidden in the protocol crates, elsewhere only in listed files, each use with a
//! reason.

use super::{Finding, settings::Settings, source::Source, text::DETERMINISTIC, tree::Tree};
use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// Other crates that need no `unsafe`.
const FORBIDDEN_TOO: [&str; 1] = ["xtask"];

/// All rules of this module.
pub fn check(tree: &Tree, sources: &[Source<'_>], settings: &Settings, out: &mut Vec<Finding>) {
    let mut used = vec![false; settings.unsafe_files.len()];
    for source in sources {
        check_forbid(source, out);
        let mut uses = Vec::new();
        collect(&source.tokens, &mut uses);
        if uses.is_empty() {
            continue;
        }
        match settings.unsafe_files.iter().position(|p| p == source.path) {
            Some(at) => used[at] = true,
            None => {
                let message = "`unsafe` in a file that xtask/tidy.toml does not list";
                out.push(Finding::new(source.path, uses[0].line, message));
            }
        }
        let lines: Vec<&str> = source.text.lines().collect();
        let one_for_all = has_one_contract(tree, source.path);
        for found in uses.iter().filter(|u| !has_reason(&lines, u)) {
            if one_for_all && found.kind == Kind::Contract {
                continue;
            }
            let message = match found.kind {
                Kind::Contract => {
                    "unsafe contract without `# Safety` in its doc or `// SAFETY:` above"
                }
                _ => "no `// SAFETY:` comment right above this `unsafe`",
            };
            out.push(Finding::new(source.path, found.line, message));
        }
    }
    for (path, _) in settings.unsafe_files.iter().zip(used).filter(|(_, used)| !used) {
        let gone = if tree.has(path) { "no longer contains `unsafe`" } else { "does not exist" };
        out.push(Finding::new(path, 0, format!("[[unsafe]] is stale: the file {gone}")));
    }
}

/// Whether the crate's root file states, with the reason, that one contract holds for all its
/// functions (for a C interface, at the beginning of its header).
fn has_one_contract(tree: &Tree, path: &str) -> bool {
    let Some((folder, _)) = path.split_once("/src/") else { return false };
    let root = tree.text(&format!("{folder}/src/lib.rs")).unwrap_or_default();
    root.contains("#![allow(clippy::missing_safety_doc, reason = \"")
}

/// Requires `forbid(unsafe_code)` in the root files of the crates without `unsafe`.
fn check_forbid(source: &Source<'_>, out: &mut Vec<Finding>) {
    let crates = DETERMINISTIC.iter().map(|c| format!("crates/{c}"));
    let mut crates = crates.chain(FORBIDDEN_TOO.iter().map(|c| (*c).into()));
    let root = |c: String| {
        let inside = source.path.strip_prefix(&c).unwrap_or_default();
        inside == "/src/lib.rs" || inside == "/src/main.rs" || inside.starts_with("/src/bin/")
    };
    if crates.any(root) && !source.forbidden.iter().any(|f| f == "unsafe_code") {
        out.push(Finding::new(source.path, 0, "must begin with #![forbid(unsafe_code)]"));
    }
}

/// The item that follows `unsafe`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A block, an impl, or a block of foreign functions.
    Block,
    /// A function or trait, whose doc comment may contain its contract.
    Contract,
    /// An attribute (`#[unsafe(no_mangle)]`) or a function of a trait's implementation: no comment
    /// needed.
    Attribute,
}

impl Kind {
    /// The kind within the implementation of a trait, whose functions need no contract of their
    /// own.
    fn implemented(self) -> Self {
        if self == Self::Contract { Self::Attribute } else { self }
    }
}

#[derive(Debug)]
struct Use {
    line: usize,
    kind: Kind,
}

/// Finds every `unsafe` among the tokens, including those in macros.
fn collect(tokens: &TokenStream, out: &mut Vec<Use>) {
    let list: Vec<TokenTree> = tokens.clone().into_iter().collect();
    // Whether `impl` and then `for` have occurred: the following braces contain a trait's
    // implementation, whose contracts are in the trait.
    let (mut after_impl, mut of_trait) = (false, false);
    for (at, token) in list.iter().enumerate() {
        match token {
            TokenTree::Group(group) => {
                let before = out.len();
                collect(&group.stream(), out);
                if group.delimiter() == Delimiter::Brace {
                    if of_trait {
                        out[before..].iter_mut().for_each(|u| u.kind = u.kind.implemented());
                    }
                    (after_impl, of_trait) = (false, false);
                }
            }
            TokenTree::Ident(word) if word == "impl" => after_impl = true,
            TokenTree::Ident(word) if word == "for" => of_trait = after_impl,
            TokenTree::Ident(word) if word == "unsafe" => {
                let line = word.span().start().line;
                out.extend(kind_of(&list[at + 1..]).map(|kind| Use { line, kind }));
            }
            TokenTree::Punct(mark) if mark.as_char() == ';' => {
                (after_impl, of_trait) = (false, false);
            }
            _ => {}
        }
    }
}

/// The kind by the following tokens; `None` if it is only the type of a function pointer.
fn kind_of(after: &[TokenTree]) -> Option<Kind> {
    let mut kind = Kind::Block;
    for token in after {
        match token {
            TokenTree::Ident(word) if word == "trait" => return Some(Kind::Contract),
            TokenTree::Ident(word) if word == "fn" => kind = Kind::Contract,
            TokenTree::Ident(word) if word == "extern" => {}
            // The name of the ABI.
            TokenTree::Literal(_) => {}
            TokenTree::Group(group) if group.delimiter() == Delimiter::Parenthesis => {
                return if kind == Kind::Contract { None } else { Some(Kind::Attribute) };
            }
            _ => return Some(kind),
        }
    }
    Some(kind)
}

/// Whether a reason precedes the use: comments and attributes directly before the statement.
fn has_reason(lines: &[&str], found: &Use) -> bool {
    if found.kind == Kind::Attribute {
        return true;
    }
    let says =
        |l: &str| l.contains("SAFETY:") || (found.kind == Kind::Contract && l.contains("# Safety"));
    let mut at = found.line - 1;
    // Searches upwards to the start of the statement, then through the comments above it.
    let mut above = false;
    while at > 0 {
        at -= 1;
        let line = lines[at].trim();
        let note = line.starts_with("//") || line.starts_with("#[");
        if note && says(line) {
            return true;
        }
        let ended = line.is_empty() || line.ends_with([';', '{', '}']);
        if !note && (above || ended) {
            return false;
        }
        above |= note;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::{super::source, *};

    const LISTED: &str = "[[unsafe]]\npath = \"a.rs\"\nreason = \"system calls have no safe form\"";

    fn messages(path: &str, text: &str, settings: &str) -> Vec<String> {
        let tree = Tree::sample(&[(path, text)]);
        let mut out = Vec::new();
        let sources = source::parse_all(&tree, &mut out);
        check(&tree, &sources, &Settings::parse(settings).unwrap(), &mut out);
        out.into_iter().map(|f| f.message).collect()
    }

    #[test]
    fn only_in_listed_files() {
        let text = "fn f() {\n    // SAFETY: nothing is done.\n    unsafe {}\n}";
        assert!(messages("a.rs", text, LISTED).is_empty());
        assert!(messages("b.rs", text, "")[0].contains("does not list"));
        assert!(messages("a.rs", "fn f() {}", LISTED)[0].contains("no longer contains"));
        assert!(messages("b.rs", "fn f() {}", LISTED)[0].contains("does not exist"));
        assert!(messages("b.rs", "// unsafe\nconst A: &str = \"unsafe {}\";", "").is_empty());
    }

    #[test]
    fn every_use_has_its_reason() {
        let good = [
            "fn f() {\n    // SAFETY: a\n    let x = unsafe { g() };\n}",
            "fn f() {\n    // SAFETY: a\n    // and b\n    let x =\n        unsafe { g() };\n}",
            "// SAFETY: a\nunsafe impl Send for X {}",
            "/// Doc.\n///\n/// # Safety\n/// a\n#[inline]\npub unsafe fn f() {}",
            "/// # Safety\n/// a\npub unsafe trait T {}",
            "type F = unsafe extern \"C\" fn(i32);\n#[unsafe(no_mangle)]\nfn g() {}",
            "macro_rules! m { () => {\n    // SAFETY: a\n    unsafe { g() }\n} }",
            "// SAFETY: a\nunsafe impl A for X {\n    unsafe fn f() {}\n}",
            "// SAFETY: as in the C header\nunsafe extern \"C\" { fn g(); }",
        ];
        for text in good {
            assert_eq!(messages("a.rs", text, LISTED), Vec::<String>::new(), "{text}");
        }
        let bad = [
            "fn f() {\n    let x = unsafe { g() };\n}",
            "fn f() {\n    // SAFETY: a\n    h();\n    unsafe { g() }\n}",
            "fn f() {\n    // SAFETY: a\n\n    unsafe { g() }\n}",
            "unsafe impl Send for X {}",
            "/// Doc.\npub unsafe fn f() {}",
            "pub unsafe trait T {}",
            "impl X {\n    unsafe fn f() {}\n}",
            "// SAFETY: a\nunsafe impl A for X {\n    fn f() { unsafe { g() } }\n}",
            "macro_rules! m { () => { unsafe { g() } } }",
            "unsafe extern \"C\" { fn g(); }",
        ];
        for text in bad {
            assert_eq!(messages("a.rs", text, LISTED).len(), 1, "{text}");
        }
    }

    #[test]
    fn one_contract_may_hold_for_a_crate() {
        let allow = "#![allow(clippy::missing_safety_doc, reason = \"the header's head\")]\n";
        for (body, findings) in [("pub unsafe fn f() {}", 0), ("fn f() { unsafe { g() } }", 1)] {
            let text = format!("{allow}{body}");
            let settings = LISTED.replace("a.rs", "c/src/lib.rs");
            assert_eq!(messages("c/src/lib.rs", &text, &settings).len(), findings, "{body}");
        }
    }

    #[test]
    fn the_protocol_crates_forbid_unsafe() {
        assert!(messages("crates/core/src/lib.rs", "fn f() {}", "")[0].contains("forbid"));
        assert!(messages("crates/core/src/bin/a.rs", "fn f() {}", "")[0].contains("forbid"));
        assert!(messages("crates/core/src/lib.rs", "#![forbid(unsafe_code)]", "").is_empty());
        assert!(messages("crates/core/src/a.rs", "fn f() {}", "").is_empty());
    }
}
