//! The server's side of a measurement: posts receives, echoes, and provides memory.

use super::control::ClientAddress;
use crate::{
    app::{
        link::Remote,
        message::{Operation, PerfOpen, PerfReady, PerfReport, QPS_MAX},
        qkey_random,
    },
    failure::{Failure, Result},
};
use srd::{
    Access, AddressHandle, CompletionOp, CompletionQueue, Device, MemoryRegion, QKey, QpInit,
    QueuePair, RecvWr, SendWr, WorkCompletion, datapath::process_cpu_ns,
};
use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

/// Upper limit of a session's memory in bytes, unless one operation is larger; buffers are reused.
const MEMORY_BYTES: u64 = 64 << 20;
/// Greatest queue depth of a session.
const DEPTH_MAX: u32 = 4096;
/// Most receives of a session, over all its queue pairs.
const RECVS_MAX: u32 = 1 << 14;

/// Next session number; pings are tagged with it.
static NUMBER: AtomicU64 = AtomicU64::new(1);

/// A measurement session.
pub struct PerfSession {
    qps: Vec<QueuePair>,
    memory: MemoryRegion,
    ah: AddressHandle,
    number: u64,
    reply_qkey: QKey,
    qkey: QKey,
    request: PerfOpen,
    messages: u64,
    ping_last: Instant,
    ping_out: bool,
}

/// Prepares a measurement that has passed [`check`].
///
/// # Errors
/// The device has too few resources.
pub fn open(
    device: &Device,
    cq: &CompletionQueue,
    from: ClientAddress,
    reply_qkey: QKey,
    request: &PerfOpen,
) -> Result<(PerfSession, PerfReady)> {
    // A protection domain of its own: no other client's queue pair can access its memory.
    let pd = device.pd_create()?;
    let ah = pd.ah_create(from.ip)?;
    let len = memory_bytes(request);
    let all = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
    let memory = pd.mr_allocate(len as usize, all)?;
    let qkey = qkey_random()?;
    let mut session = PerfSession {
        qps: Vec::new(),
        memory,
        ah,
        number: NUMBER.fetch_add(1, Ordering::Relaxed),
        reply_qkey,
        qkey,
        request: *request,
        messages: 0,
        ping_last: Instant::now(),
        ping_out: false,
    };
    for _ in 0..request.qps {
        let mut init = QpInit::srd(cq, cq);
        init.sq_depth = if request.echo { request.depth } else { 1 };
        init.rq_depth = request.depth;
        let qp = pd.qp_create(&init)?;
        qp.activate(qkey)?;
        for i in 0..session.recvs() {
            session.post_recv(&qp, u64::from(i))?;
        }
        session.qps.push(qp);
    }
    let ready = PerfReady {
        qkey,
        mtu: device.mtu() as u32,
        raddr: session.memory.addr(),
        rkey: session.memory.rkey(),
        len,
        qpns: session.qps.iter().map(|qp| qp.qpn().0).collect(),
    };
    Ok((session, ready))
}

/// Memory of a measurement in bytes: a place for each operation in flight, as at the client.
pub fn memory_bytes(request: &PerfOpen) -> u64 {
    let size = u64::from(request.size.max(1));
    let places = u64::from(request.depth) * u64::from(request.qps);
    size.max(MEMORY_BYTES.min(size * places))
}

/// Checks whether a request is within the limits.
///
/// # Errors
/// The request is out of range; the text names the limit.
pub fn check(device: &Device, request: &PerfOpen) -> Result {
    let PerfOpen { qps, depth, size, .. } = *request;
    if qps == 0 || usize::from(qps) > QPS_MAX {
        return Err(Failure::new(format!("the number of queue pairs must be from 1 to {QPS_MAX}")));
    }
    if depth == 0 || depth > DEPTH_MAX || depth * u32::from(qps) > RECVS_MAX {
        return Err(Failure::new(format!(
            "the window must be from 1 to {DEPTH_MAX}, and at most {RECVS_MAX} with all queue pairs"
        )));
    }
    let mtu = device.mtu() as u32;
    if request.operation == Operation::Send && size > mtu {
        return Err(Failure::new(format!("messages to the server have at most {mtu} bytes")));
    }
    if size > srd::RDMA_BYTES_MAX {
        return Err(Failure::new("an operation has at most 1 GiB"));
    }
    Ok(())
}

impl PerfSession {
    /// Whether the client asked the server to poll continuously.
    pub fn spins(&self) -> bool {
        self.request.spin
    }

    /// Number of the session, unique in this process.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Q_Key of the client's link.
    pub fn reply_qkey(&self) -> QKey {
        self.reply_qkey
    }

    /// Receives to keep posted per queue pair.
    fn recvs(&self) -> u32 {
        match (self.request.operation, self.request.echo) {
            (Operation::Send, _) | (Operation::Write, true) => self.request.depth,
            _ => 0,
        }
    }

    /// Posts a receive. Buffers may overlap, because received data is ignored.
    fn post_recv(&self, qp: &QueuePair, wr_id: u64) -> Result {
        let size = self.request.size;
        if self.request.operation != Operation::Send || size == 0 {
            qp.post_recv(&RecvWr { wr_id, sges: &[] })?;
            return Ok(());
        }
        let places = self.memory.len() as u64 / u64::from(size);
        let offset = (wr_id % places) * u64::from(size);
        let sge = self.memory.sge(offset as usize, size);
        qp.post_recv(&RecvWr { wr_id, sges: &[sge] })?;
        Ok(())
    }

    /// Handles a completion of one of the session's queue pairs.
    ///
    /// # Errors
    /// The client exceeded its window, or has gone.
    #[inline]
    pub fn handle(&mut self, wc: &WorkCompletion) -> Result {
        if !wc.is_ok() {
            return Err(Failure::new(srd::status_text(wc.status)));
        }
        if !matches!(wc.op, CompletionOp::Recv | CompletionOp::RecvRdmaImm) {
            return Ok(());
        }
        self.messages += 1;
        let first = self.qps[0].qpn().index();
        let by_place = usize::from(wc.qpn.index().wrapping_sub(first));
        let at = match self.qps.get(by_place) {
            Some(qp) if qp.qpn() == wc.qpn => by_place,
            _ => self.qps.iter().position(|qp| qp.qpn() == wc.qpn).unwrap_or(0),
        };
        let qp = &self.qps[at];
        if self.request.echo {
            self.echo(qp, wc)?;
        }
        self.post_recv(qp, wc.wr_id)
    }

    fn echo(&self, qp: &QueuePair, wc: &WorkCompletion) -> Result {
        let len = wc.byte_len.min(self.request.size);
        let sges = [self.memory.sge(0, len)];
        let mut wr = match self.request.operation {
            Operation::Write => {
                let to = Remote { raddr: self.request.raddr, rkey: self.request.rkey };
                let wr = SendWr::write(0, &self.ah, wc.src_qpn, self.qkey);
                wr.remote(to.raddr, to.rkey).imm(0)
            }
            _ => SendWr::send(0, &self.ah, wc.src_qpn, self.qkey),
        };
        if len > 0 {
            wr = wr.sges(&sges);
        }
        qp.post_send(&wr)?;
        Ok(())
    }

    /// Reads the counters.
    ///
    /// # Errors
    /// The device is shut down.
    pub fn report(&self, device: &Device) -> Result<PerfReport> {
        Ok(PerfReport {
            cpu_ns: process_cpu_ns(),
            messages: self.messages,
            retransmitted: device.counters()?.engine.retrans_pkts,
        })
    }

    /// Whether the next ping is due.
    pub fn ping_due(&self, now: Instant, every: Duration) -> bool {
        !self.ping_out && now.duration_since(self.ping_last) >= every
    }

    /// Records that a ping was sent.
    pub fn pinging(&mut self, now: Instant) {
        (self.ping_last, self.ping_out) = (now, true);
    }

    /// Records that the ping was acknowledged.
    pub fn pinged(&mut self) {
        self.ping_out = false;
    }
}
