//! Tests of the ring of a capture: order, room, ends that vanish, words that make no sense.

use super::*;
use srd_core::Rng;

/// A file of one test, which is not that of a device.
fn place(name: &str) -> PathBuf {
    Path::new(FOLDER).join(format!("{PREFIX}{}-test-{name}-{}", user(), std::process::id()))
}

const RING: usize = *RING_BYTES.start();
const NOW: u64 = 9_000_000_000;

fn both(name: &str, snap: u32) -> (CaptureRing, CaptureFeed) {
    let ring = CaptureRing::make_at(&place(name), RING, snap, true).unwrap();
    ring.beat(NOW);
    let feed = CaptureFeed::find_at(&place(name), NOW).unwrap();
    (ring, feed)
}

fn packet(number: u64, bytes: &[u8]) -> MirroredPacket<'_> {
    let v4 = number.is_multiple_of(2);
    let remote = if v4 { "10.0.0.2:18703" } else { "[fd00::2]:18703" };
    MirroredPacket {
        unix_ns: number,
        sent: number.is_multiple_of(3),
        ecn: (number % 4) as u8,
        local_port: 40_000 + (number % 64) as u16,
        remote: remote.parse().unwrap(),
        len: bytes.len() as u32,
        bytes,
    }
}

/// Packets of all lengths go round the ring many times; what is written is read, in order, and what
/// finds no room is counted.
#[test]
fn what_is_written_is_read_and_what_has_no_room_is_counted() {
    let (mut ring, mut feed) = both("order", u32::MAX);
    assert!(ring.is_attached() && feed.wants_secrets());
    let data: Vec<u8> = (0..70_000_u32).map(|i| (i * 7 + i / 256) as u8).collect();
    let (mut rng, mut expected, mut dropped) = (Rng::from_seed(5), Vec::new(), 0);
    for number in 0..20_000_u64 {
        let len = rng.below(if number % 50 == 0 { 65_000 } else { 300 }) as usize;
        let bytes = &data[..len];
        let before = ring.dropped();
        feed.packet(&packet(number, bytes));
        if ring.dropped() == before {
            expected.push((number, bytes));
        } else {
            dropped += 1;
        }
        if rng.below(900) == 0 {
            let mut got = expected.drain(..);
            assert!(ring.read(|record| {
                let (number, bytes) = got.next().unwrap();
                assert_eq!(record, Mirrored::Packet(packet(number, bytes)));
            }));
            assert!(got.next().is_none());
        }
    }
    assert!(dropped > 10 && ring.dropped() == dropped, "{dropped}");
    feed.secret("SRD1 a line");
    ring.read(|_| {});
    feed.secret("SRD1 a line");
    let mut lines = 0;
    ring.read(|record| lines += u64::from(record == Mirrored::Secret("SRD1 a line")));
    assert_eq!((lines, ring.damaged()), (1, 0));
    assert!(!ring.read(|_| panic!("it is empty")));
}

#[test]
fn of_each_packet_as_many_bytes_as_wanted_are_kept() {
    let (mut ring, mut feed) = both("snap", 50);
    let bytes = [7; 400];
    feed.packet(&packet(4, &bytes));
    feed.packet(&packet(5, &bytes[..20]));
    let mut lens = Vec::new();
    ring.read(|record| {
        let Mirrored::Packet(packet) = record else { panic!("{record:?}") };
        lens.push((packet.len, packet.bytes.len()));
    });
    assert_eq!(lens, [(400, 50), (20, 20)]);
}

/// One writer per ring; a reader that ends or falls silent ends the writer; a file of a killed
/// reader gives way to a new one, that of a living one does not.
#[test]
fn ends_notice_each_other() {
    let (ring, feed) = both("ends", 100);
    let path = place("ends");
    assert!(CaptureFeed::find_at(&path, NOW).is_none(), "it has a writer");
    assert!(feed.is_read(NOW + SILENCE_NS_MAX) && !feed.is_read(NOW + SILENCE_NS_MAX + 1));
    let second = CaptureRing::make_at(&path, RING, 100, false).unwrap_err();
    assert!(second.to_string().contains("another `srd capture`"), "{second}");
    drop(feed);
    assert!(!ring.is_attached());
    assert!(CaptureFeed::find_at(&path, NOW + SILENCE_NS_MAX + 1).is_none(), "nobody reads");
    let feed = CaptureFeed::find_at(&path, NOW).unwrap();
    drop(ring);
    assert!(!feed.is_read(NOW) && !path.exists());
    // As a killed one leaves it.
    fs::write(&path, b"anything").unwrap();
    let ring = CaptureRing::make_at(&path, RING, 100, false).unwrap();
    assert!(CaptureFeed::find_at(&path, NOW).is_none(), "it has no beat yet");
    drop(ring);
}

#[test]
fn what_is_no_ring_is_not_used() {
    let path = place("none");
    let no = |what: &str| assert!(CaptureFeed::find_at(&path, NOW).is_none(), "{what}");
    no("nothing is there");
    fs::write(&path, vec![0; 8 * HEAD_WORDS + RING]).unwrap();
    no("others may open it, and it has no magic number");
    fs::remove_file(&path).unwrap();
    let ring = CaptureRing::make_at(&path, RING, 100, false).unwrap();
    ring.beat(NOW);
    let mode = |mode| {
        let rights = std::os::unix::fs::PermissionsExt::from_mode(mode);
        fs::set_permissions(&path, rights).unwrap();
    };
    mode(0o644);
    no("others may read it");
    mode(0o600);
    OpenOptions::new().write(true).open(&path).unwrap().set_len(4096).unwrap();
    no("it is shorter than a ring");
    drop(ring);
}

/// Whatever words stand in the file, neither end leaves the ring or comes to a halt.
#[test]
fn arbitrary_words_harm_neither_end() {
    let (mut ring, mut feed) = both("words", u32::MAX);
    let mut rng = Rng::from_seed(11);
    for round in 0..3_000_u64 {
        let at = match rng.below(3) {
            0 => rng.below(HEAD_WORDS as u32) as usize,
            _ => HEAD_WORDS + rng.below((RING / 8) as u32) as usize,
        };
        let value = match rng.below(3) {
            0 => rng.next_u64(),
            1 => rng.below(1 << 20).into(),
            _ => u64::MAX - u64::from(rng.below(3)),
        };
        if at >= HEAD_WORDS || [READ_AT, WRITTEN_AT, DROPPED_AT].contains(&at) {
            ring.map.words()[at].store(value, Relaxed);
        }
        feed.packet(&packet(round, &[1; 1000]));
        let mut seen = 0;
        ring.read(|record| {
            seen += 1;
            if let Mirrored::Packet(packet) = record {
                assert!(packet.bytes.len() <= packet.len as usize);
            }
        });
        assert!(seen <= RING / (8 * RECORD_WORDS), "{seen}");
    }
    // Words that make sense again are read again.
    ring.map.words()[READ_AT].store(ring.at, Relaxed);
    feed.at = ring.at;
    feed.packet(&packet(2, b"again"));
    let mut last = None;
    ring.read(|record| last = Some(record == Mirrored::Packet(packet(2, b"again"))));
    assert_eq!(last, Some(true));
}
