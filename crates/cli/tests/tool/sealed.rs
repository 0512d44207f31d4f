//! Key files: what `srd key` makes is what the other commands take, and who has none is told why.

use crate::common::{PORT_BASE, Scratch, Server, run, same};
use std::{fs, os::unix::fs::PermissionsExt};

#[test]
fn a_copy_is_sealed_and_nothing_of_the_file_is_on_the_network() {
    let s = Scratch::new("sealed");
    let (dir, key) = (s.path("in"), s.path("keys"));
    run(&["key", "new", &key]).ok();
    run(&["key", "new", &key]).fails(2, "exists already");
    let server = Server::start_at(PORT_BASE, "127.0.0.1", &["--dir", &dir, "--key", &key]);
    let original = s.file("original", 300_000);
    let capture = s.path("capture.pcapng");
    server.run(&["cp", &original, "{}:copy", "--key", &key, "--capture", &capture]).ok();
    assert!(same(&original, s.0.join("in/copy")));
    let (bytes, seen) = (fs::read(&original).unwrap(), fs::read(&capture).unwrap());
    assert!(seen.len() > bytes.len());
    let piece = &bytes[100_000..100_032];
    assert!(!seen.windows(piece.len()).any(|w| w == piece), "the file is in the capture");
    let open = s.path("open.pcapng");
    let plain = Server::start_at(PORT_BASE, "127.0.0.1", &["--dir", &dir]);
    plain.run(&["cp", &original, "{}:copy", "--capture", &open]).ok();
    let seen = fs::read(&open).unwrap();
    assert!(seen.windows(piece.len()).any(|w| w == piece), "the search finds what is there");
    let done = server.end();
    assert!(done.stderr.contains("all packets are sealed"), "{done:#?}");
}

#[test]
fn who_has_no_key_or_another_is_told_so_by_both() {
    let s = Scratch::new("unkeyed");
    let (dir, key, other) = (s.path("in"), s.path("keys"), s.path("others"));
    run(&["key", "new", &key]).ok();
    run(&["key", "new", &other]).ok();
    let original = s.file("original", 1000);
    let sealed = Server::start_at(PORT_BASE, "127.0.0.1", &["--dir", &dir, "--key", &key]);
    let words = "it accepts sealed contexts only; give both the same key file";
    sealed.run(&["cp", &original, "{}:copy"]).fails(1, words);
    sealed.run(&["cp", &original, "{}:copy", "--key", &other]).fails(1, "have different keys");
    let told = sealed.end().stderr;
    assert!(told.contains("was refused: it does not seal"), "{told}");
    assert!(told.contains("was refused: it has another key"), "{told}");
    let open = Server::start_at(PORT_BASE, "127.0.0.1", &["--dir", &dir]);
    open.run(&["cp", &original, "{}:copy", "--key", &key]).fails(1, "it has no key file");
    open.run(&["cp", &original, "{}:copy", "--key", &key, "--seal", "prefer"]).ok();
    open.run(&["cp", &original, "{}:copy", "--key", &key, "--seal", "never"]).ok();
}

#[test]
fn key_files_are_shown_and_rotated_and_wrong_ones_refused() {
    let s = Scratch::new("keys");
    let key = s.path("keys");
    run(&["key", "show", &key]).fails(2, "keys");
    run(&["key", "new", &key]).ok();
    assert_eq!(fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
    let text = fs::read_to_string(&key).unwrap();
    let secret = text.lines().last().unwrap().split(' ').nth(1).unwrap().to_owned();
    for (words, shown) in [
        ("step 1 of 3: key 2 is accepted", ["key 1: sends", "key 2: accepts"]),
        ("step 2 of 3: key 2 is used", ["key 2: sends", "key 1: accepts"]),
    ] {
        assert!(run(&["key", "rotate", &key]).ok().stdout.contains(words));
        let show = run(&["key", "show", &key]).ok().stdout;
        assert!(show.lines().zip(shown).all(|(line, start)| line.starts_with(start)), "{show}");
        assert!(!show.contains(&secret), "{show}");
    }
    assert!(run(&["key", "rotate", &key]).ok().stdout.contains("only key 2 is left"));
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    run(&["key", "show", &key]).fails(2, "chmod 600");
    run(&["serve", "--dir", &s.path("in"), "--key", &key]).fails(2, "chmod 600");
    run(&["serve", "--dir", &s.path("in"), "--seal", "require"]).fails(2, "srd key new");
}
