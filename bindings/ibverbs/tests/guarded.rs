//! Every function that C calls stands behind the barrier.

use std::{fs, path::Path};

/// Files whose functions only give constants, or have no body here.
const PLAIN: [&str; 4] = ["abi.rs", "guard.rs", "stubs.rs", "text.rs"];
/// Functions that wait, which must let a cancelled thread pass; what they do else is guarded.
const WAITS: [&str; 2] = ["ibv_get_cq_event", "ibv_get_async_event"];

#[test]
fn every_function_that_c_calls_is_guarded() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut seen = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let text = fs::read_to_string(&path).unwrap();
        if PLAIN.contains(&name.as_str()) {
            continue;
        }
        let lines: Vec<&str> = text.lines().collect();
        for (i, line) in lines.iter().enumerate() {
            let Some((before, after)) = line.split_once("extern \"C") else { continue };
            let function = after.split_once("fn ").map(|(_, f)| f.split('(').next().unwrap());
            let Some(function) = function.filter(|f| !f.is_empty()) else { continue };
            if line.starts_with(' ') || before.contains("//") || WAITS.contains(&function) {
                continue;
            }
            seen += 1;
            assert!(lines[i - 1].starts_with("#[guarded"), "{name}: {function} is not guarded");
        }
    }
    assert!(seen > 80, "only {seen} functions were found");
}
