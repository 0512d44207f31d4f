//! Unidirectional traffic at full speed: sends or RDMA writes to one peer.

use super::{
    Since, say_ready,
    srd_end::{End, QKEY, counters},
    stop_flag,
};
use crate::{Result, options::Options};
use serde_json::{Value, json};
use srd::{
    Access, AddressHandle, MemoryRegion, PostError, Qpn, RKey, RecvWr, SendWr, WorkCompletion,
};
use srd_datapath::clock::now_ns;
use std::{
    net::IpAddr,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

/// Longest sleep of an end, so that it notices a stop request.
const SLEEP: Duration = Duration::from_millis(50);
/// Completions polled at once.
const TAKE: usize = 64;
/// Size of the send and receive memory in bytes, in which messages share buffers; at least one
/// message. It is small because the raw UDP program has a single buffer for all packets.
const BUFFER_BYTES: u32 = 256 << 10;
/// Time for the last requests to complete, in ns.
const DRAIN_NS: u64 = 2_000_000_000;

/// `--size BYTES` of a message, `--region BYTES` for writes, `--peer IP` for writes.
pub fn serve(o: &mut Options) -> Result<Value> {
    let size: u32 = o.need("size")?;
    let depth: u32 = o.or("depth", 256)?;
    let region: usize = o.or("region", 0)?;
    let peer: Option<IpAddr> = o.get("peer")?;
    let end = End::with(super::srd_end::config(o)?, depth)?;
    o.end()?;
    let _ah = peer.map(|ip| end.pd.ah_create(ip)).transpose()?;
    let target =
        end.pd.mr_allocate(region.max(4096), Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
    let buffers = end.pd.mr_allocate(turns(size) as usize * size as usize, Access::LOCAL_WRITE)?;
    // Writes consume no receives.
    let receives = if region == 0 { depth } else { 0 };
    for i in 0..receives {
        receive_post(&end, &buffers, size, u64::from(i))?;
    }
    let stop = stop_flag();
    say_ready(&json!({"qpn": end.qp.qpn().0, "rkey": target.rkey().0, "addr": target.addr()}));
    let (before, since) = (end.device.counters()?, Since::now());
    let received = receive_until(&end, &buffers, size, &stop)?;
    let cpu_seconds = since.cpu_seconds();
    let counters = counters(&before, &end.device.counters()?);
    Ok(json!({"received": received, "cpu_seconds": cpu_seconds, "counters": counters}))
}

/// Number of messages that fit into the memory.
fn turns(size: u32) -> u32 {
    (BUFFER_BYTES / size).max(1)
}

fn receive_post(end: &End, buffers: &MemoryRegion, size: u32, index: u64) -> Result<()> {
    let turn = index % u64::from(turns(size));
    let sge = buffers.sge(turn as usize * size as usize, size);
    Ok(end.qp.post_recv(&RecvWr { wr_id: index, sges: &[sge] })?)
}

fn receive_until(end: &End, buffers: &MemoryRegion, size: u32, stop: &AtomicBool) -> Result<u64> {
    let mut taken = [WorkCompletion::default(); TAKE];
    let mut received = 0;
    while !stop.load(Ordering::Relaxed) {
        let n = take(end, &mut taken)?;
        for wc in &taken[..n] {
            let wc = wc.ok()?;
            receive_post(end, buffers, size, wc.wr_id)?;
        }
        received += n as u64;
    }
    Ok(received)
}

/// Polls completions; sleeps if there are none.
pub fn take(end: &End, out: &mut [WorkCompletion]) -> Result<usize> {
    let n = end.cq.poll(out)?;
    if n > 0 {
        return Ok(n);
    }
    let Some(wc) = end.cq.wait(SLEEP)? else { return Ok(0) };
    out[0] = wc;
    Ok(1 + end.cq.poll(&mut out[1..])?)
}

/// Destination and kind of the driving end's requests.
struct Flow {
    ah: AddressHandle,
    qpn: Qpn,
    rkey: u32,
    addr: u64,
    write: bool,
    size: u32,
    depth: u32,
    source: MemoryRegion,
}

impl Flow {
    /// Posts request `n`.
    fn post(&self, end: &End, n: u64) -> Result<(), PostError> {
        let at = (n % u64::from(turns(self.size))) * u64::from(self.size);
        let sges = [self.source.sge(at as usize, self.size)];
        let wr = if self.write {
            SendWr::write(n, &self.ah, self.qpn, QKEY).remote(self.addr + at, RKey(self.rkey))
        } else {
            SendWr::send(n, &self.ah, self.qpn, QKEY)
        };
        end.qp.post_send(&wr.sges(&sges))
    }
}

/// `--remote IP --qpn N --size BYTES --seconds S [--op send|write --rkey N --addr N]`.
pub fn drive(o: &mut Options) -> Result<Value> {
    let size: u32 = o.need("size")?;
    let depth: u32 = o.or("depth", 256)?;
    let op: String = o.or("op", "send".to_owned())?;
    let remote: IpAddr = o.need("remote")?;
    let qpn = Qpn(o.need("qpn")?);
    let (rkey, addr) = (o.or("rkey", 0)?, o.or("addr", 0)?);
    let seconds = Duration::try_from_secs_f64(o.need("seconds")?)?;
    let end = End::with(super::srd_end::config(o)?, depth)?;
    o.end()?;
    let flow = Flow {
        ah: end.pd.ah_create(remote)?,
        qpn,
        rkey,
        addr,
        write: op == "write",
        size,
        depth,
        source: end.pd.mr_allocate(turns(size) as usize * size as usize, Access::NONE)?,
    };
    flow.source.write_at(0, &vec![0x5D; flow.source.len()])?;
    let (before, since) = (end.device.counters()?, Since::now());
    let completed = stream(&end, &flow, now_ns() + seconds.as_nanos() as u64)?;
    let (wall, cpu) = (since.seconds(), since.cpu_seconds());
    let counters = counters(&before, &end.device.counters()?);
    Ok(json!({
        "completed": completed, "bytes": completed * u64::from(size), "seconds": wall,
        "cpu_seconds": cpu, "counters": counters,
    }))
}

/// Keeps the queue full until `stop_ns`, then waits for the requests in flight.
fn stream(end: &End, flow: &Flow, stop_ns: u64) -> Result<u64> {
    let mut taken = [WorkCompletion::default(); TAKE];
    let (mut posted, mut completed) = (0, 0);
    loop {
        let running = now_ns() < stop_ns;
        while running && posted - completed < u64::from(flow.depth) {
            match flow.post(end, posted) {
                Ok(()) => posted += 1,
                Err(e) if e.is_full() => break,
                Err(e) => return Err(e.into()),
            }
        }
        if !running && (completed == posted || now_ns() > stop_ns + DRAIN_NS) {
            break;
        }
        let n = take(end, &mut taken)?;
        for wc in &taken[..n] {
            wc.ok()?;
        }
        completed += n as u64;
    }
    if completed < posted {
        return Err(format!("{} of {posted} requests did not complete", posted - completed).into());
    }
    Ok(completed)
}
