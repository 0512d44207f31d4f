//! Ways that carry less than full packets, and ways that only look so.
//!
//! All members are honest; what is hostile is the network. Between the victim and the first other
//! member packets above a size vanish, or the victim's own interface refuses them; or nothing is
//! wrong with sizes, and packets between the victim and all others vanish for another reason. What
//! an engine may tell of sizes then, and what it must have found in the end, follows from the plan
//! alone.

use super::net::{Act, Event};
use super::plan::Plan;
use super::stage::Stage;
use crate::draw::Draw;
use crate::ledger::Oracle;
use srd_core::Opcode;
use srd_core::config::EngineConfig;
use srd_core::wire::{HEADER_BYTES, IPV4_BYTES, OVERHEAD_BYTES, UDP_BYTES, payload_bytes_max};
use std::net::IpAddr;

/// MTUs of links that an engine asks for (see `path/mtu.rs` of the core).
const TABLE: [u32; 11] = [576, 1280, 1420, 1450, 1480, 1492, 1500, 4352, 8166, 9000, 17_914];
/// Work goes on for so long after a way has become narrow: then its size is known.
const FOUND_NS: u64 = 2_000_000_000;
/// And after it carries everything again: that is tried after one second and, in vain, after two
/// more.
const RAISED_NS: u64 = 2_600_000_000;
/// And after a fault that has nothing to do with sizes.
const AFTER_NS: u64 = 200_000_000;
/// What is under way when the work ends has ended after so long.
pub(super) const SETTLE_NS: u64 = 4_000_000_000;
/// Packets are lost for so long after the absent end has come up.
const SHAKY_NS: u64 = 300_000_000;
/// Bytes of a datagram from which on a crowded queue has hardly any room for it.
const LARGE_BYTES: usize = 600;
/// Packets leave so long before a way changes: they are under way when it does.
const AHEAD_NS: u64 = 15_000;

/// Operations of the work.
const OPS: &[Opcode] = &[Opcode::Send, Opcode::Write, Opcode::WriteImm, Opcode::Read];

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The way to the first other member is narrow from the start.
    Start,
    /// It becomes narrow.
    Later,
    /// The victim's own interface shrinks, and says so.
    Local,
    /// Nothing passes for a while, in one direction or both.
    Cut,
    /// Most large packets are lost for a while, and some of the others.
    Crowded,
    /// The others come up late, and packets of all sizes are lost until all is well.
    Absent,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Narrow {
    /// What is wrong.
    pub way: Way,
    /// Largest IP packet that passes, where that is less than usual.
    pub link_mtu: u32,
    /// When it begins, in ns.
    pub from_ns: u64,
    /// When it is over.
    pub until_ns: u64,
    /// Where nothing passes: from the victim (1), to it (2), or both (3).
    pub cut: u64,
    /// Losses of large packets and of others in percent.
    pub lost: (u64, u64),
    /// What the victim is sent is lost for so long after its interface has shrunk, in ns.
    pub deaf_ns: u64,
    /// Time between two pieces of work of a flow, in ns.
    pub each_ns: u64,
}

/// Bytes of an IP packet with `mtu` bytes of payload and no headers but the common one.
fn bare_bytes(mtu: u16) -> u32 {
    u32::from(mtu) + (HEADER_BYTES + UDP_BYTES + IPV4_BYTES) as u32
}

impl Narrow {
    /// A way for engines whose packets have `mtu` bytes of payload.
    pub(super) fn draw(d: &mut Draw, mtu: u16) -> Self {
        // Weighted by how many worlds it takes until a broken rule shows.
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
        // Mostly no full packet passes, however short its headers are; else some kinds may.
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

    /// How long there is work.
    pub(super) fn work_ns(&self) -> u64 {
        match (self.is_narrow(), self.widens()) {
            (false, _) => self.until_ns + AFTER_NS,
            (true, true) => self.until_ns + RAISED_NS,
            (true, false) => self.from_ns + FOUND_NS,
        }
    }

    /// What engines in such a world are configured like: as on sockets, with times of this network.
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

    /// Whether sizes are what is wrong.
    pub fn is_narrow(&self) -> bool {
        matches!(self.way, Way::Start | Way::Later | Way::Local)
    }

    /// Whether it carries everything again before the work ends.
    pub fn widens(&self) -> bool {
        self.is_narrow() && self.until_ns < u64::MAX / 2
    }

    fn is_on(&self, now: u64) -> bool {
        (self.from_ns..self.until_ns).contains(&now)
    }

    /// Whether `bytes` of UDP payload are more than passes.
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

    /// Whether the interface of host `from` refuses a datagram: its payload beyond headers, and the
    /// most that it takes.
    pub(super) fn refuses(&self, now: u64, from: usize, bytes: usize) -> Option<(u16, u16)> {
        let refused = self.way == Way::Local && from == 0 && self.is_on(now) && self.is_long(bytes);
        refused.then(|| ((bytes - OVERHEAD_BYTES) as u16, self.payload_max()))
    }

    /// Payload of a packet that just passes.
    fn payload_max(&self) -> u16 {
        payload_bytes_max(self.link_mtu, IPV4_BYTES).unwrap_or(0)
    }

    /// The size that is found for the way: what the interface says, or the largest of the table
    /// that passes. Whole blocks of 128 where full packets have those.
    pub(super) fn size(&self, mtu: u16) -> u16 {
        let whole = |size: u16| if mtu.is_multiple_of(128) { size - size % 128 } else { size };
        let passes = self.payload_max();
        if self.way == Way::Local {
            return whole(passes);
        }
        let sizes = TABLE.into_iter().filter_map(|m| payload_bytes_max(m, IPV4_BYTES));
        whole(sizes.filter(|&s| s <= passes).max().unwrap_or(0))
    }

    /// Whether `size` may be found for the way: at least the largest of the table that passes, and
    /// where data shows that more does, at most that.
    fn is_right(&self, size: u16, mtu: u16) -> bool {
        let known = self.way == Way::Local || mtu.is_multiple_of(128);
        let least = self.size(mtu);
        (least..=if known { least } else { self.payload_max() }).contains(&size)
    }

    /// Whether no full packet passes: then a smaller size must be found.
    fn is_sure(&self, mtu: u16) -> bool {
        self.link_mtu < bare_bytes(mtu)
    }

    /// Whether packets from one member to another have another size while it is narrow.
    fn concerns(&self, from: usize, to: usize) -> bool {
        match self.way {
            Way::Start | Way::Later => from != to && from.min(to) == 0 && from.max(to) == 1,
            Way::Local => from == 0,
            _ => false,
        }
    }

    /// Whether it is right that member `from` tells of `size` towards member `to`.
    pub(super) fn is_told_rightly(
        &self,
        now: u64,
        (from, to): (usize, usize),
        size: u16,
        mtu: u16,
    ) -> bool {
        // While it widens, each size that passes may be found.
        let right = if now < self.until_ns { self.is_right(size, mtu) } else { size <= mtu };
        self.concerns(from, to) && now >= self.from_ns && right
    }

    /// Whether a message may be longer than what passes.
    pub(super) fn is_over(&self, from: usize, to: usize, len: u32, mtu: u16) -> bool {
        self.concerns(from, to) && len > u32::from(self.size(mtu))
    }
}

/// What each engine has found in the end.
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
                "engine {} has packets of {found:?} to {}; right is {least:?} (None: full ones)",
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
    /// Work in small pieces, some of which are under way when the way changes.
    pub(super) fn cast_narrow(&mut self) {
        let plan = self.plan;
        let Some(n) = &plan.narrow else { return };
        for f in &mut self.board.flows {
            (f.ops, f.each_ns) = (OPS, n.each_ns);
            // They answer, and open nothing themselves.
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

    /// Looks at what members have told of sizes.
    pub(super) fn sizes_check(&mut self) {
        let plan = self.plan;
        let mtu = plan.config.mtu;
        for (id, ip, size) in core::mem::take(&mut self.board.sizes) {
            let to = self.peers.iter().position(|p| p.at.ip == ip);
            let right = match &plan.narrow {
                Some(n) => to.is_some_and(|to| n.is_told_rightly(self.now, (id, to), size, mtu)),
                // A liar may make packets to its own address small.
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
