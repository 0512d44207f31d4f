//! Groups of flows beside the first, each with a transport of its own: `[[workload.also]]`.
//!
//! A group is a whole case, with the network, the faults and the records of the first group, and
//! with the transport, its settings and the flows that the group's table gives. What the table
//! leaves out has its default, and is not taken from the first group.

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

#[cfg(test)]
mod tests {
    use super::*;

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
