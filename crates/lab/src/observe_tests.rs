//! Samples compared with closed forms; recording does not change a run; sums are complete.

use super::*;
use crate::spec::{Spec, SpecFile};
use crate::{RunResult, run};
use srd_fabric::{Delivered, HostId, HostIo, Outbound, Port, WorldConfig, dumbbell};
use std::path::Path;

/// Sends a number of packets of 1,250 bytes to the last host at once.
struct Flood(u32, u32);

impl Host<()> for Flood {
    fn on_packet(&mut self, _: Ps, _: Delivered<()>, _: &mut HostIo<'_, ()>) {}
    fn on_timer(&mut self, _: Ps, _: &mut HostIo<'_, ()>) {}
    fn on_call(&mut self, _: Ps, _: u64, io: &mut HostIo<'_, ()>) {
        let dst = HostId(self.1);
        for _ in 0..self.0 {
            let out = Outbound { dst, sport: 1, dport: 2, bytes: 1_250, ect: true };
            io.send(out, ()).expect("the card's queue has no end");
        }
    }
}

const NOBODY: Moment<'_> = Moment {
    flow_bytes: &|_| 0,
    flow_active: &|_| false,
    resent: Resent { packets: 0, timeouts: 0 },
};

/// `senders` hosts send 1,000 packets each (100 us at 100 Gb/s) into one link, with intervals of 10
/// us.
fn flood(senders: u32) -> Observation {
    let port = Port::new(100_000_000_000, US);
    let topo = dumbbell(senders, 1, port, port, port);
    let mut sampler = Sampler::new(&topo, &[], 0, 10 * US);
    let mut world = World::new(topo, WorldConfig::new(1), |_| Flood(1_000, senders)).unwrap();
    (0..senders).for_each(|h| world.call_at(0, HostId(h), 0));
    while let Some(next) = world.next_event_at() {
        let due = sampler.due();
        if next <= due {
            world.events_run(due, u64::MAX);
        }
        sampler.take(&mut world, due, &NOBODY);
    }
    sampler.finish(&mut world, &NOBODY, Vec::new())
}

fn tier<'a>(o: &'a Observation, name: &str) -> &'a Tier {
    o.tiers.iter().find(|t| t.name == name).unwrap_or_else(|| panic!("{name}: {:?}", o.tiers))
}

#[test]
fn a_saturated_link_is_fully_used_and_its_queue_grows_by_what_is_too_much() {
    let o = flood(2);
    let names: Vec<&str> = o.tiers.iter().map(|t| t.name.as_str()).collect();
    assert_eq!(names, ["host->leaf", "leaf->leaf", "leaf->host"]);
    let (up, core) = (tier(&o, "host->leaf"), tier(&o, "leaf->leaf"));
    // The senders' cards are busy for 100 us each. The mean includes the third host's idle card.
    for (i, n) in up.intervals.iter().take(10).enumerate() {
        assert_eq!((n.used_max, n.used_mean), (1.0, 2.0 / 3.0), "interval {i}");
    }
    assert_eq!(up.intervals[10].used_max, 0.0);
    // The bottleneck's first packets arrive after 1.1 us, and it is busy for 200 us from then on.
    assert_eq!(core.intervals[0].used_max, 0.89);
    assert!(core.intervals[1..20].iter().all(|n| n.used_max == 1.0));
    assert!((core.intervals[20].used_max - 0.11).abs() < 1e-9);
    for (i, n) in core.intervals.iter().take(10).enumerate() {
        // The queue grows at the link's rate, plus the pair of packets that has just arrived.
        let after_ns = 10_000 * (i as u64 + 1) - 1_100;
        assert_eq!(n.queue_max, after_ns * 25 / 2 + 2_500, "interval {i}");
        assert_eq!((n.queue_p99, n.queue_median), (n.queue_max, 0));
    }
    // The busiest link carried all packets; series of single links agree with those of tiers.
    assert_eq!((o.busiest[0].bytes, o.busiest[0].packets), (2_500_000, 2_000));
    let link = o.links.iter().find(|l| l.name == "leaf0->leaf1").unwrap();
    assert_eq!(link.bytes.iter().sum::<u64>(), 2_500_000);
    assert_eq!(link.queue_max[9], core.intervals[9].queue_max);
}

#[test]
fn a_link_with_enough_room_is_used_as_much_as_is_sent_and_has_no_queue() {
    let o = flood(1);
    let core = tier(&o, "leaf->leaf");
    assert!(core.intervals[1..10].iter().all(|n| n.used_max == 1.0 && n.queue_max == 1_250));
    assert_eq!(core.links, 2, "both ways");
    assert!((core.used_sorted[1] - 100.0 / (o.end_ps as f64 / 1e6)).abs() < 1e-9);
    assert_eq!(core.used_sorted[0], 0.0);
}

#[test]
fn intervals_are_round_and_some_two_hundred() {
    for (expected, want) in
        [(0, US), (150 * US, US), (200 * US, US), (201 * US, 2 * US), (8_000 * US, 50 * US)]
    {
        assert_eq!(interval_for(expected), want, "{expected}");
    }
}

#[test]
fn shares_are_judged_by_jain() {
    let s = Spread::of(vec![1_000, 3_000, 2_000], US);
    assert_eq!((s.flows, s.min, s.median, s.max), (3, 8.0, 16.0, 24.0));
    assert!((s.jain - 36.0 / (3.0 * 14.0)).abs() < 1e-12);
    assert_eq!(Spread::of(vec![5; 48], US).jain, 1.0);
    assert_eq!(Spread::of(vec![], US), Spread::default());
}

const SPEC: &str = "name = \"test\"\ntitle = \"test\"\n[network]\nshape = \"fat-tree\"\nk = 4\n\
    buffer_bytes = 100_000\n[workload]\npattern = \"permutation\"\nbytes = 300_000\n\
    rounds = 3\njitter_ns = 5_000\n[[fault]]\nkind = \"core-loss\"\nprob = 0.01\nat_us = 310\n";

fn spec(changes: &[&str]) -> Spec {
    let text = format!("{}\n{SPEC}", changes.join("\n"));
    let file = SpecFile::parse(&text, Path::new("."), false).unwrap_or_else(|e| panic!("{e}"));
    file.cases[0].clone()
}

fn both(changes: &[&str], interval_us: u64) -> (RunResult, RunResult) {
    let mut spec = spec(changes);
    let plain = run(&spec, Path::new("."), 5).unwrap();
    spec.measure.observe = true;
    spec.measure.interval_us = interval_us;
    (plain, run(&spec, Path::new("."), 5).unwrap())
}

fn is_same_and_whole(plain: &RunResult, watched: &RunResult) -> Observation {
    assert_eq!(plain.hash, watched.hash);
    assert_eq!((&plain.fct_ps, plain.tally), (&watched.fct_ps, watched.tally));
    assert_eq!(plain.unfinished(), 0);
    let o = *watched.observation.clone().unwrap();
    let all: u64 = plain.flows.iter().map(|f| f.bytes).sum::<u64>() * 3;
    assert_eq!(o.intervals.iter().map(|n| n.bytes).sum::<u64>(), all);
    for (f, flow) in o.flows.iter().zip(&plain.flows) {
        assert_eq!((f.src, f.dst), (flow.src.0, flow.dst.0));
        assert_eq!(f.bytes.iter().sum::<u64>(), flow.bytes * 3, "flow {}", f.flow);
    }
    let resent: u64 = o.intervals.iter().map(|n| n.retransmitted).sum();
    assert_eq!(resent, plain.tally.retransmitted);
    let drops: u64 = o.intervals.iter().flat_map(|n| n.drops).sum();
    assert_eq!(drops, plain.drops.total());
    assert!(drops > 0 && resent > 0);
    for t in &o.tiers {
        assert_eq!(t.intervals.len(), o.intervals.len());
        // A packet counts when its last bit has left, so an interval may include one packet more.
        assert!(t.intervals.iter().all(|n| n.used_max <= 1.001), "{}", t.name);
    }
    assert!(o.links.iter().all(|l| l.bytes.len() == o.intervals.len()));
    o
}

#[test]
fn watching_changes_nothing_and_misses_nothing() {
    let (plain, watched) = both(&[], 0);
    let o = is_same_and_whole(&plain, &watched);
    // With more intervals requested than kept, pairs are merged and sums stay complete.
    let (_, fine) = both(&[], 1);
    let fine = is_same_and_whole(&plain, &fine);
    assert!(o.intervals.len() < SAMPLES_MAX && fine.intervals.len() < SAMPLES_MAX);
    assert_eq!(fine.interval_ps, US << fine.merges);
    assert_eq!(fine.end_ps, o.end_ps);
    let sent: u64 = o.paths.iter().sum();
    assert!(sent >= plain.data_packets, "{sent} packets on {} paths", o.paths.len());
    assert_eq!(o.spines.len(), 4);
}

#[test]
fn sends_and_tcp_are_watched_as_well() {
    let (plain, watched) = both(&["engine.verb = \"send\""], 0);
    is_same_and_whole(&plain, &watched);
    let (plain, watched) = both(&["transport = \"tcp\""], 0);
    let o = is_same_and_whole(&plain, &watched);
    assert!(o.merges > 0, "a timeout takes longer than was expected");
    assert!(o.paths.is_empty());
}
