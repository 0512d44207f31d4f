//! `srd top`: what the processes of a host tell each other.

use crate::common::{Running, Server, run, srd, until};
use serde_json::Value;

fn table() -> Value {
    serde_json::from_str(&run(&["top", "--json"]).ok().stdout).unwrap()
}

/// The lines of a process in the table.
fn rows_of(pid: u32) -> Vec<Value> {
    let table = table();
    let rows = table["rows"].as_array().unwrap().iter();
    rows.filter(|r| r["pid"].as_u64() == Some(pid.into())).cloned().collect()
}

#[test]
fn processes_that_send_are_shown_with_their_shares_until_they_end() {
    let server = Server::start(&[]);
    let args = ["perf", "bw", "{}", "--op", "write", "--size", "64K", "--iters", "1000000000"];
    let mut clients: Vec<Running> = (0..2).map(|_| Running::start(server.client(&args))).collect();
    let pids: Vec<u32> = clients.iter().map(Running::pid).collect();
    until("both are seen to send, and each other", || {
        clients.iter_mut().for_each(|c| assert!(c.is_running(), "{}", c.stderr()));
        pids.iter().all(|&pid| {
            rows_of(pid).iter().any(|r| {
                r["peer"] == "127.0.0.1"
                    && r["senders"].as_u64().unwrap() >= 2
                    && r["rate_mbps"].as_f64().unwrap() > 0.0
                    && r["sent"].as_u64().unwrap() > 0
                    && r["program"] == "srd"
            })
        })
    });
    let text = run(&["top", "--once"]).ok().stdout;
    assert!(text.contains("processes with") && text.contains("127.0.0.1"), "{text}");
    // Killed: no line stays.
    drop(clients);
    until("the dead are gone", || pids.iter().all(|&pid| rows_of(pid).is_empty()));
    server.end();
}

#[test]
fn a_process_that_does_not_share_is_not_shown() {
    let mut command = srd(&Server::args(21_600, "127.0.0.1", &[]));
    command.env("SRD_SHARE", "0");
    let server = Server::adopt(command, 21_600);
    let args = ["perf", "bw", "{}", "--op", "write", "--size", "64K", "--iters", "20000"];
    let mut command = server.client(&args);
    command.env("SRD_SHARE", "0");
    let mut client = Running::start(command);
    let pids = [client.pid(), server.process.pid()];
    while client.is_running() {
        assert!(pids.iter().all(|&pid| rows_of(pid).is_empty()), "{:?}", table());
    }
    client.wait().ok();
    server.end();
}
