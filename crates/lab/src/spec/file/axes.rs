//! Axes of an experiment: a case that names axes stands for every combination of their values.

use super::merge;
use toml::{Table, Value};

/// One combination: its changes and the parts of its name.
#[derive(Clone, Debug)]
pub struct Point {
    /// Changes to the base.
    pub changes: Table,
    /// Changes to the merged case, of the command line.
    pub over: Table,
    /// The case's own name, if any, and the label of each axis' value.
    pub labels: Vec<String>,
    /// The value of each axis: tables with the fields of [`crate::spec::AxisValue`].
    pub axis: Vec<Value>,
    /// Omitted from the reduced set.
    pub slow: bool,
}

/// The combinations of a case, with the last axis varying first. `axes`: `[[axes.NAME]]` of the
/// file, each value with a `label`; `across`: axes of cases without their own `across`.
pub fn expand(mut case: Table, axes: &Table, across: Option<&Value>) -> Result<Vec<Point>, String> {
    let names = match case.remove("across").as_ref().or(across) {
        None => Vec::new(),
        Some(Value::Array(names)) => names.clone(),
        Some(_) => return Err("`across` must be an array of names of axes".into()),
    };
    let slow = flag(&mut case, "slow")?;
    let labels = match case.get("case") {
        Some(Value::String(name)) if !name.is_empty() => vec![name.clone()],
        _ => Vec::new(),
    };
    let mut points =
        vec![Point { changes: case, over: Table::new(), labels, axis: Vec::new(), slow }];
    let base = |point: &mut Point, changes| merge(&mut point.changes, changes);
    for name in &names {
        let name = name.as_str().ok_or("`across` must be an array of names of axes")?;
        points = match axes.get(name) {
            Some(Value::Array(values)) => crossed(&points, name, values, base)?,
            Some(Value::Table(sweep)) => crossed(&points, name, &sweep_values(name, sweep)?, base)?,
            _ => {
                return Err(format!(
                    "`across` names the axis {name}, but [[axes.{name}]] does not exist"
                ));
            }
        };
    }
    Ok(points)
}

/// The values of an axis that is one field: `{ field = "network.buffer_bytes", values = [1, 2] }`.
fn sweep_values(name: &str, sweep: &Table) -> Result<Vec<Value>, String> {
    if let Some(other) = sweep.keys().find(|k| !["field", "values"].contains(&k.as_str())) {
        return Err(format!("axes.{name}: `{other}` is neither `field` nor `values`"));
    }
    let (Some(Value::String(field)), Some(Value::Array(values))) =
        (sweep.get("field"), sweep.get("values"))
    else {
        return Err(format!(
            "axes.{name}: give {{ field = \"network.buffer_bytes\", values = [100_000, 200_000] }} \
             or an array of tables with a `label` each"
        ));
    };
    Ok(values.iter().map(|v| swept(name, field, v)).collect())
}

/// The changes of one value of a swept field, with their label.
pub fn swept(name: &str, field: &str, value: &Value) -> Value {
    let mut inner = value.clone();
    for part in field.rsplit('.') {
        inner = Value::Table(Table::from_iter([(part.to_string(), inner)]));
    }
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Integer(n) => thousands(*n),
        other => other.to_string(),
    };
    if let Value::Table(changes) = &mut inner {
        changes.insert("label".into(), Value::String(format!("{name} {text}")));
    }
    inner
}

/// A number with an underscore between thousands, as specs have it.
fn thousands(n: i64) -> String {
    let digits = n.unsigned_abs().to_string();
    let mut out = String::from(if n < 0 { "-" } else { "" });
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push('_');
        }
        out.push(digit);
    }
    out
}

/// The only field that all values of an axis change, if they set it to a number each.
fn number_field(values: &[Value]) -> Option<String> {
    let mut name: Option<String> = None;
    for value in values {
        let mut leaves = Vec::new();
        leaves_of("", value, &mut leaves);
        let [(field, Value::Integer(_) | Value::Float(_))] = leaves.as_slice() else { return None };
        if name.get_or_insert_with(|| field.clone()) != field {
            return None;
        }
    }
    name
}

/// The fields that a value of an axis changes, except its label.
fn leaves_of<'a>(path: &str, value: &'a Value, out: &mut Vec<(String, &'a Value)>) {
    match value {
        Value::Table(table) => {
            for (key, inner) in table.iter().filter(|(k, _)| *k != "label" && *k != "slow") {
                let dot = if path.is_empty() { "" } else { "." };
                leaves_of(&format!("{path}{dot}{key}"), inner, out);
            }
        }
        leaf => out.push((path.to_string(), leaf)),
    }
}

/// Multiplies cases by the values of an axis of the command line.
pub fn crossed_over(points: &[Point], name: &str, values: &[Value]) -> Result<Vec<Point>, String> {
    crossed(points, name, values, |point, changes| merge(&mut point.over, changes))
}

/// Multiplies cases by the values of an axis, which `add` gives to a point.
fn crossed(
    points: &[Point],
    name: &str,
    values: &[Value],
    add: impl Fn(&mut Point, Table),
) -> Result<Vec<Point>, String> {
    let mut out = Vec::new();
    let field = number_field(values);
    for point in points {
        for value in values {
            let mut changes =
                value.as_table().cloned().ok_or_else(|| format!("axes.{name} must hold tables"))?;
            let slow = flag(&mut changes, "slow")? || point.slow;
            let Some(Value::String(label)) = changes.remove("label") else {
                return Err(format!("a value of axes.{name} has no `label`"));
            };
            let mut next = Point { slow, ..point.clone() };
            next.axis.push(axis_value(name, &label, field.as_deref(), value));
            next.labels.push(label);
            add(&mut next, changes);
            out.push(next);
        }
    }
    Ok(out)
}

/// The table of a [`crate::spec::AxisValue`].
fn axis_value(name: &str, label: &str, field: Option<&str>, value: &Value) -> Value {
    let text = |s: &str| Value::String(s.into());
    let mut table = Table::from_iter([("name".into(), text(name)), ("label".into(), text(label))]);
    if let Some(field) = field {
        let mut leaves = Vec::new();
        leaves_of("", value, &mut leaves);
        table.insert("field".into(), text(field));
        table.extend(leaves.first().map(|(_, v)| ("value".to_string(), (*v).clone())));
    }
    Value::Table(table)
}

fn flag(table: &mut Table, name: &str) -> Result<bool, String> {
    match table.remove(name) {
        None => Ok(false),
        Some(Value::Boolean(b)) => Ok(b),
        Some(_) => Err(format!("`{name}` must be true or false")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(text: &str) -> Table {
        text.parse().unwrap()
    }

    const AXES: &str = "size = [{ label = \"8 KB\", workload.bytes = 8192 },\n\
        { label = \"8 MB\", workload.bytes = 8_388_608, slow = true }]\n\
        who = [{ label = \"SRD\" }, { label = \"TCP\", transport = \"tcp\" }]";

    #[test]
    fn a_case_stands_for_every_combination() {
        let case = table("case = \"deep\"\nacross = [\"size\", \"who\"]\nnetwork.k = 4");
        let points = expand(case, &table(AXES), None).unwrap();
        let names: Vec<String> = points.iter().map(|p| p.labels.join(", ")).collect();
        let want = ["deep, 8 KB, SRD", "deep, 8 KB, TCP", "deep, 8 MB, SRD", "deep, 8 MB, TCP"];
        assert_eq!(names, want);
        assert_eq!(points.iter().map(|p| p.slow).collect::<Vec<_>>(), [false, false, true, true]);
        let last = &points[3].changes;
        assert_eq!(last["workload"]["bytes"].as_integer(), Some(8_388_608));
        assert_eq!(last["transport"].as_str(), Some("tcp"));
        assert_eq!(last["network"]["k"].as_integer(), Some(4));
    }

    #[test]
    fn a_field_is_swept_in_one_line() {
        let axes = "b = { field = \"network.buffer_bytes\", values = [50_000, 1_000_000] }";
        let points = expand(table("across = [\"b\"]"), &table(axes), None).unwrap();
        let names: Vec<String> = points.iter().map(|p| p.labels.join(", ")).collect();
        assert_eq!(names, ["b 50_000", "b 1_000_000"]);
        assert_eq!(points[1].changes["network"]["buffer_bytes"].as_integer(), Some(1_000_000));
        let axis = points[0].axis[0].as_table().unwrap();
        assert_eq!(axis["field"].as_str(), Some("network.buffer_bytes"));
        assert_eq!(axis["value"].as_integer(), Some(50_000));
        // Axes whose values change one number are numbers, too; others are not.
        let case = table("across = [\"size\", \"who\"]");
        let points = expand(case, &table(AXES), None).unwrap();
        assert_eq!(points[2].axis[0]["value"].as_integer(), Some(8_388_608));
        assert!(points[2].axis[1].get("field").is_none());
        assert_eq!([0, 7, -1234, 100_000].map(thousands), ["0", "7", "-1_234", "100_000"]);
        for wrong in ["b = { field = 3 }", "b = { field = \"x\", values = [1], slow = true }"] {
            let e = expand(table("across = [\"b\"]"), &table(wrong), None).unwrap_err();
            assert!(e.contains("axes.b"), "{e}");
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (case, part) in
            [("across = [\"sizes\"]", "sizes"), ("across = 3", "across"), ("slow = 1", "slow")]
        {
            let e = expand(table(case), &table(AXES), None).unwrap_err();
            assert!(e.contains(part), "{case}: {e}");
        }
        let e = expand(table("across = [\"a\"]"), &table("a = [{ b = 1 }]"), None).unwrap_err();
        assert!(e.contains("label"), "{e}");
    }
}
