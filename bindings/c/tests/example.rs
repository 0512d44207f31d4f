//! The C example compiles without a warning and runs against the static library.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

/// What a static library made by Rust needs from the system.
const SYSTEM_LIBRARIES: [&str; 4] = ["-lpthread", "-ldl", "-lm", "-lgcc_s"];

/// The static library that was built together with this test.
fn library() -> PathBuf {
    let deps = env::current_exe().expect("test program").parent().expect("folder").to_owned();
    let mut found: Vec<PathBuf> = std::fs::read_dir(&deps)
        .expect("build folder")
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with("libsrd_c") && name.ends_with(".a")
        })
        .collect();
    found.sort_by_key(|path| path.metadata().and_then(|m| m.modified()).ok());
    found.pop().unwrap_or_else(|| panic!("no libsrd_c*.a in {}", deps.display()))
}

#[test]
fn the_example_compiles_cleanly_and_runs() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pingpong");
    let compiled = Command::new(env::var_os("CC").unwrap_or_else(|| "gcc".into()))
        .args(["-std=c11", "-O1", "-Wall", "-Wextra", "-Wpedantic", "-Werror"])
        .arg("-I")
        .arg(root.join("include"))
        .arg(root.join("examples/pingpong.c"))
        .arg(library())
        .args(SYSTEM_LIBRARIES)
        .arg("-o")
        .arg(&program)
        .output()
        .expect("a C compiler: install gcc, or set CC");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));

    let run = Command::new(&program).arg("200").output().expect("the example starts");
    let (out, err) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert!(run.status.success(), "{out}{err}");
    assert!(out.contains("200 round trips"), "{out}{err}");
    assert!(out.contains("wrote 1048576 bytes"), "{out}{err}");
}

/// The lines of the example's own comment, for a checkout.
#[test]
fn the_example_is_built_by_the_line_in_its_comment() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = std::fs::read_to_string(root.join("bindings/c/examples/pingpong.c")).unwrap();
    let lines = text.lines().skip_while(|line| !line.starts_with(" *   cc -I"));
    let lines = lines.take_while(|line| line.starts_with(" *   ")).map(|line| &line[2..]);
    let (library, program) = (library(), Path::new(env!("CARGO_TARGET_TMPDIR")).join("by-line"));
    let line = lines.collect::<Vec<_>>().join("\n");
    let (compile, start) = line.split_once("&&").expect("compile and start");
    let compile = compile
        .replace("target/release/libsrd_c.a", &library.display().to_string())
        .replace("-o pingpong", &format!("-o {}", program.display()));
    assert_eq!(start.trim(), "./pingpong [ROUNDS]");
    let compiled = Command::new("sh").args(["-c", &compile]).current_dir(&root).output().unwrap();
    assert!(compiled.status.success(), "{compile}\n{}", String::from_utf8_lossy(&compiled.stderr));
    assert!(Command::new(&program).arg("10").status().unwrap().success());
}
