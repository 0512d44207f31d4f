//! Posting of work: checks the request, reserves a completion slot, finds the context and joins its
//! queue.

use crate::api::{
    AhId, CqId, Endpoint, Opcode, PostRefusal, QpType, Qpn, RecvHandle, RecvRequest, SendRequest,
    WrHandle,
};
use crate::engine::Engine;
use crate::events::Observer;
use crate::ids::Ctx;
use crate::limits::RDMA_BYTES_MAX;
use crate::objects::Objects;
use crate::objects::memory::{Ah, LastUsed};
use crate::peer::{Context, ContextState};
use crate::time::Time;

/// Attributes that a request takes from its queue pair.
struct Sender {
    send_cq: CqId,
    /// RNR retries of the request.
    rnr_retry: u8,
    /// The request is sent as an unreliable datagram.
    datagram: bool,
}

impl<O: Observer> Engine<O> {
    pub(crate) fn send_post(
        &mut self,
        now: Time,
        qpn: Qpn,
        wr: &SendRequest,
    ) -> Result<WrHandle, PostRefusal> {
        let Sender { send_cq, rnr_retry, datagram } = self.send_check(qpn, wr)?;
        let ah = self.objects.ahs.get(wr.ah).ok_or(PostRefusal::BadAh)?;
        let port = self.shared.cfg.port_base + u16::from(wr.dst_qpn.slot());
        let cq = self.objects.cqs.get(send_cq).ok_or(PostRefusal::BadQp)?;
        if !cq.has_room() {
            return Err(PostRefusal::CqFull);
        }
        if !self.objects.wrs.has_room() {
            return Err(PostRefusal::NoRoom);
        }
        // The usual case: the context that was last used through the handle.
        let last =
            ah.last.filter(|&last| self.context_last(last, port).is_some_and(|c| c.is_active()));
        let ci = match last {
            Some(LastUsed { ci, .. }) => ci,
            None => self.context_through(now, wr.ah, *ah, port).ok_or(PostRefusal::NoRoom)?,
        };
        let Objects { cqs, qps, wrs, .. } = &mut self.objects;
        let reserved = cqs.get_mut(send_cq).is_some_and(|cq| cq.reserve());
        debug_assert!(reserved, "room was found");
        qps.get_mut(qpn).expect("checked above").sq_used += 1;
        let c = self.contexts.get_mut(ci);
        debug_assert!(
            c.state() != ContextState::Closed && c.is_active(),
            "work is for a live context"
        );
        let (peer, win) = c.split().expect("window state is leased before traffic");
        win.outstanding.begin(now);
        win.queues.unsent_add(wr.len);
        let list = if datagram { win.queues.datagrams() } else { win.queues.flow(qpn) };
        let i = wrs.post(*wr, qpn, ci, rnr_retry, list, &mut win.live);
        debug_assert!(win.live.front() == Some(i) && win.has_to_send(), "it waits to be sent");
        match peer.state() {
            ContextState::HalfOpen => self.context_open_too(now, ci),
            ContextState::Open if win.loss.is_stalled() => self.lane(now, ci).stall_probe_soon(),
            ContextState::Open if !peer.is_proven() => self.context_reopen(now, ci),
            _ => self.shared.out.ready_push(ci),
        }
        self.shared.out.rearm_push(ci);
        if self.shared.cfg.host_shared {
            self.lane(now, ci).share_touch(false);
        }
        self.count_posted(wr);
        Ok(i)
    }

    /// Whether packets are in flight to the engine of this queue pair at the handle's address: to
    /// the context that was last used through the handle.
    pub fn has_in_flight(&self, ah: AhId, dst_qpn: Qpn) -> bool {
        let port = self.shared.cfg.port_base + u16::from(dst_qpn.slot());
        let last = self.objects.ahs.get(ah).and_then(|ah| ah.last);
        let context = last.and_then(|last| self.context_last(last, port));
        context.and_then(Context::win).is_some_and(|win| win.board.in_flight() > 0)
    }

    /// The context to `port` at the handle's address, created if needed, with window state leased.
    #[cold]
    fn context_through(&mut self, now: Time, id: AhId, ah: Ah, port: u16) -> Option<Ctx> {
        if let Some(last) = ah.last
            && self.context_last(last, port).is_some()
        {
            self.context_activate(last.ci);
            return Some(last.ci);
        }
        let ci = self.context_for(now, Endpoint { ip: ah.ip, port })?;
        debug_assert!(self.contexts.get(ci).is_active(), "a request joins window state");
        let tag = self.contexts.get(ci).handshake().local_tag();
        self.objects.ahs.note_context(id, LastUsed { ci, tag });
        Some(ci)
    }

    /// The context last used through a handle, if it still exists and goes to `port`.
    #[inline(always)]
    fn context_last(&self, last: LastUsed, port: u16) -> Option<&Context> {
        let c = self.contexts.find(last.ci)?;
        (c.handshake().local_tag() == last.tag && c.endpoint().port == port).then_some(c)
    }

    /// Checks whether the queue pair accepts the request. Returns the attributes for it.
    #[inline]
    fn send_check(&self, qpn: Qpn, wr: &SendRequest) -> Result<Sender, PostRefusal> {
        let qp = self.objects.qps.get(qpn).ok_or(PostRefusal::BadQp)?;
        if !qp.state.posts_send() {
            return Err(PostRefusal::BadState);
        }
        let max = match (qp.init.kind, wr.op) {
            (_, Opcode::Send | Opcode::SendImm) => u32::from(self.shared.cfg.mtu),
            (QpType::Srd, _) => RDMA_BYTES_MAX,
            (QpType::Ud, _) => return Err(PostRefusal::BadOpcode),
        };
        if wr.len > max {
            return Err(PostRefusal::BadLength);
        }
        if qp.sq_used >= qp.init.sq_depth {
            return Err(PostRefusal::QueueFull);
        }
        let datagram = qp.init.kind == QpType::Ud;
        Ok(Sender { send_cq: qp.init.send_cq, rnr_retry: qp.rnr_retry, datagram })
    }

    fn count_posted(&mut self, wr: &SendRequest) {
        let n = &mut self.shared.counters;
        match wr.op {
            Opcode::Send | Opcode::SendImm => {
                n.send_wrs += 1;
                n.send_bytes += u64::from(wr.len);
            }
            Opcode::Write | Opcode::WriteImm => {
                n.rdma_write_wrs += 1;
                n.rdma_write_bytes += u64::from(wr.len);
            }
            Opcode::Read => n.rdma_read_wrs += 1,
        }
    }

    pub(crate) fn recv_post(
        &mut self,
        qpn: Qpn,
        wr: &RecvRequest,
    ) -> Result<RecvHandle, PostRefusal> {
        let qp = self.objects.qps.get_mut(qpn).ok_or(PostRefusal::BadQp)?;
        if !qp.state.posts_recv() {
            return Err(PostRefusal::BadState);
        }
        if qp.rq.len() == qp.init.rq_depth {
            return Err(PostRefusal::QueueFull);
        }
        let cq = self.objects.cqs.get_mut(qp.init.recv_cq).ok_or(PostRefusal::BadQp)?;
        if !planted!(ReceiveUnreserved) && !cq.reserve() {
            return Err(PostRefusal::CqFull);
        }
        let index = qp.rq.push(*wr).expect("room was checked");
        debug_assert!(
            qp.rq.len() <= cq.reserved() || cfg!(planted_bugs),
            "each receive has its slot"
        );
        Ok(RecvHandle { qp: qpn, index })
    }
}
