//! `srd capture`: the packets of running processes, read back by tshark and by this project.

use crate::common::{Running, Scratch, Server, run, srd, until};
use crate::wireshark::fields;
use rustix::process::Signal;
use std::{fs, os::unix::fs::PermissionsExt, path::Path};

/// A capture that runs, and has begun to write.
fn begin(args: &[&str], file: &str) -> Running {
    let _ = fs::remove_file(file);
    let mut capture = Running::start(srd(&[&["capture", file], args].concat()));
    until("the capture has packets", || {
        assert!(capture.is_running(), "{}", capture.stderr());
        fs::metadata(file).is_ok_and(|meta| meta.len() > 20_000)
    });
    capture
}

fn number_in(text: &str, of: &str) -> usize {
    let at = text.find(of).unwrap_or_else(|| panic!("no {of:?} in {text}"));
    text[..at].split_whitespace().next_back().unwrap().parse().unwrap()
}

/// Starts a client, and waits until it has a peer.
fn client(command: std::process::Command) -> Running {
    let client = Running::start(command);
    let pid = client.pid().to_string();
    until("the client has a peer", || {
        run(&["stat", "--json", &pid]).stdout.contains("\"peers\":[{")
    });
    client
}

fn sender(server: &Server) -> Running {
    let mut args = vec!["perf", "bw", "{}", "--op", "write", "--size", "64K", "--mtu", "4096"];
    args.extend(["--iters", "1000000000"]);
    client(server.client(&args))
}

/// Two processes that nobody asked for a capture when they were started: their packets, by name of
/// process, sent and received; whole after Ctrl-C.
#[test]
fn running_processes_are_captured_and_the_capture_is_whole() {
    let (server, s) = (Server::start(&["--mtu", "4096"]), Scratch::new("capture"));
    let client = sender(&server);
    let file = s.path("c.pcapng");
    let (of_client, of_server) = (client.pid().to_string(), server.process.pid().to_string());
    let mut capture = begin(&[&of_client, &of_server, "--buffer", "512K"], &file);
    // Some messages of 64 KiB, sent and received.
    until("it has some messages", || fs::metadata(&file).is_ok_and(|meta| meta.len() > 4 << 20));
    capture.signal(Signal::INT);
    let told = capture.wait().ok().stderr;
    let packets = number_in(&told, " packets captured");
    // The processes go on, and hold nothing of the capture any more.
    let rings = || {
        let shm = fs::read_dir("/dev/shm").unwrap().flatten();
        let name = |e: fs::DirEntry| e.file_name().into_string().unwrap();
        let port = server.address.rsplit(':').next().unwrap().to_owned();
        shm.map(name).filter(|n| n.starts_with("srd-capture") && n.ends_with(&port)).count()
    };
    assert_eq!(rings(), 0);
    let maps = format!("/proc/{of_server}/maps");
    until("the server gives the ring back", || {
        !fs::read_to_string(&maps).unwrap().contains("srd-capture")
    });
    let shown = ["frame.interface_name", "frame.packet_flags_direction", "srd.path"];
    let Some(rows) = fields(&s, &file, "srd && !srd.refused", &shown) else { return };
    assert_eq!(rows.len(), packets, "each is a packet of software SRD, with valid checksums");
    for pid in [&of_client, &of_server] {
        for way in ["0x00000001", "0x00000002"] {
            let of = |row: &&Vec<String>| row[0].contains(&format!("[{pid}]")) && row[1] == way;
            let paths: std::collections::BTreeSet<_> =
                rows.iter().filter(of).map(|row| &row[2]).collect();
            assert!(paths.len() > 1, "process {pid}, direction {way}: {paths:?}");
        }
    }
    let times =
        fields(&s, &file, "frame.time_delta > 1 || frame.time_delta < -1", &["frame.number"]);
    assert_eq!(times.map(|rows| rows.len()), Some(0), "in the order of time");
    // As a trace, a packet that is there twice is one that was sent once.
    run(&["trace", &s.path("t.json"), "--capture", &file]).ok();
    let text = fs::read(s.path("t.json")).unwrap();
    let trace: serde_json::Value = serde_json::from_slice(&text).unwrap();
    let all = trace["traceEvents"].as_array().unwrap().iter();
    let of = |phase| all.clone().filter(move |e| e["ph"] == phase);
    let told =
        |e: &&serde_json::Value| e["name"].as_str().is_some_and(|n| n.starts_with("sent again"));
    let (messages, again) =
        (of("X").filter(|e| e["args"]["message"].is_u64()), of("i").filter(told));
    let (messages, again) = (messages.count(), again.count());
    assert!(messages > 10 && again < packets / 4, "{again} of {packets}, {messages} messages");
    // It can be captured again; only some packets, and only their beginnings.
    let (short, again) = (s.path("short.pcapng"), ["--packets", "500", "--snaplen", "80"]);
    let mut capture = Running::start(srd(&[&["capture", &short, &of_client], &again[..]].concat()));
    assert!(capture.wait().ok().stderr.contains("500 packets captured"));
    let lens = fields(&s, &short, "udp", &["frame.cap_len", "frame.len"]).unwrap();
    let number = |text: &String| text.parse::<u32>().unwrap();
    assert!(lens.len() == 500 && lens.iter().all(|row| number(&row[0]) <= 108), "{lens:?}");
    assert!(lens.iter().any(|row| number(&row[1]) > 4_000));
    drop(client);
    run(&["capture", &short, &of_client, "--for", "100ms"]).fails(1, "has no open SRD device");
    run(&["capture", "/nowhere/c", "--for", "1s"]).fails(1, "cannot write the capture");
    run(&["capture", &short, "--buffer", "3M"]).fails(2, "power of two");
    server.end();
}

/// A capture waits for processes that start later; one that is killed leaves nothing in the way.
#[test]
fn a_capture_that_is_killed_leaves_processes_and_later_captures_alone() {
    let (mut server, s) = (Server::start(&[]), Scratch::new("capture-kill"));
    let file = s.path("c.pcapng");
    let of_server = server.process.pid().to_string();
    let client = sender(&server);
    let capture = begin(&[&of_server], &file);
    let busy = run(&["capture", &s.path("b.pcapng"), &of_server, "--for", "500ms"]);
    assert!(busy.stderr.contains("another `srd capture`"), "{busy:?}");
    drop(capture);
    let mut capture = begin(&[&of_server], &file);
    capture.signal(Signal::TERM);
    capture.wait().ok();
    // A process that starts after the capture did.
    drop(client);
    let later = s.path("later.pcapng");
    let mut capture = Running::start(srd(&["capture", &later, "--for", "60s"]));
    until("it runs", || Path::new(&later).exists());
    server.run(&["perf", "lat", "{}", "--iters", "20"]).ok();
    until("it has packets", || {
        // What waits is written ten times per second.
        let _ = server.process.is_running();
        fs::metadata(&later).unwrap().len() > 2_000
    });
    capture.signal(Signal::INT);
    capture.wait().ok();
    server.end();
}

/// Contexts that exist already, and new ones: the secrets come only from processes that were
/// started so that they may, and open what was captured.
#[test]
fn sealed_processes_give_secrets_if_they_may() {
    let s = Scratch::new("capture-sealed");
    let (key, file, open) = (s.path("keys"), s.path("c.pcapng"), s.path("open.pcapng"));
    run(&["key", "new", &key]).ok();
    // Ports at which the dissector needs no proof: opened packets have none.
    let server = Server::start_at(18_800, "127.0.0.1", &["--key", &key]);
    let start = |may: &str| {
        let args = ["perf", "bw", "{}", "--size", "2K", "--iters", "1000000000", "--key", &key];
        let mut command = server.client(&args);
        command.env("SRD_CAPTURE_SECRETS", may);
        client(command)
    };
    for may in ["0", "1"] {
        let client = start(may);
        let pid = client.pid().to_string();
        let mut capture = begin(&[&pid, "--secrets"], &file);
        capture.signal(Signal::INT);
        let packets = number_in(&capture.wait().ok().stderr, " packets captured");
        drop(client);
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        let opened = run(&["wireshark", "--unseal", &file, &open]);
        if may == "0" {
            opened.fails(2, "holds no secrets");
            continue;
        }
        let told = opened.ok().stdout;
        // What was sent before the capture began may still arrive.
        assert!(number_in(&told, " opened,") * 10 > packets * 9, "{told}");
        let Some(rows) = fields(&s, &open, "srd.payload", &["frame.interface_name"]) else {
            return;
        };
        assert!(rows.len() > 10 && rows.iter().all(|row| row[0].contains(&pid)), "{rows:?}");
    }
    server.end();
}
