//! Two engines in virtual time: a requester with very many peers, and the engine that plays them
//! all under as many addresses.

use crate::{Result, count::owned_by};
use srd_bench_world::{BATCH, End, HOP, QKEY, START, config, meta, peer_ip, text};
use srd_core::{Access, AhId, Opcode, Qpn, SendRequest, Span, Status, Time, Transmit, TxSink};

/// Who memory belongs to.
pub const REQUESTER: usize = 1;
/// See [`REQUESTER`].
pub const RESPONDER: usize = 2;

const DEPTH: u32 = 4096;
/// Reads that one peer serves another at once, by default.
const READS: u32 = 64;
/// Less than the silence after which a peer is given up.
const SILENCE: Span = Span::from_secs(4);
/// Bytes of a message.
const BYTES: u32 = 64;

/// An end, and whose memory it is.
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

    /// Takes all completions; how many.
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

    /// What this side has to send arrives at the other.
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
        // A placement is carried out by doing nothing: there is no payload.
        let _ = self.to.end.engine.handle(self.now, &meta(t), &t.packet);
    }
}

/// Swallows packets: all of them, or the first one with a request, so that the window that it opens
/// stays open behind it.
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
    /// First of the peers that are sent to, and which of them is next.
    first: usize,
    next: usize,
    /// Messages posted and not completed.
    open: u32,
    /// Messages completed.
    pub completed: u64,
}

impl World {
    /// Without any peer yet.
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

    /// Address handles for so many more peers. From now on messages go to them alone.
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

    /// The most that one peer can make either engine hold.
    pub fn peer_bytes_max(&self) -> usize {
        self.near.end.engine.config().peer_bytes_max()
    }

    /// Each end is the other's worst: the responder refuses everything behind a gap that stays, is
    /// asked for as many reads as it serves, and nothing that it sends arrives, once there is a
    /// context. `look` is called in between. Returns what each end has counted itself, at most.
    pub fn worst(&mut self, mut look: impl FnMut()) -> Result<[usize; 2]> {
        let ip = peer_ip(0);
        let key = {
            // The programs' own: the right to read, the region, the requests.
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
                // No such queue pair, for messages.
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

    /// From now on messages go to all peers in turn.
    pub fn peers_all(&mut self) {
        (self.first, self.next) = (0, 0);
    }

    /// Posts up to so many messages, to all peers in turn.
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

    /// A message to every peer that is sent to, and all of them done.
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

    /// Lets time pass until no context holds window state any more.
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
