//! Key files: what `srd key` makes is what the other commands take, and who has none is told why.

use crate::common::{PORT_BASE, Running, Scratch, Server, run, same, srd, until};
use srd::seal::CaptureSecret;
use std::{collections::HashMap, fs, os::unix::fs::PermissionsExt};

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

/// The blocks of a pcapng file: type and body.
fn blocks(file: &[u8]) -> Vec<(u32, &[u8])> {
    let word = |at: usize| u32::from_le_bytes(*file[at..].first_chunk().unwrap());
    let (mut at, mut all) = (0, Vec::new());
    while at < file.len() {
        let length = word(at + 4) as usize;
        all.push((word(at), &file[at + 8..at + length - 4]));
        at += length;
    }
    all
}

#[test]
fn the_secrets_in_a_capture_open_its_packets() {
    let s = Scratch::new("secrets");
    let (dir, key) = (s.path("in"), s.path("keys"));
    run(&["key", "new", &key]).ok();
    let server = Server::start_at(PORT_BASE, "127.0.0.1", &["--dir", &dir, "--key", &key]);
    let (original, capture) = (s.file("original", 100_000), s.path("capture.pcapng"));
    fs::write(&capture, "").unwrap();
    fs::set_permissions(&capture, fs::Permissions::from_mode(0o644)).unwrap();
    let line = ["cp", &original, "{}:copy", "--capture", &capture, "--capture-secrets"];
    server.run(&line).fails(2, "--capture-secrets needs a key file");
    server.run(&[&line[..], &["--key", &key]].concat()).ok();
    assert_eq!(fs::metadata(&capture).unwrap().permissions().mode() & 0o777, 0o600);
    let file = fs::read(&capture).unwrap();
    let (mut receivers, mut opened, mut count) = (HashMap::new(), Vec::new(), 0);
    for (kind, body) in blocks(&file) {
        if kind == 10 {
            assert_eq!(&body[..4], 0x5352_444b_u32.to_le_bytes(), "how they are to be read");
            let length = u32::from_le_bytes(*body[4..].first_chunk().unwrap()) as usize;
            for line in std::str::from_utf8(&body[8..8 + length]).unwrap().lines() {
                let secret: CaptureSecret = line.parse().unwrap();
                receivers.insert(secret.tag, secret.receiver());
            }
        } else if kind == 6 {
            // Interface, time, two lengths; then the IPv4 and UDP headers.
            let length = u32::from_le_bytes(*body[12..].first_chunk().unwrap()) as usize;
            let mut packet = body[20 + 28..20 + length].to_vec();
            let tag = u32::from_be_bytes(*packet[4..].first_chunk().unwrap());
            let Some(receiver) = receivers.get_mut(&tag) else { continue };
            // An answer of the handshake has the tag, too, and other keys.
            if let Ok(found) = receiver.open(&mut packet) {
                opened.extend_from_slice(&packet[found.packet]);
                count += 1;
            }
        }
    }
    let bytes = fs::read(&original).unwrap();
    assert!(receivers.len() >= 2 && count > 4, "{} secrets, {count} packets", receivers.len());
    for piece in [&bytes[..32], &bytes[50_000..50_032], &bytes[99_968..]] {
        assert!(opened.windows(32).any(|w| w == piece), "the file is in the opened packets");
        assert!(!file.windows(32).any(|w| w == piece), "and not in the capture");
    }
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
    // Who names a key file must not be without a seal unknowingly.
    let both = ["cp", &original, "{}:copy", "--key", &key, "--seal", "never"];
    open.run(&both).fails(2, "--seal=never says that it is not used");
    let mut command = open.client(&["cp", &original, "{}:copy", "--key", &key]);
    command.env("SRD_SEAL", "never");
    Running::start(command).wait().fails(2, "SRD_SEAL=never says that it is not used");
    // A key file of the environment is turned off by the policy.
    let mut command = open.client(&["cp", &original, "{}:copy", "--seal", "never"]);
    command.env("SRD_KEY_FILE", &key);
    let told = Running::start(command).wait().ok().stderr;
    assert!(told.contains("is not used, because the policy is never"), "{told}");
}

#[test]
fn a_measurement_with_another_key_ends_and_says_why() {
    let s = Scratch::new("measured");
    let (dir, key, other) = (s.path("in"), s.path("keys"), s.path("others"));
    run(&["key", "new", &key]).ok();
    run(&["key", "new", &other]).ok();
    let server = Server::start_at(PORT_BASE, "127.0.0.1", &["--dir", &dir, "--key", &key]);
    let perf =
        |more: &[&str]| server.run(&[&["perf", "lat", "{}", "--duration", "200ms"], more].concat());
    perf(&[]).fails(1, "it accepts sealed contexts only; give both the same key file");
    let refused = perf(&["--key", &other]).fails(1, "have different keys");
    let last = refused.stderr.lines().last().unwrap_or_default();
    assert!(last.contains("refuses this process because of its seal"), "{last}");
    assert!(!refused.stderr.contains("nobody answers"), "{}", refused.stderr);
    assert!(perf(&["--key", &key]).ok().stderr.contains("all packets are sealed"));
    // The server rotates while it runs; a client that is a step behind still finds a common key,
    // and one with the removed key does not.
    fs::copy(&key, &other).unwrap();
    for step in 1..=3 {
        run(&["key", "rotate", &key]).ok();
        let wanted = format!("step {step}");
        until(&wanted, || {
            let served = perf(&["--key", &key]);
            served.code == Some(0)
        });
        if step < 3 {
            perf(&["--key", &other]).ok();
        }
    }
    until("the removed key is refused", || {
        let refused = perf(&["--key", &other]);
        refused.code == Some(1) && refused.stderr.contains("have different keys")
    });
}

#[test]
fn programs_are_not_started_with_a_key_file_that_cannot_be_used() {
    let s = Scratch::new("unstarted");
    let (key, ran) = (s.path("keys"), s.path("ran"));
    for library in ["libibverbs.so.1", "libefa.so.1", "libsrd_places.so.1"] {
        fs::write(s.0.join("in").join(library), "").unwrap();
    }
    let libraries = s.path("in");
    let start = |policy: &str| {
        let line = ["run", "--verbs-dir", &libraries, "--key", &key, "--", "touch", &ran];
        let mut command = srd(&line);
        command.env("SRD_SEAL", policy);
        Running::start(command).wait()
    };
    start("").fails(2, "No such file; copy it from another host (scp -p), or make the first one");
    for policy in ["prefer", "require"] {
        let line = ["run", "--verbs-dir", &libraries, "--", "touch", &ran];
        let mut command = srd(&line);
        command.env("SRD_SEAL", policy).env_remove("SRD_KEY_FILE");
        Running::start(command).wait().fails(2, "needs a key file: name one (--key FILE");
    }
    run(&["key", "new", &key]).ok();
    start("never").fails(2, "SRD_SEAL=never says that it is not used");
    start("maybe").fails(2, "SRD_SEAL=maybe: it must be never, prefer or require");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    start("").fails(2, "chmod 600");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    fs::write(&key, "1 abc\n").unwrap();
    start("").fails(2, "64 hexadecimal digits");
    assert!(!fs::exists(&ran).unwrap(), "nothing was started");
    // A key file of the environment is turned off by the policy, and that is told.
    fs::remove_file(&key).unwrap();
    run(&["key", "new", &key]).ok();
    let mut command = srd(&["run", "--verbs-dir", &libraries, "--", "touch", &ran]);
    command.env("SRD_SEAL", "never").env("SRD_KEY_FILE", &key);
    let told = Running::start(command).wait().stderr;
    let times = told.matches("is not used, because the policy is never").count();
    assert!(times == 1 && fs::exists(&ran).unwrap(), "{told}");
}

#[test]
fn key_files_are_shown_and_rotated_and_wrong_ones_refused() {
    let s = Scratch::new("keys");
    let key = s.path("keys");
    run(&["key", "show", &key]).fails(2, "keys");
    run(&["key", "new", &s.path("none/keys")]).fails(2, "its folder does not exist");
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
