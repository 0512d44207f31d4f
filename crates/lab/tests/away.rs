//! Processors that are away: on the card only the application waits, on the host the transport too.

use crate::common::{cases, run_text};
use srd_lab::{RunResult, check, figures};

const TRANSPORTS: [&str; 4] = ["srd", "tcp", "rc", "ue"];

fn spec(transport: &str, host: &str) -> String {
    format!(
        "name = \"test\"\ntitle = \"test\"\ntime_ms_max = 5_000\ntransport = \"{transport}\"\n\
         [network]\nshape = \"leaf-spine\"\nleaves = 2\nspines = 2\nhosts_per_leaf = 4\n\
         {host}\n[workload]\npattern = \"shift\"\nshift = 4\nbytes = 1_000_000\nrounds = 30\n"
    )
}

fn with(transport: &str, noise: &str, placement: &str) -> RunResult {
    let host = format!("[host]\nnoise = \"{noise}\"\nplacement = \"{placement}\"\n");
    run_text(&spec(transport, &host), 1)
}

fn most(times: &[Vec<Option<u64>>]) -> u64 {
    times.iter().flatten().flatten().copied().max().unwrap()
}

#[test]
fn on_the_card_only_the_application_waits() {
    for transport in TRANSPORTS {
        let never = with(transport, "none", "card");
        assert!(never.away.is_none() && never.seen_ps.is_empty());
        assert_eq!(run_text(&spec(transport, ""), 1).hash, never.hash, "none is as without");
        let card = with(transport, "busy", "card");
        assert_eq!(card.unfinished(), 0, "{transport}");
        let away = card.away.expect("away");
        assert!((0.01..0.09).contains(&away.share), "{transport}: {away:?}");
        // Flows start at other times, but none lasts as long as an absence.
        assert!(most(&card.fct_ps) < 2 * most(&never.fct_ps), "{transport}");
        // The round waits for the application that is away.
        let rounds = |r: &RunResult| r.round_ps.iter().copied().max().unwrap();
        assert!(rounds(&card) > rounds(&never) + 1_000_000_000, "{transport}");
        let pairs = card.seen_ps.iter().flatten().zip(card.fct_ps.iter().flatten());
        assert!(pairs.clone().all(|(seen, done)| seen >= done), "{transport}");
        let text = figures(&[card], false);
        assert!(text.contains("hosts whose processors are away"), "{text}");
    }
}

#[test]
fn on_the_host_the_transport_waits() {
    for transport in TRANSPORTS {
        let never = with(transport, "none", "host");
        let host = with(transport, "busy", "host");
        assert_eq!(host.unfinished(), 0, "{transport}");
        assert!(most(&host.fct_ps) > most(&never.fct_ps) + 1_000_000_000, "{transport}");
        // Who sees an end is there: a transport on the host ends nothing while it is away.
        assert_eq!(host.seen_ps, host.fct_ps, "{transport}");
        let again = with(transport, "busy", "host");
        assert_eq!(host.hash, again.hash, "equal seeds");
    }
}

#[test]
fn ticks_are_shorter_than_the_floor_of_a_timeout() {
    for transport in ["tcp", "rc"] {
        let r = with(transport, "tick", "host");
        assert_eq!((r.unfinished(), r.tally.timeouts), (0, 0), "{transport}");
        assert!(r.away.unwrap().share < 0.01);
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    let refused = |text: &str| check(&cases(text)[0]).unwrap_err();
    let noise = "[host]\nnoise = \"tick\"\n";
    let e = refused(&spec("copa", noise));
    assert!(e.contains("host.noise"), "{e}");
    let also = "[[workload.also]]\npattern = \"permutation\"\ntransport = \"tcp\"\n";
    let e = refused(&(spec("srd", noise) + also));
    assert!(e.contains("host.noise: not with [[workload.also]]"), "{e}");
    let program = spec("srd", noise)
        .replace("\"shift\"\nshift = 4\nbytes = 1_000_000\nrounds = 30", "\"app\"")
        + "[app]\npattern = \"halo3d\"\nbytes = 1_000\n";
    let e = refused(&program);
    assert!(e.contains("host.noise: not with a parallel program"), "{e}");
    for (host, part) in [
        ("[host]\nnoise = \"loud\"\n", "host.noise = \"loud\": give \"none\", \"tick\", \"busy\""),
        ("[host]\nnoise = \"tick\"\nhosts = [8]\n", "host 8 does not exist"),
    ] {
        let case = &cases(&spec("tcp", host))[0];
        let e = srd_lab::run(case, std::path::Path::new("."), 1).unwrap_err();
        assert!(e.contains(part), "{e}");
    }
}
