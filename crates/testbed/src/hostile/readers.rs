//! Processes on so many hosts read from one device that they hold all its places for reads; then
//! they are killed. A new job finds no place until the places of the dead processes are free again.

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
    Access, AddressHandle, Device, DeviceConfig, MemoryRegion, Progress, QKey, QpInit, Qpn,
    QueuePair, RKey, SendWr, WorkCompletion,
};
use std::{
    io::{BufRead as _, BufReader, Write as _},
    net::IpAddr,
    process::{Child, ChildStdout, Stdio},
    thread,
    time::{Duration, Instant},
};

const QKEY: QKey = QKey(0x7264_7273);
/// Processes of the first job, by host. An address gets a place only while it holds fewer places
/// than are left, so a host gets half of what the hosts before it have left, and it takes thirteen
/// hosts to fill all [`PLACES`].
const DYING: [usize; 13] = [32, 16, 8, 4, 2, 1, 1, 1, 1, 1, 1, 1, 1];
/// Most reads that a device serves at once.
const PLACES: u32 = 4096;
/// Most reads in flight of one process: as many as a device serves one peer.
const READS_MAX: u32 = 64;
/// Processes of the second job, on a host of its own.
const NEXT: usize = 8;
/// Bytes of a read of the first job: so long that none ends before the job is killed.
const DYING_BYTES: u32 = 64 << 20;
/// Bytes of a read of the second job.
const NEXT_BYTES: u32 = 64 << 10;
/// Bytes of the readable memory region.
const REGION_BYTES: usize = DYING_BYTES as usize;
/// Time limit for the reads of the second job, in seconds. The first job has none: it is killed as
/// soon as it holds all places, however long a busy machine takes to start its processes.
const NEXT_LIMIT_S: u64 = 40;
/// Longest time without a change in the number of reads served, while places are taken or become
/// free.
const PLACES_LIMIT: Duration = Duration::from_secs(60);

/// Options of a reader.
#[derive(Clone, Debug, Args)]
pub struct ReaderArgs {
    /// Address of the reader's host
    #[arg(long)]
    pub ip: IpAddr,
    /// Address of the server
    #[arg(long)]
    pub from: IpAddr,
    /// Queue pair of the server
    #[arg(long)]
    pub qpn: u16,
    /// Key of the server's memory region
    #[arg(long)]
    pub rkey: u32,
    /// Address of the server's memory region
    #[arg(long)]
    pub addr: u64,
    /// Bytes of each read
    #[arg(long)]
    pub bytes: u32,
    /// Number of reads, all at once
    #[arg(long)]
    pub reads: u32,
    /// Seconds after which reads that have not ended are an error; without it, the reader waits
    /// until it is killed
    #[arg(long)]
    pub limit_s: Option<u64>,
}

/// A reading process. Prints "reading" once its reads are being served, and "done" when all have
/// succeeded.
///
/// # Errors
/// A read fails or does not end.
pub fn reader(args: &ReaderArgs) -> Result {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    let mut config = DeviceConfig::ip(args.ip);
    (config.progress, config.paths) = (Progress::Caller, 8);
    config.tune_udp = Some(Box::new(|udp| udp.rcvbuf_bytes = 1 << 20));
    let device = Device::open(config)?;
    let pd = device.pd_create()?;
    let reads = args.reads;
    let cq = device.cq_create(reads)?;
    let qp = pd.qp_create(&QpInit { sq_depth: reads, ..QpInit::srd(&cq, &cq) })?;
    qp.activate(QKEY)?;
    let target = pd.mr_allocate(args.bytes as usize, Access::LOCAL_WRITE)?;
    let handle = pd.ah_create(args.from)?;
    for n in 0..reads {
        let sges = [target.sge(0, args.bytes)];
        let wr = SendWr::read(u64::from(n), &handle, Qpn(args.qpn), QKEY);
        qp.post_send(&wr.remote(args.addr, RKey(args.rkey)).sges(&sges))?;
    }
    let say = |text: &str| -> Result {
        let mut out = std::io::stdout().lock();
        Ok(writeln!(out, "{text}").and_then(|()| out.flush())?)
    };
    let (began, mut done, mut said) = (Instant::now(), 0, false);
    let mut wcs = [WorkCompletion::default(); 16];
    while done < reads {
        let n = cq.poll(&mut wcs)?;
        if let Some(bad) = wcs[..n].iter().find(|wc| !wc.is_ok()) {
            return Err(NetError::new(format!("a read failed: {}", srd::status_text(bad.status))));
        }
        done += n as u32;
        if !said && device.counters()?.engine.rx_bytes > 20_000 {
            said = true;
            say("reading")?;
        }
        if args.limit_s.is_some_and(|limit| began.elapsed() > Duration::from_secs(limit)) {
            return Err(NetError::new(format!("{done} of {reads} reads have ended")));
        }
        device.wait(Some(Duration::from_millis(5)))?;
    }
    say("done")
}

/// The process from which the readers read.
struct Server {
    device: Device,
    qp: QueuePair,
    region: MemoryRegion,
    /// Address handles of the readers' hosts: RDMA is served only to hosts that have one.
    _readers: Vec<AddressHandle>,
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
        let readers = (0..spec.hosts).map(|h| Ok(pd.ah_create(spec.ip(0, h))?));
        let readers = readers.collect::<Result<_>>()?;
        Ok(Self { device, qp, region, _readers: readers })
    }

    /// Number of reads being served to all hosts except `but`.
    fn served(&self, but: IpAddr) -> Result<u32> {
        let contexts = self.device.context_stats()?;
        Ok(contexts.iter().filter(|c| c.peer.ip != but).map(|c| c.reads_served).sum())
    }

    /// Waits until `reads` reads are being served to all hosts except `but`.
    fn served_await(&self, reads: u32, but: IpAddr) -> Result {
        let (mut before, mut changed) = (None, Instant::now());
        loop {
            let now = self.served(but)?;
            if now == reads {
                return Ok(());
            }
            if before.replace(now) != Some(now) {
                changed = Instant::now();
            }
            if changed.elapsed() > PLACES_LIMIT {
                return Err(NetError::new(format!(
                    "{now} reads of the job that dies are served, not {reads}"
                )));
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Starts readers on a host of the other leaf. The second job must not run on a host of the
    /// first one: a new process at the address of a dead one counts as its successor, which frees
    /// the places of the dead one.
    fn job(
        &self,
        fabric: &Fabric,
        host: u8,
        reads: &[u32],
        bytes: u32,
        limit_s: Option<u64>,
    ) -> Result<Vec<Reader>> {
        let home = NetNs::current()?;
        let mut readers = Vec::new();
        for reads in reads {
            let mut command = worker_command("reader", fabric.spec().ip(0, host))?;
            command.args(["--from", &self.device.ip().to_string()]);
            command.args(["--qpn", &self.qp.qpn().0.to_string()]);
            command.args(["--rkey", &self.region.rkey().to_string()]);
            command.args(["--addr", &self.region.addr().to_string()]);
            command.args(["--bytes", &bytes.to_string(), "--reads", &reads.to_string()]);
            if let Some(limit) = limit_s {
                command.args(["--limit-s", &limit.to_string()]);
            }
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
        // Fails if the process has ended already, which is usual.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Kills a job during its reads, then runs another.
///
/// # Errors
/// The first job does not get all places, the places do not become free, or the reads of the second
/// job fail or do not end.
pub fn check() -> Result<String> {
    let spec = FabricSpec {
        hosts: DYING.len() as u8 + 1,
        // Slow, so that no read of the first job ends too soon.
        host_bits_per_sec: 200_000_000,
        uplink_bits_per_sec: 1_000_000_000,
        ..FabricSpec::default()
    };
    let (fabric, _) = Fabric::build(&spec)?;
    let server = Server::open(&fabric)?;
    let next_host = DYING.len() as u8;
    let next_ip = spec.ip(0, next_host);
    let (mut dying, mut held) = (Vec::new(), 0);
    for (host, &count) in DYING.iter().enumerate() {
        let share = (PLACES - held).div_ceil(2);
        let of = |k: usize| READS_MAX.min(share - k as u32 * READS_MAX);
        let reads: Vec<u32> = (0..count).map(of).collect();
        dying.extend(server.job(&fabric, host as u8, &reads, DYING_BYTES, None)?);
        held += share;
        // The next host gets half of the places that are left.
        server.served_await(held, next_ip)?;
    }
    for r in &mut dying {
        r.expect("reading")?;
    }
    server.served_await(PLACES, next_ip)?;
    let (began, count) = (Instant::now(), dying.len());
    drop(dying);
    let limit_s = Some(NEXT_LIMIT_S);
    let mut next = server.job(&fabric, next_host, &[READS_MAX; NEXT], NEXT_BYTES, limit_s)?;
    for r in &mut next {
        r.expect("reading")?;
        r.expect("done")?;
    }
    server.served_await(0, next_ip)?;
    Ok(format!(
        "{count} processes on {} hosts killed with all {PLACES} places for reads; {NEXT} new ones \
         on another host read {READS_MAX} times {} KiB each, done after {:.1} s",
        DYING.len(),
        NEXT_BYTES >> 10,
        began.elapsed().as_secs_f64()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hosts_of_the_job_that_dies_share_all_places() {
        let mut left = PLACES;
        for count in DYING {
            let share = left.div_ceil(2);
            assert_eq!(count as u32, share.div_ceil(READS_MAX), "{left} places left");
            left -= share;
        }
        assert_eq!(left, 0);
    }
}
