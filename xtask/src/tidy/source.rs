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
    let mut walk = Functions { found: Vec::new(), test: is_test_file(path) };
    walk.visit_file(&file);
    let mut forbidden = Vec::new();
    for attr in file.attrs.iter().filter(|a| a.path().is_ident("forbid")) {
        attr.parse_nested_meta(|m| {
            forbidden.extend(m.path.get_ident().map(ToString::to_string));
            Ok(())
        })?;
    }
    Ok(Source { path, text, tokens, functions: walk.found, forbidden })
}

/// Collects functions, and records whether they are in tests.
struct Functions {
    found: Vec<Function>,
    test: bool,
}

impl Functions {
    fn add(&mut self, attrs: &[syn::Attribute], sig: &syn::Signature, block: &syn::Block) {
        let line = sig.fn_token.span.start().line;
        let end = block.brace_token.span.close().end().line;
        let test = self.test || attrs.iter().any(|a| a.path().is_ident("test"));
        let name = sig.ident.to_string();
        self.found.push(Function { name, line, lines: end + 1 - line, test });
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
        visit::visit_item_fn(self, f);
    }

    fn visit_impl_item_fn(&mut self, f: &'ast syn::ImplItemFn) {
        self.add(&f.attrs, &f.sig, &f.block);
        visit::visit_impl_item_fn(self, f);
    }

    fn visit_trait_item_fn(&mut self, f: &'ast syn::TraitItemFn) {
        if let Some(block) = &f.default {
            self.add(&f.attrs, &f.sig, block);
        }
        visit::visit_trait_item_fn(self, f);
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
    fn reports_what_does_not_parse() {
        let tree = Tree::sample(&[("a.rs", "fn a( {}")]);
        let mut out = Vec::new();
        assert!(parse_all(&tree, &mut out).is_empty());
        assert_eq!(out.len(), 1);
    }
}
