//! The program `srd-check` as a user sees it: what it prints, what it writes, how it ends.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

/// Exit code, standard output and standard error of a command line.
fn program(line: &str) -> (i32, String, String) {
    program_in(line, &std::env::temp_dir())
}

fn program_in(line: &str, folder: &std::path::Path) -> (i32, String, String) {
    let out = Command::new(env!("CARGO_BIN_EXE_srd-check"))
        .args(line.split_whitespace())
        .current_dir(folder)
        .output()
        .expect("the program runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (out.status.code().unwrap_or(-1), text(&out.stdout), text(&out.stderr))
}

/// A folder of this test's own, removed with the value.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("srd-check-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn help_names_every_option_that_is_read() {
    let (code, help, errors) = program("--help");
    assert_eq!((code, errors.as_str()), (0, ""));
    let words = help.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-'));
    let named: BTreeSet<&str> = words.filter(|w| w.starts_with("--") && w.len() > 2).collect();
    for option in &named {
        if *option == "--cfg" {
            continue;
        }
        // An option that is known complains of its value or of its company, not of its name.
        let (code, _, errors) = program(&format!("{option}=x --help"));
        assert_eq!(code, 0, "help wins: {errors}");
        let (_, _, errors) = program(&format!("{option} --no-such-option"));
        let unknown = format!("`{option}` is not known");
        assert!(!errors.contains(&unknown), "{errors}");
    }
    assert!(named.len() >= 14, "{named:?}");
    for line in ["-h", "--seeds x --help", "kill-table --help"] {
        assert_eq!(program(line).1, help, "{line}");
    }
}

#[test]
fn wrong_usage_ends_with_two_and_says_why() {
    for (line, told) in [
        ("--seeds", "needs a value"),
        ("--seeds none", "whole number"),
        ("--sede 1", "`--sede` is not known"),
        ("--seed 1 --pcap x", "--trace"),
        ("--with everything", "Loss"),
        ("nonsense", "--help"),
    ] {
        let (code, out, errors) = program(line);
        assert_eq!((code, out.as_str()), (2, ""), "{line}: {errors}");
        assert!(errors.starts_with("srd-check: ") && errors.contains(told), "{errors}");
    }
}

#[test]
fn worlds_that_keep_their_promises_end_with_zero() {
    let (code, out, errors) = program("--seeds 12 --first 500 --threads 2");
    assert_eq!(code, 0, "{out}{errors}");
    assert!(out.starts_with("12 seeds from 500 to 511 (1 of them twice), 0 failed"), "{out}");
    let (code, out, _) = program("--seeds 40 --with Rnr --threads 1");
    assert_eq!(code, 0, "{out}");
    let first = out.lines().next().unwrap();
    let ran: u32 = first.split(' ').next().unwrap().parse().unwrap();
    assert!((1..40).contains(&ran), "the others are passed over: {first}");
    assert!(out.contains(&format!("Rnr {ran}")), "{out}");
}

#[test]
fn one_world_tells_its_story_and_writes_its_packets() {
    let folder = Folder::new("trace");
    let (code, plain, errors) = program_in("--seed 5", &folder.0);
    assert_eq!((code, errors.as_str()), (0, ""));
    assert!(plain.starts_with("seed 5: ") && plain.contains("every promise kept"), "{plain}");
    assert_eq!(plain.lines().count(), 2, "{plain}");
    let (code, out, _) = program_in("--seed 5 --trace", &folder.0);
    assert_eq!(code, 0);
    assert!(out.contains("engine 0: ") && out.contains("posts request 0"), "{out:.500}");
    let last = out.lines().last().unwrap();
    let packets: u64 = last.split(' ').next().unwrap().parse().unwrap();
    assert!(last.ends_with("packets written to seed-5.pcapng"), "{last}");
    let capture = std::fs::read(folder.0.join("seed-5.pcapng")).unwrap();
    assert_eq!(blocks(&capture), packets + 2, "a section, an interface, and the packets");
    let (code, out, _) = program_in("--seed 5 --trace --pcap other.pcapng", &folder.0);
    assert_eq!((code, out.lines().last().unwrap().contains("other.pcapng")), (0, true));
    assert_eq!(std::fs::read(folder.0.join("other.pcapng")).unwrap(), capture, "the same world");
}

/// Blocks of a pcapng file, each of which must begin and end with its own length.
fn blocks(bytes: &[u8]) -> u64 {
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    let (mut at, mut n) = (0, 0);
    while at < bytes.len() {
        let len = word(at + 4);
        assert!(len >= 12 && at + len <= bytes.len(), "a block of {len} bytes at {at}");
        assert_eq!(word(at + len - 4), len);
        (at, n) = (at + len, n + 1);
    }
    n
}

#[test]
fn a_capture_that_cannot_be_written_is_told() {
    let (code, _, errors) = program("--seed 5 --trace --pcap /no/such/folder/x.pcapng");
    assert_eq!(code, 1);
    assert!(errors.contains("cannot write /no/such/folder/x.pcapng"), "{errors}");
}

#[test]
fn a_corpus_is_a_file_or_the_one_built_in() {
    let folder = Folder::new("corpus");
    let text = "[[seed]]\nseed = 3\nstory = \"one\"\n\n[[seed]]\nseed = 4\nstory = \"two\"\n";
    std::fs::write(folder.0.join("two.toml"), text).unwrap();
    let (code, out, errors) = program_in("--corpus two.toml", &folder.0);
    assert_eq!((code, out.as_str(), errors.as_str()), (0, "corpus: 2 seeds, 0 broken\n", ""));
    std::fs::write(folder.0.join("bad.toml"), "[[seed]]\nseed = three\n").unwrap();
    let (code, _, errors) = program_in("--corpus bad.toml", &folder.0);
    assert_eq!(code, 1);
    assert!(errors.contains("line 2"), "{errors}");
    let (code, _, errors) = program_in("--corpus missing.toml", &folder.0);
    assert_eq!(code, 1);
    assert!(errors.contains("cannot read missing.toml"), "{errors}");
}

#[test]
fn mistakes_of_the_harness_are_noticed_one_by_one() {
    let (code, out, errors) = program("--canary");
    assert_eq!((code, errors.as_str()), (0, ""), "{out}");
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines.len(), 3);
    for (line, kind) in lines.iter().zip(["CopyDropped", "CopyLate", "WrongBytes"]) {
        assert!(line.starts_with(&format!("canary {kind}: detected at seed ")), "{line}");
    }
}

#[test]
fn a_reader_that_goes_away_ends_the_program_quietly() {
    use std::io::Read as _;
    let mut child = Command::new(env!("CARGO_BIN_EXE_srd-check"))
        .args(["--seed", "5", "--trace", "--pcap", "/dev/null"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = [0; 16];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap();
    let out = child.wait_with_output().unwrap();
    assert_eq!(out.status.code(), Some(1));
    assert_eq!(String::from_utf8_lossy(&out.stderr), "", "no panic, no complaint");
}
