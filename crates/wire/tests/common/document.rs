//! Reads the test vectors and the tables of `docs/wire.md`.

use std::path::Path;

/// A fenced hex block: `key=value` of its first line, and its bytes.
pub struct HexBlock {
    pub key: String,
    pub value: String,
    pub bytes: Vec<u8>,
}

/// The document's text.
pub fn text() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/wire.md");
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// All blocks that start with ```` ```hex key=value ````.
pub fn hex_blocks(text: &str) -> Vec<HexBlock> {
    let mut blocks = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let Some(info) = line.strip_prefix("```hex ") else { continue };
        let (key, value) = info.split_once('=').unwrap_or_else(|| panic!("no `=` in {line}"));
        let digits: Vec<&str> = lines
            .by_ref()
            .take_while(|line| *line != "```")
            .map(|line| line.split('#').next().unwrap_or_default())
            .collect();
        let bytes = digits
            .iter()
            .flat_map(|line| line.split_whitespace())
            .map(|pair| u8::from_str_radix(pair, 16).unwrap_or_else(|e| panic!("{pair}: {e}")))
            .collect();
        blocks.push(HexBlock { key: key.to_owned(), value: value.to_owned(), bytes });
    }
    blocks
}

/// The cells of every table row.
pub fn table_rows(text: &str) -> Vec<Vec<String>> {
    text.lines()
        .filter_map(|line| line.strip_prefix('|')?.strip_suffix('|'))
        .map(|row| row.split('|').map(|cell| cell.trim().to_owned()).collect())
        .collect()
}

/// Every vector with a unique name: the seeds of the fuzz target.
pub fn seeds(text: &str) -> Vec<(String, Vec<u8>)> {
    let name = |at: usize, b: &HexBlock| match b.key.as_str() {
        "vector" => b.value.clone(),
        key => format!("{key}-{}-{at}", b.value),
    };
    hex_blocks(text).into_iter().enumerate().map(|(at, b)| (name(at, &b), b.bytes)).collect()
}
