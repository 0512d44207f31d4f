//! The law of congestion on one page: every rule of docs/congestion.md is cited in the code, and
//! every rule that the code cites is there.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Numbers of all rules that a text names: `CC-07` is 7.
fn rules(text: &str, out: &mut BTreeSet<u32>) {
    for part in text.split("CC-").skip(1) {
        let digits: String = part.chars().take_while(char::is_ascii_digit).collect();
        out.extend(digits.parse::<u32>());
    }
}

fn rules_in(folder: &Path, out: &mut BTreeSet<u32>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => rules_in(&path, out),
            false => rules(&fs::read_to_string(&path).unwrap(), out),
        }
    }
}

/// The page's own block of rules counts, not what its text says of them.
#[test]
fn each_rule_of_the_page_is_cited_in_the_code_and_the_reverse() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(root.join("../../docs/congestion.md")).unwrap();
    let block = page.split("```").nth(1).expect("the page has its rules in a block");
    let stated: Vec<u32> = block
        .lines()
        .filter_map(|l| l.strip_prefix("CC-"))
        .map(|l| l[..2].parse().expect("two digits"))
        .collect();
    assert_eq!(stated, (1..=stated.len() as u32).collect::<Vec<_>>(), "in order, without gaps");
    let mut cited = BTreeSet::new();
    rules_in(&root.join("src"), &mut cited);
    assert_eq!(cited, stated.into_iter().collect(), "left: cited in the code, right: on the page");
    let mut named = BTreeSet::new();
    rules(&page, &mut named);
    assert_eq!(named, cited, "the page's text names rules that are not there");
}

/// Rules that a text speaks of, as `CC-07` or within `CC-29 to CC-32`.
fn spoken_of(text: &str) -> BTreeSet<u32> {
    let plain = text.replace('*', "");
    let mut out = BTreeSet::new();
    rules(&plain, &mut out);
    for (at, _) in plain.match_indices(" to CC-") {
        let number = |digits: Option<&str>| digits.and_then(|d| d.parse::<u32>().ok());
        let from = number(plain.get(at.saturating_sub(2)..at));
        let to = number(plain.get(at + 7..at + 9));
        if let (Some(from), Some(to)) = (from, to) {
            out.extend(from..=to);
        }
    }
    out
}

/// A rule without a reason is one that nobody dares to touch.
#[test]
fn each_rule_has_a_reason_on_the_page() {
    let some = spoken_of("**CC-03** to CC-05, CC-09 and 2 to CC-11");
    assert_eq!(some, BTreeSet::from([3, 4, 5, 9, 11]));
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(root.join("../../docs/congestion.md")).unwrap();
    let mut stated = BTreeSet::new();
    rules(page.split("```").nth(1).expect("the page has its rules in a block"), &mut stated);
    let (_, reasons) = page.split_once("\n## Why each rule is so").expect("reasons follow");
    let reasons = reasons.split("\n## ").next().unwrap();
    let given = spoken_of(reasons);
    let missing: Vec<_> = stated.difference(&given).collect();
    assert!(missing.is_empty(), "no reason for the rules {missing:?}");
}
