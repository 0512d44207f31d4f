//! Tables and pages of runs that are known by their summaries alone, the text that
//! [`summary_csv`](super::summary_csv) makes: from workers of a sweep, or read back.

use super::rows::{Row, read, write};
use super::{rows_page, table_of};

/// The table of these runs, one line per case.
///
/// # Errors
/// The text is no summary; the error names the line.
pub fn summary_table(csv: &str) -> Result<String, String> {
    Ok(table_of(&read(csv)?, false))
}

/// A page with the table of these runs, and plots over the axes of a sweep. `command`: what
/// repeats them.
///
/// # Errors
/// As [`summary_table`].
pub fn summary_page(csv: &str, name: &str, command: &str) -> Result<String, String> {
    Ok(rows_page(name, "runs of a sweep", &read(csv)?, command))
}

/// Summaries of single runs as one: for each case, in order, those of its seeds. Groups of flows of
/// a mixed world follow as cases of their own, as [`run_all`](crate::run_all) orders them.
///
/// # Errors
/// As [`summary_table`].
pub fn summaries_join(cases: &[Vec<String>]) -> Result<String, String> {
    let mut out: Vec<Row> = Vec::new();
    for texts in cases {
        let (mut groups, mut names): (Vec<Row>, Vec<String>) = Default::default();
        for text in texts {
            let mut all = read(text)?.into_iter();
            out.extend(all.next());
            groups.extend(all);
        }
        for group in &groups {
            if !names.contains(&group.case) {
                names.push(group.case.clone());
            }
        }
        groups.sort_by_key(|row| names.iter().position(|name| *name == row.case));
        out.append(&mut groups);
    }
    Ok(write(&out))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{jobs_of, report::summary_csv, run_all, spec::SpecFile};

    #[test]
    fn single_runs_join_to_what_one_call_gives() {
        let mut file = SpecFile::load("coexist", true).unwrap();
        file.cases.truncate(2);
        for case in &mut file.cases {
            case.seeds = 2;
        }
        let jobs = jobs_of(&file, None);
        let all = summary_csv(&run_all(&jobs, 1, &|_| {}).unwrap());
        let one = |job| summary_csv(&run_all(std::slice::from_ref(job), 1, &|_| {}).unwrap());
        let cases: Vec<Vec<String>> =
            jobs.chunks(2).map(|case| case.iter().map(one).collect()).collect();
        assert_eq!(summaries_join(&cases).unwrap(), all);
        assert!(summary_table(&all).unwrap().lines().count() > 4, "groups are cases of their own");
        assert!(summary_table("a,b\n1,2\n").unwrap_err().contains("no column"));
    }
}
