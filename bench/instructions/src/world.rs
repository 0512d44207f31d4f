//! Two engines and the simplest possible network: each transmitted packet is handled at once,
//! without a copy. Time is virtual and skips idle periods.

pub use srd_bench_world::MTU;
use srd_bench_world::{BATCH, End, HOP, QKEY, START, config, meta, peer_ip, text};
use srd_core::{
    Access, AhId, Completion, Engine, MrKey, Opcode, PostRefusal, SendRequest, Status, Time,
    Transmit, TxSink,
};
use std::time::Instant;

/// Length of the messages in bytes.
pub const MESSAGE_BYTES: u32 = 1024;

/// Default depth of the send and receive queues.
const DEPTH: u32 = 1024;
/// Turns without a packet or completion after which the engines count as stuck.
const IDLE_TURNS_MAX: u32 = 10_000;
/// Start address of the memory region of writes and reads.
const REGION: u64 = 1 << 32;

/// The requester (near), the responder (far), and the clock.
pub struct World {
    now: Time,
    near: End,
    far: End,
    peers: Vec<AhId>,
    region: MrKey,
    /// Requests not posted yet.
    to_post: u64,
    request: SendRequest,
    /// Requests posted and not completed.
    pub open: u64,
    /// Requests that succeeded.
    pub completed: u64,
    /// Packets handled by the far side and by the near side.
    pub arrived: [u64; 2],
    failed: Option<Status>,
}

impl World {
    /// Creates `peers` peers: addresses of the far engine, with a context each.
    pub fn new(peers: u32) -> Result<Self, String> {
        Self::with_depth(peers, DEPTH)
    }

    /// As [`World::new`], with room for `depth` outstanding requests.
    pub fn with_depth(peers: u32, depth: u32) -> Result<Self, String> {
        let now = START;
        let mut near = end(1, peers, depth)?;
        let mut far = end(2, peers, depth)?;
        let mut handles = Vec::new();
        for i in 0..peers {
            let ip = peer_ip(i);
            handles.push(near.engine.ah_create(now, near.pd, ip).map_err(text)?);
            // Requests other than sends are served only to known peers.
            far.engine.ah_create(now, far.pd, ip).map_err(text)?;
        }
        let access = Access(Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ);
        let region = far.engine.mr_register(far.pd, REGION, 1 << 30, access).map_err(text)?;
        for _ in 0..depth {
            far.receive_post(MTU.into())?;
        }
        let request = SendRequest {
            wr_id: 0,
            op: Opcode::Send,
            ah: handles[0],
            dst_qpn: far.qp,
            qkey: QKEY,
            len: 0,
            rkey: region.0,
            raddr: REGION,
            imm: 0,
        };
        Ok(Self {
            now,
            near,
            far,
            peers: handles,
            region,
            to_post: 0,
            request,
            open: 0,
            completed: 0,
            arrived: [0; 2],
            failed: None,
        })
    }

    /// Posts `n` requests of `len` bytes, round robin over the peers, as far as the queue accepts
    /// them.
    pub fn post_many(&mut self, op: Opcode, n: u64, len: u32) {
        self.to_post += n;
        self.request = SendRequest { op, len, rkey: self.region.0, ..self.request };
    }

    /// Runs turns until every request has completed.
    pub fn run_until_done(&mut self) -> Result<(), String> {
        all_turns(self)
    }

    /// One round trip: post, send, receive, acknowledge, complete.
    pub fn turn(&mut self) -> Result<(), String> {
        let mut idle = 0;
        loop {
            let before = (self.arrived, self.completed);
            self.near.timers(self.now);
            near_posts(self)?;
            near_transmits(self);
            self.now += HOP;
            self.far.timers(self.now);
            far_finishes(self)?;
            far_transmits(self);
            self.now += HOP;
            near_finishes(self)?;
            if let Some(status) = self.failed {
                return Err(format!("a request ended with {status:?}"));
            }
            if (self.arrived, self.completed) != before {
                return Ok(());
            }
            idle += 1;
            let next = self.near.engine.next_timeout().min(self.far.engine.next_timeout());
            if next == Time::NEVER || idle > IDLE_TURNS_MAX {
                return Err(format!("{} requests hang at {:?}", self.open, self.now));
            }
            self.now = self.now.max(next);
        }
    }
}

/// Duration and name of one call into the requester's engine.
pub struct Call {
    pub name: &'static str,
    pub ns: u64,
    /// Timer steps that the engine counted.
    pub steps: u64,
}

impl World {
    /// Drops all packets to the far side from now on, posts all pending requests, and advances time
    /// until the engine is idle. Returns the duration of each call that did work.
    pub fn fall_silent(&mut self) -> Result<Vec<Call>, String> {
        let mut calls = Vec::new();
        while self.to_post > 0 {
            near_posts(self)?;
        }
        loop {
            let next = self.near.engine.next_timeout();
            if next == Time::NEVER {
                break;
            }
            self.now = self.now.max(next);
            silent_turn(&mut self.near, self.now, &mut calls);
            let before = self.completed;
            near_finishes(self)?;
            if self.completed > before && self.failed.take() != Some(Status::LocalUnrespRemote) {
                return Err("a request to a dead peer ended with an unexpected status".into());
            }
            while self.near.engine.poll_event().is_some() {}
        }
        if self.open > 0 {
            return Err(format!("{} requests to dead peers did not end", self.open));
        }
        Ok(calls)
    }
}

/// Drops packets to dead peers.
struct Nowhere;

impl TxSink for Nowhere {
    fn push(&mut self, _: &Transmit<'_>) {}
}

/// Calls the timers and transmits one batch of packets, and measures each call.
fn silent_turn(near: &mut End, now: Time, calls: &mut Vec<Call>) {
    let mut timed = |name, engine: &mut Engine, call: fn(&mut Engine, Time)| {
        if engine.next_timeout() <= now {
            let before = engine.counters().timer_steps;
            let start = Instant::now();
            call(engine, now);
            let ns = start.elapsed().as_nanos() as u64;
            calls.push(Call { name, ns, steps: engine.counters().timer_steps - before });
        }
    };
    timed("handle_timeout", &mut near.engine, |e, now| e.handle_timeout(now));
    timed("poll_transmit", &mut near.engine, |e, now| {
        e.poll_transmit(now, BATCH, &mut Nowhere);
    });
}

/// Creates one end with room for the given numbers of peers and requests.
fn end(host: u8, peers: u32, depth: u32) -> Result<End, String> {
    let mut config = config(host);
    if depth > DEPTH {
        // Limits are high enough that no context is closed or refused.
        config.contexts_max = config.contexts_max.max(2 * peers);
        config.half_opens_max = config.contexts_max;
        config.inbound_per_prefix_max = config.contexts_max;
        config.wrs_max = config.wrs_max.max(depth);
    }
    End::new(config, u64::from(host), depth)
}

// The functions below are the units of counting: never inlined, so that callgrind sees their entry
// and exit, and listed in `scenario::SCENARIOS`.

/// Everything except the setup.
#[inline(never)]
fn all_turns(world: &mut World) -> Result<(), String> {
    while world.open > 0 || world.to_post > 0 {
        world.turn()?;
    }
    Ok(())
}

/// The requester's program: posts up to one batch of requests.
#[inline(never)]
fn near_posts(world: &mut World) -> Result<(), String> {
    for _ in 0..BATCH {
        if world.to_post == 0 {
            break;
        }
        let turn = world.to_post % world.peers.len() as u64;
        world.request.ah = world.peers[turn as usize];
        match world.near.engine.post_send(world.now, world.near.qp, &world.request) {
            Ok(_) => {
                world.to_post -= 1;
                world.open += 1;
            }
            Err(PostRefusal::QueueFull | PostRefusal::CqFull) => break,
            Err(e) => return Err(text(e)),
        }
    }
    Ok(())
}

/// The requester transmits.
#[inline(never)]
fn near_transmits(world: &mut World) {
    let World { now, near, far, arrived, .. } = world;
    let mut wire = Wire { far: &mut far.engine, now: *now + HOP, arrived: &mut arrived[0] };
    near.engine.poll_transmit(*now, BATCH, &mut ToFar(&mut wire));
}

/// The end of the responder's turn: polls completions and posts receives again.
#[inline(never)]
fn far_finishes(world: &mut World) -> Result<(), String> {
    let World { now, far, .. } = world;
    far.engine.rx_burst_end(*now);
    let mut taken = 0;
    while let Some(c) = far.engine.cq_poll(far.cq) {
        taken += 1;
        if c.status != Status::Ok {
            return Err(format!("a receive ended with {:?}", c.status));
        }
        far.receive_post(MTU.into())?;
    }
    far.engine.cq_release(far.cq, taken);
    Ok(())
}

/// The responder transmits.
#[inline(never)]
fn far_transmits(world: &mut World) {
    let World { now, near, far, arrived, .. } = world;
    let mut wire = Wire { far: &mut near.engine, now: *now + HOP, arrived: &mut arrived[1] };
    far.engine.poll_transmit(*now, BATCH, &mut ToNear(&mut wire));
}

/// The requester polls completions.
#[inline(never)]
fn near_finishes(world: &mut World) -> Result<(), String> {
    let World { now, near, .. } = world;
    near.engine.rx_burst_end(*now);
    let mut taken = 0;
    while let Some(Completion { status, .. }) = near.engine.cq_poll(near.cq) {
        taken += 1;
        world.open -= 1;
        world.completed += 1;
        if status != Status::Ok {
            world.failed = Some(status);
        }
    }
    near.engine.cq_release(near.cq, taken);
    Ok(())
}

/// Delivers packets to the two ends.
struct Wire<'a> {
    far: &'a mut Engine,
    now: Time,
    arrived: &'a mut u64,
}

impl Wire<'_> {
    fn deliver(&mut self, t: &Transmit<'_>) {
        *self.arrived += 1;
        // There is no payload, so placements are ignored.
        let _ = self.far.handle(self.now, &meta(t), &t.packet);
    }
}

struct ToFar<'a, 'b>(&'a mut Wire<'b>);

impl TxSink for ToFar<'_, '_> {
    fn push(&mut self, t: &Transmit<'_>) {
        arrives_at_far(self.0, t);
    }
}

struct ToNear<'a, 'b>(&'a mut Wire<'b>);

impl TxSink for ToNear<'_, '_> {
    fn push(&mut self, t: &Transmit<'_>) {
        arrives_at_near(self.0, t);
    }
}

#[inline(never)]
fn arrives_at_far(wire: &mut Wire<'_>, t: &Transmit<'_>) {
    wire.deliver(t);
    // Makes this differ from `arrives_at_near`; otherwise the linker may merge the two functions.
    std::hint::black_box(1_u8);
}

#[inline(never)]
fn arrives_at_near(wire: &mut Wire<'_>, t: &Transmit<'_>) {
    wire.deliver(t);
    std::hint::black_box(2_u8);
}
