//! Fault injection: a wrapper that loses, duplicates, delays, reorders and corrupts datagrams of
//! any [`Datapath`], in the same way for the same seed and the same packets.
//!
//! The wrapper reads no clock. It releases a held packet after a number of *ticks*: each packet of
//! its direction is one tick, and so is each flush or wait without a packet, so that the last held
//! packet is released as well.

use crate::{
    Counters, Datapath, RxBacklog, RxDatagram, RxReport, TxPacket, TxPushError, TxReport, Waker,
};
use core::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};
use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Most packets held per direction; further packets are dropped.
const HELD_MAX: usize = 65_536;
/// Longest sleep while packets are held.
const HELD_WAIT_MAX: Duration = Duration::from_millis(1);

/// Faults of one direction. Probabilities are in parts per million and apply to each packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rates {
    /// Drop it.
    pub loss_ppm: u32,
    /// Duplicate it; the copy follows up to `reorder_packets_max` ticks later.
    pub duplicate_ppm: u32,
    /// Hold it for 1 to `reorder_packets_max` ticks.
    pub reorder_ppm: u32,
    /// See `reorder_ppm` and `duplicate_ppm`.
    pub reorder_packets_max: u32,
    /// Delay of every packet in ticks; order is kept.
    pub delay_packets: u32,
    /// Flip one bit.
    pub corrupt_ppm: u32,
    /// Received packets only: set CE ("congestion experienced").
    pub ce_ppm: u32,
}

/// Counters of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Packets handled.
    pub packets: u64,
    /// Dropped at random.
    pub lost: u64,
    /// Dropped because the direction or path is switched off.
    pub black_holed: u64,
    /// Duplicated.
    pub duplicated: u64,
    /// Held, by delay or reordering.
    pub held: u64,
    /// Dropped because too many were held.
    pub overflowed: u64,
    /// Corrupted by one flipped bit.
    pub corrupted: u64,
    /// Marked CE ("congestion experienced").
    pub marked: u64,
}

struct Direction {
    rates: Rates,
    off: bool,
    done: Done,
}

struct Shared {
    tx: Direction,
    rx: Direction,
    /// Paths whose packets are lost.
    black_holes: [bool; 256],
    stalled: bool,
}

/// Changes the faults while the datapath runs, from any thread.
#[derive(Clone)]
pub struct FaultHandle(Arc<Mutex<Shared>>);

impl FaultHandle {
    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Switches the loss of all sent packets on or off.
    pub fn tx_off(&self, off: bool) {
        self.lock().tx.off = off;
    }

    /// Switches the loss of all received packets on or off.
    pub fn rx_off(&self, off: bool) {
        self.lock().rx.off = off;
    }

    /// Switches the loss of all packets sent over `path` on or off.
    pub fn path_off(&self, path: u8, off: bool) {
        self.lock().black_holes[usize::from(path)] = off;
    }

    /// Sets whether the datapath refuses packets, as if the kernel had no buffer.
    pub fn tx_stall(&self, stalled: bool) {
        self.lock().stalled = stalled;
    }

    /// Counters of sent packets.
    pub fn tx_done(&self) -> Done {
        self.lock().tx.done
    }

    /// Counters of received packets.
    pub fn rx_done(&self) -> Done {
        self.lock().rx.done
    }
}

/// The faults drawn for one packet.
#[derive(Clone, Copy, Default)]
struct Fate {
    lost: bool,
    /// Ticks to hold it; 0 = pass it on at once.
    hold: u64,
    /// Ticks after which a copy follows.
    duplicate: Option<u64>,
    /// Random number that chooses the bit to flip.
    corrupt: Option<u64>,
    ce: bool,
}

impl Direction {
    fn new(rates: Rates) -> Self {
        Self { rates, off: false, done: Done::default() }
    }

    fn fate(&mut self, black_hole: bool, rng: &mut SplitMix) -> Fate {
        let (rates, done) = (self.rates, &mut self.done);
        done.packets += 1;
        if self.off || black_hole {
            done.black_holed += 1;
            return Fate { lost: true, ..Fate::default() };
        }
        if rng.happens(rates.loss_ppm) {
            done.lost += 1;
            return Fate { lost: true, ..Fate::default() };
        }
        let far = u64::from(rates.reorder_packets_max.max(1));
        let mut fate = Fate { hold: u64::from(rates.delay_packets), ..Fate::default() };
        if rng.happens(rates.reorder_ppm) {
            fate.hold += 1 + rng.next() % far;
        }
        done.held += u64::from(fate.hold > 0);
        if rng.happens(rates.duplicate_ppm) {
            done.duplicated += 1;
            fate.duplicate = Some(fate.hold + rng.next() % (far + 1));
        }
        if rng.happens(rates.corrupt_ppm) {
            done.corrupted += 1;
            fate.corrupt = Some(rng.next());
        }
        if rng.happens(rates.ce_ppm) {
            done.marked += 1;
            fate.ce = true;
        }
        fate
    }
}

/// Random numbers: a counter through a mixing function (Steele, Lea, Flood 2014, "Fast splittable
/// pseudorandom number generators"). Small, and the sequence never changes.
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Draws no number if the probability is 0, so that a new kind of fault does not change other
    /// draws.
    fn happens(&mut self, ppm: u32) -> bool {
        ppm > 0 && self.next() % 1_000_000 < u64::from(ppm)
    }
}

/// Held packets, by tick and then by order of arrival.
struct Held<T> {
    packets: BTreeMap<(u64, u64), T>,
    tick: u64,
    count: u64,
    /// A packet arrived since the last idle tick.
    busy: bool,
}

impl<T> Held<T> {
    fn new() -> Self {
        Self { packets: BTreeMap::new(), tick: 0, count: 0, busy: false }
    }

    fn packet_tick(&mut self) {
        self.tick += 1;
        self.busy = true;
    }

    fn idle_tick(&mut self) {
        self.tick += u64::from(!self.busy);
        self.busy = false;
    }

    fn hold(&mut self, ticks: u64, packet: T, done: &mut Done) {
        if self.packets.len() >= HELD_MAX {
            done.overflowed += 1;
            return;
        }
        self.count += 1;
        self.packets.insert((self.tick + ticks, self.count), packet);
    }

    /// The next packet whose tick has come.
    fn due(&mut self) -> Option<T> {
        let first = self.packets.first_entry()?;
        if first.key().0 <= self.tick { Some(first.remove()) } else { None }
    }

    fn is_due(&self) -> bool {
        self.packets.first_key_value().is_some_and(|((tick, _), _)| *tick <= self.tick)
    }
}

struct HeldTx {
    dst: SocketAddr,
    path: u8,
    bytes: Vec<u8>,
}

struct HeldRx {
    src: SocketAddr,
    ce: bool,
    rxq_drops: u32,
    bytes: Vec<u8>,
}

impl HeldRx {
    fn datagram(&mut self) -> RxDatagram<'_> {
        let (src, ce, rxq_drops, bytes) = (self.src, self.ce, self.rxq_drops, &mut self.bytes[..]);
        RxDatagram { src, ce, rxq_drops, waited_ns: 0, bytes }
    }
}

fn bit_flip(bytes: &mut [u8], random: u64) {
    let bits = bytes.len() as u64 * 8;
    if bits > 0 {
        let bit = random % bits;
        bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
    }
}

/// A datapath with faults; see the module.
pub struct Fault<D> {
    inner: D,
    shared: FaultHandle,
    tx_rng: SplitMix,
    rx_rng: SplitMix,
    tx_held: Held<HeldTx>,
    rx_held: Held<HeldRx>,
    scratch: Vec<u8>,
}

impl<D: Datapath> Fault<D> {
    /// Wraps `inner`. All random choices come from `seed`; each direction has its own sequence.
    pub fn new(inner: D, seed: u64, tx: Rates, rx: Rates) -> Self {
        let mut seeds = SplitMix(seed);
        let shared = Shared {
            tx: Direction::new(tx),
            rx: Direction::new(rx),
            black_holes: [false; 256],
            stalled: false,
        };
        Self {
            inner,
            shared: FaultHandle(Arc::new(Mutex::new(shared))),
            tx_rng: SplitMix(seeds.next()),
            rx_rng: SplitMix(seeds.next()),
            tx_held: Held::new(),
            rx_held: Held::new(),
            scratch: Vec::new(),
        }
    }

    /// The handle that changes the faults later.
    pub fn handle(&self) -> FaultHandle {
        self.shared.clone()
    }

    /// The wrapped datapath.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    fn packet_copy(packet: &TxPacket<'_>, fate: Fate) -> HeldTx {
        let mut bytes = Vec::new();
        packet.gather_into(&mut bytes);
        if let Some(random) = fate.corrupt {
            bit_flip(&mut bytes, random);
        }
        HeldTx { dst: packet.dst, path: packet.path, bytes }
    }

    /// Refuses a packet that the inner datapath would refuse, even if the packet is to be lost or
    /// held.
    fn packet_check(&self, packet: &TxPacket<'_>) -> Result<(), TxPushError> {
        let (len, max) = (packet.wire_len(), self.inner.udp_payload_max());
        if len > max {
            return Err(TxPushError::TooLong { len, max });
        }
        let (path, paths) = (packet.path, self.inner.paths());
        if usize::from(path) >= paths {
            return Err(TxPushError::BadPath { path, paths });
        }
        if packet.dst.is_ipv4() != self.inner.local_ip().is_ipv4() {
            return Err(TxPushError::BadFamily);
        }
        if self.tx_room() == 0 { Err(TxPushError::Full) } else { Ok(()) }
    }

    /// Pushes held packets whose tick has come; flushes if there is no more room.
    fn tx_release(&mut self, report: &mut TxReport) -> io::Result<()> {
        while self.tx_held.is_due() {
            if self.inner.tx_room() == 0 {
                merge(report, self.inner.tx_flush()?);
                if self.inner.tx_room() == 0 {
                    break;
                }
            }
            let Some(held) = self.tx_held.due() else { break };
            let packet = TxPacket {
                dst: held.dst,
                path: held.path,
                headers: &held.bytes,
                payload: &[],
                padded_len: 0,
                finish: None,
            };
            if self.inner.tx_push(&packet).is_err() {
                report.dropped += 1;
            }
        }
        Ok(())
    }
}

fn merge(report: &mut TxReport, more: TxReport) {
    report.sent += more.sent;
    report.dropped += more.dropped;
    report.backlog = more.backlog;
    report.too_long = more.too_long.or(report.too_long);
}

impl<D: Datapath> Datapath for Fault<D> {
    fn local_ip(&self) -> IpAddr {
        self.inner.local_ip()
    }

    fn port(&self) -> u16 {
        self.inner.port()
    }

    fn paths(&self) -> usize {
        self.inner.paths()
    }

    fn path_port(&self, path: u8) -> u16 {
        self.inner.path_port(path)
    }

    fn udp_payload_max(&self) -> usize {
        self.inner.udp_payload_max()
    }

    fn tx_room(&self) -> usize {
        if self.shared.lock().stalled { 0 } else { self.inner.tx_room() }
    }

    fn tx_ready(&self) -> bool {
        !self.shared.lock().stalled && self.inner.tx_ready()
    }

    fn tx_push(&mut self, packet: &TxPacket<'_>) -> Result<(), TxPushError> {
        self.packet_check(packet)?;
        let mut shared = self.shared.lock();
        let black_hole = shared.black_holes[usize::from(packet.path)];
        let fate = shared.tx.fate(black_hole, &mut self.tx_rng);
        self.tx_held.packet_tick();
        if fate.lost {
            return Ok(());
        }
        if let Some(ticks) = fate.duplicate {
            let copy = Self::packet_copy(packet, Fate::default());
            self.tx_held.hold(ticks, copy, &mut shared.tx.done);
        }
        if fate.hold > 0 {
            let copy = Self::packet_copy(packet, fate);
            self.tx_held.hold(fate.hold, copy, &mut shared.tx.done);
            return Ok(());
        }
        drop(shared);
        if fate.corrupt.is_none() {
            return self.inner.tx_push(packet);
        }
        let copy = Self::packet_copy(packet, fate);
        // Bits are flipped after the checksum has been written.
        let packet = TxPacket { headers: &copy.bytes, payload: &[], finish: None, ..*packet };
        self.inner.tx_push(&packet)
    }

    fn tx_copies(&self, len: usize) -> bool {
        self.inner.tx_copies(len)
    }

    fn tx_flush(&mut self) -> io::Result<TxReport> {
        self.tx_held.idle_tick();
        let mut report = TxReport::default();
        self.tx_release(&mut report)?;
        merge(&mut report, self.inner.tx_flush()?);
        Ok(report)
    }

    fn tx_discard(&mut self) {
        self.inner.tx_discard();
    }

    fn rx(&mut self, sink: &mut dyn FnMut(RxDatagram<'_>)) -> io::Result<RxReport> {
        let Self { inner, shared, rx_rng, rx_held, scratch, .. } = self;
        let mut given = 0;
        rx_held.idle_tick();
        let report = inner.rx(&mut |datagram| {
            let mut shared = shared.lock();
            let fate = shared.rx.fate(false, rx_rng);
            rx_held.packet_tick();
            if fate.lost {
                return;
            }
            let ce = datagram.ce || fate.ce;
            scratch.clear();
            scratch.extend_from_slice(datagram.bytes);
            let (src, rxq_drops) = (datagram.src, datagram.rxq_drops);
            if let Some(ticks) = fate.duplicate {
                let copy = HeldRx { src, ce, rxq_drops, bytes: scratch.clone() };
                rx_held.hold(ticks, copy, &mut shared.rx.done);
            }
            if let Some(random) = fate.corrupt {
                bit_flip(scratch, random);
            }
            if fate.hold > 0 {
                let copy = HeldRx { src, ce, rxq_drops, bytes: scratch.clone() };
                rx_held.hold(fate.hold, copy, &mut shared.rx.done);
                return;
            }
            drop(shared);
            given += 1;
            sink(RxDatagram { ce, bytes: scratch, ..datagram });
        })?;
        while let Some(mut held) = rx_held.due() {
            given += 1;
            sink(held.datagram());
        }
        Ok(RxReport { datagrams: given, more: report.more })
    }

    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let held = !self.tx_held.packets.is_empty() || !self.rx_held.packets.is_empty();
        if !held && !self.shared.lock().stalled {
            return self.inner.wait(timeout);
        }
        self.inner.wait(Some(timeout.map_or(HELD_WAIT_MAX, |t| t.min(HELD_WAIT_MAX))))?;
        self.tx_held.idle_tick();
        self.rx_held.idle_tick();
        Ok(())
    }

    fn waker(&self) -> Waker {
        self.inner.waker()
    }

    fn rx_backlog(&self) -> RxBacklog {
        self.inner.rx_backlog()
    }

    fn counters(&self) -> Counters {
        self.inner.counters()
    }
}

#[cfg(test)]
mod tests;
