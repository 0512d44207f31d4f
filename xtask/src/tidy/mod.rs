//! `tidy`: house rules that the compiler does not check. Each rule is a function from the files of
//! the repository to findings; `xtask/tidy.toml` contains the layers, and the exceptions with their
//! reasons.

mod assertions;
mod floors;
mod hashing;
mod layers;
mod lengths;
mod markdown;
mod programs;
mod rooms;
mod safety;
mod settings;
mod source;
mod text;
mod tree;

use crate::{Result, process};
use settings::Settings;
use tree::Tree;

/// A violation of a rule.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Finding {
    /// File, relative to the root.
    path: String,
    /// Line number from 1; 0 = the whole file.
    line: usize,
    /// The problem, and what to do.
    message: String,
}

impl Finding {
    fn new(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self { path: path.into(), line, message: message.into() }
    }
}

/// Runs all rules on the working tree.
pub fn run() -> Result {
    let root = process::root();
    let tree = Tree::read(&root)?;
    let settings = Settings::parse(tree.text("xtask/tidy.toml").unwrap_or_default())?;
    let mut findings = check(&tree, &settings);
    findings.sort();
    for f in &findings {
        match f.line {
            0 => println!("{}: {}", f.path, f.message),
            line => println!("{}:{line}: {}", f.path, f.message),
        }
    }
    println!("tidy: {} files, {} findings", tree.files.len(), findings.len());
    if findings.is_empty() { Ok(()) } else { Err("house rules are violated (see above)".into()) }
}

/// Runs all rules.
fn check(tree: &Tree, settings: &Settings) -> Vec<Finding> {
    let mut out = Vec::new();
    text::check(tree, &mut out);
    markdown::check(tree, &mut out);
    programs::check(tree, &mut out);
    rooms::check(tree, settings, &mut out);
    layers::check(tree, settings, &mut out);
    let sources = source::parse_all(tree, &mut out);
    floors::check(&sources, settings, &mut out);
    assertions::check(&sources, settings, &mut out);
    lengths::check(tree, &sources, settings, &mut out);
    hashing::check(&sources, &mut out);
    safety::check(tree, &sources, settings, &mut out);
    out
}
