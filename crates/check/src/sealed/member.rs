//! An engine of a sealed world behind its layer, with its objects and its key file.

use super::plan::{Odd, Plan, RENEWAL_NS};
use crate::draw::Draw;
use crate::engines::qp_ready;
use crate::scenario::stream;
use srd_core::wire::{self, Flags};
use srd_core::{
    Access, AhId, CqId, Endpoint, Engine, EngineConfig, MrKey, Qpn, RecvRequest, Rng, Source, Span,
    Time, Transmit, TxSink,
};
use srd_seal::{End, KeyRing, LayerConfig, Policy, Route, SealLayer, SlotId};
use std::net::IpAddr;

/// Address of every region; what it holds follows from the address.
pub(super) const REGION_AT: u64 = 1 << 20;
/// Bytes of every region.
pub(super) const REGION_BYTES: u64 = 1 << 20;
/// Q_Key of every queue pair.
pub(super) const QKEY: u32 = 0x5EA1;
/// Receives kept posted.
const RECEIVES: u32 = 64;
/// What all payload holds in each 16 bytes, and no sealed datagram may show.
pub(super) const MARK: [u8; 8] = *b"SECRET! ";

/// One byte of payload; `salt` names its source.
pub(super) fn content(salt: u64, at: u64) -> u8 {
    match at % 16 {
        k @ 0..8 => MARK[k as usize],
        k => {
            (salt.wrapping_add(at / 16).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (8 * (k - 8))) as u8
        }
    }
}

/// What names the bytes of a request's payload.
pub(super) fn salt_of(job: u32) -> u64 {
    (u64::from(job) + 1) << 40
}

/// A key as a line of a key file.
fn key_line(seed: u64, id: u32, which: u64) -> String {
    let mut d = Draw::new(seed, stream::SEALED, 10 + which);
    let digits: String = (0..4).map(|_| format!("{:016x}", d.bits())).collect();
    format!("{id} {digits}\n")
}

/// See the module.
pub(super) struct Member {
    pub at: Endpoint,
    pub life: u32,
    pub engine: Engine,
    /// None with the policy `never`.
    pub layer: Option<SealLayer>,
    pub ring: KeyRing,
    pub cq: CqId,
    pub qpn: Qpn,
    pub key: MrKey,
    /// Request of each handle.
    pub wrs: Vec<Option<u32>>,
    ahs: Vec<(IpAddr, AhId)>,
    posted: u32,
    /// Handshakes that the layer has finished, and when the last one was.
    pub met: u64,
    pub met_at: u64,
    /// Steps of the change to a new key that this host has taken.
    pub step: usize,
}

/// The key file of a member after `step` steps of a change to a new key.
fn ring_of(plan: &Plan, seed: u64, id: usize, step: usize) -> KeyRing {
    let odd = id + 1 == plan.members && plan.odd != Odd::None;
    let old = match plan.odd {
        Odd::Key if odd => key_line(seed, 7, 1),
        Odd::Number if odd => key_line(seed, 8, 1),
        _ => key_line(seed, 7, 0),
    };
    let new = key_line(seed, 9, 2);
    let text = match step {
        0 => old,
        1 => old + &new,
        2 => new + &old,
        _ => new,
    };
    KeyRing::parse(text.as_bytes()).expect("a sound key file")
}

impl Member {
    /// A new life of member `id`.
    pub fn new(plan: &Plan, seed: u64, id: usize, life: u32, now: u64) -> Self {
        let (host, slot) = plan.place(id);
        let ip = super::plan::ip_of(host);
        let policy = plan.policies[id];
        let seals = policy != Policy::Never;
        let cfg = EngineConfig { ip, slot, seals, ..plan.config.clone() };
        let at = Endpoint { ip, port: cfg.port_base + u16::from(slot) };
        let own = 100 + u64::from(life) * 16 + id as u64;
        let mut d = Draw::new(seed, stream::SEALED, own);
        let rng = Rng::from_seed(d.bits());
        let layer = seals.then(|| {
            let cfg = LayerConfig {
                own: End { ip, port: at.port },
                port_base: cfg.port_base,
                policy,
                suites: plan.suites(id),
                limits: plan.limits,
                contexts_max: cfg.contexts_max,
            };
            let entropy = move |bytes: &mut [u8; 32]| {
                bytes.fill_with(|| d.bits() as u8);
                true
            };
            SealLayer::new(cfg, entropy)
        });
        let mut engine = Engine::new(cfg, rng, Time(now), ()).expect("a sound plan");
        let cq = engine.cq_create(4096).expect("room");
        let pd = engine.pd_create().expect("room");
        let all = Access(Access::REMOTE_READ | Access::REMOTE_WRITE | Access::LOCAL_WRITE);
        let key = engine.mr_register(pd, REGION_AT, REGION_BYTES, all).expect("room");
        let qpn = qp_ready(&mut engine, Time(now), (pd, cq), 256, QKEY);
        let ahs = (0..plan.members)
            .map(|other| super::plan::ip_of(plan.place(other).0))
            .map(|ip| (ip, engine.ah_create(Time(now), pd, ip).expect("room")))
            .collect();
        let step = plan.rotation.map_or(0, |at| at.iter().filter(|&&t| t <= now).count());
        let ring = ring_of(plan, seed, id, step);
        let (wrs, posted, met, met_at) = (Vec::new(), 0, 0, 0);
        let mut new = Self {
            at,
            life,
            engine,
            layer,
            ring,
            cq,
            qpn,
            key,
            wrs,
            ahs,
            posted,
            met,
            met_at,
            step,
        };
        new.receives_fill();
        new
    }

    /// The address handle of an address.
    pub fn ah(&self, ip: IpAddr) -> AhId {
        self.ahs.iter().find(|a| a.0 == ip).expect("one for each member").1
    }

    /// A receive was used.
    pub fn receive_used(&mut self) {
        self.posted = self.posted.saturating_sub(1);
    }

    /// Keeps receives posted.
    pub fn receives_fill(&mut self) {
        let len = u32::from(self.engine.config().mtu);
        while self.posted < RECEIVES
            && self.engine.post_recv(self.qpn, &RecvRequest { wr_id: 0, len }).is_ok()
        {
            self.posted += 1;
        }
    }

    /// Takes the next step of a change to a new key: the key file has another content now.
    pub fn ring_step(&mut self, plan: &Plan, seed: u64, id: usize, step: usize, now: u64) {
        self.step = step;
        let ring = ring_of(plan, seed, id, step);
        let gone: Vec<u32> = self.ring.ids().filter(|&id| ring.accepted(id).is_none()).collect();
        let other = ring.sending().id() != self.ring.sending().id();
        self.ring = ring;
        let Self { layer: Some(layer), engine, .. } = self else { return };
        layer.keys_removed(&gone);
        for tag in layer.handshakes_begun() {
            if other && engine.context_open_anew(Time(now), tag) {
                layer.handshake_forget(tag);
            }
        }
    }

    /// What the device does each second. `renews`: contexts of a key that was removed are opened
    /// anew although they have work.
    pub fn tick(&mut self, now: u64, renews: bool) {
        let Self { layer: Some(layer), ring, engine, .. } = self else { return };
        for tag in layer.tick(ring, |tag| engine.has_context(tag)) {
            engine.context_close(Time(now), tag);
            if renews {
                engine.context_renew(Time(now), tag, Span(RENEWAL_NS));
            }
        }
    }
}

/// A datagram that an engine has sent.
#[derive(Debug)]
pub(super) struct Left {
    pub dst: Endpoint,
    pub bytes: Vec<u8>,
    /// Request whose payload it carries.
    pub job: Option<u32>,
    /// The packet as it was before it was sealed within a context, without its payload: at least
    /// what the first bytes of the cipher's stream are found from.
    pub text: Option<Vec<u8>>,
    /// The keys that sealed it.
    pub slot: Option<SlotId>,
}

/// Seals what an engine sends.
pub(super) struct Sink<'a> {
    pub layer: &'a mut Option<SealLayer>,
    pub ring: &'a KeyRing,
    pub wrs: &'a [Option<u32>],
    /// Changes a packet before it is sealed: the engine of a liar.
    pub lie: Option<&'a mut Draw>,
    pub out: &'a mut Vec<Left>,
    /// A packet that has no request any more.
    pub wrong: Option<String>,
}

impl Sink<'_> {
    /// The packet with its payload, without checksum and room.
    fn whole(&mut self, t: &Transmit<'_>, sealed: bool) -> (Vec<u8>, Option<u32>) {
        let mut packet = t.packet;
        if sealed {
            packet.header.flags.0 &= !Flags::CHECKED;
        }
        let mut bytes = vec![0; packet.headers_len()];
        wire::emit(&packet, &mut bytes);
        let handle = t.packet.body.message().map(|m| m.msg_id & 0xFFFF);
        let mut job = handle.and_then(|h| self.wrs.get(h as usize).copied().flatten());
        if let Some(p) = t.payload {
            let at = |k: u64| p.offset + k;
            let salt = match p.source {
                Source::Wr(_) => job.map(salt_of),
                Source::Region(_) => {
                    job = None;
                    Some(0)
                }
            };
            if salt.is_none() {
                self.wrong.get_or_insert_with(|| format!("payload of no request: {t:?}"));
            }
            let salt = salt.unwrap_or_default();
            bytes.extend((0..u64::from(p.len)).map(|k| content(salt, at(k))));
        }
        (bytes, job)
    }

    fn plain(&mut self, t: &Transmit<'_>) {
        let (mut bytes, job) = self.whole(t, false);
        bytes.resize(bytes.len().max(usize::from(t.padded_len)), 0);
        wire::stamp(&mut bytes);
        self.out.push(Left { dst: t.dst, bytes, job, text: None, slot: None });
    }
}

impl TxSink for Sink<'_> {
    fn push(&mut self, t: &Transmit<'_>) {
        let dst = End { ip: t.dst.ip, port: t.dst.port };
        let Some(layer) = self.layer.as_mut() else { return self.plain(t) };
        match layer.route(dst, &t.packet) {
            Route::Withheld => {}
            Route::Plain => self.plain(t),
            Route::Sealed(slot) => {
                let (mut bytes, job) = self.whole(t, true);
                if let Some(d) = self.lie.as_mut()
                    && d.percent(30)
                {
                    crate::hostile::mutate(d, &mut bytes);
                    bytes[1] &= !(Flags::CHECKED | Flags::SEALED);
                    // The layer needs the number that comes next.
                    bytes[8..12].copy_from_slice(&t.packet.header.tx_num.to_be_bytes());
                }
                bytes.resize((bytes.len() + 16).max(usize::from(t.padded_len)), 0);
                let text = Some(bytes[..bytes.len() - 16].to_vec());
                let layer = self.layer.as_mut().expect("found above");
                if layer.seal(slot, &mut bytes) {
                    self.out.push(Left { dst: t.dst, bytes, job, text, slot: Some(slot) });
                }
            }
            Route::Handshake => {
                let out = layer.handshake_out(self.ring, dst, &t.packet, t.padded_len);
                for bytes in out.datagrams {
                    let within = !super::network::is_greeting(&bytes);
                    let text = within.then(|| {
                        let mut text = self.whole(t, true).0;
                        text.resize(bytes.len() - 16, 0);
                        text
                    });
                    self.out.push(Left { dst: t.dst, bytes, job: None, text, slot: None });
                }
                if out.plain {
                    self.plain(t);
                }
            }
        }
    }
}
