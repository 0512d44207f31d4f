//! Queue pairs: posting, and waiting for completions.

use crate::{
    completion::Completion,
    device::Peer,
    errors::{DeviceError, PostError, device, post},
    region::Region,
};
use pyo3::{exceptions::PyTimeoutError, prelude::*, pybacked::PyBackedBytes};
use srd::{
    CompletionChannel, CompletionQueue, CqInit, INLINE_BYTES_MAX, PeerInfo, ProtectionDomain, QKey,
    QpInit, RKey, RecvWr, SendWr, Sge, WorkCompletion,
};
use std::{
    collections::HashMap,
    os::fd::AsRawFd as _,
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// Completions that one call takes.
const POLL_MAX: usize = 64;
/// A wait looks this often whether Ctrl-C was pressed.
const SIGNALS_EVERY: Duration = Duration::from_millis(50);

/// A queue pair with a completion queue of its own.
#[pyclass(frozen, module = "srd._native")]
pub struct QueuePair {
    qp: srd::QueuePair,
    cq: CompletionQueue,
    channel: CompletionChannel,
    qkey: u32,
    next_id: AtomicU64,
    /// Regions of requests that have not ended: they must not go before.
    held: Mutex<HashMap<u64, Py<Region>>>,
}

impl QueuePair {
    /// Makes one, ready to send.
    pub fn create(
        owner: &srd::Device,
        pd: &ProtectionDomain,
        depth: u32,
        qkey: u32,
    ) -> PyResult<Self> {
        let channel = owner.channel_create().map_err(device)?;
        let slots = depth.saturating_mul(2);
        let init = CqInit { depth: slots, channel: Some(&channel), context: 0 };
        let cq = owner.cq_create_ex(&init).map_err(device)?;
        let mut init = QpInit::srd(&cq, &cq);
        (init.sq_depth, init.rq_depth) = (depth, depth);
        init.inline_bytes_max = INLINE_BYTES_MAX as u32;
        let qp = pd.qp_create(&init).map_err(device)?;
        qp.activate(QKey(qkey)).map_err(device)?;
        let (next_id, held) = (AtomicU64::new(1), Mutex::default());
        Ok(Self { qp, cq, channel, qkey, next_id, held })
    }

    fn held(&self) -> MutexGuard<'_, HashMap<u64, Py<Region>>> {
        self.held.lock().expect("nobody panics while it is held")
    }

    /// Lets go of the region of a request. The lock is free again before the region is: the last
    /// use of its buffer may run a program's `__del__`, which may post.
    fn release(&self, id: u64) {
        let region = self.held().remove(&id);
        drop(region);
    }

    /// Posts by `post`, which gets the number of the request, and holds the region meanwhile.
    fn posted(
        &self,
        region: Option<Py<Region>>,
        post_it: impl FnOnce(u64) -> Result<(), srd::PostError>,
    ) -> PyResult<u64> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        // Before it is posted: it may end at once.
        if let Some(region) = region {
            self.held().insert(id, region);
        }
        post_it(id).map_err(|e| {
            self.release(id);
            post(e)
        })?;
        Ok(id)
    }

    fn rdma(
        &self,
        region: Py<Region>,
        piece: Sge,
        wr: SendWr<'_>,
        remote: (u64, u32, usize),
        remote_offset: usize,
    ) -> PyResult<u64> {
        let (address, rkey, len) = remote;
        let nbytes = piece.len as usize;
        if remote_offset.checked_add(nbytes).is_none_or(|end| end > len) {
            return Err(PostError::new_err(format!(
                "{nbytes} bytes from {remote_offset} on are beyond the peer's region of {len} bytes"
            )));
        }
        let wr = wr.remote(address.wrapping_add(remote_offset as u64), RKey(rkey));
        let pieces = [piece];
        self.posted(Some(region), |id| self.qp.post_send(&SendWr { wr_id: id, ..wr.sges(&pieces) }))
    }

    /// Takes a completion; the region of its request is free again.
    fn taken(&self, done: WorkCompletion) -> Completion {
        self.release(done.wr_id);
        Completion(done)
    }
}

#[pymethods]
impl QueuePair {
    /// What the other side gives to `Device.peer`.
    #[getter]
    fn address(&self) -> String {
        PeerInfo::of(&self.qp, QKey(self.qkey)).to_string()
    }

    /// Requests posted and not ended: sends, and receives.
    #[getter]
    fn outstanding(&self) -> (u32, u32) {
        (self.qp.sends_outstanding(), self.qp.recvs_outstanding())
    }

    /// Posts bytes as one message; they are copied at once. Returns the number of the request.
    #[pyo3(signature = (peer, data, *, imm=None))]
    fn send(
        &self,
        py: Python<'_>,
        peer: &Peer,
        data: PyBackedBytes,
        imm: Option<u32>,
    ) -> PyResult<u64> {
        if data.len() > INLINE_BYTES_MAX {
            let region = Region::allocate(self.qp.pd(), data.len(), false, false)?;
            region.region.write_at(0, &data).map_err(device)?;
            return self.send_region(py, peer, Py::new(py, region)?, 0, None, imm);
        }
        self.posted(None, |id| {
            let wr = SendWr::send(id, &peer.ah, peer.qpn, peer.qkey).inline(&data);
            self.qp.post_send(&imm.map_or(wr, |imm| wr.imm(imm)))
        })
    }

    /// Posts a part of a region as one message, without a copy: it must not change before the
    /// completion.
    #[pyo3(signature = (peer, region, offset=0, nbytes=None, *, imm=None))]
    fn send_region(
        &self,
        py: Python<'_>,
        peer: &Peer,
        region: Py<Region>,
        offset: usize,
        nbytes: Option<usize>,
        imm: Option<u32>,
    ) -> PyResult<u64> {
        let pieces = [region.borrow(py).piece(offset, nbytes)?];
        self.posted(Some(region), |id| {
            let wr = SendWr::send(id, &peer.ah, peer.qpn, peer.qkey).sges(&pieces);
            self.qp.post_send(&imm.map_or(wr, |imm| wr.imm(imm)))
        })
    }

    /// Posts room for one message: a part of a region.
    #[pyo3(signature = (region, offset=0, nbytes=None))]
    fn recv(
        &self,
        py: Python<'_>,
        region: Py<Region>,
        offset: usize,
        nbytes: Option<usize>,
    ) -> PyResult<u64> {
        let pieces = [region.borrow(py).piece(offset, nbytes)?];
        self.posted(Some(region), |wr_id| self.qp.post_recv(&RecvWr { wr_id, sges: &pieces }))
    }

    /// Writes a part of a region into the peer's: `remote` is `Region.remote` of that one.
    #[pyo3(signature = (peer, region, remote, *, offset=0, nbytes=None, remote_offset=0, imm=None))]
    #[allow(clippy::too_many_arguments, reason = "named arguments of Python")]
    fn write(
        &self,
        py: Python<'_>,
        peer: &Peer,
        region: Py<Region>,
        remote: (u64, u32, usize),
        offset: usize,
        nbytes: Option<usize>,
        remote_offset: usize,
        imm: Option<u32>,
    ) -> PyResult<u64> {
        let piece = region.borrow(py).piece(offset, nbytes)?;
        let wr = SendWr::write(0, &peer.ah, peer.qpn, peer.qkey);
        let wr = imm.map_or(wr, |imm| wr.imm(imm));
        self.rdma(region, piece, wr, remote, remote_offset)
    }

    /// Reads a part of the peer's region into this one.
    #[pyo3(signature = (peer, region, remote, *, offset=0, nbytes=None, remote_offset=0))]
    #[allow(clippy::too_many_arguments, reason = "named arguments of Python")]
    fn read(
        &self,
        py: Python<'_>,
        peer: &Peer,
        region: Py<Region>,
        remote: (u64, u32, usize),
        offset: usize,
        nbytes: Option<usize>,
        remote_offset: usize,
    ) -> PyResult<u64> {
        let piece = region.borrow(py).piece(offset, nbytes)?;
        let wr = SendWr::read(0, &peer.ah, peer.qpn, peer.qkey);
        self.rdma(region, piece, wr, remote, remote_offset)
    }

    /// Takes the completions that are there, at most 64; does not wait, and does not raise for
    /// failed requests (`Completion.check`).
    fn poll(&self) -> PyResult<Vec<Completion>> {
        let mut found = [WorkCompletion::default(); POLL_MAX];
        let n = self.cq.poll(&mut found).map_err(device)?;
        Ok(found[..n].iter().map(|done| self.taken(*done)).collect())
    }

    /// Waits for one completion, at most `timeout_s` seconds (`None`: for ever).
    #[pyo3(signature = (timeout_s=None))]
    fn wait(&self, py: Python<'_>, timeout_s: Option<f64>) -> PyResult<Completion> {
        let wrong = || DeviceError::new_err("timeout_s must be a number of seconds, 0 or more");
        let limit = timeout_s.map(|s| Duration::try_from_secs_f64(s).map_err(|_| wrong()));
        // A time that no clock reaches is no limit.
        let deadline = limit.transpose()?.and_then(|limit| Instant::now().checked_add(limit));
        loop {
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            let slice = left.unwrap_or(SIGNALS_EVERY).min(SIGNALS_EVERY);
            if let Some(done) = py.detach(|| self.cq.wait(slice)).map_err(device)? {
                let done = self.taken(done);
                done.check()?;
                return Ok(done);
            }
            py.check_signals()?;
            if left.is_some_and(|left| left.is_zero()) {
                let (sends, receives) = self.outstanding();
                return Err(PyTimeoutError::new_err(format!(
                    "no completion within {} s; outstanding: {sends} sends, {receives} receives",
                    timeout_s.unwrap_or_default()
                )));
            }
        }
    }

    /// Descriptor that becomes readable when a completion arrives after `arm`.
    fn fileno(&self) -> i32 {
        self.channel.as_raw_fd()
    }

    /// Makes the next completion, or one that is there already, a notification at `fileno`.
    /// Earlier notifications are forgotten.
    fn arm(&self) -> PyResult<()> {
        while self.channel.try_get().is_some() {}
        self.cq.req_notify().map_err(device)
    }

    fn __repr__(&self) -> String {
        format!("<QueuePair {}>", self.address())
    }
}
