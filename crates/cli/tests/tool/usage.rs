//! Invalid command lines, servers that do not exist, and help.

use crate::common::{Running, Scratch, Server, run, srd};
use std::time::Duration;

#[test]
fn every_command_has_help_with_examples_and_exit_codes() {
    for command in ["serve", "perf", "cp", "paths", "check", "lab"] {
        let help = run(&[command, "--help"]).ok().stdout;
        assert!(help.contains("Examples:") && help.contains("srd "), "{help}");
        assert!(help.to_lowercase().contains("exit code"), "{help}");
    }
    assert!(run(&["--help"]).ok().stdout.contains("Exit codes"));
    run(&["--version"]).ok();
    assert_eq!(run(&[]).code, Some(2));
}

#[test]
fn wrong_usage_exits_with_2_and_an_explanation() {
    let wrong: [(&[&str], &str); 27] = [
        (&["fly"], "unrecognized"),
        (&["perf", "lat"], "HOST"),
        (&["perf", "speed", "127.0.0.1"], "lat"),
        (&["perf", "bw", "127.0.0.1", "--size", "2G"], "1 GiB"),
        (&["perf", "bw", "127.0.0.1", "--size", "1K", "--all"], "cannot be used"),
        (&["perf", "bw", "127.0.0.1", "--iters", "0"], "0"),
        (&["perf", "bw", "127.0.0.1", "--iters", "5", "--duration", "1"], "cannot be used"),
        (&["perf", "bw", "127.0.0.1", "--qps", "65"], "65"),
        (&["perf", "bw", "127.0.0.1", "--paths", "63"], "64"),
        (&["perf", "bw", "127.0.0.1", "--rate", "1G"], "--rate-policy fixed"),
        (&["perf", "lat", "127.0.0.1", "--qps", "2"], "lat has one"),
        (&["perf", "bw", "127.0.0.1:99"], "--port-base"),
        (&["perf", "bw", "127.0.0.1:x"], "port"),
        (&["perf", "bw", "127.0.0.1", "--fault-loss", "7"], "share"),
        (&["perf", "bw", "127.0.0.1", "--op", "write", "--size", "0"], "at least one byte"),
        (&["cp", "a", "b"], "name a server"),
        (&["cp", "a:b", "c:d"], "local file"),
        (&["paths", "127.0.0.1", "--interval", "0"], "time"),
        (&["serve", "--slot", "256"], "0 to 255"),
        (&["serve", "--ip", "eth0"], "--interface takes the name"),
        (&["paths", "deny", "0-15", "--peer", "node7"], "write it as 10.0.0.5"),
        (&["stat", "mpirun"], "`srd stat` shows those"),
        (&["export", "--listen", "localhost:9876"], "write it as 127.0.0.1:9876"),
        (&["lab", "run", "fig2", "--threads", "0"], "give 1 or more"),
        (&["check", "--sedes", "5"], "`--sedes` is not known"),
        (&["check", "--trace"], "--seed"),
        (&["check", "--seed", "1", "--planted", "1"], "--cfg planted_bugs"),
    ];
    for (args, words) in wrong {
        run(args).fails(2, words);
    }
}

#[test]
fn the_fault_checker_runs_as_a_command() {
    let many = run(&["check", "--seeds", "30", "--first", "500"]).ok().stdout;
    assert!(many.contains("30 seeds from 500 to 529") && many.contains("0 failed"), "{many}");
    let s = Scratch::new("check");
    let capture = s.path("w.pcapng");
    let one = run(&["check", "--seed", "7", "--trace", "--pcap", &capture]).ok().stdout;
    assert!(one.contains("engine 0") && one.contains("packets written to"), "{one}");
    assert!(std::fs::metadata(&capture).unwrap().len() > 1000);
    run(&["check", "--corpus", "/no/such/file"]).fails(1, "cannot read /no/such/file");
}

#[test]
fn failures_to_open_exit_with_1_and_advice() {
    run(&["serve", "--dir", "/no/such/folder"]).fails(1, "make it first (mkdir)");
    run(&["serve", "--token-file", "/no/such/token"]).fails(1, "head -c 32 /dev/urandom");
    run(&["serve", "--ip", "192.0.2.7"]).fails(1, "this host has");
    run(&["serve", "--interface", "nosuch0"]).fails(1, "does not exist");
    run(&["serve", "--port-base", "65500"]).fails(1, "65280");
    run(&["perf", "bw", "127.0.0.1", "--mtu", "65535"]).fails(1, "does not fit");
    run(&["perf", "bw", "no-such-host.invalid"]).fails(1, "cannot find the host");
    let first = Server::start_at(21_600, "127.0.0.1", &["--slot", "9"]);
    let taken = ["serve", "--ip", "127.0.0.1", "--port-base", "21600", "--slot", "9"];
    run(&taken).fails(1, "in use");
    assert_eq!(first.address, "127.0.0.1:21609");
}

#[test]
fn a_missing_server_is_reported_in_time() {
    let clients: [&[&str]; 3] = [
        &["perf", "lat", "127.0.0.1:21999", "--port-base", "21900"],
        &["cp", "/etc/hostname", "127.0.0.1:21999:x", "--port-base", "21900"],
        &["paths", "127.0.0.1:21999", "--port-base", "21900"],
    ];
    let mut running: Vec<Running> = clients.iter().map(|a| Running::start(srd(a))).collect();
    for client in &mut running {
        let done = client.wait().fails(1, "srd serve");
        assert!(done.took < Duration::from_secs(20), "{done:#?}");
    }
}

/// Without a server on this host, a client gets the first free port, which is the one it is to
/// speak with: it must not take itself for another program.
#[test]
fn a_missing_server_on_this_host_is_missing_though_the_client_has_its_port() {
    let clients: [&[&str]; 3] = [
        &["perf", "lat", "127.0.0.1", "--port-base", "23000"],
        &["cp", "/etc/hostname", "127.0.0.1:", "--port-base", "23000"],
        &["paths", "127.0.0.1", "--port-base", "23000"],
    ];
    for client in clients {
        run(client).fails(1, "nobody answers at 127.0.0.1:23000: start `srd serve --ip 127.0.0.1`");
    }
}

#[test]
fn a_closed_output_ends_the_command_quietly() {
    let s = Scratch::new("pipe");
    let server = Server::start(&[]);
    let mut shell = std::process::Command::new("sh");
    let (tool, base) = (env!("CARGO_BIN_EXE_srd"), crate::common::PORT_BASE);
    let line = format!(
        "{tool} perf bw --all --iters 5 --port-base {base} {} 2>{} | head -n 1",
        server.address,
        s.path("err")
    );
    let done = shell.args(["-c", &line]).output().unwrap();
    assert!(String::from_utf8(done.stdout).unwrap().starts_with("bw of send"));
    assert_eq!(std::fs::read_to_string(s.path("err")).unwrap(), "");
}
