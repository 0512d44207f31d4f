//! What the engines of one host tell each other, taken out and put in by the driver.

use crate::engine::Engine;
use crate::events::Observer;
use crate::path::{HOST_SENDERS_MAX, HostNote, HostView};
use crate::time::Time;
use core::net::IpAddr;

impl<O: Observer> Engine<O> {
    /// What the other engines of this host should know now, of one address at a time; `None`
    /// nearly always. For each note the driver answers with [`Self::share_view`]. To be asked
    /// before [`Self::poll_transmit`]. Notes come only with
    /// [`EngineConfig::host_shared`](crate::EngineConfig::host_shared), of each address at most
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

    /// Whether this engine hands out grants now: the other engines of the host should know.
    #[inline]
    pub fn grants_wanted(&self) -> bool {
        self.shared.cfg.rate.credits && self.shared.rx.granter.is_wanted()
    }

    /// So many engines of this host hand out grants now, this one among them: each hands out an
    /// equal part of the link. At most [`HOST_SENDERS_MAX`] count.
    pub fn granters_set(&mut self, engines: u32) {
        self.shared.rx.granter.engines_set(engines.min(HOST_SENDERS_MAX));
    }

    /// What all engines of this host together know of `ip`, this one among them: from now on it
    /// takes its part of what the host sends there.
    pub fn share_view(&mut self, ip: IpAddr, view: &HostView) {
        let Some(way) = self.paths.by_ip(&ip) else { return };
        let entry = self.paths.get_mut(way);
        if entry.paths.share_view(view) {
            self.shared.inflight_freed(entry);
        }
    }
}
