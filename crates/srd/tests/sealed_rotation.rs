//! Keys that leave the key file while messages are sent without pause: the context is opened anew
//! with another key, and no message fails.

use crate::common::{MemWorld, Node, PATIENCE, QKEY};
use crate::sealed::{Folder, events, node, sealed};
use srd::{
    AddressHandle, AsyncEvent, CompletionOp, Device, MemoryRegion, RecvWr, SendWr, Status,
    seal::key_file_rotate,
};
use std::{
    fs,
    path::Path,
    thread,
    time::{Duration, Instant},
};

/// Messages that are outstanding at any time.
const DEPTH: usize = 16;
/// Receives that are posted at any time.
const RECVS: usize = 64;
/// Time between messages of a program that also computes.
const PAUSE: Duration = Duration::from_millis(100);
/// Bytes of a message: its number.
const BYTES: usize = 8;

/// Messages from `a` to `b` without a pause.
struct Stream<'a> {
    a: &'a Node,
    b: &'a Node,
    to_b: AddressHandle,
    received: MemoryRegion,
    /// How each message ended, by its number; `None` while it is outstanding.
    ends: Vec<Option<Status>>,
    /// How often each message arrived, by its number.
    arrivals: Vec<u32>,
    outstanding: usize,
}

impl<'a> Stream<'a> {
    fn new(a: &'a Node, b: &'a Node) -> Self {
        let (to_b, received) = (a.ah_to(b), b.memory(BYTES * RECVS));
        let (ends, arrivals) = (Vec::new(), Vec::new());
        let stream = Self { a, b, to_b, received, ends, arrivals, outstanding: 0 };
        (0..RECVS).for_each(|slot| stream.receive(slot));
        stream
    }

    fn receive(&self, slot: usize) {
        let sges = [self.received.sge(BYTES * slot, BYTES as u32)];
        self.b.qp.post_recv(&RecvWr { wr_id: slot as u64, sges: &sges }).unwrap();
    }

    fn send(&mut self) {
        let number = self.ends.len() as u64;
        let bytes = number.to_be_bytes();
        let wr = SendWr::send(number, &self.to_b, self.b.qp.qpn(), QKEY).inline(&bytes);
        self.a.qp.post_send(&wr).unwrap();
        self.ends.push(None);
        self.arrivals.push(0);
        self.outstanding += 1;
    }

    /// Takes what has completed on both sides. `more`: sends a message for each that has ended, at
    /// once, so that the sender is never without one: it would be idle.
    fn take(&mut self, more: bool) {
        while let Some(sent) = self.a.cq.poll_one().unwrap() {
            let end = &mut self.ends[sent.wr_id as usize];
            assert_eq!(end.replace(sent.status), None, "{} ends twice", sent.wr_id);
            self.outstanding -= 1;
            if more {
                self.send();
            }
        }
        while let Some(got) = self.b.cq.poll_one().unwrap() {
            assert_eq!((got.op, got.status), (CompletionOp::Recv, Status::Ok));
            let slot = got.wr_id as usize;
            let bytes = self.received.to_vec(BYTES * slot, BYTES).unwrap();
            let number = u64::from_be_bytes(bytes.try_into().unwrap());
            self.arrivals[number as usize] += 1;
            self.receive(slot);
        }
    }

    /// Sends without a pause until `done`.
    fn run_until(&mut self, mut done: impl FnMut(&Self) -> bool) {
        let end = Instant::now() + PATIENCE;
        while !done(self) {
            assert!(Instant::now() < end, "the stream goes on too long");
            while self.outstanding < DEPTH {
                self.send();
            }
            self.take(true);
        }
    }

    /// Waits for what is outstanding, and returns how many messages did not end well. Each message
    /// has ended once; who was told that it arrived was told the truth, and nothing arrived twice.
    fn finish(mut self) -> usize {
        let end = Instant::now() + PATIENCE;
        while self.outstanding > 0 {
            assert!(Instant::now() < end, "{} messages never end", self.outstanding);
            self.take(false);
        }
        self.take(false);
        for (number, (end, &arrivals)) in self.ends.iter().zip(&self.arrivals).enumerate() {
            match end.expect("all have ended") {
                Status::Ok => assert_eq!(arrivals, 1, "message {number}"),
                Status::RemoteAbort => assert!(arrivals <= 1, "message {number}"),
                other => panic!("message {number} ended with {other:?}"),
            }
        }
        self.ends.iter().filter(|end| **end != Some(Status::Ok)).count()
    }
}

fn handshakes(node: &Node) -> u64 {
    node.device.seal().unwrap().unwrap().counters.handshakes
}

fn removals(node: &Node) -> usize {
    let removed = |event: &AsyncEvent| matches!(event, AsyncEvent::KeyRemoved(_));
    events(&node.device).iter().filter(|event| removed(event)).count()
}

/// Puts a copy of a key file in the place of another, in one step.
fn replace(folder: &Folder, from: &Path, to: &Path) {
    let new = folder.0.join("new");
    fs::copy(from, &new).unwrap();
    fs::rename(&new, to).unwrap();
}

/// A stream from `a` to `b`, of whom one has the old key removed while it runs: it never pauses.
fn key_removed_during_a_stream(by_sender: bool) {
    let folder = Folder::new();
    let (at_a, at_b) = (folder.key("a"), folder.0.join("b"));
    fs::copy(&at_a, &at_b).unwrap();
    let world = MemWorld::new(1000);
    let (a, b) = (node(&world, 1, &at_a), node(&world, 2, &at_b));
    let mut stream = Stream::new(&a, &b);
    stream.run_until(|stream| stream.ends.len() > 1000);
    assert_eq!((handshakes(&a), handshakes(&b)), (1, 1));
    // The new key is known to both and first, and then only one side has the old one removed.
    key_file_rotate(&at_a).unwrap();
    key_file_rotate(&at_a).unwrap();
    replace(&folder, &at_a, &at_b);
    let remover = if by_sender { &at_a } else { &at_b };
    key_file_rotate(remover).unwrap();
    stream.run_until(|_| handshakes(&a) == 2 && handshakes(&b) == 2);
    let until = stream.ends.len() + 1000;
    stream.run_until(|stream| stream.ends.len() > until);
    let lost = stream.finish();
    let [by, other] = if by_sender { [&a, &b] } else { [&b, &a] };
    assert_eq!((removals(by), removals(other)), (0, 0), "nobody has to be told");
    assert_eq!(lost, 0, "no message failed");
    assert_eq!(a.device.seal().unwrap().unwrap().keys.len(), if by_sender { 1 } else { 2 });
}

#[test]
fn a_stream_outlives_the_removal_of_its_key_on_either_side() {
    thread::scope(|scope| {
        for by_sender in [true, false] {
            scope.spawn(move || key_removed_during_a_stream(by_sender));
        }
    });
}

/// A program that computes between its messages notices nothing: its context is renewed in a pause.
#[test]
fn a_pause_between_messages_is_enough_for_another_key() {
    let folder = Folder::new();
    let (key, new) = (folder.key("keys"), folder.key("new"));
    let world = MemWorld::new(1000);
    let open = |host| node(&world, host, &key);
    let (a, b) = (open(1), open(2));
    let mut stream = Stream::new(&a, &b);
    fs::rename(&new, &key).unwrap();
    let end = Instant::now() + PATIENCE;
    while handshakes(&a) < 2 || handshakes(&b) < 2 {
        assert!(Instant::now() < end, "the context keeps its key");
        stream.send();
        let pause = Instant::now() + PAUSE;
        while stream.outstanding > 0 || Instant::now() < pause {
            stream.take(false);
        }
    }
    stream.send();
    assert_eq!(stream.finish(), 0, "no message failed");
    assert_eq!((removals(&a), removals(&b)), (0, 0));
}

/// The first key changes while nobody has answered the Open, which the peer would refuse by now.
#[test]
fn a_handshake_without_an_answer_is_begun_anew_with_the_first_key() {
    let folder = Folder::new();
    let (at_a, at_b) = (folder.key("a"), folder.key("b"));
    for _ in 0..3 {
        key_file_rotate(&at_b).unwrap();
    }
    let world = MemWorld::new(1000);
    let open = |host, key: &Path| {
        let mut config = sealed(world.config(host), Some(key), None);
        config.tune = Some(Box::new(|engine| {
            engine.loss.unreachable_after = srd::Span::from_secs(20);
        }));
        Node::new(Device::open(config).unwrap())
    };
    let (a, b) = (open(1, &at_a), open(2, &at_b));
    let to_b = a.ah_to(&b);
    b.qp.post_recv(&RecvWr { wr_id: 1, sges: &[] }).unwrap();
    let wr = SendWr::send(2, &to_b, b.qp.qpn(), QKEY).inline(&[]);
    a.qp.post_send(&wr).unwrap();
    // The peer looks at nothing until the key file has changed.
    let keys = || a.device.seal().unwrap().unwrap().keys;
    let opens = || a.device.counters().unwrap().engine.opens_sent;
    let end = Instant::now() + PATIENCE;
    let wait = |done: &dyn Fn() -> bool| {
        while !done() {
            assert!(Instant::now() < end, "{:?}, {} Opens", keys(), opens());
            assert!(a.cq.poll_one().unwrap().is_none(), "the request waits");
        }
    };
    wait(&|| opens() > 0);
    assert_eq!(keys(), [1]);
    replace(&folder, &at_b, &at_a);
    wait(&|| keys() == [2]);
    let sent = a.next(&b);
    assert_eq!((sent.wr_id, sent.status), (2, Status::Ok));
    assert_eq!((handshakes(&a), handshakes(&b)), (1, 1));
}
