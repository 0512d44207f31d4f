//! Copies that must succeed, and copies that must fail.

use crate::common::{PORT_BASE, Running, Scratch, Server, same};
use std::{fs, os::unix::fs::symlink};

/// Loss, duplication and reordering at both ends, with packets small enough that each occurs often.
const BAD: [&str; 8] =
    ["--mtu", "4000", "--fault-loss", "5%", "--fault-duplicate", "2%", "--fault-reorder", "10%"];

/// Bytes of the longest copy: its packets leave in bursts, each on one path, and must be enough for
/// most of the 64 paths.
const LONG: usize = 20_000_001;

fn hash_of(text: &str) -> &str {
    text.lines().find_map(|l| l.strip_prefix("blake3 ")).unwrap().split(' ').next().unwrap()
}

fn both_ways(ip: &str, name: &str) {
    let s = Scratch::new(name);
    let dir = s.path("in");
    let server = Server::start_at(PORT_BASE, ip, &[&["--dir", &dir][..], &BAD].concat());
    let copy = |from: &str, to: &str| server.run(&[&["cp", from, to][..], &BAD].concat()).ok();
    for (name, len) in
        [("empty", 0), ("one", 1), ("chunk", 512 << 10), ("a b/ünïcode", 1000), ("odd", LONG)]
    {
        fs::create_dir_all(s.0.join("in/a b")).unwrap();
        let original = s.file("original", len);
        let put = copy(&original, &format!("{{}}:{name}"));
        assert!(same(&original, s.0.join("in").join(name)), "{name} {put:#?}");
        let get = copy(&format!("{{}}:{name}"), &s.path("back"));
        assert!(same(&original, s.path("back")), "{name} {get:#?}");
        assert_eq!(hash_of(&put.stdout), hash_of(&get.stdout));
        if len > 1 << 20 {
            let lost = put.stdout.lines().find(|l| l.starts_with("injected faults")).unwrap();
            assert!(!lost.contains(" 0 lost"), "{lost}");
            let paths = put.stdout.split(" paths").next().and_then(|t| t.rsplit(' ').next());
            let paths: u32 = paths.and_then(|n| n.parse().ok()).expect("the number of paths");
            // Paths that lose two packets in a row are penalised.
            assert!((48..=64).contains(&paths), "{}", put.stdout);
        }
    }
    assert_eq!(s.names("in/a b"), ["ünïcode"]);
    assert_eq!(s.names("in"), ["a b", "chunk", "empty", "odd", "one"]);
    let done = server.end();
    assert!(done.stdout.contains("10 copies; 0 copies failed"), "{done:#?}");
}

#[test]
fn both_ways_over_a_bad_network_ipv4() {
    both_ways("127.0.0.1", "both4");
}

#[test]
fn both_ways_over_a_bad_network_ipv6() {
    both_ways("::1", "both6");
}

#[test]
fn the_hash_is_that_of_b3sum() {
    let s = Scratch::new("hash");
    let server = Server::start(&["--dir", &s.path("in"), "--once"]);
    fs::write(s.path("abc"), b"abc").unwrap();
    let put = server.run(&["cp", &s.path("abc"), "{}:"]).ok();
    // From the test vectors of BLAKE3.
    let abc = "6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85";
    assert_eq!(hash_of(&put.stdout), abc);
    assert_eq!(s.names("in"), ["abc"], "under its own name");
    // With --once the server exits after the first copy.
    let mut server = server;
    server.process.wait().ok();
}

#[test]
fn names_cannot_lead_out_of_the_folder() {
    let s = Scratch::new("escape");
    fs::write(s.path("secret"), b"secret").unwrap();
    fs::create_dir(s.path("in/sub")).unwrap();
    symlink("../secret", s.path("in/link")).unwrap();
    symlink("..", s.path("in/up")).unwrap();
    let file = s.file("file", 100);
    let server = Server::start(&["--dir", &s.path("in")]);
    let (secret, dev) = (s.path("secret"), "/dev/null".to_owned());
    let names =
        ["../secret", "sub/../../secret", "link", "up/secret", "up/new", "sub", &secret, &dev];
    for name in names {
        let remote = format!("{{}}:{name}");
        server.run(&["cp", &file, &remote]).fails(1, name);
        server.run(&["cp", &remote, &s.path("got")]).fails(1, name);
    }
    assert_eq!(fs::read(s.path("secret")).unwrap(), b"secret");
    assert_eq!(s.names("in"), ["link", "sub", "up"]);
    assert_eq!(s.names("."), ["file", "in", "secret"]);
    // The server still works.
    server.run(&["cp", &file, "{}:sub/fine"]).ok();
    assert!(server.end().stderr.contains("symbolic links are not followed"));
}

#[test]
fn impossible_copies_are_reported() {
    let s = Scratch::new("refused");
    let file = s.file("file", 100);
    fs::create_dir(s.path("in/folder")).unwrap();
    let server = Server::start(&["--dir", &s.path("in")]);
    server.run(&["cp", &file, "{}:no/such/folder"]).fails(1, "no such file or folder");
    server.run(&["cp", &file, "{}:folder"]).fails(1, "is a folder");
    server.run(&["cp", "{}:missing", &s.path("got")]).fails(1, "no such file or folder");
    server.run(&["cp", "{}:folder", &s.path("got")]).fails(1, "is a folder");
    server.run(&["cp", "/dev/zero", "{}:zero"]).fails(1, "not a regular file");
    server.run(&["cp", &s.path("missing"), "{}:x"]).fails(1, "no such file or folder");
    server.run(&["cp", &s.path("in"), "{}:x"]).fails(1, "is a folder");
    server.run(&["cp", "{}:", &s.path("got")]).fails(2, "name the server's file");
    let long = format!("{{}}:{}", "n".repeat(300));
    server.run(&["cp", &file, &long]).fails(1, "too long");
    server.run(&["cp", &file, "{}:file"]).ok();
    server.run(&["cp", "{}:file", "/dev/null"]).fails(1, "not a regular file");
    server.run(&["cp", "{}:file", &s.path("no/such")]).fails(1, "no such file or folder");
    assert_eq!(s.names("in"), ["file", "folder"]);
    server.end();

    let shut = Server::start(&[]);
    shut.run(&["cp", &file, "{}:x"]).fails(1, "without --dir");
    shut.run(&["cp", "{}:x", &s.path("got")]).fails(1, "without --dir");
    assert!(!fs::exists(s.path("got")).unwrap());
}

#[test]
fn damaged_files_are_discarded() {
    let s = Scratch::new("damaged");
    let file = s.file("file", 4 << 20);
    let server = Server::start(&["--dir", &s.path("in")]);
    let put = ["cp", &file, "{}:copy", "--mtu", "8000", "--fault-corrupt", "2%", "--unchecked"];
    server.run(&put).fails(1, "");
    assert!(s.names("in").is_empty());
    server.run(&["cp", &file, "{}:copy"]).ok();
    assert!(same(&file, s.path("in/copy")));
}

/// With checksums, which are the default, a damaged packet counts as lost and is retransmitted.
#[test]
fn damaged_packets_are_retransmitted() {
    let s = Scratch::new("again");
    let file = s.file("file", 4 << 20);
    let server = Server::start(&["--dir", &s.path("in"), "--fault-corrupt", "2%"]);
    for mtu in ["1400", "8000"] {
        let there = format!("{{}}:copy{mtu}");
        let put = ["cp", &file, &there, "--mtu", mtu, "--fault-corrupt", "2%"];
        server.run(&put).ok();
        assert!(same(&file, s.0.join("in").join(format!("copy{mtu}"))));
        let back = s.path(&format!("back{mtu}"));
        server.run(&["cp", &there, &back, "--mtu", mtu, "--fault-corrupt", "2%"]).ok();
        assert!(same(&file, back));
    }
}

#[test]
fn many_clients_at_once() {
    let s = Scratch::new("many");
    let file = s.file("file", 3 << 20);
    let server = Server::start(&["--dir", &s.path("in")]);
    let names: Vec<String> = (0..6).map(|i| format!("copy{i}")).collect();
    let mut all: Vec<Running> = names
        .iter()
        .map(|n| Running::start(server.client(&["cp", &file, &format!("{{}}:{n}")])))
        .collect();
    for op in ["send", "write", "read"] {
        let perf = ["perf", "bw", "{}", "--op", op, "--iters", "2000", "--size", "4K"];
        all.push(Running::start(server.client(&perf)));
    }
    for mut client in all {
        client.wait().ok();
    }
    assert_eq!(s.names("in"), names);
    assert!(names.iter().all(|n| same(&file, s.0.join("in").join(n))));
    let done = server.end();
    assert!(done.stdout.contains("3 measurements and 6 copies; 0 copies failed"), "{done:#?}");
}
