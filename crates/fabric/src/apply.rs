//! Application of faults. Faults are rare, so they may scan the whole event queue; the packet path
//! keeps no state for them.

use crate::fault::{Effect, Fault, Target};
use crate::impair::Impair;
use crate::link::{
    CHOSEN, CREDITED, DOWN, FROM_DEAD, HOLE, IMPAIRED, MONITORED, SHARED, SLOW_ARRIVE, TO_DEAD,
    TO_HOLE, UNUSABLE,
};
use crate::net::{ARRIVE, CALL, CONVERGE, Event, FAULT, HELD, HELD_CALL, Net};
use crate::routing::{Router, Routing};
use crate::stats::DropReason;
use crate::topo::{HostId, LinkId, Node, Ps, SwitchId};
use crate::wheel::Entry;

impl<P> Net<P> {
    /// Applies a fault, already checked, now.
    pub fn fault_apply(&mut self, fault: Fault) {
        match fault {
            Fault::Down { at, routing } => self.flag(&self.links_of(at), DOWN, true, routing),
            Fault::Up { at, routing } => self.flag(&self.links_of(at), DOWN, false, routing),
            Fault::Flap { at, down_ps, up_ps, times, routing } => {
                if times > 0 {
                    self.flag(&self.links_of(at), DOWN, true, routing);
                    let up = self.now.saturating_add(down_ps);
                    self.fault_schedule(up, Fault::Up { at, routing });
                    let again = Fault::Flap { at, down_ps, up_ps, times: times - 1, routing };
                    self.fault_schedule(up.saturating_add(up_ps), again);
                }
            }
            Fault::BlackHole { at, routing } => self.flag(&self.links_of(at), HOLE, true, routing),
            Fault::BlackHoleEnd { at, routing } => {
                self.flag(&self.links_of(at), HOLE, false, routing);
            }
            Fault::SwitchHole { switch, routing } => {
                self.flag(&self.links_into(switch), TO_HOLE, true, routing);
            }
            Fault::SwitchHoleEnd { switch, routing } => {
                self.flag(&self.links_into(switch), TO_HOLE, false, routing);
            }
            Fault::SwitchDown { switch, routing } => self.switch_set(switch, true, routing),
            Fault::SwitchUp { switch, hash_seed, routing } => {
                self.routes.rehash(switch.0, hash_seed);
                self.switch_set(switch, false, routing);
            }
            Fault::Rehash { switch, hash_seed } => self.routes.rehash(switch.0, hash_seed),
            Fault::Rate { at, percent } => self.rate_set(&self.links_of(at), percent),
            Fault::Buffer { at, bytes } => {
                for link in self.links_of(at) {
                    self.cold[link.0 as usize].buffer = bytes;
                    self.profile_renew(link);
                }
            }
            Fault::Impair { at, effect } => {
                for link in self.links_of(at) {
                    self.effect_set(link, effect);
                }
            }
            Fault::HostStall { host, for_ps } => self.stall(host, for_ps),
            Fault::HostDrain { host, percent } => self.drain_set(host, percent),
            Fault::HealAll => self.heal_all(),
        }
    }

    /// Queues a checked fault.
    pub fn fault_schedule(&mut self, at: Ps, fault: Fault) {
        let place = self.faults.put(fault);
        self.schedule(at, Event::new(FAULT, 0, place));
    }

    fn links_of(&self, at: Target) -> Vec<LinkId> {
        at.links(&self.topo)
    }

    fn links_into(&self, switch: SwitchId) -> Vec<LinkId> {
        let to = Node::Switch(switch);
        self.links_of(Target::Switch(switch))
            .into_iter()
            .filter(|l| self.topo.to(*l) == to)
            .collect()
    }

    /// Sets or clears a flag of links, drops packets if carrier is lost, and schedules routing's
    /// reaction.
    fn flag(&mut self, links: &[LinkId], flag: u32, on: bool, routing: Option<Ps>) {
        for link in links {
            self.flag_one(*link, flag, on);
        }
        if on && flag & (DOWN | FROM_DEAD | TO_DEAD) != 0 {
            self.cut(links);
        }
        if let Some(after) = routing {
            let place = self.converges.put(links.to_vec());
            self.schedule(self.now.saturating_add(after), Event::new(CONVERGE, 0, place));
        }
    }

    pub fn flag_one(&mut self, link: LinkId, flag: u32, on: bool) {
        let flags = &mut self.links[link.0 as usize].flags;
        let before = *flags & SLOW_ARRIVE != 0;
        *flags = if on { *flags | flag } else { *flags & !flag };
        let after = *flags & SLOW_ARRIVE != 0;
        self.slow_arrivals = self.slow_arrivals + u32::from(after) - u32::from(before);
    }

    fn switch_set(&mut self, switch: SwitchId, dead: bool, routing: Option<Ps>) {
        let all = self.links_of(Target::Switch(switch));
        let into = |l: &LinkId| self.topo.to(*l) == Node::Switch(switch);
        let (into, out): (Vec<_>, Vec<_>) = all.iter().copied().partition(into);
        self.flag(&into, TO_DEAD, dead, None);
        self.flag(&out, FROM_DEAD, dead, None);
        self.flag(&all, 0, dead, routing);
    }

    /// Updates routing to the present state of links and recomputes its tables if anything changed.
    pub fn converge(&mut self, links: &[LinkId]) {
        let mut changed = false;
        for link in links {
            let usable = self.links[link.0 as usize].flags & UNUSABLE == 0;
            changed |= std::mem::replace(&mut self.routed[link.0 as usize], usable) != usable;
        }
        if changed {
            let routed = &self.routed;
            let usable = |l: u32| routed[l as usize];
            match &mut self.router {
                Router::Ecmp => self.routes.rebuild(usable),
                Router::Oblivious(o) => o.converge(&usable),
                Router::Circuits(c) => c.converge(&usable),
            }
            self.moves_apply();
        }
    }

    /// Removes the arrivals of these links from the queue, in order.
    fn arrivals_take(&mut self, links: &[LinkId]) -> Vec<Entry<Event>> {
        let idle = |l: &LinkId| {
            let link = &self.links[l.0 as usize];
            link.busy_until + self.profiles[link.profile as usize].delay_ps < self.now
        };
        if links.iter().all(idle) {
            return Vec::new();
        }
        for link in links {
            self.links[link.0 as usize].flags |= CHOSEN;
        }
        let all = &self.links;
        let out =
            self.wheel.extract(|e| e.kind() == ARRIVE && all[e.id() as usize].flags & CHOSEN != 0);
        for link in links {
            self.links[link.0 as usize].flags &= !CHOSEN;
        }
        out
    }

    /// Drops every packet that is queued for these links or on their wires.
    fn cut(&mut self, links: &[LinkId]) {
        if self.lossless.is_some() {
            return self.credited_cut(links);
        }
        for entry in self.arrivals_take(links) {
            self.discard(Some(entry.event.id()), entry.event.b, DropReason::Cut);
        }
        for link in links {
            let link = &mut self.links[link.0 as usize];
            link.busy_until = link.busy_until.min(self.now);
        }
    }

    /// Sets the rate of links; queued bytes leave at the new rate.
    fn rate_set(&mut self, links: &[LinkId], percent: u32) {
        let mut links = links.to_vec();
        links.retain(|l| self.cold[l.0 as usize].percent != percent);
        let arrivals = self.arrivals_take(&links);
        // Per link: the old and the new departure time of the packet before.
        let mut left = vec![(self.now, self.now); links.len()];
        let mut place = vec![0usize; self.links.len()];
        let mut old_profile = Vec::with_capacity(links.len());
        for (i, link) in links.iter().enumerate() {
            place[link.0 as usize] = i;
            old_profile.push(self.profiles[self.links[link.0 as usize].profile as usize]);
            self.cold[link.0 as usize].percent = percent;
            self.profile_renew(*link);
        }
        self.headroom_renew(&links);
        for entry in arrivals {
            let link = entry.event.id() as usize;
            let old = &old_profile[place[link]];
            let new = &self.profiles[self.links[link].profile as usize];
            let departs = entry.time.saturating_sub(old.delay_ps);
            let mut time = entry.time;
            if departs > self.now {
                let (left_old, left_new) = &mut left[place[link]];
                *left_new += old.rescale(departs - *left_old, new);
                *left_old = departs;
                time = *left_new + old.delay_ps;
                self.links[link].busy_until = *left_new;
            }
            self.wheel.push(time, entry.order, entry.event);
        }
    }

    /// Updates the profile of a link to its present rate and buffer.
    fn profile_renew(&mut self, link: LinkId) {
        let cold = &mut self.cold[link.0 as usize];
        let hot = &mut self.links[link.0 as usize];
        let queue = self.profiles[hot.profile as usize].ps_to_bytes(hot.backlog_max_ps);
        cold.queue_bytes_max = cold.queue_bytes_max.max(queue);
        hot.backlog_max_ps = 0;
        let port = cold.port();
        let profile = self.profile_of(port);
        self.links[link.0 as usize].profile = profile;
    }

    fn effect_set(&mut self, link: LinkId, effect: Effect) {
        let seed = self.seed;
        let impair = &mut self.cold[link.0 as usize].impair;
        let impair = impair.get_or_insert_with(|| Box::new(Impair::new(seed, link.0)));
        impair.set(effect);
        let active = impair.active();
        self.flag_one(link, IMPAIRED, active);
    }

    fn heal_all(&mut self) {
        let all = self.links_of(Target::All);
        self.rate_set(&all, 100);
        for link in &all {
            self.cold[link.0 as usize].buffer = None;
            if let Some(impair) = &mut self.cold[link.0 as usize].impair {
                impair.clear();
            }
            self.profile_renew(*link);
            self.flag_one(*link, !(MONITORED | SHARED | CREDITED), false);
        }
        self.converge(&all);
        self.drains_heal();
        if self.hosts.iter().all(|h| h.stalled_until <= self.now) {
            return;
        }
        for host in 0..self.hosts.len() as u32 {
            self.stall_end(HostId(host));
        }
        // Held events were queued for the end of the stall; they are due now, in their order.
        for entry in self.wheel.extract(|e| matches!(e.kind(), HELD | HELD_CALL)) {
            self.schedule(self.now, entry.event);
        }
    }

    /// Stalls a host. Events held by an earlier stall move to the new end, before later ones.
    fn stall(&mut self, host: HostId, for_ps: Ps) {
        let port = &mut self.hosts[host.0 as usize];
        port.stalled_until = port.stalled_until.max(self.now.saturating_add(for_ps));
        let until = port.stalled_until;
        let held = |e: &Event| matches!(e.kind(), HELD | HELD_CALL) && e.id() == host.0;
        for entry in self.wheel.extract(held) {
            self.schedule(until, entry.event);
        }
    }

    fn stall_end(&mut self, host: HostId) {
        let port = &mut self.hosts[host.0 as usize];
        if port.stalled_until > self.now {
            port.stalled_until = self.now;
            // A timer event queued earlier is requeued when it is due; the queue of timer events
            // must stay sorted.
            let timer = port.timer;
            if timer != Ps::MAX {
                self.timer_set(host, timer);
            }
        }
    }

    /// Keeps a packet for a stalled host, or drops it if too much is held. Returns false if the
    /// host is not stalled.
    pub fn packet_hold(&mut self, host: u32, link: Option<u32>, packet: u32) -> bool {
        let port = &mut self.hosts[host as usize];
        if port.stalled_until <= self.now {
            return false;
        }
        let bytes = u64::from(self.slab.header(packet).bytes);
        if link.is_some() {
            if port.held_bytes + bytes > self.config.host_hold_bytes {
                self.discard(link, packet, DropReason::HostFull);
                return true;
            }
            port.held_bytes += bytes;
        }
        let until = port.stalled_until;
        self.schedule(until, Event::new(HELD, host, packet));
        true
    }

    /// Whether a host is stalled.
    pub fn stalled(&self, host: u32) -> bool {
        self.hosts[host as usize].stalled_until > self.now
    }

    /// Keeps a call for a stalled host. Returns false if the host is not stalled.
    pub fn call_hold(&mut self, event: Event) -> bool {
        let until = self.hosts[event.id() as usize].stalled_until;
        let stalled = until > self.now;
        if stalled {
            self.schedule(until, Event::new(HELD_CALL, event.id(), event.b));
        }
        stalled
    }

    /// Queues a call to a host.
    pub fn call_schedule(&mut self, at: Ps, host: HostId, token: u64) {
        let place = self.calls.put(token);
        self.schedule(at, Event::new(CALL, host.0, place));
    }
}
