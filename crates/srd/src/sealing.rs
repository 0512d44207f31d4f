//! The seal of a device: its key file, the layer that seals and opens, and the copies of what is
//! sent.

use crate::{
    DeviceConfig, DeviceError,
    config::SecretsSink,
    counters::arrays_add,
    denied::Denied,
    entropy::os_random,
    events::AsyncEvent,
    key_watch::KeyWatch,
    nic::{Engine, Nic},
    shard::Shard,
};
use srd_core::{Endpoint, EngineConfig, RxMeta, Span, Time, Transmit};
use srd_datapath::Part;
use srd_seal::{
    CaptureSecret, End, Incoming, KeyFile, KeyRing, LayerConfig, LayerCounters, Limits, Policy,
    SealLayer, Suites,
};
use srd_wire::{
    AEAD_TAG_BYTES, AckBlock, CloseCode, Flags, HEADERS_BYTES_MAX, Packet, ParseError, emit,
};
use std::{fmt, net::IpAddr, path::PathBuf, sync::Arc};

/// How often the key file is looked at, and what ended contexts had is erased.
const TICK: Span = Span::from_secs(1);
/// How often a context whose key was removed is tried to be closed: it has to be idle just then.
const RETIRED_TICK: Span = Span::from_ms(10);
/// How long a context waits for a pause after its key was removed. Without one it is opened anew
/// while it has work: requests that have not begun wait for those that have, for
/// [`RENEWAL_PATIENCE`] at most, and for twice as long each second after that.
const PAUSE_MAX: Span = Span::from_secs(1);
/// See [`PAUSE_MAX`].
const RENEWAL_PATIENCE: Span = Span::from_ms(50);
/// Distance between two such attempts. Those that wait have at least half of the time.
const RENEWAL_EVERY: Span = Span::from_secs(1);
/// How long a context may go on after its key was removed if that fails, because what has begun
/// does not end: a bound for who was to be shut out.
const RETIRED_MAX: Span = Span::from_secs(10);
/// Least MTU of a device that seals: a SealedOpen of full size holds its own fields.
const MTU_MIN: u16 = 88;

/// What a device does about sealing; see [`Device::seal`](crate::Device::seal).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SealStatus {
    /// Which contexts are sealed.
    pub policy: Policy,
    /// Numbers of the keys in the key file, the one for handshakes of this device first.
    pub keys: Vec<u32>,
    /// Contexts that have keys now.
    pub contexts: usize,
    /// What was sealed, opened and refused so far.
    pub counters: LayerCounters,
    /// Why the present version of the key file is not used; the last good one is.
    pub problem: Option<String>,
}

impl SealStatus {
    /// Adds that of another shard of the device, which has the same policy and key file.
    pub(crate) fn add(&mut self, other: Self) {
        let LayerCounters {
            handshakes,
            sealed,
            opened,
            not_opened,
            refused,
            repeated,
            unsealed,
            withheld,
            plain,
        } = other.counters;
        let sum = &mut self.counters;
        sum.handshakes += handshakes;
        sum.sealed += sealed;
        sum.opened += opened;
        sum.repeated += repeated;
        sum.unsealed += unsealed;
        sum.withheld += withheld;
        sum.plain += plain;
        arrays_add(&mut sum.not_opened, &not_opened);
        arrays_add(&mut sum.refused, &refused);
        self.contexts += other.contexts;
        self.problem = self.problem.take().or(other.problem);
    }
}

/// A context whose key was removed.
#[derive(Clone, Copy)]
struct Retired {
    tag: u32,
    /// Since when that is known.
    since: Time,
    /// When the next attempt to open it anew while it has work begins, and how long it may last.
    renews_at: Time,
    patience: Span,
}

impl Retired {
    fn new(tag: u32, now: Time) -> Self {
        Self { tag, since: now, renews_at: now + PAUSE_MAX, patience: RENEWAL_PATIENCE }
    }
}

/// See the module.
pub(crate) struct Sealing {
    ring: Arc<KeyRing>,
    watch: KeyWatch,
    pub layer: SealLayer,
    /// Datagrams of the batch under way. Never longer than its capacity, so that they do not move.
    arena: Vec<u8>,
    ticks_at: Time,
    /// Contexts whose key was removed, in the order of their tags.
    retired: Vec<Retired>,
    /// When they are tried to be closed next; never if there are none.
    retired_at: Time,
    secrets: Option<SecretsSink>,
    /// Whether a capture of the running process may have secrets.
    on_request: bool,
    /// Secrets that such a capture has not taken yet; `None` while there is none.
    mirrored: Option<Vec<CaptureSecret>>,
    denied: Denied,
    problem: Option<String>,
}

impl fmt::Debug for Sealing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sealing").field("layer", &self.layer).finish_non_exhaustive()
    }
}

/// The policy and the key file of a configuration: no file if nothing is sealed.
pub(crate) fn chosen(config: &DeviceConfig) -> Result<Option<(Policy, PathBuf)>, DeviceError> {
    let file = config.key_file.clone();
    let policy = match &config.seal {
        Some(name) => Policy::from_name(name)
            .ok_or(DeviceError::Seal("seal (SRD_SEAL, --seal) must be never, prefer or require"))?,
        None if file.is_some() => Policy::Require,
        None => Policy::Never,
    };
    match (policy, file) {
        (Policy::Never, _) => Ok(None),
        (policy, Some(file)) => Ok(Some((policy, file))),
        (_, None) => Err(DeviceError::Seal(
            "sealing needs a key file: name one (SRD_KEY_FILE, --key FILE), which `srd key new \
             FILE` makes, or set seal to never",
        )),
    }
}

impl Sealing {
    /// Reads the key file. `batch_bytes`: bytes of all datagrams of one batch.
    pub(crate) fn open(
        engine: &EngineConfig,
        policy: Policy,
        path: &std::path::Path,
        batch_bytes: usize,
        secrets: Option<SecretsSink>,
    ) -> Result<Self, DeviceError> {
        if engine.mtu < MTU_MIN {
            return Err(DeviceError::Seal(
                "mtu must be at least 88 bytes where packets are sealed",
            ));
        }
        let file = KeyFile::open(path).map_err(DeviceError::Key)?;
        let own = End { ip: engine.ip, port: engine.port_base + u16::from(engine.slot) };
        let cfg = LayerConfig {
            own,
            port_base: engine.port_base,
            policy,
            suites: Suites::of_this_machine(),
            limits: Limits::default(),
            contexts_max: engine.contexts_max,
        };
        let mut layer = SealLayer::new(cfg, |bytes: &mut [u8; 32]| os_random(bytes).is_ok());
        if secrets.is_some() {
            layer.capture_begin();
        }
        let arena = Vec::with_capacity(batch_bytes);
        let (ring, watch) = (file.ring_shared(), KeyWatch::of_file(file)?);
        Ok(Self {
            ring,
            watch,
            layer,
            arena,
            ticks_at: Time(0),
            retired: Vec::new(),
            retired_at: Time(u64::MAX),
            secrets,
            on_request: false,
            mirrored: None,
            denied: Denied::default(),
            problem: None,
        })
    }

    pub(crate) fn status(&self) -> SealStatus {
        SealStatus {
            policy: self.layer.policy(),
            keys: self.ring.ids().collect(),
            contexts: self.layer.contexts(),
            counters: *self.layer.counters(),
            problem: self.problem.clone(),
        }
    }

    /// A new batch begins: no datagram of the last one is referenced any more.
    pub(crate) fn batch_begin(&mut self) {
        self.arena.clear();
    }

    /// Copies a packet with its payload into the batch and seals it. Returns where it begins.
    #[inline]
    pub(crate) fn seal(
        &mut self,
        slot: srd_seal::SlotId,
        t: &Transmit<'_>,
        parts: &[Part],
    ) -> Option<usize> {
        let mut packet = t.packet;
        packet.header.flags = Flags(packet.header.flags.0 & !Flags::CHECKED);
        let mut headers = [0; HEADERS_BYTES_MAX];
        let len = emit(&packet, &mut headers);
        let payload: usize = parts.iter().map(Part::len).sum();
        let whole = (len + payload + AEAD_TAG_BYTES).max(usize::from(t.padded_len));
        let start = self.room(whole)?;
        self.arena.extend_from_slice(&headers[..len]);
        parts.iter().for_each(|part| part.copy_into(&mut self.arena));
        self.arena.resize(start + whole, 0);
        self.layer.seal(slot, &mut self.arena[start..]).then_some(start)
    }

    /// The datagrams that take the place of a packet that opens or ends a context: where each
    /// begins, and whether the packet itself leaves.
    pub(crate) fn handshake(&mut self, t: &Transmit<'_>) -> (Vec<usize>, bool) {
        let dst = End { ip: t.dst.ip, port: t.dst.port };
        let out = self.layer.handshake_out(&self.ring, dst, &t.packet, t.padded_len);
        self.secrets_tell();
        let mut starts = Vec::new();
        for datagram in &out.datagrams {
            let Some(start) = self.room(datagram.len()) else { break };
            self.arena.extend_from_slice(datagram);
            starts.push(start);
        }
        (starts, out.plain)
    }

    /// Hands over the secrets of new contexts, if they were asked for.
    fn secrets_tell(&mut self) {
        for secret in self.layer.capture_take() {
            if let Some(sink) = &mut self.secrets {
                sink(&secret.line());
            }
            if let Some(mirrored) = &mut self.mirrored {
                mirrored.push(secret);
            }
        }
    }

    /// Lets captures of the running process have secrets, if they ask.
    pub(crate) fn secrets_on_request(&mut self, on: bool) {
        self.on_request = on;
    }

    /// A capture begins that asks for secrets: it gets those of the contexts that exist, and of new
    /// ones, if the process was started so that it may.
    pub(crate) fn mirror_begin(&mut self) {
        if self.on_request {
            self.layer.capture_begin();
            self.mirrored = Some(self.layer.capture_present());
        }
    }

    pub(crate) fn mirror_end(&mut self) {
        self.mirrored = None;
        if self.secrets.is_none() {
            self.layer.capture_end();
        }
    }

    /// Secrets that the capture has not had yet.
    pub(crate) fn mirror_take(&mut self) -> Vec<CaptureSecret> {
        self.mirrored.as_mut().map(std::mem::take).unwrap_or_default()
    }

    fn room(&self, bytes: usize) -> Option<usize> {
        (self.arena.capacity() - self.arena.len() >= bytes).then_some(self.arena.len())
    }

    /// The datagram of the batch from `start` to `end`, or to the end of the batch.
    pub(crate) fn datagram(&self, start: usize, end: Option<usize>) -> &[u8] {
        &self.arena[start..end.unwrap_or(self.arena.len())]
    }

    fn end_to_endpoint(src: IpAddr, port_base: u16, slot: u8) -> Endpoint {
        Endpoint { ip: src, port: port_base.wrapping_add(u16::from(slot)) }
    }
}

/// Why a datagram gives no packet.
pub(crate) enum Unread {
    /// It is malformed.
    Parse(ParseError),
    /// The seal is wrong, or its packet is answered or dropped without the engine; counted there.
    Seal,
}

/// A packet, the bytes it was read from, and where its payload begins in them.
pub(crate) type Read<'a, 'b> = Result<(Packet<'a>, &'b [u8], usize), Unread>;

/// Reads a datagram without a seal on a device that has none.
#[inline]
pub(crate) fn read_plain<'a>(
    engine: &mut Engine,
    now: Time,
    meta: &RxMeta,
    bytes: &mut [u8],
    ack: &'a mut AckBlock,
) -> Result<(Packet<'a>, usize), ParseError> {
    let read = srd_wire::parse_checked_in_place(bytes, ack);
    if read.is_err()
        && let Some(tag) = srd_seal::sealed_open_tag(bytes)
    {
        let from = Sealing::end_to_endpoint(meta.src_ip, engine.config().port_base, bytes[3]);
        engine.seal_refuse(now, from, tag, CloseCode::SealUnknown);
    }
    read
}

impl Sealing {
    /// Reads a datagram: opens it in place if it is sealed. Returns the packet, the bytes it was
    /// read from and where its payload begins.
    pub(crate) fn read<'a, 'b>(
        &'b mut self,
        engine: &mut Engine,
        now: Time,
        meta: &RxMeta,
        bytes: &'b mut [u8],
        ack: &'a mut AckBlock,
    ) -> (Read<'a, 'b>, Option<AsyncEvent>) {
        let slot = bytes.get(3).copied().unwrap_or_default();
        let from = Sealing::end_to_endpoint(meta.src_ip, engine.config().port_base, slot);
        let incoming = self.layer.receive(&self.ring, meta.src_ip, bytes);
        if incoming == Incoming::Made {
            self.secrets_tell();
        }
        let sealed = match incoming {
            Incoming::Plain => {
                let read = srd_wire::parse_checked_in_place(bytes, ack).map_err(Unread::Parse);
                return (read.map(|(packet, start)| (packet, &*bytes, start)), None);
            }
            Incoming::Opened(len) => &bytes[..len],
            Incoming::Made => self.layer.made(),
            Incoming::Unknown(tag) => {
                engine.sealed_stranger(now, from, tag);
                return (Err(Unread::Seal), None);
            }
            Incoming::Refuse(tag, code) => {
                engine.seal_refuse(now, from, tag, code);
                return (Err(Unread::Seal), self.refusal_event(now, from, code));
            }
            Incoming::Dropped => return (Err(Unread::Seal), None),
        };
        let read = srd_wire::parse(sealed, ack).map_err(Unread::Parse);
        let read = read.map(|(mut packet, start)| {
            packet.header.flags.0 |= Flags::SEALED;
            (packet, sealed, start)
        });
        (read, None)
    }

    /// The event that a peer was refused, now and then: anybody can cause it.
    fn refusal_event(&mut self, now: Time, peer: Endpoint, code: CloseCode) -> Option<AsyncEvent> {
        self.denied.tell(now, peer.ip, code).then_some(AsyncEvent::SealDenied { peer, code })
    }
}

impl Sealing {
    /// Takes a new version of the key file, if one was found.
    fn news_take(&mut self, engine: &mut Engine, now: Time) -> Option<AsyncEvent> {
        match self.watch.take()? {
            Ok((ring, change)) => {
                (self.ring, self.problem) = (ring, None);
                self.layer.keys_removed(&change.removed);
                if change.sending.is_some() {
                    for tag in self.layer.handshakes_begun() {
                        if engine.context_open_anew(now, tag) {
                            self.layer.handshake_forget(tag);
                        }
                    }
                }
                // Contexts of removed keys are looked for at once.
                self.ticks_at = Time(0);
                None
            }
            Err(problem) => {
                self.problem = Some(problem);
                Some(AsyncEvent::KeyFileRefused)
            }
        }
    }

    fn tick(&mut self, engine: &Engine, now: Time) {
        self.ticks_at = now + TICK;
        self.watch.ask();
        let tags = self.layer.tick(&self.ring, |tag| engine.has_context(tag));
        let known = |tag: u32| {
            // Both lists are in the order of the tags.
            let at = self.retired.binary_search_by_key(&tag, |retired| retired.tag);
            at.map_or_else(|_| Retired::new(tag, now), |at| self.retired[at])
        };
        self.retired = tags.into_iter().map(known).collect();
        if !self.retired.is_empty() {
            self.retired_at = now;
        }
    }

    /// Closes contexts of removed keys that are idle, opens those anew that are not, and ends those
    /// of which even that fails. Returns whether it ended any: then their requests have ended, too.
    fn retired_end(&mut self, engine: &mut Engine, now: Time, shared: &Shard) -> bool {
        let mut cut = false;
        self.retired.retain_mut(|retired| {
            let Retired { tag, since, renews_at, patience } = *retired;
            if now.since(since) >= RETIRED_MAX {
                if let Some(peer) = engine.context_cut(now, tag) {
                    shared.common.events.push(AsyncEvent::KeyRemoved(peer));
                    cut = true;
                }
            } else if renews_at <= now {
                engine.context_renew(now, tag, patience);
                retired.renews_at = now + RENEWAL_EVERY;
                retired.patience = patience.scale(2, 1).min(RENEWAL_EVERY.scale(1, 2));
            } else {
                engine.context_close(now, tag);
            }
            engine.has_context(tag)
        });
        let none = self.retired.is_empty();
        self.retired_at = if none { Time(u64::MAX) } else { now + RETIRED_TICK };
        cut
    }
}

impl Nic {
    /// Has the key file looked at and erases what ended contexts had, each second. Returns whether
    /// it ended contexts, so that completions may wait.
    #[inline]
    pub(crate) fn seal_tick(&mut self, shared: &Shard, now: Time) -> bool {
        let due = self.seal.as_ref().is_some_and(|seal| {
            seal.ticks_at <= now || seal.retired_at <= now || seal.watch.ready()
        });
        due && self.seal_tick_now(shared, now)
    }

    #[cold]
    fn seal_tick_now(&mut self, shared: &Shard, now: Time) -> bool {
        let Self { seal: Some(seal), engine, .. } = self else { return false };
        if let Some(event) = seal.news_take(engine, now) {
            shared.common.events.push(event);
        }
        if seal.ticks_at <= now {
            seal.tick(engine, now);
        }
        seal.retired_at <= now && seal.retired_end(engine, now, shared)
    }
}
