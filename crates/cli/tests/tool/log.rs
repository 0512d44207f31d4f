//! `SRD_LOG`: what a process says about its devices and peers.

use crate::common::{Server, srd};
use std::{fs, process::Command};

fn lines(of: &str) -> Vec<&str> {
    of.lines().filter(|line| line.contains(" srd[")).collect()
}

/// A short measurement with these variables; returns what it wrote to standard error.
fn measure(server: &Server, variables: &[(&str, &str)]) -> String {
    let args = ["perf", "lat", "{}", "--size", "64", "--iters", "300"];
    let mut command: Command = server.client(&args);
    command.envs(variables.iter().copied());
    let done = command.output().unwrap();
    assert!(done.status.success(), "{done:?}");
    String::from_utf8(done.stderr).unwrap()
}

#[test]
fn the_log_tells_devices_and_peers_at_the_chosen_level_and_place() {
    let server = Server::start(&[]);
    assert_eq!(lines(&measure(&server, &[])), [""; 0]);
    assert_eq!(lines(&measure(&server, &[("SRD_LOG", "warn")])), [""; 0]);
    let info = measure(&server, &[("SRD_LOG", "info")]);
    assert!(info.contains("info: device 127.0.0.1 UDP port") && info.contains("opened: 64 paths"));
    assert!(info.contains("contexts_opened +1") && info.contains(" closed: "), "{info}");
    assert!(!info.contains("debug:"), "{info}");
    let debug = measure(&server, &[("SRD_LOG", "debug")]);
    assert!(debug.contains("debug: lo: tx_pkts +"), "{debug}");
    let file = std::env::temp_dir().join(format!("srd-log-{}.txt", std::process::id()));
    let place = [("SRD_LOG", "info"), ("SRD_LOG_FILE", file.to_str().unwrap())];
    for _ in 0..2 {
        assert_eq!(lines(&measure(&server, &place)), [""; 0]);
    }
    let text = fs::read_to_string(&file).unwrap();
    assert_eq!(text.matches(" opened: ").count(), 2, "appended: {text}");
    fs::remove_file(&file).unwrap();
    server.end();
}

#[test]
fn variables_that_make_no_sense_end_the_tool_before_it_does_anything() {
    for (variables, words) in [
        (vec![("SRD_LOG", "loud")], "it must be off, error, warn, info or debug"),
        (vec![("SRD_LOG", "info"), ("SRD_LOG_FILE", "/none/log")], "cannot be opened"),
    ] {
        let mut command = srd(&["stat"]);
        let done = command.envs(variables).output().unwrap();
        assert_eq!(done.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&done.stderr).contains(words), "{done:?}");
        assert!(done.stdout.is_empty());
    }
}
