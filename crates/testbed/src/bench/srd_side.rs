//! The SRD side of a measurement: processes of this program in the hosts' namespaces.

use super::{
    FlowSpec, Outcome,
    block::FlowStats,
    contender::{SlowHost, host_policy_name},
    protocol::{Counted, Order, Report, Run, SendFlow, Watched},
    worker::BLOCKS_SUFFICIENT,
};
use crate::{
    error::{NetError, Result},
    fabric::Fabric,
    ns::NetNs,
    spec::Node,
};
use rustix::process::{Pid, Signal, kill_process};
use srd::HostPolicy;
use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader, Write as _},
    net::IpAddr,
    path::PathBuf,
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    thread,
    time::{Duration, Instant},
};

/// Time limit for a worker to open its device.
const OPEN_TIME: Duration = Duration::from_secs(20);
/// Time limit for a worker to explain what it waits for.
const EXPLAIN_TIME: Duration = Duration::from_millis(500);

/// Configuration of the SRD processes.
#[derive(Clone, Debug)]
pub struct SrdSetup {
    /// Processes per sending host; the host's flows are distributed among them.
    pub processes: usize,
    /// Blocks in flight per flow.
    pub window: u32,
    /// Whether to use one path per peer instead of 64.
    pub one_path: bool,
    /// Whether receivers grant credits.
    pub credits: bool,
    /// Whether the devices are not told the rate of their ports.
    pub unknown_rate: bool,
    /// Requested receive buffer in bytes.
    pub rcvbuf: Option<usize>,
    /// Folder for the traces of the processes.
    pub trace: Option<PathBuf>,
    /// Reaction to a receiving host that is slower than its link; `None`: the default.
    pub host_policy: Option<HostPolicy>,
    /// Blocks in flight that are sufficient for all flows of a worker.
    pub blocks: u32,
    /// The receiving host that is slower than its link, if any, and the round trips measured there.
    pub slow: Option<SlowHost>,
}

impl Default for SrdSetup {
    fn default() -> Self {
        Self {
            processes: 1,
            window: 64,
            one_path: false,
            credits: true,
            unknown_rate: false,
            rcvbuf: None,
            trace: None,
            host_policy: None,
            blocks: BLOCKS_SUFFICIENT,
            slow: None,
        }
    }
}

/// A worker process on a host.
#[derive(Debug)]
pub struct Worker {
    /// Unique number among all started workers.
    id: u64,
    /// The host.
    pub host: (u8, u8),
    child: Child,
    stdin: Option<ChildStdin>,
    qpn: u16,
}

/// A command that runs this program on the host with this address.
///
/// # Errors
/// The path of this program is unknown.
pub fn worker_command(kind: &str, ip: IpAddr) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["net", kind, "--ip", &ip.to_string()]);
    Ok(command)
}

/// All workers of a measurement.
pub struct SrdSide {
    workers: Vec<Worker>,
    /// Reports, with the number of the worker that sent each.
    reports: Receiver<(u64, Report)>,
    sender: Sender<(u64, Report)>,
    started: u64,
    /// For each flow, the worker that sends it and the one that receives it.
    flows: Vec<(usize, usize)>,
    setup: SrdSetup,
    /// The worker that was killed on purpose, if any.
    dead: Option<usize>,
    /// Longest message in bytes.
    pub mtu: u32,
}

impl SrdSide {
    /// Starts the workers that `flows` need. Must be called by the main thread, because workers are
    /// killed when the thread that started them ends.
    ///
    /// # Errors
    /// A worker cannot be started, or cannot open its device.
    pub fn start(fabric: &Fabric, setup: SrdSetup, flows: &[FlowSpec]) -> Result<Self> {
        let (sender, reports) = channel();
        let flows: Vec<FlowSpec> =
            flows.iter().copied().chain(setup.slow.map(|s| s.ping)).collect();
        let flows = &flows[..];
        let mut side = Self {
            workers: Vec::new(),
            reports,
            sender,
            started: 0,
            flows: Vec::new(),
            setup,
            dead: None,
            mtu: 0,
        };
        let mut of_host: BTreeMap<(u8, u8), Vec<usize>> = BTreeMap::new();
        for flow in flows {
            for host in [flow.from, flow.to] {
                if of_host.contains_key(&host) {
                    continue;
                }
                // Receivers are one process per host; only the senders compete.
                let sends = flows.iter().any(|f| f.from == host);
                let count = if sends { side.setup.processes } else { 1 };
                let mut list = Vec::new();
                for _ in 0..count {
                    let worker = side.spawn(fabric, host)?;
                    list.push(side.workers.len());
                    side.workers.push(worker);
                }
                of_host.insert(host, list);
            }
        }
        let mut next: BTreeMap<(u8, u8), usize> = BTreeMap::new();
        for flow in flows {
            let n = next.entry(flow.from).or_default();
            let senders = &of_host[&flow.from];
            side.flows.push((senders[*n % senders.len()], of_host[&flow.to][0]));
            *n += 1;
        }
        side.ready(side.workers.len())?;
        side.flows_tell(fabric, flows)?;
        Ok(side)
    }

    fn spawn(&mut self, fabric: &Fabric, host: (u8, u8)) -> Result<Worker> {
        let spec = fabric.spec();
        let mut command = worker_command("worker", spec.ip(host.0, host.1))?;
        command.args(["--link-rate", &spec.host_bits_per_sec.to_string()]);
        command.args(["--window", &self.setup.window.to_string()]);
        if let Some(bytes) = self.setup.rcvbuf {
            command.args(["--rcvbuf", &bytes.to_string()]);
        }
        if self.setup.one_path {
            command.arg("--one-path");
        }
        command.args(["--blocks", &self.setup.blocks.to_string()]);
        if let Some(policy) = self.setup.host_policy {
            command.args(["--host-policy", host_policy_name(policy)]);
        }
        if let Some(slow) = self.setup.slow.filter(|s| s.ping.to == host) {
            command.args(["--drain", &slow.bits_per_sec.to_string()]);
        }
        if !self.setup.credits {
            command.arg("--no-credits");
        }
        if self.setup.unknown_rate {
            command.arg("--unknown-rate");
        }
        if let Some(folder) = &self.setup.trace {
            std::fs::create_dir_all(folder)?;
            let (seed, number) = (spec.seed, self.started);
            let name = format!("seed{seed}-h{}x{}-{number}.csv", host.0, host.1);
            command.arg("--trace").arg(folder.join(name));
        }
        let home = NetNs::current()?;
        fabric.ns(Node::Host(host.0, host.1))?.enter()?;
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        home.enter()?;
        let mut child = child?;
        let id = self.started;
        self.started += 1;
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().ok_or_else(|| NetError::new("no pipe"))?;
        let tell = self.sender.clone();
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines() {
                let report = line
                    .map_err(NetError::from)
                    .and_then(|l| serde_json::from_str(&l).map_err(NetError::from))
                    .unwrap_or_else(|e| Report::Failed(e.to_string()));
                if tell.send((id, report)).is_err() {
                    return;
                }
            }
            // The worker has ended; after an order to quit there is no receiver.
            let _ = tell.send((id, Report::Failed("the process has ended".into())));
        });
        Ok(Worker { id, host, child, stdin, qpn: 0 })
    }

    fn ready(&mut self, mut missing: usize) -> Result {
        while missing > 0 {
            match self.next(Instant::now() + OPEN_TIME)? {
                (index, Report::Ready { qpn, mtu }) => {
                    self.workers[index].qpn = qpn;
                    self.mtu = mtu;
                    missing -= 1;
                }
                (index, other) => return Err(self.unexpected(index, &other)),
            }
        }
        Ok(())
    }

    fn flows_tell(&mut self, fabric: &Fabric, flows: &[FlowSpec]) -> Result {
        let mut orders: Vec<(Vec<SendFlow>, Vec<u32>)> =
            self.workers.iter().map(|_| Default::default()).collect();
        for (number, (flow, (from, to))) in flows.iter().zip(&self.flows).enumerate() {
            let flow_number = number as u32;
            let ip = fabric.spec().ip(flow.to.0, flow.to.1);
            // With a slow host, the last flow consists of small round-trip messages.
            let ping = self.setup.slow.is_some() && number + 1 == self.flows.len();
            let send = SendFlow { flow: flow_number, ip, qpn: self.workers[*to].qpn, ping };
            orders[*from].0.push(send);
            if !ping {
                orders[*to].1.push(flow_number);
            }
        }
        for (index, (send, receive)) in orders.into_iter().enumerate() {
            self.order(index, &Order::Flows { send, receive })?;
        }
        Ok(())
    }

    fn order(&mut self, index: usize, order: &Order) -> Result {
        if self.dead == Some(index) {
            return Ok(());
        }
        let worker = &mut self.workers[index];
        let host = Node::Host(worker.host.0, worker.host.1);
        let mut line = serde_json::to_vec(order)?;
        line.push(b'\n');
        let written = worker.stdin.as_mut().map_or(Ok(()), |w| w.write_all(&line));
        written.map_err(|e| {
            NetError::system(&format!("cannot send orders to the process on {host}"), e)
        })
    }

    fn next(&mut self, deadline: Instant) -> Result<(usize, Report)> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let (id, report) = match self.reports.recv_timeout(left) {
                Ok(r) => r,
                Err(RecvTimeoutError::Timeout) => {
                    self.explain();
                    return Err(NetError::new(
                        "an SRD process did not answer in time (see above what each waits for)",
                    ));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(NetError::new("all SRD processes have ended"));
                }
            };
            // Reports of killed and of replaced workers are ignored.
            let from = self.workers.iter().position(|w| w.id == id);
            if let Some(index) = from.filter(|i| Some(*i) != self.dead) {
                return Ok((index, report));
            }
        }
    }

    /// Lets every worker explain on standard error what it waits for.
    pub fn explain(&mut self) {
        for index in 0..self.workers.len() {
            // Failures are ignored: the worker may have ended.
            let _ = self.order(index, &Order::Explain);
        }
        thread::sleep(EXPLAIN_TIME);
    }

    fn unexpected(&self, index: usize, report: &Report) -> NetError {
        let (l, h) = self.workers[index].host;
        match report {
            Report::Failed(why) => NetError::new(format!("the SRD process on h{l}x{h}: {why}")),
            other => {
                NetError::new(format!("the SRD process on h{l}x{h} sent an unexpected {other:?}"))
            }
        }
    }

    /// Executes one run: from `run.start_ns` until all blocks have arrived, or `deadline`.
    ///
    /// # Errors
    /// A worker fails or does not answer.
    pub fn run(&mut self, run: Run, deadline: Instant) -> Result<Outcome> {
        let senders: Vec<usize> = {
            let mut s: Vec<usize> = self.flows.iter().map(|f| f.0).collect();
            s.sort_unstable();
            s.dedup();
            s
        };
        for index in 0..self.workers.len() {
            self.order(index, &Order::Go(run))?;
        }
        let mut out = Outcome { start_ns: run.start_ns, ..Outcome::default() };
        let mut sent: BTreeMap<u32, u64> = BTreeMap::new();
        let mut left = senders;
        while !left.is_empty() {
            match self.next(deadline)? {
                (index, Report::Sent { blocks, failed, why }) => {
                    if left.contains(&index) {
                        left.retain(|i| *i != index);
                        sent.extend(blocks);
                        out.failed += failed;
                        if out.why.is_empty() {
                            out.why = why;
                        }
                    }
                }
                (index, other) => return Err(self.unexpected(index, &other)),
            }
        }
        let (flows, damaged) = self.collect()?;
        out.damaged = damaged;
        for flow in flows {
            let accepted = sent.get(&flow.flow).copied().unwrap_or(0);
            out.lost += accepted.saturating_sub(flow.blocks);
            out.duplicated += flow.duplicated;
            out.flows.push(flow);
        }
        out.flows.sort_by_key(|f| f.flow);
        Ok(out)
    }

    fn collect(&mut self) -> Result<(Vec<FlowStats>, u64)> {
        let mut receivers: Vec<usize> = self.flows.iter().map(|f| f.1).collect();
        receivers.sort_unstable();
        receivers.dedup();
        receivers.retain(|i| Some(*i) != self.dead);
        for index in &receivers {
            self.order(*index, &Order::Collect)?;
        }
        let (mut all, mut bad) = (Vec::new(), 0);
        let deadline = Instant::now() + Duration::from_secs(10);
        while !receivers.is_empty() {
            match self.next(deadline)? {
                (index, Report::Received { flows, damaged }) => {
                    receivers.retain(|i| *i != index);
                    all.extend(flows);
                    bad += damaged;
                }
                // A worker without flows to send reports `Sent` at once.
                (_, Report::Sent { .. }) => {}
                (index, other) => return Err(self.unexpected(index, &other)),
            }
        }
        Ok((all, bad))
    }

    /// The workers that send and receive flow 0.
    pub fn ends(&self) -> (usize, usize) {
        self.flows[0]
    }

    /// Process ID of a worker.
    pub fn pid(&self, index: usize) -> Pid {
        Pid::from_child(&self.workers[index].child)
    }

    /// Sends a signal to a worker.
    ///
    /// # Errors
    /// The worker has ended.
    pub fn signal(&self, index: usize, signal: Signal) -> Result {
        kill_process(self.pid(index), signal)
            .map_err(|e| NetError::system("cannot signal a process", e))
    }

    /// Begins a run, kills a worker in the middle of it (`kill -9`), and waits until all sends of
    /// the remaining senders have completed. Returns the data of the remaining receivers, which
    /// must contain no duplicate or damaged block.
    ///
    /// # Errors
    /// Another worker fails, or a send does not complete within `limit`.
    pub fn run_killing(
        &mut self,
        run: Run,
        victim: usize,
        after: Duration,
        limit: Duration,
    ) -> Result<Outcome> {
        for index in 0..self.workers.len() {
            self.order(index, &Order::Go(run))?;
        }
        let ahead = run.start_ns.saturating_sub(super::block::now_ns());
        thread::sleep(Duration::from_nanos(ahead) + after);
        self.signal(victim, Signal::KILL)?;
        self.workers[victim].child.wait()?;
        self.dead = Some(victim);
        let mut out = Outcome { start_ns: run.start_ns, ..Outcome::default() };
        let mut left: Vec<usize> = (0..self.workers.len()).filter(|i| *i != victim).collect();
        let deadline = Instant::now() + run.length() + limit;
        while !left.is_empty() {
            match self.next(deadline)? {
                (index, Report::Sent { failed, why, .. }) => {
                    left.retain(|i| *i != index);
                    out.failed += failed;
                    if out.why.is_empty() {
                        out.why = why;
                    }
                }
                (index, other) => return Err(self.unexpected(index, &other)),
            }
        }
        let (flows, damaged) = self.collect()?;
        out.damaged = damaged;
        out.duplicated = flows.iter().map(|f| f.duplicated).sum();
        out.flows = flows;
        Ok(out)
    }

    /// Starts a killed worker again, and sends the flows to all workers.
    ///
    /// # Errors
    /// The worker cannot be started.
    pub fn restart(&mut self, fabric: &Fabric, index: usize, flows: &[FlowSpec]) -> Result {
        // Dropping the old worker closes its pipes.
        self.workers[index] = self.spawn(fabric, self.workers[index].host)?;
        self.dead = None;
        self.ready(1)?;
        self.flows_tell(fabric, flows)
    }

    /// Sums of all workers' counters (memory: the largest).
    ///
    /// # Errors
    /// A worker does not answer.
    pub fn counters(&mut self) -> Result<Counted> {
        let mut sum = Counted::default();
        self.ask_all(&Order::Counters, |report| match report {
            Report::Counters(c) => {
                sum.add(&c);
                None
            }
            other => Some(other),
        })?;
        Ok(sum)
    }

    /// Starts counting times again, for times measured from `from_ns` until before `until_ns`.
    ///
    /// # Errors
    /// A worker has ended.
    pub fn watch(&mut self, from_ns: u64, until_ns: u64) -> Result {
        (0..self.workers.len()).try_for_each(|i| self.order(i, &Order::Watch { from_ns, until_ns }))
    }

    /// The times counted by all workers.
    ///
    /// # Errors
    /// A worker does not answer.
    pub fn times(&mut self) -> Result<Watched> {
        let mut sum = Watched::default();
        self.ask_all(&Order::Times, |report| match report {
            Report::Times(watched) => {
                sum.add(&watched);
                None
            }
            other => Some(other),
        })?;
        Ok(sum)
    }

    /// Sends an order to all workers and passes each report to `take`, which returns reports that
    /// are not answers to the order.
    fn ask_all(&mut self, order: &Order, mut take: impl FnMut(Report) -> Option<Report>) -> Result {
        for index in 0..self.workers.len() {
            self.order(index, order)?;
        }
        let mut left = self.workers.len() - usize::from(self.dead.is_some());
        let deadline = Instant::now() + Duration::from_secs(10);
        while left > 0 {
            let (index, report) = self.next(deadline)?;
            match take(report) {
                None => left -= 1,
                // A worker without flows to send reports `Sent` at once.
                Some(Report::Sent { .. }) => {}
                Some(other) => return Err(self.unexpected(index, &other)),
            }
        }
        Ok(())
    }
}

impl Drop for SrdSide {
    fn drop(&mut self) {
        for worker in &mut self.workers {
            // The end of its standard input makes a worker exit.
            worker.stdin = None;
        }
        let deadline = Instant::now() + Duration::from_millis(500);
        for worker in &mut self.workers {
            while matches!(worker.child.try_wait(), Ok(None)) && Instant::now() < deadline {
                thread::sleep(Duration::from_millis(2));
            }
            // Fails if the worker has ended already, which is usual.
            let _ = worker.child.kill();
            let _ = worker.child.wait();
        }
    }
}
