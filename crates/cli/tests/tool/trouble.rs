//! Processes that are killed, stopped or out of disk space in the middle of a copy.

use crate::common::{Running, Scratch, Server, same, srd, until};
use rustix::process::Signal;
use std::{process::Command, time::Duration};

/// Rate limit that makes a copy take some seconds.
const SLOW: [&str; 6] = ["--rate-policy", "fixed", "--rate", "40M", "--mtu", "4000"];
const FILE_BYTES: usize = 20 << 20;
/// Time limit for reporting the death of the other end.
const NOTICE: Duration = Duration::from_secs(20);

fn slow_put(server: &Server, file: &str, name: &str) -> Running {
    let remote = format!("{{}}:{name}");
    let client = server.client(&[&["cp", file, &remote][..], &SLOW].concat());
    let client = Running::start(client);
    std::thread::sleep(Duration::from_millis(700));
    client
}

#[test]
fn a_killed_server_is_detected_and_can_restart() {
    let s = Scratch::new("server");
    let file = s.file("file", FILE_BYTES);
    let args = ["--dir", &s.path("in"), "--slot", "3"];
    let mut server = Server::start_at(22_000, "127.0.0.1", &args);
    let mut client = slow_put(&server, &file, "copy");
    assert!(client.is_running());
    server.process.signal(Signal::KILL);
    server.process.wait();
    let done = client.wait().fails(1, "the other end");
    assert!(done.took < NOTICE, "{done:#?}");
    assert!(s.names("in").is_empty(), "not even kill -9 leaves something");

    let again = Server::start_at(22_000, "127.0.0.1", &args);
    assert_eq!(again.address, server.address);
    again.run(&["cp", &file, "{}:copy"]).ok();
    assert!(same(&file, s.path("in/copy")));
}

#[test]
fn a_quick_restart_of_the_server_fails_the_copy() {
    let s = Scratch::new("restart");
    let file = s.file("file", FILE_BYTES);
    let args = ["--dir", &s.path("in"), "--slot", "3"];
    let mut server = Server::start_at(22_400, "127.0.0.1", &args);
    let mut client = slow_put(&server, &file, "copy");
    server.process.signal(Signal::KILL);
    server.process.wait();
    let again = Server::start_at(22_400, "127.0.0.1", &args);
    let done = client.wait().fails(1, "the other end");
    assert!(done.took < NOTICE, "{done:#?}");
    assert!(s.names("in").is_empty());
    again.run(&["cp", &file, "{}:copy"]).ok();
    assert!(same(&file, s.path("in/copy")));
}

#[test]
fn a_killed_client_leaves_no_file_and_the_server_continues() {
    let s = Scratch::new("client");
    let file = s.file("file", FILE_BYTES);
    let server = Server::start(&["--dir", &s.path("in")]);
    let mut client = slow_put(&server, &file, "copy");
    let mut perf = Running::start(server.client(&["perf", "bw", "{}", "--duration", "60s"]));
    std::thread::sleep(Duration::from_millis(300));
    client.signal(Signal::KILL);
    perf.signal(Signal::KILL);
    client.wait();
    perf.wait();
    server.run(&["cp", &file, "{}:other"]).ok();
    until("the server notices both", || {
        let err = server.process.stderr();
        err.contains("stores \"copy\": the other end") && err.contains("the client has gone")
    });
    assert_eq!(s.names("in"), ["other"]);
    server.end();
}

#[test]
fn ctrl_c_ends_a_copy_cleanly() {
    let s = Scratch::new("interrupt");
    let file = s.file("file", FILE_BYTES);
    let server = Server::start(&["--dir", &s.path("in")]);
    let mut client = slow_put(&server, &file, "copy");
    client.signal(Signal::INT);
    let done = client.wait().fails(130, "interrupted");
    assert!(done.took < Duration::from_secs(10), "{done:#?}");
    until("the server hears of it", || {
        let heard = server.process.stderr();
        assert!(heard.is_empty() || heard.contains("interrupted"), "{heard}");
        !heard.is_empty()
    });
    assert!(s.names("in").is_empty());
    // The other direction: a partially fetched file is removed.
    server.run(&["cp", &file, "{}:there"]).ok();
    let slow_server = Server::start(&[&["--dir", &s.path("in")][..], &SLOW].concat());
    let get = slow_server.client(&["cp", "{}:there", &s.path("got")]);
    let mut client = Running::start(get);
    std::thread::sleep(Duration::from_millis(700));
    client.signal(Signal::TERM);
    client.wait().fails(130, "interrupted");
    assert_eq!(s.names("."), ["file", "in"]);
}

#[test]
fn a_stopped_server_tells_its_clients() {
    let s = Scratch::new("ended");
    let file = s.file("file", FILE_BYTES);
    let server = Server::start(&["--dir", &s.path("in")]);
    let mut client = slow_put(&server, &file, "copy");
    let done = server.end();
    assert!(done.stdout.contains("1 copies failed"), "{done:#?}");
    client.wait().fails(1, "the server was ended");
    assert!(s.names("in").is_empty());
}

#[test]
fn perf_ends_by_ctrl_c_and_when_its_server_is_killed() {
    let server = Server::start(&[]);
    let bw = ["perf", "bw", "{}", "--duration", "60s", "--op", "write"];
    let mut first = Running::start(server.client(&bw));
    let mut second = Running::start(server.client(&["perf", "lat", "{}", "--duration", "60s"]));
    std::thread::sleep(Duration::from_millis(700));
    first.signal(Signal::INT);
    first.wait().fails(130, "interrupted");
    server.process.signal(Signal::KILL);
    let done = second.wait().fails(1, "the server at");
    assert!(done.took < NOTICE, "{done:#?}");
}

#[test]
fn a_full_disk_is_reported_and_no_file_is_left() {
    let s = Scratch::new("full");
    let (file, small) = (s.file("file", 4 << 20), s.file("small", 1000));
    let dir = s.path("in");
    // A server whose folder is a file system of 1 MiB, in its own mount namespace.
    let mount = "mount -t tmpfs -o size=1m tmpfs \"$1\" || exit 77; shift; exec \"$@\"";
    let tool = srd(&[]).get_program().to_owned();
    let probe = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", mount, "sh", &dir, "true"])
        .status();
    if !probe.is_ok_and(|s| s.success()) {
        println!("skipped: this host allows no mounts in user namespaces");
        return;
    }
    // By default the server knows the free space; with a wrong limit, the file system reports the
    // error.
    let wrong = ["--disk-max", "1G", "--disk-keep", "0"];
    for (options, words) in [(&[][..], "--disk-max"), (&wrong, "no space left")] {
        let args = [&["--dir", &dir], options].concat();
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount", "sh", "-c", mount, "sh", &dir]);
        command.arg(&tool).args(Server::args(crate::common::PORT_BASE, "127.0.0.1", &args));
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        let server = Server::adopt(command, crate::common::PORT_BASE);
        server.run(&["cp", &file, "{}:file"]).fails(1, words);
        server.run(&["cp", &small, "{}:small"]).ok();
        server.run(&["cp", "{}:small", &s.path("back")]).ok();
        assert!(same(&small, s.path("back")));
        server.run(&["cp", "{}:file", &s.path("got")]).fails(1, "no such file");
    }
}
