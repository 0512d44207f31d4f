//! Line numbers of errors in spec files. Cases are merged before they are parsed, so the parser
//! knows the field only.

/// Line (from 1) of the field that an error names, if the text has one.
pub fn line_of(text: &str, error: &str) -> Option<usize> {
    let quoted = |before: &str| {
        let (_, rest) = error.split_once(before)?;
        rest.split_once('`').map(|(name, _)| name.to_string())
    };
    let parent = quoted("\nin `");
    let path = match (quoted("unknown field `"), parent) {
        (Some(field), Some(parent)) => format!("{parent}.{field}"),
        (Some(field), None) => field,
        (None, Some(path)) => path,
        (None, None) => return None,
    };
    let lines = || fields(text);
    let whole = lines().find(|(_, field)| *field == path).map(|(at, _)| at);
    // Inline tables and arrays are not parsed; the result is the line that sets a field of this
    // name.
    let last = path.rsplit('.').next().unwrap_or(&path);
    whole.or_else(|| {
        let sets = |line: &str| {
            line.match_indices(last).any(|(at, _)| {
                let before = line[..at].chars().next_back();
                let apart = before.is_none_or(|c| !c.is_alphanumeric() && c != '_' && c != '-');
                apart && line[at + last.len()..].trim_start().starts_with('=')
            })
        };
        text.lines().position(sets).map(|i| i + 1)
    })
}

/// Every line that sets a field, with the field's full name. Fields of a case or of the quick set
/// are named as in the merged case.
fn fields(text: &str) -> impl Iterator<Item = (usize, String)> + '_ {
    let mut table = String::new();
    text.lines().enumerate().filter_map(move |(i, line)| {
        let line = line.trim();
        if line.starts_with('[') {
            let name = line.trim_start_matches('[').split(']').next().unwrap_or("").trim();
            let name = name.strip_prefix("cases").or(name.strip_prefix("quick")).unwrap_or(name);
            table = name.trim_start_matches('.').to_string();
            return None;
        }
        let (key, _) = line.split_once('=')?;
        let key = key.trim().replace(' ', "");
        let field = if table.is_empty() { key } else { format!("{table}.{key}") };
        Some((i + 1, field))
    })
}

#[cfg(test)]
mod tests {
    use super::line_of;

    const TEXT: &str = "name = \"a\"\n\n[network]\nshape = \"fat-tree\"\nk = \"x\"\n\n\
                        [[cases]]\nengine.paths = 1.5\nfault = [{ kind = \"hole\", spine = -1 }]\n";

    #[test]
    fn the_line_of_a_field_in_a_table_a_case_and_a_list() {
        assert_eq!(line_of(TEXT, "invalid type\nin `network.k`\n"), Some(5));
        assert_eq!(line_of(TEXT, "invalid type\nin `engine.paths`\n"), Some(8));
        assert_eq!(line_of(TEXT, "invalid value\nin `fault.spine`\n"), Some(9));
        assert_eq!(line_of(TEXT, "unknown field `k`, expected x\nin `network`\n"), Some(5));
        assert_eq!(line_of(TEXT, "unknown field `name`, expected x\n"), Some(1));
        assert_eq!(line_of(TEXT, "missing field `title`\n"), None);
    }
}
