//! The client's side of a measurement: queue pairs, memory and counters.

use crate::{
    app::{
        client::Client,
        link::{LinkDepth, Remote},
        message::{Body, Operation, PerfOpen, PerfReady},
    },
    device::DeviceArgs,
    failure::{Failure, Result},
    host::{HostName, Server},
    signals::Stop,
};
use hdrhistogram::Histogram;
use srd::{
    Access, CompletionQueue, Device, MemoryRegion, Progress, QpInit, Qpn, QueuePair, RecvWr,
    SendWr, WorkCompletion, datapath::process_cpu_ns,
};
use std::time::{Duration, Instant};

/// Upper limit of the client's memory in bytes, unless one operation is larger; buffers are reused.
const MEMORY_BYTES: u64 = 64 << 20;
/// Most bytes in flight, so that many large operations do not queue for seconds.
const INFLIGHT_BYTES: u64 = 64 << 20;
/// Largest inline message in bytes.
const INLINE_BYTES: u32 = srd::INLINE_BYTES_MAX as u32;
/// Buffers of the link: one request at a time, and a few pings.
const DEPTH: LinkDepth = LinkDepth { sends: 4, recvs: 16, writes: 0 };
/// Time without a completion after which the run has failed. The device gives up earlier.
const SILENCE_MAX: Duration = Duration::from_secs(20);
/// Interval at which a wait checks for a stop request.
const STOP_CHECK: Duration = Duration::from_millis(100);
/// Number of polls between two such checks.
const POLLS_PER_CHECK: u32 = 4096;
/// Largest recorded latency in nanoseconds; longer ones are recorded as this.
const LATENCY_NS_MAX: u64 = 100_000_000_000;

/// Parameters of a measurement.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The operation.
    pub operation: Operation,
    /// Whether the server answers each operation.
    pub echo: bool,
    /// Whether both ends poll continuously.
    pub spin: bool,
    /// Number of queue pairs.
    pub qps: u8,
    /// Operations in flight per queue pair.
    pub window: u32,
    /// Bytes of the largest operation.
    pub size_max: u32,
}

/// Result of one run.
pub struct Run {
    /// Number of completed operations.
    pub iterations: u64,
    /// Elapsed time.
    pub elapsed: Duration,
    /// Latency of each operation in nanoseconds.
    pub latency: Histogram<u64>,
}

impl Run {
    /// An empty result.
    pub fn new() -> Self {
        let latency = Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3);
        let latency = latency.expect("the bounds are constants that fit each other");
        Self { iterations: 0, elapsed: Duration::ZERO, latency }
    }
}

/// Counters of both ends at one point in time.
pub struct Snapshot {
    /// CPU time of this process in nanoseconds.
    pub client_cpu_ns: u64,
    /// CPU time of the server's process in nanoseconds.
    pub server_cpu_ns: u64,
    /// Packets retransmitted by either end.
    pub retransmitted: u64,
    /// Packets sent, per path.
    pub path_packets: Vec<u64>,
}

/// A measurement in progress.
pub struct Session {
    // Fields are dropped in this order: users before what they use.
    pub qps: Vec<QueuePair>,
    pub cq: CompletionQueue,
    pub memory: MemoryRegion,
    client: Client,
    ready: PerfReady,
    /// Bytes that operations may use, the same at both ends: the smaller memory.
    places_bytes: u64,
    pub plan: Plan,
    id: u64,
    silent_since: Instant,
    polls: u32,
}

impl Session {
    /// Opens a client of the server, without a session.
    ///
    /// # Errors
    /// Those of [`Client::open`].
    pub fn connect(args: &DeviceArgs, host: &HostName) -> Result<Client> {
        Client::open(args, host, Progress::Caller, DEPTH)
    }

    /// Opens a session at the server, and creates the queue pairs.
    ///
    /// # Errors
    /// The server cannot be reached or refuses, or the device has too few resources.
    pub fn open(mut client: Client, plan: Plan, stop: &Stop) -> Result<Self> {
        let size = u64::from(plan.size_max.max(1));
        let slots = u64::from(plan.window) * u64::from(plan.qps);
        let len = size.max(MEMORY_BYTES.min(size * slots));
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let memory = client.pd.mr_allocate(len as usize, access)?;
        let id = client.id_next();
        let request = PerfOpen {
            operation: plan.operation,
            echo: plan.echo,
            spin: plan.spin,
            qps: plan.qps,
            depth: plan.window.max(4),
            size: plan.size_max,
            raddr: memory.addr(),
            rkey: memory.rkey(),
        };
        let ready = match client.request(id, Body::PerfOpen(request), stop)?.1 {
            Body::PerfReady(ready)
                if ready.qpns.len() == usize::from(plan.qps) && ready.len >= size =>
            {
                ready
            }
            _ => return Err(unexpected_answer()),
        };
        let places_bytes = ready.len.min(memory.len() as u64);
        let depth = plan.window.max(4);
        let cq = client.open.device.cq_create(2 * depth * u32::from(plan.qps))?;
        let mut session = Self {
            qps: Vec::new(),
            cq,
            memory,
            client,
            ready,
            places_bytes,
            plan,
            id,
            silent_since: Instant::now(),
            polls: 0,
        };
        session.qps_make(depth)?;
        Ok(session)
    }

    fn qps_make(&mut self, depth: u32) -> Result {
        for _ in 0..self.plan.qps {
            let mut init = QpInit::srd(&self.cq, &self.cq);
            (init.sq_depth, init.rq_depth) = (depth, depth);
            init.inline_bytes_max = INLINE_BYTES;
            let qp = self.client.pd.qp_create(&init)?;
            qp.activate(self.ready.qkey)?;
            if self.plan.echo {
                for wr_id in 0..u64::from(depth) {
                    self.post_recv(&qp, wr_id)?;
                }
            }
            self.qps.push(qp);
        }
        Ok(())
    }

    /// Posts a receive for an echo.
    ///
    /// # Errors
    /// The queue is full.
    pub fn post_recv(&self, qp: &QueuePair, wr_id: u64) -> Result {
        let sge = self.memory.sge(0, self.plan.size_max);
        let data = self.plan.operation == Operation::Send && self.plan.size_max > 0;
        let sges = if data { &[sge][..] } else { &[] };
        qp.post_recv(&RecvWr { wr_id, sges })?;
        Ok(())
    }

    /// Posts operation `slot` of `size` bytes. Returns whether the queue accepted it; if not, the
    /// queue is full.
    ///
    /// # Errors
    /// The operation is invalid.
    #[inline]
    pub fn post(&self, slot: u32, size: u32) -> Result<bool> {
        let at = slot as usize % self.qps.len();
        let places = self.places_bytes / u64::from(size.max(1));
        let offset = (u64::from(slot) % places) * u64::from(size);
        let sges = [self.memory.sge(offset as usize, size)];
        let zeros = [0; INLINE_BYTES as usize];
        let (ah, qpn, qkey) = (&self.client.control.ah, Qpn(self.ready.qpns[at]), self.ready.qkey);
        let id = u64::from(slot);
        let to = Remote { raddr: self.ready.raddr + offset, rkey: self.ready.rkey };
        let mut wr = match self.plan.operation {
            Operation::Send => SendWr::send(id, ah, qpn, qkey),
            Operation::Write => SendWr::write(id, ah, qpn, qkey).remote(to.raddr, to.rkey),
            Operation::Read => SendWr::read(id, ah, qpn, qkey).remote(to.raddr, to.rkey),
        };
        if self.plan.operation != Operation::Read && size <= INLINE_BYTES {
            wr = wr.inline(&zeros[..size as usize]);
        } else {
            wr = wr.sges(&sges);
        }
        if self.plan.echo && self.plan.operation == Operation::Write {
            wr = wr.imm(0);
        }
        match self.qps[at].post_send(&wr) {
            Ok(()) => Ok(true),
            Err(e) if e.is_full() => Ok(false),
            Err(e) => Err(e.into()),
        }
    }

    /// Number of operations to keep in flight for this size.
    pub fn inflight(&self, size: u32) -> u32 {
        let slots = self.plan.window * u32::from(self.plan.qps);
        let fit = (INFLIGHT_BYTES / u64::from(size.max(1))).max(2);
        slots.min(u32::try_from(fit).unwrap_or(u32::MAX))
    }

    /// Polls for completions, and waits for one as the plan demands. May return without any.
    /// # Errors
    /// The user requested a stop, no completion arrived within [`SILENCE_MAX`], or an operation
    /// failed.
    #[inline]
    pub fn completions(&mut self, out: &mut [WorkCompletion], stop: &Stop) -> Result<usize> {
        let mut n = self.cq.poll(out)?;
        if n == 0 && !self.plan.spin {
            match self.cq.wait(STOP_CHECK)? {
                Some(wc) => (out[0], n) = (wc, 1),
                None => self.polls = POLLS_PER_CHECK,
            }
            // One sleep counts as many polls.
            self.polls += POLLS_PER_CHECK / 64;
        }
        self.polls += 1;
        if self.polls >= POLLS_PER_CHECK {
            self.stop_check(stop)?;
        }
        for wc in &out[..n] {
            if !wc.is_ok() {
                return Err(self.failed(wc));
            }
        }
        Ok(n)
    }

    /// Records that a completion arrived.
    pub fn heard(&mut self, now: Instant) {
        self.silent_since = now;
    }

    #[cold]
    fn stop_check(&mut self, stop: &Stop) -> Result {
        stop.check()?;
        self.polls = 0;
        if self.silent_since.elapsed() > SILENCE_MAX {
            let text = format!("the server at {} has stopped answering", self.client.server);
            return Err(Failure::new(text));
        }
        Ok(())
    }

    #[cold]
    fn failed(&self, wc: &WorkCompletion) -> Failure {
        match wc.status {
            srd::Status::RemoteBadDestQpn => Failure::new(format!(
                "the server at {} has ended the measurement",
                self.client.server
            )),
            status => self.client.unreachable(status),
        }
    }

    /// Reads the counters of both ends.
    ///
    /// # Errors
    /// Those of [`Client::request`].
    pub fn snapshot(&mut self, stop: &Stop) -> Result<Snapshot> {
        let server = match self.client.request(self.id, Body::PerfQuery, stop)?.1 {
            Body::PerfReport(report) => report,
            _ => return Err(unexpected_answer()),
        };
        let device = self.device();
        let own = device.counters()?.engine.retrans_pkts;
        let paths = device.path_stats(self.client.server.ip)?;
        self.silent_since = Instant::now();
        Ok(Snapshot {
            client_cpu_ns: process_cpu_ns(),
            server_cpu_ns: server.cpu_ns,
            retransmitted: own + server.retransmitted,
            path_packets: paths.iter().map(|p| p.packets_sent).collect(),
        })
    }

    /// Tells the server that the measurement is over.
    ///
    /// # Errors
    /// Those of [`Client::request`].
    pub fn close(&mut self, stop: &Stop) -> Result {
        match self.client.request(self.id, Body::PerfClose, stop)?.1 {
            Body::PerfClosed => Ok(()),
            _ => Err(unexpected_answer()),
        }
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.client.open.device
    }

    /// Address of the server.
    pub fn server(&self) -> Server {
        self.client.server
    }

    /// Largest message in bytes that both ends accept.
    pub fn mtu(&self) -> u32 {
        self.ready.mtu.min(self.device().mtu() as u32)
    }

    /// Summary of the injected faults, if there are any.
    pub fn faults_text(&self) -> Option<String> {
        self.client.open.faults_text()
    }
}

fn unexpected_answer() -> Failure {
    Failure::new("the server sent an answer that does not fit the request")
}
