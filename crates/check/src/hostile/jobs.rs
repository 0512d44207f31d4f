//! The work of a hostile world: who asked whom for what, and how each piece ended.

use super::peer::Wrong;
use crate::cover::Cover;
use crate::ledger::Oracle;
use srd_core::{Endpoint, Opcode, Qpn, Status};
use std::net::IpAddr;

/// A piece of work: one send request.
#[derive(Clone, Debug)]
pub(super) struct Job {
    /// Members.
    pub from: usize,
    pub to: usize,
    pub dst: Endpoint,
    pub dst_qpn: Qpn,
    pub op: Opcode,
    pub len: u32,
    pub rkey: u32,
    pub raddr: u64,
    /// It goes from one queue pair for honest work to another.
    pub main: bool,
    /// Both sides are honest and alive: it must end well.
    pub honest: bool,
    /// It must end, well or not.
    pub must_end: bool,
    /// It asks for what the responder refuses, and ends with this.
    pub refused: Option<Status>,
    /// It may be longer than what the way carries, and never cut.
    pub over: bool,
    /// Which stream of work it is part of.
    pub flow: usize,
    pub posted_at: u64,
    pub placed: Cover,
    /// When and how it ended.
    pub ended: Option<(u64, Status)>,
}

/// A stream of work that keeps `depth` pieces under way while there is load.
#[derive(Clone, Debug)]
pub(super) struct Flow {
    pub from: usize,
    pub to: usize,
    pub depth: u32,
    pub honest: bool,
    /// Its work must end, well or not.
    pub must_end: bool,
    /// When it begins, or goes on.
    pub start_at: u64,
    /// Time between two pieces at least, in ns.
    pub each_ns: u64,
    /// Pieces that may still be posted.
    pub left: u32,
    /// Pieces under way.
    pub open: u32,
    /// Bytes that ended well while there was load.
    pub bytes: u64,
    /// Pieces that did.
    pub pieces: u64,
    /// Many pieces ask for what is refused, each for a reason of its own.
    pub faulty: bool,
    /// Operations drawn from, and bytes of each.
    pub ops: &'static [Opcode],
    pub len: u32,
}

impl Flow {
    /// Whether another piece may be posted.
    pub fn wants(&self, now: u64) -> bool {
        now >= self.start_at && self.open < self.depth && self.left > 0
    }
}

/// What all members know together.
#[derive(Debug, Default)]
pub(super) struct Board {
    pub jobs: Vec<Job>,
    pub flows: Vec<Flow>,
    /// End of the load: what ends well until then counts.
    pub load_until: u64,
    pub wrong: Option<(u64, Wrong)>,
    pub packets: u64,
    pub received: u64,
    /// What engines have told of sizes since the last look: which, to whom, payload.
    pub sizes: Vec<(usize, IpAddr, u16)>,
    /// Folded over all that was decided.
    pub hash: u64,
}

/// Byte of every region at an address.
pub(super) fn region_byte(at: u64) -> u8 {
    (at.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8
}

/// The bytes of work `id` from `offset` on.
pub(super) fn bytes_of(
    id: u32,
    job: &Job,
    offset: u64,
    len: usize,
) -> impl Iterator<Item = u8> + use<> {
    // Reads give what the region holds; everything else has bytes of its own.
    let salt = if job.op == Opcode::Read { job.raddr } else { u64::from(id) << 40 };
    (0..len as u64).map(move |k| region_byte(salt.wrapping_add(offset).wrapping_add(k)))
}

impl Board {
    /// Notes a broken promise; the first counts.
    #[cold]
    pub fn fail(&mut self, now: u64, oracle: Oracle, what: String) {
        self.wrong.get_or_insert((now, Wrong(oracle, what)));
    }

    fn fold(&mut self, a: u64, b: u64) {
        let x = self.hash.rotate_left(9) ^ a.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ b;
        self.hash = x.wrapping_mul(0xBF58_476D_1CE4_E5B9);
    }

    /// A piece of work has ended.
    pub fn ended(&mut self, now: u64, id: u32, op: Opcode, status: Status) {
        let job = &mut self.jobs[id as usize];
        let twice = job.ended.replace((now, status)).is_some();
        let (flow, honest, len) = (job.flow, job.honest, job.len);
        let took = now - job.posted_at;
        let whole = job.placed.total() == u64::from(len);
        let same = job.op == op;
        self.fold(u64::from(id) << 8 | status as u64, now << 20 ^ took);
        let f = &mut self.flows[flow];
        f.open = f.open.saturating_sub(1);
        if honest && status == Status::Ok && now <= self.load_until {
            f.bytes += u64::from(len);
            f.pieces += 1;
        }
        let job = &self.jobs[id as usize];
        if twice || !same {
            self.fail(now, Oracle::Completion, format!("work {id} ended as {op:?}: {job:?}"));
        } else if job.refused.is_some_and(|right| right != status) {
            let what = format!("work {id}, which is refused, ended with {status:?}: {job:?}");
            self.fail(now, Oracle::Verdict, what);
        } else if job.over && status == Status::LocalBadLength {
            if job.placed.total() > 0 {
                let what = format!("work {id} was too long, and has arrived: {job:?}");
                self.fail(now, Oracle::Verdict, what);
            }
        } else if honest && status != Status::Ok {
            let what = format!("honest work {id} ended with {status:?}: {job:?}");
            self.fail(now, Oracle::Verdict, what);
        } else if (honest || op == Opcode::Read && status == Status::Ok) && !whole {
            let what = format!("work {id} ended, and not all of it is there: {job:?}");
            self.fail(now, Oracle::CompletionAfterPlacement, what);
        }
    }
}
