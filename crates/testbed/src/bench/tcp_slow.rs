//! A TCP receiver that reads only as fast as a slow host takes data; it also measures how long
//! bytes wait in its sockets, and exchanges small messages beside them.

use super::{
    block::now_ns,
    contender::SlowHost,
    drain::Drain,
    pings::{PING_BYTES, Pings},
    protocol::{Run, Watched},
    tcp_side::{SLOW, TcpKind, TcpSide, connection},
    times::Timed,
};
use crate::{
    error::{NetError, Result},
    fabric::Fabric,
};
use rustix::{
    event::epoll::{self, EventData, EventFlags},
    fd::{AsFd, OwnedFd},
    io::{Errno, ioctl_fionread},
    net::{RecvFlags, SendFlags, recv, send},
};
use std::collections::VecDeque;

/// Interval at which the number of waiting bytes is read, in ns: the resolution of waiting times.
const LOOK_NS: u64 = 1_000_000;

/// Times at which bytes arrived at a connection.
#[derive(Debug, Default)]
struct Arrivals {
    /// Bytes read so far.
    read: u64,
    /// For bytes not yet read: time in ns, and total number of bytes that had arrived by then.
    log: VecDeque<(u64, u64)>,
}

impl Arrivals {
    /// Records that `waiting` bytes wait now.
    fn look(&mut self, now_ns: u64, waiting: u64) {
        let arrived = self.read + waiting;
        if waiting > 0 && self.log.back().is_none_or(|(_, before)| arrived > *before) {
            self.log.push_back((now_ns, arrived));
        }
    }

    /// Records that `bytes` were read; returns how long the last of them had waited, in ns.
    fn read(&mut self, now_ns: u64, bytes: usize) -> u64 {
        self.read += bytes as u64;
        while self.log.front().is_some_and(|(_, arrived)| *arrived < self.read) {
            self.log.pop_front();
        }
        self.log.front().map_or(0, |(at_ns, _)| now_ns - at_ns)
    }
}

/// One end of the connection for small messages.
struct End {
    fd: OwnedFd,
    message: [u8; PING_BYTES],
    filled: usize,
}

impl End {
    fn new(fd: OwnedFd) -> Self {
        Self { fd, message: [0; PING_BYTES], filled: 0 }
    }

    /// Reads the available part of a message. Returns the number of bytes, and the message if
    /// complete.
    fn read(&mut self) -> Result<(usize, Option<[u8; PING_BYTES]>)> {
        match recv(&self.fd, &mut self.message[self.filled..], RecvFlags::DONTWAIT) {
            Ok((_, 0)) => Err(NetError::new("a TCP connection was closed")),
            Ok((_, n)) => {
                self.filled = (self.filled + n) % PING_BYTES;
                Ok((n, (self.filled == 0).then_some(self.message)))
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok((0, None)),
            Err(e) => Err(NetError::system("a TCP connection broke", e)),
        }
    }

    /// Sends a message. Only one is in flight at a time, so the socket always has room.
    fn write(&self, message: &[u8]) -> Result {
        match send(&self.fd, message, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(n) if n == message.len() => Ok(()),
            Ok(_) => Err(NetError::new("a TCP connection took a part of 8 bytes")),
            Err(e) => Err(NetError::system("a TCP connection broke", e)),
        }
    }
}

/// State of the slow receiver; see the module.
pub(super) struct SlowReader {
    drain: Drain,
    /// An epoll descriptor of the receiving sockets: readable while one of them is.
    readable: OwnedFd,
    /// Whether the side's wait ends when `readable` is.
    armed: bool,
    /// Index of the connection to read next; the last one carries the small messages.
    next: usize,
    arrivals: Vec<Arrivals>,
    look_ns: u64,
    asks: End,
    answers: End,
    pings: Pings,
    waits: Timed,
}

impl TcpSide {
    /// Makes the receivers read as one slow host.
    ///
    /// # Errors
    /// The connection for small messages cannot be opened.
    pub(super) fn slow_down(&mut self, fabric: &Fabric, kind: TcpKind, slow: SlowHost) -> Result {
        let flows = self.receiving.len();
        let (asks, answers) = connection(fabric, kind, &slow.ping, flows)?;
        let readable = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for r in &self.receiving {
            epoll::delete(&self.epoll, &r.fd)?;
            epoll::add(&readable, &r.fd, EventData::new_u64(0), EventFlags::IN)?;
        }
        epoll::add(&readable, &answers, EventData::new_u64(0), EventFlags::IN)?;
        epoll::add(&self.epoll, &asks, EventData::new_u64(SLOW), EventFlags::IN)?;
        epoll::add(&self.epoll, &readable, EventData::new_u64(SLOW), EventFlags::empty())?;
        self.slow = Some(SlowReader {
            drain: Drain::new(slow.bits_per_sec),
            readable,
            armed: false,
            next: 0,
            arrivals: (0..flows).map(|_| Arrivals::default()).collect(),
            look_ns: 0,
            asks: End::new(asks),
            answers: End::new(answers),
            pings: Pings::default(),
            waits: Timed::default(),
        });
        Ok(())
    }

    /// Starts counting times again, for times measured from `from_ns` until before `until_ns`.
    pub(super) fn watch(&mut self, from_ns: u64, until_ns: u64) {
        if let Some(slow) = &mut self.slow {
            slow.waits.begin(from_ns, until_ns);
            slow.pings.times.begin(from_ns, until_ns);
        }
    }

    /// The times counted since the last [`Self::watch`].
    pub(super) fn times(&self) -> Watched {
        self.slow.as_ref().map_or_else(Watched::default, |s| Watched {
            waits: s.waits.times.clone(),
            round_trips: s.pings.times.times.clone(),
        })
    }

    /// Reads as much as the slow host may take now, one block of each connection in turn. Returns
    /// the time at which it must be called again, in ns.
    pub(super) fn read_slowly(&mut self, run: &Run) -> Result<u64> {
        let Some(mut slow) = self.slow.take() else { return Ok(u64::MAX) };
        let next = self.read_turn(&mut slow, run);
        self.slow = Some(slow);
        next
    }

    fn read_turn(&mut self, slow: &mut SlowReader, run: &Run) -> Result<u64> {
        let now = now_ns();
        if now >= slow.look_ns {
            slow.look_ns = now + LOOK_NS;
            for (r, arrivals) in self.receiving.iter().zip(&mut slow.arrivals) {
                arrivals.look(now, ioctl_fionread(&r.fd)?);
            }
        }
        let next_ping = slow.ping(run)?;
        let (count, mut empty) = (self.receiving.len() + 1, 0);
        while empty < count && slow.drain.free_at_ns() <= now_ns() {
            let index = slow.next;
            slow.next = (index + 1) % count;
            let bytes = if index + 1 == count {
                slow.answer()?
            } else {
                let bytes = self.receive_some(index, run)?;
                if bytes > 0 {
                    let now = now_ns();
                    let waited = slow.arrivals[index].read(now, bytes);
                    slow.waits.note(now, waited);
                }
                bytes
            };
            slow.drain.take(now_ns(), bytes);
            empty = if bytes == 0 { empty + 1 } else { 0 };
        }
        let arm = empty == count;
        if arm != slow.armed {
            let events = if arm { EventFlags::IN } else { EventFlags::empty() };
            let data = EventData::new_u64(SLOW);
            epoll::modify(&self.epoll, slow.readable.as_fd(), data, events)?;
            slow.armed = arm;
        }
        Ok(next_ping.min(if arm { u64::MAX } else { slow.drain.free_at_ns() }))
    }
}

impl SlowReader {
    /// Sends the small message if it is due, and handles an answer. Returns when the next one is
    /// due, in ns.
    fn ping(&mut self, run: &Run) -> Result<u64> {
        if let (_, Some(message)) = self.asks.read()? {
            self.pings.answered(now_ns(), message);
        }
        let now = now_ns();
        if self.pings.due_ns(run).is_some_and(|at| at <= now) {
            let message = self.pings.ask(now);
            self.asks.write(&message)?;
        }
        Ok(self.pings.due_ns(run).unwrap_or(u64::MAX))
    }

    /// Returns a small message to its sender. Returns the number of bytes read.
    fn answer(&mut self) -> Result<usize> {
        let (bytes, message) = self.answers.read()?;
        if let Some(message) = message {
            self.answers.write(&message)?;
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_waited_since_they_were_seen() {
        let mut a = Arrivals::default();
        assert_eq!(a.read(5, 10), 0, "never seen waiting");
        a.look(10, 0);
        a.look(20, 100);
        a.look(30, 100);
        a.look(40, 150);
        assert_eq!(a.read(50, 60), 30);
        assert_eq!(a.read(60, 40), 40, "the last byte seen at 20");
        assert_eq!(a.read(70, 1), 30, "of those seen at 40");
        a.look(80, 60);
        assert_eq!(a.read(90, 50), 10, "one of them was not there at 40");
        assert_eq!(a.read(95, 30), 0, "more than was ever seen");
        assert!(a.log.is_empty());
    }
}
