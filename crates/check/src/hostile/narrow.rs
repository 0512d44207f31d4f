//! Paths that carry less than full packets, and faults that look like it.
//!
//! All members are honest; the network is hostile. Between the victim and the first other member
//! packets above a size are lost, or the victim's own interface refuses them; or sizes are fine,
//! and packets between the victim and all others are lost for another reason. The plan alone
//! decides which sizes an engine may report, and which one it must have found at the end.

use super::net::{Act, Event};
use super::plan::Plan;
use super::stage::Stage;
use crate::draw::Draw;
use crate::ledger::Oracle;
use srd_core::Opcode;
use srd_core::config::EngineConfig;
use srd_core::wire::{HEADER_BYTES, IPV4_BYTES, OVERHEAD_BYTES, UDP_BYTES, payload_bytes_max};
use std::net::IpAddr;

/// Link MTUs that an engine probes (see `path/mtu.rs` of the core).
const TABLE: [u32; 11] = [576, 1280, 1420, 1450, 1480, 1492, 1500, 4352, 8166, 9000, 17_914];
/// Duration of the load after a path has become narrow; the size is found within it.
const FOUND_NS: u64 = 2_000_000_000;
/// Duration after a path carries full packets again: an engine probes after one second and, if that
/// fails, after two more.
const RAISED_NS: u64 = 2_600_000_000;
/// Duration after a fault that does not concern sizes.
const AFTER_NS: u64 = 200_000_000;
/// Time within which jobs outstanding at the end of the load must end.
pub(super) const SETTLE_NS: u64 = 4_000_000_000;
/// Duration of losses after the absent end has come up.
const SHAKY_NS: u64 = 300_000_000;
/// Datagrams from this size on are mostly dropped by a crowded queue.
const LARGE_BYTES: usize = 600;
/// Packets leave this long before a path changes, so that they are in flight when it does.
const AHEAD_NS: u64 = 15_000;

/// Operations of the work.
const OPS: &[Opcode] = &[Opcode::Send, Opcode::Write, Opcode::WriteImm, Opcode::Read];

/// The kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The path to the first other member is narrow from the start.
    Start,
    /// The path becomes narrow later.
    Later,
    /// The MTU of the victim's own interface shrinks, and the interface reports it.
    Local,
    /// All packets are lost for a while, in one direction or both.
    Cut,
    /// Most large packets and some small ones are lost for a while.
    Crowded,
    /// The other members start late, and packets of all sizes are lost at first.
    Absent,
}

/// Plan of a path fault; see the module.
#[derive(Clone, Debug)]
pub struct Narrow {
    /// The kind of fault.
    pub way: Way,
    /// Largest IP packet that passes, if smaller than usual.
    pub link_mtu: u32,
    /// Start of the fault, in ns.
    pub from_ns: u64,
    /// End of the fault, in ns.
    pub until_ns: u64,
    /// Direction cut: from the victim (1), to it (2), or both (3).
    pub cut: u64,
    /// Loss of large packets and of small ones, in percent.
    pub lost: (u64, u64),
    /// Duration, in ns, of loss towards the victim after its interface has shrunk.
    pub deaf_ns: u64,
    /// Least time between two jobs of a flow, in ns.
    pub each_ns: u64,
}

/// Bytes of an IP packet with `mtu` bytes of payload and only the common header.
fn bare_bytes(mtu: u16) -> u32 {
    u32::from(mtu) + (HEADER_BYTES + UDP_BYTES + IPV4_BYTES) as u32
}

impl Narrow {
    /// Draws a fault for engines whose packets have `mtu` bytes of payload.
    pub(super) fn draw(d: &mut Draw, mtu: u16) -> Self {
        // Weighted by how many worlds it takes to expose a violated rule.
        let way = d.pick(&[
            Way::Start,
            Way::Start,
            Way::Later,
            Way::Local,
            Way::Local,
            Way::Cut,
            Way::Crowded,
            Way::Crowded,
            Way::Absent,
            Way::Absent,
        ]);
        let mtus = [576, 1000, 1100, 1300, 1450, 1500, 2000, 4400, 8200];
        // Mostly no full packet passes, however short its headers; otherwise some packet types
        // pass.
        let bare = bare_bytes(mtu);
        let mut mtus: Vec<u32> = mtus.into_iter().filter(|&m| m < bare).collect();
        if d.percent(30) {
            mtus = vec![bare + d.below((OVERHEAD_BYTES - HEADER_BYTES) as u64) as u32];
        }
        let start = match way {
            Way::Start | Way::Absent => 0,
            _ => d.range(20, 200) * 1_000_000,
        };
        let for_ns = match way {
            Way::Start | Way::Later | Way::Local if d.percent(50) => u64::MAX / 2,
            Way::Start | Way::Later | Way::Local => FOUND_NS + d.range(0, 200) * 1_000_000,
            Way::Absent => d.range(50, 2_000) * 1_000_000 + SHAKY_NS,
            _ => d.range(300, 2_000) * 1_000_000,
        };
        let until_ns = start + for_ns;
        Self {
            way,
            link_mtu: d.pick(&mtus),
            from_ns: start,
            until_ns,
            cut: d.range(1, 3),
            lost: (
                d.range(80, 90),
                if way == Way::Absent { d.range(40, 55) } else { d.range(25, 40) },
            ),
            deaf_ns: d.pick(&[0, 5, 30]) * 1_000_000,
            each_ns: d.range(15, 40) * 1_000_000,
        }
    }

    /// Duration of the load.
    pub(super) fn work_ns(&self) -> u64 {
        match (self.is_narrow(), self.widens()) {
            (false, _) => self.until_ns + AFTER_NS,
            (true, true) => self.until_ns + RAISED_NS,
            (true, false) => self.from_ns + FOUND_NS,
        }
    }

    /// Configuration of engines: as on sockets, with timers for this network.
    pub(super) fn config(d: &mut Draw, ip: IpAddr) -> EngineConfig {
        let mtu = d.pick(&[1024, 1400, 4000, 8900]);
        let mut c = EngineConfig::sockets(ip, 0, mtu);
        c.contexts_max = 64;
        c.wrs_max = 8192;
        c.window = d.pick(&[64, 4096]);
        c.path.paths = d.pick(&[1, 8, 64]);
        c.path.live_min = c.path.live_min.min(c.path.paths);
        c.rate.line_bytes_per_sec = 1_250_000_000;
        c.reads_per_context_max = d.pick(&[1, 4]);
        c.reads_max = 8 * u32::from(c.reads_per_context_max);
        c.write_imms_per_context_max = d.pick(&[1, 4]);
        if d.percent(25) {
            c.open_padded_len = 0;
        }
        if d.percent(50) {
            c.psn_start = Some(u32::MAX - d.below(80) as u32);
        }
        c
    }

    /// Whether the fault concerns packet sizes.
    pub fn is_narrow(&self) -> bool {
        matches!(self.way, Way::Start | Way::Later | Way::Local)
    }

    /// Whether full packets pass again before the load ends.
    pub fn widens(&self) -> bool {
        self.is_narrow() && self.until_ns < u64::MAX / 2
    }

    fn is_on(&self, now: u64) -> bool {
        (self.from_ns..self.until_ns).contains(&now)
    }

    /// Whether a UDP payload of `bytes` is too long to pass.
    fn is_long(&self, bytes: usize) -> bool {
        bytes + UDP_BYTES + IPV4_BYTES > self.link_mtu as usize
    }

    /// Whether a datagram from host `from` to host `to` is lost.
    pub(super) fn loses(
        &self,
        now: u64,
        (from, to): (usize, usize),
        bytes: usize,
        d: &mut Draw,
    ) -> bool {
        if self.way == Way::Local && to == 0 && now >= self.from_ns {
            return now < self.from_ns + self.deaf_ns;
        }
        let far = from.max(to);
        if !self.is_on(now) || far > 1 && self.is_narrow() {
            return false;
        }
        match self.way {
            Way::Start | Way::Later => self.is_long(bytes),
            Way::Local => false,
            Way::Cut => self.cut & if from == 0 { 1 } else { 2 } != 0,
            Way::Crowded if bytes > LARGE_BYTES => d.percent(self.lost.0),
            Way::Crowded => d.percent(self.lost.1),
            Way::Absent => d.percent(self.lost.1),
        }
    }

    /// If the interface of host `from` refuses a datagram: its payload besides headers, and the
    /// largest payload accepted.
    pub(super) fn refuses(&self, now: u64, from: usize, bytes: usize) -> Option<(u16, u16)> {
        let refused = self.way == Way::Local && from == 0 && self.is_on(now) && self.is_long(bytes);
        refused.then(|| ((bytes - OVERHEAD_BYTES) as u16, self.payload_max()))
    }

    /// Largest payload that passes.
    fn payload_max(&self) -> u16 {
        payload_bytes_max(self.link_mtu, IPV4_BYTES).unwrap_or(0)
    }

    /// The size to be found: as the interface reports, or the largest of the table that passes, in
    /// multiples of 128 bytes where full packets are.
    pub(super) fn size(&self, mtu: u16) -> u16 {
        let whole = |size: u16| if mtu.is_multiple_of(128) { size - size % 128 } else { size };
        let passes = self.payload_max();
        if self.way == Way::Local {
            return whole(passes);
        }
        let sizes = TABLE.into_iter().filter_map(|m| payload_bytes_max(m, IPV4_BYTES));
        whole(sizes.filter(|&s| s <= passes).max().unwrap_or(0))
    }

    /// Whether `size` may be found: at least the largest size of the table that passes and, if data
    /// proves that more passes, at most that.
    fn is_right(&self, size: u16, mtu: u16) -> bool {
        let known = self.way == Way::Local || mtu.is_multiple_of(128);
        let least = self.size(mtu);
        (least..=if known { least } else { self.payload_max() }).contains(&size)
    }

    /// Whether no full packet passes, so that a smaller size must be found.
    fn is_sure(&self, mtu: u16) -> bool {
        self.link_mtu < bare_bytes(mtu)
    }

    /// Whether the packet size between two members differs while the path is narrow.
    fn concerns(&self, from: usize, to: usize) -> bool {
        match self.way {
            Way::Start | Way::Later => from != to && from.min(to) == 0 && from.max(to) == 1,
            Way::Local => from == 0,
            _ => false,
        }
    }

    /// Whether member `from` may report `size` towards member `to`.
    pub(super) fn is_told_rightly(
        &self,
        now: u64,
        (from, to): (usize, usize),
        size: u16,
        mtu: u16,
    ) -> bool {
        // While the path widens, each size that passes may be found.
        let right = if now < self.until_ns { self.is_right(size, mtu) } else { size <= mtu };
        self.concerns(from, to) && now >= self.from_ns && right
    }

    /// Whether a message may be longer than what passes.
    pub(super) fn is_over(&self, from: usize, to: usize, len: u32, mtu: u16) -> bool {
        self.concerns(from, to) && len > u32::from(self.size(mtu))
    }
}

/// Checks the size that each engine has found at the end.
pub(super) fn end_check(plan: &Plan, stage: &mut Stage) {
    let Some(n) = &plan.narrow else { return };
    let mtu = plan.config.mtu;
    let mut wrong = None;
    for (p, q) in stage.peers.iter().flat_map(|p| stage.peers.iter().map(move |q| (p, q))) {
        if p.id == q.id {
            continue;
        }
        let found = p.engine.path_mtu(q.at.ip);
        let small = n.concerns(p.id, q.id) && !n.widens();
        let right = match found {
            Some(size) => small && n.is_right(size, mtu),
            None => !small || !n.is_sure(mtu),
        };
        if !right {
            let least = small.then(|| n.size(mtu));
            let what = format!(
                "engine {} has packets of {found:?} to {}; expected {least:?} (None: full packets)",
                p.id, q.id
            );
            wrong.get_or_insert(what);
        }
    }
    if let Some(what) = wrong {
        stage.board.fail(stage.now, Oracle::Paths, what);
    }
}

impl Stage<'_> {
    /// Starts flows of small jobs, some of which are outstanding when the path changes.
    pub(super) fn cast_narrow(&mut self) {
        let plan = self.plan;
        let Some(n) = &plan.narrow else { return };
        for f in &mut self.board.flows {
            (f.ops, f.each_ns) = (OPS, n.each_ns);
            // These members answer, but start nothing themselves.
            if n.way == Way::Absent && f.from > 0 {
                f.start_at = n.until_ns;
            }
        }
        let first = n.from_ns.saturating_sub(AHEAD_NS) % n.each_ns;
        self.net.at(self.now.max(first), Event::Act(Act::Tick));
        if n.way == Way::Absent {
            self.peers[1..].iter_mut().for_each(|p| p.alive = false);
            self.net.at(n.until_ns - SHAKY_NS, Event::Act(Act::Come));
        }
    }

    /// Checks the sizes that members reported.
    pub(super) fn sizes_check(&mut self) {
        let plan = self.plan;
        let mtu = plan.config.mtu;
        for (id, ip, size) in core::mem::take(&mut self.board.sizes) {
            let to = self.peers.iter().position(|p| p.at.ip == ip);
            let right = match &plan.narrow {
                Some(n) => to.is_some_and(|to| n.is_told_rightly(self.now, (id, to), size, mtu)),
                // A liar may reduce the packet size to its own address.
                None => self.is_of_liar(ip) || self.mutants.contains(&id),
            };
            if !right {
                let what = format!("engine {id}: {size} bytes to {ip} at {} ns", self.now);
                self.board.fail(self.now, Oracle::Paths, what);
            }
        }
    }

    fn is_of_liar(&self, ip: IpAddr) -> bool {
        let mutant = self.mutants.iter().any(|&m| self.peers[m].at.ip == ip);
        mutant || self.liars.iter().any(|l| l.at.ip == ip)
    }
}
