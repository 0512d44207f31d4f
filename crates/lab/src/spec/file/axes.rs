//! Axes of an experiment: a case that names axes stands for every combination of their values.

use super::merge;
use toml::{Table, Value};

/// One combination: its changes and the parts of its name.
#[derive(Debug)]
pub struct Point {
    /// Changes to the base.
    pub changes: Table,
    /// The case's own name, if any, and the label of each axis' value.
    pub labels: Vec<String>,
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
    let mut points = vec![Point { changes: case, labels, slow }];
    for name in &names {
        let name = name.as_str().ok_or("`across` must be an array of names of axes")?;
        let values = axes.get(name).and_then(Value::as_array).ok_or_else(|| {
            format!("`across` names the axis {name}, but [[axes.{name}]] does not exist")
        })?;
        points = crossed(&points, name, values)?;
    }
    Ok(points)
}

fn crossed(points: &[Point], name: &str, values: &[Value]) -> Result<Vec<Point>, String> {
    let mut out = Vec::new();
    for point in points {
        for value in values {
            let mut changes =
                value.as_table().cloned().ok_or_else(|| format!("axes.{name} must hold tables"))?;
            let slow = flag(&mut changes, "slow")? || point.slow;
            let Some(Value::String(label)) = changes.remove("label") else {
                return Err(format!("a value of axes.{name} has no `label`"));
            };
            let mut whole = point.changes.clone();
            merge(&mut whole, changes);
            let mut labels = point.labels.clone();
            labels.push(label);
            out.push(Point { changes: whole, labels, slow });
        }
    }
    Ok(out)
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
