//! The sending end of a Multipath TCP connection (RFC 8684): its subflows, and which data each of
//! them carries.

use crate::tcp::config::{Algorithm, Scheduler};
use crate::tcp::{Message, Sender, TcpConfig, TcpSegment};
use srd_fabric::{HostIo, Ps, SEC};
use std::collections::VecDeque;

/// Bytes for which the choice of a subflow holds while it has room, the kernel's. Small messages
/// stay on few subflows, whose losses later segments show.
const BURST_BYTES: u32 = 65_428;

/// A range of the connection's stream that a subflow carries in one segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Chunk {
    /// Data sequence number of the first byte.
    pub dsn: u64,
    pub len: u32,
    /// Messages of the connection that end at or before its last byte.
    pub messages: u32,
}

impl Chunk {
    pub const fn end(&self) -> u64 {
        self.dsn + self.len as u64
    }
}

/// The sending end of a connection over several subflows.
#[derive(Clone, Debug)]
pub(crate) struct Bundle {
    /// Number of the first subflow at its host; the others follow it.
    pub first: u32,
    pub count: u32,
    /// Bytes written, given to subflows, and acknowledged at the level of the connection.
    written: u64,
    next: u64,
    una: u64,
    messages: Vec<Message>,
    /// Stream end of each message.
    ends: Vec<u64>,
    messages_sent: usize,
    messages_acked: usize,
    /// Chunks of subflows that timed out, to be sent on others.
    again: VecDeque<Chunk>,
    /// Subflow that was chosen last, and the bytes for which this choice still holds.
    turn: u32,
    burst: u32,
    pub reinjected: u64,
}

impl Bundle {
    pub const fn new(first: u32, count: u32) -> Self {
        Self {
            first,
            count,
            written: 0,
            next: 0,
            una: 0,
            messages: Vec::new(),
            ends: Vec::new(),
            messages_sent: 0,
            messages_acked: 0,
            again: VecDeque::new(),
            turn: 0,
            burst: 0,
            reinjected: 0,
        }
    }

    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Accepts a message from the application.
    pub fn post(&mut self, message: Message) {
        self.written = self.written.saturating_add(message.bytes);
        self.messages.push(message);
        self.ends.push(self.written);
    }

    /// The receiver has everything before `data_ack`.
    pub fn acked(&mut self, now: Ps, data_ack: u64) {
        self.una = self.una.max(data_ack.min(self.next));
        while self.ends.get(self.messages_acked).is_some_and(|end| *end <= self.una) {
            self.messages[self.messages_acked].acked_ps = Some(now);
            self.messages_acked += 1;
        }
    }

    /// A subflow timed out: what it has in flight is sent on others.
    pub fn fallen(&mut self, subflow: &Sender) {
        let una = self.una;
        self.again.extend(subflow.unacked().filter(|c| c.end() > una));
    }

    /// Gives data to subflows while any of them has room.
    pub fn schedule(
        &mut self,
        now: Ps,
        senders: &mut [Option<Sender>],
        config: &TcpConfig,
        io: &mut HostIo<'_, TcpSegment>,
    ) {
        let subflows = &mut senders[self.first as usize..(self.first + self.count) as usize];
        loop {
            while self.again.front().is_some_and(|c| c.end() <= self.una) {
                self.again.pop_front();
            }
            if self.again.is_empty() && self.next == self.written {
                return;
            }
            let Some(at) = self.choose(now, subflows, config) else { return };
            if (self.turn, self.burst > 0) != (at, true) {
                (self.turn, self.burst) = (at, BURST_BYTES);
            }
            let Some(subflow) = &mut subflows[at as usize] else { return };
            let chunk = match self.again.pop_front() {
                Some(chunk) => {
                    self.reinjected += 1;
                    chunk
                }
                None => self.cut(config),
            };
            self.burst = self.burst.saturating_sub(chunk.len);
            subflow.give(now, chunk, config, io);
        }
    }

    /// The subflow that sends next: of those with room that with the least round trip, or the next
    /// in turn.
    fn choose(&self, now: Ps, subflows: &mut [Option<Sender>], config: &TcpConfig) -> Option<u32> {
        let last = subflows[self.turn as usize].as_mut().filter(|_| self.burst > 0);
        if last.is_some_and(|subflow| subflow.room(now, config)) {
            return Some(self.turn);
        }
        let order = (1..=self.count).map(|i| (self.turn + i) % self.count);
        let mut best: Option<(Ps, u32)> = None;
        for at in order {
            let Some(subflow) = &mut subflows[at as usize] else { continue };
            let rtt = subflow.srtt_ps();
            if best.is_some_and(|(least, _)| least <= rtt) || !subflow.room(now, config) {
                continue;
            }
            if config.scheduler == Scheduler::RoundRobin {
                return Some(at);
            }
            best = Some((rtt, at));
        }
        best.map(|(_, at)| at)
    }

    /// Cuts the next chunk off the stream.
    fn cut(&mut self, config: &TcpConfig) -> Chunk {
        let len = (self.written - self.next).min(config.mss.into());
        let dsn = self.next;
        self.next += len;
        while self.ends.get(self.messages_sent).is_some_and(|end| *end <= self.next) {
            self.messages_sent += 1;
        }
        Chunk { dsn, len: len as u32, messages: self.messages_sent as u32 }
    }

    /// Growth of the window of subflow `at`, in segments per acknowledged segment, in congestion
    /// avoidance; `None`: each subflow is on its own.
    pub fn growth(&self, senders: &[Option<Sender>], at: u32, config: &TcpConfig) -> Option<f64> {
        let subflows = &senders[self.first as usize..(self.first + self.count) as usize];
        let paths: Vec<Path> = subflows.iter().flatten().filter_map(Path::of).collect();
        let mine = Path::of(senders[at as usize].as_ref()?)?;
        match config.algorithm {
            Algorithm::Lia => Some(lia(&paths, &mine)),
            Algorithm::Olia => Some(olia(&paths, &mine)),
            _ => None,
        }
    }
}

/// What coupled congestion control knows of a subflow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Path {
    /// Congestion window in segments.
    pub window: f64,
    /// Smoothed round trip in seconds.
    pub rtt: f64,
    /// Segments acknowledged between the last two losses or since the last one, whichever is more.
    pub span: f64,
}

impl Path {
    fn of(subflow: &Sender) -> Option<Self> {
        let rtt = subflow.srtt_ps();
        (rtt > 0).then(|| Self {
            window: f64::from(subflow.cwnd()),
            rtt: rtt as f64 / SEC as f64,
            span: subflow.loss_span() as f64,
        })
    }
}

/// The rates of all paths together, squared.
fn rate_squared(paths: &[Path]) -> f64 {
    let rate: f64 = paths.iter().map(|p| p.window / p.rtt).sum();
    rate * rate
}

/// LIA (RFC 6356): all subflows together take what one TCP would on the best path, and no subflow
/// more than a TCP of its own.
pub(crate) fn lia(paths: &[Path], mine: &Path) -> f64 {
    let best = paths.iter().map(|p| p.window / (p.rtt * p.rtt)).fold(0.0, f64::max);
    (best / rate_squared(paths)).min(1.0 / mine.window)
}

/// OLIA (draft-khalili-mptcp-congestion-control): as LIA, but windows move from the paths with the
/// largest windows to the best paths, those with the most data between losses.
pub(crate) fn olia(paths: &[Path], mine: &Path) -> f64 {
    let quality = |p: &Path| p.span * p.span / p.rtt;
    let best = paths.iter().map(quality).fold(0.0, f64::max);
    let largest = paths.iter().map(|p| p.window).fold(0.0, f64::max);
    let collected = |p: &Path| quality(p) >= best && p.window < largest;
    let count = |is: &dyn Fn(&Path) -> bool| paths.iter().filter(|p| is(p)).count() as f64;
    let (n, better) = (paths.len() as f64, count(&collected));
    let largest_count = count(&|p| p.window >= largest);
    let alpha = if better == 0.0 {
        0.0
    } else if collected(mine) {
        1.0 / (n * better)
    } else if mine.window >= largest {
        -1.0 / (n * largest_count)
    } else {
        0.0
    };
    mine.window / (mine.rtt * mine.rtt) / rate_squared(paths) + alpha / mine.window
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(window: f64, rtt: f64, span: f64) -> Path {
        Path { window, rtt, span }
    }

    #[test]
    fn equal_paths_share_the_growth_of_one_tcp() {
        for n in [1, 2, 8] {
            let paths = vec![path(20.0, 0.01, 500.0); n];
            // All windows together grow by one segment per round trip in which all are
            // acknowledged, times 1 / n: each acknowledges 20 segments.
            let rounds = n as f64 * 20.0 * lia(&paths, &paths[0]);
            assert!((rounds - 1.0 / n as f64).abs() < 1e-9, "{n}: {rounds}");
            assert!((olia(&paths, &paths[0]) - lia(&paths, &paths[0])).abs() < 1e-12);
        }
    }

    #[test]
    fn no_subflow_grows_faster_than_tcp() {
        // RFC 6356's cap: the small window of a short path would grow faster otherwise.
        let paths = [path(2.0, 0.001, 10.0), path(2.0, 0.1, 10.0)];
        assert!(lia(&paths, &paths[0]) <= 0.5);
        let one = [path(7.0, 0.02, 10.0)];
        assert!((lia(&one, &one[0]) - 1.0 / 7.0).abs() < 1e-12);
    }

    #[test]
    fn olia_moves_windows_to_the_better_path() {
        // The first has the largest window, but loses more often.
        let paths = [path(30.0, 0.01, 100.0), path(10.0, 0.01, 900.0)];
        let base = |p: &Path| p.window / (p.rtt * p.rtt) / (4_000.0 * 4_000.0);
        let (a, b) = (olia(&paths, &paths[0]), olia(&paths, &paths[1]));
        assert!((a - (base(&paths[0]) - 0.5 / 30.0)).abs() < 1e-12, "{a}");
        assert!((b - (base(&paths[1]) + 0.5 / 10.0)).abs() < 1e-12, "{b}");
    }
}
