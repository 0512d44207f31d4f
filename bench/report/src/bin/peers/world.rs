//! Two engines in virtual time: a requester with many peers, and one engine with as many addresses
//! that acts as all of these peers.

use crate::{Result, count::owned_by};
use srd_bench_world::{BATCH, End, HOP, QKEY, START, config, meta, peer_ip, text};
use srd_core::{Access, AhId, Opcode, Qpn, SendRequest, Span, Status, Time, Transmit, TxSink};

/// Owner of the requester's memory.
pub const REQUESTER: usize = 1;
/// Owner of the responder's memory.
pub const RESPONDER: usize = 2;

const DEPTH: u32 = 4096;
/// Default limit of the concurrent reads that an engine serves one peer.
const READS: u32 = 64;
/// Shorter than the silence after which a peer is given up.
const SILENCE: Span = Span::from_secs(4);
/// Length of a message in bytes.
const BYTES: u32 = 64;

/// One end, with the owner of its memory.
struct Side {
    end: End,
    owner: usize,
}

impl Side {
    fn new(owner: usize) -> Result<Self> {
        let _owner = owned_by(owner);
        Ok(Self { end: End::new(config(owner as u8), owner as u64, DEPTH)?, owner })
    }

    fn timers(&mut self, now: Time) {
        let _owner = owned_by(self.owner);
        self.end.timers(now);
    }

    /// Polls all completions; returns their number.
    fn finish(&mut self, now: Time) -> Result<u32> {
        let _owner = owned_by(self.owner);
        self.end.engine.rx_burst_end(now);
        let mut taken = 0;
        while let Some(c) = self.end.engine.cq_poll(self.end.cq) {
            taken += 1;
            if c.status != Status::Ok {
                return Err(format!("a request ended with {:?}", c.status));
            }
        }
        self.end.engine.cq_release(self.end.cq, taken);
        while self.end.engine.poll_event().is_some() {}
        Ok(taken)
    }

    fn receive_post(&mut self) -> Result<()> {
        let _owner = owned_by(self.owner);
        self.end.receive_post(BYTES)
    }

    /// Delivers the packets that this side has to send to the other side.
    fn transmit(&mut self, to: &mut Self, now: Time) -> usize {
        let _owner = owned_by(self.owner);
        self.end.engine.poll_transmit(now, BATCH, &mut Wire { to, now: now + HOP })
    }
}

struct Wire<'a> {
    to: &'a mut Side,
    now: Time,
}

impl TxSink for Wire<'_> {
    fn push(&mut self, t: &Transmit<'_>) {
        let _owner = owned_by(self.to.owner);
        // There is no payload, so placements are ignored.
        let _ = self.to.end.engine.handle(self.now, &meta(t), &t.packet);
    }
}

/// Drops packets: all of them, or only the first packet with a request, so that the window stays
/// open behind the gap.
struct Hole<'a> {
    to: Option<&'a mut Side>,
    now: Time,
    swallowed: &'a mut bool,
}

impl TxSink for Hole<'_> {
    fn push(&mut self, t: &Transmit<'_>) {
        let Some(to) = &mut self.to else { return };
        if t.packet.header.kind.is_reliable() && !*self.swallowed {
            *self.swallowed = true;
            return;
        }
        Wire { to, now: self.now }.push(t);
    }
}

/// The two engines and their clock.
pub struct World {
    now: Time,
    near: Side,
    far: Side,
    handles: Vec<AhId>,
    /// Index of the first peer to send to, and of the next one.
    first: usize,
    next: usize,
    /// Messages posted and not completed.
    open: u32,
    /// Messages completed.
    pub completed: u64,
}

impl World {
    /// Creates the engines without peers.
    pub fn new() -> Result<Self> {
        let now = START;
        let (near, far) = (Side::new(REQUESTER)?, Side::new(RESPONDER)?);
        let mut world =
            Self { now, near, far, handles: Vec::new(), first: 0, next: 0, open: 0, completed: 0 };
        for _ in 0..DEPTH {
            world.far.receive_post()?;
        }
        Ok(world)
    }

    /// Adds address handles of `peers` peers; messages are sent only to them from now on.
    pub fn peers_add(&mut self, peers: u32) -> Result<()> {
        (self.first, self.next) = (self.handles.len(), self.handles.len());
        for _ in 0..peers {
            let ip = peer_ip(self.handles.len() as u32);
            let _owner = owned_by(REQUESTER);
            let ah =
                self.near.end.engine.ah_create(self.now, self.near.end.pd, ip).map_err(text)?;
            let _other = owned_by(0);
            self.handles.push(ah);
        }
        Ok(())
    }

    /// Upper limit of the memory that one peer can use in either engine, in bytes.
    pub fn peer_bytes_max(&self) -> usize {
        self.near.end.engine.config().peer_bytes_max()
    }

    /// Makes each end the most demanding possible peer of the other: once a context exists, the
    /// responder refuses everything behind a permanent gap and serves as many reads as it may, and
    /// none of its packets arrive. Calls `look` repeatedly. Returns the largest count of each
    /// engine.
    pub fn worst(&mut self, mut look: impl FnMut()) -> Result<[usize; 2]> {
        let ip = peer_ip(0);
        let key = {
            // The program's setup: permission to read, memory region, requests.
            let far = &mut self.far.end.engine;
            far.ah_create(self.now, self.far.end.pd, ip).map_err(text)?;
            let rights = Access(Access::REMOTE_READ);
            far.mr_register(self.far.end.pd, 0, 1 << 24, rights).map_err(text)?
        };
        self.post(1)?;
        let far_qp = self.far.end.qp;
        for n in 1..DEPTH {
            let (op, rkey) = if n < READS { (Opcode::Read, key.0) } else { (Opcode::Send, 0) };
            let wr = SendRequest {
                wr_id: 0,
                op,
                ah: self.handles[0],
                // Messages go to a queue pair that does not exist.
                dst_qpn: if n < READS { far_qp } else { Qpn(far_qp.0 ^ 1) },
                qkey: QKEY,
                len: if n < READS { 1 << 20 } else { BYTES },
                rkey,
                raddr: 0,
                imm: 0,
            };
            self.near.end.engine.post_send(self.now, self.near.end.qp, &wr).map_err(text)?;
        }
        let (mut swallowed, mut counted) = (false, [0; 2]);
        let until = self.now + SILENCE;
        while self.now < until {
            self.near.timers(self.now);
            let near = self.near.owner;
            let sent = {
                let _owner = owned_by(near);
                let to = Some(&mut self.far);
                let mut hole = Hole { to, now: self.now + HOP, swallowed: &mut swallowed };
                self.near.end.engine.poll_transmit(self.now, BATCH, &mut hole)
            };
            look();
            self.far.timers(self.now + HOP);
            self.far.end.engine.rx_burst_end(self.now + HOP);
            let open = self.near.end.engine.context_stats().iter().any(|c| c.state == "Open");
            let answered = {
                let _owner = owned_by(self.far.owner);
                let to = (!open).then_some(&mut self.near);
                let mut all = true;
                let mut hole = Hole { to, now: self.now + HOP + HOP, swallowed: &mut all };
                self.far.end.engine.poll_transmit(self.now + HOP, BATCH, &mut hole)
            };
            look();
            for (n, side) in counted.iter_mut().zip([&self.near, &self.far]) {
                let held = side.end.engine.context_stats();
                *n = held.iter().map(|c| c.held_bytes).fold(*n, usize::max);
            }
            self.now += HOP + HOP;
            if sent + answered == 0 {
                let next =
                    self.near.end.engine.next_timeout().min(self.far.end.engine.next_timeout());
                self.now = self.now.max(next).min(until);
            }
        }
        Ok(counted)
    }

    /// Messages are sent to all peers in turn from now on.
    pub fn peers_all(&mut self) {
        (self.first, self.next) = (0, 0);
    }

    /// Posts up to `most` messages, to all peers in turn.
    fn post(&mut self, most: usize) -> Result<()> {
        let _owner = owned_by(REQUESTER);
        for _ in 0..most {
            let wr = SendRequest {
                wr_id: 0,
                op: Opcode::Send,
                ah: self.handles[self.next],
                dst_qpn: self.far.end.qp,
                qkey: QKEY,
                len: BYTES,
                rkey: 0,
                raddr: 0,
                imm: 0,
            };
            self.near.end.engine.post_send(self.now, self.near.end.qp, &wr).map_err(text)?;
            self.next += 1;
            if self.next == self.handles.len() {
                self.next = self.first;
            }
            self.open += 1;
        }
        Ok(())
    }

    /// One round trip.
    pub fn turn(&mut self, post: bool) -> Result<()> {
        if post && self.open <= DEPTH / 2 {
            self.post(BATCH)?;
        }
        self.near.timers(self.now);
        let sent = self.near.transmit(&mut self.far, self.now);
        self.now += HOP;
        self.far.timers(self.now);
        for _ in 0..self.far.finish(self.now)? {
            self.far.receive_post()?;
        }
        let answered = self.far.transmit(&mut self.near, self.now);
        self.now += HOP;
        let done = self.near.finish(self.now)?;
        self.open -= done;
        self.completed += u64::from(done);
        if sent + answered == 0 && done == 0 {
            let next = self.near.end.engine.next_timeout().min(self.far.end.engine.next_timeout());
            if next > self.now && next != Time::NEVER {
                self.now = next;
            }
        }
        Ok(())
    }

    /// Sends a message to each selected peer and waits for the completions.
    pub fn greet(&mut self) -> Result<()> {
        let mut left = self.handles.len() - self.first;
        let mut turns = 0_u64;
        while left > 0 || self.open > 0 {
            let now = left.min(BATCH);
            self.post(now)?;
            left -= now;
            self.turn(false)?;
            turns += 1;
            if turns > 10_000_000 {
                return Err(format!("{} messages hang", self.open));
            }
        }
        Ok(())
    }

    /// Advances time until no context holds window state.
    pub fn rest(&mut self) -> Result<()> {
        for _ in 0..1_000_000 {
            self.turn(false)?;
            let idle = |s: &Side| s.end.engine.context_stats().iter().all(|c| !c.is_active);
            if self.near.end.engine.next_timeout().min(self.far.end.engine.next_timeout())
                == Time::NEVER
                && idle(&self.near)
                && idle(&self.far)
            {
                return Ok(());
            }
        }
        Err("the engines do not come to rest".into())
    }
}
