//! Looking ahead within a window: the memory of coming events is fetched before their turn.

use crate::event::ARRIVE;
use crate::host::Host;
use crate::net::Net;
use crate::routing::Router;
use crate::wheel::Entry;

/// A host's packets are fetched so many hosts before its turn.
const PACKETS_AHEAD: usize = 2;
/// A host's state is fetched so many hosts before its turn, and one host later what it points to.
const HOSTS_AHEAD: usize = 5;

impl<P> Net<P> {
    /// Has the processor fetch what the events of the present group need, if that is a switch, and
    /// what those of the next hosts need: many cache lines at once, where the events would wait for
    /// one after the other. Changes nothing.
    #[inline(never)]
    pub fn look_ahead<H: Host<P>>(&self, programs: &[H]) {
        let hosts = self.hosts.len() as u32;
        let present = self.wheel.group_present();
        if present.first().is_some_and(|e| e.event.to >= hosts) {
            if matches!(self.router, Router::Ecmp) {
                for Entry { event, .. } in present.iter().filter(|e| e.event.kind() == ARRIVE) {
                    let next = self.routes.next(event.to - hosts, event.dst, event.hash);
                    fetch::<P, H, _>(&self.links[next.unwrap_or(0) as usize]);
                }
            }
            return;
        }
        // Packets are known once their events are in the cache, so those come later.
        for Entry { event, .. } in self.wheel.group_coming(PACKETS_AHEAD) {
            if event.kind() == ARRIVE && event.to < hosts {
                fetch::<P, H, _>(self.slab.slot(event.b));
            }
        }
        let coming = self.wheel.group_coming(HOSTS_AHEAD).first().map(|e| e.event.to);
        if let Some(host) = coming.filter(|to| *to < hosts) {
            fetch::<P, H, _>(&self.hosts[host as usize]);
            fetch::<P, H, _>(&programs[host as usize]);
        }
        let nearer = self.wheel.group_coming(HOSTS_AHEAD - 1).first().map(|e| e.event.to);
        if let Some(host) = nearer.filter(|to| *to < hosts) {
            fetch::<P, H, _>(&self.links[self.hosts[host as usize].nic as usize]);
            programs[host as usize].look_ahead();
        }
    }
}

/// Has a value fetched.
#[inline]
fn fetch<P, H: Host<P>, T>(value: &T) {
    H::fetch(std::ptr::from_ref(value).cast(), size_of::<T>());
}
