//! The wheel compared with the standard library's heap.

use super::*;
use crate::rng::Rng;

/// Reference implementation of the queue.
#[derive(Default)]
struct Model(BinaryHeap<Reverse<(u64, u64, u32)>>);

impl Model {
    fn pop_until(&mut self, end: u64) -> Option<(u64, u64, u32)> {
        (self.0.peek()?.0.0 <= end).then(|| self.0.pop())?.map(|r| r.0)
    }
}

/// A random delay of one of the kinds found in a network: none, a hop, a timer, far beyond the
/// wheel.
fn delay(rng: &mut Rng, shift: u32) -> u64 {
    match rng.below(6) {
        0 => 0,
        1 => rng.below(4 << shift),
        2 => rng.below(1000 << shift),
        3 => rng.below((SLOTS as u64 + 3) << shift),
        4 => (SLOTS as u64) << shift,
        _ => rng.below((50 * SLOTS as u64) << shift),
    }
}

fn against_model(seed: u64, shift: u32, steps: u32) {
    let mut rng = Rng::new(seed);
    let mut wheel = Wheel::new(shift);
    let mut model = Model::default();
    let (mut now, mut seq) = (0u64, 0u64);
    for step in 0..steps {
        match rng.below(20) {
            0..=9 => {
                let time = now + delay(&mut rng, shift);
                // Equal times are frequent, and their order differs from that of pushing.
                let order = rng.below(8) << 48 | seq;
                seq += 1;
                wheel.push(time, order, step);
                model.0.push(Reverse((time, order, step)));
            }
            10..=17 => {
                let end = if rng.chance(0.2) { now + delay(&mut rng, shift) } else { u64::MAX };
                let got = wheel.pop_until(end).map(|e| (e.time, e.order, e.event));
                assert_eq!(got, model.pop_until(end), "seed {seed} step {step}");
                now = got.map_or(now, |g| g.0);
            }
            18 => {
                let want = model.0.peek().map(|r| r.0.0);
                assert_eq!(wheel.next_time(), want, "seed {seed} step {step}");
            }
            _ if rng.chance(0.05) => {
                let odd = wheel.extract(|e| e % 3 == 1);
                let mut want: Vec<_> =
                    model.0.iter().map(|r| r.0).filter(|e| e.2 % 3 == 1).collect();
                want.sort_unstable();
                model.0.retain(|r| r.0.2 % 3 != 1);
                let got: Vec<_> = odd.iter().map(|e| (e.time, e.order, e.event)).collect();
                assert_eq!(got, want, "seed {seed} step {step}");
            }
            _ => {}
        }
        assert_eq!(wheel.len(), model.0.len());
        assert_eq!(wheel.is_empty(), model.0.is_empty());
    }
    while let Some(want) = model.pop_until(u64::MAX) {
        let got = wheel.pop_until(u64::MAX).map(|e| (e.time, e.order, e.event));
        assert_eq!(got, Some(want));
    }
    assert!(wheel.pop_until(u64::MAX).is_none());
}

#[test]
fn pops_what_a_heap_pops() {
    for seed in 0..60 {
        against_model(seed, [0, 3, 10, 16][seed as usize % 4], 3_000);
    }
}

#[test]
fn pushing_before_the_present_slot_pops_next() {
    let mut wheel = Wheel::new(4);
    wheel.push(1_000, 1, 'b');
    assert_eq!(wheel.next_time(), Some(1_000));
    wheel.push(3, 2, 'a');
    assert_eq!(wheel.pop_until(500).map(|e| e.event), Some('a'));
    assert!(wheel.pop_until(999).is_none());
    assert_eq!(wheel.pop_until(1_000).map(|e| e.event), Some('b'));
}

#[test]
fn chunks_are_reused() {
    let mut wheel = Wheel::new(0);
    for round in 0..100u64 {
        for i in 0..1_000 {
            wheel.push(1 + round * 2_000 + i, i, 0u64);
        }
        while wheel.pop_until(u64::MAX).is_some() {}
    }
    assert!(wheel.chunks.len() <= 1_000, "{}", wheel.chunks.len());
}

#[test]
#[should_panic(expected = "shift below 40")]
fn refuses_a_slot_wider_than_time() {
    drop(Wheel::<u32>::new(40));
}

#[test]
fn time_that_stops_short_of_a_slot_leaves_it_alone() {
    let mut wheel = Wheel::new(4);
    wheel.push(100_000, 1, 'z');
    assert!(wheel.pop_until(999).is_none());
    // The entry still finds its slot, although `next_time` was called.
    wheel.push(5_000, 2, 'a');
    assert!(wheel.late.is_empty());
    assert_eq!((wheel.next_time(), wheel.slot), (Some(5_000), 0));
    assert_eq!(wheel.pop_until(5_000).map(|e| e.event), Some('a'));
    assert!(wheel.pop_until(99_999).is_none());
    assert_eq!(wheel.pop_until(100_000).map(|e| e.event), Some('z'));
}

/// Windows of 16 units. A popped entry may push into its own group at any time, into others only
/// after the length of a window.
#[test]
fn windows_pop_each_group_as_time_alone_would() {
    let run = |windows: bool| {
        let mut wheel = Wheel::new(4);
        if windows {
            wheel.windows(5, |e: &u32| (*e % 5 < 4 || *e > 2_000).then_some(*e % 5));
        }
        let mut seen = vec![Vec::new(); 5];
        for i in 0..200u32 {
            wheel.push(u64::from(i * 7 % 300), u64::from(i), i);
        }
        let (mut seq, mut popped_behind) = (1_000, 0);
        let mut latest = 0;
        for end in [3, 40, 41, 250, 10_000] {
            while let Some(e) = wheel.pop_until(end) {
                assert!(e.time <= end);
                popped_behind += u32::from(e.time < latest);
                latest = latest.max(e.time);
                seen[e.event as usize % 5].push((e.time, e.order, e.event));
                if e.event < 1_000 {
                    seq += 1;
                    // Into the same group, perhaps within this window.
                    wheel.push(e.time + u64::from(e.event % 9), seq, e.event + 1_000);
                    wheel.push(e.time + 16, 1 << 40 | u64::from(e.event), e.event + 2_001);
                }
            }
            assert!(!wheel.in_window(), "a window ends before the end of time");
        }
        assert!(wheel.is_empty());
        (seen, popped_behind)
    };
    let ((by_time, none), (by_window, some)) = (run(false), run(true));
    assert!(none == 0 && some > 0, "{none} {some}");
    for (a, b) in by_time.iter().zip(&by_window) {
        let plain = |v: &[(u64, u64, u32)]| v.iter().map(|e| (e.0, e.2)).collect::<Vec<_>>();
        assert_eq!(plain(a), plain(b));
    }
}

/// A window with the groups 1, 2 and 4, whose entries are 1, 11, 2, 4, 14 and 24.
fn window_of_three() -> Wheel<u32> {
    let mut wheel = Wheel::new(4);
    wheel.windows(5, |e: &u32| Some(*e % 10));
    for (i, e) in [24, 11, 4, 2, 14, 1].into_iter().enumerate() {
        wheel.push(20 + u64::from(e) / 10, i as u64, e);
    }
    wheel
}

#[test]
fn a_group_is_told_of_once_with_those_after_it() {
    let mut wheel = window_of_three();
    let of = |entries: &[Entry<u32>]| {
        let mut all: Vec<u32> = entries.iter().map(|e| e.event).collect();
        all.sort_unstable();
        all
    };
    let mut seen = Vec::new();
    while let Some(e) = wheel.pop_until(1_000) {
        if wheel.opened() {
            assert!(wheel.group_present().iter().any(|p| p.event == e.event));
            let coming = [1, 2, 9].map(|k| of(wheel.group_coming(k)));
            seen.push((of(wheel.group_present()), coming));
        }
        assert!(!wheel.opened(), "once");
    }
    let want = [
        (vec![1, 11], [vec![2], vec![4, 14, 24], vec![]]),
        (vec![2], [vec![4, 14, 24], vec![], vec![]]),
        (vec![4, 14, 24], [vec![], vec![], vec![]]),
    ];
    assert_eq!(seen, want);
}

#[test]
fn entries_can_be_taken_out_of_a_window_that_has_begun() {
    let mut wheel = window_of_three();
    assert_eq!(wheel.pop_until(1_000).map(|e| e.event), Some(1));
    assert!(wheel.in_window());
    let taken = wheel.extract(|e| [11, 2, 14].contains(e));
    assert_eq!(taken.iter().map(|e| e.event).collect::<Vec<_>>(), [2, 11, 14]);
    let rest: Vec<u32> = std::iter::from_fn(|| wheel.pop_until(1_000)).map(|e| e.event).collect();
    assert_eq!(rest, [4, 24], "a group without entries is passed over");
    assert!(wheel.is_empty() && !wheel.in_window());
}
