//! Writes each vector of `docs/wire.md` into a file of its own, as seeds of the fuzz target:
//!
//! ```sh
//! cargo run -p srd-wire --example seeds -- fuzz/seeds/wire_parse
//! ```

#[path = "../tests/common/document.rs"]
#[allow(dead_code, reason = "shared with the tests")]
mod document;

use std::error::Error;
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args_os().skip(1);
    let (Some(folder), None) = (args.next().map(PathBuf::from), args.next()) else {
        return Err("usage: seeds FOLDER (it is made if it does not exist)".into());
    };
    std::fs::create_dir_all(&folder)
        .map_err(|e| format!("cannot make {}: {e}", folder.display()))?;
    let seeds = document::seeds(&document::text());
    for (name, bytes) in &seeds {
        let path = folder.join(name);
        std::fs::write(&path, bytes)
            .map_err(|e| format!("cannot write {}: {e}", path.display()))?;
    }
    println!("{} seeds in {}", seeds.len(), folder.display());
    Ok(())
}
