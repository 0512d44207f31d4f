//! Tests with a fluid model of a host: bytes sent to it wait, and drain at its own rate.

use super::*;

const MTU: u16 = 1_000;
const RTT: Span = Span(10_000);
const LIMIT: u64 = 200_000;

/// A host that drains `drain` bytes per us and is sent `sent` bytes per us, for `us` microseconds;
/// the queue is reported once per us.
struct Fluid {
    host: HostQueue,
    waiting: u64,
    now: u64,
    handled: bool,
}

impl Fluid {
    fn new(policy: HostPolicy, handled: bool) -> Self {
        Self { host: HostQueue::new(Time(0), policy, MTU, RTT), waiting: 0, now: 0, handled }
    }

    fn run(&mut self, us: u64, sent: u64, drain: u64) {
        for _ in 0..us {
            self.now += 1_000;
            let drained = drain.min(self.waiting + sent);
            // With a network card, bytes count as taken when they arrive; with a socket, when they
            // are read.
            let taken = if self.handled { sent } else { drained } as usize;
            self.host.take(Time(self.now), taken, Span::ZERO);
            self.waiting = self.waiting + sent - drained;
            let bytes = self.waiting;
            let told = RxWaiting { bytes, limit_bytes: LIMIT, handled: self.handled };
            self.host.tell(Time(self.now), &told);
        }
    }
}

#[test]
fn the_drain_is_measured_while_something_waits_and_forgotten_when_nothing_does() {
    for handled in [true, false] {
        let mut f = Fluid::new(HostPolicy::Budget, handled);
        f.run(100, 500, 1_000);
        assert_eq!((f.host.drain, f.host.budget(RTT), f.host.grant_rate()), (0, None, None));
        f.run(60, 1_000, 500);
        let drain = f.host.drain;
        assert!((490_000_000..510_000_000).contains(&drain), "{handled}: {drain} B/s");
        assert_eq!(f.host.depth_packets(), 30);
        f.run(400, 0, 500);
        assert_eq!((f.waiting, f.host.drain, f.host.budget(RTT)), (0, 0, None));
    }
}

/// Each sender may have two packets under way to a slow host, as far as half of its room holds
/// them.
#[test]
fn the_budget_grows_with_the_senders_within_half_of_the_room() {
    let mut f = Fluid::new(HostPolicy::Budget, false);
    f.run(60, 1_000, 500);
    let budget = |f: &mut Fluid, senders| {
        f.host.senders_set(senders);
        f.host.budget(Span::ZERO).unwrap()
    };
    assert_eq!([0, 1, 8].map(|n| budget(&mut f, n)), [16 * u32::from(MTU); 3]);
    assert_eq!(budget(&mut f, 12), 24 * u32::from(MTU));
    assert_eq!([50, 1_000, u32::MAX].map(|n| budget(&mut f, n)), [LIMIT as u32 / 2; 3]);
}

/// A program that reads a batch, reports what is left, reads that too, and sleeps.
#[test]
fn a_host_that_pauses_is_a_limit_as_long_as_packets_wait_for_it() {
    let mut host = HostQueue::new(Time(0), HostPolicy::Budget, MTU, RTT);
    let pause = RTT.scale(50, 1);
    let mut now = Time(0);
    let mut turn = |host: &mut HostQueue, pause: Span, waited: Span, left: u64| {
        now += pause;
        (0..25).for_each(|_| host.take(now, 1_000, waited));
        host.tell(now, &RxWaiting { bytes: left, limit_bytes: LIMIT, handled: false });
        host.drain
    };
    let drain = (0..8).map(|_| turn(&mut host, pause, pause, 10_000)).last().unwrap();
    assert!((49_000_000..51_000_000).contains(&drain), "{drain}: 25 packets in 50 round trips");
    for n in 0..20 {
        // Every other report finds nothing behind the first batch.
        assert!(turn(&mut host, pause, pause, (n % 2) * 10_000) > 0, "forgotten after {n} turns");
    }
    // Now it reads packets as they arrive: the budget grows, and is dropped when it would be the
    // whole room.
    let short = RTT.scale(HOST_EMPTY_RTTS + 1, 1);
    let mut before = turn(&mut host, short, Span::ZERO, 0);
    let mut looks = 1;
    while before > 0 {
        let drain = turn(&mut host, short, Span::ZERO, 0);
        assert!(drain == 0 || drain == 2 * before, "{drain} after {before}");
        (before, looks) = (drain, looks + 1);
    }
    assert!((4..12).contains(&looks), "{looks}");
}

#[test]
fn what_is_empty_has_as_much_room_as_before() {
    let mut f = Fluid::new(HostPolicy::Budget, false);
    f.run(60, 1_000, 500);
    let budget = f.host.budget(RTT);
    f.host.tell(Time(f.now + 1), &RxWaiting::default());
    assert_eq!(f.host.budget(RTT), budget);
}

#[test]
fn the_threshold_is_crossed_once_each_way_and_told_to_all() {
    let mut f = Fluid::new(HostPolicy::StopGo, true);
    f.run(10, 900, 500);
    // The drain rate is not known, or two round trips of it are less than 16 packets.
    assert!(!f.host.is_above() && f.host.tell_take(3_000).is_none());
    f.run(31, 1_000, 500);
    assert!(f.host.is_above(), "{}", f.waiting);
    assert_eq!(f.host.tell_take(3_000), Some(0..TELL_SCAN));
    assert!(f.host.is_telling());
    assert_eq!(f.host.tell_take(3_000), Some(TELL_SCAN..2 * TELL_SCAN));
    assert_eq!(f.host.tell_take(3_000), Some(2 * TELL_SCAN..3_000));
    assert!(f.host.tell_take(3_000).is_none() && !f.host.is_telling());
    let below = f.host.catches_up_at().unwrap();
    assert_eq!(below, 16_000 - 2_000);
    while f.waiting > below {
        assert!(f.host.is_above());
        f.run(1, 0, 500);
    }
    assert!(!f.host.is_above() && f.host.tell_take(2) == Some(0..2));
    assert_eq!(f.host.budget(RTT), None, "stop-go has none");
}

#[test]
fn a_card_takes_off_what_it_has_acknowledged_and_a_socket_does_not() {
    for (handled, all) in [(true, 5_000 + 16_000 - 10_000), (false, 5_000 + 16_000)] {
        let mut f = Fluid::new(HostPolicy::Budget, handled);
        f.run(100, 600, 500);
        assert_eq!(f.waiting, 10_000);
        let budget = f.host.budget(RTT).unwrap();
        assert!(budget.abs_diff(all) < 500, "{handled}: {budget}");
        f.run(100, 1_000, 500);
        assert!(f.host.budget(RTT).unwrap() > 0, "something may always be under way");
    }
}

#[test]
fn credits_follow_the_drain_and_what_waits() {
    let mut f = Fluid::new(HostPolicy::StopGo, true);
    f.run(100, 580, 500);
    assert_eq!(f.waiting, 8_000);
    let at_half = f.host.grant_rate().unwrap();
    assert!((490_000_000..510_000_000).contains(&at_half), "{at_half}");
    f.run(100, 2_000, 500);
    assert!(f.host.grant_rate().unwrap() < at_half * 11 / 20, "much waits");
    let mut budget = Fluid::new(HostPolicy::Budget, true);
    budget.run(100, 580, 500);
    assert_eq!(budget.host.grant_rate(), None, "a budget bounds senders already");
    let mut off = Fluid::new(HostPolicy::Off, true);
    off.run(300, 1_000, 500);
    assert!(off.host.grant_rate().is_none() && off.host.budget(RTT).is_none());
    assert!(!off.host.is_above() && off.host.depth_packets() == 150, "told, and no more");
}
