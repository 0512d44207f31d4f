//! Ports whose rate is not told.

use super::*;

const GBPS: u64 = 125_000_000;

/// `n` senders whose own ports are no limit and tell no rate, before a queue of `rate`.
fn unknown(n: usize, rate: u64, base: Span) -> Model {
    let mut cfg = EngineConfig::sockets(IpAddr::V4(Ipv4Addr::LOCALHOST), 0, MTU as u16);
    cfg.line_unknown();
    let mut m = Model::with_config(n, &cfg, rate, base, 3);
    // An engine each: what a port is learnt to be is not shared.
    m.handshakes();
    m
}

fn line_gbps(m: &Model, sender: usize) -> f64 {
    m.senders[sender].context.line_bytes_per_sec() as f64 / GBPS as f64
}

#[test]
fn a_sender_finds_a_port_of_any_rate() {
    for (gbps, base_us) in [(1, 20), (1, 1_000), (10, 20), (25, 50), (100, 10), (400, 20)] {
        let (rate, base) = (gbps * GBPS, Span::from_us(base_us));
        let mut m = unknown(1, rate, base);
        m.run(Span::from_ms(100));
        let used = used_percent(&mut m, rate, Span::from_ms(20));
        let line = line_gbps(&m, 0);
        assert!(used >= 90, "{used} % of {gbps} Gb/s, {base_us} us; {line} Gb/s are believed");
        let most = (4.0 * gbps as f64).max(20.0);
        assert!((gbps as f64 * 0.9..=most).contains(&line), "{line} instead of {gbps} Gb/s");
    }
}

#[test]
fn a_late_comer_with_another_belief_gets_its_share() {
    let mut m = unknown(2, 5 * GBPS, Span::from_us(20));
    m.senders[1].active = false;
    m.run(Span::from_ms(20));
    m.start(1);
    m.run(Span::from_ms(20));
    assert!(used_percent(&mut m, 5 * GBPS, Span::from_ms(20)) >= 95);
    let (a, b) = (line_gbps(&m, 0), line_gbps(&m, 1));
    assert!(unfair_percent(&m) <= 30, "{} %, {a} and {b} Gb/s believed", unfair_percent(&m));
}

#[test]
fn congestion_makes_a_round_that_is_not_calm() {
    let calm = Round { queue_ns: Some(100_000), ..Round::default() };
    assert!(calm.is_calm(100_000));
    assert!(!calm.is_calm(99_999), "a queue");
    assert!(!Round { missing: 1, ..calm }.is_calm(100_000), "a loss");
    assert!(!Round { marked: true, ..calm }.is_calm(100_000), "marks");
    assert!(!Round { queue_ns: None, ..calm }.is_calm(100_000), "no sample");
}
