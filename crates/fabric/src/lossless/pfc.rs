//! Priority flow control: a switch that holds too many bytes from a link pauses the link's sender.
//!
//! Each link's receiver counts the bytes from that link that it holds. From `xoff_bytes` on it
//! sends a PAUSE frame back over the same cable, and a RESUME frame (a PAUSE of no duration) when
//! the count has fallen to `xon_bytes`. The frames take [`FRAME_BYTES`] of the wire, before all
//! packets that wait, but behind one that has begun to leave. The *headroom* above `xoff_bytes`
//! holds what arrives until the pause takes effect. IEEE 802.1Qbb limits a pause to 65,535 quanta
//! and lets receivers repeat it; here a pause lasts until the RESUME frame, and the repetitions
//! (one frame in 335 us at 100 Gb/s) are left out. Like credits, these frames are never lost.

use super::{CreditConfig, Lossless, Service};
use crate::event::{Event, PAUSE};
use crate::net::Net;
use crate::slab::{CE, ECT};
use crate::stats::TapWhat;
use crate::topo::{LinkId, Port, Ps, Topology, TopologyError};

/// Bytes on the wire of a PAUSE frame: the least Ethernet frame (64), preamble and gap.
pub const FRAME_BYTES: u32 = 84;
/// Size of an input buffer whose sender keeps no account of its room.
const UNLIMITED: u64 = 1 << 40;

/// Settings of priority flow control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PfcConfig {
    /// Number of bytes held from a link from which its sender is paused.
    pub xoff_bytes: u64,
    /// Number of bytes held from a link at which its sender may continue; less than `xoff_bytes`.
    pub xon_bytes: u64,
    /// Room of each input buffer above `xoff_bytes`, in bytes; `None`: what
    /// [`PfcConfig::headroom_bytes`] computes.
    pub headroom_bytes: Option<u64>,
    /// Largest packet on the wire in bytes.
    pub packet_bytes: u32,
    /// Order in which an output serves waiting packets.
    pub service: Service,
}

impl PfcConfig {
    /// The headroom in bytes that `link` needs so that nothing is ever lost. The packet that
    /// crosses `xoff_bytes` is counted when its last bit arrives, so most of it lies above the
    /// threshold. Then the PAUSE frame waits for a packet on the wire and an earlier RESUME frame,
    /// and both directions of the cable add delay. Then the sender finishes the packet that it has
    /// begun.
    ///
    /// ```
    /// use srd_fabric::{LinkId, PfcConfig, Port, Service, US, back_to_back};
    /// let wire = back_to_back(Port::new(100_000_000_000, US));
    /// let pfc = PfcConfig {
    ///     xoff_bytes: 60_000,
    ///     xon_bytes: 48_000,
    ///     headroom_bytes: None,
    ///     packet_bytes: 4_000,
    ///     service: Service::Fcfs,
    /// };
    /// // Two packets, one more and two frames behind each other on the way back, 2 us of wire.
    /// let bytes = 2 * 4_000 + (4_000 + 2 * 84) + 2 * 12_500;
    /// assert_eq!(pfc.headroom_bytes(&wire, LinkId(0)), bytes);
    /// ```
    pub fn headroom_bytes(&self, topo: &Topology, link: LinkId) -> u64 {
        self.headroom_of(topo.port(link), topo.port(link.reverse()))
    }

    /// The headroom of a link from port `there`, with port `back` at its other end.
    fn headroom_of(&self, there: &Port, back: &Port) -> u64 {
        let packet = u64::from(self.packet_bytes);
        let wait_ps = back.serialise_ps(packet + 2 * u64::from(FRAME_BYTES));
        let bytes = bytes_in(there, wait_ps + back.delay_ps + there.delay_ps);
        bytes.saturating_add(2 * packet)
    }

    /// The equivalent credit settings, with unlimited credits.
    pub(super) const fn credits(&self) -> CreditConfig {
        CreditConfig { input_bytes: UNLIMITED, lanes: 1, service: self.service }
    }

    /// Checks the settings for a network.
    ///
    /// # Errors
    /// Thresholds that hold no packet or are in the wrong order, and headroom that is too small.
    pub fn check(&self, topo: &Topology) -> Result<(), TopologyError> {
        let fail = |text: String| Err(TopologyError::new(text));
        let Self { xoff_bytes, xon_bytes, packet_bytes, .. } = *self;
        if xoff_bytes < u64::from(packet_bytes) || xoff_bytes > UNLIMITED / 2 {
            return fail(format!(
                "pfc_xoff_bytes = {xoff_bytes}: give at least a packet of {packet_bytes} bytes, \
                 and at most 2^39"
            ));
        }
        if xon_bytes >= xoff_bytes {
            return fail(format!(
                "pfc_xon_bytes = {xon_bytes} must be less than pfc_xoff_bytes = {xoff_bytes}"
            ));
        }
        let Some(given) = self.headroom_bytes else { return Ok(()) };
        let most = (0..topo.links()).map(LinkId).max_by_key(|l| self.headroom_bytes(topo, *l));
        let Some(link) = most else { return Ok(()) };
        let needed = self.headroom_bytes(topo, link);
        if given < needed {
            return fail(format!(
                "pfc_headroom_bytes = {given}: link {} needs {needed} for packets of \
                 {packet_bytes} bytes, or packets are lost while the pause takes effect; give at \
                 least that, or leave the field out",
                topo.link_name(link)
            ));
        }
        Ok(())
    }
}

/// Bytes that a port sends in a time, rounded up.
fn bytes_in(port: &Port, ps: Ps) -> u64 {
    let bits = u128::from(ps) * u128::from(port.bits_per_s);
    bits.div_ceil(8_000_000_000_000) as u64
}

/// Pauses of one link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pauses {
    /// Time for which the sender of the link has been paused, ps.
    pub paused_ps: Ps,
    /// PAUSE frames that the receiver sent, without RESUME frames.
    pub frames: u64,
    /// Largest number of bytes of the link that the receiver held.
    pub held_bytes_max: u64,
    /// Room of the input buffer: xoff and headroom.
    pub limit_bytes: u64,
}

/// State of one link.
#[derive(Clone, Copy, Debug)]
struct Pausing {
    /// Whether the receiver wants a pause: its last frame was a PAUSE.
    asked: bool,
    /// Time since which the sender is paused; [`Ps::MAX`]: it is not paused.
    since: Ps,
    /// Number of frames on the wire.
    frames_under_way: u32,
    sums: Pauses,
}

/// Pauses of all links.
#[derive(Clone, Debug)]
pub(crate) struct Pfc {
    config: PfcConfig,
    links: Vec<Pausing>,
}

impl Pfc {
    pub fn new(topo: &Topology, config: PfcConfig) -> Result<Self, TopologyError> {
        config.check(topo)?;
        let link = |l: u32| {
            let computed = || config.headroom_bytes(topo, LinkId(l));
            let headroom = config.headroom_bytes.unwrap_or_else(computed);
            let limit_bytes = config.xoff_bytes + headroom;
            let sums = Pauses { limit_bytes, ..Pauses::default() };
            Pausing { asked: false, since: Ps::MAX, frames_under_way: 0, sums }
        };
        Ok(Self { config, links: (0..topo.links()).map(link).collect() })
    }

    pub const fn packet_bytes(&self) -> u32 {
        self.config.packet_bytes
    }

    /// Whether the sender of a link is paused.
    pub fn paused(&self, link: u32) -> bool {
        self.links[link as usize].since != Ps::MAX
    }

    /// Whether a link stays paused until its buffer empties: no frame is on its way.
    pub fn stands(&self, link: u32) -> bool {
        let l = &self.links[link as usize];
        l.asked && l.since != Ps::MAX && l.frames_under_way == 0
    }

    /// Bytes at which a buffer's sender may continue.
    pub const fn xon_bytes(&self) -> u64 {
        self.config.xon_bytes
    }

    /// Counters of a link at `now`.
    pub fn pauses(&self, link: u32, now: Ps) -> Pauses {
        let l = &self.links[link as usize];
        let running = if l.since == Ps::MAX { 0 } else { now.saturating_sub(l.since) };
        Pauses { paused_ps: l.sums.paused_ps + running, ..l.sums }
    }
}

impl Lossless {
    /// Bytes in the buffer at the end of a link, those of a leaving packet included.
    pub(super) fn occupied(&self, link: u32) -> u64 {
        let buffer = &self.buffers[link as usize];
        buffer.held + buffer.returning
    }
}

impl<P> Net<P> {
    /// Accounts for a packet that a receiver now holds. Returns false if there is no room for it.
    pub(super) fn pfc_held(&mut self, link: u32) -> bool {
        let Some(ll) = self.lossless.as_deref_mut() else { return true };
        let held = ll.occupied(link);
        let Some(pfc) = &mut ll.pfc else { return true };
        let xoff = pfc.config.xoff_bytes;
        let l = &mut pfc.links[link as usize];
        if held > l.sums.limit_bytes {
            return false;
        }
        l.sums.held_bytes_max = l.sums.held_bytes_max.max(held);
        if held >= xoff && !l.asked {
            l.asked = true;
            l.sums.frames += 1;
            self.pause_send(link, true);
        }
        true
    }

    /// Resumes the sender of a link whose buffer has emptied enough.
    pub(super) fn pfc_freed(&mut self, link: u32) {
        let Some(ll) = self.lossless.as_deref_mut() else { return };
        let held = ll.occupied(link);
        let Some(pfc) = &mut ll.pfc else { return };
        let xon = pfc.config.xon_bytes;
        let l = &mut pfc.links[link as usize];
        if l.asked && held <= xon {
            l.asked = false;
            self.pause_send(link, false);
        }
    }

    /// Sends a PAUSE or RESUME frame for a link over its reverse, before waiting packets.
    fn pause_send(&mut self, link: u32, pause: bool) {
        let back = &mut self.links[(link ^ 1) as usize];
        let profile = &self.profiles[back.profile as usize];
        back.busy_until = self.now.max(back.busy_until) + profile.serialise_ps(FRAME_BYTES);
        back.bytes += u64::from(FRAME_BYTES);
        let (at, to) = (back.busy_until + profile.delay_ps, back.to);
        if let Some(pfc) = self.lossless.as_deref_mut().and_then(|ll| ll.pfc.as_mut()) {
            pfc.links[link as usize].frames_under_way += 1;
        }
        self.schedule(at, Event { to, ..Event::new(PAUSE, link, u32::from(pause)) });
    }

    /// A PAUSE or RESUME frame has reached the sender of a link.
    pub fn pause_due(&mut self, event: Event) {
        let (link, now) = (event.id(), self.now);
        let Some(pfc) = self.lossless.as_deref_mut().and_then(|ll| ll.pfc.as_mut()) else { return };
        let l = &mut pfc.links[link as usize];
        l.frames_under_way -= 1;
        if event.b != 0 {
            l.since = l.since.min(now);
            return;
        }
        if l.since != Ps::MAX {
            l.sums.paused_ps += now - l.since;
            l.since = Ps::MAX;
        }
        self.output_serve(link);
    }

    /// Recomputes the headroom at both ends of these links after a change of their rates, as a
    /// switch does when a port comes up at another speed. No headroom becomes smaller.
    pub fn headroom_renew(&mut self, links: &[LinkId]) {
        let Some(pfc) = self.lossless.as_deref_mut().and_then(|ll| ll.pfc.as_mut()) else { return };
        for link in links.iter().flat_map(|l| [*l, l.reverse()]) {
            let port = |l: LinkId| &self.profiles[self.links[l.0 as usize].profile as usize].port;
            let needed = pfc.config.headroom_of(port(link), port(link.reverse()));
            let sums = &mut pfc.links[link.0 as usize].sums;
            sums.limit_bytes = sums.limit_bytes.max(pfc.config.xoff_bytes + needed);
        }
    }

    /// Marks a packet that joins a switch's queue, if the queue's marking rule says so.
    pub(super) fn queue_mark(&mut self, out: u32, packet: u32, backlog_ps: Ps) {
        let link = &self.links[out as usize];
        let profile = &self.profiles[link.profile as usize];
        let flags = self.slab.header(packet).flags;
        if backlog_ps < profile.ecn_min_ps || flags & ECT == 0 {
            return;
        }
        let drawn = u64::from(out) << 40 | u64::from(packet);
        let bits = crate::rng::mix64(!self.seed ^ crate::rng::mix64(drawn ^ self.now));
        if !profile.marks(backlog_ps, bits) {
            return;
        }
        self.slab.header_mut(packet).flags |= CE;
        self.cold[out as usize].marked += 1;
        self.totals.marked += 1;
        if self.tap.is_some() {
            self.tap_call(TapWhat::Marked, Some(out), packet);
        }
    }
}

/// Finds the buffers at the ends of paused links that can never fall to `xon_bytes` again.
///
/// A paused link continues when its buffer falls to `xon_bytes`. Bytes in the buffer that wait for
/// an output that is not paused, or whose next buffer will empty, count as gone. The other bytes
/// stay as long as the buffers ahead stay full.
pub(super) fn standing(ll: &Lossless, pfc: &Pfc, dead: impl Fn(u32) -> bool) -> Vec<bool> {
    let n = ll.buffers.len() as u32;
    let mut stuck: Vec<bool> = (0..n).map(|l| pfc.stands(l)).collect();
    // Waiting bytes of each buffer, by the output link that they wait for.
    let mut ahead: Vec<Vec<(u32, u64)>> = vec![Vec::new(); n as usize];
    for cell in ll.cells.iter().filter(|c| c.waits()) {
        if !dead(cell.out) {
            ahead[cell.link as usize].push((cell.out, u64::from(cell.bytes)));
        }
    }
    loop {
        let before = stuck.iter().filter(|s| **s).count();
        for (link, waiting) in ahead.iter().enumerate() {
            let stands = |(out, _): &&(u32, u64)| stuck[*out as usize];
            let left: u64 = waiting.iter().filter(stands).map(|(_, b)| b).sum();
            stuck[link] &= left > pfc.xon_bytes();
        }
        if stuck.iter().filter(|s| **s).count() == before {
            return stuck;
        }
    }
}
