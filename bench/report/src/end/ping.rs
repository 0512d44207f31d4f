//! Ping-pong of one small message over SRD, with one message in flight.

use super::{
    Since, percentiles, say_ready,
    srd_end::{End, QKEY, config, counters},
    stop_flag,
};
use crate::{Result, options::Options};
use serde_json::{Value, json};
use srd::{Access, AddressHandle, MemoryRegion, Qpn, RecvWr, SendWr, WorkCompletion};
use srd_datapath::clock::now_ns;
use std::{
    net::IpAddr,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

const DEPTH: u32 = 64;
const SLEEP: Duration = Duration::from_millis(50);

/// One end, with its message and its receive buffers.
struct Player {
    end: End,
    inbox: MemoryRegion,
    size: u32,
    spin: bool,
}

impl Player {
    fn open(o: &mut Options) -> Result<Self> {
        let size: u32 = o.or("size", 64)?;
        if !(1..=80).contains(&size) {
            return Err("--size must be from 1 to 80: the message is sent inline".into());
        }
        let spin = o.or("wait", "spin".to_owned())? == "spin";
        let end = End::with(config(o)?, DEPTH)?;
        let inbox = end.pd.mr_allocate((DEPTH * size) as usize, Access::LOCAL_WRITE)?;
        let player = Self { end, inbox, size, spin };
        (0..DEPTH).try_for_each(|i| player.receive_post(u64::from(i)))?;
        Ok(player)
    }

    fn receive_post(&self, index: u64) -> Result<()> {
        let sge = self.inbox.sge(index as usize * self.size as usize, self.size);
        Ok(self.end.qp.post_recv(&RecvWr { wr_id: index, sges: &[sge] })?)
    }

    fn send(&self, to: &AddressHandle, qpn: Qpn) -> Result<()> {
        let message = [0x5D; 80];
        let wr = SendWr::send(0, to, qpn, QKEY).inline(&message[..self.size as usize]);
        Ok(self.end.qp.post_send(&wr)?)
    }

    /// The next completion; `None` if none arrived for a while.
    fn next(&self, stop: &AtomicBool) -> Result<Option<WorkCompletion>> {
        if !self.spin {
            return Ok(self.end.cq.wait(SLEEP)?);
        }
        while !stop.load(Ordering::Relaxed) {
            if let Some(wc) = self.end.cq.poll_one()? {
                return Ok(Some(wc));
            }
        }
        Ok(None)
    }
}

/// Answers every message. `--wait spin|block`.
pub fn serve(o: &mut Options) -> Result<Value> {
    let player = Player::open(o)?;
    o.end()?;
    let stop = stop_flag();
    say_ready(&json!({"qpn": player.end.qp.qpn().0}));
    let (before, since) = (player.end.device.counters()?, Since::now());
    let mut answered = 0_u64;
    let mut client: Option<AddressHandle> = None;
    while !stop.load(Ordering::Relaxed) {
        let Some(wc) = player.next(&stop)? else { continue };
        if !wc.op.is_recv() {
            // The last answer fails if the client has exited.
            continue;
        }
        let wc = wc.ok()?;
        let ip = wc.src_ip.ok_or("a message without a sender")?;
        let to = match client.take() {
            Some(ah) if ah.ip() == ip => ah,
            _ => player.end.pd.ah_create(ip)?,
        };
        player.send(&to, wc.src_qpn)?;
        client = Some(to);
        player.receive_post(wc.wr_id)?;
        answered += 1;
    }
    let cpu_seconds = since.cpu_seconds();
    let counters = counters(&before, &player.end.device.counters()?);
    Ok(json!({"answered": answered, "cpu_seconds": cpu_seconds, "counters": counters}))
}

/// `--remote IP --qpn N --seconds S --wait spin|block`.
pub fn drive(o: &mut Options) -> Result<Value> {
    let remote: IpAddr = o.need("remote")?;
    let qpn = Qpn(o.need("qpn")?);
    let seconds = Duration::try_from_secs_f64(o.need("seconds")?)?;
    let player = Player::open(o)?;
    o.end()?;
    let to = player.end.pd.ah_create(remote)?;
    let never = AtomicBool::new(false);
    // Excludes the handshake and the first packets of each path.
    for _ in 0..1000 {
        round(&player, &to, qpn, &never)?;
    }
    let (before, since) = (player.end.device.counters()?, Since::now());
    let end = now_ns() + seconds.as_nanos() as u64;
    let mut rtt_ns = Vec::new();
    while now_ns() < end {
        let start = now_ns();
        round(&player, &to, qpn, &never)?;
        rtt_ns.push(now_ns() - start);
    }
    let (wall, cpu) = (since.seconds(), since.cpu_seconds());
    let counters = counters(&before, &player.end.device.counters()?);
    Ok(json!({
        "packets": rtt_ns.len(), "seconds": wall, "cpu_seconds": cpu, "counters": counters,
        "rtt_ns": percentiles(rtt_ns)?,
    }))
}

/// Sends a message and waits for the answer.
fn round(player: &Player, to: &AddressHandle, qpn: Qpn, never: &AtomicBool) -> Result<()> {
    player.send(to, qpn)?;
    loop {
        let Some(wc) = player.next(never)? else { continue };
        let wc = wc.ok()?;
        if wc.op.is_recv() {
            return player.receive_post(wc.wr_id);
        }
    }
}
