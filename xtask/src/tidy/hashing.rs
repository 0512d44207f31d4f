//! Maps of the standard library in the deterministic crates, whose default hasher differs in each
//! run. Clippy bans `HashMap::new`, but detects neither `default()` nor `collect()`; therefore a
//! type must name its hasher.

use super::{Finding, source::Source, text::DETERMINISTIC};
use proc_macro2::{TokenStream, TokenTree};

/// Each map, and its number of generic arguments including the hasher.
const MAPS: [(&str, usize); 2] = [("HashMap", 3), ("HashSet", 2)];
/// Constructors that use, or may use, the default hasher.
const MAKERS: [&str; 3] = ["default", "from", "from_iter"];

/// The rule.
pub fn check(sources: &[Source<'_>], out: &mut Vec<Finding>) {
    let inside = |s: &&Source<'_>| {
        DETERMINISTIC.iter().any(|c| s.path.starts_with(&format!("crates/{c}/src/")))
    };
    for source in sources.iter().filter(inside) {
        check_tokens(source.path, &source.tokens, out);
    }
}

fn check_tokens(path: &str, tokens: &TokenStream, out: &mut Vec<Finding>) {
    let list: Vec<TokenTree> = tokens.clone().into_iter().collect();
    for (at, token) in list.iter().enumerate() {
        match token {
            TokenTree::Group(group) => check_tokens(path, &group.stream(), out),
            TokenTree::Ident(word) => {
                let Some((name, full)) = MAPS.iter().find(|(name, _)| word == name) else {
                    continue;
                };
                if !names_hasher(&list[at + 1..], *full) {
                    let line = word.span().start().line;
                    let message = format!("`{name}` must name its hasher: use Fx{name}");
                    out.push(Finding::new(path, line, message));
                }
            }
            _ => {}
        }
    }
}

/// Whether the tokens after a map's name are allowed: all generic arguments, or no constructor.
fn names_hasher(after: &[TokenTree], full: usize) -> bool {
    let mut rest = after;
    // `HashMap::<...>` and `HashMap<...>`
    let turbofish = is(rest, 0, ':') && is(rest, 1, ':') && is(rest, 2, '<');
    if turbofish {
        rest = &rest[2..];
    }
    if is(rest, 0, '<') {
        return arguments(rest) >= full;
    }
    if is(rest, 0, ':') && is(rest, 1, ':') {
        let made = |t: &TokenTree| MAKERS.iter().any(|m| t.to_string() == *m);
        return !rest.get(2).is_some_and(made);
    }
    true
}

fn is(tokens: &[TokenTree], at: usize, mark: char) -> bool {
    matches!(tokens.get(at), Some(TokenTree::Punct(p)) if p.as_char() == mark)
}

/// Number of arguments between the first `<` and its `>`, ignoring a trailing comma.
fn arguments(tokens: &[TokenTree]) -> usize {
    let (mut depth, mut count, mut fresh) = (0, 0, false);
    for token in tokens {
        match token {
            TokenTree::Punct(p) if p.as_char() == '<' => depth += 1,
            TokenTree::Punct(p) if p.as_char() == '>' => depth -= 1,
            TokenTree::Punct(p) if p.as_char() == ',' && depth == 1 => fresh = false,
            _ => {
                count += usize::from(!fresh);
                fresh = true;
            }
        }
        if depth == 0 {
            break;
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::{
        super::{source, tree::Tree},
        *,
    };

    fn findings(text: &str) -> usize {
        let tree = Tree::sample(&[("crates/core/src/a.rs", text)]);
        let mut out = Vec::new();
        check(&source::parse_all(&tree, &mut out), &mut out);
        out.len()
    }

    #[test]
    fn a_map_names_its_hasher() {
        let good = [
            "use std::collections::HashMap;",
            "struct A { a: HashMap<u8, (u8, Vec<u8>), Keyed>, b: HashSet<u8, Keyed,> }",
            "type FxHashMap<K, V> = HashMap<K, V, Fx>; fn f() { HashMap::with_hasher(k()); }",
            "fn f() { FxHashMap::default(); }",
        ];
        for text in good {
            assert_eq!(findings(text), 0, "{text}");
        }
        let bad = [
            "struct A { a: HashMap<u8, Vec<(u8, u8)>> }",
            "struct A { b: std::collections::HashSet<u8,> }",
            "fn f() { HashMap::default(); }",
            "fn f() { x.collect::<HashMap<u8, u8>>(); }",
            "fn f() { HashMap::<u8, u8>::new(); }",
            "fn f() { HashSet::from([1]); }",
        ];
        for text in bad {
            assert_eq!(findings(text), 1, "{text}");
        }
    }
}
