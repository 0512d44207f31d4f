//! Each fault has its effect on the right component for the right time.

use crate::common::{Got, PER_BYTE, Probe, finish, ids, leaf_spine, port, send_at, world};
use srd_fabric::{
    Burst, CableId, DropReason, EcnFault, Effect, Fault, FaultPlan, HostId, LinkId, MS, NS, Node,
    Ps, SwitchId, Target, US, World, back_to_back,
};

type Net = World<u64, Probe>;

/// Two leaves, four spines, one host each. Host 0 sends packets of 500 bytes every 100 ns with
/// changing source ports to host 1 until `until`.
fn sprayed(seed: u64, until: Ps) -> Net {
    let mut w = world(leaf_spine(2, 4, 1), seed);
    for i in 0..until / (100 * NS) {
        send_at(&mut w, i * 100 * NS, 0, 1, i as u16, 500, i);
    }
    w
}

/// A stream between two hosts: one packet of 500 bytes every 100 ns.
fn stream(n: u64) -> Net {
    let mut w = world(back_to_back(port()), 4);
    for i in 0..n {
        send_at(&mut w, i * 100 * NS, 0, 1, i as u16, 500, i);
    }
    w
}

fn impaired(n: u64, effect: Effect) -> Net {
    let mut w = stream(n);
    w.fault_now(Fault::Impair { at: Target::Link(LinkId(0)), effect }).expect("sound");
    finish(&mut w);
    w
}

fn spine_link(w: &Net, spine: u32) -> LinkId {
    let (leaf, spine) = (Node::Switch(SwitchId(0)), Node::Switch(SwitchId(2 + spine)));
    w.topology().links_between(leaf, spine).next().expect("a cable")
}

fn drops(w: &Net, reason: DropReason) -> u64 {
    w.totals().drops.of(reason)
}

fn got(w: &Net) -> &[Got] {
    &w.hosts()[1].got
}

#[test]
fn a_cut_loses_what_is_queued_and_flying_and_what_comes() {
    let mut w = world(back_to_back(port()), 1);
    for i in 0..20 {
        send_at(&mut w, 0, 0, 1, 0, 1_250, i);
    }
    for i in 20..23 {
        send_at(&mut w, i * US, 0, 1, 0, 1_250, i);
    }
    // Each packet takes 0.1 µs; at 1.55 µs five have arrived, ten are on the wire, five are queued.
    let at = Target::Link(LinkId(0));
    w.fault_at(1_550 * NS, Fault::Down { at, routing: None }).expect("sound");
    w.fault_at(21_500 * NS, Fault::Up { at, routing: None }).expect("sound");
    finish(&mut w);
    assert_eq!(ids(&w, 1), [0, 1, 2, 3, 4, 22]);
    assert_eq!((drops(&w, DropReason::Cut), drops(&w, DropReason::LinkDown)), (15, 2));
}

#[test]
fn a_short_cut_empties_the_queue_and_takes_a_lone_flying_packet() {
    let mut w = world(back_to_back(port()), 1);
    let at = Target::Link(LinkId(0));
    let cut = |w: &mut Net, time| {
        w.fault_at(time, Fault::Down { at, routing: None }).expect("sound");
        w.fault_at(time + 10 * NS, Fault::Up { at, routing: None }).expect("sound");
    };
    for i in 0..20 {
        send_at(&mut w, 0, 0, 1, 0, 1_250, i);
    }
    cut(&mut w, 50 * NS);
    send_at(&mut w, 100 * NS, 0, 1, 0, 1_250, 20);
    // This packet has left the card, whose queue is empty, at the next cut.
    send_at(&mut w, 10 * US, 0, 1, 0, 1_250, 21);
    cut(&mut w, 10 * US + 500 * NS);
    finish(&mut w);
    assert_eq!((ids(&w, 1), drops(&w, DropReason::Cut)), (vec![20], 21));
    assert_eq!(got(&w)[0].at, 200 * NS + US, "nothing was queued before it");
}

#[test]
fn one_way_faults_leave_the_other_way_alone() {
    let mut w = world(back_to_back(port()), 1);
    w.fault_now(Fault::Down { at: Target::Link(LinkId(1)), routing: None }).expect("sound");
    send_at(&mut w, 0, 0, 1, 0, 100, 1);
    send_at(&mut w, 0, 1, 0, 0, 100, 2);
    finish(&mut w);
    assert_eq!((ids(&w, 0), ids(&w, 1)), (vec![], vec![1]));
}

#[test]
fn routing_avoids_a_dead_link_only_once_it_knows() {
    let mut w = sprayed(1, 200 * US);
    let at = Target::Cable(spine_link(&w, 0).cable());
    w.fault_at(50 * US, Fault::Down { at, routing: Some(50 * US) }).expect("sound");
    w.fault_at(150 * US, Fault::Up { at, routing: Some(0) }).expect("sound");
    w.run_until(100 * US);
    let lost = drops(&w, DropReason::LinkDown);
    // A quarter of 500 packets: the mean is 125, five standard deviations are 48.
    assert!((77..=173).contains(&lost), "{lost}");
    w.run_until(150 * US);
    assert_eq!(drops(&w, DropReason::LinkDown), lost, "none after routing converged");
    let before = w.link_stats(spine_link(&w, 0)).packets;
    finish(&mut w);
    assert!(w.link_stats(spine_link(&w, 0)).packets > before + 77, "used again after repair");
    assert_eq!(drops(&w, DropReason::LinkDown), lost);
}

#[test]
fn remote_switches_avoid_a_spine_that_lost_the_other_leaf() {
    let mut w = sprayed(1, 100 * US);
    let far = (Node::Switch(SwitchId(2)), Node::Switch(SwitchId(1)));
    let link = w.topology().links_between(far.0, far.1).next().expect("a cable");
    w.fault_now(Fault::Down { at: Target::Link(link), routing: Some(0) }).expect("sound");
    finish(&mut w);
    assert_eq!(w.link_stats(spine_link(&w, 0)).packets, 0);
    assert_eq!(w.totals().drops.total(), 0);
}

#[test]
fn a_black_hole_swallows_its_share_until_routing_converges() {
    let mut w = sprayed(2, 300 * US);
    let link = spine_link(&w, 1);
    let hole = Fault::BlackHole { at: Target::Link(link), routing: Some(100 * US) };
    w.fault_at(100 * US, hole).expect("sound");
    finish(&mut w);
    let lost = drops(&w, DropReason::BlackHole);
    // A quarter of 1,000: five standard deviations are 69.
    assert!((181..=319).contains(&lost), "{lost}");
    assert_eq!(w.link_stats(link).drops.of(DropReason::BlackHole), lost);
    assert_eq!(w.totals().drops.total(), lost);
}

#[test]
fn a_black_hole_that_routing_never_notices_ends_only_when_healed() {
    let mut w = sprayed(2, 300 * US);
    let at = Target::Link(spine_link(&w, 1));
    w.fault_at(0, Fault::BlackHole { at, routing: None }).expect("sound");
    w.fault_at(200 * US, Fault::BlackHoleEnd { at, routing: None }).expect("sound");
    w.run_until(205 * US);
    let lost = drops(&w, DropReason::BlackHole);
    assert!(lost > 380, "{lost}");
    finish(&mut w);
    assert_eq!(drops(&w, DropReason::BlackHole), lost);
}

#[test]
fn a_switch_that_swallows_everything() {
    let mut w = sprayed(3, 200 * US);
    let switch = SwitchId(4);
    let hole = Fault::SwitchHole { switch, routing: Some(100 * US) };
    let end = Fault::SwitchHoleEnd { switch, routing: Some(0) };
    w.plan(&FaultPlan { events: vec![(0, hole), (150 * US, end)] }).expect("sound");
    w.run_until(149 * US);
    let lost = drops(&w, DropReason::BlackHole);
    assert!((181..=319).contains(&lost), "{lost}");
    assert_eq!(w.link_stats(spine_link(&w, 2)).drops.of(DropReason::BlackHole), lost);
    finish(&mut w);
    assert_eq!(drops(&w, DropReason::BlackHole), lost);
}

#[test]
fn a_flapping_link_loses_packets_in_every_outage() {
    let mut w = stream(1_000);
    let at = Target::Link(LinkId(0));
    let flap = Fault::Flap { at, down_ps: 10 * US, up_ps: 10 * US, times: 3, routing: None };
    w.fault_at(10 * US, flap).expect("sound");
    finish(&mut w);
    let down = drops(&w, DropReason::LinkDown);
    assert!((299..=301).contains(&down), "{down}");
    let cut = drops(&w, DropReason::Cut);
    assert!((30..=36).contains(&cut), "10 or 11 in flight at each outage: {cut}");
}

#[test]
fn a_dead_switch_comes_back_with_another_hash() {
    let mut w = world(leaf_spine(2, 4, 1), 1);
    for round in 0..3 {
        for i in 0..64 {
            send_at(&mut w, round * 100 * US + i * US, 0, 1, i as u16, 500, i);
        }
    }
    let leaf = SwitchId(0);
    let counts = |w: &Net| [0, 1, 2, 3].map(|s| w.link_stats(spine_link(w, s)).packets);
    w.run_until(90 * US);
    let first = counts(&w);
    w.fault_now(Fault::SwitchDown { switch: leaf, routing: Some(0) }).expect("sound");
    w.run_until(190 * US);
    assert_eq!(counts(&w), first, "a dead switch forwards nothing");
    assert_eq!(drops(&w, DropReason::LinkDown), 64);
    let up = Fault::SwitchUp { switch: leaf, hash_seed: None, routing: Some(0) };
    w.fault_now(up).expect("sound");
    finish(&mut w);
    let both = counts(&w);
    assert_eq!(both.iter().sum::<u64>(), 128);
    assert_ne!(both, first.map(|n| 2 * n), "the same flows take other paths");
}

#[test]
fn a_rehash_moves_live_flows() {
    let paths = |fault: Option<Fault>| -> Vec<u64> {
        let mut w = world(leaf_spine(2, 4, 1), 1);
        if let Some(fault) = fault {
            w.fault_now(fault).expect("sound");
        }
        for i in 0..64 {
            send_at(&mut w, u64::from(i) * US, 0, 1, i, 500, u64::from(i));
        }
        let mut path = Vec::new();
        for i in 0..64u64 {
            let before: Vec<_> = (0..4).map(|s| w.link_stats(spine_link(&w, s)).packets).collect();
            w.run_until(i * US + 500 * NS + US);
            let now = (0..4).map(|s| w.link_stats(spine_link(&w, s)).packets);
            path.push(now.zip(before).position(|(n, b)| n != b).expect("one moved") as u64);
        }
        path
    };
    let switch = SwitchId(0);
    let plain = paths(None);
    assert_eq!(plain, paths(None));
    let drawn = paths(Some(Fault::Rehash { switch, hash_seed: None }));
    let given = paths(Some(Fault::Rehash { switch, hash_seed: Some(7) }));
    assert_ne!(plain, drawn);
    assert_ne!(given, drawn);
    let moved = plain.iter().zip(&drawn).filter(|(a, b)| a != b).count();
    assert!((32..=62).contains(&moved), "three quarters of 64: {moved}");
}

#[test]
fn a_slow_link_drains_its_queue_at_the_new_rate() {
    let mut w = world(back_to_back(port()), 1);
    for i in 0..10 {
        send_at(&mut w, 0, 0, 1, 0, 1_250, i);
    }
    // After 0.25 µs, two packets and half of the third have left.
    let at = Target::Link(LinkId(0));
    w.fault_at(250 * NS, Fault::Rate { at, percent: 25 }).expect("sound");
    w.fault_at(450 * NS, Fault::Rate { at, percent: 100 }).expect("sound");
    send_at(&mut w, 450 * NS, 0, 1, 0, 1_250, 10);
    finish(&mut w);
    let left: Vec<_> = got(&w).iter().map(|g| (g.at - US) / NS).collect();
    // The other half of the third packet takes 0.2 µs; later packets are sent at full rate.
    assert_eq!(left, [100, 200, 450, 550, 650, 750, 850, 950, 1050, 1150, 1250]);
    assert_eq!(ids(&w, 1), (0..=10).collect::<Vec<_>>());
}

#[test]
fn a_shrunken_queue_overflows() {
    let mut w = world(leaf_spine(1, 1, 3), 1);
    let edge = w.topology().links_between(Node::Switch(SwitchId(0)), Node::Host(HostId(2))).next();
    let at = Target::Link(edge.expect("a cable"));
    w.fault_now(Fault::Buffer { at, bytes: Some(2_000) }).expect("sound");
    for i in 0..4 {
        send_at(&mut w, i * 80 * NS, (i % 2) as u32, 2, 0, 1_000, i);
        send_at(&mut w, i * 80 * NS, (i % 2) as u32 ^ 1, 2, 0, 1_000, i + 10);
    }
    w.fault_at(100 * US, Fault::Buffer { at, bytes: None }).expect("sound");
    for i in 0..4 {
        send_at(&mut w, 200 * US + i * 80 * NS, 0, 2, 0, 1_000, i + 20);
        send_at(&mut w, 200 * US + i * 80 * NS, 1, 2, 0, 1_000, i + 30);
    }
    finish(&mut w);
    // Two fit at once, then one per packet time.
    assert_eq!(drops(&w, DropReason::BufferFull), 8 - 5);
    assert_eq!(w.totals().delivered, 5 + 8);
}

#[test]
fn gray_loss_is_as_frequent_as_asked() {
    let w = impaired(20_000, Effect::Loss(0.1));
    let lost = drops(&w, DropReason::Loss);
    assert!((1_788..=2_212).contains(&lost), "{lost}");
    let w = impaired(500, Effect::Loss(1.0));
    assert_eq!(drops(&w, DropReason::Loss), 500);
    let w = impaired(500, Effect::Loss(0.0));
    assert_eq!(w.totals().delivered, 500);
}

#[test]
fn burst_loss_comes_in_bursts() {
    let burst = Burst { enter: 0.01, leave: 0.1, loss_good: 0.0, loss_bad: 1.0 };
    let w = impaired(50_000, Effect::Burst(Some(burst)));
    let lost = drops(&w, DropReason::BurstLoss);
    // The bad state lasts 1/11 of the time.
    assert!((4_000..=5_100).contains(&lost), "{lost}");
    let gaps = got(&w).windows(2).filter(|g| g[1].id != g[0].id + 1).count() as f64;
    let mean = lost as f64 / gaps;
    assert!((9.0..=11.0).contains(&mean), "bursts of 10 on average: {mean}");
}

#[test]
fn a_flow_hole_loses_some_flows_wholly_and_the_others_not_at_all() {
    let mut w = world(back_to_back(port()), 6);
    for i in 0..4_000 {
        send_at(&mut w, i * 100 * NS, 0, 1, (i % 400) as u16, 500, i);
    }
    let effect = Effect::FlowHole(0.25);
    w.fault_now(Fault::Impair { at: Target::Link(LinkId(0)), effect }).expect("sound");
    finish(&mut w);
    let mut per_flow = [0; 400];
    got(&w).iter().for_each(|g| per_flow[usize::from(g.sport)] += 1);
    assert!(per_flow.iter().all(|n| *n == 0 || *n == 10));
    let dead = per_flow.iter().filter(|n| **n == 0).count();
    assert!((57..=143).contains(&dead), "a quarter of 400: {dead}");
}

#[test]
fn corruption_is_flagged_and_the_packet_arrives() {
    let w = impaired(10_000, Effect::Corrupt(0.05));
    let bad = got(&w).iter().filter(|g| g.corrupt != 0).count();
    assert!((391..=609).contains(&bad), "{bad}");
    assert_eq!((w.totals().corrupted, w.totals().delivered), (bad as u64, 10_000));
}

#[test]
fn duplicates_come_after_their_original() {
    let w = impaired(5_000, Effect::Duplicate { prob: 0.1, delay_ps: 3 * US });
    let copies = w.totals().duplicated;
    assert!((394..=606).contains(&copies), "{copies}");
    assert_eq!(w.totals().delivered, 5_000 + copies);
    let mut first = vec![None; 5_000];
    for g in got(&w) {
        match &mut first[g.id as usize] {
            None => first[g.id as usize] = Some(g.at),
            Some(at) => assert!(g.at >= *at && g.at <= *at + 3 * US),
        }
    }
    assert!(first.iter().all(Option::is_some));
}

#[test]
fn jitter_reorders_but_loses_nothing() {
    let w = impaired(2_000, Effect::Delay { prob: 0.5, fixed_ps: US, jitter_ps: 2 * US });
    assert_eq!(w.totals().delivered, 2_000);
    let on_time = |g: &&Got| g.at == g.id * 100 * NS + 500 * PER_BYTE + US;
    let late: Vec<_> = got(&w).iter().filter(|g| !on_time(g)).collect();
    assert!((888..=1_112).contains(&late.len()), "{}", late.len());
    for g in late {
        let extra = g.at - (g.id * 100 * NS + 500 * PER_BYTE + US);
        assert!((US..=3 * US).contains(&extra), "{extra}");
    }
    assert!(got(&w).windows(2).any(|g| g[1].id < g[0].id));
}

#[test]
fn ecn_marks_may_be_set_or_wiped() {
    let w = impaired(100, Effect::Ecn(EcnFault::Set));
    assert!(got(&w).iter().all(|g| g.ce));
    let marking = port().ecn(srd_fabric::Ecn::step(0));
    let mut w = world(back_to_back(marking), 1);
    send_at(&mut w, 0, 0, 1, 0, 100, 0);
    let at = Target::Link(LinkId(0));
    w.fault_at(5 * US, Fault::Impair { at, effect: Effect::Ecn(EcnFault::Clear) }).expect("sound");
    send_at(&mut w, 10 * US, 0, 1, 0, 100, 1);
    finish(&mut w);
    assert_eq!(got(&w).iter().map(|g| g.ce).collect::<Vec<_>>(), [true, false]);
}

#[test]
fn a_small_mtu_drops_large_packets_only() {
    let mut w = world(back_to_back(port()), 1);
    let effect = Effect::Mtu(Some(1_500));
    w.fault_now(Fault::Impair { at: Target::All, effect }).expect("sound");
    for (i, bytes) in [64, 1_500, 1_501, 9_000].into_iter().enumerate() {
        send_at(&mut w, 0, 0, 1, 0, bytes, i as u64);
    }
    finish(&mut w);
    assert_eq!((ids(&w, 1), drops(&w, DropReason::Mtu)), (vec![0, 1], 2));
}

#[test]
fn a_stalled_host_gets_everything_at_the_end_in_order() {
    let mut w = stream(300);
    w.with_host(HostId(1), |_, io| io.timer_set(15 * US));
    w.call_at(12 * US, HostId(1), 9_999);
    let stall = Fault::HostStall { host: HostId(1), for_ps: 10 * US };
    w.fault_at(10 * US, stall).expect("sound");
    w.fault_at(15 * US, stall).expect("sound");
    finish(&mut w);
    let held: Vec<_> = got(&w).iter().filter(|g| g.at == 25 * US).collect();
    assert!((149..=151).contains(&held.len()), "{}", held.len());
    assert!(got(&w).iter().all(|g| g.at < 10 * US || g.at >= 25 * US));
    assert_eq!(ids(&w, 1), (0..300).collect::<Vec<_>>());
    assert_eq!(w.hosts()[1].timers, [25 * US]);
    assert_eq!(w.hosts()[1].calls, [(25 * US, 9_999)]);
}

#[test]
fn a_stalled_host_drops_what_it_cannot_hold() {
    let mut config = srd_fabric::WorldConfig::new(1);
    config.host_hold_bytes = 10_000;
    let mut w = World::new(back_to_back(port()), config, |_| Probe::default()).expect("sound");
    for i in 0..100 {
        send_at(&mut w, i * 100 * NS, 0, 1, 0, 500, i);
    }
    for i in 100..200 {
        send_at(&mut w, 100 * US + i * 100 * NS, 0, 1, 0, 500, i);
    }
    let stall = Fault::HostStall { host: HostId(1), for_ps: 50 * US };
    w.fault_at(0, stall).expect("sound");
    w.fault_at(100 * US, stall).expect("sound");
    finish(&mut w);
    assert_eq!((drops(&w, DropReason::HostFull), w.totals().delivered), (160, 40));
    assert_eq!(w.totals().delivered_bytes, 40 * 500);
}

#[test]
fn healing_ends_everything_at_once() {
    let mut w = sprayed(5, 300 * US);
    let all = |effect| Fault::Impair { at: Target::All, effect };
    for fault in [
        Fault::Down { at: Target::Cable(CableId(2)), routing: Some(0) },
        Fault::BlackHole { at: Target::Link(spine_link(&w, 1)), routing: None },
        Fault::SwitchDown { switch: SwitchId(4), routing: None },
        Fault::SwitchHole { switch: SwitchId(5), routing: Some(0) },
        Fault::Rate { at: Target::Core, percent: 10 },
        Fault::Buffer { at: Target::Core, bytes: Some(600) },
        Fault::HostStall { host: HostId(1), for_ps: MS },
        all(Effect::Loss(0.5)),
        all(Effect::Burst(Some(Burst { enter: 1.0, leave: 0.0, loss_good: 0.0, loss_bad: 0.5 }))),
        all(Effect::FlowHole(0.5)),
        all(Effect::Corrupt(0.5)),
        all(Effect::Duplicate { prob: 0.5, delay_ps: US }),
        all(Effect::Delay { prob: 0.5, fixed_ps: US, jitter_ps: US }),
        all(Effect::Ecn(EcnFault::Set)),
        all(Effect::Mtu(Some(400))),
    ] {
        w.fault_at(50 * US, fault).expect("sound");
    }
    w.with_host(HostId(1), |_, io| io.timer_set(60 * US));
    w.run_until(100 * US);
    w.fault_now(Fault::HealAll).expect("sound");
    w.run_until(110 * US);
    let lost = w.totals().drops.total();
    assert!(lost > 400, "{lost}");
    assert_eq!(w.hosts()[1].timers, [100 * US], "the stall ended with the rest");
    finish(&mut w);
    assert_eq!(w.totals().drops.total(), lost);
    let clean = got(&w).iter().filter(|g| g.id >= 1_000);
    assert!(clean.clone().all(|g| g.corrupt == 0 && !g.ce));
    assert!(clean.clone().all(|g| g.at == g.id * 100 * NS + 4 * (US + 500 * PER_BYTE)));
    assert_eq!(clean.count(), 2_000);
    for spine in 0..4 {
        assert!(w.link_stats(spine_link(&w, spine)).packets > 400);
    }
}

#[test]
fn a_stall_that_ends_early_leaves_a_host_its_timer() {
    let mut w = stream(1);
    w.host_mut(HostId(1)).again_ps = Some(5 * US);
    // An event for an earlier time precedes that of the timer.
    for at in [60 * US, 20 * US, 60 * US] {
        w.with_host(HostId(1), |_, io| io.timer_set(at));
    }
    w.fault_at(5 * US, Fault::HostStall { host: HostId(1), for_ps: 10 * US }).expect("sound");
    w.fault_at(8 * US, Fault::HealAll).expect("sound");
    w.run_until(76 * US);
    assert_eq!(w.hosts()[1].timers, [60 * US, 65 * US, 70 * US, 75 * US]);
}

#[test]
fn an_effect_after_healing_comes_alone() {
    let mut w = stream(200);
    let at = Target::Link(LinkId(0));
    let impair = |effect| Fault::Impair { at, effect };
    w.fault_now(impair(Effect::Loss(1.0))).expect("sound");
    w.fault_now(Fault::HealAll).expect("sound");
    w.fault_now(impair(Effect::Corrupt(1.0))).expect("sound");
    finish(&mut w);
    assert_eq!((w.totals().corrupted, w.totals().drops.total()), (200, 0));
}

#[test]
fn effects_of_one_link_draw_independently() {
    let mut w = stream(2_000);
    let at = Target::Link(LinkId(0));
    for effect in [
        Effect::Duplicate { prob: 0.5, delay_ps: 5 * US },
        Effect::Delay { prob: 0.5, fixed_ps: US, jitter_ps: 5 * US },
    ] {
        w.fault_now(Fault::Impair { at, effect }).expect("sound");
    }
    finish(&mut w);
    let mut copies = vec![0; 2_000];
    let mut on_time = vec![false; 2_000];
    for g in got(&w) {
        copies[g.id as usize] += 1;
        on_time[g.id as usize] |= g.at == g.id * 100 * NS + 500 * PER_BYTE + US;
    }
    let both = copies.iter().zip(&on_time).filter(|(n, t)| **n == 2 && !**t).count();
    assert!((403..=597).contains(&both), "a quarter of 2,000: {both}");
}

#[test]
fn overlapping_faults_end_one_by_one() {
    let mut w = stream(400);
    let at = Target::Link(LinkId(0));
    let hole = Fault::BlackHole { at, routing: None };
    let loss = |p| Fault::Impair { at, effect: Effect::Loss(p) };
    let events = vec![
        (5 * US, hole),
        (10 * US, loss(1.0)),
        (20 * US, Fault::BlackHoleEnd { at, routing: None }),
        (30 * US, loss(0.0)),
    ];
    w.plan(&FaultPlan { events }).expect("sound");
    finish(&mut w);
    let lost = (drops(&w, DropReason::BlackHole), drops(&w, DropReason::Loss));
    assert!((149..=151).contains(&lost.0) && (99..=101).contains(&lost.1), "{lost:?}");
}

#[test]
fn one_links_draws_do_not_change_anothers() {
    let lost = |also: Option<Effect>| -> Vec<u64> {
        let mut w = world(leaf_spine(1, 1, 4), 8);
        let nic = |h: u32| LinkId(2 * h);
        let loss = Fault::Impair { at: Target::Link(nic(0)), effect: Effect::Loss(0.3) };
        w.fault_now(loss).expect("sound");
        if let Some(effect) = also {
            w.fault_now(Fault::Impair { at: Target::Link(nic(2)), effect }).expect("sound");
            w.fault_now(Fault::Impair { at: Target::Link(nic(0)), effect }).expect("sound");
        }
        for i in 0..500 {
            send_at(&mut w, i * 100 * NS, 0, 1, 0, 500, i);
            send_at(&mut w, i * 100 * NS, 2, 3, 0, 500, i);
        }
        finish(&mut w);
        ids(&w, 1)
    };
    let plain = lost(None);
    assert!(plain.len() < 400);
    assert_eq!(plain, lost(Some(Effect::Corrupt(0.4))));
}

#[test]
fn senseless_faults_are_refused_with_the_reason() {
    let mut w = stream(1);
    let at = Target::Link(LinkId(0));
    let burst = Burst { enter: 0.1, leave: -0.1, loss_good: 0.0, loss_bad: 1.0 };
    for (fault, why) in [
        (Fault::Down { at: Target::Link(LinkId(2)), routing: None }, "not in the topology"),
        (Fault::Rehash { switch: SwitchId(0), hash_seed: None }, "0 switches"),
        (Fault::HostStall { host: HostId(2), for_ps: 1 }, "2 hosts"),
        (Fault::Impair { at, effect: Effect::Loss(1.5) }, "give 0 to 1"),
        (Fault::Impair { at, effect: Effect::Burst(Some(burst)) }, "-0.1"),
        (Fault::Rate { at, percent: 0 }, "1 to 1000"),
        (Fault::Flap { at, down_ps: 0, up_ps: 1, times: 1, routing: None }, "above 0"),
    ] {
        let text = w.fault_now(fault).expect_err("refused").to_string();
        assert!(text.contains(why), "{text}");
        assert!(w.fault_at(5, fault).is_err());
        assert!(w.plan(&FaultPlan { events: vec![(5, fault)] }).is_err());
    }
    assert!(w.fault_at(0, Fault::HealAll).is_ok());
}

#[test]
fn a_packet_led_in_circles_is_dropped_in_the_end() {
    // Two switches, each with a link to the third; whenever the packet is at one, that link is
    // down.
    let mut t = srd_fabric::Topology::new(2);
    let [a, b, l] = [0, 0, 0].map(|tier| Node::Switch(t.switch_add(tier)));
    t.cable_add(Node::Host(HostId(0)), a, port(), port());
    t.cable_add(Node::Host(HostId(1)), l, port(), port());
    t.cable_add(a, b, port(), port());
    let ways = [t.cable_add(a, l, port(), port()), t.cable_add(b, l, port(), port())];
    let mut w = world(t, 1);
    send_at(&mut w, 0, 0, 1, 1, 100, 1);
    let hop = US + 100 * PER_BYTE;
    for n in 0..70 {
        let [shut, open] = [n % 2, (n + 1) % 2].map(|i| Target::Cable(ways[i]));
        let at = n as Ps * hop + hop / 2;
        w.fault_at(at, Fault::Down { at: shut, routing: Some(0) }).expect("sound");
        w.fault_at(at, Fault::Up { at: open, routing: Some(0) }).expect("sound");
    }
    finish(&mut w);
    assert_eq!(drops(&w, DropReason::HopLimit), 1);
    let passed = w.link_stats(CableId(2).up()).packets + w.link_stats(CableId(2).down()).packets;
    assert_eq!(passed, u64::from(srd_fabric::HOPS_MAX));
}
