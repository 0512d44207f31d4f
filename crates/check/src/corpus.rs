//! `corpus.toml`: seeds that failed once, each with a description.

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The seed.
    pub seed: u64,
    /// What the seed found.
    pub story: String,
}

/// The corpus of this version.
pub const BUILT_IN: &str = include_str!("../corpus.toml");

/// Reads entries of the form `[[seed]]`, `seed = 7`, `story = "…"`.
///
/// # Errors
/// Names the first invalid line, or the entry that lacks a field.
pub fn parse(text: &str) -> Result<Vec<Entry>, String> {
    let mut entries: Vec<(Option<u64>, Option<String>)> = Vec::new();
    for (k, line) in text.lines().enumerate() {
        let line = line.trim();
        let wrong = |what: &str| format!("corpus, line {}: {what}: `{line}`", k + 1);
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if line == "[[seed]]" {
            entries.push((None, None));
            continue;
        }
        let (name, value) = line.split_once('=').ok_or_else(|| wrong("not `name = value`"))?;
        let entry = entries.last_mut().ok_or_else(|| wrong("before the first [[seed]]"))?;
        let value = value.trim();
        match name.trim() {
            "seed" => {
                let seed = value.replace('_', "").parse();
                entry.0 = Some(seed.map_err(|_| wrong("not a number below 2^64"))?);
            }
            "story" => {
                let text = value.strip_prefix('"').and_then(|v| v.strip_suffix('"'));
                entry.1 = Some(text.ok_or_else(|| wrong("not in quotes"))?.into());
            }
            _ => return Err(wrong("neither seed nor story")),
        }
    }
    let whole = |(k, e): (usize, (Option<u64>, Option<String>))| match e {
        (Some(seed), Some(story)) => Ok(Entry { seed, story }),
        _ => Err(format!("corpus, entry {}: needs seed and story", k + 1)),
    };
    entries.into_iter().enumerate().map(whole).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_its_own_corpus_and_says_what_is_wrong() {
        let all = parse(BUILT_IN).unwrap();
        assert!(!all.is_empty() && all.iter().all(|e| e.story.len() > 20));
        assert!(parse("seed = 1").unwrap_err().contains("line 1"));
        assert!(parse("[[seed]]\nseed = x").unwrap_err().contains("line 2"));
        assert!(parse("[[seed]]\nseed = 1").unwrap_err().contains("entry 1"));
        assert_eq!(parse("[[seed]]\nseed = 1_0\nstory = \"s\"").unwrap()[0].seed, 10);
    }
}
