use super::*;
use crate::rng::Rng;

fn send(b: &mut Scoreboard, path: u8, at: u64) -> Psn {
    let p = b.append(Entry::new(Kind::Send, Work::NONE, 0, 100));
    b.mark_sent(p, path, TxNum(at), Time(at), 128);
    p
}

#[test]
fn lists_follow_a_packet_through_its_life() {
    let mut b = Scoreboard::new(Psn(u32::MAX - 1));
    let (a, c, d) = (send(&mut b, 0, 10), send(&mut b, 1, 20), send(&mut b, 0, 30));
    assert_eq!((a, c, d), (Psn(u32::MAX - 1), Psn(u32::MAX), Psn(0)));
    assert_eq!(b.oldest(), Some(a));
    b.mark_lost(a);
    assert_eq!((b.oldest(), b.lost_front(), b.in_flight()), (Some(c), Some(a), 2));
    assert!(b.mark_acked(d).is_some());
    assert!(b.mark_acked(d).is_none());
    b.advance();
    assert_eq!(b.una(), a);
    assert_eq!(b.lost_pop(), Some(a));
    b.mark_sent(a, 2, TxNum(40), Time(40), 128);
    assert_eq!(b.get(a).again, 1);
    b.mark_acked(a);
    b.mark_acked(c);
    b.advance();
    assert!(b.is_empty());
    // It was sent twice, so only its echo tells which transmission arrived.
    assert_eq!(b.newest_acked(), Time(30));
}

/// Random operations against a plain model: list orders and counts always agree, across growth and
/// wrap.
#[test]
fn agrees_with_a_model() {
    for seed in 0..20 {
        let mut rng = Rng::from_seed(seed);
        let mut b = Scoreboard::new(Psn(u32::MAX - 20));
        let mut flight: Vec<Psn> = Vec::new();
        let mut lost: Vec<Psn> = Vec::new();
        let mut arrived: Vec<Psn> = Vec::new();
        for t in 0..3000u64 {
            match rng.below(13) {
                0..=4 if b.span() < 1000 => {
                    let path = rng.below(4) as u8;
                    flight.push(send(&mut b, path, t));
                }
                5 if !flight.is_empty() => {
                    let k = rng.below(flight.len() as u32) as usize;
                    let p = flight.remove(k);
                    b.mark_lost(p);
                    lost.push(p);
                }
                6 if !lost.is_empty() => {
                    let p = b.lost_pop().unwrap();
                    assert_eq!(p, lost.remove(0), "seed {seed}");
                    let path = rng.below(4) as u8;
                    b.mark_sent(p, path, TxNum(t), Time(t), 1);
                    flight.push(p);
                }
                7 if !lost.is_empty() => {
                    let k = rng.below(lost.len() as u32) as usize;
                    assert!(b.mark_acked(lost.remove(k)).is_some());
                }
                8 if !lost.is_empty() => {
                    let k = rng.below(lost.len() as u32) as usize;
                    let p = lost.remove(k);
                    assert_eq!(b.mark_arrived(p).map(|e| e.state), Some(SentState::Lost));
                    arrived.push(p);
                }
                9 if !flight.is_empty() => {
                    let k = rng.below(flight.len() as u32) as usize;
                    let p = flight.remove(k);
                    assert_eq!(b.mark_arrived(p).map(|e| e.state), Some(SentState::InFlight));
                    assert!(b.mark_arrived(p).is_none());
                    arrived.push(p);
                }
                10 if !arrived.is_empty() => {
                    let k = rng.below(arrived.len() as u32) as usize;
                    let p = arrived.remove(k);
                    assert_eq!(b.mark_acked(p).map(|e| e.state), Some(SentState::Arrived));
                    assert!(b.mark_acked(p).is_none() && b.mark_arrived(p).is_none());
                }
                11 if rng.below(50) == 0 => {
                    arrived.sort_by_key(|&p| p.diff(b.una()));
                    assert_eq!(b.arrived_lose() as usize, arrived.len());
                    lost.append(&mut arrived);
                }
                _ if !flight.is_empty() => {
                    let k = rng.below(flight.len() as u32) as usize;
                    assert!(b.mark_acked(flight.remove(k)).is_some());
                }
                _ => {}
            }
            b.advance();
            assert_eq!(b.in_flight() as usize, flight.len());
            assert_eq!(b.lost_len() as usize, lost.len());
            assert_eq!(b.arrived_len() as usize, arrived.len());
            // Over the whole window every PSN has the state of the model, and the first is not
            // resolved.
            let open = b.psns().filter(|&p| !b.is_acked(p)).count();
            assert_eq!(open, flight.len() + lost.len() + arrived.len(), "seed {seed}");
            assert!(b.is_empty() || !b.is_acked(b.una()));
            assert!(arrived.iter().all(|&p| b.get(p).state == SentState::Arrived));
            assert_eq!(b.iter_in_flight().collect::<Vec<_>>(), flight, "seed {seed} step {t}");
        }
    }
}

/// The edge of arrived PSNs follows the peer's reports, and falls back when the peer is no longer
/// believed.
#[test]
fn what_has_arrived_is_passed_over_while_it_waits() {
    let mut b = Scoreboard::new(Psn(u32::MAX - 1));
    let psns: Vec<Psn> = (0..6).map(|t| send(&mut b, 0, t)).collect();
    for &p in &psns[1..4] {
        b.mark_arrived(p);
    }
    assert_eq!(b.arrived_to(), psns[0]);
    b.mark_acked(psns[0]);
    b.advance();
    b.note_arrived_to(psns[4]);
    assert_eq!((b.una(), b.arrived_to()), (psns[1], psns[4]));
    b.note_arrived_to(psns[2]);
    assert_eq!(b.arrived_to(), psns[4]);
    b.mark_acked(psns[1]);
    b.advance();
    assert_eq!((b.una(), b.arrived_len()), (psns[2], 2));
    assert_eq!((b.arrived_lose(), b.lost_front()), (2, Some(psns[2])));
    assert_eq!(b.arrived_to(), psns[2]);
    b.mark_arrived(psns[3]);
    assert_eq!(b.arrived_to(), psns[2], "what was taken back is not passed over");
    b.drain();
    assert_eq!((b.arrived_len(), b.is_empty()), (0, true));
}
