//! Spec files: a base, cases that change parts of it, and the changes of `--quick`.

mod also;
mod axes;
mod level;
mod locate;

use super::Spec;
use locate::line_of;
use std::path::{Path, PathBuf};
use toml::{Table, Value};

/// Experiments embedded in the program: name and text.
pub const EMBEDDED: &[(&str, &str)] = &[
    ("scale", include_str!("../../specs/scale.toml")),
    ("fig2", include_str!("../../specs/fig2.toml")),
    ("fig3", include_str!("../../specs/fig3.toml")),
    ("fig4", include_str!("../../specs/fig4.toml")),
    ("fig6", include_str!("../../specs/fig6.toml")),
    ("incast", include_str!("../../specs/incast.toml")),
    ("smallincast", include_str!("../../specs/smallincast.toml")),
    ("linkfail", include_str!("../../specs/linkfail.toml")),
    ("slowlinks", include_str!("../../specs/slowlinks.toml")),
    ("contexts", include_str!("../../specs/contexts.toml")),
    ("ordering", include_str!("../../specs/ordering.toml")),
    ("spray-microbursts", include_str!("../../specs/spray-microbursts.toml")),
    ("ablation", include_str!("../../specs/ablation.toml")),
    ("permutation", include_str!("../../specs/permutation.toml")),
    ("poisson", include_str!("../../specs/poisson.toml")),
    ("shipping", include_str!("../../specs/shipping.toml")),
    ("matrix", include_str!("../../specs/matrix.toml")),
    ("vc-congestion", include_str!("../../specs/vc-congestion.toml")),
    ("saa", include_str!("../../specs/saa.toml")),
    ("rr", include_str!("../../specs/rr.toml")),
    ("saa-buffers", include_str!("../../specs/saa-buffers.toml")),
    ("saa-dynamic", include_str!("../../specs/saa-dynamic.toml")),
    ("saa-app", include_str!("../../specs/saa-app.toml")),
    ("ordered", include_str!("../../specs/ordered.toml")),
    ("copa", include_str!("../../specs/copa.toml")),
    ("copa-recovery", include_str!("../../specs/copa-recovery.toml")),
    ("copa-multi", include_str!("../../specs/copa-multi.toml")),
    ("copa-srd", include_str!("../../specs/copa-srd.toml")),
    ("roce", include_str!("../../specs/roce.toml")),
    ("headofline", include_str!("../../specs/headofline.toml")),
    ("deadlock", include_str!("../../specs/deadlock.toml")),
    ("timeouts", include_str!("../../specs/timeouts.toml")),
    ("table", include_str!("../../specs/table.toml")),
    ("outstanding", include_str!("../../specs/outstanding.toml")),
    ("peers", include_str!("../../specs/peers.toml")),
    ("flowcap", include_str!("../../specs/flowcap.toml")),
    ("generations", include_str!("../../specs/generations.toml")),
    ("apps", include_str!("../../specs/apps.toml")),
    ("coexist", include_str!("../../specs/coexist.toml")),
    ("hostnoise", include_str!("../../specs/hostnoise.toml")),
];

/// The rows of `run guards`, which `all` does not include, because each row runs once for each
/// guard.
const GUARDS: (&str, &str) = ("guards", include_str!("../../specs/guards.toml"));

/// Text of an embedded experiment; `None` if there is none of this name.
pub fn embedded(name: &str) -> Option<&'static str> {
    EMBEDDED.iter().chain([&GUARDS]).find(|(n, _)| *n == name).map(|(_, text)| *text)
}

/// A parsed spec file.
#[derive(Clone, Debug)]
pub struct SpecFile {
    /// Cases in the order of the file.
    pub cases: Vec<Spec>,
    /// Folder of the files that the spec names.
    pub folder: PathBuf,
}

impl SpecFile {
    /// Reads an embedded experiment by name, or a file.
    ///
    /// # Errors
    /// The text says what is wrong and where.
    pub fn load(name: &str, quick: bool) -> Result<Self, String> {
        Self::load_with(name, quick, &[], &[])
    }

    /// Like [`SpecFile::load`], with changes to every case, each a line of TOML such as
    /// `engine.paths = 16`, and with every case run for each value of a field, such as
    /// `engine.paths = 16,64`.
    ///
    /// # Errors
    /// The text says what is wrong and where.
    pub fn load_with(
        name: &str,
        quick: bool,
        changes: &[String],
        sweeps: &[String],
    ) -> Result<Self, String> {
        if let Some(text) = embedded(name) {
            return Self::parse_with(text, Path::new("."), quick, changes, sweeps)
                .map_err(|e| format!("experiment {name}: {e}"));
        }
        let path = Path::new(name);
        if !path.exists() {
            let names: Vec<_> = EMBEDDED.iter().map(|(n, _)| *n).collect();
            return Err(format!(
                "{name} is neither a file nor an experiment; the experiments are {}",
                names.join(", ")
            ));
        }
        let text = std::fs::read_to_string(path).map_err(|e| format!("{name}: {e}"))?;
        let folder = path.parent().unwrap_or(Path::new("."));
        Self::parse_with(&text, folder, quick, changes, sweeps).map_err(|e| format!("{name}: {e}"))
    }

    /// Parses the text of a spec file.
    ///
    /// # Errors
    /// The text says what is wrong and where.
    pub fn parse(text: &str, folder: &Path, quick: bool) -> Result<Self, String> {
        Self::parse_with(text, folder, quick, &[], &[])
    }

    fn parse_with(
        text: &str,
        folder: &Path,
        quick: bool,
        changes: &[String],
        sweeps: &[String],
    ) -> Result<Self, String> {
        let sweeps = sweeps.iter().map(|s| sweep_of(s)).collect::<Result<Vec<_>, _>>()?;
        let mut base: Table = text.parse().map_err(|e: toml::de::Error| e.to_string())?;
        let quick_changes = match base.remove("quick") {
            None => Table::new(),
            Some(Value::Table(t)) => t,
            Some(_) => return Err("`quick` must be a table".into()),
        };
        let cases = match base.remove("cases") {
            None => vec![Value::Table(Table::new())],
            Some(Value::Array(a)) => a,
            Some(_) => return Err("`cases` must be an array of tables ([[cases]])".into()),
        };
        if quick {
            merge(&mut base, quick_changes);
        }
        let changes = changes
            .iter()
            .map(|text| text.parse::<Table>().map_err(|e| format!("`{text}`: {}", e.message())));
        let changes = changes.collect::<Result<Vec<_>, _>>()?;
        let points = points_of(base, cases, quick, &sweeps)?;
        let mut tables = Vec::new();
        for (_, whole, over) in &points {
            let mut whole = whole.clone();
            for change in changes.iter().chain([over]) {
                also::change(&mut whole, change.clone())?;
            }
            tables.push(whole);
        }
        let overs = points.iter().map(|(.., over)| over);
        if let Some(e) = also::unknown(changes.iter().chain(overs), &tables) {
            return Err(e);
        }
        let numbers = points.iter().map(|(i, ..)| i + 1);
        let cases = numbers.zip(tables).map(|(number, whole)| case_of(text, number, whole));
        Ok(Self { cases: cases.collect::<Result<_, _>>()?, folder: folder.into() })
    }
}

/// The case of a merged table; `number`: its place in the file, from 1 on.
fn case_of(text: &str, number: usize, mut whole: Table) -> Result<Spec, String> {
    level::defaults(&mut whole);
    // `host` is a table or the name of a model.
    if let Some(Value::String(_)) = whole.get("host")
        && let Some(model) = whole.remove("host")
    {
        whole.insert("host_model".into(), model);
    }
    let parsed = |table: Table| {
        table.try_into().map_err(|e: toml::de::Error| {
            let line = line_of(text, &e.to_string());
            let line = line.map_or(String::new(), |n| format!("line {n}: "));
            format!("{line}case {number}: {}", e.to_string().trim().replace('\n', " "))
        })
    };
    let mut also = also::take(&mut whole).map_err(|e| format!("case {number}: {e}"))?;
    also.iter_mut().for_each(level::defaults);
    let mut spec: Spec = parsed(whole)?;
    spec.also = also.into_iter().map(parsed).collect::<Result<_, String>>()?;
    Ok(spec)
}

/// The merged table of every case, with the case's number, and the changes of `sweeps`.
fn points_of(
    mut base: Table,
    cases: Vec<Value>,
    quick: bool,
    sweeps: &[Sweep],
) -> Result<Vec<(usize, Table, Table)>, String> {
    let axes = match base.remove("axes") {
        None => Table::new(),
        Some(Value::Table(t)) => t,
        Some(_) => return Err("`axes` must be a table of arrays ([[axes.NAME]])".into()),
    };
    let across = base.remove("across");
    let mut out = Vec::new();
    for (i, case) in cases.into_iter().enumerate() {
        let Value::Table(case) = case else {
            return Err(format!("case {} is not a table", i + 1));
        };
        let points = axes::expand(case, &axes, across.as_ref());
        let mut points = points.map_err(|e| format!("case {}: {e}", i + 1))?;
        for sweep in sweeps {
            points = axes::crossed_over(&points, &sweep.name, &sweep.values)?;
        }
        for mut point in points.into_iter().filter(|p| !(quick && p.slow)) {
            let name = point.labels.join(", ");
            point.changes.insert("case".into(), Value::String(name));
            let labels = point.labels.into_iter().map(Value::String).collect();
            point.changes.insert("labels".into(), Value::Array(labels));
            point.changes.insert("axis".into(), Value::Array(point.axis));
            let mut whole = base.clone();
            merge(&mut whole, point.changes);
            out.push((i, whole, point.over));
        }
    }
    Ok(out)
}

/// An axis from the command line.
struct Sweep {
    /// The last part of the field's name.
    name: String,
    values: Vec<Value>,
}

/// Reads `engine.paths=16,64,128`: a field and its values.
fn sweep_of(text: &str) -> Result<Sweep, String> {
    let wrong = |why: &str| {
        format!("--sweep {text}: {why}; give FIELD=VALUE,VALUE,…, as in engine.paths=16,64,128")
    };
    let (field, values) = text.split_once('=').ok_or_else(|| wrong("there is no `=`"))?;
    let field = field.trim();
    let table: Table = format!("values = [{values}]").parse().map_err(|e: toml::de::Error| {
        wrong(&format!("the values are not those of a TOML array ({})", e.message()))
    })?;
    let Some(Value::Array(values)) = table.get("values").filter(|_| !field.is_empty()) else {
        return Err(wrong("there is no field"));
    };
    if values.is_empty() {
        return Err(wrong("there is no value"));
    }
    let name = field.rsplit('.').next().unwrap_or(field).to_string();
    let values = values.iter().map(|v| axes::swept(&name, field, v)).collect();
    Ok(Sweep { name, values })
}

/// Merges `over` into `base`, table by table.
fn merge(base: &mut Table, over: Table) {
    for (key, value) in over {
        match (base.get_mut(&key), value) {
            (Some(Value::Table(b)), Value::Table(o)) => merge(b, o),
            (_, value) => {
                base.insert(key, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_embedded_spec_parses() {
        for (name, text) in EMBEDDED {
            for quick in [false, true] {
                let file = SpecFile::parse(text, Path::new("."), quick);
                let cases = file.unwrap_or_else(|e| panic!("{name}: {e}")).cases;
                assert!(!cases.is_empty());
                assert!(cases.iter().all(|c| c.name == *name));
            }
        }
    }

    #[test]
    fn unknown_fields_are_refused() {
        let text = embedded("incast").unwrap().replace("[network]", "[network]\nbufer_bytes = 3");
        let e = SpecFile::parse(&text, Path::new("."), false).unwrap_err();
        assert!(e.contains("bufer_bytes"), "{e}");
    }
}
