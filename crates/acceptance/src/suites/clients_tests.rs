use super::*;
use std::{collections::BTreeSet, fs};

fn args(line: &str) -> Args {
    Args::new(line.split_whitespace().map(String::from))
}

#[test]
fn each_program_has_a_name_and_an_option_of_its_own() {
    let names: BTreeSet<&str> = CLIENTS.iter().map(|c| c.name).collect();
    let options: BTreeSet<&str> = CLIENTS.iter().map(|c| c.option).collect();
    assert_eq!((names.len(), options.len()), (CLIENTS.len(), CLIENTS.len()));
    for client in CLIENTS {
        assert!(!client.name.contains('|'), "{}: names stand in a table", client.name);
        assert!(client.option.starts_with("--") && !client.packages.is_empty());
        let known = cases::CASES.iter().any(|c| c.name == client.name);
        assert!(!known, "{}: stands among the cases", client.name);
    }
}

/// A package that is not installed by the line would make its row be skipped for ever.
#[test]
fn the_line_that_installs_names_a_version_of_each_program() {
    for client in CLIENTS {
        let first = client.packages[0].1;
        let named = client.install.split(' ').find(|word| word.starts_with(first));
        assert!(named.is_some_and(|word| word.contains("==")), "{}", client.install);
    }
}

#[test]
fn without_its_environment_a_program_is_skipped_with_what_to_do() {
    for client in CLIENTS {
        let todo = client.found(None).unwrap_err();
        assert!(todo.contains(client.install) && todo.contains(client.option), "{todo}");
        let todo = client.found(Some(Path::new("/nowhere"))).unwrap_err();
        assert!(todo.contains("/nowhere/bin/pip install"), "{todo}");
    }
}

#[test]
fn options_are_taken_in_any_order() {
    let mut given = args("--mpich m --update --efa-wheel=e");
    let found = Environments::take(&mut given).unwrap();
    let of = |option: &str| {
        let at = CLIENTS.iter().position(|c| c.option == option).unwrap();
        found.0[at].as_deref()
    };
    assert_eq!(of("--mpich"), Some(Path::new("m")));
    assert_eq!(of("--efa-wheel"), Some(Path::new("e")));
    assert_eq!(found.0.iter().flatten().count(), 2);
    assert_eq!(given.rest(), ["--update"]);
    assert!(Environments::take(&mut args("--mpich")).is_err());
}

#[test]
fn each_name_in_the_table_has_its_version() {
    let client = CLIENTS.iter().find(|c| c.packages.len() == 2).unwrap();
    let [(first, _), (second, _)] = client.packages else { unreachable!() };
    assert_eq!(client.titled("1.2 3.4\n"), format!("{first} 1.2, {second} 3.4 (wheel)"));
}

#[test]
fn both_sides_must_have_found_no_error() {
    let side = |wrong: u32| Said {
        text: format!(
            "x_check: 9 checks, {wrong} wrong\nsrd: 1 process, 7 messages, 1.0 MB through SRD in \
             9 packets on 8 paths, 0 sent again, not sealed\n"
        ),
        code: 0,
    };
    assert_eq!(
        both("x_check", &[side(0), side(0)]).unwrap(),
        "18 checks; 7 messages, 1.0 MB, 8 paths"
    );
    assert!(both("x_check", &[side(1), side(0)]).is_err());
    assert!(both("x_check", &[side(0), side(1)]).is_err());
}

#[test]
fn a_program_s_own_lines_are_compared_and_no_others() {
    let text = "noise\nt: loss 0 0x1p-1\n t: not this\nt: 1 losses, abc\nsrd: 1 process\n";
    assert_eq!(printed("t: ", text), ["loss 0 0x1p-1", "1 losses, abc"]);
}

/// Each option stands in the document that says how to make the environments.
#[test]
fn the_document_has_each_option_and_what_to_install() {
    let text = fs::read_to_string(root().join("docs/compatibility.md")).unwrap();
    for client in CLIENTS {
        assert!(text.contains(&format!("{} ", client.option)), "{}", client.option);
        assert!(text.contains(&format!("pip install {}", client.install)), "{}", client.install);
    }
}
