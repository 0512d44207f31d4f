//! Posting: check, promise a completion slot, find the context, join its queue.

use crate::api::{
    AhId, Endpoint, Opcode, PostRefusal, QpType, Qpn, RecvHandle, RecvRequest, SendRequest,
    WrHandle,
};
use crate::engine::Engine;
use crate::events::Observer;
use crate::ids::Ctx;
use crate::limits::RDMA_BYTES_MAX;
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
        let (send_cq, rnr_retry) = self.send_check(qpn, wr)?;
        let ah = *self.objects.ahs.get(wr.ah).ok_or(PostRefusal::BadAh)?;
        let port = self.shared.cfg.port_base + u16::from(wr.dst_qpn.slot());
        let cq = self.objects.cqs.get_mut(send_cq).ok_or(PostRefusal::BadQp)?;
        if !cq.has_room() {
            return Err(PostRefusal::CqFull);
        }
        if !self.objects.wrs.has_room() {
            return Err(PostRefusal::NoRoom);
        }
        let ci = self.context_through(now, wr.ah, &ah, port).ok_or(PostRefusal::NoRoom)?;
        let reserved = self.objects.cqs.get_mut(send_cq).is_some_and(|cq| cq.reserve());
        debug_assert!(reserved);
        let i = self.objects.wrs.alloc(*wr, qpn, ci, rnr_retry);
        let qp = self.objects.qps.get_mut(qpn).expect("checked above");
        qp.sq_used += 1;
        let datagram = qp.init.kind == QpType::Ud;
        self.count_posted(wr);
        let c = self.contexts.get_mut(ci);
        c.outstanding += 1;
        if c.outstanding_since == Time::NEVER {
            c.outstanding_since = now;
        }
        let a = c.act();
        a.unsent_bytes += u64::from(wr.len);
        a.live.push(&mut self.objects.wrs, i);
        if datagram {
            a.datagrams.push_back(&mut self.objects.wrs, i);
        } else {
            a.flow(qpn).queue.push_back(&mut self.objects.wrs, i);
        }
        let stalled = a.loss.stalled;
        match c.state {
            ContextState::HalfOpen => self.context_open_too(now, ci),
            ContextState::Open if stalled => self.lane(now, ci).stall_probe_soon(),
            ContextState::Open if !c.proven => self.context_reopen(now, ci),
            _ => self.shared.out.ready_push(ci),
        }
        self.shared.out.rearm_push(ci);
        Ok(i)
    }

    /// The context to `port` at the handle's address: most often the one used last through it.
    fn context_through(&mut self, now: Time, id: AhId, ah: &Ah, port: u16) -> Option<Ctx> {
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

    fn send_check(
        &self,
        qpn: Qpn,
        wr: &SendRequest,
    ) -> Result<(crate::api::CqId, u8), PostRefusal> {
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
        Ok((qp.init.send_cq, qp.rnr_retry))
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
