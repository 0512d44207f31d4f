//! The path of a packet through a lossless network.
//!
//! [`Net::credited_send`] → card → wire → [`Net::credited_arrive`] → virtual output queue →
//! [`Net::output_serve`] → wire → … → host. When a packet begins to leave a switch, the credit for
//! its room there is returning ([`Net::credit_due`]).

use super::{Cell, Lossless, NONE, Place, register::Carried};
use crate::event::{
    ARRIVE_CREDITED, CREDIT, DEADLOCK_WATCH, Event, FLAGS_SHIFT, HELD, KIND_SHIFT, OUTPUT_WAKE,
    ROOM,
};
use crate::host::{Outbound, Tag};
use crate::link::{DEAD, HOLE, IMPAIRED, MONITORED, SLOW_ARRIVE, TO_HOLE};
use crate::net::{Net, flow_hash};
use crate::routing::{Passing, Router, Routing};
use crate::slab::{ECT, Header};
use crate::stats::{DropReason, HOPS_MAX, TapWhat};
use crate::topo::{HostId, LinkId, Ps, SwitchId};

impl<P> Net<P> {
    fn lossless(&mut self) -> &mut Lossless {
        self.lossless.as_deref_mut().expect("credited links are in networks with credits only")
    }

    /// A host hands a packet to its card.
    #[inline(never)]
    pub fn credited_send(
        &mut self,
        from: HostId,
        out: Outbound,
        tag: Tag,
        payload: P,
    ) -> Result<(), P> {
        let Outbound { dst, sport, dport, bytes, ect } = out;
        let nic = self.hosts[from.0 as usize].nic;
        let link = &self.links[nic as usize];
        let dead = link.flags & DEAD != 0;
        let limit = self.profiles[link.profile as usize].port.buffer_bytes;
        let ll = self.lossless();
        assert!(
            u64::from(bytes) <= ll.packet_bytes_max(),
            "a packet of {bytes} bytes never fits input buffers for {} bytes: make them larger",
            ll.packet_bytes_max()
        );
        if !dead && ll.waiting_bytes(nic).saturating_add(u64::from(bytes)) > limit {
            return Err(payload);
        }
        let hash = flow_hash(from, &out);
        let flags = if ect { ECT } else { 0 };
        let sent_ps = self.now;
        let (src, dst) = (from.0, dst.0);
        let header = Header { src, dst, bytes, hash, sport, dport, corrupt: 0, flags, sent_ps };
        let packet = self.slab.insert(header, payload);
        let cell = Cell {
            bytes,
            dst,
            hash,
            link: NONE,
            out: nic,
            flow: tag.flow.map_or(NONE, |f| f.0),
            last: tag.last,
            register: tag.register.is_some(),
            ..Cell::default()
        };
        let ll = self.lossless();
        let places = ll.cells.len().max(packet as usize + 1);
        ll.cells.resize(places, Cell::default());
        ll.cells[packet as usize] = cell;
        if let Some(op) = tag.register {
            ll.tags.resize(places, Carried::default());
            ll.tags[packet as usize] = Carried { op, max: 0 };
        }
        self.totals.sent += 1;
        if self.tap.is_some() {
            self.tap_call(TapWhat::Sent, None, packet);
        }
        if dead {
            self.credited_discard(Some(nic), packet, DropReason::LinkDown);
        } else {
            self.output_queue(packet);
        }
        Ok(())
    }

    /// Puts a packet into the virtual output queue of `out`, and serves the output.
    fn output_queue(&mut self, packet: u32) {
        let ll = self.lossless();
        ll.queue(packet);
        let Cell { out, out_lane, bytes: own, .. } = ll.cells[packet as usize];
        let bytes = ll.waiting_bytes(out);
        // With credits, only the root of congestion marks, as InfiniBand switches do: an output
        // without credits is a victim of congestion farther along.
        let root = ll.pfc.is_some() || ll.room(out, out_lane, own);
        let link = &mut self.links[out as usize];
        let waits = self.profiles[link.profile as usize].bytes_to_ps(bytes);
        link.backlog_max_ps = link.backlog_max_ps.max(waits);
        let backlog_ps = waits + link.busy_until.saturating_sub(self.now);
        if root {
            self.queue_mark(out, packet, backlog_ps);
        }
        self.output_serve(out);
    }

    /// Sends the next packet of an output if it is free, one waits, and the far end has room.
    pub fn output_serve(&mut self, out: u32) {
        let now = self.now;
        let link = &self.links[out as usize];
        let (busy_until, dead) = (link.busy_until, link.flags & DEAD != 0);
        let ll = self.lossless();
        if dead || ll.outputs[out as usize].packets == 0 {
            return;
        }
        if busy_until > now {
            return self.output_wake(out, busy_until);
        }
        if ll.paused(out) {
            return self.blocked(out);
        }
        match ll.pick(out) {
            Some(packet) => self.transmit(out, packet),
            None => self.blocked(out),
        }
    }

    /// Schedules another [`Net::output_serve`] of an output.
    fn output_wake(&mut self, out: u32, at: Ps) {
        let output = &mut self.lossless().outputs[out as usize];
        if at < output.wake_at {
            output.wake_at = at;
            let to = self.links[(out ^ 1) as usize].to;
            self.schedule(at, Event { to, ..Event::new(OUTPUT_WAKE, out, 0) });
        }
    }

    /// Handles the wake-up event of an output.
    pub fn output_woken(&mut self, out: u32) {
        let now = self.now;
        let output = &mut self.lossless().outputs[out as usize];
        // A wake-up at an earlier time may have replaced this one.
        if output.wake_at <= now {
            output.wake_at = Ps::MAX;
        }
        self.output_serve(out);
    }

    /// Sends a packet.
    fn transmit(&mut self, out: u32, packet: u32) {
        let now = self.now;
        let link = &mut self.links[out as usize];
        let profile = &self.profiles[link.profile as usize];
        let ll = self.lossless.as_deref_mut().expect("credited links");
        let cell = &mut ll.cells[packet as usize];
        let before = (cell.link, cell.lane);
        let (bytes, lane) = (cell.bytes, cell.out_lane);
        (cell.link, cell.lane, cell.place) = (out, lane, Place::Wire);
        let cell = *cell;
        link.busy_until = now + profile.serialise_ps(bytes);
        link.bytes += u64::from(bytes);
        link.packets += 1;
        let (left, packets, to) = (link.busy_until, link.packets, link.to);
        let (arrival, watched) = (left + profile.delay_ps, link.flags & MONITORED != 0);
        ll.sent(out, lane, bytes);
        let waiting = ll.outputs[out as usize];
        if cell.register {
            self.registers_pass(out, packet);
        }
        if before.0 != NONE {
            self.credit_return(before.0, before.1, bytes, left);
        } else if waiting.packets == 0 && waiting.room_wanted {
            self.lossless().outputs[out as usize].room_wanted = false;
            let host = self.links[(out ^ 1) as usize].to;
            self.schedule(now, Event::new(ROOM, host, 0));
        }
        if watched {
            self.watch(out, bytes, left - now);
        }
        let order = self.packet_order(out, packets);
        let size = bytes | u32::from(self.slab.header(packet).flags) << FLAGS_SHIFT;
        let a = ARRIVE_CREDITED << KIND_SHIFT | out;
        let event = Event { a, b: packet, dst: cell.dst, hash: cell.hash, size, to };
        self.wheel.push(arrival, order, event);
        if waiting.packets > 0 {
            self.output_wake(out, left);
        }
    }

    /// Applies a packet's operation to the register of the link on which it leaves.
    fn registers_pass(&mut self, out: u32, packet: u32) {
        let ll = self.lossless.as_deref_mut().expect("credited links");
        let cell = &ll.cells[packet as usize];
        let carried = &mut ll.tags[packet as usize];
        if cell.counted {
            ll.registers.note(out, carried.op);
        }
        let circuits = self.router.circuits_mut().filter(|_| cell.flow != NONE);
        // The circuit may have been torn down while the packet waited. The last packet of a circuit
        // has itself freed the circuit up to this switch.
        let torn =
            !cell.last && circuits.as_ref().is_some_and(|c| !c.takes(cell.flow, LinkId(out)));
        let changed = ll.registers.pass(out, carried, !cell.strayed && !torn);
        if changed
            && !cell.last
            && let Some(circuits) = circuits
        {
            circuits.weight_note(cell.flow, LinkId(out), carried.op.add);
        }
    }

    /// Schedules the return of a credit: room is free from `left` on, and the sender learns it one
    /// link delay later.
    fn credit_return(&mut self, link: u32, lane: u8, bytes: u32, left: Ps) {
        let ll = self.lossless();
        ll.leaves(link, lane, bytes);
        // A pause follows from the buffer itself; a credit travels.
        let travels = ll.pfc.is_none();
        let back = &self.links[(link ^ 1) as usize];
        let way = if travels { self.profiles[back.profile as usize].delay_ps } else { 0 };
        let (at, to) = (left + way, back.to);
        self.schedule(at, Event { size: bytes, to, ..Event::new(CREDIT, link, u32::from(lane)) });
    }

    /// Returns a credit to the sender.
    pub fn credit_due(&mut self, event: Event) {
        let ll = self.lossless();
        ll.freed(event.id(), event.b as u8, event.size);
        if ll.pfc.is_some() {
            return self.pfc_freed(event.id());
        }
        self.output_serve(event.id());
    }

    /// Handles the arrival of a packet at the end of a link. `Some(host)` if it is for that host.
    pub fn credited_arrive(&mut self, event: Event) -> Option<u32> {
        let (link, packet, hosts) = (event.id(), event.b, self.hosts.len() as u32);
        let ll = self.lossless();
        let cell = &mut ll.cells[packet as usize];
        cell.place = Place::Arrived;
        let (lane, bytes, flow, last) = (cell.lane, cell.bytes, cell.flow, cell.last);
        ll.landed(link, lane, bytes);
        if self.links[link as usize].flags & SLOW_ARRIVE != 0
            && !self.credited_survives(link, packet)
        {
            return None;
        }
        if event.to >= hosts {
            if self.pfc_held(link) {
                self.switch_in(link, event.to - hosts, packet);
            } else {
                self.credited_discard(Some(link), packet, DropReason::BufferFull);
            }
            return None;
        }
        if event.dst != event.to {
            self.credited_discard(Some(link), packet, DropReason::NoRoute);
            return None;
        }
        if last && flow != NONE {
            self.flow_end(flow);
        }
        let port = &mut self.hosts[event.to as usize];
        if port.stalled_until > self.now {
            // The packet stays in the buffer: a stalled host blocks its senders, and nothing is
            // lost.
            if !self.pfc_held(link) {
                self.credited_discard(Some(link), packet, DropReason::BufferFull);
                return None;
            }
            let port = &mut self.hosts[event.to as usize];
            port.held_bytes += u64::from(bytes);
            let until = port.stalled_until;
            self.lossless().cells[packet as usize].place = Place::Held;
            self.schedule(until, Event::new(HELD, event.to, packet));
            return None;
        }
        self.host_takes(packet);
        Some(event.to)
    }

    /// Removes a packet that its host has received from the buffer.
    pub fn host_takes(&mut self, packet: u32) {
        let now = self.now;
        let cell = &mut self.lossless().cells[packet as usize];
        let (link, lane, bytes) = (cell.link, cell.lane, cell.bytes);
        cell.place = Place::Gone;
        self.credit_return(link, lane, bytes, now);
    }

    /// Largest register on the path of the packet that is being delivered.
    #[inline]
    pub fn register_max(&self, packet: u32) -> i64 {
        let Some(ll) = self.lossless.as_deref() else { return 0 };
        let carries = ll.cells.get(packet as usize).is_some_and(|c| c.register);
        if carries { ll.tags[packet as usize].max } else { 0 }
    }

    /// Routes a packet in a switch and queues it for its output.
    fn switch_in(&mut self, link: u32, switch: u32, packet: u32) {
        let cell = self.lossless().cells[packet as usize];
        let Some(out) = self.credited_route(switch, packet, &cell) else {
            return self.credited_discard(Some(link), packet, DropReason::NoRoute);
        };
        let lanes = self.lossless().config.lanes;
        // Borrowed field by field, since the tree is read while the cell is written.
        let tree = self.topo.tree();
        let circuits = self.router.circuits();
        let strayed = circuits.is_some_and(|c| cell.flow != NONE && !c.on_circuit);
        let counted = circuits.is_some_and(|c| c.carried);
        let ll = self.lossless.as_deref_mut().expect("credited links");
        let cell = &mut ll.cells[packet as usize];
        let ring = tree.filter(|t| t.is_ring(LinkId(out)));
        (cell.out, cell.out_lane) = (out, 0);
        (cell.strayed, cell.counted) = (strayed, counted);
        match ring {
            Some(tree) => {
                let crossed = cell.ring_hops > 0 && cell.lane > 0;
                if lanes > 1 && (crossed || tree.seam(SwitchId(switch))) {
                    cell.out_lane = 1;
                }
                cell.ring_hops += 1;
            }
            None => {
                cell.ring_hops = 0;
                cell.hops += 1;
            }
        }
        if cell.hops > u16::from(HOPS_MAX) {
            return self.credited_discard(Some(link), packet, DropReason::HopLimit);
        }
        if self.links[out as usize].flags & DEAD != 0 {
            // The packet counts as one that waited for the link when it failed.
            ll.cells[packet as usize].place = Place::Waiting;
            return self.credited_discard(Some(out), packet, DropReason::LinkDown);
        }
        self.output_queue(packet);
    }

    /// The output that a packet takes at a switch.
    fn credited_route(&mut self, switch: u32, id: u32, cell: &Cell) -> Option<u32> {
        let ll = self.lossless.as_deref().expect("credited links");
        let packet = Passing {
            switch,
            dst: cell.dst,
            hash: cell.hash,
            ring_hops: u32::from(cell.ring_hops),
            flow: cell.flow,
            last: cell.last,
            adds: cell.register.then(|| ll.tags[id as usize].op.add),
        };
        let queue_bytes = |l: LinkId| ll.waiting_bytes(l.0);
        let link = match &mut self.router {
            Router::Ecmp => Routing::next(&mut self.routes, &packet, &queue_bytes),
            Router::Oblivious(o) => o.next(&packet, &queue_bytes),
            Router::Circuits(c) => c.next(&packet, &queue_bytes),
        };
        self.moves_apply();
        link.map(|l| l.0)
    }

    /// Applies register changes of circuits that were torn down or set up again.
    pub fn moves_apply(&mut self) {
        let (Some(circuits), Some(ll)) = (self.router.circuits_mut(), &mut self.lossless) else {
            return;
        };
        for (link, add) in circuits.moves.drain(..) {
            ll.registers.add(link, add);
        }
    }

    /// Ends a flow.
    fn flow_end(&mut self, flow: u32) {
        if let Some(circuits) = self.router.circuits_mut() {
            circuits.flow_end(flow);
            self.moves_apply();
        }
    }

    /// Drops a packet, frees its room, and ends its flow if it was the flow's last packet.
    pub fn credited_discard(&mut self, link: Option<u32>, packet: u32, reason: DropReason) {
        let now = self.now;
        let ll = self.lossless();
        let cell = ll.cells[packet as usize];
        ll.cells[packet as usize].place = Place::Gone;
        if cell.place == Place::Waiting && cell.last && cell.register {
            // The last packet has already freed its entry for the output. Its change is applied to
            // that register, too, because its repetition finds no circuit.
            self.registers_pass(cell.out, packet);
        }
        match cell.place {
            Place::Gone => {}
            Place::Wire => self.lossless().lost(cell.link, cell.lane, cell.bytes),
            Place::Waiting if cell.link == NONE => {}
            Place::Arrived | Place::Waiting | Place::Held => {
                self.credit_return(cell.link, cell.lane, cell.bytes, now);
            }
        }
        if cell.last && cell.flow != NONE {
            self.flow_end(cell.flow);
        }
        self.discard(link, packet, reason);
    }

    /// Effect of a faulty link on a packet; false if the packet is lost.
    #[cold]
    fn credited_survives(&mut self, link: u32, packet: u32) -> bool {
        let flags = self.links[link as usize].flags;
        if flags & (HOLE | TO_HOLE) != 0 {
            self.credited_discard(Some(link), packet, DropReason::BlackHole);
            return false;
        }
        let impair = self.cold[link as usize].impair.as_mut().filter(|_| flags & IMPAIRED != 0);
        let Some(impair) = impair else { return true };
        let fate = impair.judge(self.slab.header_mut(packet));
        if let Some(reason) = fate.drop {
            self.credited_discard(Some(link), packet, reason);
            return false;
        }
        if fate.corrupted {
            self.totals.corrupted += 1;
            self.tap_call(TapWhat::Corrupted, Some(link), packet);
        }
        true
    }

    /// Handles an output on which nothing can leave. If this is the last event before a deadlock,
    /// either the packet that closes the cycle found no room ahead, or a returning credit was too
    /// small.
    fn blocked(&mut self, out: u32) {
        let ll = self.lossless();
        if ll.circles && ll.deadlock.is_none() && ll.still(out) && self.deadlock_look() {
            // The check runs after the rest of this event, as the last event of the run.
            self.schedule(self.now, Event::new(DEADLOCK_WATCH, 0, 0));
        }
        let ll = self.lossless();
        if ll.deadlock.is_none() && !std::mem::replace(&mut ll.watching, true) {
            let after = ll.watch_ps;
            let at = self.now.saturating_add(after);
            self.schedule(at, Event::new(DEADLOCK_WATCH, 0, 0));
        }
    }

    /// Searches for a deadlock. If there is one, the run ends.
    pub fn deadlock_check(&mut self) {
        let ll = self.lossless();
        ll.watching = false;
        let waiting = ll.outputs.iter().position(|o| o.packets > 0);
        if ll.deadlock.is_some() || self.deadlock_look() {
            drop(self.wheel.extract(|_| true));
        } else if let Some(out) = waiting {
            self.blocked(out as u32);
        }
    }

    /// Searches for a deadlock. Returns true if there is one.
    fn deadlock_look(&mut self) -> bool {
        let now = self.now;
        let links = &self.links;
        let ll = self.lossless.as_deref_mut().expect("credited links");
        ll.deadlock = ll.deadlock_find(now, |l| links[l as usize].flags & DEAD != 0);
        ll.deadlock.is_some()
    }

    /// Keeps the room event of a stalled host until the host continues.
    pub fn room_hold(&mut self, event: Event) {
        let until = self.hosts[event.id() as usize].stalled_until;
        self.schedule(until, event);
    }

    /// Requests [`crate::Host::on_room`] when no packet waits in the host's card. Returns true if
    /// none does now.
    pub fn room_want(&mut self, host: HostId) -> bool {
        let nic = self.hosts[host.0 as usize].nic;
        let Some(ll) = self.lossless.as_deref_mut() else { return true };
        let output = &mut ll.outputs[nic as usize];
        output.room_wanted = output.packets > 0;
        !output.room_wanted
    }
}
