//! `#[guarded]`: the body of a function that C calls runs behind a barrier. What that does is the
//! business of the crate that uses it, which has a module `guard` with these functions:
//!
//! * `run(body)`: for `#[guarded]`;
//! * `run_or(otherwise, body)`: for `#[guarded(VALUE)]`, where the type alone does not say how a
//!   failure looks;
//! * `look(body)`: for `#[guarded(look)]`, for functions that only read what is there, and that are
//!   called per completion.
//!
//! The function keeps its name, its type and its place in the file.

use proc_macro::{Delimiter, Group, Ident, Punct, Spacing, Span, TokenStream, TokenTree};

/// See the documentation of the crate.
#[proc_macro_attribute]
pub fn guarded(how: TokenStream, item: TokenStream) -> TokenStream {
    let mut tokens: Vec<TokenTree> = item.into_iter().collect();
    let Some(TokenTree::Group(body)) = tokens.pop() else {
        return error("guarded: only for functions");
    };
    if body.delimiter() != Delimiter::Brace {
        return error("guarded: only for functions with a body");
    }
    // What stands between the arrow and the body is the type that the body gives. There is one
    // arrow only at this level: those of parameters are within their parentheses.
    let arrow = tokens.windows(2).position(|pair| {
        matches!(pair, [TokenTree::Punct(a), TokenTree::Punct(b)]
            if a.as_char() == '-' && a.spacing() == Spacing::Joint && b.as_char() == '>')
    });
    let result: TokenStream = match arrow {
        Some(at) => tokens[at..].iter().cloned().collect(),
        None => "-> ()".parse().unwrap_or_default(),
    };
    let how_text = how.to_string();
    let (function, first) = match how_text.as_str() {
        "" => ("run", None),
        "look" => ("look", None),
        _ => ("run_or", Some(how)),
    };
    let mut arguments = TokenStream::new();
    if let Some(value) = first {
        arguments.extend(value);
        arguments.extend([punct(',')]);
    }
    // `|| -> Type { body }`
    arguments.extend([punct('|'), punct('|')]);
    arguments.extend(result);
    arguments.extend([TokenTree::Group(body)]);
    let mut call: TokenStream =
        [ident("crate"), joint(':'), punct(':'), ident("guard"), joint(':'), punct(':')]
            .into_iter()
            .collect();
    call.extend([ident(function), group(Delimiter::Parenthesis, arguments)]);
    tokens.push(group(Delimiter::Brace, call));
    tokens.into_iter().collect()
}

fn ident(text: &str) -> TokenTree {
    Ident::new(text, Span::call_site()).into()
}

fn punct(c: char) -> TokenTree {
    Punct::new(c, Spacing::Alone).into()
}

fn joint(c: char) -> TokenTree {
    Punct::new(c, Spacing::Joint).into()
}

fn group(delimiter: Delimiter, inner: TokenStream) -> TokenTree {
    Group::new(delimiter, inner).into()
}

fn error(text: &str) -> TokenStream {
    format!("compile_error!({text:?});").parse().unwrap_or_default()
}
