//! When posts wait, in virtual time; and that what waits in a device leaves, whoever comes.

use super::*;
use crate::{
    Access, AddressHandle, CompletionQueue, Device, DeviceConfig, MemoryRegion, Progress, QKey,
    QpInit, QpModify, QpState, QueuePair, RecvWr, SendWr, WorkCompletion,
};
use std::{
    thread::sleep,
    time::{Duration, Instant},
};

const QP: usize = 3;
const START: Time = Time(1_000_000_000);
const US: Span = Span::from_us(1);

fn us(n: u64) -> Span {
    Span::from_us(n)
}

/// That of a program that polls soon after its posts.
fn learnt() -> Cork {
    let mut cork = Cork::default();
    for _ in 0..TRUST_MAX {
        soon(&mut cork, START);
    }
    cork
}

/// A post that leaves at once, and a poll soon after it.
fn soon(cork: &mut Cork, now: Time) {
    cork.posted_at = Some(now);
    cork.polled(now + us(3));
}

#[test]
fn posts_wait_where_polls_came_soon_after_posts() {
    let mut cork = Cork::default();
    for _ in 0..TRUST_MIN {
        assert!(!cork.is_learnt(START));
        soon(&mut cork, START);
        // Polls that follow no post teach nothing.
        cork.polled(START + us(500));
    }
    assert!(cork.is_learnt(START));
    // One late poll is forgotten soon where the others come in time.
    let mut cork = learnt();
    cork.posted_at = Some(START);
    cork.polled(START + LATE);
    assert!(cork.is_learnt(START), "one of many");
    cork.posted_at = Some(START);
    cork.polled(START + LATE);
    assert!(!cork.is_learnt(START), "two in a row");
}

#[test]
fn some_tens_of_small_operations_in_each_step_do_not_let_posts_wait() {
    let mut cork = Cork::default();
    for _ in 0..1_000 {
        (0..40).for_each(|_| soon(&mut cork, START));
        assert!(!cork.is_learnt(START));
        cork.posted_at = Some(START);
        cork.polled(START + us(300));
    }
}

#[test]
fn what_waits_leaves_when_it_fills_a_burst_or_has_waited_long_enough() {
    let mut cork = Cork::default();
    let mut waiting = 0;
    while cork.add(START, QP, 8) {
        waiting += 1;
        assert_eq!(cork.posts_of(QP), Some(waiting));
        assert_eq!(cork.posts_of(QP + 1), None, "posts of one queue pair wait");
    }
    assert_eq!(waiting + 1, POSTS_MAX, "the last one sends all");
    assert!(cork.taken(START) && !cork.taken(START));
    assert_eq!(cork.posts_of(QP + 1), Some(0));

    // Six of 8 KiB wait, and the seventh sends them: 65,000 bytes have no room for an eighth.
    let waiting = (0..).take_while(|_| cork.add(START, QP, 8_192)).count();
    assert_eq!(waiting, 6);
    cork.taken(START);
    assert!(!cork.add(START, QP, BYTES_MAX / 2), "a long one leaves at once");
    assert!(!cork.add(START, QP, u32::MAX));

    assert!(cork.add(START, QP, 8) && cork.add(START + Span(WAIT_MAX.0 - 1), QP, 8));
    assert!(!cork.add(START + WAIT_MAX, QP, 8));
}

#[test]
fn polls_that_come_a_little_late_each_time_let_no_post_wait() {
    let mut cork = learnt();
    let (mut now, mut waited) = (START, 0);
    for _ in 0..1_000 {
        if cork.is_learnt(now) {
            assert!(cork.add(now, QP, 8));
            now += WAIT_MAX;
            assert!(cork.taken(now));
            waited += 1;
        } else {
            // What leaves at once takes a system call meanwhile.
            cork.posted_at = Some(now);
            now += WAIT_MAX;
        }
        cork.polled(now);
    }
    assert!((30..40).contains(&waited), "{waited} of 1,000 waited");
    // It is no reason to wait for a time.
    assert_eq!((cork.pause, cork.from), (Span::ZERO, Time(0)));
}

/// One post waits, and is taken so much later.
fn wait_for(cork: &mut Cork, now: Time, time: Span) -> Time {
    assert!(cork.is_learnt(now) && cork.add(now, QP, 8));
    assert!(cork.taken(now + time));
    now + time
}

#[test]
fn after_a_late_poll_none_waits_for_many_times_what_it_was_late() {
    let mut cork = learnt();
    let now = wait_for(&mut cork, START, WAIT_MAX - Span(1));
    assert!(cork.is_learnt(now), "in time");
    let late = us(300);
    let mut now = wait_for(&mut cork, now, late);
    let mut pause = Span(late.0 * PAUSE_FACTOR);
    for _ in 0..20 {
        // It learns nothing else meanwhile.
        (0..TRUST_MAX).for_each(|_| soon(&mut cork, now));
        assert_eq!(cork.pause, pause);
        assert!(!cork.is_learnt(now + Span(pause.0 - 1)));
        now = wait_for(&mut cork, now + pause, late);
        pause = Span(pause.0 * 2).min(PAUSE_MAX);
    }
    assert_eq!(pause, PAUSE_MAX);
    // All in time for long: the next pause is a short one.
    (0..TRUST_MAX).for_each(|_| soon(&mut cork, now));
    now = wait_for(&mut cork, now + pause, US);
    assert_eq!(cork.pause, PAUSE_MAX);
    now = wait_for(&mut cork, now + Span(pause.0 * PAUSES_FORGET), US);
    assert_eq!(cork.pause, Span::ZERO);
    wait_for(&mut cork, now, LATE);
    assert_eq!(cork.pause, PAUSE_MIN);
}

/// Two devices on the loopback interface. The polls of this thread drive the near one, whose own
/// thread takes over after the time given; a thread of its own drives the far one.
struct Pair {
    near: Device,
    cq: CompletionQueue,
    qp: QueuePair,
    to_far: AddressHandle,
    far: Device,
    far_cq: CompletionQueue,
    far_qp: QueuePair,
    inbox: MemoryRegion,
}

const QKEY: QKey = QKey(7);
const PATIENCE: Duration = Duration::from_secs(20);
/// Longer than any test runs.
const NEVER: Duration = Duration::from_secs(3_600);

impl Pair {
    /// Connected, with a program at the near end that polls soon after it posts.
    fn new(idle: Duration) -> Self {
        let open = |progress| {
            let mut config = DeviceConfig::loopback();
            (config.progress, config.share, config.status) = (progress, false, false);
            Device::open(config).unwrap()
        };
        let near = open(Progress::Shared { idle });
        let far = open(Progress::Thread { spin: Duration::ZERO });
        let end = |device: &Device, channel: bool| {
            let pd = device.pd_create().unwrap();
            let channel = channel.then(|| device.channel_create().unwrap());
            let init = crate::CqInit { depth: 256, channel: channel.as_ref(), context: 0 };
            let cq = device.cq_create_ex(&init).unwrap();
            let mut init = QpInit::srd(&cq, &cq);
            init.inline_bytes_max = 80;
            let qp = pd.qp_create(&init).unwrap();
            qp.activate(QKEY).unwrap();
            (pd, cq, qp)
        };
        let (pd, cq, qp) = end(&near, true);
        let (far_pd, far_cq, far_qp) = end(&far, false);
        let inbox = far_pd.mr_allocate(4096, Access::LOCAL_WRITE).unwrap();
        for wr_id in 0..100 {
            far_qp.post_recv(&RecvWr::recv(wr_id).sges(&[inbox.sge(0, 64)])).unwrap();
        }
        let to_far = pd.ah_create(far.ip()).unwrap();
        let pair = Self { near, cq, qp, to_far, far, far_cq, far_qp, inbox };
        pair.post();
        assert_eq!(pair.polls(1), 1);
        assert_eq!(pair.arrived(), 1);
        pair.settle();
        pair
    }

    fn post(&self) {
        let wr = SendWr::send(1, &self.to_far, self.far_qp.qpn(), QKEY);
        self.qp.post_send(&wr.inline(b"message")).unwrap();
    }

    /// Polls until this thread drives rather than the device's own, and makes the device expect
    /// polls soon after posts.
    fn settle(&self) {
        let shared = self.near.shared();
        let (start, mut free) = (Instant::now(), 0);
        // The device's thread may have begun to take the lock before this one polled.
        while free < 3 {
            assert_eq!(self.cq.poll(&mut [WorkCompletion::default()]).unwrap(), 0);
            sleep(Duration::from_millis(1));
            let is_free = shared.driving.callers.drive() && shared.try_nic().is_some();
            free = if is_free { free + 1 } else { 0 };
            assert!(start.elapsed() < PATIENCE, "the device's thread drives for ever");
        }
        self.learn();
    }

    /// Makes the device expect polls soon after posts.
    fn learn(&self) {
        self.near.shared().try_nic().expect("nobody else drives").cork = learnt();
    }

    /// Posts one that leaves at once, the first after a poll, and one that waits.
    fn post_two(&self) {
        self.post();
        assert_eq!(self.waiting(), 0);
        self.post();
        assert_eq!(self.waiting(), 1);
    }

    /// Posts that wait in the ring.
    fn waiting(&self) -> usize {
        let mut nic = self.near.shared().try_nic().expect("nobody else drives");
        let index = usize::from(self.qp.qpn().index());
        let waiting = nic.tables.qps[index].as_mut().unwrap().sends.slots();
        assert_eq!(self.near.shared().corked.load(Ordering::Relaxed), waiting > 0);
        assert_eq!(nic.cork.posts_of(index), Some(waiting));
        waiting
    }

    /// Polls until so many requests have ended well.
    fn polls(&self, wanted: usize) -> usize {
        let (start, mut n) = (Instant::now(), 0);
        while n < wanted && start.elapsed() < PATIENCE {
            n += usize::from(self.cq.poll_one().unwrap().is_some_and(|wc| wc.is_ok()));
        }
        n
    }

    /// Messages that arrive at the far end, until none does for a while.
    fn arrived(&self) -> usize {
        let wait = |time| self.far_cq.wait(time).unwrap().map(|wc| wc.ok().unwrap());
        let Some(_) = wait(PATIENCE) else { return 0 };
        1 + std::iter::from_fn(|| wait(Duration::from_millis(200))).count()
    }
}

#[test]
fn the_first_post_leaves_at_once_and_the_second_with_the_next_poll() {
    let pair = Pair::new(NEVER);
    pair.post_two();
    assert_eq!(pair.arrived(), 1, "the first one, and nobody polled");
    pair.cq.poll(&mut []).unwrap();
    assert_eq!(pair.waiting(), 0);
    assert_eq!(pair.arrived(), 1);
    assert_eq!(pair.polls(2), 2);
}

#[test]
fn the_first_post_after_a_poll_leaves_at_once_while_others_are_in_flight() {
    let pair = Pair::new(NEVER);
    pair.post_two();
    let shared = pair.near.shared();
    shared.try_nic().unwrap().polled(shared, Nic::now());
    // It takes the one that waits along.
    pair.post();
    assert_eq!(pair.waiting(), 0);
    assert_eq!(pair.arrived(), 3);
}

#[test]
fn a_post_leaves_at_once_where_nothing_is_in_flight() {
    let pair = Pair::new(NEVER);
    pair.learn();
    pair.near.shared().post_follows.store(true, Ordering::Relaxed);
    pair.post();
    assert_eq!(pair.waiting(), 0);
}

#[test]
fn a_poll_that_finds_completions_sends_what_waits_too() {
    let pair = Pair::new(NEVER);
    pair.post_two();
    assert_eq!(pair.arrived(), 1);
    // The completion of the first goes to the ring, and the second waits again.
    pair.near.progress().unwrap();
    assert_eq!(pair.waiting(), 0);
    pair.learn();
    pair.near.shared().post_follows.store(true, Ordering::Relaxed);
    pair.post();
    assert_eq!(pair.waiting(), 1);
    assert_eq!(pair.polls(1), 1);
    assert_eq!(pair.waiting(), 0);
    assert_eq!(pair.arrived(), 2);
    assert_eq!(pair.polls(2), 2);
}

/// The completion is in the ring already, or a caller's buffer, so that the poll takes no turn.
#[test]
fn the_first_post_after_a_poll_without_a_turn_leaves_at_once() {
    let pair = Pair::new(NEVER);
    pair.post();
    assert_eq!(pair.arrived(), 1);
    let start = Instant::now();
    while !pair.cq.core().may_have() && start.elapsed() < PATIENCE {
        pair.near.progress().unwrap();
    }
    // Two that are in flight while nobody takes a turn.
    let wr = SendWr::send(1, &pair.to_far, pair.far_qp.qpn(), QKEY).inline(b"message");
    let two = || {
        pair.qp.enqueue_sends([wr, wr].into_iter(), crate::Faults::AtPost).unwrap();
        pair.qp.doorbell();
    };
    for poll in [true, false] {
        pair.learn();
        two();
        if poll {
            assert_eq!(pair.polls(1), 1);
        } else {
            pair.cq.posts_flush();
        }
        pair.post();
        assert_eq!(pair.waiting(), 0, "the first one; poll: {poll}");
        pair.post();
        assert_eq!(pair.waiting(), 1, "the second one; poll: {poll}");
        pair.cq.posts_flush();
        assert_eq!(pair.arrived(), 4);
    }
    assert_eq!(pair.polls(8), 8);
}

#[test]
fn a_program_that_computes_after_its_posts_is_delayed_once() {
    // Another attempt where this thread had no processor for most of that time.
    let attempt = || {
        let pair = Pair::new(NEVER);
        let begin = Instant::now();
        pair.post_two();
        sleep(Duration::from_millis(2));
        assert_eq!(pair.polls(2), 2);
        // For 16 times those 2 ms no post waits.
        pair.post();
        pair.post();
        let waiting = pair.waiting();
        if begin.elapsed() > Duration::from_millis(16) {
            return false;
        }
        assert_eq!(waiting, 0);
        assert_eq!(pair.arrived(), 4);
        true
    };
    assert!((0..20).any(|_| attempt()), "no attempt in time");
}

#[test]
fn the_device_thread_sends_what_waits_where_nobody_polls() {
    let pair = Pair::new(NEVER);
    pair.post_two();
    // As it does when the time has passed that it leaves to callers.
    pair.near.shared().driving.callers.rest();
    assert_eq!(pair.arrived(), 2);
    assert_eq!(pair.polls(2), 2);
}

#[test]
fn no_post_waits_where_events_are_awaited_or_nothing_was_learnt() {
    let pair = Pair::new(NEVER);
    pair.near.shared().try_nic().unwrap().cork = Cork::default();
    pair.post();
    pair.post();
    assert_eq!(pair.waiting(), 0, "nothing was learnt");
    assert_eq!(pair.polls(2), 2);
    pair.settle();
    // Armed only here: to arm it makes the device's thread drive, which may send first.
    pair.cq.core().armed.store(true, Ordering::SeqCst);
    pair.post();
    pair.post();
    assert_eq!(pair.waiting(), 0, "armed");
    pair.cq.core().armed.store(false, Ordering::SeqCst);
    assert_eq!(pair.polls(2), 2);
    pair.settle();
    pair.post_two();
    pair.cq.req_notify().unwrap();
    assert_eq!(pair.arrived(), 6, "who waits for an event polls no more");
}

#[test]
fn several_requests_of_one_call_leave_at_once() {
    let pair = Pair::new(NEVER);
    let wr = SendWr::send(1, &pair.to_far, pair.far_qp.qpn(), QKEY).inline(b"message");
    pair.post();
    pair.qp.enqueue_sends([wr, wr].into_iter(), crate::Faults::AtPost).unwrap();
    pair.qp.doorbell();
    assert_eq!(pair.waiting(), 0);
    assert_eq!(pair.polls(3), 3);
}

#[test]
fn what_waits_is_sent_before_its_queue_pair_ends() {
    let pair = Pair::new(NEVER);
    pair.post_two();
    let flush = QpModify { state: Some(QpState::Err), ..QpModify::default() };
    pair.qp.modify(flush).unwrap();
    assert_eq!(pair.waiting(), 0);
    assert_eq!(pair.arrived(), 2);
    // Each has its completion: acknowledged before, or flushed.
    let start = Instant::now();
    let mut ended = 0;
    while ended < 2 && start.elapsed() < PATIENCE {
        ended += usize::from(pair.cq.poll_one().unwrap().is_some());
    }
    assert_eq!(ended, 2);

    let pair = Pair::new(NEVER);
    pair.post_two();
    let Pair { near: _near, qp, far_cq, far: _far, far_qp: _far_qp, inbox: _inbox, .. } = pair;
    drop(qp);
    let arrived = (0..2).filter(|_| far_cq.wait(PATIENCE).unwrap().is_some()).count();
    assert_eq!(arrived, 2, "destroyed");
}

#[test]
fn what_waits_is_sent_before_the_device_closes() {
    let pair = Pair::new(NEVER);
    pair.post_two();
    pair.near.close();
    assert_eq!(pair.arrived(), 2);
    assert_eq!(pair.polls(2), 2);
}
