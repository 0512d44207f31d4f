//! The performance goals, and the reasons for missed ones.

use crate::{
    figures::Spread,
    measure::Measured,
    rows::{Driver, PEERS, Row, Wait},
};

/// A lower or upper limit for a result.
pub struct Goal {
    pub what: &'static str,
    pub target: f64,
    pub at_least: bool,
    pub reached: Spread,
    /// The reason why the goal is not reached, found by profiling; printed only if it is missed.
    pub cause: &'static str,
}

impl Goal {
    /// Whether the median meets the goal.
    pub fn met(&self) -> bool {
        if self.at_least {
            self.reached.median >= self.target
        } else {
            self.reached.median <= self.target
        }
    }
}

const SEND_CAUSE: &str = "Bursts, batches and system calls are those of raw UDP with the same \
bursts. The rest is user time: about half of it in the core (see the instruction counts), half in \
the device (checks, rings, counters, tables). It includes one more copy of the payload at each \
end: 1400 bytes are copied when sent, so that the kernel gets one piece per batch, and from the \
receive buffer to their destination.";

const WRITE_CAUSE: &str = "As for sends, but one request takes 187 packets, so that posts and \
completions hardly count. The rest is the core's work per packet, the copy from the receive \
buffer to the destination of the payload, and the acknowledgments.";

const JUMBO_CAUSE: &str = "The kernel's share per packet equals that of raw UDP. In a profile of \
writes, user time is 14 % of the sender's and 22 % of the receiver's; most of the latter is the \
copy from the receive buffer to the destination of the payload, which raw UDP does not make. \
Acknowledgments are 6 % of the receiver's time.";

const PING_CAUSE: &str = "Above the sockets one direction takes the instructions of the row \
`device-hop` below, both ends together, or 1.1 µs by time stamps in an instrumented build: 0.5 µs \
from the post to the system call (checks and ring 0.12, the engine takes the request 0.15, packet \
and path 0.2) and 0.6 µs from the datagram to the completion (control messages and clocks 0.06, \
acknowledgment with RTT, path and loss state, then the verdict 0.3, completion and its ring 0.2). \
No single step dominates. The datapath alone, without an engine, takes 1.14 times as long as raw \
UDP: the sender rotates over 64 sockets, and the receiver gets arrival time, CE mark and drop \
count with each datagram.";

const PEERS_CAUSE: &str = "Each message is a system call of its own, of which raw UDP \
(`raw-single`) does 0.63 million, and the sender sleeps between answers: the process with the \
1,000 engines is the slower end, because their state does not fit its caches. The core alone does \
2.0 million.";

const IDLE_CAUSE: &str = "The context and its paths take less than 340 bytes. The rest is the \
peer's entries in hash tables, which grow by doubling and stay partly empty, and its address \
handle.";

/// All goals that can be judged by the medians of this report.
pub fn goals(m: &Measured) -> Vec<Goal> {
    let core = |name: &str| {
        let rounds = m.core.iter().flatten().filter(|(n, _)| n == name);
        Spread::of(rounds.map(|(_, rate)| rate / 1e6))
    };
    let idle = |side: usize| {
        let bytes = |v: &serde_json::Value| v["bytes_idle"][side].as_f64().unwrap_or(f64::NAN);
        Spread::of(m.peers.iter().map(bytes))
    };
    let ping = |wait, place: usize| {
        let row = Row::SrdPing(wait);
        m.ratio(row, Row::RawPing(wait), move |f| f.rtt_us[place])
    };
    let rate = |peers| m.spread(Row::SrdRate { peers }, |f| f.messages_per_cpu / 1e6);
    let most =
        |what, target, reached, cause| Goal { what, target, at_least: false, reached, cause };
    let least =
        |what, target, reached, cause| Goal { what, target, at_least: true, reached, cause };
    let mut goals = streams(m);
    goals.extend([
        most(
            "SRD / raw UDP, median round trip of 64 B, spinning",
            1.35,
            ping(Wait::Spin, 0),
            PING_CAUSE,
        ),
        most("the same, 99th percentile", 1.5, ping(Wait::Spin, 1), PING_CAUSE),
        most(
            "SRD / raw UDP, median round trip of 64 B, blocking",
            1.05,
            ping(Wait::Block, 0),
            PING_CAUSE,
        ),
        least(
            "million messages of 64 B per CPU-second of the sender, 1 peer",
            1.5,
            rate(1),
            SEND_CAUSE,
        ),
        least("the same, 1,000 peers", 0.3, rate(PEERS), PEERS_CAUSE),
        Goal {
            what: "bytes per idle peer, requester",
            target: 512.0,
            at_least: false,
            reached: idle(0),
            cause: IDLE_CAUSE,
        },
        Goal {
            what: "bytes per idle peer, responder",
            target: 512.0,
            at_least: false,
            reached: idle(1),
            cause: IDLE_CAUSE,
        },
        Goal {
            what: "million packets per CPU-second of the core alone, sends",
            target: 5.0,
            at_least: true,
            reached: core("send"),
            cause: "Instructions per message: see the table of the core alone.",
        },
    ]);
    goals
}

/// The goals of streams: bytes per CPU-second beside raw UDP and TCP.
fn streams(m: &Measured) -> Vec<Goal> {
    let per_cpu = |row, to| m.ratio(row, to, |f| f.gbit_per_cpu);
    let send = |size| Row::SrdSend { size, driver: Driver::Caller };
    let write = |size| Row::SrdWrite { size };
    let ratio = |what, target, row, to, cause| Goal {
        what,
        target,
        at_least: true,
        reached: per_cpu(row, to),
        cause,
    };
    vec![
        ratio(
            "SRD send / raw UDP, Gb per CPU-second, 1400 B",
            0.85,
            send(1400),
            Row::RawStream { size: 1400 },
            SEND_CAUSE,
        ),
        ratio(
            "SRD send / TCP, Gb per CPU-second, 1400 B",
            0.8,
            send(1400),
            Row::TcpStream { size: 1400 },
            SEND_CAUSE,
        ),
        ratio(
            "SRD write / raw UDP, Gb per CPU-second, 1400 B",
            1.0,
            write(1400),
            Row::RawStream { size: 1400 },
            WRITE_CAUSE,
        ),
        ratio(
            "SRD write / raw UDP with the same bursts, Gb per CPU-second, 1400 B",
            0.8,
            write(1400),
            Row::RawBurst { size: 1400 },
            WRITE_CAUSE,
        ),
        ratio(
            "SRD write / TCP, Gb per CPU-second, 1400 B",
            0.95,
            write(1400),
            Row::TcpStream { size: 1400 },
            WRITE_CAUSE,
        ),
        ratio(
            "SRD send / raw UDP, Gb per CPU-second, 8900 B",
            0.78,
            send(8900),
            Row::RawStream { size: 8900 },
            JUMBO_CAUSE,
        ),
        ratio(
            "SRD send / TCP, Gb per CPU-second, 8900 B",
            0.95,
            send(8900),
            Row::TcpStream { size: 8900 },
            JUMBO_CAUSE,
        ),
        ratio(
            "SRD write / raw UDP, Gb per CPU-second, 8900 B",
            0.83,
            write(8900),
            Row::RawStream { size: 8900 },
            JUMBO_CAUSE,
        ),
        ratio(
            "SRD write / TCP, Gb per CPU-second, 8900 B",
            1.05,
            write(8900),
            Row::TcpStream { size: 8900 },
            JUMBO_CAUSE,
        ),
    ]
}
