//! The packet size that the paths to an address carry: calls of the engine's user, and the timers
//! of the search for it.

use crate::engine::Engine;
use crate::events::Observer;
use crate::ids::Way;
use crate::limits::MTU_MIN;
use crate::path::{Found, next_below};
use crate::peer::ContextState;
use crate::time::Time;
use core::net::IpAddr;

impl<O: Observer> Engine<O> {
    /// Largest payload of a packet to `ip` in bytes; `None` if no size is known to be too large.
    pub fn path_mtu(&self, ip: IpAddr) -> Option<u16> {
        let size = self.paths.get(self.paths.by_ip(&ip)?).mtu.size();
        (size < u16::MAX).then_some(size)
    }

    /// Reports that this host could not send a packet with `payload_len` bytes of payload to `ip`
    /// because it is too large. `payload_max`: the largest payload that can be sent, if known.
    pub fn path_too_long(
        &mut self,
        now: Time,
        ip: IpAddr,
        payload_len: u16,
        payload_max: Option<u16>,
    ) {
        let Some(pi) = self.paths.by_ip(&ip) else { return };
        // Packets are never made smaller than the smallest size of the table.
        if payload_len <= next_below(ip, 0, false) {
            return;
        }
        let aligned = self.shared.cfg.mtu_aligned();
        let told = payload_max.filter(|&max| max < payload_len);
        let told = told.map(|max| if aligned { max - max % 128 } else { max });
        let size = told.unwrap_or_else(|| next_below(ip, payload_len, aligned)).max(MTU_MIN);
        debug_assert!(size < payload_len || size == MTU_MIN, "less than what was too long");
        self.size_limit(now, pi, size);
    }

    /// Limits packets to the address to `size` from now on.
    pub(crate) fn size_limit(&mut self, now: Time, pi: Way, size: u16) {
        let way = self.paths.get_mut(pi);
        debug_assert!(size >= MTU_MIN, "no way carries less");
        let news = way.mtu.limit(now, size);
        self.shared.sizes.recount(way);
        if news {
            self.shared.mtu_changed(now, way);
        }
    }

    /// Continues the search for the packet size, when the timer of an address fires.
    pub(crate) fn mtu_fire(&mut self, now: Time, pi: Way) {
        self.mtu_look(now, pi);
        self.shared.sizes.recount(self.paths.get_mut(pi));
    }

    fn mtu_look(&mut self, now: Time, pi: Way) {
        let (seen, rxq_drops) = (self.shared.seen(now), self.shared.rx.rxq_drops);
        let way = self.paths.get_mut(pi);
        // The answers may still wait in our socket.
        if way.mtu.next() > seen {
            return;
        }
        let carrier = way.mtu.carrier().unwrap_or(way.carrier);
        let known = self.contexts.find(carrier).filter(|c| c.way() == pi);
        let Some(full) = known.map(|c| c.limits().mtu) else {
            return way.mtu.search_end(now);
        };
        let again = match way.mtu.poll(now, seen, full, rxq_drops) {
            Found::Again => true,
            Found::Changed => return self.shared.mtu_changed(now, way),
            Found::Nothing => way.mtu.raise_begin(now, carrier, full),
        };
        if again {
            let fits = known.is_some_and(|c| c.state() == ContextState::Open && c.is_active());
            self.shared.mtu_round(now, way, fits.then_some(full));
        }
    }
}
