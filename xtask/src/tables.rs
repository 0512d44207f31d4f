//! Parses the tables that the simulator prints.

/// Beginnings of the line that explains an experiment, with and without packets.
const EXPLANATIONS: [&str; 2] = ["packets with up to ", "flows placed without packets"];
/// Beginning of the line with the command, which precedes an experiment's first table.
const COMMAND: &str = "$ ";

/// A row of a table.
#[derive(Debug, PartialEq)]
pub struct Row<'a> {
    /// Experiment, headline of the table, first cell.
    pub name: [&'a str; 3],
    /// Names of the columns, with their cells.
    pub cells: Vec<(&'a str, &'a str)>,
}

/// Cells of a line, which are separated by two or more spaces.
fn split(line: &str) -> Vec<&str> {
    line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect()
}

/// All rows of all tables. A table has a headline and a line of column names, and ends with an
/// empty line; before an experiment's first table are its name and a line of explanation.
pub fn rows(text: &str) -> Vec<Row<'_>> {
    let mut out = Vec::new();
    let mut experiment = "";
    for table in text.split("\n\n") {
        let mut lines =
            table.lines().filter(|l| !l.is_empty() && !l.starts_with(COMMAND)).peekable();
        let Some(mut headline) = lines.next() else { continue };
        let explains = |l: &&str| EXPLANATIONS.iter().any(|e| l.starts_with(e));
        if lines.peek().is_some_and(explains) {
            lines.next();
            experiment = headline.split_once(':').map_or(headline, |(name, _)| name);
            headline = "";
        }
        let head = lines.next().map(split).unwrap_or_default();
        for line in lines {
            let cells = split(line);
            let name = [experiment, headline, cells.first().copied().unwrap_or("")];
            let cells = if cells.len() == head.len() {
                head.iter().copied().zip(cells).skip(1).collect()
            } else {
                vec![("line", line)]
            };
            out.push(Row { name, cells });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "$ srd lab run fig2 --out all\nfig2: bursty\n\
        packets with up to 4096 B of payload\n\
        case   max us  hash\n8 KB, SRD    46.1  95bb\n8 KB, TCP    41.1  7b46\n\n\
        against the ideal\ncase   ideal us\n8 KB, SRD    31.5\n\n\
        fig3: more\npackets with up to 1 B\ncase   max us  hash\n8 KB, SRD    46.1  95bb\n\n";

    #[test]
    fn tables_become_rows_with_names() {
        let rows = rows(TEXT);
        let names: Vec<[&str; 3]> = rows.iter().map(|r| r.name).collect();
        let want = [
            ["fig2", "", "8 KB, SRD"],
            ["fig2", "", "8 KB, TCP"],
            ["fig2", "against the ideal", "8 KB, SRD"],
            ["fig3", "", "8 KB, SRD"],
        ];
        assert_eq!(names, want);
        assert_eq!(rows[1].cells, [("max us", "41.1"), ("hash", "7b46")]);
    }
}
