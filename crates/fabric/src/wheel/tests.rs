//! The wheel against the standard library's heap.

use super::*;
use crate::rng::Rng;

/// The obvious queue.
#[derive(Default)]
struct Model(BinaryHeap<Reverse<(u64, u64, u32)>>);

impl Model {
    fn pop_until(&mut self, end: u64) -> Option<(u64, u64, u32)> {
        (self.0.peek()?.0.0 <= end).then(|| self.0.pop())?.map(|r| r.0)
    }
}

/// A delay of one of the kinds a network has: none, a hop, a timer, far beyond the wheel.
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
                // Ties of time are common, and their order is not that of pushing.
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
