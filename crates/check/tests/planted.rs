//! Bugs on purpose are in no program but those built for them.

/// The mark of such a program, put together here so that this test does not contain it.
fn mark() -> Vec<u8> {
    ["software-srd has ", "planted bugs"].concat().into_bytes()
}

fn contains(file: &std::path::Path, what: &[u8]) -> bool {
    let bytes = std::fs::read(file).expect("the program can be read");
    bytes.windows(what.len()).any(|w| w == what)
}

#[test]
fn a_program_has_planted_bugs_only_if_it_was_built_with_them() {
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_srd-check"));
    assert!(contains(program, b"SRD core in simulated worlds"), "the search finds what is there");
    assert_eq!(contains(program, &mark()), cfg!(planted_bugs));
    let asked =
        std::process::Command::new(program).args(["--planted", "1", "--seeds", "1"]).output();
    let asked = asked.expect("the program runs");
    if cfg!(planted_bugs) {
        assert_ne!(asked.status.code(), Some(2));
    } else {
        assert_eq!(asked.status.code(), Some(2), "refused");
        assert!(String::from_utf8_lossy(&asked.stderr).contains("--cfg planted_bugs"));
        assert!(srd_check::kill::bugs().is_empty());
    }
}

/// In a build with bugs: a few that are quick to notice, and none noticed when all are off.
#[test]
#[cfg(planted_bugs)]
fn planted_bugs_are_noticed() {
    use srd_check::kill;
    let all = kill::bugs();
    assert!(all.len() >= 40, "{}", all.len());
    let table = kill::Table { blocks: 1, only: vec![1, 7, 26, 52, 207], ..kill::Table::default() };
    assert_eq!(kill::run(&table, &std::sync::atomic::AtomicBool::new(false)), Ok(true));
    assert!(kill::plant(all.len() as u32 + 1).is_err());
}
