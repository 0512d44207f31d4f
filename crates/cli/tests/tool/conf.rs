//! The host's file of settings: what is in it holds unless the environment says otherwise.

use crate::common::{Done, Running, Scratch, srd};
use std::fs;

fn with(conf: &str, args: &[&str], variables: &[(&str, &str)]) -> Done {
    let mut command = srd(args);
    command.env_remove("SRD_KEY_FILE").env("SRD_CONF", conf);
    command.envs(variables.iter().copied());
    Running::start(command).wait()
}

#[test]
fn settings_of_the_file_hold_unless_a_variable_is_set() {
    let s = Scratch::new("conf");
    let (key, other, conf) = (s.path("keys"), s.path("others"), s.path("srd.conf"));
    with("", &["key", "new", &key], &[]).ok();
    with("", &["key", "new", &other], &[]).ok();
    fs::write(&conf, format!("# of this test\nSRD_KEY_FILE = {key}\nSRD_PATHS = 8\n")).unwrap();
    let shown = |variables: &[(&str, &str)]| with(&conf, &["key", "show"], variables).ok().stdout;
    let first = with("", &["key", "show", &key], &[]).ok().stdout;
    assert_eq!(shown(&[]), first);
    assert_ne!(shown(&[("SRD_KEY_FILE", &other)]), first);
    with(&conf, &["key", "show"], &[("SRD_KEY_FILE", "")]).fails(2, "name the key file");
    // `srd run` passes it on, and `srd doctor` shows it.
    for library in ["libibverbs.so.1", "libefa.so.1", "libsrd_places.so.1"] {
        fs::write(s.0.join("in").join(library), "").unwrap();
    }
    let line = ["env", "--verbs-dir", &s.path("in")];
    assert!(with(&conf, &line, &[]).ok().stdout.contains(&format!("SRD_KEY_FILE='{key}'")));
    let told = with(&conf, &["doctor"], &[("SRD_PATHS", "16")]).stdout;
    assert!(told.contains(&format!("settings of {conf}: 2")), "{told}");
    assert!(told.contains("SRD_PATHS=8 (but SRD_PATHS=16 in the environment)"), "{told}");
    // It checks what the drop-in libraries will use, from the file and from the environment.
    let set = [("SRD_INTERFACE", "lo"), ("SRD_PORT_BASE", "23300"), ("SRD_MTU", "1200")];
    let told = with(&conf, &["doctor"], &set).stdout;
    for wanted in ["interface lo with 127.0.0.1", "UDP port 233", " 8 paths", "carry 1200 bytes"] {
        assert!(told.contains(wanted), "{wanted}: {told}");
    }
    // Shards as the libraries would have them, and the files that those need.
    let set = [("SRD_INTERFACE", "lo"), ("SRD_PORT_BASE", "23300"), ("SRD_SHARDS", "2")];
    let told = with(&conf, &["doctor"], &set).stdout;
    assert!(told.contains(" 8 paths, 2 shards (SRD_SHARDS)"), "{told}");
    let wrong = [("SRD_INTERFACE", "lo"), ("SRD_PORT_BASE", "many")];
    with(&conf, &["doctor"], &wrong).fails(2, "SRD_PORT_BASE=many: it is no port");
    // Those that drive their device by themselves have one shard, and say so where more are wanted.
    let several = [("SRD_PORT_BASE", "23600"), ("SRD_SHARDS", "2")];
    let perf = ["perf", "lat", "127.0.0.1"];
    with(&conf, &perf, &several).fails(1, "srd: SRD_SHARDS=2 has no effect on this command");
    let none = [("SRD_PORT_BASE", "23600"), ("SRD_SHARDS", "")];
    let done = with(&conf, &perf, &none);
    assert!(!done.stderr.contains("SRD_SHARDS"), "nothing is as good as no variable: {done:#?}");
    done.fails(1, "answers at 127.0.0.1:23600: start");
    // The commands that open a device of their own use the same ports as the libraries.
    let base = [("SRD_PORT_BASE", "23600")];
    with(&conf, &["perf", "lat", "127.0.0.1"], &base).fails(1, "answers at 127.0.0.1:23600: start");
    let option = ["perf", "lat", "127.0.0.1", "--port-base", "23900"];
    with(&conf, &option, &base).fails(1, "answers at 127.0.0.1:23900: start");
}

#[test]
fn a_wrong_file_ends_every_command_and_names_the_line() {
    let s = Scratch::new("badconf");
    let conf = s.path("srd.conf");
    fs::write(&conf, "SRD_PATHS = 8\n\nSRD_PATHES = 9\n").unwrap();
    for line in [&["doctor"][..], &["stat"], &["key", "show"], &["lab", "list"]] {
        with(&conf, line, &[]).fails(2, "srd.conf: line 3: SRD_PATHES is no setting of a host");
    }
    with(&conf, &["man"], &[]).ok();
    with(&s.path("none"), &["stat"], &[]).fails(2, "no such file");
    // A file that is none, and one from an editor of another system.
    with(&s.path("in"), &["stat"], &[]).fails(2, "it is no regular file");
    fs::write(&conf, "#".repeat(1 << 20)).unwrap();
    with(&conf, &["stat"], &[]).fails(2, "it has more than 65536 bytes");
    fs::write(&conf, b"SRD_IP = 10.0.0.\xff\n").unwrap();
    with(&conf, &["stat"], &[]).fails(2, "it is no text in UTF-8");
    fs::write(&conf, "SRD_PATHS = 8\r\nSRD_PATHS = 8\r\n").unwrap();
    with(&conf, &["stat"], &[]).fails(2, "line 2: SRD_PATHS comes twice");
    with("", &["key", "new", &s.path("keys")], &[]).ok();
    fs::write(&conf, format!("SRD_KEY_FILE = {}\r\n", s.path("keys"))).unwrap();
    with(&conf, &["key", "show"], &[]).ok();
}
