//! Many processes read from one, and are killed in the middle: what they held there is free again
//! for the next job.

use crate::{
    bench::srd_side::worker_command,
    error::{NetError, Result},
    fabric::Fabric,
    ns::NetNs,
    spec::{FabricSpec, Node},
};
use clap::Args;
use rustix::process::Signal;
use srd::{
    Access, AddressHandle, Device, DeviceConfig, MemoryRegion, Progress, QpInit, Qpn, QueuePair,
    SendWr, WorkCompletion,
};
use std::{
    io::{BufRead as _, BufReader, Write as _},
    net::IpAddr,
    process::{Child, ChildStdout, Stdio},
    time::{Duration, Instant},
};

const QKEY: u32 = 0x7264_7273;
/// Processes of the job that dies: the ranks of one large host.
const DYING: usize = 64;
/// Processes of the job after it.
const NEXT: usize = 8;
/// Reads that each process has under way: with [`DYING`], all 4,096 that a device serves at once.
const READS: u32 = 64;
/// Bytes of a read of the job that dies: long enough to be in the middle of it when it is killed.
const DYING_BYTES: u32 = 8 << 20;
/// Bytes of a read of the next job.
const NEXT_BYTES: u32 = 64 << 10;
/// Bytes that can be read.
const REGION_BYTES: usize = DYING_BYTES as usize;
/// How long a reader waits for its reads.
const READ_LIMIT: Duration = Duration::from_secs(40);

/// Options of a process that reads.
#[derive(Clone, Debug, Args)]
pub struct ReaderArgs {
    /// Address of its host
    #[arg(long)]
    pub ip: IpAddr,
    /// Address of the process that is read from
    #[arg(long)]
    pub from: IpAddr,
    /// Its queue pair
    #[arg(long)]
    pub qpn: u16,
    /// Key of its region
    #[arg(long)]
    pub rkey: u32,
    /// Address of its region
    #[arg(long)]
    pub addr: u64,
    /// Bytes of each read
    #[arg(long)]
    pub bytes: u32,
}

/// A process that reads: says "reading" once its reads are being served, and "done" when all have
/// ended well.
///
/// # Errors
/// A read fails, or does not end.
pub fn reader(args: &ReaderArgs) -> Result {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    let mut config = DeviceConfig::ip(args.ip);
    (config.progress, config.paths) = (Progress::Caller, 8);
    config.tune_udp = Some(Box::new(|udp| udp.rcvbuf_bytes = 1 << 20));
    let device = Device::open(config)?;
    let pd = device.pd_create()?;
    let cq = device.cq_create(READS)?;
    let qp = pd.qp_create(&QpInit { sq_depth: READS, ..QpInit::srd(&cq, &cq) })?;
    qp.activate(QKEY)?;
    let target = pd.mr_allocate(args.bytes as usize, Access::LOCAL_WRITE)?;
    let handle = pd.ah_create(args.from)?;
    for n in 0..READS {
        let sges = [target.sge(0, args.bytes)];
        let wr = SendWr::read(u64::from(n), &handle, Qpn(args.qpn), QKEY);
        qp.post_send(&wr.remote(args.addr, args.rkey).sges(&sges))?;
    }
    let say = |text: &str| -> Result {
        let mut out = std::io::stdout().lock();
        Ok(writeln!(out, "{text}").and_then(|()| out.flush())?)
    };
    let (began, mut done, mut said) = (Instant::now(), 0, false);
    let mut wcs = [WorkCompletion::default(); 16];
    while done < READS {
        let n = cq.poll(&mut wcs)?;
        if let Some(bad) = wcs[..n].iter().find(|wc| !wc.is_ok()) {
            return Err(NetError::new(format!("a read: {}", srd::status_text(bad.status))));
        }
        done += n as u32;
        if !said && device.counters()?.engine.rx_bytes > 20_000 {
            said = true;
            say("reading")?;
        }
        if began.elapsed() > READ_LIMIT {
            return Err(NetError::new(format!("{done} of {READS} reads have ended")));
        }
        device.wait(Some(Duration::from_millis(5)))?;
    }
    say("done")
}

/// The process that is read from.
struct Server {
    device: Device,
    qp: QueuePair,
    region: MemoryRegion,
    /// RDMA is served only to hosts that the server holds a handle for.
    _readers: [AddressHandle; 2],
}

impl Server {
    fn open(fabric: &Fabric) -> Result<Self> {
        let spec = fabric.spec();
        let ip = spec.ip(1, 0);
        let device =
            fabric.ns(Node::Host(1, 0))?.inside(|| Ok(Device::open(DeviceConfig::ip(ip))?))?;
        let pd = device.pd_create()?;
        let cq = device.cq_create(16)?;
        let qp = pd.qp_create(&QpInit::srd(&cq, &cq))?;
        qp.activate(QKEY)?;
        let region = pd.mr_allocate(REGION_BYTES, Access::LOCAL_WRITE | Access::REMOTE_READ)?;
        let readers = [pd.ah_create(spec.ip(0, 0))?, pd.ah_create(spec.ip(0, 1))?];
        Ok(Self { device, qp, region, _readers: readers })
    }

    /// Starts readers on a host of the other leaf. What they hold here is theirs: a new process
    /// at an address of a dead one would be known as its successor, which frees what the dead one
    /// held, so that the next job runs on another host.
    fn job(&self, fabric: &Fabric, host: u8, count: usize, bytes: u32) -> Result<Vec<Reader>> {
        let home = NetNs::current()?;
        let mut readers = Vec::new();
        for _ in 0..count {
            let mut command = worker_command("reader", fabric.spec().ip(0, host))?;
            command.args(["--from", &self.device.ip().to_string()]);
            command.args(["--qpn", &self.qp.qpn().0.to_string()]);
            command.args(["--rkey", &self.region.rkey().to_string()]);
            command.args(["--addr", &self.region.addr().to_string()]);
            command.args(["--bytes", &bytes.to_string()]);
            fabric.ns(Node::Host(0, host))?.enter()?;
            let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
            home.enter()?;
            readers.push(Reader::of(child?)?);
        }
        Ok(readers)
    }
}

struct Reader {
    child: Child,
    stdout: BufReader<ChildStdout>,
}

impl Reader {
    fn of(mut child: Child) -> Result<Self> {
        let stdout = child.stdout.take().ok_or_else(|| NetError::new("no pipe"))?;
        Ok(Self { child, stdout: BufReader::new(stdout) })
    }

    fn expect(&mut self, word: &str) -> Result {
        let mut line = String::new();
        self.stdout.read_line(&mut line)?;
        if line.trim() == word {
            return Ok(());
        }
        Err(NetError::new(format!("a reader ended before it said \"{word}\" (its error is above)")))
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // Already gone, mostly.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Kills a job in the middle of its reads, then runs another.
///
/// # Errors
/// The next job's reads fail or do not end.
pub fn check() -> Result<String> {
    let spec = FabricSpec {
        hosts: 2,
        host_bits_per_sec: 1_000_000_000,
        uplink_bits_per_sec: 1_000_000_000,
        ..FabricSpec::default()
    };
    let (fabric, _) = Fabric::build(&spec)?;
    let server = Server::open(&fabric)?;
    let mut dying = server.job(&fabric, 0, DYING, DYING_BYTES)?;
    for r in &mut dying {
        r.expect("reading")?;
    }
    drop(dying);
    let began = Instant::now();
    let mut next = server.job(&fabric, 1, NEXT, NEXT_BYTES)?;
    for r in &mut next {
        r.expect("reading")?;
        r.expect("done")?;
    }
    Ok(format!(
        "{DYING} processes killed with {READS} reads each under way; {NEXT} new ones read \
         {READS} times {} KiB each, done after {:.1} s",
        NEXT_BYTES >> 10,
        began.elapsed().as_secs_f64()
    ))
}
