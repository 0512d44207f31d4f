//! Tests of the table in memory: sums, slots of dead processes, address changes, arbitrary words.

use crate::layout::{ADDRESSES, MEMBERS, WORDS};
use crate::{Member, Owner, Table};
use srd_core::{HostNote, HostView, Rng, Span, Time};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::Ordering;

const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
/// How far the host's clock is ahead of the engines' clocks, ns.
const ORIGIN: u64 = 5_000_000_000;
const LINE: u64 = 12_500_000_000;

fn remote(i: u32) -> IpAddr {
    Ipv4Addr::from_bits(0x0A01_0000 + i).into()
}

fn note(ip: IpAddr, now: Time) -> HostNote {
    HostNote {
        ip,
        until: now + Span::from_ms(1),
        backlogged: true,
        rate_host: LINE / 2,
        rate_own: LINE / 4,
        delivered: 1_000_000,
        lost_permille: 0,
        inflight: 10_000,
        inflight_max: 20_000,
        rtt_ns_min: 30_000,
        rtt_ns_smoothed: 40_000,
        packets_sent: 7,
        packets_lost: 1,
    }
}

fn tell(member: &mut Member, now: Time, note: &HostNote) -> HostView {
    member.exchange(ORIGIN + now.0, now, note)
}

/// Members of processes that never end.
fn members(table: &Arc<Table>, n: usize) -> Vec<Member> {
    let join = |k| table.join(Owner::of(0, k as u64 + 1), LOCAL, |_| true);
    (0..n).map(|k| join(k).expect("there is room")).collect()
}

#[test]
fn the_sum_is_of_all_who_send_to_the_address_and_of_nobody_else() {
    let table = Arc::new(Table::new());
    let mut all = members(&table, 48);
    let now = Time(1_000_000);
    for (k, m) in all.iter_mut().enumerate() {
        let few = HostNote {
            backlogged: false,
            rate_host: 0,
            rtt_ns_min: 20_000,
            ..note(remote(1), now)
        };
        let told = if k % 2 == 0 { note(remote(1), now) } else { few };
        let view = tell(m, now, &told);
        assert_eq!(view.senders as usize, k + 1, "whoever begins is counted at once");
    }
    let other = tell(&mut all[0], now, &note(remote(2), now));
    assert_eq!((other.senders, other.backlogged), (1, 1), "another address");
    let now = now + Span::from_us(50);
    let view = tell(&mut all[7], now, &HostNote { lost_permille: 480, ..note(remote(1), now) });
    let expect = HostView {
        senders: 48,
        backlogged: 25,
        limited_bytes_per_sec: 23_000_000,
        delivered_bytes_per_sec: 48_000_000,
        lost_permille: 10,
        rate_bytes_per_sec: LINE / 2,
        rtt_ns_min: 20_000,
    };
    assert_eq!(view, expect);
    // A member without anything to send leaves with the next sum; a silent one leaves when its seat
    // expires.
    let now = now + Span::from_us(50);
    let idle = tell(&mut all[7], now, &HostNote { until: Time(0), ..note(remote(1), now) });
    assert_eq!(idle, HostView::ALONE);
    assert_eq!(tell(&mut all[8], now, &note(remote(1), now)).senders, 47);
    let later = now + Span::from_ms(2);
    assert_eq!(tell(&mut all[9], later, &note(remote(1), later)).senders, 1);
    // A tool shows a member that has not run for a moment, but not for long.
    let shown = |ms| table.snapshot(ORIGIN + (later + Span::from_ms(ms)).0, |_| true).seats.len();
    assert_eq!((shown(0), shown(100), shown(1_000)), (48, 48, 0), "47 there, and one elsewhere");
}

#[test]
fn slots_of_the_dead_are_taken_and_those_of_the_living_are_not() {
    let table = Arc::new(Table::new());
    let mut all = members(&table, MEMBERS);
    assert!(table.join(Owner::of(0, 999), LOCAL, |_| true).is_none(), "all live");
    let dead = Owner::of(0, 8);
    let taken = table.join(Owner::of(0, 999), LOCAL, |o| o != dead).expect("one is dead");
    assert_eq!(taken.index(), 7);
    // The former owner drops its handle: the slot stays with the new owner.
    drop(all.remove(7));
    assert!(table.join(Owner::of(0, 1_000), LOCAL, |_| true).is_none());
    drop(taken);
    assert!(table.join(Owner::of(0, 1_000), LOCAL, |_| true).is_some());
}

#[test]
fn a_child_of_fork_leaves_its_parents_slot_alone() {
    let table = Arc::new(Table::new());
    let parent = Owner::of(std::process::id() + 1, 3);
    let member = table.join(parent, LOCAL, |_| true).expect("there is room");
    let index = member.index();
    // This is what happens in a child of `fork` that drops its copy of the parent's device.
    drop(member);
    let other = table.join(Owner::of(0, 4), LOCAL, |_| true).expect("there is room");
    assert_ne!(other.index(), index);
}

#[test]
fn addresses_beyond_the_table_are_alone_until_others_rest() {
    let table = Arc::new(Table::new());
    let mut all = members(&table, 2);
    let now = Time(1_000_000);
    for i in 0..ADDRESSES as u32 {
        tell(&mut all[0], now, &note(remote(i), now));
        assert_eq!(tell(&mut all[1], now, &note(remote(i), now)).senders, 2, "address {i}");
    }
    let beyond = remote(ADDRESSES as u32);
    tell(&mut all[0], now, &note(beyond, now));
    assert_eq!(tell(&mut all[1], now, &note(beyond, now)), HostView::ALONE);
    // Two seconds later no member sends to the first addresses any more.
    let now = now + Span::from_secs(2);
    tell(&mut all[0], now, &note(beyond, now));
    assert_eq!(tell(&mut all[1], now, &note(beyond, now)).senders, 2);
    // A member that still holds its former entry finds that another address has it now.
    for i in 0..ADDRESSES as u32 - 1 {
        tell(&mut all[0], now, &note(remote(i), now));
        let view = tell(&mut all[1], now, &note(remote(i), now));
        assert_eq!(view.senders, 2, "address {i} again");
    }
}

#[test]
fn engines_that_grant_count_each_other_for_as_long_as_they_say_so() {
    let table = Arc::new(Table::new());
    let mut all = members(&table, 12);
    let mut other = table.join(Owner::of(0, 99), remote(9), |_| true).expect("there is room");
    let now = 1_000_000;
    assert_eq!(other.granters(now, true), Some(1));
    for (k, m) in all.iter_mut().enumerate() {
        assert_eq!(m.granters(now, false), None, "nobody wants any");
        assert_eq!(m.granters(now, true), Some(k as u32 + 1));
        assert_eq!(m.granters(now + 5_000, true), None, "that was just said");
    }
    assert_eq!(all[0].granters(now + 50_000, true), Some(12));
    assert!(all[1].granters(now + 60_000, false).is_some(), "it ends at once");
    assert_eq!(all[0].granters(now + 100_000, true), Some(11));
    assert_eq!(all[0].granters(now + 3_000_000, true), Some(1), "the others said nothing");
    assert_eq!(other.granters(now + 3_000_000, true), Some(1), "another address");
}

/// Another process writes arbitrary words at any time: nothing panics, and the views stay within
/// the bounds that the engine relies on.
#[test]
fn random_words_are_ignored_or_bounded() {
    for seed in 0..40 {
        let table = Arc::new(Table::new());
        let mut all = members(&table, 3);
        let mut rng = Rng::from_seed(seed);
        let mut now = Time(1_000_000);
        for step in 0..60 {
            for _ in 0..WORDS / 50 {
                let at = rng.below(WORDS as u32) as usize;
                let (a, b) = (u64::from(rng.next_u32()), u64::from(rng.next_u32()));
                let word = [a << 32 | b, u64::MAX, (ORIGIN + now.0 + a % 1_000_000) << 1, a % 99]
                    [rng.below(4) as usize];
                table.word(at).store(word, Ordering::Relaxed);
            }
            for (k, m) in all.iter_mut().enumerate() {
                let address = remote(rng.below(5));
                let view = tell(m, now, &note(address, now));
                let bounded = (1..=MEMBERS as u32).contains(&view.senders)
                    && view.backlogged <= view.senders
                    && view.lost_permille <= 1000;
                assert!(bounded, "seed {seed}, step {step}, member {k}: {view:?}");
            }
            table.snapshot(ORIGIN + now.0, |_| true);
            let granters = all[0].granters(ORIGIN + now.0, true);
            assert!(granters.is_none_or(|n| (1..=MEMBERS as u32).contains(&n)), "{granters:?}");
            let _ = table.join(Owner::of(0, 77), LOCAL, |_| rng_free(step));
            now += Span::from_us(15);
        }
        // When it stops, the members find each other again.
        now += Span::from_secs(3);
        for entry in 0..WORDS {
            table.word(entry).store(0, Ordering::Relaxed);
        }
        table.label();
        let mut all = members(&table, 3);
        let counts: Vec<u32> =
            all.iter_mut().map(|m| tell(m, now, &note(remote(1), now)).senders).collect();
        assert_eq!(counts, [1, 2, 3], "seed {seed}");
    }
}

fn rng_free(step: i32) -> bool {
    step % 2 == 0
}
