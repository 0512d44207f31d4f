//! A simulated network of TCP hosts, and the bookkeeping of an experiment.

use crate::tcp::report::{Conn, Counters, Message, MessageId};
use crate::tcp::segment::TcpSegment;
use crate::tcp::{ConfigError, Sender, TcpConfig, TcpHost};
use srd_fabric::{HostId, Ps, Rng, Topology, TopologyError, US, World, WorldConfig};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Port that receivers listen on.
const PORT_SERVER: u16 = 5001;
/// Start and size of the kernel's ephemeral port range.
const PORT_FIRST: u64 = 32_768;
const PORTS: u64 = 28_232;
/// Interval at which the count of received messages is read.
const LOOK_PS: Ps = 2 * US;
/// Random number stream that draws ports.
const STREAM_PORTS: u64 = 0x7C9_0001;

/// Why a network cannot be simulated. The text says what to change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NetError {
    /// The topology.
    Topology(TopologyError),
    /// A parameter of TCP.
    Config(ConfigError),
}

impl fmt::Display for NetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Topology(e) => e.fmt(f),
            Self::Config(e) => e.fmt(f),
        }
    }
}
impl std::error::Error for NetError {}

/// A round: messages that started together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Round {
    /// When all of the round's messages were written.
    pub start_ps: Ps,
    /// Completion time of each message in the order of the connections; `None` = not within the
    /// limit.
    pub fct_ps: Vec<Option<Ps>>,
}

impl Round {
    /// Longest completion time, if all messages are complete.
    pub fn max_ps(&self) -> Option<Ps> {
        self.fct_ps.iter().copied().try_fold(0, |max, fct| fct.map(|fct| max.max(fct)))
    }
}

/// A simulated network whose hosts run TCP.
#[derive(Debug)]
pub struct TcpNet {
    /// The simulated world: faults, monitors, counters, the run hash.
    pub world: World<TcpSegment, TcpHost>,
    received: Arc<AtomicU64>,
    posted: u64,
    /// Messages planned per connection and the time of the last one, by host.
    planned: Vec<Vec<(u32, Ps)>>,
    ports: Rng,
    sampled: bool,
}

impl TcpNet {
    /// A network at time 0 without connections.
    ///
    /// # Errors
    /// Names what is invalid in the topology or the parameters.
    pub fn new(topology: Topology, world: WorldConfig, tcp: TcpConfig) -> Result<Self, NetError> {
        tcp.check().map_err(NetError::Config)?;
        let received = Arc::new(AtomicU64::new(0));
        let hosts = topology.hosts() as usize;
        let sampled = tcp.sample_ps.is_some();
        let tcp = Arc::new(tcp);
        let world_made = World::new(topology, world, |id| {
            TcpHost::new(id, Arc::clone(&tcp), Arc::clone(&received))
        });
        Ok(Self {
            world: world_made.map_err(NetError::Topology)?,
            received,
            posted: 0,
            planned: vec![Vec::new(); hosts],
            ports: Rng::stream(world.seed, STREAM_PORTS, 0),
            sampled,
        })
    }

    /// Opens a connection now, from a random client port.
    ///
    /// # Panics
    /// If a host does not exist.
    pub fn connect(&mut self, src: HostId, dst: HostId) -> Conn {
        let (sport, dport) = self.ports_pick();
        self.connect_ports(src, dst, sport, dport)
    }

    /// Opens a connection now with the given ports.
    ///
    /// # Panics
    /// If a host does not exist.
    pub fn connect_ports(&mut self, src: HostId, dst: HostId, sport: u16, dport: u16) -> Conn {
        assert!(dst.0 < self.world.topology().hosts(), "host {} does not exist", dst.0);
        let conn = self.world.with_host(src, |h, io| h.connect(dst, (sport, dport), io));
        self.planned[src.0 as usize].resize(conn.index as usize + 1, (0, 0));
        conn
    }

    /// Plans a write of a message to a connection at time `at`.
    ///
    /// # Panics
    /// If the connection does not exist, `bytes` is 0, or an earlier call planned a later message:
    /// plan a connection's messages in the order of their times.
    pub fn message_at(&mut self, conn: Conn, at: Ps, bytes: u64) -> MessageId {
        assert!(bytes > 0, "a message of no bytes never arrives: give it at least one");
        let token = self.world.host_mut(conn.src).plan_write(conn.index, bytes);
        self.world.call_at(at, conn.src, token);
        self.message_count(conn, at)
    }

    /// Plans a message on a connection of its own, opened at `at` from a random client port.
    ///
    /// # Panics
    /// If a host does not exist or `bytes` is 0.
    pub fn flow_at(&mut self, src: HostId, dst: HostId, at: Ps, bytes: u64) -> MessageId {
        assert!(dst.0 < self.world.topology().hosts(), "host {} does not exist", dst.0);
        assert!(bytes > 0, "a message of no bytes never arrives: give it at least one");
        let ports = self.ports_pick();
        let (conn, token) = self.world.host_mut(src).plan_flow(dst, ports, bytes);
        self.world.call_at(at, src, token);
        self.planned[src.0 as usize].resize(conn.index as usize + 1, (0, 0));
        self.message_count(conn, at)
    }

    fn message_count(&mut self, conn: Conn, at: Ps) -> MessageId {
        let (count, last) = &mut self.planned[conn.src.0 as usize][conn.index as usize];
        assert!(
            at >= *last,
            "messages of a connection must be planned in the order of their times"
        );
        *last = at;
        *count += 1;
        self.posted += 1;
        MessageId { conn, index: *count - 1 }
    }

    fn ports_pick(&mut self) -> (u16, u16) {
        ((PORT_FIRST + self.ports.below(PORTS)) as u16, PORT_SERVER)
    }

    /// Runs until every planned message has arrived, and at most 2 µs longer: returns true. Returns
    /// false at `limit`, or when no event is left.
    pub fn run_done(&mut self, limit: Ps) -> bool {
        while self.received.load(Ordering::Relaxed) < self.posted {
            let Some(next) = self.world.next_event_at().filter(|next| *next <= limit) else {
                return false;
            };
            self.world.events_run(limit.min(next.saturating_add(LOOK_PS)), u64::MAX);
        }
        true
    }

    /// Runs until `end`.
    pub fn run_until(&mut self, end: Ps) {
        self.world.run_until(end);
    }

    /// Barrier rounds: in each round all connections get a message of `bytes` at once; the next
    /// round begins `gap_ps` (at least about 2 µs) after the last message has arrived. Ends early
    /// if a round is not done by `limit`.
    pub fn rounds(
        &mut self,
        conns: &[Conn],
        bytes: u64,
        rounds: u32,
        gap_ps: Ps,
        limit: Ps,
    ) -> Vec<Round> {
        let mut out = Vec::new();
        let mut start_ps = self.world.now();
        for _ in 0..rounds {
            let ids: Vec<_> =
                conns.iter().map(|conn| self.message_at(*conn, start_ps, bytes)).collect();
            let done = self.run_done(limit);
            let messages: Vec<_> = ids.iter().map(|id| self.message(*id)).collect();
            let fct_ps = messages.iter().map(|m| m.and_then(|m| m.fct_ps())).collect();
            out.push(Round { start_ps, fct_ps });
            if !done {
                break;
            }
            let last = messages.iter().flatten().filter_map(|m| m.received_ps).max();
            start_ps = self.world.now().max(last.unwrap_or(0) + gap_ps);
        }
        out
    }

    /// A message; `None` if it has not been written yet.
    pub fn message(&self, id: MessageId) -> Option<Message> {
        let host = &self.world.hosts()[id.conn.src.0 as usize];
        let mut message = *host.messages(id.conn).get(id.index as usize)?;
        let receiver = &self.world.hosts()[message.dst.0 as usize];
        message.received_ps = receiver.arrivals(id.conn).get(id.index as usize).copied();
        Some(message)
    }

    /// All messages written so far, by sending host, connection and index.
    pub fn messages(&self) -> Vec<Message> {
        let mut out = Vec::new();
        for (src, counts) in self.planned.iter().enumerate() {
            for (index, (count, _)) in counts.iter().enumerate() {
                let conn = Conn { src: HostId(src as u32), index: index as u32 };
                let ids = (0..*count).map(|index| MessageId { conn, index });
                out.extend(ids.filter_map(|id| self.message(id)));
            }
        }
        out
    }

    /// A connection's sending end; `None` if it is not open yet.
    pub fn sender(&self, conn: Conn) -> Option<&Sender> {
        self.world.hosts()[conn.src.0 as usize].sender(conn)
    }

    /// Bytes received in order per interval of [`TcpConfig::sample_ps`], from time 0.
    ///
    /// # Panics
    /// If `sample_ps` is not set.
    pub fn samples(&self, conn: Conn) -> &[u64] {
        assert!(self.sampled, "no samples are taken: set sample_ps");
        self.sender(conn).map_or(&[], |s| self.world.hosts()[s.dst.0 as usize].samples(conn))
    }

    /// Sum of the counters of all connections.
    pub fn counters(&self) -> Counters {
        let mut sum = Counters::default();
        self.world.hosts().iter().for_each(|h| sum.add(&h.counters()));
        sum
    }
}
