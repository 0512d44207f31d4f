use super::*;
use std::collections::BTreeSet;

const SUMMARY: &str = "srd: 2 processes, 18854 messages, 135.9 MB through SRD in 3 s on 64 paths\n";

fn said(text: &str) -> Said {
    Said { text: text.into(), code: 0 }
}

#[test]
fn each_case_has_a_name_of_its_own_and_says_what_it_needs() {
    let names: BTreeSet<&str> = CASES.iter().map(|c| c.name).collect();
    assert_eq!(names.len(), CASES.len(), "a name stands there twice");
    for c in CASES {
        assert!(!c.needs.is_empty() && !c.needs.contains(' '), "{}: `{}`", c.name, c.needs);
        assert!(!c.name.contains('|'), "{}: names stand in a table", c.name);
    }
    assert!(CASES.iter().any(|c| c.short) && CASES.iter().any(|c| !c.short));
}

/// A case whose messages stay on one host must not be asked for packets at the spines.
#[test]
fn cases_on_one_host_do_not_travel() {
    let travels = |name: &str| CASES.iter().find(|c| c.name.starts_with(name)).unwrap().travels;
    assert!(!travels("ibv_devinfo") && !travels("fi_info"));
    assert!(travels("fi_pingpong rdm") && travels("ib_send_bw") && travels("hpcc"));
}

#[test]
fn a_program_that_prints_something_else_over_tcp_fails() {
    let lines = |all: &[&str]| all.iter().map(|&l| l.to_owned()).collect::<Vec<_>>();
    let (two, other) = (lines(&["1.5", "2.5"]), lines(&["1.5", "2.25"]));
    assert_eq!(expect_same(&two, &two), Ok(()));
    assert_eq!(expect_same(&two, &other).unwrap_err(), "over SRD `2.5`, over TCP `2.25`");
    assert_eq!(expect_same(&two, &two[..1]).unwrap_err(), "2 lines over SRD, 1 over TCP");
}

#[test]
fn only_an_exit_code_of_zero_is_success() {
    assert_eq!(expect_end(&said("anything")), Ok(()));
    for code in [1, 124, -1] {
        let error = expect_end(&Said { text: "\nlast words\n\n".into(), code }).unwrap_err();
        assert!(error.contains(&format!("exit code {code}")), "{error}");
        assert!(error.contains("last words"), "{error}");
    }
}

#[test]
fn the_summary_is_told_if_several_paths_were_used() {
    let text = format!("noise\nsrd: a warning\n{SUMMARY}more\n");
    assert_eq!(through(&said(&text)).unwrap(), "18854 messages, 135.9 MB, 64 paths");
    let one = SUMMARY.replace("64 paths", "1 path");
    assert!(through(&said(&one)).unwrap_err().contains("only one path"));
    let none = SUMMARY.replace(" on 64 paths", "");
    assert!(through(&said(&none)).is_err());
    assert!(through(&said("srd: no summary\n")).unwrap_err().contains("printed no summary"));
}

#[test]
fn a_checker_that_finds_errors_or_says_nothing_fails_its_case() {
    let good = format!("mpi_check: 120 checks, 0 wrong\n{SUMMARY}");
    assert_eq!(checked(&said(&good)).unwrap(), "120 checks; 18854 messages, 135.9 MB, 64 paths");
    let one = good.replace(" 0 wrong", " 1 wrong");
    assert!(checked(&said(&one)).unwrap_err().starts_with("wrong results"));
    let ten = good.replace(" 0 wrong", " 10 wrong");
    assert!(checked(&said(&ten)).is_err(), "the number ends with a zero");
    assert!(checked(&said(SUMMARY)).is_err(), "the checker said nothing");
    assert!(checked_by("rails_check", &said(&good)).is_err(), "another checker");
    assert!(checked(&said("mpi_check: 120 checks, 0 wrong\n")).is_err(), "not through SRD");
    assert!(checked(&Said { code: 1, ..said(&good) }).is_err(), "it ended with an error");
}
