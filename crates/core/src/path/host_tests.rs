//! Tests of the cap that follows from a host's signal.

use super::*;

const MTU: u64 = 4_096;
const RTT: Span = Span(1_000);

#[test]
fn a_stop_is_a_packet_and_ends_by_word_or_by_time() {
    let mut h = HostCap::default();
    assert_eq!(h.inflight_max(HostPolicy::StopGo, MTU), u64::MAX);
    assert_eq!(h.opens_at(HostPolicy::StopGo, Time(60), Time(50), RTT), Time(0));
    assert!(
        h.on_signal(Time(100), Ctx(7), true, RTT) && !h.on_signal(Time(208), Ctx(7), true, RTT)
    );
    assert_eq!(h.inflight_max(HostPolicy::StopGo, MTU), MTU, "never below a packet");
    assert_eq!(h.inflight_max(HostPolicy::Budget, MTU), u64::MAX, "the budget says how much");
    // Two round trips after the signal, or after the last packet sent.
    assert_eq!(h.opens_at(HostPolicy::StopGo, Time(208), Time(160), RTT), Time(2_208));
    assert_eq!(h.opens_at(HostPolicy::StopGo, Time(912), Time(900), RTT), Time(2_900));
    assert_eq!(h.opens_at(HostPolicy::Budget, Time(912), Time(900), RTT), Time(0));
    assert!(h.on_signal(Time(300), Ctx(7), false, RTT));
    assert_eq!(h.inflight_max(HostPolicy::StopGo, MTU), u64::MAX);
}

#[test]
fn engines_at_one_address_speak_for_themselves() {
    let mut h = HostCap::default();
    h.on_signal(Time(100), Ctx(7), true, RTT);
    h.on_signal(Time(150), Ctx(8), false, RTT);
    assert_eq!(h.inflight_max(HostPolicy::StopGo, MTU), MTU, "7 has not said that it goes on");
    h.on_signal(Time(160), Ctx(7), false, RTT);
    assert_eq!(h.inflight_max(HostPolicy::StopGo, MTU), u64::MAX);
}

/// An engine that nothing is sent to any more does not tell that it has caught up: what is sent to
/// its neighbour stops no longer than until it has not repeated its signal for 16 round trips.
#[test]
fn a_signal_that_is_not_repeated_ends_when_a_neighbour_is_heard() {
    let mut h = HostCap::default();
    h.on_signal(Time(160), Ctx(7), true, RTT);
    h.on_signal(Time(8_000), Ctx(7), true, RTT);
    assert!(!h.on_signal(Time(23_000), Ctx(8), false, RTT), "15 round trips");
    assert_eq!(h.inflight_max(HostPolicy::StopGo, MTU), MTU);
    assert!(h.on_signal(Time(24_032), Ctx(8), false, RTT));
    assert_eq!(h.inflight_max(HostPolicy::StopGo, MTU), u64::MAX);
    h.on_signal(Time(90_000), Ctx(7), true, RTT);
    assert_eq!(h.inflight_max(HostPolicy::StopGo, MTU), MTU, "it may fall behind again");
}

#[test]
fn a_backlog_is_not_covered_by_more_in_flight_as_long_as_its_waits_are_remembered() {
    let mut h = HostCap::default();
    assert!(h.is_quiet() && !h.is_swamped());
    h.on_signal(Time(100), Ctx(7), true, RTT);
    h.on_signal(Time(200), Ctx(7), false, RTT);
    assert!(h.is_swamped() && !h.is_quiet());
    assert!(
        h.on_signal(Time(132) + HOST_HALF_LIFE, Ctx(7), false, RTT),
        "a change that the cap must see"
    );
    assert!(h.is_quiet() && !h.is_swamped());
}

#[test]
fn as_many_losses_are_the_hosts_as_it_has_dropped() {
    let mut h = HostCap::default();
    assert!(!h.drop_take(Time(16), RTT));
    h.on_drops(Time(16), 2);
    h.on_drops(Time(32), 1);
    assert!((0..3).all(|_| h.drop_take(Time(48), RTT)) && !h.drop_take(Time(48), RTT));
    h.on_drops(Time(64), 5);
    assert!(!h.drop_take(Time(1_120), RTT), "too late to be one of them");
    assert!(!h.drop_take(Time(64), RTT));
    h.on_drops(Time(2_000), u32::MAX);
    h.on_drops(Time(2_016), u32::MAX);
    assert!(h.drop_take(Time(2_032), RTT), "however many it says");
}
