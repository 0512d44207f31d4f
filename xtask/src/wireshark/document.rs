//! Reads sections, tables and drawings of a document.

use crate::Result;
use std::collections::BTreeMap;

/// A field of a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name, in letters, digits and `_`.
    pub name: String,
    /// Its first bit, counted from the beginning of the header.
    pub bit: u32,
    /// Number of its bits.
    pub bits: u32,
    /// What the table of fields says about it, or nothing.
    pub what: String,
}

/// A document by sections.
pub struct Document(Vec<Section>);

struct Section {
    title: String,
    lines: Vec<String>,
}

/// Bytes of a row of a drawing.
const ROW_BYTES: u32 = 4;

impl Document {
    pub fn new(text: &str) -> Self {
        let mut sections = vec![Section { title: String::new(), lines: Vec::new() }];
        for line in text.lines() {
            if line.starts_with("##") {
                let title = line.trim_start_matches('#').trim().to_owned();
                sections.push(Section { title, lines: Vec::new() });
            } else if let Some(section) = sections.last_mut() {
                section.lines.push(line.to_owned());
            }
        }
        Self(sections)
    }

    fn section(&self, title: &str) -> Result<&Section> {
        let found = self.0.iter().find(|section| section.title == title);
        found.ok_or_else(|| format!("the document has no section `{title}`"))
    }

    /// Rows of the table of a section whose first columns have these heads.
    pub fn rows(&self, section: &str, heads: [&str; 2]) -> Result<Vec<Vec<String>>> {
        let lines = &self.section(section)?.lines;
        let is_head =
            |line: &&String| cells(line).is_some_and(|c| c.starts_with(&heads.map(str::to_owned)));
        let at = lines.iter().position(|line| is_head(&line));
        let at =
            at.ok_or_else(|| format!("`{section}` has no table of `{}`", heads.join("`, `")))?;
        Ok(lines[at + 2..].iter().map_while(|line| cells(line)).collect())
    }

    /// Fields of the drawing number `at` of a section. `others`: drawings that its first row may
    /// stand for.
    pub fn drawing(
        &self,
        section: &str,
        at: usize,
        others: &BTreeMap<&str, Vec<Field>>,
    ) -> Result<Vec<Field>> {
        let lines = &self.section(section)?.lines;
        let is_drawn = |line: &String| line.starts_with('|') && line.contains("   ");
        let mut drawings = lines.split(|line| line.starts_with("```")).filter(|block| {
            block.iter().any(is_drawn) && !block.iter().any(|l| l.starts_with("|---"))
        });
        let block = drawings.nth(at);
        let block = block.ok_or_else(|| format!("`{section}` has no drawing number {at}"))?;
        let mut fields = fields_of(block, others)?;
        let meanings = self
            .rows(section, ["field", "bits"])
            .or_else(|_| self.rows(section, ["field", "meaning"]));
        for row in meanings.unwrap_or_default() {
            let name = |field: &Field| field.name == slug(&row[0]);
            for field in fields.iter_mut().filter(|field| name(field)) {
                field.what = row.last().cloned().unwrap_or_default();
            }
        }
        Ok(fields)
    }
}

/// Cells of a row of a drawing: the first bit of each, and its text.
type Cells<'a> = Vec<(u32, &'a str)>;

/// Cells of a row of a table.
fn cells(line: &str) -> Option<Vec<String>> {
    let row = line.strip_prefix('|')?.strip_suffix('|')?;
    Some(row.split('|').map(|cell| cell.trim().to_owned()).collect())
}

/// Fields of a drawing. Two columns are one bit; a row without a name continues the one above.
fn fields_of(block: &[String], others: &BTreeMap<&str, Vec<Field>>) -> Result<Vec<Field>> {
    let rows: Vec<(Cells<'_>, Option<u32>)> =
        block.iter().filter_map(|line| row_of(line)).collect();
    let mut fields: Vec<Field> = Vec::new();
    for (at, (row, offset)) in rows.iter().enumerate() {
        if row.iter().any(|(_, text)| text.contains(" x ")) {
            break;
        }
        let Some(offset) = *offset else { continue };
        if let Some(known) = stands_for(row[0].1, others)? {
            fields = known;
            continue;
        }
        let next = rows[at + 1..].iter().find_map(|(_, offset)| *offset);
        let blank =
            rows[at + 1..].iter().take_while(|(row, _)| row.iter().all(|(_, t)| t.is_empty()));
        let end = next.unwrap_or(offset + ROW_BYTES * (1 + blank.count() as u32));
        for (place, (bit, text)) in row.iter().enumerate() {
            let is_last = place + 1 == row.len();
            let named: Option<u32> =
                text.split_once(", ").and_then(|(_, rest)| rest.split(' ').next()?.parse().ok());
            let end_bit = match (row.get(place + 1), named) {
                (Some((bit, _)), _) => offset * 8 + bit,
                (None, Some(bytes)) if next.is_none() => offset * 8 + bit + 8 * bytes,
                _ => end * 8,
            };
            let bit = offset * 8 + bit;
            let is_padding = is_last && next.is_none() && text.starts_with("zeros");
            if !is_padding {
                fields.push(Field {
                    name: slug(text),
                    bit,
                    bits: end_bit - bit,
                    what: String::new(),
                });
            }
        }
    }
    Ok(fields)
}

/// Cells of a row with their first bits, and the row's offset in bytes.
fn row_of(line: &str) -> Option<(Cells<'_>, Option<u32>)> {
    let (row, offset) = line.strip_prefix('|')?.rsplit_once('|')?;
    let mut column = 0;
    let cells = row
        .split('|')
        .map(|text| {
            let first = column / 2;
            column += text.chars().count() as u32 + 1;
            (first, text.trim())
        })
        .collect();
    Some((cells, offset.trim().parse().ok()))
}

/// The fields that a row stands for, if it refers to another drawing.
fn stands_for(text: &str, others: &BTreeMap<&str, Vec<Field>>) -> Result<Option<Vec<Field>>> {
    let name = match text {
        _ if text.contains("as in Write") => "write",
        _ if text.starts_with("message header") => "message",
        _ => return Ok(None),
    };
    let known = others.get(name).ok_or_else(|| format!("`{text}` comes before its drawing"))?;
    Ok(Some(known.iter().filter(|field| field.name != "imm").cloned().collect()))
}

/// A name for programs: what stands before a comma, in letters and digits.
fn slug(text: &str) -> String {
    let before = text.split([',', ':']).next().unwrap_or(text).trim_matches('`');
    let name = match before.trim_end_matches('.') {
        "vers" => "version",
        "P" => "partial",
        "H" => "host",
        "M" => "mask",
        "C" => "ce",
        "0" => "reserved",
        "length of the run" => "psns",
        other => other,
    };
    name.split_whitespace().collect::<Vec<_>>().join("_").replace(['`', '\''], "").to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
## One

| field | bits | meaning |
|---|---|---|
| kind | 3 | the kind |

```text
+-----+---------+---------------+-------------------------------+
|kind |  count  |     zeros     |            length             |   0
+-----+---------+---------------+-------------------------------+
|                            number                             |   4
|                                                               |
+---------------------------------------------------------------+
|                        mac, 16 bytes                          |  12
+---------------------------------------------------------------+
```
";

    #[test]
    fn a_drawing_becomes_fields() {
        let fields = Document::new(TEXT).drawing("One", 0, &BTreeMap::new()).unwrap();
        let found: Vec<_> = fields.iter().map(|f| (f.name.as_str(), f.bit, f.bits)).collect();
        let wanted = [
            ("kind", 0, 3),
            ("count", 3, 5),
            ("zeros", 8, 8),
            ("length", 16, 16),
            ("number", 32, 64),
            ("mac", 96, 128),
        ];
        assert_eq!(found, wanted);
        assert_eq!(fields[0].what, "the kind");
    }

    #[test]
    fn what_is_not_there_is_named() {
        let document = Document::new(TEXT);
        let error = document.drawing("Two", 0, &BTreeMap::new()).unwrap_err();
        assert!(error.contains("no section `Two`"), "{error}");
        let error = document.rows("One", ["code", "name"]).unwrap_err();
        assert!(error.contains("no table of `code`, `name`"), "{error}");
    }
}
