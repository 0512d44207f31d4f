//! State that the engines of one host share through their driver.

use crate::engine::Engine;
use crate::events::Observer;
use crate::path::{HOST_SENDERS_MAX, HostNote, HostView};
use crate::time::Time;
use core::net::IpAddr;

impl<O: Observer> Engine<O> {
    /// Takes the next note for the other engines of this host, about one address; usually `None`.
    /// The driver answers each note with [`Self::share_view`]. To be called before
    /// [`Self::poll_transmit`]. There are notes only with
    /// [`EngineConfig::host_shared`](crate::EngineConfig::host_shared), at most one per address
    /// every 20 us.
    #[inline]
    pub fn share_next(&mut self, now: Time) -> Option<HostNote> {
        loop {
            let way = self.shared.out.share_pop()?;
            if let Some(entry) = self.paths.find_mut(way) {
                return Some(entry.paths.share_note(now, entry.ip));
            }
        }
    }

    /// Whether this engine grants credit now, which the other engines of the host should know.
    #[inline]
    pub fn grants_wanted(&self) -> bool {
        self.shared.cfg.rate.grants() && self.shared.rx.granter.is_wanted()
    }

    /// Sets the number of engines of this host that grant credit now, this one included: each
    /// grants an equal share of the link rate. At most [`HOST_SENDERS_MAX`] count.
    pub fn granters_set(&mut self, engines: u32) {
        self.shared.rx.granter.engines_set(engines.min(HOST_SENDERS_MAX));
    }

    /// Takes the combined state of all engines of this host, this one included, for address `ip`:
    /// from now on this engine uses its share of what the host sends there.
    pub fn share_view(&mut self, ip: IpAddr, view: &HostView) {
        let Some(way) = self.paths.by_ip(&ip) else { return };
        let entry = self.paths.get_mut(way);
        if entry.paths.share_view(view) {
            self.shared.inflight_freed(entry);
        }
    }
}
