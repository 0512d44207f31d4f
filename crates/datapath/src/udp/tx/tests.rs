use super::*;
use std::collections::VecDeque;

/// A kernel that follows a script: each call consumes one line; with no line left, it accepts
/// everything.
#[derive(Default)]
struct Script {
    lines: VecDeque<Line>,
    /// Datagrams taken, in order: path and bytes.
    taken: Vec<(u8, Vec<u8>)>,
    /// Datagrams per message taken.
    messages: Vec<usize>,
    /// Refuse all segmented messages with this error.
    segments_errno: Option<i32>,
    /// Longest datagram.
    payload_max: Option<usize>,
    mtu_asked: std::cell::Cell<usize>,
    /// Whether single datagrams are accepted without a message; else they follow the script.
    lone: bool,
}

enum Line {
    Take(usize),
    Fail(i32),
}
use Line::{Fail, Take};

impl Kernel for Script {
    fn send(&mut self, path: u8, ring: &SendRing, from: usize) -> Result<usize, i32> {
        let all = &ring.messages()[from..];
        let limit = match self.lines.pop_front() {
            Some(Fail(errno)) => return Err(errno),
            Some(Take(count)) => count,
            None => usize::MAX,
        };
        let mut taken = 0;
        for (i, message) in all.iter().enumerate().take(limit) {
            let error = match (self.segments_errno, self.payload_max) {
                (Some(errno), _) if message.packets > 1 => Some(errno),
                (_, Some(max)) if message.segment_len > max => Some(libc::EMSGSIZE),
                _ => None,
            };
            match error {
                Some(errno) if taken == 0 => return Err(errno),
                Some(_) => break,
                None => {}
            }
            let mut bytes = Vec::new();
            ring.message_copy(from + i, &mut bytes);
            assert_eq!(bytes.len(), message.bytes);
            assert_eq!(bytes.len().div_ceil(message.segment_len), message.packets);
            let datagrams = bytes.chunks(message.segment_len);
            self.taken.extend(datagrams.map(|bytes| (path, bytes.to_vec())));
            self.messages.push(message.packets);
            taken += 1;
        }
        Ok(taken)
    }

    fn send_lone(&mut self, path: u8, _: SocketAddr, datagram: Part) -> bool {
        if self.lone {
            self.taken.push((path, datagram.look(<[u8]>::to_vec)));
        }
        self.lone
    }

    fn link_mtu(&self) -> Option<u32> {
        self.mtu_asked.set(self.mtu_asked.get() + 1);
        self.payload_max.map(|max| max as u32 + 28)
    }
}

struct Bench {
    queue: TxQueue,
    kernel: Script,
    counters: Counters,
}

impl Bench {
    fn new(lines: impl IntoIterator<Item = Line>) -> Self {
        let limits = TxLimits { batch_max: 64, segments_max: 8, payload_max: 9000, v4: true };
        let kernel = Script { lines: lines.into_iter().collect(), ..Script::default() };
        Self { queue: TxQueue::new(limits, 16), kernel, counters: Counters::default() }
    }

    /// Pushes packets number `numbers` of 100 bytes, four in a row on each path.
    fn push(&mut self, numbers: core::ops::Range<u8>) {
        for number in numbers {
            let headers = [number; 100];
            let (dst, path) = ("10.0.0.1:9".parse().unwrap(), number / 4 % 16);
            let packet = TxPacket {
                dst,
                path,
                headers: &headers,
                payload: &[],
                padded_len: 0,
                finish: None,
            };
            self.queue.push(&packet).unwrap();
        }
    }

    fn flush(&mut self) -> TxReport {
        self.queue.flush(&mut self.kernel, &mut self.counters)
    }

    /// Numbers of the packets that the kernel took, each checked for its bytes and path.
    fn numbers(&self) -> Vec<u8> {
        let number = |(path, bytes): &(u8, Vec<u8>)| {
            assert_eq!(*bytes, vec![bytes[0]; 100]);
            assert_eq!(*path, bytes[0] / 4 % 16);
            bytes[0]
        };
        self.kernel.taken.iter().map(number).collect()
    }
}

#[test]
fn a_lone_packet_needs_no_message_unless_it_is_refused() {
    let mut b = Bench::new([]);
    b.kernel.lone = true;
    b.push(4..5);
    assert_eq!(b.flush().sent, 1);
    assert_eq!((b.kernel.messages.len(), b.counters.tx_syscalls, b.counters.tx_packets), (0, 1, 1));
    b.push(5..7);
    assert_eq!(b.flush().sent, 2);
    assert_eq!(b.kernel.messages, [2]);
    b.kernel.lone = false;
    b.push(7..8);
    assert_eq!((b.flush().sent, b.kernel.messages.len()), (1, 2));
    assert_eq!(b.numbers(), [4, 5, 6, 7]);
    assert_eq!(b.queue.room(), 64);
}

#[test]
fn runs_of_a_path_become_one_message() {
    let mut b = Bench::new([]);
    b.push(0..40);
    let report = b.flush();
    assert_eq!((report.sent, report.backlog, b.counters.tx_syscalls), (40, 0, 10));
    assert_eq!(b.kernel.messages, [4; 10]);
    assert_eq!(b.numbers(), (0..40).collect::<Vec<_>>());
    assert_eq!(b.queue.room(), 64);
}

#[test]
fn a_full_socket_holds_back_its_path_only() {
    let mut b = Bench::new([Take(9), Fail(libc::EAGAIN), Take(9)]);
    b.push(0..12);
    let report = b.flush();
    assert_eq!((report.sent, report.backlog, report.dropped), (8, 4, 0));
    assert_eq!(b.queue.room(), 0);
    assert_eq!(b.queue.backlog().full_paths().collect::<Vec<_>>(), [1]);
    assert!(!b.queue.backlog().timed());
    assert_eq!(b.queue.push(&any_packet()), Err(TxPushError::Full));
    b.kernel.lines.extend([Fail(libc::EAGAIN)]);
    assert_eq!(b.flush().backlog, 4);
    let report = b.flush();
    assert_eq!((report.sent, report.backlog), (4, 0));
    assert_eq!(b.numbers(), [0, 1, 2, 3, 8, 9, 10, 11, 4, 5, 6, 7]);
    assert_eq!((b.counters.tx_would_block, b.counters.tx_backlogged), (2, 4));
    assert_eq!(b.queue.room(), 64);
}

fn any_packet() -> TxPacket<'static> {
    let dst = "10.0.0.1:9".parse().unwrap();
    TxPacket { dst, path: 0, headers: b"x", payload: &[], padded_len: 0, finish: None }
}

#[test]
fn lack_of_memory_is_waited_out_by_time() {
    let mut b = Bench::new([Fail(libc::ENOBUFS), Fail(libc::ENOMEM)]);
    b.push(0..8);
    assert_eq!(b.flush().backlog, 8);
    assert!(b.queue.backlog().timed());
    assert_eq!(b.queue.backlog().full_paths().count(), 0);
    assert_eq!(b.flush().sent, 8);
    assert_eq!((b.counters.tx_nobufs, b.numbers().len()), (2, 8));
}

#[test]
fn a_batch_that_the_kernel_takes_in_pieces_is_whole() {
    let mut b = Bench::new([Take(1), Fail(libc::EINTR), Take(1), Take(1)]);
    // Nine messages on one path: the size changes with each packet.
    for number in 0..9u8 {
        let headers = vec![number; 10 + usize::from(number) * 10];
        b.queue.push(&TxPacket { headers: &headers, ..any_packet() }).unwrap();
    }
    let report = b.flush();
    assert_eq!((report.sent, report.dropped), (9, 0));
    let sizes: Vec<_> = b.kernel.taken.iter().map(|t| t.1.len()).collect();
    assert_eq!(sizes, [10, 20, 30, 40, 50, 60, 70, 80, 90]);
    assert_eq!(b.counters.tx_syscalls, 5);
}

#[test]
fn a_device_that_cannot_segment_is_remembered() {
    let mut b = Bench::new([]);
    b.kernel.segments_errno = Some(libc::EIO);
    b.push(0..16);
    let report = b.flush();
    assert_eq!((report.sent, report.dropped, report.backlog), (16, 0, 0));
    assert_eq!(b.numbers().len(), 16);
    assert!(b.kernel.messages.iter().all(|&packets| packets == 1));
    let refused = b.counters.tx_gso_refused;
    assert_eq!(b.counters.tx_gso_batches, 0);
    b.push(0..16);
    b.flush();
    assert_eq!((b.counters.tx_gso_refused, b.numbers().len()), (refused, 32));
}

#[test]
fn an_invalid_segmented_send_is_judged_by_its_single_datagrams() {
    // Single datagrams get through: segmentation itself was refused.
    let mut b = Bench::new([]);
    b.kernel.segments_errno = Some(libc::EINVAL);
    b.push(0..8);
    assert_eq!(b.flush().sent, 8);
    b.push(0..8);
    b.flush();
    assert_eq!(b.numbers().len(), 16);
    assert!(b.counters.tx_gso_refused <= 2);
    // Single datagrams are too long as well: segmentation is not the cause.
    let mut b = Bench::new([]);
    (b.kernel.segments_errno, b.kernel.payload_max) = (Some(libc::EINVAL), Some(99));
    b.push(0..4);
    let report = b.flush();
    assert_eq!((report.sent, report.dropped), (0, 4));
    (b.kernel.segments_errno, b.kernel.payload_max) = (None, None);
    b.push(4..8);
    b.flush();
    assert_eq!(b.kernel.messages, [4], "still segmented");
}

#[test]
fn too_long_datagrams_are_reported_with_the_mtu() {
    let mut b = Bench::new([]);
    b.kernel.payload_max = Some(99);
    b.push(0..8);
    let report = b.flush();
    let dst = "10.0.0.1:9".parse().unwrap();
    assert_eq!(report.too_long, Some(TooLong { dst, len: 100, mtu: Some(127) }));
    assert_eq!((report.dropped, b.counters.tx_too_long, report.backlog), (8, 8, 0));
    assert!(b.kernel.mtu_asked.get() <= 2, "asked once for each message at most");
    let text = report.too_long.unwrap().to_string();
    assert!(text.contains("100 bytes") && text.contains("127") && text.contains("99"), "{text}");
}

#[test]
fn errors_are_counted_by_kind_and_end_nothing() {
    let errors = [
        libc::ECONNREFUSED,
        libc::EHOSTUNREACH,
        libc::ENETUNREACH,
        libc::EPERM,
        libc::EACCES,
        libc::EADDRNOTAVAIL,
    ];
    let mut b = Bench::new(errors.map(Fail));
    b.push(0..28);
    let report = b.flush();
    assert_eq!((report.sent, report.dropped, report.backlog), (4, 24, 0));
    let c = b.counters;
    assert_eq!((c.tx_refused, c.tx_unreachable, c.tx_forbidden, c.tx_other), (4, 8, 8, 4));
    assert_eq!(c.tx_other_errno, libc::EADDRNOTAVAIL);
    assert_eq!(b.numbers(), [24, 25, 26, 27]);
}

#[test]
fn discard_forgets_the_queue_and_keeps_the_backlog() {
    let mut b = Bench::new([Fail(libc::EAGAIN)]);
    b.push(0..4);
    b.flush();
    b.queue.discard();
    assert_eq!(b.flush().sent, 4);
    b.push(0..4);
    b.queue.discard();
    assert_eq!((b.flush().sent, b.numbers().len()), (0, 4));
}

/// Whatever the kernel does, each packet is taken once, dropped with a count, or still waiting.
#[test]
fn nothing_is_lost_or_repeated_silently() {
    let errors = [libc::EAGAIN, libc::ENOBUFS, libc::EINTR, libc::EPERM, libc::EINVAL, libc::EIO];
    for seed in 0..300u64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut random = move |n: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % n
        };
        let mut b = Bench::new([]);
        let (mut pushed, mut dropped) = (0, 0);
        for _ in 0..6 {
            b.kernel.lines.clear();
            for _ in 0..random(12) {
                let fail = random(2) == 0;
                let line = if fail { Fail(errors[random(6) as usize]) } else { Take(1) };
                b.kernel.lines.push_back(line);
            }
            if b.queue.room() > 0 {
                let count = random(40) as u8;
                b.push(0..count);
                pushed += usize::from(count);
            }
            let report = b.flush();
            dropped += report.dropped;
            assert_eq!(pushed, b.kernel.taken.len() + dropped + report.backlog, "seed {seed}");
        }
        b.kernel.lines.clear();
        dropped += b.flush().dropped;
        assert_eq!(pushed, b.numbers().len() + dropped, "seed {seed}");
        assert_eq!(b.counters.tx_packets, b.numbers().len() as u64);
    }
}
