//! Parsed Rust files.

use super::{Finding, tree::Tree};
use proc_macro2::TokenStream;
use std::str::FromStr;
use syn::visit::{self, Visit};

/// One Rust file.
pub struct Source<'a> {
    /// Path, relative to the root.
    pub path: &'a str,
    /// Unmodified text.
    pub text: &'a str,
    /// Tokens, with their lines.
    pub tokens: TokenStream,
    /// Functions with a body.
    pub functions: Vec<Function>,
    /// Assertions in functions that are not tests.
    pub assertions: usize,
    /// Names in inner `forbid` attributes.
    pub forbidden: Vec<String>,
}

/// One function with a body.
#[derive(Debug, PartialEq, Eq)]
pub struct Function {
    /// Name, without type or module.
    pub name: String,
    /// Line of `fn`.
    pub line: usize,
    /// Lines from `fn` to the closing brace.
    pub lines: usize,
    /// Whether it is in a `#[cfg(test)]` module or is a `#[test]`.
    pub test: bool,
}

/// Parses every Rust file; reports those that cannot be parsed.
pub fn parse_all<'a>(tree: &'a Tree, out: &mut Vec<Finding>) -> Vec<Source<'a>> {
    let mut sources = Vec::new();
    for (path, text) in tree.ending(".rs") {
        match parse(path, text) {
            Ok(source) => sources.push(source),
            Err(e) => {
                let line = e.span().start().line;
                out.push(Finding::new(path, line, format!("cannot be parsed: {e}")));
            }
        }
    }
    sources
}

/// Whether the whole file consists of tests.
pub fn is_test_file(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.ends_with("_tests.rs") || path.contains("/tests/")
}

fn parse<'a>(path: &'a str, text: &'a str) -> syn::Result<Source<'a>> {
    let file = syn::parse_file(text)?;
    let tokens = TokenStream::from_str(text)?;
    let test = is_test_file(path);
    let mut walk = Functions { found: Vec::new(), assertions: 0, test, depth: 0 };
    walk.visit_file(&file);
    let mut forbidden = Vec::new();
    for attr in file.attrs.iter().filter(|a| a.path().is_ident("forbid")) {
        attr.parse_nested_meta(|m| {
            forbidden.extend(m.path.get_ident().map(ToString::to_string));
            Ok(())
        })?;
    }
    let Functions { found: functions, assertions, .. } = walk;
    Ok(Source { path, text, tokens, functions, assertions, forbidden })
}

/// Macros that count as assertions.
const ASSERTIONS: [&str; 6] =
    ["assert", "assert_eq", "assert_ne", "debug_assert", "debug_assert_eq", "debug_assert_ne"];

/// Collects functions, and records whether they are in tests; counts the assertions in the others.
struct Functions {
    found: Vec<Function>,
    assertions: usize,
    test: bool,
    /// Functions around the place of the visit: an assertion in none of them is one of the
    /// compiler, about a constant.
    depth: usize,
}

impl Functions {
    fn add(&mut self, attrs: &[syn::Attribute], sig: &syn::Signature, block: &syn::Block) {
        let line = sig.fn_token.span.start().line;
        let end = block.brace_token.span.close().end().line;
        let test = self.test || attrs.iter().any(|a| a.path().is_ident("test"));
        let name = sig.ident.to_string();
        self.found.push(Function { name, line, lines: end + 1 - line, test });
    }

    /// Visits what is in a function.
    fn within(&mut self, attrs: &[syn::Attribute], visit: impl FnOnce(&mut Self)) {
        let outer = self.test;
        self.test |= attrs.iter().any(|a| a.path().is_ident("test"));
        self.depth += 1;
        visit(self);
        self.depth -= 1;
        self.test = outer;
    }
}

impl<'ast> Visit<'ast> for Functions {
    fn visit_item_mod(&mut self, m: &'ast syn::ItemMod) {
        let outer = self.test;
        self.test |= m.attrs.iter().any(is_cfg_test);
        visit::visit_item_mod(self, m);
        self.test = outer;
    }

    fn visit_item_fn(&mut self, f: &'ast syn::ItemFn) {
        self.add(&f.attrs, &f.sig, &f.block);
        self.within(&f.attrs, |walk| visit::visit_item_fn(walk, f));
    }

    fn visit_impl_item_fn(&mut self, f: &'ast syn::ImplItemFn) {
        self.add(&f.attrs, &f.sig, &f.block);
        self.within(&f.attrs, |walk| visit::visit_impl_item_fn(walk, f));
    }

    fn visit_trait_item_fn(&mut self, f: &'ast syn::TraitItemFn) {
        if let Some(block) = &f.default {
            self.add(&f.attrs, &f.sig, block);
        }
        self.within(&f.attrs, |walk| visit::visit_trait_item_fn(walk, f));
    }

    fn visit_macro(&mut self, m: &'ast syn::Macro) {
        let name = m.path.segments.last().map(|s| s.ident.to_string());
        let assertion = name.is_some_and(|name| ASSERTIONS.contains(&name.as_str()));
        self.assertions += usize::from(assertion && !self.test && self.depth > 0);
        visit::visit_macro(self, m);
    }
}

/// Whether the attribute is `#[cfg(test)]`, also within `all(…)`.
fn is_cfg_test(attr: &syn::Attribute) -> bool {
    let syn::Meta::List(list) = &attr.meta else { return false };
    list.path.is_ident("cfg")
        && list.tokens.to_string().split(|c: char| !c.is_alphanumeric()).any(|word| word == "test")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measures_functions_everywhere() {
        let text = "#![forbid(unsafe_code)]\n\
            fn a() {\n}\n\
            impl X {\n    /// Doc.\n    fn b() { fn c() {} }\n}\n\
            trait T { fn d(); fn e() {\n\n} }\n\
            #[cfg(test)]\nmod tests { fn f() {} }\n";
        let source = parse("src/a.rs", text).unwrap();
        let got: Vec<_> =
            source.functions.iter().map(|f| (f.name.as_str(), f.line, f.lines, f.test)).collect();
        assert_eq!(
            got,
            [
                ("a", 2, 2, false),
                ("b", 6, 1, false),
                ("c", 6, 1, false),
                ("e", 8, 3, false),
                ("f", 12, 1, true)
            ]
        );
        assert_eq!(source.forbidden, ["unsafe_code"]);
        assert!(parse("src/a/tests.rs", "fn a() {}").unwrap().functions[0].test);
    }

    #[test]
    fn counts_the_assertions_of_functions_that_are_no_tests() {
        let count = |path: &str, text: &str| parse(path, text).unwrap().assertions;
        let text = "const _: () = assert!(1 < 2);\n\
            fn a(x: u8) { debug_assert!(x > 1, \"{x}\"); core::debug_assert_eq!(x, 2); }\n\
            impl X { fn b(&self) { if self.y { debug_assert_ne!(1, 2) } println!(\"z\"); } }\n\
            trait T { fn c() { assert!(true); } }\n\
            // debug_assert!(false)\n\
            fn d() { let text = \"debug_assert!(x)\"; }\n\
            #[test]\nfn e() { assert!(f()); }\n\
            #[cfg(test)]\nmod tests { fn f() { assert_eq!(1, 1); } }\n";
        assert_eq!(count("src/a.rs", text), 4);
        assert_eq!(count("src/a/tests.rs", text), 0);
    }

    #[test]
    fn reports_what_does_not_parse() {
        let tree = Tree::sample(&[("a.rs", "fn a( {}")]);
        let mut out = Vec::new();
        assert!(parse_all(&tree, &mut out).is_empty());
        assert_eq!(out.len(), 1);
    }
}
