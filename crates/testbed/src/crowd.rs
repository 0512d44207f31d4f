//! Thousands of peers of one process: hosts with hundreds of small engines each.

use crate::{
    bench::srd_side::worker_command,
    error::{NetError, Result},
    fabric::Fabric,
    ns::NetNs,
    spec::{FabricSpec, Node},
};
use clap::Args;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use srd::{
    Access, CompletionQueue, Device, DeviceConfig, MemoryRegion, Progress, QKey, QpInit, Qpn,
    QueuePair, RecvWr, SendWr,
};
use std::{
    io::{BufRead as _, BufReader, Write as _},
    net::IpAddr,
    process::{Child, ChildStdin, ChildStdout, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

const QKEY: QKey = QKey(0x6372_6F77);
/// Engines per host: slots 0 to 199.
const ENGINES: u32 = 200;
/// Messages sent to each peer.
const ROUNDS: u32 = 2;
/// Most outstanding requests of the one process.
const WINDOW: usize = 2000;

/// Options of a host with many engines.
#[derive(Clone, Debug, Args)]
pub struct CrowdArgs {
    /// Address of the host
    #[arg(long)]
    pub ip: IpAddr,
    /// Number of engines
    #[arg(long)]
    pub count: u32,
}

struct Member {
    device: Device,
    cq: CompletionQueue,
    qp: QueuePair,
    target: MemoryRegion,
    received: u32,
}

impl Member {
    fn open(ip: IpAddr) -> Result<Self> {
        let mut config = DeviceConfig::ip(ip);
        config.progress = Progress::Caller;
        config.paths = 1;
        config.tune = Some(Box::new(|engine| {
            (engine.wrs_max, engine.contexts_max, engine.window) = (16, 16, 64);
        }));
        config.tune_udp = Some(Box::new(|udp| udp.rcvbuf_bytes = 65_536));
        let device = Device::open(config)?;
        let pd = device.pd_create()?;
        let cq = device.cq_create(16)?;
        let init = QpInit { sq_depth: 4, rq_depth: 4, ..QpInit::srd(&cq, &cq) };
        let qp = pd.qp_create(&init)?;
        qp.activate(QKEY)?;
        let target = pd.mr_allocate(4096, Access::LOCAL_WRITE)?;
        for slot in 0..4 {
            qp.post_recv(&RecvWr { wr_id: slot, sges: &[target.sge(64 * slot as usize, 64)] })?;
        }
        Ok(Self { device, cq, qp, target, received: 0 })
    }

    /// Drives the device; returns whether a message arrived.
    fn turn(&mut self) -> Result<bool> {
        let mut busy = self.device.progress()?;
        while let Some(wc) = self.cq.poll_one()? {
            busy = true;
            self.received += 1;
            let sges = [self.target.sge(64 * wc.wr_id as usize, 64)];
            self.qp.post_recv(&RecvWr { wr_id: wc.wr_id, sges: &sges })?;
        }
        Ok(busy)
    }
}

/// Raises the limit of open files as far as the system allows.
fn files_raise() -> Result {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })?;
    Ok(())
}

/// Runs a host with many engines until standard input ends. Answers each line on standard input
/// with the number of messages that each engine has received.
///
/// # Errors
/// A device cannot be opened.
pub fn host(args: &CrowdArgs) -> Result {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    files_raise()?;
    let members: Result<Vec<Member>> = (0..args.count).map(|_| Member::open(args.ip)).collect();
    let mut members = members?;
    let say = |text: &str| -> Result {
        let mut out = std::io::stdout().lock();
        writeln!(out, "{text}").and_then(|()| out.flush())?;
        Ok(())
    };
    let qpns: Vec<u16> = members.iter().map(|m| m.qp.qpn().0).collect();
    say(&serde_json::to_string(&qpns)?)?;
    let (tell, asked) = mpsc::channel();
    thread::spawn(move || {
        for line in std::io::stdin().lines() {
            if line.is_err() || tell.send(()).is_err() {
                return;
            }
        }
    });
    loop {
        let mut busy = false;
        for member in &mut members {
            busy |= member.turn()?;
        }
        match asked.try_recv() {
            Ok(()) => {
                let counts: Vec<u32> = members.iter().map(|m| m.received).collect();
                say(&serde_json::to_string(&counts)?)?;
            }
            Err(mpsc::TryRecvError::Disconnected) => return Ok(()),
            Err(mpsc::TryRecvError::Empty) => {}
        }
        if !busy {
            thread::sleep(Duration::from_millis(20));
        }
    }
}

struct Crowd {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    ip: IpAddr,
    qpns: Vec<u16>,
}

impl Crowd {
    fn start(fabric: &Fabric, host: (u8, u8), count: u32) -> Result<Self> {
        let ip = fabric.spec().ip(host.0, host.1);
        let mut command = worker_command("crowd", ip)?;
        command.args(["--count", &count.to_string()]);
        let home = NetNs::current()?;
        fabric.ns(Node::Host(host.0, host.1))?.enter()?;
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        home.enter()?;
        let mut child = child?;
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().ok_or_else(|| NetError::new("no pipe"))?;
        Ok(Self { child, stdin, stdout: BufReader::new(stdout), ip, qpns: Vec::new() })
    }

    fn line<T: serde::de::DeserializeOwned>(&mut self) -> Result<T> {
        let mut line = String::new();
        self.stdout.read_line(&mut line)?;
        serde_json::from_str(&line)
            .map_err(|_| NetError::new(format!("the engines at {} ended early", self.ip)))
    }

    fn counts(&mut self) -> Result<Vec<u32>> {
        if let Some(stdin) = &mut self.stdin {
            stdin.write_all(b"\n")?;
        }
        self.line()
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.stdin = None;
        // Fails if the process has ended already, which is usual.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends messages from one process with one queue pair to `peers` peers.
///
/// # Errors
/// A message is lost, arrives twice, or fails.
pub fn check(peers: u32) -> Result<String> {
    let hosts = peers.div_ceil(ENGINES);
    let spec = FabricSpec {
        spines: 2,
        leaves: 2,
        hosts: u8::try_from(hosts).map_err(|_| NetError::usage("too many peers"))?,
        host_bits_per_sec: 1_000_000_000,
        uplink_bits_per_sec: 1_000_000_000,
        ..FabricSpec::default()
    };
    let (fabric, _) = Fabric::build(&spec)?;
    let mut crowds = Vec::new();
    let mut left = peers;
    for h in 0..hosts {
        let count = left.min(ENGINES);
        left -= count;
        crowds.push(Crowd::start(&fabric, (1, h as u8), count)?);
    }
    for crowd in &mut crowds {
        crowd.qpns = crowd.line()?;
    }
    let targets: Vec<(IpAddr, Vec<u16>)> = crowds.iter().map(|c| (c.ip, c.qpns.clone())).collect();
    let ns = fabric.ns(Node::Host(0, 0))?;
    let (seconds, bytes) = ns.inside(|| call(spec.ip(0, 0), &targets))?;
    let mut wrong = 0;
    for crowd in &mut crowds {
        wrong += crowd.counts()?.iter().filter(|n| **n != ROUNDS).count();
    }
    if wrong > 0 {
        return Err(NetError::new(format!(
            "{wrong} of {peers} peers did not get {ROUNDS} messages"
        )));
    }
    Ok(format!(
        "one process, one queue pair, {peers} peers: {} messages each once in {seconds:.1} s; \
         {bytes} bytes of memory per peer",
        u64::from(peers) * u64::from(ROUNDS)
    ))
}

fn memory() -> Result<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm")?;
    let pages: u64 = statm.split(' ').nth(1).and_then(|w| w.parse().ok()).unwrap_or(0);
    Ok(pages * rustix::param::page_size() as u64)
}

/// Sends each peer its messages. Returns the time in seconds, and the memory per peer in bytes.
fn call(ip: IpAddr, targets: &[(IpAddr, Vec<u16>)]) -> Result<(f64, u64)> {
    let mut config = DeviceConfig::ip(ip);
    config.progress = Progress::Caller;
    config.tune = Some(Box::new(|engine| engine.line_set(125_000_000)));
    let device = Device::open(config)?;
    let pd = device.pd_create()?;
    let cq = device.cq_create(4096)?;
    let qp = pd.qp_create(&QpInit { sq_depth: 4096, ..QpInit::srd(&cq, &cq) })?;
    qp.activate(QKEY)?;
    let ahs: Result<Vec<_>, _> = targets.iter().map(|(ip, _)| pd.ah_create(*ip)).collect();
    let ahs = ahs?;
    let before = memory()?;
    let began = Instant::now();
    let mut queue = Vec::new();
    for round in 0..ROUNDS {
        for (ah, (_, qpns)) in ahs.iter().zip(targets) {
            queue.extend(qpns.iter().map(|q| (ah, Qpn(*q), round)));
        }
    }
    let (mut posted, mut done) = (0, 0);
    while done < queue.len() {
        while posted < queue.len() && posted - done < WINDOW {
            let (ah, qpn, round) = queue[posted];
            let text = round.to_le_bytes();
            let wr = SendWr::send(posted as u64, ah, qpn, QKEY).inline(&text);
            match qp.post_send(&wr) {
                Ok(()) => posted += 1,
                Err(e) if e.is_full() => break,
                Err(e) => return Err(e.into()),
            }
        }
        if let Some(wc) = cq.wait(Duration::from_secs(1))? {
            if !wc.is_ok() {
                return Err(NetError::new(format!(
                    "message {} of {}: {}",
                    wc.wr_id,
                    queue.len(),
                    srd::status_text(wc.status)
                )));
            }
            done += 1;
        } else if began.elapsed() > Duration::from_secs(60) {
            return Err(NetError::new(format!("{done} of {} messages in 60 s", queue.len())));
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    let peers: usize = targets.iter().map(|t| t.1.len()).sum();
    Ok((seconds, memory()?.saturating_sub(before) / peers.max(1) as u64))
}
