//! The committed header is what the sources say.

use std::{fs, path::Path};

#[test]
fn the_committed_header_is_up_to_date() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).expect("cbindgen.toml");
    let mut made = Vec::new();
    cbindgen::Builder::new()
        .with_crate(root)
        .with_config(config)
        .generate()
        .expect("the sources are readable as a C interface")
        .write(&mut made);
    let made = String::from_utf8(made).expect("UTF-8");
    let path = root.join("include/srd.h");
    if std::env::var_os("SRD_HEADER_UPDATE").is_some() {
        fs::write(&path, &made).expect("write the header");
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == made,
        "include/srd.h is out of date; make it with: \
         SRD_HEADER_UPDATE=1 cargo test -p srd-c --test header"
    );
}

#[test]
fn every_exported_function_is_in_the_header() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let header = fs::read_to_string(root.join("include/srd.h")).expect("the header");
    let mut functions = 0;
    for entry in fs::read_dir(root.join("src")).expect("sources") {
        let source = fs::read_to_string(entry.expect("entry").path()).expect("source");
        for line in source.lines().filter(|l| l.contains("extern \"C\" fn srd_")) {
            let name = line.split("fn ").nth(1).and_then(|l| l.split('(').next()).expect("name");
            assert!(header.contains(&format!("{name}(")), "{name} is missing");
            functions += 1;
        }
    }
    assert!(functions > 30, "{functions} functions found");
}
