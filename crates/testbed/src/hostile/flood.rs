//! Floods a device with junk packets beside a transfer: the transfer must keep a share of its rate,
//! and the device's timers must keep firing. The flood must be a real one: beside the transfer it
//! must keep a share of the rate at which this machine can send junk to an idle device.

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
use srd_wire::{PacketType, ParseError};
use std::{
    net::SocketAddr,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

/// Duration of the measurement of the flood without a transfer.
const ALONE: Duration = Duration::from_secs(1);
/// Duration of each of the two transfers.
const TIME: Duration = Duration::from_secs(3);
/// A request to an address without a device must fail within this time: the device's limit is 5 s,
/// and a machine busy with a flood may be late.
const SILENCE_MAX: Duration = Duration::from_secs(15);
/// Bytes of a junk packet: the shortest whose tag the receiver reads.
const JUNK_BYTES: usize = 24;
/// Junk packets between two flushes; the kernel splits one segmented send into 64 of them.
const JUNK_PIECES: u64 = 256;
/// Source ports of the flood, so that it is spread over several flows.
const PORTS: usize = 8;

/// Runs the check. `kept`: share of its rate that the transfer must keep; `junk`: share of its rate
/// that the flood must keep.
///
/// # Errors
/// The transfer or the flood kept less of its rate, something of the transfer was lost, or a timer
/// did not fire.
pub fn check(kept: f64, junk: f64) -> Result<String> {
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
    let alone = alone_per_sec(&mut guns, target);
    let nobody = b.handle(fabric.spec().ip(1, 1))?;
    let before = b.device.counters()?;
    let (over, sent) = (AtomicBool::new(false), AtomicU64::new(0));
    let (mut silence, mut seen) = (None, None);
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
        seen = b.device.counters().ok();
        over.store(true, Ordering::Relaxed);
        done.and_then(|d| ends.map(|e| (d, e)))
    });
    let (loud, ends) = flooded?;
    let (waited, pieces) = silence.unwrap_or_default();
    let share = loud.per_sec() / quiet.per_sec();
    let rate = pieces as f64 / waited.as_secs_f64();
    // Every other packet has a wrong version, so twice their number were read.
    let read = seen.map_or(0, |c| {
        2 * (c.parse_errors_of(ParseError::Version) - before.parse_errors_of(ParseError::Version))
    });
    let text = format!(
        "{:.0} blocks/s without, {:.0} ({:.0} %) beside {:.2} million pieces of junk per second, \
         {:.0} % of the {:.2} million that this machine sends to an idle device; the device read \
         {:.0} % of them; requests to nobody ended within {:.1} s: {ends:?}",
        quiet.per_sec(),
        loud.per_sec(),
        share * 100.0,
        rate / 1e6,
        rate / alone * 100.0,
        alone / 1e6,
        read as f64 / pieces as f64 * 100.0,
        waited.as_secs_f64()
    );
    if rate < junk * alone {
        let asked = junk * 100.0;
        return Err(NetError::new(format!(
            "{text}; that is no flood: {asked:.0} % were asked for"
        )));
    }
    if share < kept { Err(NetError::new(text)) } else { Ok(text) }
}

/// Junk packets per second that are sent to an idle device.
fn alone_per_sec(guns: &mut UdpDatapath, to: SocketAddr) -> f64 {
    let (over, sent) = (AtomicBool::new(false), AtomicU64::new(0));
    let began = Instant::now();
    thread::scope(|s| {
        s.spawn(|| flood(guns, to, &over, &sent));
        thread::sleep(ALONE);
        over.store(true, Ordering::Relaxed);
    });
    sent.load(Ordering::Relaxed) as f64 / began.elapsed().as_secs_f64()
}

/// Sends junk until `over` is set: every other packet has an invalid version, the others are
/// acknowledgments with a tag that no device has assigned.
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
                // The batch is full: it is sent first.
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
