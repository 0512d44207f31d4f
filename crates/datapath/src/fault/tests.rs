use super::*;
use crate::{
    mem::{MemDatapath, MemNet},
    send_batch,
};

const COUNT: usize = 2000;

fn addr(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// Two endpoints; the first has faults.
fn pair(seed: u64, tx: Rates, rx: Rates) -> (Fault<MemDatapath>, MemDatapath) {
    let net = MemNet::new();
    let a = net.endpoint(addr("10.0.0.1:1")).unwrap();
    (Fault::new(a, seed, tx, rx), net.endpoint(addr("10.0.0.2:1")).unwrap())
}

/// Sends numbered packets in batches of 10 over 4 paths, then releases the held ones.
fn send(d: &mut dyn Datapath, dst: &str, count: usize) {
    for start in (0..count).step_by(10) {
        send_batch(d, |tx| {
            for i in start..(start + 10).min(count) {
                let number = (i as u32).to_le_bytes();
                tx.push(addr(dst), (i % 4) as u8, &number, &[&[0xa5; 60]]).unwrap();
            }
        })
        .unwrap();
    }
    for _ in 0..300 {
        d.tx_flush().unwrap();
    }
}

fn receive(d: &mut dyn Datapath) -> Vec<(u32, Vec<u8>, bool)> {
    let mut all = Vec::new();
    for idle in 0..300 {
        d.rx(&mut |r| {
            let number = u32::from_le_bytes(r.bytes[..4].try_into().unwrap());
            all.push((number, r.bytes.to_vec(), r.ce));
        })
        .unwrap();
        if idle % 100 == 99 {
            d.wait(Some(Duration::ZERO)).unwrap();
        }
    }
    all
}

/// Packets that arrive, in order, when the sender has the faults.
fn through_tx(seed: u64, rates: Rates) -> (Vec<u32>, Done) {
    let (mut a, mut b) = pair(seed, rates, Rates::default());
    send(&mut a, "10.0.0.2:1", COUNT);
    (receive(&mut b).into_iter().map(|r| r.0).collect(), a.handle().tx_done())
}

/// Packets that arrive, in order, when the receiver has the faults.
fn through_rx(seed: u64, rates: Rates) -> (Vec<u32>, Done) {
    let (mut a, mut b) = pair(seed, Rates::default(), rates);
    send(&mut b, "10.0.0.1:1", COUNT);
    (receive(&mut a).into_iter().map(|r| r.0).collect(), a.handle().rx_done())
}

#[test]
fn without_faults_everything_passes_untouched() {
    for (got, done) in [through_tx(1, Rates::default()), through_rx(1, Rates::default())] {
        assert_eq!(got, (0..COUNT as u32).collect::<Vec<_>>());
        assert_eq!(done, Done { packets: COUNT as u64, ..Done::default() });
    }
}

#[test]
fn loss_takes_its_share_and_is_counted() {
    let rates = Rates { loss_ppm: 100_000, ..Rates::default() };
    for (got, done) in [through_tx(7, rates), through_rx(7, rates)] {
        assert_eq!(got.len() as u64, COUNT as u64 - done.lost);
        assert!((120..=280).contains(&done.lost), "10% of 2000: {}", done.lost);
        assert!(got.is_sorted());
    }
}

#[test]
fn duplicates_come_once_more_and_no_oftener() {
    let rates = Rates { duplicate_ppm: 200_000, reorder_packets_max: 20, ..Rates::default() };
    for (mut got, done) in [through_tx(3, rates), through_rx(3, rates)] {
        assert_eq!(got.len() as u64, COUNT as u64 + done.duplicated);
        assert!(done.duplicated > 0);
        got.sort_unstable();
        assert!(got.windows(3).all(|w| w[0] != w[2]), "three of one");
        got.dedup();
        assert_eq!(got, (0..COUNT as u32).collect::<Vec<_>>());
    }
}

#[test]
fn reordered_packets_all_come_within_their_distance() {
    let rates = Rates { reorder_ppm: 300_000, reorder_packets_max: 15, ..Rates::default() };
    for (got, done) in [through_tx(4, rates), through_rx(4, rates)] {
        assert!(!got.is_sorted() && done.held > 0);
        // Held ticks plus the batch in which the packet is released.
        let distance = got.iter().enumerate().map(|(at, &n)| (n as i64 - at as i64).abs()).max();
        assert!(distance.unwrap() <= 15 + 256, "{distance:?}");
        let mut all = got;
        all.sort_unstable();
        assert_eq!(all, (0..COUNT as u32).collect::<Vec<_>>());
    }
}

#[test]
fn a_delay_keeps_the_order_and_the_last_packet_comes_out() {
    let rates = Rates { delay_packets: 25, ..Rates::default() };
    for (got, done) in [through_tx(5, rates), through_rx(5, rates)] {
        assert_eq!(got, (0..COUNT as u32).collect::<Vec<_>>());
        assert_eq!(done.held, COUNT as u64);
    }
    let (mut a, mut b) = pair(5, rates, Rates::default());
    send_batch(&mut a, |tx| tx.push(addr("10.0.0.2:1"), 0, &[1, 2, 3, 4], &[])).unwrap().0.unwrap();
    assert!(receive(&mut b).is_empty(), "25 packets have not passed");
}

#[test]
fn corruption_flips_one_bit() {
    let (mut a, mut b) =
        pair(6, Rates { corrupt_ppm: 1_000_000, ..Rates::default() }, Rates::default());
    send(&mut a, "10.0.0.2:1", 100);
    let got = receive(&mut b);
    assert_eq!(got.len(), 100);
    for (i, (_, bytes, _)) in got.iter().enumerate() {
        let mut want = (i as u32).to_le_bytes().to_vec();
        want.extend_from_slice(&[0xa5; 60]);
        let flipped: u32 = bytes.iter().zip(&want).map(|(a, b)| (a ^ b).count_ones()).sum();
        assert_eq!((bytes.len(), flipped), (64, 1));
    }
}

#[test]
fn marks_are_set_on_receive() {
    let (mut a, mut b) = pair(6, Rates::default(), Rates { ce_ppm: 500_000, ..Rates::default() });
    send(&mut b, "10.0.0.1:1", 100);
    let marked = receive(&mut a).iter().filter(|r| r.2).count() as u64;
    assert!(marked > 0 && marked < 100);
    assert_eq!(marked, a.handle().rx_done().marked);
}

#[test]
fn paths_and_directions_are_switched_while_running() {
    let (mut a, mut b) = pair(8, Rates::default(), Rates::default());
    let handle = a.handle();
    handle.path_off(1, true);
    handle.path_off(3, true);
    send(&mut a, "10.0.0.2:1", 100);
    assert!(receive(&mut b).iter().all(|r| r.0 % 2 == 0));
    assert_eq!(handle.tx_done().black_holed, 50);
    handle.path_off(1, false);
    handle.path_off(3, false);
    handle.tx_off(true);
    send(&mut a, "10.0.0.2:1", 100);
    assert!(receive(&mut b).is_empty());
    handle.tx_off(false);
    handle.rx_off(true);
    send(&mut a, "10.0.0.2:1", 100);
    send(&mut b, "10.0.0.1:1", 100);
    assert_eq!((receive(&mut b).len(), receive(&mut a).len()), (100, 0));
    handle.rx_off(false);
    send(&mut b, "10.0.0.1:1", 100);
    assert_eq!(receive(&mut a).len(), 100);
}

#[test]
fn a_stalled_datapath_takes_nothing_until_released() {
    let (mut a, _b) = pair(9, Rates::default(), Rates::default());
    let dst = addr("10.0.0.2:1");
    a.handle().tx_stall(true);
    assert_eq!((a.tx_room(), a.tx_ready()), (0, false));
    let refused = send_batch(&mut a, |tx| tx.push(dst, 0, b"1", &[])).unwrap().0;
    assert_eq!(refused, Err(TxPushError::Full));
    a.handle().tx_stall(false);
    assert!(a.tx_ready());
    send_batch(&mut a, |tx| tx.push(dst, 0, b"1", &[])).unwrap().0.unwrap();
}

#[test]
fn a_seed_decides_everything() {
    let rates = Rates {
        loss_ppm: 50_000,
        duplicate_ppm: 50_000,
        reorder_ppm: 50_000,
        reorder_packets_max: 9,
        delay_packets: 2,
        corrupt_ppm: 0,
        ce_ppm: 0,
    };
    assert_eq!(through_tx(1, rates), through_tx(1, rates));
    assert_eq!(through_rx(1, rates), through_rx(1, rates));
    assert_ne!(through_tx(1, rates).0, through_tx(2, rates).0);
}

#[test]
fn as_many_packets_are_taken_as_room_was_promised() {
    let rates = Rates { duplicate_ppm: 1_000_000, corrupt_ppm: 500_000, ..Rates::default() };
    let (mut a, mut b) = pair(1, rates, Rates::default());
    let room = a.tx_room();
    let (_, report) = send_batch(&mut a, |tx| {
        for _ in 0..room {
            tx.push(addr("10.0.0.2:1"), 0, &[0; 8], &[]).unwrap();
        }
    })
    .unwrap();
    assert_eq!(report.dropped, 0);
    for _ in 0..10 {
        a.tx_flush().unwrap();
    }
    assert_eq!(receive(&mut b).len(), 2 * room);
}
