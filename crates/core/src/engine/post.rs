//! Posting: check, promise a completion slot, find the context, join its queue.

use crate::api::{
    AhId, CqId, Endpoint, Opcode, PostRefusal, QpType, Qpn, RecvHandle, RecvRequest, SendRequest,
    WrHandle,
};
use crate::engine::Engine;
use crate::events::Observer;
use crate::ids::Ctx;
use crate::limits::RDMA_BYTES_MAX;
use crate::objects::Objects;
use crate::objects::memory::Ah;
use crate::peer::ContextState;
use crate::time::Time;

impl<O: Observer> Engine<O> {
    pub(crate) fn send_post(
        &mut self,
        now: Time,
        qpn: Qpn,
        wr: &SendRequest,
    ) -> Result<WrHandle, PostRefusal> {
        let (send_cq, rnr_retry, datagram) = self.send_check(qpn, wr)?;
        let ah = self.objects.ahs.get(wr.ah).ok_or(PostRefusal::BadAh)?;
        let port = self.shared.cfg.port_base + u16::from(wr.dst_qpn.slot());
        let cq = self.objects.cqs.get(send_cq).ok_or(PostRefusal::BadQp)?;
        if !cq.has_room() {
            return Err(PostRefusal::CqFull);
        }
        if !self.objects.wrs.has_room() {
            return Err(PostRefusal::NoRoom);
        }
        // Most often the context used last through the handle.
        let last = ah.last.filter(|&(ci, tag)| {
            let c = self.contexts.find(ci);
            c.is_some_and(|c| c.local_tag == tag && c.endpoint.port == port && c.is_active())
        });
        let ci = match last {
            Some((ci, _)) => ci,
            None => self.context_through(now, wr.ah, *ah, port).ok_or(PostRefusal::NoRoom)?,
        };
        let Objects { cqs, qps, wrs, .. } = &mut self.objects;
        let reserved = cqs.get_mut(send_cq).is_some_and(|cq| cq.reserve());
        debug_assert!(reserved);
        qps.get_mut(qpn).expect("checked above").sq_used += 1;
        let c = self.contexts.get_mut(ci);
        debug_assert!(
            c.state != ContextState::Closed && c.is_active(),
            "work is for a live context"
        );
        c.outstanding += 1;
        if c.outstanding_since == Time::NEVER {
            c.outstanding_since = now;
        }
        let (peer, win) = c.split().expect("window state is leased before traffic");
        win.unsent_bytes += u64::from(wr.len);
        let list = if datagram { &mut win.datagrams } else { &mut win.flow(qpn).queue };
        let i = wrs.post(*wr, qpn, ci, rnr_retry, list);
        win.live.push(wrs, i);
        debug_assert!(win.live.front() == Some(i) && win.has_to_send(), "it waits to be sent");
        match peer.state {
            ContextState::HalfOpen => self.context_open_too(now, ci),
            ContextState::Open if win.loss.is_stalled() => self.lane(now, ci).stall_probe_soon(),
            ContextState::Open if !peer.proven => self.context_reopen(now, ci),
            _ => self.shared.out.ready_push(ci),
        }
        self.shared.out.rearm_push(ci);
        self.count_posted(wr);
        Ok(i)
    }

    /// The context to `port` at the handle's address, with window state.
    #[cold]
    fn context_through(&mut self, now: Time, id: AhId, ah: Ah, port: u16) -> Option<Ctx> {
        if let Some((ci, tag)) = ah.last
            && self.contexts.find(ci).is_some_and(|c| c.local_tag == tag && c.endpoint.port == port)
        {
            self.context_activate(ci);
            return Some(ci);
        }
        let ci = self.context_for(now, Endpoint { ip: ah.ip, port })?;
        let tag = self.contexts.get(ci).local_tag;
        self.objects.ahs.note_context(id, ci, tag);
        Some(ci)
    }

    /// Whether the queue pair takes the request: its completion queue, how often the request is
    /// sent again for lack of a receive, and whether it sends datagrams.
    #[inline]
    fn send_check(&self, qpn: Qpn, wr: &SendRequest) -> Result<(CqId, u8, bool), PostRefusal> {
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
        Ok((qp.init.send_cq, qp.rnr_retry, qp.init.kind == QpType::Ud))
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
        Ok(RecvHandle { qp: qpn, index })
    }
}
