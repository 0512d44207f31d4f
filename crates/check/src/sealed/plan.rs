//! What a sealed world is made of: drawn from its seed before time starts.

use crate::draw::Draw;
use crate::scenario::stream;
use srd_core::config::Integrity;
use srd_core::time::Span;
use srd_core::{EngineConfig, limits, wire};
use srd_seal::{Limits, Policy, Suite, Suites};
use std::net::{IpAddr, Ipv4Addr};

/// Share of the seeds whose world is sealed, in percent.
const SHARE: u64 = 2;
/// One of so many seeds has a sealed world.
pub const SEALED_EACH: u64 = 100 / SHARE;

/// Silence after which a peer is given up, in ns.
pub(super) const SILENCE_NS: u64 = 2_000_000;
/// Time in which contexts that never rest have another key, after the last host has removed the
/// old one and where the network loses nothing: a tick, two attempts, and a handshake.
const RENEWED_NS: u64 = 2_000_000;
/// How long an attempt to open a context anew lasts, in ns.
pub(super) const RENEWAL_NS: u64 = 300_000;
/// Rounds of requests after the attacks.
const ROUNDS: u64 = 3;
/// Bytes per second of every cable: 10 Gb/s.
const LINE_BYTES_PER_SEC: u64 = 1_250_000_000;
/// Time between two ticks of the layers, in ns: longer than any packet lives.
pub(super) const TICK_NS: u64 = 500_000;

/// What an attacker without a key does. Each kind is in a world or is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Threat {
    /// Sends packets again that it has recorded, of all lives and epochs.
    Replay,
    /// Sends them with another source, or back to their sender.
    Spoof,
    /// Changes packets on the way, in every part.
    Tamper,
    /// Makes sealed packets with true tags and random content.
    Forge,
    /// Makes packets without a seal for sealed contexts.
    Strip,
    /// Resets, Challenges and answers to questions.
    Reset,
    /// Opens and SealedOpens.
    Flood,
}

impl Threat {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Replay,
        Self::Spoof,
        Self::Tamper,
        Self::Forge,
        Self::Strip,
        Self::Reset,
        Self::Flood,
    ];
}

/// How the key file of one member differs from those of the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Odd {
    /// It does not.
    None,
    /// Another key under the same number.
    Key,
    /// Another key under another number.
    Number,
}

/// A sealed world.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Engines.
    pub members: usize,
    /// The last two engines have one address.
    pub shared: bool,
    /// Policy of each engine.
    pub policies: Vec<Policy>,
    /// What the attacker does.
    pub threats: Vec<Threat>,
    /// One of so many datagrams gives it an occasion.
    pub attack_each: u64,
    /// How the key file of the last engine differs.
    pub odd: Odd,
    /// The last engine changes packets before it seals them.
    pub liar: bool,
    /// When hosts take the three steps of a change to a new key, in ns; none: there is no change.
    pub rotation: Option<[u64; 3]>,
    /// When engines are restarted, and which.
    pub restarts: Vec<(u64, usize)>,
    /// Loss, in thousandths.
    pub loss: u64,
    /// Of each pair, so many answers to handshakes are lost, the first ones: those of the member
    /// with the lower number, and those of the other. The first begins its own work a little after
    /// the other then, often while it is half open.
    pub answers_lost: [u32; 2],
    /// All answers to handshakes are lost between these times, in ns, and flows begin at the first:
    /// handshakes that begin with the old key are not answered before that key is removed.
    pub answers_lost_ns: Option<[u64; 2]>,
    /// Contexts whose key was removed are opened anew while they have work, which never ends.
    pub renews: bool,
    /// Duplication, in thousandths.
    pub doubles: u64,
    /// Least time that a packet travels, in ns.
    pub delay_ns: u64,
    /// How much longer it may, in ns.
    pub jitter_ns: u64,
    /// Time with requests and attacks, in ns.
    pub load_ns: u64,
    /// Requests of each flow.
    pub requests: u32,
    /// How many of them are under way at a time.
    pub depth: u32,
    /// Most packets of one request.
    pub packets: u32,
    /// Pause of a flow after a request, in ns.
    pub pause_ns: u64,
    /// Limits of all contexts.
    pub limits: Limits,
    /// Configuration that all engines start from.
    pub config: EngineConfig,
}

/// The plan of a seed, if its world is sealed.
pub(crate) fn draw(seed: u64) -> Option<Plan> {
    let mut d = Draw::new(seed, stream::SEALED, 0);
    d.percent(SHARE).then(|| plan(&mut d))
}

fn plan(d: &mut Draw) -> Plan {
    let members = d.range(2, 4) as usize;
    let window = d.pick(&[16, 64, 64]);
    // Packets that overtake others do so by less than an epoch, as with epochs of 2^22.
    let epoch_bits = if window == 16 { d.range(5, 7) } else { d.range(7, 8) } as u32;
    let load_ns = d.range(2_000, 5_000) * 1000;
    let density = d.pick(&[0, 20, 40, 80]);
    let threats = Threat::ALL.into_iter().filter(|_| d.percent(density)).collect();
    let mut plan = Plan {
        members,
        shared: members > 2 && d.percent(25),
        policies: vec![Policy::Require; members],
        threats,
        attack_each: d.pick(&[2, 5, 20]),
        odd: Odd::None,
        liar: false,
        rotation: None,
        restarts: Vec::new(),
        loss: d.pick(&[0, 0, 10, 40]),
        answers_lost: [0, 0],
        answers_lost_ns: None,
        renews: false,
        doubles: d.pick(&[0, 20]),
        delay_ns: 10_000,
        jitter_ns: d.pick(&[0, 2_000, 10_000]),
        load_ns,
        requests: d.range(8, 60) as u32,
        depth: d.range(1, 4) as u32,
        packets: d.range(1, 5) as u32,
        pause_ns: d.pick(&[0, 0, 100_000, 400_000]),
        limits: Limits { epoch_bits, ..Limits::default() },
        config: config(d, window),
    };
    match d.below(10) {
        0 | 1 => {
            let (never, prefer) = (Policy::Never, Policy::Prefer);
            let mixed = [(Policy::Require, never), (prefer, never), (prefer, prefer)];
            let (first, others) = d.pick(&[mixed[0], mixed[1], mixed[2], mixed[2]]);
            plan.policies = vec![others; members];
            plan.policies[0] = first;
        }
        2 => plan.odd = d.pick(&[Odd::Key, Odd::Number]),
        3 => plan.liar = true,
        4 | 5 => {
            let step = load_ns / 4;
            plan.rotation = Some([1, 2, 3].map(|k| k * step + d.below(step / 2)));
        }
        6 | 7 => {
            let n = d.range(1, 3);
            let when = |d: &mut Draw| (d.range(load_ns / 8, load_ns * 7 / 8), d.below(2) as usize);
            plan.restarts = (0..n).map(|_| when(d)).collect();
            plan.restarts.sort_unstable();
        }
        _ => {}
    }
    answers_lose(d, &mut plan);
    rotation_focus(d, &mut plan);
    plan
}

/// Some changes of keys meet handshakes that nobody answers, and some contexts that never rest.
fn rotation_focus(d: &mut Draw, plan: &mut Plan) {
    let Some([_, first, removed]) = plan.rotation else { return };
    match d.below(10) {
        0..=2 => {
            // Enough of the silence after which a peer is given up is left for an answer.
            let until = (removed + 60_000).min(first + SILENCE_NS * 6 / 10);
            plan.answers_lost_ns = Some([first.saturating_sub(250_000), until]);
            (plan.loss, plan.answers_lost) = (0, [0, 0]);
            plan.threats.retain(|&t| t != Threat::Tamper);
        }
        3..=5 => {
            plan.renews = true;
            plan.pause_ns = 0;
            plan.requests = 150 * plan.depth;
            plan.load_ns = removed + 20_000 * plan.members as u64 + RENEWED_NS + 500_000;
        }
        _ => {}
    }
}

/// Loses answers to handshakes in some worlds, more often where nobody requires a seal: there,
/// strangers can make contexts that the peer does not know, and handshakes begin anew.
fn answers_lose(d: &mut Draw, plan: &mut Plan) {
    let lax = !plan.policies.contains(&Policy::Require);
    if !d.percent(if lax { 80 } else { 30 }) {
        return;
    }
    plan.answers_lost = [d.range(1, 3) as u32, d.below(3) as u32];
    if lax && !plan.threats.contains(&Threat::Flood) {
        plan.threats.push(Threat::Flood);
    } else if !lax {
        // Nothing else is lost: a peer is given up after some seven Opens.
        plan.loss = 0;
        plan.threats.retain(|&t| t != Threat::Tamper);
    }
}

/// Configuration of all engines, small in every way that shortens runs.
fn config(d: &mut Draw, window: u16) -> EngineConfig {
    let mtu = d.pick(&[128, 256, 1024]);
    let rtt = Span(30_000);
    let mut c = EngineConfig::simulated(ip_of(0), 0, mtu, LINE_BYTES_PER_SEC, rtt);
    c.seals = true;
    c.integrity = Integrity::On;
    c.open_padded_len = mtu + wire::OVERHEAD_BYTES as u16;
    c.window = window;
    c.contexts_max = 64;
    c.half_opens_max = d.pick(&[2, 8, 64]);
    c.wrs_max = 256;
    c.reads_per_context_max = 4;
    c.reads_max = 64;
    c.write_imms_per_context_max = 4;
    c.idle_after = Span::from_us(d.pick(&[50, 200, 2_000]));
    c.reuse_delay = Span::from_us(100);
    c.loss.rto_max = Span::from_us(400);
    c.loss.unresponsive_after = Span(SILENCE_NS);
    c.loss.unreachable_after = Span(SILENCE_NS);
    c.rnr.delay_first = Span::from_us(20);
    c.rnr.delay_max = Span::from_us(200);
    c.path.paths = d.pick(&[1, 8]);
    c.path.live_min = 1;
    if d.percent(50) {
        c.psn_start = Some(u32::MAX - d.below(80) as u32);
    }
    if d.percent(50) {
        // The numbers of both directions run side by side, and their low halves wrap.
        c.tx_num_start = Some(d.pick(&[1 << 32, 1 << 33, 1 << 20]) - d.below(100));
    }
    c
}

/// Address of host `h`.
pub(super) fn ip_of(h: usize) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 9, 0, h as u8 + 1))
}

impl Plan {
    /// Host and slot of member `id`.
    pub(super) fn place(&self, id: usize) -> (usize, u8) {
        let second = self.shared && id + 1 == self.members;
        if second { (id - 1, 7) } else { (id, 0) }
    }

    /// Ciphers of member `id`, the preferred one first.
    pub(super) fn suites(&self, id: usize) -> Suites {
        let swapped = Suites::new(&[Suite::ChaCha20Poly1305, Suite::Aes256Gcm]);
        let swap = (self.requests as usize + id).is_multiple_of(3);
        swapped.filter(|_| swap).unwrap_or_default()
    }

    /// Whether two members can have a context.
    pub(super) fn can_meet(&self, a: usize, b: usize) -> bool {
        let never = |id: usize| self.policies[id] == Policy::Never;
        let must = |id: usize| self.policies[id] == Policy::Require;
        let odd = |id: usize| self.odd != Odd::None && id + 1 == self.members;
        let refused = never(a) && must(b) || never(b) && must(a);
        let no_key = !never(a) && !never(b) && odd(a) != odd(b);
        !refused && !no_key
    }

    /// Whether what two members say to each other is safe from whoever is on the network: one of
    /// them requires a seal, or nobody is there.
    pub(super) fn is_guarded(&self, a: usize, b: usize) -> bool {
        self.threats.is_empty() || self.hides(a, None) || self.hides(b, None)
    }

    /// Whether all that `from` says to `to` has to be sealed. Who prefers a seal goes without one
    /// if somebody says that the peer has no key.
    pub(super) fn hides(&self, from: usize, to: Option<usize>) -> bool {
        let seals = |id: usize| self.policies[id] != Policy::Never;
        let both = self.threats.is_empty() && seals(from) && to.is_some_and(seals);
        self.policies[from] == Policy::Require || both
    }

    /// Whether keys that were used first at `first` must have ended by `now`: they come from a
    /// pre-shared key that was removed. The new one is used from the second step of the change on.
    pub(super) fn is_retired(&self, first: u64, now: u64) -> bool {
        let made = self.rotation.map(|steps| steps[1]);
        let rested = self.rounds_ns().next().unwrap_or(u64::MAX);
        let calm = self.loss == 0 && !self.threats.contains(&Threat::Tamper);
        let renewed = self.rotation.filter(|_| self.renews && calm);
        let renewed = renewed.map(|at| at[2] + 20_000 * self.members as u64 + RENEWED_NS);
        let ended = renewed.unwrap_or(rested);
        made.is_some_and(|at| first < at) && now >= ended
    }

    /// When the attacks end.
    pub(super) fn calm_ns(&self) -> u64 {
        self.load_ns
    }

    /// When rounds of requests are posted after the attacks. Those of the first may find that the
    /// peer has lost their context; those of the last must all succeed.
    pub(super) fn rounds_ns(&self) -> impl Iterator<Item = u64> + use<> {
        // A question after a context may have been asked just before its peer was restarted; the
        // next is asked later.
        let doubt_ns = if self.restarts.is_empty() { 0 } else { limits::DOUBT_EVERY.0 };
        let first = self.load_ns + 2 * SILENCE_NS + doubt_ns;
        (0..ROUNDS).map(move |round| first + round * 3 * SILENCE_NS / 2)
    }

    /// When the last of them are posted.
    pub(super) fn last_ns(&self) -> u64 {
        self.rounds_ns().last().unwrap_or_default()
    }

    /// When the world ends.
    pub(super) fn end_ns(&self) -> u64 {
        self.last_ns() + 3 * SILENCE_NS
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
pub(in crate::sealed) mod tests;
