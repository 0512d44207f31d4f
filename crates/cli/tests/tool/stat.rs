//! `srd stat`: what running processes show, from outside.

use crate::common::{Running, Server, run, srd, until};
use serde_json::Value;

fn devices() -> Vec<Value> {
    let text = run(&["stat", "--json"]).ok().stdout;
    let all: Value = serde_json::from_str(&text).unwrap();
    all["devices"].as_array().unwrap().clone()
}

/// The device of a process.
fn device_of(pid: u32) -> Option<Value> {
    devices().into_iter().find(|d| d["pid"].as_u64() == Some(pid.into()))
}

fn count(value: &Value, field: &str) -> u64 {
    value[field].as_u64().unwrap_or_else(|| panic!("no number {field} in {value}"))
}

#[test]
fn both_ends_show_what_they_did_and_vanish_when_they_are_killed() {
    let server = Server::start(&[]);
    let args = ["perf", "bw", "{}", "--op", "write", "--size", "64K", "--iters", "1000000000"];
    let client = Running::start(server.client(&args));
    let (at_client, at_server) = (client.pid(), server.process.pid());
    until("the sender shows its peer, and the receiver what arrived", || {
        let (Some(a), Some(b)) = (device_of(at_client), device_of(at_server)) else { return false };
        count(&a, "bytes_sent") > 1 << 20
            && count(&b, "bytes_received") > 1 << 20
            && a["peers"][0]["rate_mbps"].as_f64().unwrap_or(0.0) > 0.0
            && a["peers"][0]["limit"].is_string()
    });
    let a = device_of(at_client).unwrap();
    assert_eq!(
        (&a["program"], &a["local"], &a["sealed"]),
        (&"srd".into(), &"127.0.0.1".into(), &"no".into())
    );
    let peer = &a["peers"][0];
    assert_eq!(peer["peer"], "127.0.0.1");
    let states =
        ["paths_live", "paths_penalised", "paths_retired", "paths_probing", "paths_denied"];
    assert_eq!(states.iter().map(|s| count(peer, s)).sum::<u64>(), count(&a, "paths"));
    assert_eq!(peer["paths"].as_array().unwrap().len() as u64, count(&a, "paths"));
    let by_path: u64 =
        peer["paths"].as_array().unwrap().iter().map(|p| count(p, "packets_sent")).sum();
    assert_eq!(by_path, count(peer, "packets_sent"));
    assert!(count(&a, "queue_pairs") >= 1 && count(&a["counters"], "tx_pkts") >= by_path / 2);
    let pid = at_client.to_string();
    let text = run(&["stat", "--counters", "--paths", &pid]).ok().stdout;
    assert!(
        text.contains(&pid) && text.contains("retrans_pkts") && text.contains("path  63"),
        "{text}"
    );
    // SIGKILL: the lines vanish, and so does the file.
    drop(client);
    until("the dead is gone", || device_of(at_client).is_none());
    let done = run(&["stat", &pid]);
    done.fails(1, "has no open SRD device");
    server.end();
    assert!(device_of(at_server).is_none());
    let ours = |name: &str| [at_client, at_server].iter().any(|p| name.contains(&format!("-{p}-")));
    let left: Vec<_> = std::fs::read_dir("/dev/shm")
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with("srd-status-") && ours(name))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

/// Each path of a running process that is asked for answers, with its port; whether the process is
/// at rest or not.
#[test]
fn paths_of_running_processes_are_probed() {
    let server = Server::start(&[]);
    let args = ["perf", "bw", "{}", "--op", "write", "--size", "64K", "--iters", "1000000000"];
    let client = Running::start(server.client(&args));
    until("the sender has a peer", || {
        device_of(client.pid()).is_some_and(|d| count(&d, "bytes_sent") > 1 << 20)
    });
    let probe = |paths: &str| -> Vec<Value> {
        let mut command =
            srd(&["paths", "probe", paths, "--peer", "127.0.0.1", "--json", "--wait", "20s"]);
        // Other tests run processes of their own, some with faults: the exit code is about all.
        let text = String::from_utf8(command.output().unwrap().stdout).unwrap();
        serde_json::from_str(text.lines().next().unwrap_or("[]")).unwrap()
    };
    for pid in [client.pid(), server.process.pid()] {
        let rows = probe("0-2,63");
        let own: Vec<_> = rows.iter().filter(|r| r["pid"].as_u64() == Some(pid.into())).collect();
        let paths: Vec<_> = own.iter().map(|r| count(r, "path")).collect();
        assert_eq!(paths, [0, 1, 2, 63], "{rows:?}");
        for row in own {
            assert!(row["answered"] == true && row["rtt_us"].is_number(), "{row}");
            assert!(count(row, "udp_port") > 0);
        }
    }
    run(&["paths", "probe", "--peer", "203.0.113.9"]).fails(1, "shows paths to 203.0.113.9");
}

#[test]
fn a_process_that_shows_nothing_is_not_listed() {
    let mut command = srd(&Server::args(21_700, "127.0.0.1", &[]));
    command.env("SRD_STATUS", "0");
    let server = Server::adopt(command, 21_700);
    assert!(device_of(server.process.pid()).is_none());
    server.end();
    run(&["stat", "--peers", "65"]).fails(2, "65 is not in 0..=64");
}
