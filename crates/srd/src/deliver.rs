//! From the engine to the user: completions, events, wake-ups.

use crate::{
    completion::{CompletionOp, WorkCompletion},
    events::AsyncEvent,
    nic::{CqSide, Nic, Tables},
    place::{grh, scatter},
    posts::completion_op,
    queue::CqEntry,
    shard::Shard,
    sync::lock,
    taker::Taker,
};
use srd_core::{
    AsyncEvent as CoreEvent, Completion, CompletionKind, CqId, QpState, QpType, Status, WrHandle,
    limits::GRH_BYTES,
};
use std::sync::atomic::{Ordering, fence};

impl Nic {
    /// Moves completions to the rings and events to their queue, and wakes waiting threads. Returns
    /// the number of completions.
    pub(crate) fn deliver(&mut self, shared: &Shard) -> usize {
        self.deliver_to(shared, None)
    }

    /// As [`Nic::deliver`]; the taker, if there is one, gets the completions of its queue.
    pub(crate) fn deliver_to(
        &mut self,
        shared: &Shard,
        mut taker: Option<&mut Taker<'_>>,
    ) -> usize {
        // Events first: the next post may reuse the handle of a withdrawn request.
        while let Some(event) = self.engine.poll_event() {
            self.on_event(shared, event);
        }
        let mut delivered = 0;
        for index in 0..self.tables.cqs.len() {
            let Some(Some(side)) = self.tables.cqs.get(index) else { continue };
            let id = side.core.id;
            if self.engine.cq_waits(id) {
                delivered += self.deliver_queue(shared, id, taker.as_deref_mut());
            }
            if let Some(Some(side)) = self.tables.cqs.get_mut(index)
                && side.fresh
            {
                side.fresh = false;
                side.notify();
            }
        }
        delivered
    }

    /// Moves the completions of one queue to the taker, as far as it has room, then to the ring.
    fn deliver_queue(&mut self, shared: &Shard, id: CqId, taker: Option<&mut Taker<'_>>) -> usize {
        // What is in the ring is older, and goes first.
        let reader = taker.as_ref().and_then(|taker| taker.lock_empty(id));
        let mut taker = taker.filter(|_| reader.is_some());
        let (mut delivered, mut taken) = (0, 0);
        let mut to_ring = CqEntry { wc: WorkCompletion::default(), engine_slot: true };
        let Self { engine, tables, .. } = self;
        while let Some(c) = engine.cq_next(id) {
            let place = taker.as_mut().and_then(|taker| taker.place());
            let direct = place.is_some();
            tables.finish(c, place.unwrap_or(&mut to_ring.wc));
            let Some(Some(side)) = tables.cqs.get_mut(usize::from(id.0)) else { break };
            if matches!(c.kind, CompletionKind::RecvUnsolicited) {
                side.core.slots.take_anyway();
            }
            delivered += 1;
            match &mut taker {
                Some(taker) if direct => {
                    taker.took();
                    taken += 1;
                    side.fresh = true;
                }
                _ => side.push(to_ring),
            }
        }
        if taken > 0
            && let Some(Some(side)) = tables.cqs.get_mut(usize::from(id.0))
        {
            // The engine is told first: a post that takes the slot must find it free in the engine,
            // too.
            engine.cq_release(id, taken);
            side.core.slots.polled(taken);
            shared.note_freed(usize::from(id.0));
        }
        delivered
    }

    fn on_event(&mut self, shared: &Shard, event: CoreEvent) {
        shared.common.events.push(match event {
            CoreEvent::WrReleased(handle) => {
                self.tables.withdraw(handle);
                return;
            }
            CoreEvent::PeerUnresponsive(peer) => AsyncEvent::PeerUnresponsive(peer),
            CoreEvent::PeerUnreachable(peer) => AsyncEvent::PeerUnreachable(peer),
            CoreEvent::PeerReset(peer) => AsyncEvent::PeerReset(peer),
            CoreEvent::PeerIsSelf(peer) => AsyncEvent::PeerIsSelf(peer),
            CoreEvent::SealRefused(peer, code) => AsyncEvent::SealRefused { peer, code },
            CoreEvent::PathChanged(ip, path, retired) => {
                AsyncEvent::PathChanged { ip, path, retired }
            }
            CoreEvent::PathMtu(ip, payload_max) => AsyncEvent::PathMtu { ip, payload_max },
            CoreEvent::QpFatal(qpn) => {
                if let Some(qp) = self.tables.qp(qpn) {
                    qp.core.set_state(QpState::Err);
                }
                AsyncEvent::QpFatal(qpn)
            }
            CoreEvent::SqDrained(qpn) => AsyncEvent::SqDrained(qpn),
        });
    }
}

impl CqSide {
    /// Notifies the channel, if the queue is armed, threads that sleep on the queue, and futures.
    pub(crate) fn notify(&self) {
        // The completion is in the ring before `armed` and `sleepers` are read; the other side sets
        // them before it checks the ring a last time.
        fence(Ordering::SeqCst);
        if let Some(channel) = &self.core.channel
            && self.core.armed.swap(false, Ordering::SeqCst)
        {
            channel.push(self.core.id, self.core.context);
        }
        if self.core.sleepers.load(Ordering::SeqCst) > 0 {
            let _asleep = lock(&self.core.bed.0);
            self.core.bed.1.notify_all();
        }
        self.core.tasks.wake();
    }
}

impl Tables {
    /// Releases the slots and handles of a completed request, and writes its completion in the
    /// user's view, in place: it is large.
    #[inline(always)]
    fn finish(&mut self, c: &Completion, wc: &mut WorkCompletion) {
        *wc = WorkCompletion {
            wr_id: c.wr_id,
            status: c.status,
            op: CompletionOp::RecvUnsolicited,
            qpn: c.qpn,
            byte_len: c.byte_len,
            imm: c.imm,
            src_qpn: c.src_qpn,
            src_ah: c.src_ah,
            src_ip: c.src_ip,
            grh: false,
        };
        match c.kind {
            CompletionKind::Send(handle, op) => {
                wc.op = completion_op(op);
                self.wr_end(handle);
                if let Some(qp) = self.qp(c.qpn) {
                    qp.core.sq_slots.give(1);
                    qp.core.counters.count(wc.op, wc.status);
                }
            }
            CompletionKind::Recv(handle) | CompletionKind::RecvRdmaImm(handle) => {
                let filled = matches!(c.kind, CompletionKind::Recv(_));
                wc.op = if filled { CompletionOp::Recv } else { CompletionOp::RecvRdmaImm };
                self.finish_recv(handle.index as usize, filled, wc);
            }
            CompletionKind::RecvUnsolicited => {}
        }
    }

    /// Releases a receive's slot, writes the GRH of a datagram, and reports deregistered memory.
    fn finish_recv(&mut self, index: usize, filled: bool, wc: &mut WorkCompletion) {
        let local_ip = self.local_ip;
        let qp = self.qps[usize::from(wc.qpn.index())].as_deref_mut();
        let Some(qp) = qp.filter(|q| q.core.qpn == wc.qpn) else { return };
        let Some(slot) = qp.recv_slots.get_mut(index).filter(|s| s.live) else { return };
        slot.live = false;
        if slot.lost_memory && filled && wc.status == Status::Ok {
            wc.status = Status::LocalInvalidLkey;
        }
        qp.core.rq_slots.give(1);
        if filled && qp.core.kind == QpType::Ud && wc.status == Status::Ok {
            wc.grh = true;
            let payload = wc.byte_len.saturating_sub(GRH_BYTES) as u16;
            let header = grh(wc.src_ip.unwrap_or(local_ip), local_ip, payload);
            scatter(&self.regions, &slot.pieces, 0, &header);
        }
        qp.core.counters.count(wc.op, wc.status);
    }

    /// A request was withdrawn without completion: its slots are free.
    pub(crate) fn withdraw(&mut self, handle: WrHandle) {
        let Some(qpn) = self.wr_end(handle) else { return };
        if let Some(qp) = self.qp(qpn) {
            qp.core.sq_slots.give(1);
            qp.core.send_cq.slots.give(1);
        }
    }
}
