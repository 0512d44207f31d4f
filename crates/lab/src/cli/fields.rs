//! `lab fields`: every field of a spec, from the types that parse it.

use crate::spec::Spec;
use serde_json::Value;
use std::fmt::Write as _;

/// Widest text of a meaning in a line.
const MEANING_WIDTH: usize = 100;

/// Units by the last part of a field's name.
const UNITS: [(&str, &str); 14] = [
    ("gbps", "Gb/s"),
    ("mbps", "Mb/s"),
    ("bytes", "B"),
    ("bytes_min", "B"),
    ("bytes_max", "B"),
    ("mss", "B"),
    ("mtu", "B"),
    ("ns", "ns"),
    ("us", "us"),
    ("ms", "ms"),
    ("ms_max", "ms"),
    ("percent", "%"),
    ("packets", "packets"),
    ("rtts", "base RTTs"),
];

/// One field.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// Name with its tables, as `--set` takes it.
    pub path: String,
    /// Unit, or empty.
    pub unit: &'static str,
    /// Kind of value with its range, or the words that are allowed.
    pub values: String,
    /// Default, `required`, or `-`: see the meaning.
    pub default: String,
    /// Meaning in full sentences.
    pub meaning: String,
}

/// The JSON Schema of a spec file's cases.
pub fn schema() -> Value {
    let schema = schemars::schema_for!(Spec);
    schema.to_value()
}

/// All fields in the order of the parser, depth first.
pub fn fields() -> Vec<Field> {
    let schema = schema();
    let mut out = Vec::new();
    walk(&schema, &schema, "", &mut out);
    out
}

/// The text of the command: fields whose names contain `part`.
pub fn text(part: Option<&str>) -> Result<String, String> {
    let all = fields();
    let wanted: Vec<&Field> =
        all.iter().filter(|f| part.is_none_or(|p| f.path.contains(p))).collect();
    if wanted.is_empty() {
        return Err(format!(
            "no field's name contains \"{}\"; `lab fields` without a name lists all of them",
            part.unwrap_or_default()
        ));
    }
    let mut rows = vec![["field", "unit", "default", "values"].map(String::from).to_vec()];
    for f in &wanted {
        rows.push(vec![f.path.clone(), f.unit.into(), f.default.clone(), f.values.clone()]);
    }
    let table = columns_left(&rows);
    let mut lines = table.lines();
    let mut out = format!("{}\n", lines.next().unwrap_or_default());
    for (line, field) in lines.zip(&wanted) {
        let _ = writeln!(out, "{line}");
        for part in wrapped(&field.meaning, MEANING_WIDTH) {
            let _ = writeln!(out, "    {part}");
        }
    }
    Ok(out)
}

/// Text columns as wide as their contents, all of them to the left.
fn columns_left(rows: &[Vec<String>]) -> String {
    let most = |c: usize| rows.iter().map(|r| r[c].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..rows[0].len()).map(most).collect();
    let mut out = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        let line = cells.collect::<Vec<_>>().join("  ");
        let _ = writeln!(out, "{}", line.trim_end());
    }
    out
}

/// Lines of at most `width` characters.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let last = lines.len() - 1;
        let line = &mut lines[last];
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > width {
            lines.push(word.into());
            continue;
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines
}

/// Follows references and options to the schema of a value.
fn resolved<'a>(root: &'a Value, mut node: &'a Value) -> &'a Value {
    loop {
        if let Some(name) = node.get("$ref").and_then(Value::as_str) {
            let Some(next) = root.pointer(name.trim_start_matches('#')) else { return node };
            node = next;
            continue;
        }
        let some = node.get("anyOf").and_then(Value::as_array);
        let some = some.and_then(|all| all.iter().find(|n| n["type"] != "null"));
        match some {
            Some(next) => node = next,
            None => return node,
        }
    }
}

fn walk(root: &Value, table: &Value, path: &str, out: &mut Vec<Field>) {
    if let Some(kinds) = table.get("oneOf").and_then(Value::as_array) {
        for kind in kinds {
            let name = kind.pointer("/properties/kind/const").and_then(Value::as_str);
            walk(root, kind, &format!("{path} (kind {})", name.unwrap_or_default()), out);
        }
        return;
    }
    let Some(properties) = table.get("properties").and_then(Value::as_object) else { return };
    let required: Vec<&str> = table["required"]
        .as_array()
        .map(|all| all.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default();
    // The kind of a fault is in its path.
    for (name, node) in properties.iter().filter(|(name, _)| *name != "kind") {
        let dot = if path.is_empty() { "" } else { "." };
        let whole = format!("{path}{dot}{name}");
        let value = resolved(root, node);
        let inner = match value.get("items") {
            Some(items) if value["type"] == "array" => resolved(root, items),
            _ => value,
        };
        let many = inner.get("properties").is_some() || is_kinds(inner);
        out.push(Field {
            unit: unit(name),
            values: if many { tables(value).into() } else { values(root, value) },
            default: default(node, required.contains(&name.as_str()), many),
            meaning: meaning(node, value),
            path: whole.clone(),
        });
        if many {
            walk(root, inner, &whole, out);
        }
    }
}

/// Whether a table has fields that depend on its kind.
fn is_kinds(node: &Value) -> bool {
    let kinds = node.get("oneOf").and_then(Value::as_array);
    kinds.is_some_and(|all| all.iter().all(|k| k.pointer("/properties/kind").is_some()))
}

fn tables(value: &Value) -> &'static str {
    if value["type"] == "array" { "array of tables" } else { "table" }
}

/// The unit that a name ends with: at least its last part.
fn unit(name: &str) -> &'static str {
    let ends = |suffix: &&(&str, &str)| {
        name == suffix.0 || name.strip_suffix(suffix.0).is_some_and(|rest| rest.ends_with('_'))
    };
    // The longest suffix decides.
    UNITS.iter().filter(ends).max_by_key(|u| u.0.len()).map_or("", |u| u.1)
}

/// Kind and range of a value, or its words.
fn values(root: &Value, value: &Value) -> String {
    let word = |v: &Value| format!("\"{}\"", v.as_str().unwrap_or_default());
    if let Some(all) = value.get("enum").and_then(Value::as_array) {
        return all.iter().map(word).collect::<Vec<_>>().join(", ");
    }
    if let Some(all) = value.get("oneOf").and_then(Value::as_array) {
        let each = all.iter().flat_map(|one| match one.get("enum").and_then(Value::as_array) {
            Some(words) => words.iter().map(word).collect::<Vec<_>>(),
            None => vec![word(&one["const"])],
        });
        return each.collect::<Vec<_>>().join(", ");
    }
    let kind = match &value["type"] {
        Value::Array(kinds) => kinds.iter().find(|k| *k != "null").cloned().unwrap_or_default(),
        kind => kind.clone(),
    };
    match kind.as_str() {
        Some("boolean") => "true, false".into(),
        Some("string") => "text".into(),
        Some("array") => format!("list: {}", values(root, resolved(root, &value["items"]))),
        Some("integer") => range("whole number", value),
        Some("number") => range("number", value),
        _ => "table".into(),
    }
}

fn range(kind: &str, value: &Value) -> String {
    let format = value["format"].as_str().unwrap_or_default();
    let bits = format.strip_prefix("uint").and_then(|b| b.parse::<u32>().ok());
    let most = bits.filter(|b| *b < 64).map(|b| ((1u64 << b) - 1).to_string());
    let bound = |name: &str| value.get(name).map(Value::to_string);
    match (bound("minimum"), bound("maximum").or(most)) {
        (Some(least), Some(most)) => format!("{kind} from {least} to {most}"),
        (Some(least), None) => format!("{kind} from {least}"),
        (None, Some(most)) => format!("{kind} up to {most}"),
        (None, None) => kind.into(),
    }
}

fn default(node: &Value, required: bool, many: bool) -> String {
    match node.get("default") {
        _ if required => "required".into(),
        Some(Value::Null) | None => "-".into(),
        // Each field of a table has its own.
        Some(_) if many => "-".into(),
        Some(Value::Array(all)) if all.is_empty() => "empty".into(),
        Some(Value::String(text)) if text.is_empty() => "empty".into(),
        Some(value) => value.to_string(),
    }
}

/// The field's own words, or those of its type.
fn meaning(node: &Value, value: &Value) -> String {
    let text = node.get("description").or(value.get("description")).and_then(Value::as_str);
    // References between items of the documentation are names of fields.
    text.unwrap_or_default().replace("[`", "`").replace("`]", "`")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(path: &str) -> Field {
        let all = fields();
        all.into_iter().find(|f| f.path == path).unwrap_or_else(|| panic!("no {path}"))
    }

    #[test]
    fn fields_have_unit_values_default_and_meaning() {
        let f = field("network.link_gbps");
        assert_eq!((f.unit, f.default.as_str()), ("Gb/s", "100.0"));
        let f = field("network.ecn_bytes_max");
        assert_eq!((f.unit, f.default.as_str()), ("B", "108800"));
        assert_eq!(field("network.shape").default, "required");
        assert!(field("network.shape").values.contains("\"leaf-spine\""));
        assert_eq!(field("engine.verb").default, "\"write\"");
        assert_eq!(field("engine.mtu").values, "whole number from 0 to 65535");
        assert!(field("tcp.cc").meaning.contains("dctcp"));
        assert!(field("fault (kind down).routing_us").meaning.contains("never"));
        assert_eq!(field("workload.poisson.load").default, "required");
    }

    #[test]
    fn every_field_has_a_meaning() {
        let all = fields();
        assert!(all.len() > 180, "{}", all.len());
        for f in all {
            assert!(!f.meaning.is_empty(), "{}", f.path);
        }
    }

    #[test]
    fn every_field_says_what_holds_without_it() {
        // Those of a shape, a pattern or a kind are required there, and absent elsewhere.
        let own =
            ["network.", "workload.", "fault", "axis", "goal", "plot", "copa", "saa", "static"];
        for f in fields().iter().filter(|f| f.default == "-" && f.values != "table") {
            let said = f.meaning.contains("default") || f.values == "array of tables";
            let by_kind = own.iter().any(|o| f.path.starts_with(o));
            assert!(said || by_kind, "{}: no default in \"{}\"", f.path, f.meaning);
        }
    }

    #[test]
    fn a_part_of_a_name_selects() {
        let text = text(Some("buffer_alpha")).unwrap();
        assert!(
            text.contains("network.shared_buffer_alpha") && text.lines().count() >= 3,
            "{text}"
        );
        assert!(super::text(Some("no_such")).unwrap_err().contains("no_such"));
    }
}
