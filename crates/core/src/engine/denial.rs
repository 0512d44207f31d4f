//! Paths that an operator denies or allows.

use crate::engine::Engine;
use crate::events::{Event, Observer};
use crate::ids::{Ctx, Way};
use crate::limits::PROBES_ORDERED_MAX;
use crate::outbox::ProbeOut;
use crate::path::{DenyError, PathMask};
use crate::peer::{Context, ContextState};
use crate::time::Time;
use core::net::IpAddr;

impl<O: Observer> Engine<O> {
    /// Denies the paths of `mask` to `ip` and allows all others, now and for contexts to come: no
    /// new packet of any kind takes a denied path. Packets that are in flight on it count as usual;
    /// none is declared lost because of the denial. Numbers beyond the configured paths are
    /// ignored.
    ///
    /// # Errors
    /// At least `least` paths (and never less than one) must remain; at most
    /// [`DENIALS_MAX`](crate::limits::DENIALS_MAX) addresses may have denied paths. After an error
    /// everything is as before.
    pub fn paths_deny(
        &mut self,
        now: Time,
        ip: IpAddr,
        mask: &PathMask,
        least: u16,
    ) -> Result<(), DenyError> {
        let paths = self.shared.cfg.path.paths;
        let mask = mask.below(paths);
        let (left, least) = (paths - mask.len(), least.max(1));
        if left < least && !mask.is_empty() {
            return Err(DenyError::TooFewLeft { left, least });
        }
        self.paths.denials.set(ip, mask)?;
        if let Some(way) = self.paths.by_ip(&ip) {
            self.paths_apply(now, way, &mask);
        }
        Ok(())
    }

    /// Probes the paths of `mask` to `ip` as soon as it may: those in use by a small packet each,
    /// with the next [`Self::poll_transmit`], retired ones by their own probes, within the budget
    /// of these. Denied paths are not probed. What comes back counts as for any packet, and
    /// [`PathStats::echoed`](crate::path::PathStats::echoed) tells it. Returns whether probes were
    /// ordered: there must be an open context to the address, and at most
    /// [`PROBES_ORDERED_MAX`] probes may wait.
    pub fn paths_probe(&mut self, now: Time, ip: IpAddr, mask: &PathMask) -> bool {
        let mask = mask.below(self.shared.cfg.path.paths);
        let waiting = self.shared.out.probes_len() + usize::from(mask.len());
        let Some(way) = self.paths.by_ip(&ip).filter(|_| waiting <= PROBES_ORDERED_MAX) else {
            return false;
        };
        let open = |c: &Context| c.way() == way && c.state() == ContextState::Open;
        let is_open = |ci: &Ctx| self.contexts.find(*ci).is_some_and(open);
        let last = Some(self.paths.get(way).carrier).filter(is_open);
        let Some(ci) = last.or_else(|| self.contexts.numbers().find(is_open)) else {
            return false;
        };
        self.context_activate(ci);
        let entry = self.paths.get_mut(way);
        let live = entry.paths.probes_order(now, &mask);
        for path in (0..self.shared.cfg.path.paths).map(|i| i as u8).filter(|i| live.has(*i)) {
            self.shared.out.probe_push(ProbeOut::small(ci, path));
        }
        self.shared.path_changes(now, entry);
        true
    }

    /// The denied paths to `ip`.
    pub fn paths_denied(&self, ip: IpAddr) -> PathMask {
        self.paths.denials.get(&ip)
    }

    /// Brings the states of the paths to an address in line with `mask`, and reports what changed.
    #[cold]
    pub(crate) fn paths_apply(&mut self, now: Time, way: Way, mask: &PathMask) {
        let entry = self.paths.get_mut(way);
        // Changes before the denial are reported as what they were.
        self.shared.path_changes(now, entry);
        let (ip, observer) = (entry.ip, &mut self.shared.observer);
        entry.paths.deny(now, mask, |path, from, to| {
            let (from, to) = (from.word(), to.word());
            observer.event(now, Event::Path { ip, path, from, to });
        });
        self.shared.path_changes(now, entry);
    }
}
