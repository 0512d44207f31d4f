//! The kernel's TCP in a measurement: one process has the sockets of all hosts, each created in the
//! namespace of its host. This saves TCP the context switches that SRD's processes need.

use super::{
    FlowSpec, Outcome,
    block::{self, BlockHead, FlowRx, now_ns},
    protocol::Run,
    tcp_slow::SlowReader,
};
use crate::{
    error::{NetError, Result},
    fabric::Fabric,
    plan::extra_ip,
    spec::Node,
};
use rustix::{
    event::{Timespec, epoll},
    fd::{AsFd as _, OwnedFd},
    io::Errno,
    net::{
        AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, accept, bind, connect,
        ipproto, listen, recv, send, socket_with, sockopt,
    },
};
use std::{
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant},
};

/// A variant of TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpKind {
    /// Congestion control: `cubic`, `bbr`, `reno`.
    pub congestion: &'static str,
    /// Whether to use IPv6, where a retransmission timeout changes the flow label and thus the
    /// path.
    pub v6: bool,
    /// Whether to use MPTCP with up to eight subflows.
    pub multipath: bool,
    /// Minimum retransmission timeout in ms (the kernel's default is 200).
    pub rto_ms: u32,
    /// Whether connections begin with metrics of earlier connections, from the kernel's cache, as
    /// by default; otherwise they begin without any. IPv4 only; the hosts have an additional
    /// address for it.
    pub cached: bool,
}

struct Sending {
    fd: OwnedFd,
    /// The block being written; `out` of its bytes have been written.
    block: Vec<u8>,
    out: usize,
    /// Number of blocks begun.
    next: u64,
    /// Whether the socket's buffer was full.
    full: bool,
}

pub(super) struct Receiving {
    pub(super) fd: OwnedFd,
    buffer: Vec<u8>,
    filled: usize,
    rx: FlowRx,
}

/// All TCP connections of a measurement.
pub struct TcpSide {
    sending: Vec<Sending>,
    pub(super) receiving: Vec<Receiving>,
    pub(super) epoll: OwnedFd,
    damaged: u64,
    /// How the receivers read, if not as fast as possible.
    pub(super) slow: Option<SlowReader>,
}

fn what(kind: TcpKind, e: Errno, doing: &str) -> NetError {
    NetError::new(format!("cannot {doing} for {}: {e}", kind.congestion))
}

impl TcpSide {
    /// Opens a connection per flow.
    ///
    /// # Errors
    /// The kernel lacks the congestion control, or refuses a connection.
    pub fn start(fabric: &Fabric, kind: TcpKind, flows: &[FlowSpec]) -> Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let (mut sending, mut receiving) = (Vec::new(), Vec::new());
        for host in fabric.spec().host_nodes() {
            let value = (u64::from(kind.rto_ms) * 1000).to_string();
            let ns = fabric.ns(host)?;
            ns.sysctl_set("ipv4/tcp_rto_min_us", &value)?;
            ns.sysctl_set("ipv4/tcp_no_metrics_save", if kind.cached { "0" } else { "1" })?;
        }
        for (index, flow) in flows.iter().enumerate() {
            let (tx, rx) = connection(fabric, kind, flow, index)?;
            epoll::add(
                &epoll,
                &rx,
                epoll::EventData::new_u64(index as u64),
                epoll::EventFlags::IN,
            )?;
            epoll::add(
                &epoll,
                &tx,
                epoll::EventData::new_u64(index as u64 | SENDER),
                epoll::EventFlags::empty(),
            )?;
            sending.push(Sending { fd: tx, block: Vec::new(), out: 0, next: 0, full: false });
            receiving.push(Receiving {
                fd: rx,
                buffer: Vec::new(),
                filled: 0,
                rx: FlowRx::new(index as u32),
            });
        }
        if kind.multipath {
            // Subflows are added after the connection has carried data.
            std::thread::sleep(Duration::from_millis(200));
        }
        Ok(Self { sending, receiving, epoll, damaged: 0, slow: None })
    }

    /// Executes one run: from `run.start_ns` until all blocks have arrived, or `deadline`.
    ///
    /// # Errors
    /// A connection fails. Blocks missing at the deadline count as lost.
    pub fn run(&mut self, run: Run, deadline: Instant) -> Result<Outcome> {
        for (tx, rx) in self.sending.iter_mut().zip(&mut self.receiving) {
            (tx.next, tx.out, tx.full) = (0, 0, false);
            tx.block.clear();
            rx.buffer.resize(run.block_bytes as usize, 0);
            rx.filled = 0;
            rx.rx.begin(run.run, run.start_ns);
        }
        self.damaged = 0;
        let mut next_post = run.start_ns;
        while Instant::now() < deadline {
            let now = now_ns();
            if now >= next_post {
                next_post = self.post(&run, now)?;
            }
            if now > run.start_ns && self.done(&run, now) {
                break;
            }
            let next_read = self.read_slowly(&run)?;
            let rest = next_post.min(next_read).saturating_sub(now_ns()).min(5_000_000);
            let wrote = self.events(&run, rest)?;
            if wrote {
                next_post = next_post.min(now_ns());
            }
        }
        let mut out =
            Outcome { start_ns: run.start_ns, damaged: self.damaged, ..Outcome::default() };
        for (tx, rx) in self.sending.iter().zip(&self.receiving) {
            let stats = rx.rx.stats();
            out.lost += tx.next.saturating_sub(stats.blocks);
            out.duplicated += stats.duplicated;
            out.flows.push(stats);
        }
        Ok(out)
    }

    fn done(&self, run: &Run, now: u64) -> bool {
        self.sending.iter().zip(&self.receiving).all(|(tx, rx)| {
            let all = if run.blocks > 0 { tx.next == run.blocks } else { now >= run.stop_ns };
            all && tx.out == tx.block.len() && rx.rx.blocks() == tx.next
        })
    }

    /// Writes the blocks that are due as far as the sockets accept them. Returns when the next
    /// block is due.
    fn post(&mut self, run: &Run, now: u64) -> Result<u64> {
        let mut next = u64::MAX;
        for index in 0..self.sending.len() {
            let tx = &mut self.sending[index];
            while !tx.full {
                if tx.out == tx.block.len() {
                    let finished =
                        if run.blocks > 0 { tx.next >= run.blocks } else { now >= run.stop_ns };
                    let due_ns = match run.pace_ns {
                        0 => now,
                        pace => run.start_ns + tx.next * pace,
                    };
                    if finished || (run.blocks == 0 && due_ns >= run.stop_ns) {
                        break;
                    }
                    if due_ns > now {
                        next = next.min(due_ns);
                        break;
                    }
                    let head =
                        BlockHead { flow: index as u32, run: run.run, number: tx.next, due_ns };
                    tx.block.resize(run.bytes_of(tx.next) as usize, 0);
                    block::fill(&mut tx.block, &head);
                    (tx.out, tx.next) = (0, tx.next + 1);
                }
                match send(&tx.fd, &tx.block[tx.out..], SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                    Ok(n) => tx.out += n,
                    Err(Errno::AGAIN) => {
                        tx.full = true;
                        // Level-triggered, because MPTCP sometimes misses edges.
                        let data = epoll::EventData::new_u64(index as u64 | SENDER);
                        epoll::modify(&self.epoll, &tx.fd, data, epoll::EventFlags::OUT)?;
                    }
                    Err(Errno::INTR) => {}
                    Err(e) => return Err(NetError::system("a TCP connection broke", e)),
                }
            }
        }
        Ok(next)
    }

    /// Handles events of the sockets. Returns whether a sender has room again.
    fn events(&mut self, run: &Run, rest_ns: u64) -> Result<bool> {
        let mut list = [epoll::Event {
            flags: epoll::EventFlags::empty(),
            data: epoll::EventData::new_u64(0),
        }; 64];
        let rest = Timespec { tv_sec: 0, tv_nsec: rest_ns as i64 };
        let n = match epoll::wait(&self.epoll, &mut list, Some(&rest)) {
            Err(Errno::INTR) => 0,
            other => other?,
        };
        let mut room = false;
        for event in &list[..n] {
            let data = event.data.u64();
            if data == SLOW {
                continue;
            }
            if data & SENDER == 0 {
                self.receive(data as usize, run)?;
                continue;
            }
            let tx = &mut self.sending[(data & !SENDER) as usize];
            tx.full = false;
            room = true;
            let none = epoll::EventFlags::empty();
            epoll::modify(&self.epoll, tx.fd.as_fd(), epoll::EventData::new_u64(data), none)?;
        }
        Ok(room)
    }

    fn receive(&mut self, index: usize, run: &Run) -> Result {
        // Bounded, so that one flow does not delay the others.
        for _ in 0..16 {
            if self.receive_some(index, run)? == 0 {
                break;
            }
        }
        Ok(())
    }

    /// Reads the rest of a block, or what there is of it. Returns the bytes.
    pub(super) fn receive_some(&mut self, index: usize, run: &Run) -> Result<usize> {
        let r = &mut self.receiving[index];
        // A stream arrives in order, so the block being received has the number of the blocks
        // before it.
        let len = run.bytes_of(r.rx.blocks()) as usize;
        let room = &mut r.buffer[r.filled..len];
        let n = match recv(&r.fd, room, RecvFlags::DONTWAIT) {
            Ok((_, 0)) => return Err(NetError::new("a TCP connection was closed")),
            Ok((_, n)) => n,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(0),
            Err(e) => return Err(NetError::system("a TCP connection broke", e)),
        };
        r.filled += n;
        if r.filled == len {
            match block::check(&r.buffer[..len]) {
                Some(head) if head.run == run.run && head.flow == index as u32 => {
                    r.rx.take(&head, len, now_ns());
                }
                _ => self.damaged += 1,
            }
            r.filled = 0;
        }
        Ok(n)
    }
}

/// Marks events of sending sockets.
const SENDER: u64 = 1 << 32;
/// Marks events that only end the wait: a slow reader checks its sockets itself.
pub(super) const SLOW: u64 = u64::MAX;

/// Opens a connection; returns the sender's and the receiver's socket.
pub(super) fn connection(
    fabric: &Fabric,
    kind: TcpKind,
    flow: &FlowSpec,
    index: usize,
) -> Result<(OwnedFd, OwnedFd)> {
    let spec = fabric.spec();
    let ip = |(l, h): (u8, u8)| match kind {
        TcpKind { v6: true, .. } => spec.ip6(l, h),
        // All connections read the kernel's cache, even those that do not write it, and only the
        // machine's administrator may empty it. It is kept per address, so cached connections use
        // another address.
        TcpKind { cached: true, .. } => extra_ip(0, l, h),
        _ => spec.ip(l, h),
    };
    let to = SocketAddr::new(ip(flow.to), 5001 + index as u16);
    let open = |at: IpAddr| {
        let family = if at.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
        let proto = if kind.multipath { Some(ipproto::MPTCP) } else { None };
        let fd = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, proto);
        let fd = fd.map_err(|e| what(kind, e, "open a socket"))?;
        sockopt::set_tcp_congestion(&fd, kind.congestion)
            .map_err(|e| what(kind, e, "choose the congestion control"))?;
        sockopt::set_tcp_nodelay(&fd, true)?;
        sockopt::set_socket_reuseaddr(&fd, true)?;
        Ok::<_, NetError>(fd)
    };
    let listener = fabric.ns(Node::Host(flow.to.0, flow.to.1))?.inside(|| {
        let fd = open(to.ip())?;
        bind(&fd, &to).map_err(|e| what(kind, e, "bind"))?;
        listen(&fd, 1)?;
        Ok(fd)
    })?;
    let tx = fabric.ns(Node::Host(flow.from.0, flow.from.1))?.inside(|| {
        let fd = open(to.ip())?;
        bind(&fd, &SocketAddr::new(ip(flow.from), 0)).map_err(|e| what(kind, e, "bind"))?;
        connect(&fd, &to).map_err(|e| what(kind, e, "connect"))?;
        Ok(fd)
    })?;
    let rx = accept(&listener)?;
    Ok((tx, rx))
}
