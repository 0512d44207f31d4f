//! The engine: its state, its five calls (post, handle, transmit, timeout, poll) and the order of
//! work within each call.
//!
//! The work of each stage is in the file named after that stage.

mod ahead;
#[cfg(debug_assertions)]
mod audit;
mod cancel;
mod close;
mod commands;
mod contexts;
mod cookie;
mod demux;
mod denial;
mod doubt;
mod footprint;
mod handshake;
mod handshakes_out;
mod host;
mod housekeeping;
mod narrow;
mod origins;
mod post;
mod renew;
mod share;
mod sizes;
mod strangers;
mod turns;

pub use commands::ObjectError;

use crate::api::{
    AsyncEvent, Completion, CompletionKind, CqId, Endpoint, Packet, PostRefusal, Qpn, RecvHandle,
    RecvRequest, Rx, RxMeta, RxWaiting, SendRequest, TxSink, WrHandle,
};
use crate::config::EngineConfig;
use crate::counters::Counters;
use crate::events::Observer;
use crate::hash::Keyed;
use crate::ids::Ctx;
use crate::lane::Lane;
use crate::lane::Shared;
use crate::limits::TIMER_STEPS_MAX;
use crate::noise::Meter;
use crate::objects::{ObjectSecrets, Objects};
use crate::params::Params;
use crate::path::PathStats;
use crate::path::table::PathTable;
use crate::peer::Window;
use crate::random::{Random, Randomness, Secrets};
use crate::time::{Span, Time};
use crate::timer::TimerOf;
use crate::tx::Out;
use contexts::ContextTable;
use cookie::CookieJar;
use core::net::IpAddr;
use std::sync::Arc;
use strangers::Strangers;

/// The protocol state of one device, or of one simulated host.
pub struct Engine<O: Observer = ()> {
    pub(crate) shared: Shared<O>,
    pub(crate) objects: Objects,
    pub(crate) contexts: ContextTable,
    pub(crate) paths: PathTable,
    path_params: Arc<Params>,
    /// Measures how late the host is with timers and packets.
    noise: Meter,
    /// Source of the numbers that peers see or must not guess.
    secrets: Secrets,
    incarnation: u64,
    cookies: CookieJar,
    #[expect(clippy::vec_box, reason = "a lease moves a pointer, not half a kilobyte")]
    pool: Vec<Box<Window>>,
    evict_hand: u32,
    strangers: Strangers,
    /// The engine is shutting down.
    leaving: bool,
    /// Every peer has been told that the engine shuts down.
    pub(crate) gone: bool,
}

impl<O: Observer> Engine<O> {
    /// Makes an engine without objects. `random` must come from the operating system's entropy
    /// where peers are not trusted, and from an [`Rng`](crate::Rng) where the run is to be
    /// replayed. An error names the configuration field at fault.
    pub fn new(
        cfg: EngineConfig,
        random: impl Into<Randomness>,
        now: Time,
        observer: O,
    ) -> Result<Self, &'static str> {
        cfg.validate()?;
        let Randomness { fast: mut rng, mut secrets } = random.into();
        let region_keys = secrets.key_apart(&rng);
        let qpn_first = cfg.qpn_start.unwrap_or_else(|| secrets.byte_apart());
        let tilings = secrets.key_apart(&rng).low;
        let guessers = Keyed::apart(secrets.key_apart(&rng));
        let of_objects = ObjectSecrets { region_keys, qpn_first, tilings, guessers };
        let networks = Keyed::apart(secrets.key_apart(&rng));
        let strangers = Strangers::new(now, Keyed::apart(secrets.key_apart(&rng)));
        let mut secret = secrets.or(&mut rng);
        Ok(Self {
            incarnation: secret.next_u64(),
            objects: Objects::new(&cfg, now, of_objects),
            contexts: ContextTable::new(cfg.contexts_max, &mut secret),
            paths: PathTable::new(&mut secret),
            path_params: Arc::new(Params::new(
                &cfg.path, &cfg.rate, &cfg.loss, cfg.mtu, cfg.guards, &cfg.own,
            )),
            noise: Meter::default(),
            cookies: CookieJar::new(&mut secret),
            pool: Vec::new(),
            evict_hand: 0,
            strangers,
            leaving: false,
            gone: false,
            shared: Shared::new(cfg, now, observer, rng, networks),
            secrets,
        })
    }

    /// The lane of context `ci`, if the context exists and its window state is leased.
    #[inline]
    pub(crate) fn lane_find(&mut self, now: Time, ci: Ctx) -> Option<Lane<'_, O>> {
        let (peer, win) = self.contexts.find_mut(ci)?.split()?;
        let way = self.paths.get_mut(peer.way());
        debug_assert!(way.active > 0 || cfg!(planted_bugs), "who has window state is active");
        debug_assert_eq!(way.ip, peer.endpoint().ip, "the paths to its address");
        let (objects, shared) = (&mut self.objects, &mut self.shared);
        Some(Lane { now, ci, peer, win, way, objects, shared })
    }

    /// Like [`Self::lane_find`], where the window state is known to be leased.
    #[inline]
    pub(crate) fn lane(&mut self, now: Time, ci: Ctx) -> Lane<'_, O> {
        self.lane_find(now, ci).expect("window state is leased before traffic")
    }

    // ---- posting work --------------------------------------------------------------------------

    /// Posts a send request. The request ends with exactly one completion, or with
    /// [`AsyncEvent::WrReleased`] if its queue pair is destroyed first.
    pub fn post_send(
        &mut self,
        now: Time,
        qp: Qpn,
        wr: &SendRequest,
    ) -> Result<WrHandle, PostRefusal> {
        self.send_post(now, qp, wr)
    }

    /// Posts a receive.
    pub fn post_recv(&mut self, qp: Qpn, wr: &RecvRequest) -> Result<RecvHandle, PostRefusal> {
        self.recv_post(qp, wr)
    }

    // ---- received packets ----------------------------------------------------------------------

    /// Handles one packet. If the answer is [`Rx::Place`], the caller copies the payload before any
    /// other call. A packet from a network comes from [`crate::wire::parse_checked`], which has
    /// verified the checksum if there is one; here it is judged whether the packet needs one.
    pub fn handle(&mut self, now: Time, meta: &RxMeta, packet: &Packet<'_>) -> Rx {
        self.shared.counters.rx_pkts += 1;
        let bytes = packet.headers_len() + usize::from(packet.payload_len);
        self.shared.counters.rx_bytes += bytes as u64;
        self.shared.rx.rxq_drops = meta.rxq_drops;
        match self.packet_in(now, meta, packet) {
            Ok(rx) => {
                if matches!(rx, Rx::Place(_)) {
                    self.shared.rx.host.take(now, bytes, meta.waited);
                }
                rx
            }
            Err(reason) => {
                self.shared.counters.rx_drops += 1;
                self.shared.counters.drops[reason as usize] += 1;
                Rx::Dropped(reason)
            }
        }
    }

    /// The datapath has handed over every packet that it had received.
    pub fn rx_burst_end(&mut self, now: Time) {
        if planted!(DepthCleared) {
            self.shared.rx.host.tell(now, &RxWaiting::default());
        }
        self.grants_poll(now);
    }

    // ---- outgoing packets ----------------------------------------------------------------------

    /// Puts up to `max` packets into `sink` and returns their number. The order of one call:
    /// handshakes, acknowledgments, path probes, closes, then data, and last the answers to senders
    /// without a context.
    pub fn poll_transmit(&mut self, now: Time, max: usize, sink: &mut impl TxSink) -> usize {
        self.slow_reads_end();
        self.host_crossing_tell(now);
        let mut out = Out { sink, left: max, sent: 0 };
        // While data flows, these queues are nearly always empty.
        if !self.shared.out.has_only_rearms() {
            // Peers decide how many handshake packets there are, so these take half of `max` at
            // most.
            self.emit_control(now, max.div_ceil(2), &mut out);
            self.emit_acks(now, &mut out);
            self.emit_probes(now, &mut out);
            self.emit_closes(now, &mut out);
        }
        self.emit_ready(now, &mut out);
        if self.shared.out.has_control() {
            self.emit_control(now, usize::MAX, &mut out);
        }
        self.emit_strangers(now, &mut out);
        let sent = out.sent;
        debug_assert!(sent + out.left == max, "{sent} of {max} have left");
        self.rearm_some(now);
        #[cfg(debug_assertions)]
        self.audit();
        sent
    }

    // ---- time ----------------------------------------------------------------------------------

    /// When [`Self::handle_timeout`] must be called next (`Time::NEVER`: not before new input).
    /// `Time(0)` while [`Self::poll_transmit`] has something to do now.
    pub fn next_timeout(&self) -> Time {
        let telling = self.shared.rx.host.is_telling();
        let waiting = telling || !self.shared.out.is_empty() || !self.strangers.is_empty();
        if waiting {
            return Time(0);
        }
        let next = self.next_timer();
        if self.shared.out.has_ready() { next.min(self.shared.port.opens_at()) } else { next }
    }

    /// When the next timer fires, whatever [`Self::poll_transmit`] has to do before: for a driver
    /// whose network takes no packets now (`Time::NEVER`: no timer is set).
    pub fn next_timer(&self) -> Time {
        self.shared.timers.next().min(self.shared.rx.granter.next())
    }

    /// Whether all that [`Self::next_timeout`] asks for by `now` is to recalculate timers: nothing
    /// is to be sent, and no timer is due. A driver that is certain to call again soon may leave
    /// that for then, because what it does until then often changes the timers once more.
    pub fn only_recalculates(&self, now: Time) -> bool {
        let out = &self.shared.out;
        let idle = out.has_rearms() && out.has_only_rearms() && !out.has_ready();
        let telling = self.shared.rx.host.is_telling() || !self.strangers.is_empty();
        idle && !telling && self.next_timer() > now
    }

    /// Fires the timers with deadlines up to `now`, the earliest first. Every packet that has
    /// arrived must have been handled before. After [`crate::limits::TIMER_STEPS_MAX`] steps of
    /// work the remaining timers wait for the next call; [`Self::next_timeout`] then says that they
    /// are due.
    pub fn handle_timeout(&mut self, now: Time) {
        self.handle_timeout_unread(now, now);
    }

    /// Fires the timers with deadlines up to `now`, while packets that arrived after `read_until`
    /// may not have been handled yet. A timer that takes silence for a loss sees the time
    /// `read_until` only, because the packet that it waits for may be among these. All other timers
    /// see `now`.
    pub fn handle_timeout_unread(&mut self, now: Time, read_until: Time) {
        self.shared.rx.unread = now.since(read_until);
        self.shared.port.time_passed(now);
        if self.noise.samples() {
            self.lateness_note(now);
        }
        self.rearm_some(now);
        let enough = self.shared.counters.timer_steps + TIMER_STEPS_MAX;
        while self.shared.counters.timer_steps < enough
            && let Some(owner) = self.shared.timers.pop(now)
        {
            self.shared.counters.timer_steps += 1;
            match TimerOf::owner(owner) {
                TimerOf::Context(ci) => self.context_timer_fire(now, ci),
                TimerOf::Path(pi) => self.path_timer_fire(now, pi),
                TimerOf::Backoff(wi) => {
                    let ci = self.objects.wrs.get(wi).ctx;
                    debug_assert!(self.contexts.find(ci).is_some(), "a request has a context");
                    self.lane(now, ci).backoff_end(wi);
                }
            }
        }
        debug_assert!(
            self.shared.counters.timer_steps >= enough || self.shared.timers.next() > now,
            "all that is due has fired, or it was enough"
        );
        self.grants_poll(now);
    }

    /// Notes that packets from [`Self::poll_transmit`] have reached the network card, `took` after
    /// the time that was given to that call. The engine adds the measured delay to what its timing
    /// rules tolerate. `took` is called for the few calls that give a sample.
    pub fn handover_note(&mut self, took: impl FnOnce() -> Span) {
        if self.noise.samples() {
            self.noise.handover(took());
            self.path_params.floors.noise_set(&self.noise);
        }
    }

    /// The measured timing noise of the host, for tools.
    pub fn noise(&self) -> Span {
        Span(u64::from(self.path_params.floors.noise_ns()))
    }

    /// Measures how late the earliest due timer fires.
    #[cold]
    fn lateness_note(&mut self, now: Time) {
        let due = self.shared.timers.next();
        if due <= now {
            self.noise.lateness(now.since(due));
            self.path_params.floors.noise_set(&self.noise);
        }
    }

    // ---- completions and events ----------------------------------------------------------------

    /// Takes the next completion of `cq`. Its slot stays reserved until [`Self::cq_release`].
    pub fn cq_poll(&mut self, cq: CqId) -> Option<Completion> {
        self.cq_next(cq).copied()
    }

    /// As [`Engine::cq_poll`], for a caller that reads the completion at once: completions are
    /// large, and this one is not copied.
    #[inline]
    pub fn cq_next(&mut self, cq: CqId) -> Option<&Completion> {
        let c = self.objects.cqs.get_mut(cq)?.pop()?;
        if let Completion { kind: CompletionKind::Send(h, _), .. } = *c {
            self.objects.wrs.give_back(h);
        }
        Some(c)
    }

    /// Whether [`Engine::cq_poll`] would find a completion.
    #[inline]
    pub fn cq_waits(&self, cq: CqId) -> bool {
        self.objects.cqs.get(cq).is_some_and(|cq| cq.waits())
    }

    /// Releases the slots of `n` polled completions, which makes room for new posts.
    pub fn cq_release(&mut self, cq: CqId, n: u32) {
        if let Some(cq) = self.objects.cqs.get_mut(cq) {
            cq.release(n);
        }
    }

    /// Takes the next asynchronous event.
    pub fn poll_event(&mut self) -> Option<AsyncEvent> {
        let e = self.shared.out.event_pop()?;
        if let AsyncEvent::WrReleased(h) = e {
            self.objects.wrs.give_back(h);
        }
        Some(e)
    }

    // ---- state for tools -----------------------------------------------------------------------

    /// The configuration of the engine.
    pub fn config(&self) -> &EngineConfig {
        &self.shared.cfg
    }
    /// The observer of the engine's events.
    pub fn observer(&mut self) -> &mut O {
        &mut self.shared.observer
    }
    /// The counters of the engine, since its start.
    pub fn counters(&self) -> &Counters {
        &self.shared.counters
    }
    /// Random number of this run, by which peers recognize a restart.
    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// State of each path to `ip`, for tools; empty if no context has that address.
    pub fn path_stats(&self, ip: IpAddr) -> Vec<PathStats> {
        let mut v = Vec::new();
        if let Some(i) = self.paths.by_ip(&ip) {
            self.paths.get(i).paths.stats(&mut v);
        }
        v
    }

    /// The state of each context, for tools and test oracles.
    pub fn context_stats(&self) -> Vec<ContextStats> {
        let stats = |(i, c): (Ctx, &crate::peer::Context)| {
            let pc = &self.paths.get(c.way()).paths;
            ContextStats {
                ctx: i,
                peer: c.endpoint(),
                state: c.state().name(),
                outstanding: c.outstanding(),
                psns_unresolved: c.win().map_or(0, |a| a.board.span()),
                packets_in_flight: c.win().map_or(0, |a| a.board.in_flight()),
                stalled: c.win().is_some_and(|a| a.loss.is_stalled()),
                is_active: c.is_active(),
                inflight_bytes: pc.inflight(),
                inflight_bytes_max: pc.inflight_max(),
                rate_bytes_per_sec: pc.rate_bytes_per_sec(),
                srtt_ns: pc.srtt().0,
                rtt_ns_min: pc.rtt_min().0,
                held_bytes: self.held_bytes(c),
                psns_ahead: c.win().map_or(0, |a| a.rx_window.top().diff(c.rx_una()).max(0) as u32),
                reads_served: c.win().map_or(0, |a| a.jobs.len() as u32),
                checked: c.limits().checked,
                sealed: c.limits().sealed,
                rx_budget: c.reports().rx_budget(),
                credit_bytes: c.grants(&self.shared.cfg).then(|| pc.credit_bytes()),
            }
        };
        self.contexts.iter().map(stats).collect()
    }
}

/// State of one context, for tools. Rate, RTT and bytes in flight are those of the peer's address,
/// which contexts may share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContextStats {
    /// Number of the context in this engine.
    pub ctx: Ctx,
    /// Address and port of the remote engine.
    pub peer: Endpoint,
    /// "Opening", "HalfOpen", "Open" or "Closing".
    pub state: &'static str,
    /// Send requests posted and not completed.
    pub outstanding: u32,
    /// PSNs from the oldest unresolved one up to the next one to be used.
    pub psns_unresolved: u32,
    /// Packets in flight: sent, and neither acknowledged nor declared lost.
    pub packets_in_flight: u32,
    /// No path to the peer answers.
    pub stalled: bool,
    /// Window state is leased: the context has traffic.
    pub is_active: bool,
    /// Bytes in flight to the peer's address.
    pub inflight_bytes: u64,
    /// Limit of `inflight_bytes`: the congestion window.
    pub inflight_bytes_max: u64,
    /// Paced rate, in bytes per second.
    pub rate_bytes_per_sec: u64,
    /// Smoothed RTT, in nanoseconds.
    pub srtt_ns: u64,
    /// Base RTT (the recent minimum), in nanoseconds.
    pub rtt_ns_min: u64,
    /// Bytes of memory held for the peer and its address; at most [`EngineConfig::peer_bytes_max`].
    pub held_bytes: usize,
    /// PSNs from the lower edge that the peer announces to the newest PSN received.
    pub psns_ahead: u32,
    /// Reads of the peer that are being served.
    pub reads_served: u32,
    /// Each packet of the context must carry a checksum.
    pub checked: bool,
    /// Each packet of the context is sealed.
    pub sealed: bool,
    /// Receive budget: bytes that the peer allows in flight (`u32::MAX`: no limit).
    pub rx_budget: u32,
    /// Bytes that the peer granted and that were not sent yet; `None`: no receiver credits.
    pub credit_bytes: Option<u64>,
}
