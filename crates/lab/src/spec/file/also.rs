//! Groups of flows beside the first, each with a transport of its own: `[[workload.also]]`.
//!
//! A group is a whole case, with the network, the faults and the records of the first group, and
//! with the transport, its settings and the flows that the group's table gives. What the table
//! leaves out has its default, and is not taken from the first group.
//!
//! Changes of the command line know groups: settings of transports hold for every group, and
//! `workload.also.NAME.FIELD` is a field of the group of that name.

use super::merge;
use std::collections::BTreeSet;
use toml::{Table, Value};

/// Fields of a group that belong to its transport. All others are of its workload.
const TRANSPORT: [&str; 5] = ["transport", "engine", "tcp", "rc", "ue"];
/// Fields of the first group that are not of the others.
const FIRST_ONLY: [&str; 5] = ["goal", "host_model", "saa", "copa", "static"];
/// Fields of the first group's workload that hold for all groups.
const COMMON: [&str; 2] = ["rounds", "barrier_us"];

/// Removes the further groups from a merged case; returns the case of each.
///
/// # Errors
/// The text names the field.
pub fn take(whole: &mut Table) -> Result<Vec<Table>, String> {
    let Some(Value::Table(workload)) = whole.get_mut("workload") else { return Ok(Vec::new()) };
    let groups = match workload.remove("also") {
        None => return Ok(Vec::new()),
        Some(Value::Array(groups)) => groups,
        Some(_) => return Err("workload.also must be an array of tables".into()),
    };
    let common: Vec<(&str, Value)> =
        COMMON.iter().filter_map(|f| Some((*f, workload.get(*f)?.clone()))).collect();
    let case = |group: Value| {
        let Value::Table(group) = group else {
            return Err("workload.also must be an array of tables".to_string());
        };
        let mut case = whole.clone();
        TRANSPORT.iter().chain(&FIRST_ONLY).for_each(|field| drop(case.remove(*field)));
        let mut workload = Table::new();
        for (field, value) in group {
            if COMMON.contains(&field.as_str()) {
                return Err(format!(
                    "workload.also.{field}: all groups have workload.{field}; leave it out here"
                ));
            }
            if TRANSPORT.contains(&field.as_str()) {
                case.insert(field, value);
            } else {
                workload.insert(field, value);
            }
        }
        workload.extend(common.iter().map(|(field, value)| ((*field).into(), value.clone())));
        case.insert("workload".into(), Value::Table(workload));
        Ok(case)
    };
    groups.into_iter().map(case).collect()
}

/// Applies a change of the command line to a merged case and to its further groups. A group that
/// the case does not have is left out; [`unknown`] refuses names that no case has.
///
/// # Errors
/// The text names the field.
pub fn change(whole: &mut Table, mut change: Table) -> Result<(), String> {
    let single = singles_take(&mut change);
    let mut common = change.clone();
    common.retain(|field, _| TRANSPORT.contains(&field));
    merge(whole, change);
    for group in groups_of(whole) {
        merge(group, common.clone());
    }
    for (name, fields) in single {
        let Value::Table(fields) = fields else {
            return Err(format!(
                "workload.also.{name} = {fields}: give a field of the group, as in \
                 workload.also.{name}.bytes = 1_000"
            ));
        };
        one(whole, &name, fields);
    }
    Ok(())
}

/// Removes the changes of single groups, `workload.also.NAME`, from a change. An array under
/// `workload.also` replaces all further groups, as in a case, and stays.
fn singles_take(change: &mut Table) -> Table {
    let Some(Value::Table(workload)) = change.get_mut("workload") else { return Table::new() };
    match workload.remove("also") {
        Some(Value::Table(groups)) => groups,
        Some(other) => {
            workload.insert("also".into(), other);
            Table::new()
        }
        None => Table::new(),
    }
}

/// The tables of a case's further groups.
fn groups_of(whole: &mut Table) -> impl Iterator<Item = &mut Table> {
    let groups = whole.get_mut("workload").and_then(|w| w.get_mut("also"));
    groups.and_then(Value::as_array_mut).into_iter().flatten().filter_map(Value::as_table_mut)
}

fn name_of(group: &Table) -> Option<&str> {
    group.get("name").and_then(Value::as_str)
}

/// Changes the group of a name, the first or a further one.
fn one(whole: &mut Table, name: &str, fields: Table) {
    let first = whole.get("workload").and_then(Value::as_table).and_then(name_of);
    if first == Some(name) {
        let (own, flows): (Table, Table) =
            fields.into_iter().partition(|(field, _)| TRANSPORT.contains(&field.as_str()));
        merge(whole, own);
        merge(whole, Table::from_iter([("workload".to_string(), Value::Table(flows))]));
    } else if let Some(group) = groups_of(whole).find(|group| name_of(group) == Some(name)) {
        merge(group, fields);
    }
}

/// The name of a group that a change is for, but that no case has, as an error.
pub fn unknown<'a>(changes: impl Iterator<Item = &'a Table>, cases: &[Table]) -> Option<String> {
    let workloads = || cases.iter().filter_map(|case| case.get("workload")?.as_table());
    let further = workloads().filter_map(|w| w.get("also")?.as_array()).flatten();
    let tables = workloads().chain(further.filter_map(Value::as_table));
    let known: BTreeSet<&str> = tables.filter_map(name_of).collect();
    let asked = changes.flat_map(|change| singles_take(&mut change.clone()));
    let (name, _) = asked.into_iter().find(|(name, _)| !known.contains(name.as_str()))?;
    let known = match known.len() {
        0 => "no group has a name here (workload.name, workload.also.name)".to_string(),
        _ => format!(
            "the groups with a name are {}",
            known.into_iter().collect::<Vec<_>>().join(", ")
        ),
    };
    Some(format!("workload.also.{name}: there is no such group; {known}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str = "transport = \"tcp\"\n[workload]\nname = \"big\"\nbytes = 9\n\
        [[workload.also]]\nname = \"small\"\nbytes = 1\n[[workload.also]]\nengine.paths = 2";

    fn changed(changes: &[&str]) -> Result<Table, String> {
        let mut whole: Table = TWO.parse().unwrap();
        for text in changes {
            change(&mut whole, text.parse().unwrap())?;
        }
        Ok(whole)
    }

    #[test]
    fn settings_of_transports_reach_every_group_and_flows_only_the_first() {
        let whole = changed(&["transport = \"rc\"", "engine.paths = 7", "workload.bytes = 5"]);
        let want = "transport = \"rc\"\nengine.paths = 7\n[workload]\nname = \"big\"\nbytes = 5\n\
            [[workload.also]]\nname = \"small\"\nbytes = 1\ntransport = \"rc\"\n\
            engine.paths = 7\n[[workload.also]]\ntransport = \"rc\"\nengine.paths = 7";
        assert_eq!(whole.unwrap(), want.parse::<Table>().unwrap());
    }

    #[test]
    fn a_single_group_is_changed_by_its_name() {
        let whole = changed(&[
            "workload.also.small.bytes = 3",
            "workload.also.small.engine.paths = 4",
            "workload.also.big.transport = \"ue\"",
            "workload.also.big.bytes = 8",
        ]);
        let want = "transport = \"ue\"\n[workload]\nname = \"big\"\nbytes = 8\n\
            [[workload.also]]\nname = \"small\"\nbytes = 3\nengine.paths = 4\n\
            [[workload.also]]\nengine.paths = 2";
        assert_eq!(whole.unwrap(), want.parse::<Table>().unwrap());
        let e = changed(&["workload.also.small = 3"]).unwrap_err();
        assert!(e.contains("give a field of the group"), "{e}");
        // An array gives the case other groups.
        let whole = changed(&["workload.also = []"]).unwrap();
        assert_eq!(whole["workload"]["also"].as_array().map(Vec::len), Some(0));
    }

    #[test]
    fn a_name_that_no_case_has_is_told() {
        let lone: Table = "workload.pattern = \"ring\"".parse().unwrap();
        let cases = [TWO.parse().unwrap(), lone.clone()];
        let told = |name: &str, cases: &[Table]| {
            let change: Table = format!("workload.also.{name}.bytes = 3").parse().unwrap();
            unknown([change].iter(), cases)
        };
        assert_eq!((told("big", &cases), told("small", &cases)), (None, None));
        let e = told("tiny", &cases).unwrap();
        assert!(e.contains("workload.also.tiny") && e.contains("big, small"), "{e}");
        let e = told("small", &[lone]).unwrap();
        assert!(e.contains("no group has a name"), "{e}");
    }

    #[test]
    fn a_group_has_the_network_of_the_first_and_a_transport_of_its_own() {
        let text = "transport = \"tcp\"\ntcp.cc = \"bbr\"\nnetwork.k = 4\n[workload]\n\
            pattern = \"ring\"\npeers = 3\nrounds = 7\n[[workload.also]]\n\
            pattern = \"shift\"\nengine.paths = 9";
        let mut whole: Table = text.parse().unwrap();
        let groups = take(&mut whole).unwrap();
        assert!(whole["workload"].get("also").is_none());
        let want = "network.k = 4\nengine.paths = 9\nworkload.pattern = \"shift\"\n\
            workload.rounds = 7";
        assert_eq!(groups, [want.parse::<Table>().unwrap()]);
    }

    #[test]
    fn what_is_no_group_is_refused() {
        for (text, part) in [
            ("workload.also = 3", "array of tables"),
            ("workload.also = [4]", "array of tables"),
            ("workload.also = [{ rounds = 3 }]", "workload.also.rounds"),
        ] {
            let e = take(&mut text.parse().unwrap()).unwrap_err();
            assert!(e.contains(part), "{text}: {e}");
        }
    }
}
