//! Junk by the million beside a transfer: the transfer keeps at least half of its rate, and the
//! device's timers go on.

use super::party::{self, Party};
use crate::{
    error::{NetError, Result},
    fabric::Fabric,
    spec::{FabricSpec, Node},
};
use srd::{
    Qpn,
    datapath::{UdpConfig, UdpDatapath, send_batch},
};
use srd_wire::PacketType;
use std::{
    net::SocketAddr,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

/// How long each of the two transfers lasts.
const TIME: Duration = Duration::from_secs(3);
/// A request to an address where nobody answers must end within this: the device's own limit is
/// 5 s, and a machine busy with a flood may be late.
const SILENCE_MAX: Duration = Duration::from_secs(15);
/// Bytes of one piece of junk: the shortest that gets as far as the tag.
const JUNK_BYTES: usize = 24;
/// Pieces between two flushes; the kernel cuts 64 of them from one segmented send.
const JUNK_PIECES: u64 = 256;
/// Source ports of the flood: several flows, as a flood has.
const PORTS: usize = 8;

/// Runs the check. `kept`: share of its rate that the transfer must keep.
///
/// # Errors
/// The transfer kept less of its rate, something of it was lost, or a timer did not fire.
pub fn check(kept: f64) -> Result<String> {
    let spec = FabricSpec {
        hosts: 2,
        host_bits_per_sec: 2_000_000_000,
        uplink_bits_per_sec: 2_000_000_000,
        ..FabricSpec::default()
    };
    let (fabric, _) = Fabric::build(&spec)?;
    let mut a = Party::open(&fabric, (0, 0))?;
    let mut b = Party::open(&fabric, (1, 0))?;
    let quiet = party::exchange(&mut a, &mut b, TIME, SILENCE_MAX, |_| Ok(()))?;
    let (slot, to) = (b.device.slot(), b.device.ip());
    let target = SocketAddr::new(to, srd::PORT_BASE_DEFAULT + u16::from(slot));
    let mut guns = fabric.ns(Node::Host(0, 1))?.inside(|| {
        let mut config = UdpConfig::new(fabric.spec().ip(0, 1));
        (config.paths, config.gso_segments_max) = (PORTS, 64);
        Ok(UdpDatapath::open(config)?)
    })?;
    let nobody = b.handle(fabric.spec().ip(1, 1))?;
    let (over, sent) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut silence = None;
    let flooded = thread::scope(|s| {
        s.spawn(|| flood(&mut guns, target, &over, &sent));
        let mut asked = false;
        let done = party::exchange(&mut a, &mut b, TIME, SILENCE_MAX, |b| {
            if !asked {
                asked = true;
                b.ask_stranger(&nobody, Qpn(0))?;
            }
            Ok(())
        });
        let began = Instant::now();
        let ends = b.strangers_end(SILENCE_MAX);
        silence = Some((TIME + began.elapsed(), sent.load(Ordering::Relaxed)));
        over.store(true, Ordering::Relaxed);
        done.and_then(|d| ends.map(|e| (d, e)))
    });
    let (loud, ends) = flooded?;
    let (waited, junk) = silence.unwrap_or_default();
    let share = loud.per_sec() / quiet.per_sec();
    let rate = junk as f64 / waited.as_secs_f64() / 1e6;
    let text = format!(
        "{:.0} blocks/s without, {:.0} ({:.0} %) beside {rate:.2} million pieces of junk per \
         second; requests to nobody ended within {:.1} s: {ends:?}",
        quiet.per_sec(),
        loud.per_sec(),
        share * 100.0,
        waited.as_secs_f64()
    );
    if share < kept { Err(NetError::new(text)) } else { Ok(text) }
}

/// Sends junk until told to stop: every other piece is of no version of the protocol, the others
/// are acknowledgments with a tag that nobody has given out.
fn flood(guns: &mut UdpDatapath, to: SocketAddr, over: &AtomicBool, sent: &AtomicU64) {
    let mut n = 0u32;
    while !over.load(Ordering::Relaxed) {
        let path = (n as usize / JUNK_PIECES as usize % PORTS) as u8;
        let done = send_batch(guns, |batch| {
            for _ in 0..JUNK_PIECES {
                let mut junk = [0; JUNK_BYTES];
                n = n.wrapping_add(1);
                if n.is_multiple_of(2) {
                    junk[0] = srd_wire::VERSION << 5 | PacketType::Ack as u8;
                    junk[4..8].copy_from_slice(&n.wrapping_mul(0x9E37_79B9).to_be_bytes());
                }
                // Full: what is queued goes out first.
                if batch.push(to, path, &junk, &[]).is_err() {
                    return;
                }
            }
        });
        match done {
            Ok((_, report)) => sent.fetch_add(report.sent as u64, Ordering::Relaxed),
            Err(_) => return,
        };
    }
}
