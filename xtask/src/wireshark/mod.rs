//! `wireshark`: the tables of the dissector for Wireshark, made from the documents of the formats.
//!
//! `docs/wire.md` and `docs/sealing.md` draw each header and list each number; tests of the crate
//! `srd-wire` compare them with the code. The same drawings become tables of the dissector's
//! language, Lua, between two marks in its file; what is around the marks is written by hand.

mod document;

use crate::{Result, args::Args, process::root};
use document::{Document, Field};
use std::{collections::BTreeMap, fmt::Write as _, fs};

/// The dissector, which `srd wireshark` prints.
const DISSECTOR: &str = "crates/cli/assets/srd.lua";
const BEGIN: &str = "-- Tables: written by `cargo xtask wireshark --update`.\n";
const END: &str = "-- End of the tables.\n";

/// A drawing: its name in the dissector, its document, its section, and its place there.
type Drawing = (&'static str, usize, &'static str, usize);

const DRAWINGS: [Drawing; 16] = [
    ("header", 0, "Common header", 0),
    ("checksum", 0, "Checksum", 0),
    ("ack", 0, "Acknowledgment block", 0),
    ("verdict", 0, "Acknowledgment block", 1),
    ("echo", 0, "Acknowledgment block", 2),
    ("open", 0, "Open, OpenAck", 0),
    ("challenge", 0, "Challenge", 0),
    ("reset", 0, "Reset", 0),
    ("message", 0, "Send, SendImm", 0),
    ("write", 0, "Write", 0),
    ("write_imm", 0, "WriteImm", 0),
    ("read_req", 0, "ReadReq", 0),
    ("read_resp", 0, "ReadResp", 0),
    ("sealed_open", 1, "Handshake", 0),
    ("sealed_open_ack", 1, "Handshake", 1),
    ("sealed_challenge", 1, "Handshake", 2),
];

/// A list of numbers: its name, its document, its section, and the heads of its two columns.
type List = (&'static str, usize, &'static str, [&'static str; 2]);

const LISTS: [List; 6] = [
    ("flags", 0, "Common header", ["bit", "flag"]),
    ("verdicts", 0, "Acknowledgment block", ["code", "verdict"]),
    ("features", 0, "Open, OpenAck", ["bit", "feature"]),
    ("reset_codes", 0, "Reset", ["code", "reason"]),
    ("read_statuses", 0, "ReadResp", ["status", "name"]),
    ("sealed_types", 1, "Handshake", ["number", "type"]),
];

/// `wireshark [--update]`.
pub fn run_command(args: &mut Args) -> Result {
    let update = args.flag("--update");
    args.end()?;
    compare(update)
}

/// Compares the dissector's tables with the documents, or writes them.
pub fn compare(update: bool) -> Result {
    let read = |path: &str| {
        fs::read_to_string(root().join(path)).map_err(|e| format!("cannot read {path}: {e}"))
    };
    let documents =
        [Document::new(&read("docs/wire.md")?), Document::new(&read("docs/sealing.md")?)];
    let old = read(DISSECTOR)?;
    let missing = || format!("{DISSECTOR} lacks the marks around its tables:\n{BEGIN}{END}");
    let (head, rest) = old.split_once(BEGIN).ok_or_else(missing)?;
    let (_, tail) = rest.split_once(END).ok_or_else(missing)?;
    let new = format!("{head}{BEGIN}{}{END}{tail}", tables(&documents)?);
    if update {
        fs::write(root().join(DISSECTOR), new).map_err(|e| format!("cannot write: {e}"))?;
        println!("wrote the tables of {DISSECTOR}");
        return Ok(());
    }
    if old == new {
        return Ok(());
    }
    Err(format!(
        "the tables of {DISSECTOR} are not those of docs/wire.md and docs/sealing.md; \
         `cargo xtask wireshark --update` writes them"
    ))
}

/// All tables, as text in Lua.
fn tables(documents: &[Document; 2]) -> Result<String> {
    let mut out = String::from("local TYPES = {\n");
    for row in documents[0].rows("Overview", ["number", "type"])? {
        let [number, name, bytes, psn, payload, ack, what] = &row[..] else {
            return Err(format!("a packet type of docs/wire.md has no 7 columns: {row:?}"));
        };
        let name = name.trim_matches('`');
        writeln!(
            out,
            "  [{number}] = {{ name = {}, bytes = {bytes}, reliable = {}, payload = {}, ack = {}, \
             what = {} }},",
            quoted(name),
            psn == "yes",
            quoted(payload),
            quoted(ack),
            quoted(what)
        )
        .map_err(|e| e.to_string())?;
    }
    out.push_str("}\n");
    for (name, document, section, heads) in LISTS {
        list(&mut out, name, &documents[document].rows(section, heads)?);
    }
    classes(&mut out, &documents[0])?;
    let mut done: BTreeMap<&str, Vec<Field>> = BTreeMap::new();
    out.push_str("local LAYOUTS = {\n");
    for (name, document, section, at) in DRAWINGS {
        let fields = documents[document].drawing(section, at, &done)?;
        layout(&mut out, name, &fields);
        done.insert(name, fields);
    }
    let query = documents[1].drawing("Lost contexts", 0, &done)?;
    layout(&mut out, "context_query", &query);
    out.push_str("}\n");
    Ok(out)
}

/// A list of numbers: name and meaning. A number that comes twice keeps both names.
fn list(out: &mut String, name: &str, rows: &[Vec<String>]) {
    let mut entries: BTreeMap<u32, (String, String)> = BTreeMap::new();
    for row in rows {
        let Some(number) = row[0].parse().ok() else { continue };
        let (name, what) = (row[1].trim_matches('`'), row.last().map_or("", String::as_str));
        entries
            .entry(number)
            .and_modify(|(names, _)| *names = format!("{names}/{name}"))
            .or_insert_with(|| (name.to_owned(), what.to_owned()));
    }
    out.push_str(&format!("local {} = {{\n", name.to_uppercase()));
    for (number, (name, what)) in entries {
        out.push_str(&format!(
            "  [{number}] = {{ name = {}, what = {} }},\n",
            quoted(&name),
            quoted(&what)
        ));
    }
    out.push_str("}\n");
}

/// Backlog classes: the most packets of each, or "more".
fn classes(out: &mut String, document: &Document) -> Result {
    let rows = document.rows("Common header", ["class", "0 to 8"])?;
    let row = rows.first().ok_or("docs/wire.md lacks the backlog classes")?;
    out.push_str("local BACKLOG = {");
    for (class, packets) in row.iter().skip(2).enumerate() {
        out.push_str(&format!(" [{}] = {},", class + 9, quoted(packets)));
    }
    out.push_str(" }\n");
    Ok(())
}

fn layout(out: &mut String, name: &str, fields: &[Field]) {
    out.push_str(&format!("  {name} = {{\n"));
    for field in fields {
        out.push_str(&format!(
            "    {{ name = {}, bit = {}, bits = {}, what = {} }},\n",
            quoted(&field.name),
            field.bit,
            field.bits,
            quoted(&field.what)
        ));
    }
    out.push_str("  },\n");
}

/// A text of a document as a string of Lua: without the marks of Markdown.
fn quoted(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, link)) = rest.split_once('[') {
        plain.push_str(before);
        let Some((words, after)) = link.split_once("](") else {
            plain.push('[');
            rest = link;
            continue;
        };
        plain.push_str(words);
        rest = after.split_once(')').map_or("", |(_, rest)| rest);
    }
    plain.push_str(rest);
    let plain = plain.replace(" (below)", "").replace(", below", "").replace("; below", "");
    let plain = plain.replace(['`', '*'], "").replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{plain}\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dissector_has_the_tables_of_the_documents() {
        compare(false).unwrap();
    }

    #[test]
    fn texts_lose_the_marks_of_markdown() {
        assert_eq!(quoted("a `b` [c d](e.md#f) \"g\" [h]"), "\"a b c d \\\"g\\\" [h]\"");
    }
}
