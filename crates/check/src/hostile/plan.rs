//! What a hostile world is made of: drawn from its seed before time starts.

use super::joined::RailDown;
use super::narrow::{self, Narrow};
use crate::class::{Class, Classes};
use crate::draw::Draw;
use crate::focus::burst_draw;
use crate::scenario::stream;
use srd_core::config::Integrity;
use srd_core::time::Span;
use srd_core::{EngineConfig, Opcode, wire};
use std::net::{IpAddr, Ipv4Addr};

/// Share of the seeds whose world is hostile, in percent.
const SHARE: u64 = 8;
/// One of so many seeds has a hostile world.
pub const HOSTILE_EACH: u64 = 100 / SHARE;

/// Classes whose worlds are run only when asked for by name (`--with`), because the engine does not
/// pass them yet.
pub const AWAITED: Classes = Classes(0);

/// Places for reads where there are enough for the dead and the living.
const READS_AMPLE: u32 = 64;
/// Damage per thousand datagrams, at most, where work must end well.
const DAMAGE_SOUND_MAX: u64 = 20;

/// Most slots from which a liar speaks.
const LIAR_SLOTS_MAX: u8 = 12;

/// How a liar chooses its words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Fields at random, within and without the ranges that make sense.
    Random,
    /// It remembers packets and requests, and answers them wrongly.
    Stateful,
    /// A true engine's packets with some fields changed.
    Mutant,
}

/// A hostile world.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What is wrong in it.
    pub class: Class,
    /// How the liar lies.
    pub mode: Mode,
    /// The liar has an address that an honest engine has, too.
    pub shares_address: bool,
    /// Honest engines beside the victim.
    pub honest: usize,
    /// Engines that die.
    pub dead: usize,
    /// Time with load, in ns.
    pub load_ns: u64,
    /// Words of the hostile side.
    pub words: u32,
    /// Time between its turns, in ns.
    pub pause_ns: u64,
    /// Messages sent before there are receives.
    pub late_messages: u32,
    /// Share of the victim's cable that the hostile side takes at most, in percent.
    pub share: u64,
    /// How long packets lie in a socket that never runs empty, in ns.
    pub lag_ns: u64,
    /// Damage per thousand datagrams.
    pub damage: u64,
    /// Payload of a message of honest work, in packets of the MTU.
    pub packets: u32,
    /// Configuration that all engines start from.
    pub config: EngineConfig,
    /// Every other engine leaves its data unchecked, whatever the rest wants.
    pub mixed: bool,
    /// Slots of the liar's host from which it opens a context each.
    pub liar_slots: u8,
    /// The liar claims that it has much to send.
    pub claims: bool,
    /// And it leaves out transmission numbers, as if packets with them were lost.
    pub leaves_out: bool,
    /// The way that worlds of the class `Narrow` have.
    pub narrow: Option<Narrow>,
    /// The cable that goes down in worlds of the class `RailDown`.
    pub rail_down: Option<RailDown>,
}

/// Bytes per microsecond of every cable: 10 Gb/s.
pub(super) const BYTES_PER_US: u64 = 1250;
/// One way through the switch, in ns.
pub(super) const DELAY_NS: u64 = 10_000;
/// Silence after which a peer is given up.
pub(super) const SILENCE_NS: u64 = 2_000_000;

/// The plan of a seed, if its world is hostile. `bytes` decide first, and all of these worlds are
/// hostile whose first byte is odd.
pub(crate) fn draw(seed: u64, bytes: &[u8], allowed: Classes) -> Option<Plan> {
    let mut d = Draw::with_bytes(seed, stream::HOSTILE, 0, bytes.get(1..).unwrap_or_default());
    let wanted = match bytes.first() {
        None => Draw::new(seed, stream::HOSTILE, 1).percent(SHARE),
        Some(first) => first & 1 == 1,
    };
    let mut plan = wanted.then(|| plan(&mut d))?;
    RailDown::draw(seed, &mut plan);
    if !allowed.has(plan.class) {
        return None;
    }
    if let Some(packets) = burst_draw(seed) {
        plan.config.burst_packets = packets;
    }
    Some(plan)
}

/// Address of host `h` on rail `rail`.
pub(super) fn ip_of(h: usize, rail: usize) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, rail as u8, (h >> 8) as u8, h as u8 + 1))
}

fn plan(d: &mut Draw) -> Plan {
    // Weighted by how many worlds it takes until a broken rule shows.
    let class = d.pick(&[
        Class::Liar,
        Class::Liar,
        Class::Liar,
        Class::Liar,
        Class::Damage,
        Class::Dead,
        Class::Busy,
        Class::Busy,
        Class::Busy,
        Class::Rails,
        Class::Late,
        Class::Late,
        Class::Flood,
        Class::Flood,
        Class::Flood,
        Class::Narrow,
        Class::Narrow,
        Class::Narrow,
    ]);
    let mut c = config(d, class);
    let narrow = (class == Class::Narrow).then(|| {
        c = Narrow::config(d, ip_of(0, 0));
        Narrow::draw(d, c.mtu)
    });
    let mut plan = Plan {
        class,
        mode: d.pick(&[Mode::Random, Mode::Stateful, Mode::Stateful, Mode::Mutant]),
        shares_address: d.percent(25),
        honest: d.range(1, 3) as usize,
        dead: d.range(2, 8) as usize,
        load_ns: d.range(1_000, 2_500) * 1000,
        words: d.range(20, 600) as u32,
        pause_ns: d.range(200, 20_000),
        late_messages: d.pick(&[64, 256, 256, 1024, 4000]),
        share: d.range(5, 25),
        lag_ns: d.pick(&[10_000, 50_000, 300_000]),
        damage: d.range(1, 300),
        packets: d.range(1, 6) as u32,
        config: c,
        mixed: false,
        liar_slots: 1,
        claims: false,
        leaves_out: false,
        narrow,
        rail_down: None,
    };
    if class == Class::Dead {
        // Until the dead have been given up, and longer.
        plan.load_ns = 2 * plan.load_ns + SILENCE_NS;
        let fill = plan.words.is_multiple_of(2);
        plan.config.reads_max = if fill { plan.dead as u32 } else { READS_AMPLE };
    }
    let damage = class == Class::Damage;
    let (on, off) = (Integrity::On, Integrity::Off);
    let some = if damage { on } else { off };
    plan.config.integrity = d.pick(&[on, on, some, some, Integrity::Handshakes, off]);
    if damage && plan.config.integrity == Integrity::On {
        // Each is a loss: so few that no silence comes of them.
        plan.damage = plan.damage.min(DAMAGE_SOUND_MAX);
    }
    // Engines look for the size that passes, and liars may say what they like about it.
    plan.config.mtu_search |= class == Class::Liar && d.percent(50);
    if let Some(n) = &plan.narrow {
        plan.load_ns = n.work_ns();
    }
    plan.mixed = plan.config.integrity == Integrity::On && !damage && d.percent(30);
    if class == Class::Liar {
        plan.liar_slots = d.pick(&[1, 1, 4, LIAR_SLOTS_MAX]);
        if d.percent(60) {
            plan.config.rx_budget_bytes = plan.budget_fair();
        }
        plan.claims = plan.liar_slots > 1 && d.percent(50);
        if !plan.claims {
            // Several that tell all kinds of lies take more than the turn of one peer now and then:
            // what honest ones keep then is not known well enough to be compared.
            plan.liar_slots = 1;
        }
        plan.leaves_out = plan.claims && d.percent(50);
        // Only who allocates its link can be deceived about what was sent.
        plan.config.rate.credits |= plan.leaves_out;
    }
    plan
}

/// Configuration of all engines of a world of `class`, small in every way that shortens runs.
fn config(d: &mut Draw, class: Class) -> EngineConfig {
    let mtu = d.pick(&[64, 256, 1024]);
    let rtt = Span(2 * DELAY_NS + 4_000);
    let mut c = EngineConfig::simulated(ip_of(0, 0), 0, mtu, BYTES_PER_US * 1_000_000, rtt);
    c.window = d.pick(&[16, 64, 256, 4096]);
    c.burst_packets = d.pick(&[1, 1, 8]);
    c.contexts_max = 64;
    c.wrs_max = 8192;
    c.reads_per_context_max = d.pick(&[1, 4]);
    c.reads_max = 8 * u32::from(c.reads_per_context_max);
    c.write_imms_per_context_max = d.pick(&[1, 4]);
    c.idle_after = Span::from_us(d.pick(&[50, 500]));
    c.reuse_delay = Span::from_us(100);
    c.rate.credits = d.percent(20);
    c.loss.rto_max = Span::from_us(400);
    c.loss.unresponsive_after = Span(SILENCE_NS);
    c.loss.unreachable_after = Span(SILENCE_NS);
    c.rnr.delay_first = Span::from_us(20);
    c.rnr.delay_max = Span::from_us(200);
    if d.percent(50) {
        c.psn_start = Some(u32::MAX - d.below(80) as u32);
    }
    c.path.paths = d.pick(&[1, 8, 64]);
    c.path.live_min = 1;
    if class == Class::Late {
        c.window = d.pick(&[256, 4096]);
    }
    c
}

impl Plan {
    /// Receive buffers with which nobody is held back while they are shared among addresses,
    /// whether or not the liar's has a share: each honest peer has two requests of its own under
    /// way, and two of the victim, which it answers.
    fn budget_fair(&self) -> u32 {
        let packet = u32::from(self.config.mtu) + wire::OVERHEAD_BYTES as u32;
        (self.honest as u32 + 1) * (4 * self.packets + 2) * packet
    }

    /// What member `id` checks.
    pub(super) fn integrity(&self, id: usize) -> Integrity {
        if self.mixed && id % 2 == 1 { Integrity::Handshakes } else { self.config.integrity }
    }

    /// Whether work between members ends well although datagrams are damaged.
    pub(super) fn is_sound(&self) -> bool {
        self.class != Class::Damage || self.config.integrity == Integrity::On
    }

    /// Whether strangers forge the addresses of members, too. Where they never do, members stay
    /// unlimited by what strangers ask, and only the table of half-open contexts can run full.
    pub(super) fn forges(&self) -> bool {
        !self.words.is_multiple_of(3)
    }

    /// Whether the engines that die hold every place for reads at the victim: each is the only one
    /// at its address, and an address that holds nothing gets a place as long as one is left.
    pub(super) fn dead_fill(&self) -> bool {
        self.class == Class::Dead && u64::from(self.config.reads_max) == self.dead as u64
    }

    /// Hosts of the engines that die.
    pub(super) fn dead_hosts(&self) -> usize {
        match self.class {
            Class::Dead if self.dead_fill() => self.dead,
            Class::Dead => self.dead.div_ceil(2),
            _ => 0,
        }
    }

    /// Reads that an engine that dies has under way.
    pub(super) fn reads_of_dead(&self) -> u32 {
        self.config.reads_max.div_ceil(self.dead as u32).clamp(2, 16)
    }

    /// When they die, in ns. What comes before compares with nothing: until then they are peers
    /// like any other.
    pub(super) fn dies_ns(&self) -> u64 {
        if self.class == Class::Dead { self.load_ns / 4 } else { 0 }
    }

    /// When the world ends.
    pub(super) fn end_ns(&self) -> u64 {
        match self.narrow {
            Some(_) => self.load_ns + narrow::SETTLE_NS,
            None => self.load_ns * 2 + self.settle_ns(),
        }
    }

    /// Whether work may be longer than what the way carries, and is never cut.
    pub(super) fn is_over(&self, from: usize, to: usize, op: Opcode, len: u32) -> bool {
        let over = |n: &Narrow| n.is_over(from, to, len, self.config.mtu);
        op == Opcode::Send && self.narrow.as_ref().is_some_and(over)
    }

    /// Time after the load has ended in which all honest work must be done.
    pub(super) fn settle_ns(&self) -> u64 {
        3 * SILENCE_NS + 8 * self.config.loss.rto_max.0
    }
}
