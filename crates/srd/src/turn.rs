//! The engine's turn: the one function that moves requests, packets and completions, in a fixed
//! order.

use crate::{
    arrivals::Look,
    events::AsyncEvent,
    logging,
    nic::{Nic, TX_BATCH, Turn, parse_error_index},
    place::Emitter,
    sealing::{self, Unread},
    shard::Shard,
    taker::Taker,
    tasks::pay,
};
use srd_core::{QpModify, QpState, Rx, RxMeta, RxWaiting, Span, Time};
use srd_datapath::{RxBacklog, RxDatagram, RxReport, TooLong};
use srd_wire::{IPV4_BYTES, IPV6_BYTES, OVERHEAD_BYTES, payload_bytes_max};
use std::{io, time::Duration};

/// Most batches received in one turn: bounds how long packets to be sent wait.
const RX_BATCHES: usize = 8;
/// Longest time that a closing device waits for its peers.
const PEACE_MAX: Span = Span::from_secs(1);
/// Interval at which a closing device checks whether its peers are done.
const PEACE_LOOK: Duration = Duration::from_millis(1);
/// Longest time for a closing device's last packets to leave.
const GOODBYE_MAX: Span = Span::from_ms(20);

impl Nic {
    /// Takes one turn; see [`Nic::turn_to`].
    pub(crate) fn turn(&mut self, shared: &Shard) -> Turn {
        self.turn_to(shared, None)
    }

    /// Takes one turn; the taker, if there is one, gets completions of its queue. Commands on
    /// objects (create, modify, destroy, deregister) run between turns, under the same lock. Posted
    /// requests are sent before the socket is polled: polling first would put a system call, often
    /// an empty one, before every answer.
    pub(crate) fn turn_to(&mut self, shared: &Shard, taker: Option<&mut Taker<'_>>) -> Turn {
        self.counters.turns += 1;
        let now = Self::now();
        self.turned_at = now;
        let ordered = self.paths_turn(now);
        self.mirror_turn(now);
        let posted = self.take_posts(shared, now);
        self.share_turn(now);
        let (early, _) = if posted > 0 { self.transmit(shared, now) } else { (0, false) };
        let look = self.receive_all(shared);
        let (before, now) = (now, look.taken_at.unwrap_or(now));
        // While packets wait to be read, an acknowledgment may be among them: no timer may assume a
        // loss.
        let read_until = self.arrivals.note(before, now, &look);
        let due = self.engine_due(now, &look);
        if due <= now {
            self.engine.handle_timeout_unread(now, read_until);
        }
        self.share_turn(now);
        let to_send = due <= now && self.engine.next_timeout() == Time(0);
        let (sent, tx_more) =
            if to_send || !self.net.tx_ready() { self.transmit(shared, now) } else { (0, false) };
        let cut = self.seal_tick(shared, now);
        // Nothing was taken, received, fired, sent or cut, so nothing can have ended. (A draining
        // backlog sends packets whose requests then end.)
        let busy = posted + look.received + sent > 0 || due <= now || cut || ordered;
        let delivered = if busy { self.deliver_to(shared, taker) } else { 0 };
        let done = posted + early + look.received + sent + delivered;
        self.status_turn(now, busy, shared.common.events.dropped());
        Turn { done, more: look.more || tx_more }
    }

    /// When the engine has something to do. After a turn that received packets its driver takes
    /// another one, in which the program's answer may have been posted: timers are recalculated
    /// then, once for the packets and the answer.
    fn engine_due(&mut self, now: Time, look: &Look) -> Time {
        let puts_off = look.received > 0 && !self.unsettled && self.engine.only_recalculates(now);
        self.unsettled = puts_off;
        if puts_off { Time::NEVER } else { self.engine.next_timeout() }
    }

    /// The part of a turn that transmits posted requests at once, without receiving.
    pub(crate) fn send_posts(&mut self, shared: &Shard, now: Time) {
        self.paths_turn(now);
        if self.take_posts(shared, now) > 0 {
            self.share_turn(now);
            self.transmit(shared, now);
            self.deliver(shared);
        }
    }

    /// Receives batch after batch while there are more, up to [`RX_BATCHES`]. After a single packet
    /// it stops, so that the packet is answered before the next poll, which might find nothing.
    fn receive_all(&mut self, shared: &Shard) -> Look {
        let mut all = Look::default();
        for batch in 0..RX_BATCHES {
            let look = self.receive(shared, batch);
            all.received += look.received;
            all.more = look.more;
            if look.taken_at.is_some() {
                (all.taken_at, all.waited) = (look.taken_at, look.waited);
            }
            if !look.more || look.received <= 1 {
                return all;
            }
            // Peers must get the acknowledgments of this batch before the next one is read;
            // otherwise a long receive queue looks to them like a silent host.
            self.transmit(shared, all.taken_at.unwrap_or_else(Self::now));
        }
        all
    }

    /// Handles one batch: parse, let the engine judge, place the payload at once. The time passed
    /// to the engine is not earlier than the read from the socket, since RTTs depend on it.
    fn receive(&mut self, shared: &Shard, batch: usize) -> Look {
        let (mut taken_at, mut waited) = (None, Span::ZERO);
        let Self { engine, net, tables, counters, ack, seal, mirror, .. } = self;
        let report = net.rx(&mut |d: RxDatagram<'_>| {
            if d.bytes.is_empty() && d.src.ip() == tables.local_ip {
                // A command of this host asks for a turn, to have its orders obeyed.
                return;
            }
            if let Some(mirror) = mirror {
                seal.as_deref_mut().into_iter().for_each(|seal| mirror.secrets(seal));
                mirror.received(&d);
            }
            let now = *taken_at.get_or_insert_with(Self::now);
            waited = Span(d.waited_ns);
            let meta = RxMeta { src_ip: d.src.ip(), ce: d.ce, rxq_drops: d.rxq_drops, waited };
            let read = match seal.as_deref_mut() {
                None => sealing::read_plain(engine, now, &meta, d.bytes, ack)
                    .map(|(packet, start)| (packet, &*d.bytes, start))
                    .map_err(Unread::Parse),
                Some(seal) => {
                    let (read, event) = seal.read(engine, now, &meta, d.bytes, ack);
                    event.into_iter().for_each(|event| shared.common.events.push(event));
                    read
                }
            };
            let (packet, bytes, start) = match read {
                Ok(read) => read,
                Err(Unread::Parse(e)) => {
                    counters.parse_errors[parse_error_index(e)] += 1;
                    return;
                }
                Err(Unread::Seal) => return,
            };
            let payload_len = usize::from(packet.payload_len);
            if let Rx::Place(placement) = engine.handle(now, &meta, &packet) {
                let payload = bytes.get(start..start + payload_len).unwrap_or_default();
                if !tables.place(&placement, payload) {
                    counters.rx_unplaced += 1;
                }
            }
        });
        let report = match report {
            Ok(report) => report,
            Err(e) => {
                self.net_failed(shared, &e);
                return Look::default();
            }
        };
        if taken_at.is_none() && batch == 0 && self.behind {
            self.backlog_tell(Self::now(), &report);
        }
        if let Some(now) = taken_at {
            if batch == 0 {
                self.backlog_tell(now, &report);
            }
            self.engine.rx_burst_end(now);
        }
        Look { received: report.datagrams, more: report.more, taken_at, waited }
    }

    /// Tells the engine how much the socket still holds after the first batch of a turn; this takes
    /// a system call only if the batch was full. The value holds until the next turn: a program
    /// that reads everything and then does other things has no less of a backlog than one that
    /// reads a little at a time.
    fn backlog_tell(&mut self, now: Time, report: &RxReport) {
        // The first datagram of a new burst tells nothing: the next read shows what follows it.
        if report.more && report.datagrams <= 1 {
            return;
        }
        let left = if report.more { self.net.rx_backlog() } else { RxBacklog::default() };
        let RxBacklog { bytes, limit_bytes } = left;
        self.behind = bytes > 0;
        self.engine.rx_waiting(now, &RxWaiting { bytes, limit_bytes, handled: false });
    }

    /// Transmits one batch and passes it to the kernel before returning, so that no memory is
    /// referenced afterwards. While the kernel accepts no more, the engine is not polled for
    /// packets.
    pub(crate) fn transmit(&mut self, shared: &Shard, now: Time) -> (usize, bool) {
        if !self.net.tx_ready() {
            self.flush(shared);
        }
        let room = self.net.tx_room().min(TX_BATCH);
        if room == 0 || !self.net.tx_ready() {
            return (0, false);
        }
        let Self { engine, net, tables, counters, seal, headers, mirror, .. } = self;
        let mut seal = seal.as_deref_mut();
        if let Some(seal) = &mut seal {
            seal.batch_begin();
        }
        let (net, mirror) = (net.as_mut(), mirror.as_deref_mut());
        let mut sink = Emitter { net, tables, counters, seal, headers, mirror };
        let n = engine.poll_transmit(now, room, &mut sink);
        if n > 0 {
            self.flush(shared);
            self.engine.handover_note(|| Self::now().since(now));
        }
        (n, n == room)
    }

    /// Passes the queue to the kernel. A failing datapath is reported and kept in use: its packets
    /// count as lost.
    fn flush(&mut self, shared: &Shard) {
        match self.net.tx_flush() {
            Ok(report) => {
                self.net_errno = 0;
                if let Some(t) = report.too_long {
                    self.too_long(&t);
                }
            }
            Err(e) => {
                self.net.tx_discard();
                self.net_failed(shared, &e);
            }
        }
    }

    /// A packet did not fit the local link: the engine sends smaller ones from now on.
    fn too_long(&mut self, t: &TooLong) {
        let ip_bytes = if t.dst.is_ipv4() { IPV4_BYTES } else { IPV6_BYTES };
        let len = t.len.saturating_sub(OVERHEAD_BYTES);
        let max = t.mtu.and_then(|mtu| payload_bytes_max(mtu, ip_bytes));
        let len = u16::try_from(len).unwrap_or(u16::MAX);
        self.engine.path_too_long(Self::now(), t.dst.ip(), len, max);
    }

    /// Reports an error of the datapath once, until it changes.
    pub(crate) fn net_failed(&mut self, shared: &Shard, e: &io::Error) {
        let errno = e.raw_os_error().unwrap_or(libc::EIO);
        if errno != self.net_errno {
            self.net_errno = errno;
            shared.common.events.push(AsyncEvent::DatapathError(errno));
        }
    }

    /// Work of a closing device: posted requests are transmitted, peers get acknowledgments of
    /// their requests (an acknowledgment lost now would never be repeated, and peers would report
    /// accepted messages as failed), then Close is sent. Takes as long as a peer needs, at most
    /// [`PEACE_MAX`]; no time if nothing is outstanding.
    pub(crate) fn say_goodbye(&mut self, shared: &Shard) {
        let deadline = Self::now() + PEACE_MAX;
        let acks_due = Self::now() + self.engine.config().ack.delay_max;
        self.turns_until(shared, deadline, |nic, now| now >= acks_due && !nic.engine.has_work());
        // The program reads no message that arrives from now on.
        for side in self.tables.qps.iter().flatten() {
            let end = QpModify { state: Some(QpState::Err), ..QpModify::default() };
            // Every state permits this change.
            let _ = self.engine.qp_modify(Self::now(), side.core.qpn, end);
            side.core.set_state(QpState::Err);
        }
        // What waited for messages has ended: who waits for it on a channel is told.
        self.deliver(shared);
        self.turns_until(shared, deadline, |nic, now| nic.engine.peace_make(now) == 0);
        self.engine.shutdown();
        let deadline = Self::now() + GOODBYE_MAX;
        while Self::now() < deadline {
            let (sent, _) = self.transmit(shared, Self::now());
            if sent == 0 && self.net.tx_ready() {
                break;
            }
        }
        self.status_end(Self::now(), shared.common.events.dropped());
        logging::closed(self);
    }

    /// Takes turns and sleeps between them until `done` holds or the time is up.
    fn turns_until(
        &mut self,
        shared: &Shard,
        deadline: Time,
        mut done: impl FnMut(&mut Self, Time) -> bool,
    ) {
        loop {
            let busy = self.turn(shared) != Turn::default();
            // The lock stays locked for long, and of a device that closes nothing is lost.
            pay();
            let now = Self::now();
            if done(self, now) && !busy || now >= deadline {
                return;
            }
            let left = Duration::from_nanos(deadline.since(now).0).min(PEACE_LOOK);
            let idle = self.idle_time(Some(left));
            if !busy && let Err(e) = self.net.wait(idle) {
                self.net_failed(shared, &e);
                return;
            }
        }
    }
}
