//! The calls that `link/job.c` answers: only those two, and only of those two callers. The
//! libraries of this test call `sleep` and `fopen` in their place; behind `job.c` stands a library
//! that prints what reaches it, in the place of the C library.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// A library that calls both functions, like a component of Open MPI and like libfabric.
const CALLER: &str = r#"
#include <stdio.h>
#include <unistd.h>
int calls(void)
{
    int found = 0;
    const char *files[] = { "/proc/kallsyms", "/proc/self/maps" };
    for (int i = 0; i < 2; i++) {
        FILE *file = fopen(files[i], "r");
        found += file ? 1 << i : 0;
        if (file)
            fclose(file);
        file = fopen64(files[i], "r");
        found += file ? 4 << i : 0;
        if (file)
            fclose(file);
    }
    sleep(1);
    sleep(2);
    return found;
}"#;

/// The C library's place: says what reaches it.
const BEHIND: &str = r#"
#include <stdio.h>
unsigned int sleep(unsigned int seconds) { printf("sleep %u\n", seconds); return 0; }"#;

/// Loads each library that it is given, and calls it.
const MAIN: &str = r#"
#include <dlfcn.h>
#include <stdio.h>
int main(int n, char **files)
{
    for (int i = 1; i < n; i++) {
        void *library = dlopen(files[i], RTLD_NOW);
        int (*calls)(void) = library ? (int (*)(void))dlsym(library, "calls") : NULL;
        if (!calls)
            return 1;
        printf("%s\n", files[i]);
        printf("files %d\n", calls());
    }
    return 0;
}"#;

fn cc(args: &[&str]) {
    let done = Command::new("cc").args(args).status().expect("a C compiler");
    assert!(done.success(), "cc {args:?}");
}

fn source(dir: &Path, name: &str, text: &str) -> String {
    let path = dir.join(name).with_extension("c");
    fs::write(&path, format!("#define _GNU_SOURCE\n{text}")).expect("a source file");
    path.display().to_string()
}

#[test]
fn only_two_calls_of_two_callers_are_answered() {
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("job");
    fs::create_dir_all(&dir).expect("a folder");
    let at = |name: &str| dir.join(name).display().to_string();
    let job = concat!(env!("CARGO_MANIFEST_DIR"), "/link/job.c");
    let versions = at("job.map");
    fs::write(&versions, "GLIBC_2.2.5 {};\nGLIBC_2.17 {};\n").expect("a version script");
    let script = format!("-Wl,--version-script={versions}");
    cc(&["-shared", "-fPIC", job, "-o", &at("job.so"), &script]);
    cc(&["-shared", "-fPIC", &source(&dir, "behind", BEHIND), "-o", &at("behind.so")]);
    let caller = source(&dir, "caller", CALLER);
    let callers = ["mca_btl_ofi.so", "libfabric.so.1", "libother.so"].map(at);
    for library in &callers {
        cc(&["-shared", "-fPIC", &caller, "-o", library]);
    }
    cc(&[&source(&dir, "main", MAIN), "-ldl", "-o", &at("main")]);
    let run = |preload: &str| {
        let mut command = Command::new(at("main"));
        command.args(&callers).env("LD_PRELOAD", preload);
        String::from_utf8(command.output().expect("a run").stdout).expect("text")
    };
    let said = |files: [u8; 3], sleeps: [&str; 3]| -> String {
        callers
            .iter()
            .zip(files.iter().zip(sleeps))
            .map(|(of, (found, slept))| format!("{of}\n{slept}files {found}\n"))
            .collect()
    };
    let both = "sleep 1\nsleep 2\n";
    // Where this process may not read the kernel's symbols, nobody finds them.
    let all = if fs::File::open("/proc/kallsyms").is_ok() { 0b1111 } else { 0b1010 };
    assert_eq!(run(&at("behind.so")), said([all; 3], [both; 3]), "without job.c");
    let preload = format!("{} {}", at("job.so"), at("behind.so"));
    assert_eq!(run(&preload), said([all, 0b1010, all], ["sleep 2\n", both, both]), "with it");
}
