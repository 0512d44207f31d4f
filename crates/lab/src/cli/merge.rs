//! `lab merge`: joins the reports of several runs of an experiment, which had different seeds or
//! cases.

use crate::check::place;
use crate::cli::Failure;
use crate::report::rows::{self, Row};
use crate::report::{rows_page, table_of};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Ending of the files that name the experiments of a folder.
const SUMMARY: &str = "-summary.csv";
/// Ending of the files with flows, and with series.
const LINES: [&str; 2] = [".csv", "-series.csv"];

/// Joins the reports in `folders` into `out`. Returns the text for the terminal. `command`: the
/// command line.
///
/// # Errors
/// If folders hold no reports, or reports that do not fit together.
pub fn merge(folders: &[PathBuf], out: &Path, command: &str) -> Result<String, Failure> {
    let mut parts: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    for folder in folders {
        if same(folder, out) {
            return Err(usage(folder, "a report is not merged into itself; give another --out"));
        }
        let names = experiments(folder)?;
        if names.is_empty() {
            return Err(usage(folder, "there is no report of `lab run --out` here"));
        }
        names.into_iter().for_each(|n| parts.entry(n).or_default().push(folder.clone()));
    }
    // Everything is read and checked before anything is written.
    let merged = parts.iter().map(|(name, folders)| Merged::read(name, folders));
    let merged: Vec<Merged> = merged.collect::<Result<_, _>>()?;
    let fail = |e: std::io::Error| Failure::Failed(format!("{}: {e}", out.display()));
    fs::create_dir_all(out).map_err(fail)?;
    let mut text = String::new();
    for m in merged {
        let report = m.write(out, command).map_err(fail)?;
        let _ = writeln!(text, "{report}report: {}/{}.html\n", out.display(), m.name);
    }
    Ok(text)
}

fn usage(path: &Path, text: &str) -> Failure {
    Failure::Usage(format!("{}: {text}", path.display()))
}

fn same(a: &Path, b: &Path) -> bool {
    a.canonicalize().ok().zip(b.canonicalize().ok()).is_some_and(|(a, b)| a == b)
}

/// Names of the experiments whose reports are in a folder.
fn experiments(folder: &Path) -> Result<BTreeSet<String>, Failure> {
    let fail = |e: std::io::Error| usage(folder, &e.to_string());
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(folder).map_err(fail)? {
        let name = entry.map_err(fail)?.file_name().to_string_lossy().into_owned();
        names.extend(name.strip_suffix(SUMMARY).map(String::from));
    }
    Ok(names)
}

/// The joined reports of one experiment.
struct Merged {
    name: String,
    title: String,
    rows: Vec<Row>,
    /// Version, commits, commands and runs.
    json: Value,
    commands: Vec<String>,
    /// Contents of the files with the endings of [`LINES`].
    lines: Vec<String>,
}

impl Merged {
    fn read(name: &str, folders: &[PathBuf]) -> Result<Self, Failure> {
        let file = |folder: &PathBuf, ending: &str| -> Result<(PathBuf, String), Failure> {
            let path = folder.join(format!("{name}{ending}"));
            let text = fs::read_to_string(&path).map_err(|e| usage(&path, &e.to_string()))?;
            Ok((path, text))
        };
        let (mut rows, mut jsons) = (Vec::new(), Vec::new());
        let mut lines: Vec<Vec<String>> = vec![Vec::new(); LINES.len()];
        for folder in folders {
            let (path, text) = file(folder, SUMMARY)?;
            rows.extend(rows::read(&text).map_err(|e| usage(&path, &e))?);
            let (path, text) = file(folder, ".json")?;
            let value: Value =
                serde_json::from_str(&text).map_err(|e| usage(&path, &e.to_string()))?;
            if !value["runs"].is_array() {
                return Err(usage(&path, "it has no `runs`: written by another version?"));
            }
            jsons.push((path, value));
            for (at, ending) in LINES.iter().enumerate() {
                lines[at].push(file(folder, ending)?.1);
            }
        }
        fits(&jsons)?;
        same_specs(&jsons)?;
        let order = order_of(&rows);
        rows.sort_by_key(|r| (order[&r.case], r.seed));
        twice(name, &rows)?;
        // Series are too long to be sorted; their lines name case and seed.
        let lines = joined(&lines[0], &order).and_then(|a| Ok(vec![a, concatenated(&lines[1])?]));
        let lines = lines.map_err(|e| Failure::Usage(format!("{name}: {e}")))?;
        let title = jsons[0].1.pointer("/runs/0/spec/title").and_then(Value::as_str);
        let title = title.unwrap_or_default().to_string();
        let (json, commands) = joined_json(name, &jsons, &order);
        Ok(Self { name: name.into(), title, rows, json, commands, lines })
    }

    /// Writes all files; returns the text of the table.
    fn write(&self, out: &Path, command: &str) -> std::io::Result<String> {
        let text = format!("{}: {}\n{}", self.name, self.title, table_of(&self.rows, false));
        let mut told = String::new();
        self.commands.iter().chain([&command.to_string()]).for_each(|c| {
            let _ = writeln!(told, "$ {c}");
        });
        let put =
            |ending: &str, text: &str| fs::write(out.join(format!("{}{ending}", self.name)), text);
        put(SUMMARY, &rows::write(&self.rows))?;
        for (ending, lines) in LINES.iter().zip(&self.lines) {
            put(ending, lines)?;
        }
        put(".json", &format!("{:#}\n", self.json))?;
        put(".txt", &format!("{told}{text}"))?;
        put(".html", &rows_page(&self.name, &self.title, &self.rows, &told))?;
        Ok(text)
    }
}

/// Place of each case: that of its first appearance.
fn order_of(rows: &[Row]) -> BTreeMap<String, usize> {
    let mut order = BTreeMap::new();
    for row in rows {
        let next = order.len();
        order.entry(row.case.clone()).or_insert(next);
    }
    order
}

/// Refuses a seed of a case that two reports have. `rows`: sorted.
fn twice(name: &str, rows: &[Row]) -> Result<(), Failure> {
    let pair = |w: &&[Row]| w[0].case == w[1].case && w[0].seed == w[1].seed;
    let Some(pair) = rows.windows(2).find(pair) else { return Ok(()) };
    let differ = if pair[0].hash == pair[1].hash { "" } else { ", with different hashes" };
    Err(Failure::Usage(format!(
        "{}: seed {} is in two reports{differ}; give each part seeds of its own, as in \
         --seeds 1..100 and --seeds 101..200",
        place(name, &pair[0].case),
        pair[0].seed
    )))
}

/// Refuses reports of different versions of the program.
fn fits(jsons: &[(PathBuf, Value)]) -> Result<(), Failure> {
    for field in ["version", "commit"] {
        for (path, json) in &jsons[1..] {
            let (first, own) = (&jsons[0].1[field], &json[field]);
            if first != own {
                return Err(usage(
                    path,
                    &format!(
                        "its {field} is {own}, that of {} is {first}; runs of different programs \
                         are not merged",
                        jsons[0].0.display()
                    ),
                ));
            }
        }
    }
    Ok(())
}

/// Refuses reports in which a case of the same name has another specification: other options of
/// `run`, or an edited file. The number of seeds, and what is measured, may differ.
fn same_specs(jsons: &[(PathBuf, Value)]) -> Result<(), Failure> {
    let mut seen: BTreeMap<String, (&PathBuf, Value)> = BTreeMap::new();
    for (path, json) in jsons {
        for run in json["runs"].as_array().into_iter().flatten() {
            let mut spec = run["spec"].clone();
            if let Some(fields) = spec.as_object_mut() {
                fields.retain(|name, _| name != "seeds" && name != "measure");
            }
            let case = spec["case"].as_str().unwrap_or_default().to_string();
            let (first, known) = seen.entry(case.clone()).or_insert_with(|| (path, spec.clone()));
            if let Some(field) = differing(known, &spec) {
                return Err(usage(
                    path,
                    &format!(
                        "`{field}`{} is not as in {}; runs of different specifications are not \
                         merged",
                        if case.is_empty() {
                            String::new()
                        } else {
                            format!(" of case \"{case}\"")
                        },
                        first.display()
                    ),
                ));
            }
        }
    }
    Ok(())
}

/// Name of the first field, on the highest level, in which two specifications differ.
fn differing(a: &Value, b: &Value) -> Option<String> {
    let (a, b) = (a.as_object()?, b.as_object()?);
    a.keys().chain(b.keys()).find(|k| a.get(*k) != b.get(*k)).cloned()
}

/// One document with all runs, in the order of the rows, and the commands that made them.
fn joined_json(
    name: &str,
    jsons: &[(PathBuf, Value)],
    order: &BTreeMap<String, usize>,
) -> (Value, Vec<String>) {
    let commands = jsons.iter().filter_map(|(_, j)| j["command"].as_str());
    let commands: Vec<String> = commands.map(String::from).collect();
    let runs = jsons.iter().filter_map(|(_, j)| j["runs"].as_array()).flatten();
    let mut runs: Vec<Value> = runs.cloned().collect();
    let place = |run: &Value| {
        let case = run.pointer("/spec/case").and_then(Value::as_str).unwrap_or_default();
        (order.get(case).copied().unwrap_or(usize::MAX), run["seed"].as_u64())
    };
    runs.sort_by_key(place);
    let json = json!({
        "experiment": name,
        "version": jsons[0].1["version"],
        "commit": jsons[0].1["commit"],
        "command": commands.join("; "),
        "runs": runs,
    });
    (json, commands)
}

/// One CSV text of several with the columns `case` and `seed`, which may have different columns of
/// axes, in the order of cases and seeds.
fn joined(texts: &[String], order: &BTreeMap<String, usize>) -> Result<String, String> {
    let mut head: Vec<String> = Vec::new();
    let mut parts = Vec::new();
    for text in texts {
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        let own = reader.headers().map_err(|e| e.to_string())?.clone();
        let mut next = 0;
        for name in &own {
            // A new column comes after its neighbour on the left.
            let at = head.iter().position(|h| h == name).unwrap_or_else(|| {
                head.insert(next, name.into());
                next
            });
            next = at + 1;
        }
        let records = reader.into_records().collect::<Result<Vec<_>, _>>();
        parts.push((own, records.map_err(|e| e.to_string())?));
    }
    let mut records = Vec::new();
    for (own, part) in &parts {
        let at = |name: &str| own.iter().position(|h| h == name);
        let places: Rc<[Option<usize>]> = head.iter().map(|h| at(h)).collect();
        let (case, seed) = (at("case").unwrap_or(0), at("seed").unwrap_or(0));
        for record in part {
            let case = order.get(&record[case]).copied().unwrap_or(usize::MAX);
            records.push((case, record[seed].parse().unwrap_or(0u64), Rc::clone(&places), record));
        }
    }
    records.sort_by_key(|(case, seed, ..)| (*case, *seed));
    let line = |(.., places, record): &(usize, u64, Rc<[Option<usize>]>, &csv::StringRecord)| {
        places.iter().map(|p| p.map_or(String::new(), |p| record[p].to_string())).collect()
    };
    Ok(rows::csv_text(std::iter::once(head.clone()).chain(records.iter().map(line))))
}

/// The lines of several CSV texts with the same columns, one after another.
fn concatenated(texts: &[String]) -> Result<String, String> {
    let (head, _) = texts[0].split_once('\n').unwrap_or((&texts[0], ""));
    let mut out = format!("{head}\n");
    for text in texts {
        let (own, lines) = text.split_once('\n').unwrap_or((text, ""));
        if own != head {
            return Err(format!("the columns `{own}` of a series are not `{head}`"));
        }
        out.push_str(lines);
    }
    Ok(out)
}
