//! Processes without privileges and with small limits: nothing may be locked in memory, no
//! capability is left, few files may be open.

use crate::common::{Done, PORT_BASE, Running, Server, srd};
use std::process::{Command, Stdio};

/// The command under `prlimit` (util-linux) with no locked memory and so many open files, as root
/// without any capability.
fn limited(command: &Command, files: u32) -> Command {
    let mut all = Vec::new();
    if rustix::process::geteuid().is_root() {
        let none = ["setpriv", "--bounding-set", "-all", "--inh-caps", "-all", "--no-new-privs"];
        all.extend(none.map(str::to_owned));
    }
    all.extend(["prlimit", "--memlock=0:0"].map(str::to_owned));
    all.push(format!("--nofile={files}:{files}"));
    all.push(command.get_program().to_str().unwrap().to_owned());
    all.extend(command.get_args().map(|a| a.to_str().unwrap().to_owned()));
    let mut limited = Command::new(&all[0]);
    limited.args(&all[1..]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    limited
}

fn run(command: &Command, files: u32) -> Done {
    Running::start(limited(command, files)).wait()
}

#[test]
fn nothing_is_locked_and_no_privilege_is_needed() {
    let args = Server::args(PORT_BASE, "127.0.0.1", &[]);
    let server = Server::adopt(limited(&srd(&args), 256), PORT_BASE);
    for op in ["send", "write", "read"] {
        let client = server.client(&["perf", "bw", "{}", "--op", op, "--iters", "200"]);
        run(&client, 256).ok();
    }
    server.end();
}

#[test]
fn too_few_files_are_told_with_what_to_do() {
    let args = ["doctor", "--interface", "lo"];
    let said = run(&srd(&args), 255);
    let line = said.stdout.lines().find(|l| l.contains("open files")).expect("a finding");
    assert!(line.starts_with("FAILED  only 255 open files"), "{line}");
    assert!(said.stdout.contains("ulimit -n 8192"), "{}", said.stdout);
    assert_ne!(said.code, Some(0));
    // Too few for the sockets of all paths: an error that says so, and no crash.
    let said = run(&srd(&["perf", "bw", "127.0.0.1", "--iters", "1"]), 40);
    assert!(said.code.is_some_and(|code| code != 0), "{said:#?}");
    assert!(said.stderr.contains("ulimit -n"), "{said:#?}");
    assert!(!said.stderr.contains("panicked"), "{said:#?}");
}

#[test]
fn the_doctor_says_that_locked_memory_and_capabilities_are_not_needed() {
    let said = run(&srd(&["doctor", "--interface", "lo"]), 256).stdout;
    let lines = |word: &str| said.lines().filter(|l| l.contains(word)).collect::<Vec<_>>();
    let [line] = lines("locked memory")[..] else { panic!("{said}") };
    assert!(line.starts_with("ok") && line.contains("(limit: 0 KiB)"), "{line}");
    assert!(line.contains("this process has none") && line.contains("not needed"), "{line}");
    assert!(lines("open files")[0].starts_with("ok"), "{said}");
    assert_eq!(lines("/dev/shm has").len(), 1, "{said}");
    assert_eq!(lines("user namespaces are").len(), 1, "{said}");
}
