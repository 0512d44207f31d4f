//! One sender and a slow host against arithmetic: what each policy loses, and what it leaves idle.

mod common;
use common::{Cell, PER_BYTE, base_rtt};
use srd_copa::{CopaConfig, Policy, Reaction, Recovery};
use srd_fabric::{NS, Rng};

const HOSTS: [f64; 4] = [0.5, 0.6, 0.7, 0.8];

fn with(policy: Policy, recovery: Recovery) -> impl Fn(&mut CopaConfig) {
    move |c| (c.policy, c.recovery) = (policy, recovery)
}

#[test]
fn streaming_loses_what_the_host_cannot_take_whatever_the_ring() {
    for (h, ring) in HOSTS.into_iter().zip([0.25, 4.0, 1.0, 0.5]) {
        let cell = Cell::new(h, ring, 40_000, with(Policy::Stream, Recovery::Selective));
        let out = cell.run();
        let lost = out.lost_percent();
        assert!((lost - 100.0 * (1.0 - h)).abs() < 0.5, "h {h}, ring {ring}: {lost} %");
        assert!(out.goodput() > 0.999 && out.sum.timeouts == 0, "{out:?}");
    }
}

#[test]
fn a_window_of_one_moves_one_packet_per_round_trip_and_loses_none() {
    for h in HOSTS {
        let cell = Cell::new(h, 0.25, 500, with(Policy::Window(1), Recovery::GoBackN));
        let out = cell.run();
        assert_eq!((out.sum.full, out.sum.resent, out.sum.data_sent), (0, 0, 500));
        // The round trip is that of the packet, its time on the first wire included.
        let one = cell.config.rtt_ps + u64::from(cell.config.packet_bytes()) * PER_BYTE;
        assert_eq!(out.done_at(), 500 * one);
        let off = one as f64 / cell.config.rtt_ps as f64 - 1.0;
        assert!(off < 0.02, "one packet per base round trip, to {off}");
    }
}

#[test]
fn larger_windows_lose_nothing_until_they_fill_pipe_and_ring() {
    let cell =
        |window| Cell::new(0.5, 1.0, 4_000, with(Policy::Window(window), Recovery::Selective));
    let bdp = cell(1).bdp_bytes() / f64::from(cell(1).config.packet_bytes());
    // Acknowledged on arrival, a window never has more in the ring than arrives above the drain: it
    // fills up as soon as the window is more than the host's share of the pipe.
    let share = 0.5 * bdp;
    let small = cell(share as u32).run();
    assert_eq!(small.sum.full, 0);
    assert!(cell(share as u32 + 4).run().sum.full > 0, "windows cannot see the host");
}

#[test]
fn the_window_that_adds_and_halves_loses_little_and_leaves_the_host_idle() {
    for recovery in [Recovery::GoBackN, Recovery::Selective] {
        for h in HOSTS {
            let out = Cell::new(h, 1.0, 20_000, with(Policy::Aimd, recovery)).run();
            let (lost, good) = (out.lost_percent(), out.goodput());
            assert!((0.02..3.0).contains(&lost), "{recovery:?}, h {h}: {lost} % lost");
            assert!((0.75..0.999).contains(&good), "{recovery:?}, h {h}: goodput {good}");
        }
    }
}

#[test]
fn duplicates_lose_nothing_from_one_round_trips_surplus_above_the_threshold_on() {
    let dup = with(Policy::DupAck(0.5), Recovery::Selective);
    for (h, ring, goodput) in [
        (0.5, 1.5, 0.995),
        (0.6, 1.0, 0.995),
        (0.7, 1.5, 0.995),
        (0.8, 1.0, 0.955),
        (0.8, 1.5, 0.995),
        (0.5, 4.0, 0.995),
    ] {
        let out = Cell::new(h, ring, 15_000, &dup).run();
        assert_eq!((out.sum.full, out.sum.resent, out.sum.timeouts), (0, 0, 0), "{h} {ring}");
        assert!(out.goodput() >= goodput, "h {h}, ring {ring}: {}", out.goodput());
        assert!(out.sum.duplicates_heard > 0);
    }
    // The left part of the curve, where half of the ring holds less than that surplus.
    for (h, lost) in HOSTS.into_iter().zip([16.0, 9.0, 3.0, 0.0]) {
        let out = Cell::new(h, 0.5, 15_000, &dup).run();
        assert!((out.lost_percent() - lost).abs() < 3.0, "h {h}: {} %", out.lost_percent());
    }
}

/// What a cell loses with a ring that holds its threshold, what comes above the drain's rate in one
/// round trip, and so many packets more.
fn lost_with(rng: &Rng, h: (u64, u64), reaction: Reaction, packets_more: f64) -> (u64, String) {
    let mut rng = rng.clone();
    let h = rng.range(h.0, h.1) as f64 / 100.0;
    let threshold = rng.range(30, 120) as f64 / 100.0;
    let mut cell = Cell::new(h, 1.0, 1, |c| {
        c.payload_bytes = [2_048, 4_096, 8_192][rng.below(3) as usize];
        c.recovery = [Recovery::GoBackN, Recovery::Selective][rng.below(2) as usize];
        c.reaction = reaction;
    });
    cell.delay = rng.range(400, 1_500) * NS;
    cell.config.rtt_ps = base_rtt(&cell.config, cell.delay);
    let packet = f64::from(cell.config.packet_bytes()) / cell.bdp_bytes();
    cell.ring = threshold + (1.0 - h) + packets_more * packet;
    cell.config.policy = Policy::DupAck(threshold / cell.ring);
    // The ring fills up to the threshold, and some round trips of stop and go.
    cell.packets = ((threshold / (1.0 - h) + 8.0) / packet) as u64;
    let out = cell.run();
    assert!(out.ends.iter().any(|e| e.done), "{cell:?}");
    (out.sum.full, format!("{cell:?}"))
}

/// No drop if and only if ring − threshold >= (1 − h) BDP + 1 packet, to 2 packets.
fn none_lost_iff_the_headroom_holds_a_surplus(h: (u64, u64), reaction: Reaction) {
    for seed in 0..200 {
        let rng = Rng::new(seed);
        let (lost, cell) = lost_with(&rng, h, reaction, 3.0);
        assert_eq!(lost, 0, "{cell}");
        let (lost, cell) = lost_with(&rng, h, reaction, -1.0);
        assert!(lost > 0, "{cell}");
    }
}

#[test]
fn stop_and_go_needs_room_for_one_round_trips_surplus() {
    none_lost_iff_the_headroom_holds_a_surplus((50, 90), Reaction::StopGo);
}

#[test]
fn clocked_senders_need_the_same_room_for_hosts_of_any_rate() {
    none_lost_iff_the_headroom_holds_a_surplus((20, 90), Reaction::Clocked);
}

#[test]
fn below_half_of_the_link_stop_and_go_overruns_any_ring() {
    // It starts again when the ring has sunk by h BDP only, and has (1 − h) BDP to add.
    let mut cell = Cell::new(0.4, 4.0, 20_000, with(Policy::DupAck(0.5), Recovery::Selective));
    assert!(cell.run().sum.full > 0);
    cell.config.reaction = Reaction::Clocked;
    assert_eq!(cell.run().sum.full, 0);
}

#[test]
fn a_start_that_does_not_wait_for_the_stop_is_luck() {
    let lost = |h| {
        let mut cell = Cell::new(h, 2.0, 15_000, with(Policy::DupAck(0.5), Recovery::Selective));
        cell.config.reaction = Reaction::StopGoAtOnce;
        cell.run().lost_percent()
    };
    // Two packets for one that sinks in every other round trip, or never, by the phase of clocks.
    assert_eq!((lost(0.5), lost(0.8)), (0.0, 0.0));
    assert!(lost(0.6) > 15.0 && lost(0.7) > 10.0);
}
