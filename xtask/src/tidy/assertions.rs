//! Assertions: a directory that `[assertions]` names holds at least one for so many functions.

use super::{Finding, settings::Settings, source::Source};

/// All rules of this module.
pub fn check(sources: &[Source<'_>], settings: &Settings, out: &mut Vec<Finding>) {
    for (directory, &ratio) in &settings.assertions {
        let inside = format!("{directory}/");
        let of_it = || sources.iter().filter(|s| s.path.starts_with(&inside));
        let functions: usize =
            of_it().map(|s| s.functions.iter().filter(|f| !f.test).count()).sum();
        let assertions: usize = of_it().map(|s| s.assertions).sum();
        let needed = functions.div_ceil(ratio);
        if functions == 0 {
            let message = format!("no function is in {directory}: correct [assertions]");
            out.push(Finding::new("xtask/tidy.toml", 0, message));
        } else if assertions < needed {
            let message = format!(
                "{assertions} assertions in {functions} functions, at least {needed} (one for \
                 {ratio}): assert what the new functions rely on"
            );
            out.push(Finding::new(directory, 0, message));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::{source, tree::Tree};

    fn messages(files: &[(&str, &str)]) -> Vec<String> {
        let tree = Tree::sample(files);
        let mut out = Vec::new();
        let sources = source::parse_all(&tree, &mut out);
        let settings = Settings::parse("[assertions]\n\"a/src\" = 3\n").unwrap();
        check(&sources, &settings, &mut out);
        out.into_iter().map(|f| f.message).collect()
    }

    #[test]
    fn the_ratio_is_that_of_the_directory() {
        let three = "fn a() {}\nfn b() {}\nfn c(x: u8) { debug_assert!(x > 0); }\n";
        assert!(messages(&[("a/src/x.rs", three)]).is_empty());
        // One function more needs a second assertion, wherever in the directory it stands.
        let with = |text| messages(&[("a/src/x.rs", three), ("a/src/y/z.rs", text)]);
        let found = with("fn d() {}\n");
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("1 assertions in 4 functions, at least 2"), "{found:?}");
        assert!(with("fn d(x: u8) { debug_assert!(x > 0); }\n").is_empty());
    }

    #[test]
    fn tests_and_other_directories_count_for_nothing() {
        let bare = "fn a() {}\n";
        let asserts = "fn a() { assert!(b()); }\n";
        let test = "#[test]\nfn t() { assert!(b()); }\n";
        for other in ["a/src/tests.rs", "a/src2/x.rs", "b/src/x.rs"] {
            assert_eq!(messages(&[("a/src/x.rs", bare), (other, asserts)]).len(), 1, "{other}");
        }
        assert_eq!(messages(&[("a/src/x.rs", bare), ("a/src/y.rs", test)]).len(), 1);
    }

    #[test]
    fn a_directory_without_functions_is_an_error_of_the_settings() {
        assert!(messages(&[("b/src/x.rs", "fn a() {}\n")])[0].contains("correct [assertions]"));
    }
}
