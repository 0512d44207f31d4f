//! The jobs of a hostile world: who sent which request to whom, and how it ended.

use crate::cover::Cover;
use crate::ledger::{Oracle, Violation, fold};
use srd_core::{Endpoint, Opcode, Qpn, Status};
use srd_fabric::NS;
use std::net::IpAddr;

/// A job: one send request.
#[derive(Clone, Debug)]
pub(super) struct Job {
    /// Indices of the two members.
    pub from: usize,
    pub to: usize,
    pub dst: Endpoint,
    pub dst_qpn: Qpn,
    pub op: Opcode,
    pub len: u32,
    pub rkey: u32,
    pub raddr: u64,
    /// It uses the queue pairs for honest work on both sides.
    pub main: bool,
    /// Both sides are honest and alive: it must succeed.
    pub honest: bool,
    /// It must end, with success or an error.
    pub must_end: bool,
    /// The responder must refuse it, so that it ends with this status.
    pub refused: Option<Status>,
    /// It may be longer than the path's packet size, and its operation cannot be segmented.
    pub over: bool,
    /// Index of its flow.
    pub flow: usize,
    pub posted_at: u64,
    pub placed: Cover,
    /// Time and status of its completion.
    pub ended: Option<(u64, Status)>,
}

/// A flow that keeps `depth` jobs outstanding during the load phase.
#[derive(Clone, Debug)]
pub(super) struct Flow {
    pub from: usize,
    pub to: usize,
    pub depth: u32,
    pub honest: bool,
    /// Its jobs must end, with success or an error.
    pub must_end: bool,
    /// When it starts or resumes, in ns.
    pub start_at: u64,
    /// Least time between two jobs, in ns.
    pub each_ns: u64,
    /// Jobs that may still be posted.
    pub left: u32,
    /// Outstanding jobs.
    pub open: u32,
    /// Bytes of jobs that succeeded while throughput counts.
    pub bytes: u64,
    /// Number of these jobs.
    pub pieces: u64,
    /// When its last job ended, and the longest time without such an end while a rail was down.
    pub last_at: u64,
    pub pause_ns: u64,
    /// Many of its jobs are refused, each for a different reason.
    pub faulty: bool,
    /// Its throughput is compared with that in the same world without the hostile side.
    pub compared: bool,
    /// Operations to draw from, and bytes of each job.
    pub ops: &'static [Opcode],
    pub len: u32,
}

impl Flow {
    /// Whether another job may be posted.
    pub fn wants(&self, now: u64) -> bool {
        now >= self.start_at && self.open < self.depth && self.left > 0
    }
}

/// State shared by all members.
#[derive(Debug, Default)]
pub(super) struct Board {
    pub jobs: Vec<Job>,
    pub flows: Vec<Flow>,
    /// When throughput begins to count.
    pub count_from: u64,
    /// End of the load phase: later successes do not count.
    pub load_until: u64,
    /// While a rail is down.
    pub rail_down: (u64, u64),
    pub wrong: Option<Violation>,
    pub packets: u64,
    pub received: u64,
    /// Packet sizes that engines reported since the last check: member, peer, payload.
    pub sizes: Vec<(usize, IpAddr, u16)>,
    /// Hash of all decisions.
    pub hash: u64,
}

/// Content of every region at address `at`.
pub(super) fn region_byte(at: u64) -> u8 {
    (at.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8
}

/// The bytes of job `id` from `offset` on.
pub(super) fn bytes_of(
    id: u32,
    job: &Job,
    offset: u64,
    len: usize,
) -> impl Iterator<Item = u8> + use<> {
    // Reads return the region's content; every other job has its own bytes.
    let salt = if job.op == Opcode::Read { job.raddr } else { u64::from(id) << 40 };
    (0..len as u64).map(move |k| region_byte(salt.wrapping_add(offset).wrapping_add(k)))
}

impl Board {
    /// Records a violation; only the first is kept.
    #[cold]
    pub fn fail(&mut self, now: u64, oracle: Oracle, what: String) {
        self.wrong.get_or_insert(Violation { oracle, at: now * NS, what });
    }

    /// Handles the end of a job.
    pub fn ended(&mut self, now: u64, id: u32, op: Opcode, status: Status) {
        let job = &mut self.jobs[id as usize];
        let twice = job.ended.replace((now, status)).is_some();
        let (flow, honest, len) = (job.flow, job.honest, job.len);
        let took = now - job.posted_at;
        let whole = job.placed.total() == u64::from(len);
        let same = job.op == op;
        self.hash = fold(self.hash, u64::from(id) << 8 | status as u64, now << 20 ^ took);
        let f = &mut self.flows[flow];
        f.open = f.open.saturating_sub(1);
        let (down, up) = self.rail_down;
        let pause_ns = now.min(up).saturating_sub(f.last_at.max(down));
        (f.pause_ns, f.last_at) = (f.pause_ns.max(pause_ns), now);
        let counts = now > self.count_from && now <= self.load_until;
        if honest && status == Status::Ok && counts {
            f.bytes += u64::from(len);
            f.pieces += 1;
        }
        let job = &self.jobs[id as usize];
        if twice || !same {
            self.fail(now, Oracle::Completion, format!("work {id} ended as {op:?}: {job:?}"));
        } else if job.refused.is_some_and(|right| right != status) {
            let what = format!("job {id} must be refused, but ended with {status:?}: {job:?}");
            self.fail(now, Oracle::Verdict, what);
        } else if job.over && status == Status::LocalBadLength {
            if job.placed.total() > 0 {
                let what = format!("job {id} was too long, but has arrived: {job:?}");
                self.fail(now, Oracle::Verdict, what);
            }
        } else if honest && status != Status::Ok {
            let what = format!("honest work {id} ended with {status:?}: {job:?}");
            self.fail(now, Oracle::Verdict, what);
        } else if (honest || op == Opcode::Read && status == Status::Ok) && !whole {
            let what = format!("job {id} succeeded, but bytes are missing: {job:?}");
            self.fail(now, Oracle::CompletionAfterPlacement, what);
        }
    }
}

#[cfg(test)]
#[path = "jobs_tests.rs"]
mod tests;
