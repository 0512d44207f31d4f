//! The engine's turn: the one place where everything moves, in one order.

use crate::{
    device::Shared,
    events::AsyncEvent,
    nic::{Nic, TX_BATCH, Turn, parse_error_index},
    place::Emitter,
};
use srd_core::{Rx, RxMeta, Time};
use srd_datapath::RxDatagram;
use std::io;

impl Nic {
    /// One turn. Commands on objects (create, modify, destroy, deregister) run between turns,
    /// under the same lock.
    pub(crate) fn turn(&mut self, shared: &Shared) -> Turn {
        self.counters.turns += 1;
        let posted = self.take_posts(shared, Self::now());
        let (received, rx_more) = self.receive(shared);
        self.run_timers();
        let (sent, tx_more) = self.transmit(shared);
        let delivered = self.deliver(shared);
        Turn { done: posted + received + sent + delivered, more: rx_more || tx_more }
    }

    /// Packets in: parse, let the engine judge, place the payload at once. Returns how many, and
    /// whether more wait.
    fn receive(&mut self, shared: &Shared) -> (usize, bool) {
        let now = Self::now();
        let Self { engine, net, tables, counters, ack, .. } = self;
        let report = net.rx(&mut |d: RxDatagram<'_>| {
            let (packet, start) = match srd_wire::parse(d.bytes, ack) {
                Ok(parsed) => parsed,
                Err(e) => {
                    counters.parse_errors[parse_error_index(e)] += 1;
                    return;
                }
            };
            let meta = RxMeta {
                src_ip: d.src.ip(),
                ce: d.ce,
                rxq_drops: d.rxq_drops,
                rxq_depth: d.behind,
            };
            let payload_len = usize::from(packet.payload_len);
            if let Rx::Place(placement) = engine.handle(now, &meta, &packet) {
                let payload = d.bytes.get(start..start + payload_len).unwrap_or_default();
                if !tables.place(&placement, payload) {
                    counters.rx_unplaced += 1;
                }
            }
        });
        let report = match report {
            Ok(report) => report,
            Err(e) => {
                self.net_failed(shared, &e);
                return (0, false);
            }
        };
        if report.datagrams > 0 {
            self.engine.rx_burst_end(now);
        }
        (report.datagrams, report.more)
    }

    /// Timeouts that are due.
    fn run_timers(&mut self) {
        let now = Self::now();
        if self.engine.next_timeout() <= now {
            self.engine.handle_timeout(now);
        }
    }

    /// Packets out: one batch, handed to the kernel before this returns, so that no memory is
    /// referenced afterwards. While the kernel takes no more, the engine is not asked for packets.
    pub(crate) fn transmit(&mut self, shared: &Shared) -> (usize, bool) {
        if !self.net.tx_ready() {
            self.flush(shared);
        }
        let room = self.net.tx_room().min(TX_BATCH);
        if room == 0 || !self.net.tx_ready() {
            return (0, false);
        }
        let Self { engine, net, tables, counters, .. } = self;
        let mut sink = Emitter { net: net.as_mut(), tables, counters };
        let n = engine.poll_transmit(Self::now(), room, &mut sink);
        if n > 0 {
            self.flush(shared);
        }
        (n, n == room)
    }

    /// Hands what is queued to the kernel. A datapath that fails is reported and used on: the
    /// packets count as lost.
    fn flush(&mut self, shared: &Shared) {
        match self.net.tx_flush() {
            Ok(_) => self.net_errno = 0,
            Err(e) => {
                self.net.tx_discard();
                self.net_failed(shared, &e);
            }
        }
    }

    /// Reports an error of the datapath, once per kind in a row.
    pub(crate) fn net_failed(&mut self, shared: &Shared, e: &io::Error) {
        let errno = e.raw_os_error().unwrap_or(libc::EIO);
        if errno != self.net_errno {
            self.net_errno = errno;
            shared.events.push(AsyncEvent::DatapathError(errno));
        }
    }

    /// Sends what is left to say when the device goes away, until `deadline`.
    pub(crate) fn say_goodbye(&mut self, shared: &Shared, deadline: Time) {
        self.engine.shutdown(Self::now());
        while Self::now() < deadline {
            let (sent, _) = self.transmit(shared);
            if sent == 0 && self.net.tx_ready() {
                break;
            }
        }
    }
}
