//! Compares the scoreboard with a simple model.

use super::board::{Board, LOST, RETRANS, SACKED};
use srd_fabric::Rng;

#[derive(Clone, Copy, Debug)]
struct Model {
    start: u64,
    len: u32,
    sacked: bool,
    lost: bool,
    copy: bool,
    sent: u64,
}

fn compare(board: &mut Board, model: &[Model], label: &str) {
    let count = |f: fn(&Model) -> bool| model.iter().filter(|m| f(m)).count() as u32;
    let sums = (board.len(), board.sacked(), board.lost(), board.retrans());
    let expected = (model.len() as u32, count(|m| m.sacked), count(|m| m.lost), count(|m| m.copy));
    assert_eq!(sums, expected, "{label}");
    let waiting = model.iter().position(|m| m.lost && !m.copy);
    let first = board.first();
    assert_eq!(board.resend_next(), waiting.map(|i| first + i as u32), "{label}");
    // The list holds, oldest first, what is in flight and not acknowledged.
    let mut listed: Vec<_> = model.iter().filter(|m| !m.sacked && (!m.lost || m.copy)).collect();
    listed.sort_by_key(|m| m.sent);
    let mut at = board.oldest();
    for m in listed {
        let no = at.expect(label);
        assert_eq!(board.get(no).start, m.start, "{label}");
        at = board.later(no);
    }
    assert_eq!(at, None, "{label}");
    let highest = model.iter().rev().find(|m| m.sacked).map(|m| m.start + u64::from(m.len));
    assert_eq!(board.sacked_end(), highest, "{label}");
}

#[test]
fn the_board_agrees_with_a_model_of_it() {
    for seed in 0..200 {
        let mut rng = Rng::new(seed);
        let (mut board, mut model) = (Board::new(), Vec::<Model>::new());
        let (mut next, mut clock) = (0, 0);
        for step in 0..200 {
            clock += 1;
            let label = format!("seed {seed}, step {step}");
            let some = |rng: &mut Rng, len: usize| rng.below(len.max(1) as u64) as usize;
            match rng.below(8) {
                0..3 => {
                    let len = rng.range(1, 1000) as u32;
                    board.push(next, len, 0, clock, clock);
                    let (sacked, lost, copy) = (false, false, false);
                    model.push(Model { start: next, len, sacked, lost, copy, sent: clock });
                    next += u64::from(len);
                }
                3 => {
                    let upto = some(&mut rng, model.len() / 2 + 1);
                    let ack = model.get(upto).map_or(0, |m| m.start);
                    while board.pop(ack).is_some() {}
                    model.drain(..upto.min(model.len()));
                }
                4 if !model.is_empty() => {
                    let from = some(&mut rng, model.len());
                    let to = (from + some(&mut rng, 6)).min(model.len() - 1);
                    let mut newly = 0;
                    let end = model[to].start + u64::from(model[to].len);
                    board.sack(model[from].start, end, |_| newly += 1);
                    for m in &mut model[from..=to] {
                        newly -= i32::from(!m.sacked);
                        (m.sacked, m.lost, m.copy) = (true, false, false);
                    }
                    assert_eq!(newly, 0, "{label}");
                }
                5 if !model.is_empty() => {
                    let i = some(&mut rng, model.len());
                    if !model[i].sacked {
                        board.lose(board.first() + i as u32);
                        (model[i].lost, model[i].copy) = (true, false);
                    }
                }
                6 => {
                    if let Some(no) = board.resend_next() {
                        board.resent(no, clock, clock);
                        let m = &mut model[(no - board.first()) as usize];
                        (m.copy, m.sent) = (true, clock);
                    }
                }
                7 if rng.chance(0.1) => {
                    board.unlose();
                    // Lost segments without a retransmission are appended to the list again.
                    for m in model.iter_mut().filter(|m| m.lost) {
                        if !m.copy {
                            clock += 1;
                            m.sent = clock;
                        }
                        m.lost = false;
                    }
                }
                _ => {}
            }
            compare(&mut board, &model, &label);
        }
    }
}

#[test]
fn three_later_arrivals_prove_a_loss() {
    let mut board = Board::new();
    (0..10).for_each(|i| board.push(i * 100, 100, 0, i, i));
    board.sack(300, 400, |_| {});
    board.sack(600, 700, |_| {});
    assert!(!board.lose_by_count(3));
    board.sack(800, 900, |_| {});
    assert!(board.lose_by_count(3));
    // Everything below the third highest, 300, that did not arrive is lost.
    let lost: Vec<u32> = (0..10).filter(|no| board.get(*no).is(LOST)).collect();
    assert_eq!((lost, board.pipe()), (vec![0, 1, 2], 4));
    board.resent(0, 20, 20);
    assert!(board.get(0).is(RETRANS) && !board.get(0).is(SACKED));
    assert!(!board.lose_by_count(3), "each is judged once");
    assert_eq!(board.pipe(), 5);
}
