//! Small messages to one peer or to many peers.

use super::{
    Since, say_ready,
    srd_end::{End, QKEY, config, counters},
    stop_flag,
    stream::take,
};
use crate::{Result, options::Options};
use serde_json::{Value, json};
use srd::{Access, AddressHandle, DeviceConfig, Progress, Qpn, RecvWr, SendWr, WorkCompletion};
use srd_datapath::clock::now_ns;
use std::{collections::VecDeque, net::IpAddr, sync::atomic::Ordering, time::Duration};

/// Engines per address; a slot number has one byte.
const SLOTS: u32 = 250;
/// Posted receives of a serving engine: few, because there are many engines.
const RECEIVES: u32 = 64;
const TAKE: usize = 64;
/// When an engine that received something has another turn: its acknowledgment is due 5 us after
/// the message.
const ANSWER_NS: u64 = 6_000;
/// MTU of both sides: with messages of 64 bytes the link's MTU is irrelevant.
const MTU: u16 = 1400;
const DRAIN_NS: u64 = 5_000_000_000;

/// Address and slot of peer `n`.
fn peer_of(first: IpAddr, n: u32) -> Result<(IpAddr, u8)> {
    let IpAddr::V4(v4) = first else { return Err("IPv4 only".into()) };
    let ip = std::net::Ipv4Addr::from(u32::from(v4) + n / SLOTS);
    Ok((ip.into(), (n % SLOTS) as u8))
}

/// `--local IP --peers N --size BYTES`: engines at slots 0 to 249 of as many addresses as needed,
/// all driven by this thread. A single engine sleeps until a packet arrives; many have turns
/// without end, because each stands for a host with a processor of its own: a thread for each would
/// have to be woken for each message, by the sender, on whose processor the link delivers.
pub fn serve(o: &mut Options) -> Result<Value> {
    let (first, peers, size) =
        (o.need::<IpAddr>("local")?, o.need::<u32>("peers")?, o.or::<u32>("size", 64)?);
    o.end()?;
    let one = peers == 1;
    let depth = if one { 1024 } else { RECEIVES };
    let mut servers = Vec::new();
    for n in 0..peers {
        let (ip, slot) = peer_of(first, n)?;
        let mut config = DeviceConfig::ip(ip);
        (config.progress, config.slot, config.mtu) = (Progress::Caller, Some(slot), Some(MTU));
        if !one {
            config.paths = 4;
            config.tune_udp = Some(Box::new(|udp| {
                (udp.rcvbuf_bytes, udp.rx_batch_max) = (256 << 10, 2);
            }));
        }
        servers.push(Server::open(config, depth, size)?);
    }
    let qpns: Vec<u16> = servers.iter().map(|s| s.end.qp.qpn().0).collect();
    let stop = stop_flag();
    say_ready(&json!({"qpns": qpns}));
    let since = Since::now();
    let mut received = 0;
    let mut answers = VecDeque::new();
    while !stop.load(Ordering::Relaxed) {
        for server in &servers {
            let n = server.receive(one)?;
            received += n;
            if one {
                continue;
            }
            let now = now_ns();
            if n > 0 {
                answers.push_back((now + ANSWER_NS, server));
            }
            while let Some((_, server)) = answers.pop_front_if(|&mut (due, _)| due <= now) {
                server.end.device.progress()?;
            }
        }
    }
    Ok(json!({"received": received, "cpu_seconds": since.cpu_seconds()}))
}

struct Server {
    end: End,
    inbox: srd::MemoryRegion,
    size: u32,
}

impl Server {
    fn open(config: DeviceConfig, depth: u32, size: u32) -> Result<Self> {
        let end = End::with(config, depth)?;
        let inbox = end.pd.mr_allocate((depth * size) as usize, Access::LOCAL_WRITE)?;
        let server = Self { end, inbox, size };
        (0..depth).try_for_each(|i| server.receive_post(u64::from(i)))?;
        Ok(server)
    }

    fn receive_post(&self, index: u64) -> Result<()> {
        let sge = self.inbox.sge(index as usize * self.size as usize, self.size);
        Ok(self.end.qp.post_recv(&RecvWr { wr_id: index, sges: &[sge] })?)
    }

    /// Polls received messages; waits for one if `patient`.
    fn receive(&self, patient: bool) -> Result<u64> {
        let mut taken = [WorkCompletion::default(); TAKE];
        let n =
            if patient { take(&self.end, &mut taken)? } else { self.end.cq.poll(&mut taken)? };
        for wc in &taken[..n] {
            self.receive_post(wc.ok()?.wr_id)?;
        }
        Ok(n as u64)
    }
}

/// `--remote IP --qpns N,N,… --size BYTES --seconds S --depth N`: messages to all peers in turn.
pub fn drive(o: &mut Options) -> Result<Value> {
    let first: IpAddr = o.need("remote")?;
    let qpns: String = o.need("qpns")?;
    let (size, depth) = (o.or::<u32>("size", 64)?, o.or::<u32>("depth", 1024)?);
    let seconds = Duration::try_from_secs_f64(o.need("seconds")?)?;
    let end = End::with(config(o)?, depth)?;
    o.end()?;
    let mut peers: Vec<(AddressHandle, Qpn)> = Vec::new();
    for (n, qpn) in (0..).zip(qpns.split(',')) {
        let ip = peer_of(first, n)?.0;
        let ah = match peers.last() {
            Some((ah, _)) if ah.ip() == ip => ah.clone(),
            _ => end.pd.ah_create(ip)?,
        };
        peers.push((ah, Qpn(qpn.parse()?)));
    }
    // One message to each peer creates the contexts.
    exchange(&end, &peers, size, depth, Stop::After(peers.len() as u64))?;
    let (before, since) = (end.device.counters()?, Since::now());
    let stop = Stop::At(now_ns() + seconds.as_nanos() as u64);
    let completed = exchange(&end, &peers, size, depth, stop)?;
    let (wall, cpu) = (since.seconds(), since.cpu_seconds());
    let counters = counters(&before, &end.device.counters()?);
    Ok(json!({
        "peers": peers.len(), "completed": completed, "seconds": wall, "cpu_seconds": cpu,
        "counters": counters,
    }))
}

/// When to stop posting.
enum Stop {
    At(u64),
    After(u64),
}

fn exchange(
    end: &End,
    peers: &[(AddressHandle, Qpn)],
    size: u32,
    depth: u32,
    stop: Stop,
) -> Result<u64> {
    let message = vec![0x5D; size as usize];
    let mut taken = [WorkCompletion::default(); TAKE];
    let (mut posted, mut completed) = (0_u64, 0_u64);
    let mut drain_until = u64::MAX;
    loop {
        let running = match stop {
            Stop::At(ns) => now_ns() < ns,
            Stop::After(n) => posted < n,
        };
        while running && posted - completed < u64::from(depth) {
            if matches!(stop, Stop::After(n) if posted == n) {
                break;
            }
            let (ah, qpn) = &peers[(posted % peers.len() as u64) as usize];
            match end.qp.post_send(&SendWr::send(posted, ah, *qpn, QKEY).inline(&message)) {
                Ok(()) => posted += 1,
                Err(e) if e.is_full() => break,
                Err(e) => return Err(e.into()),
            }
        }
        if !running {
            drain_until = drain_until.min(now_ns() + DRAIN_NS);
            if completed == posted {
                return Ok(completed);
            }
            if now_ns() > drain_until {
                return Err(format!("{} messages hang", posted - completed).into());
            }
        }
        let n = take(end, &mut taken)?;
        for wc in &taken[..n] {
            wc.ok()?;
        }
        completed += n as u64;
    }
}
