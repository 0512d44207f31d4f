//! Communication phases with packets agree with the theory.

use crate::common::{cases, run_text, spec};
use srd_lab::spec::SpecFile;
use srd_lab::{Detail, RunResult, SaaOutcome, Seeds, jobs_of, run, run_all};
use std::path::Path;

fn saa(r: &RunResult) -> &SaaOutcome {
    let Detail::Saa(outcome) = &r.detail else { panic!("it ran in order") };
    outcome
}

/// Completion in units of a flow of `bytes` at 100 Gb/s.
fn units(r: &RunResult, bytes: u64) -> f64 {
    r.phase_ps.expect("all flows ended") as f64 / (bytes * 80) as f64
}

fn tree(network: &str, saa: &str, workload: &str) -> String {
    let network = format!(
        "shape = \"k-ary-n-tree\"\nk = 4\nn = 3\nlink_delay_ns = 100\n\
         flow_control = \"credits\"\ninput_bytes = 32_768\n{network}"
    );
    let saa =
        format!("transport = \"saa\"\nsaa = {{ packet_bytes = 4096, header_bytes = 0{saa} }}");
    spec(&network, &format!("{workload}\nwarm_bytes = 0"), &saa)
}

const CIRCUITS: &str = "routing = \"circuits\"\nhorizontal = 2";

#[test]
fn outputs_that_serve_inputs_in_turn_take_five_units_and_computed_rates_four() {
    const BYTES: u64 = 2 << 20;
    let of = |service: &str, buffer: u64, rates: &str| {
        let network = format!(
            "shape = \"shared-input\"\nlink_delay_ns = 100\nflow_control = \"credits\"\n\
                 service = \"{service}\"\ninput_bytes = {}",
            buffer * 4096
        );
        let saa = format!(
            "transport = \"saa\"\nsaa = {{ rates = \"{rates}\", packet_bytes = 4096, \
                 header_bytes = 0 }}"
        );
        let workload = format!("pattern = \"shared-input\"\nbytes = {BYTES}\nwarm_bytes = 0");
        units(&run_text(&spec(&network, &workload, &saa), 1), BYTES)
    };
    // A place in a buffer is occupied for two packet times and two delays, 2 (327.68 + 100) ns:
    // with three places a link runs at its full rate, with two at 0.766 of it.
    for (service, buffer) in [("rr", 3), ("fcfs", 3), ("rr", 8), ("fcfs", 8), ("rr", 64)] {
        let of = |rates: &str| of(service, buffer, rates);
        let (none, optimal, distributed) = (of("none"), of("optimal"), of("distributed"));
        // Four hops and the ends of packets add some packet times, of which each unit has 512.
        assert!((5.0..5.03).contains(&none), "{service}, {buffer} packets: {none}");
        assert!((4.0..4.03).contains(&optimal), "{service}, {buffer} packets: {optimal}");
        assert!((4.0..4.05).contains(&distributed), "{service}, {buffer} packets: {distributed}");
    }
    // Two places: the outputs with four units of traffic need at least 4 / 0.766, and half of their
    // packets also wait for the shared link in one of the places.
    for (places, least) in
        [(1, 4.0 * 2.0 * (1.0 + 100.0 / 327.68)), (2, 4.0 * (1.0 + 100.0 / 327.68))]
    {
        let optimal = of("rr", places, "optimal");
        assert!(optimal > least && optimal < 1.15 * least, "{places} places: {optimal}, {least}");
    }
}

#[test]
fn flows_come_in_order_and_leave_neither_weight_nor_entry_behind() {
    for (seed, network) in [(1, CIRCUITS), (2, "routing = \"oblivious\""), (3, CIRCUITS)] {
        let workload = "pattern = \"permutations\"\npermutations = 3\nbytes = 65_536\n\
                        bytes_spread = 4\njitter_ns = 20_000\nrounds = 2";
        let r = run_text(&tree(network, ", rates = \"distributed\"", workload), seed);
        let o = saa(&r);
        assert_eq!((r.unfinished(), o.early, r.drops.total()), (0, 0, 0), "seed {seed}");
        assert_eq!((o.weight_left, o.entries_left), (0, 0), "seed {seed}");
        // Announcement, confirmation and withdrawal of each flow in both rounds, without losses.
        assert_eq!((o.control.events, o.control.repeated), (3 * 2 * 192, 0), "seed {seed}");
        assert_eq!(o.answers, o.control.events + o.control.probes, "seed {seed}");
    }
}

#[test]
fn a_withdrawal_that_is_repeated_too_early_overtakes_no_data() {
    // Most control packets are repeated before they can have been answered.
    let rates = ", rates = \"distributed\", timeout_us = 1.0";
    let workload =
        "pattern = \"permutations\"\npermutations = 8\nbytes = 65_536\njitter_ns = 20_000";
    for seed in 1..=4 {
        let r = run_text(&tree(CIRCUITS, rates, workload), seed);
        let o = saa(&r);
        assert!(o.control.repeated > 1_000, "seed {seed}: {}", o.control.repeated);
        assert_eq!((r.unfinished(), o.early), (0, 0), "seed {seed}");
        assert_eq!((o.weight_left, o.entries_left), (0, 0), "seed {seed}");
    }
}

#[test]
fn the_first_rate_comes_within_a_round_trip_and_the_last_with_the_next_probe() {
    let workload = "pattern = \"permutation\"\nbytes = 1_048_576";
    let r = run_text(&tree(CIRCUITS, ", rates = \"distributed\", probe_packets = 4", workload), 5);
    let o = saa(&r);
    let rtt = r.base_rtt_ps as f64 / 1e6;
    assert_eq!(o.first_rate_us.len(), 64);
    assert!(o.first_rate_us.iter().all(|us| *us <= rtt), "{:?} of {rtt}", o.first_rate_us);
    // All flows start at once and have announced themselves when the first rates arrive. Each flow
    // then asks again and gets a rate that stays valid until other flows end.
    let w = o.largest.expect("ways are fixed");
    assert!((1.0..=3.0).contains(&w), "{w}");
    let done = units(&r, 1_048_576);
    assert!(done >= w && done < 1.06 * w, "{done} of {w}");
}

#[test]
fn flows_that_start_together_do_not_fill_the_buffers_before_all_are_counted() {
    let workload = "pattern = \"permutations\"\npermutations = 4\nbytes = 262_144";
    // Four levels: paths are long, and announcements meet long after the first one was answered.
    let text = tree(CIRCUITS, ", rates = \"distributed\"", workload).replace("n = 3", "n = 4");
    for seed in 1..=2 {
        let r = run_text(&text, seed);
        let w = saa(&r).largest.expect("ways are fixed");
        let done = units(&r, 262_144);
        // Two round trips of control packets, a packet's one-way delay and one period are a tenth
        // of W.
        assert!(done >= w && done < 1.12 * w, "seed {seed}: {done}, W = {w}");
    }
}

#[test]
fn computed_rates_keep_to_their_bound_where_none_do_not() {
    let workload = "pattern = \"permutations\"\npermutations = 8\nbytes = 262_144";
    for (network, seed) in [("routing = \"oblivious\"", 1), (CIRCUITS, 1), (CIRCUITS, 2)] {
        let of = |rates: &str| run_text(&tree(network, rates, workload), seed);
        let (none, optimal) = (of(""), of(", rates = \"optimal\""));
        let w = saa(&optimal).largest.expect("ways are fixed");
        let (free, bound) = (units(&none, 262_144), units(&optimal, 262_144));
        assert!(bound >= w && bound <= 1.05 * w, "seed {seed}: {bound}, W = {w}");
        assert!(free > bound, "seed {seed}: {free} without rates, {bound} with");
    }
}

/// Short flows with random start times: at any time of the cut, some are being withdrawn, and some
/// have taken several links of a ring.
#[test]
fn flows_of_any_age_that_a_failed_link_stops_leave_neither_weight_nor_entry() {
    let workload =
        "pattern = \"permutations\"\npermutations = 16\nbytes = 16_384\njitter_ns = 60_000";
    let text = tree(CIRCUITS, ", rates = \"distributed\"", workload);
    let mut lost = 0;
    for at_us in (310..350).step_by(2) {
        let fault =
            format!("kind = \"down\"\nat = \"leaf0-agg1\"\nat_us = {at_us}\nrouting_us = 3\n");
        let r = run_text(&format!("time_ms_max = 5\n{text}\n[[fault]]\n{fault}"), at_us);
        let o = saa(&r);
        lost += r.drops.total();
        assert_eq!((o.weight_left, o.entries_left), (0, 0), "cut at {at_us} us");
    }
    assert!(lost > 100, "{lost}");
}

/// A step of an allreduce starts when the previous step has arrived, over the same ports. Circuits
/// that are not yet freed would divert it to ports where flows meet.
#[test]
fn steps_that_meet_nobody_on_default_ways_keep_to_them() {
    let workload = "pattern = \"allreduce\"\nbytes = 262_144";
    let rates = ", rates = \"distributed\"";
    let of = |network| units(&run_text(&tree(network, rates, workload), 1), 262_144);
    let (oblivious, circuits) = (of("routing = \"oblivious\""), of(CIRCUITS));
    assert!(circuits <= 1.001 * oblivious, "{circuits} units, {oblivious} over default ways");
}

#[test]
fn results_depend_on_the_seed_alone() {
    let workload = "pattern = \"permutations\"\npermutations = 2\nbytes = 32_768";
    let text = tree(CIRCUITS, ", rates = \"distributed\"", workload);
    let file = SpecFile::parse(&text, Path::new("."), false).unwrap();
    let hashes = |threads| -> Vec<u64> {
        let results = run_all(&jobs_of(&file, Some(Seeds::up_to(3))), threads, &|_| ()).unwrap();
        results.iter().map(|r| r.hash).collect()
    };
    let one = hashes(1);
    assert_eq!(one, hashes(3));
    assert!(one[0] != one[1] && one[1] != one[2]);
}

#[test]
fn one_lane_around_rings_is_refused() {
    let text = tree(CIRCUITS, "", "pattern = \"permutations\"\npermutations = 8\nbytes = 262_144");
    let mut spec = cases(&text)[0].clone();
    spec.network.lanes = Some(1);
    let refused = run(&spec, Path::new("."), 1).expect_err("one lane");
    assert!(refused.contains("network.lanes"), "{refused}");
}

#[test]
fn circuits_over_a_link_that_fails_are_torn_down_and_set_up_anew() {
    let workload = "pattern = \"permutations\"\npermutations = 4\nbytes = 262_144";
    let text = tree(CIRCUITS, ", rates = \"distributed\"", workload);
    let fault = "[[fault]]\nkind = \"down\"\nat = \"leaf0-agg1\"\nat_us = 330\nrouting_us = 10\n";
    let text = format!("time_ms_max = 5\n{text}\n{fault}");
    for seed in 1..=3 {
        let r = run_text(&text, seed);
        let o = saa(&r);
        let (torn, again) = o.torn;
        assert!(torn > 0 && again > 0 && again <= torn, "seed {seed}: {torn}, {again}");
        // Packets on the wire are lost and never retransmitted, so their flows stay incomplete: at
        // most as many flows as lost packets. All others end.
        let lost = r.drops.total();
        assert!(lost > 0 && r.unfinished() > 0, "seed {seed}: {lost}");
        assert!(r.unfinished() as u64 <= lost.min(torn), "seed {seed}: {lost}, {torn}");
        // Registers of links and entries of switches are all released.
        assert_eq!((o.weight_left, o.entries_left), (0, 0), "seed {seed}");
        let rows = srd_lab::figures(&[r], false);
        assert!(rows.contains("circuits over links that failed"), "{rows}");
    }
}
