//! A second, simple model of one engine's objects: which verdict a responder must give, and how
//! many completion slots must be reserved.

use rustc_hash::{FxHashMap, FxHashSet};
use srd_core::wire::{Body, Message, Packet, Verdict};
use srd_core::{Access, AhId, Completion, CompletionKind, QpState, QpType, Qpn};
use std::collections::VecDeque;
use std::net::IpAddr;

/// A queue pair.
#[derive(Debug)]
pub struct QpModel {
    /// Number.
    pub qpn: Qpn,
    /// SRD or UD.
    pub kind: QpType,
    /// State.
    pub state: QpState,
    /// Key.
    pub qkey: u32,
    /// Number of its protection domain.
    pub pd: u16,
    /// Posted receives: slot, number, bytes.
    pub receives: VecDeque<(u32, u64, u32)>,
    /// Accepts writes with immediate without a receive.
    pub unsolicited: bool,
    /// Retries on RNR.
    pub rnr_retry: u8,
    /// Outstanding send requests.
    pub sends: u32,
}

/// An expected completion; receive completions come in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    /// The completion.
    pub completion: Completion,
    /// The request that caused it; none for a flushed receive.
    pub request: Option<u32>,
}

/// A region.
#[derive(Clone, Copy, Debug)]
pub struct MrModel {
    /// Number in the ledger.
    pub id: u32,
    /// First address.
    pub addr: u64,
    /// Bytes.
    pub len: u64,
    /// Rights.
    pub access: Access,
    /// Number of its protection domain.
    pub pd: u16,
}

/// All objects of one engine.
#[derive(Debug, Default)]
pub struct Mirror {
    /// Live queue pairs.
    pub qps: Vec<QpModel>,
    /// Live regions by key.
    pub mrs: FxHashMap<u32, MrModel>,
    /// Live address handles.
    pub ahs: Vec<(AhId, IpAddr)>,
    /// Receive completions not polled yet.
    pub expected: VecDeque<Expected>,
    /// Completions polled whose slots were not returned.
    pub unreleased: u32,
    /// Outstanding send requests, which have a slot reserved.
    pub sends: u32,
    /// Accepted bytes of each multi-packet write with immediate, by request.
    pub imm_bytes: FxHashMap<u32, u32>,
    /// Multi-packet writes with immediate that their requester cancelled.
    pub cancelled: FxHashSet<u32>,
    /// Depth of the completion queue.
    pub cq_depth: u32,
    /// Whether it serves reads, serves writes, and serves only peers with an address handle.
    pub serves: (bool, bool, bool),
}

impl Mirror {
    /// A live queue pair.
    pub fn qp(&mut self, qpn: Qpn) -> Option<&mut QpModel> {
        self.qps.iter_mut().find(|q| q.qpn == qpn)
    }

    /// Slots that must be reserved now.
    pub fn reserved(&self) -> u32 {
        let receives: usize = self.qps.iter().map(|q| q.receives.len()).sum();
        self.sends + self.unreleased + (receives + self.expected.len()) as u32
    }

    fn target(&self, m: &Message, kind: QpType) -> Result<&QpModel, Verdict> {
        let qp = self.qps.iter().find(|q| q.qpn.0 == m.dst_qpn).ok_or(Verdict::BadQpn)?;
        if !qp.state.receives() || qp.kind != kind {
            return Err(Verdict::BadQpn);
        }
        if qp.qkey != m.qkey { Err(Verdict::BadQkey) } else { Ok(qp) }
    }

    fn known(&self, ip: IpAddr) -> Result<(), Verdict> {
        let known = !self.serves.2 || self.ahs.iter().any(|a| a.1 == ip);
        known.then_some(()).ok_or(Verdict::UnknownPeer)
    }

    fn region(&self, pd: u16, key: u32, at: u64, len: u64, need: u8) -> Result<(), Verdict> {
        let r = self.mrs.get(&key).ok_or(Verdict::BadRkey)?;
        let end = u128::from(at) + u128::from(len);
        let inside = at >= r.addr && end <= u128::from(r.addr) + u128::from(r.len);
        let good = inside && r.pd == pd && r.access.allows(need);
        good.then_some(()).ok_or(Verdict::BadRkey)
    }

    /// Whether an immediate for `qp` finds a receive, or a free slot if it needs none.
    fn takes_imm(&self, qp: &QpModel) -> bool {
        if qp.unsolicited { self.reserved() < self.cq_depth } else { !qp.receives.is_empty() }
    }

    /// The verdict that the responder must give on `packet` of request `id` from a requester at
    /// `ip`. `None`: several verdicts are permitted.
    pub fn verdict(&self, ip: IpAddr, packet: &Packet<'_>, id: Option<u32>) -> Option<Verdict> {
        Some(match self.judge(ip, packet, id) {
            Ok(v) => return v,
            Err(v) => v,
        })
    }

    fn judge(
        &self,
        ip: IpAddr,
        packet: &Packet<'_>,
        id: Option<u32>,
    ) -> Result<Option<Verdict>, Verdict> {
        let len = packet.payload_len;
        let good = Ok(Some(Verdict::Ok));
        match packet.body {
            Body::Send(m) | Body::SendImm(m, _) => {
                let qp = self.target(&m, QpType::Srd)?;
                let first = qp.receives.front().ok_or(Verdict::Rnr)?;
                if u32::from(len) > first.2 { Err(Verdict::BadLength) } else { good }
            }
            Body::Write(m, r) => {
                let pd = self.target(&m, QpType::Srd)?.pd;
                self.write(ip, pd, r.rkey, r.raddr, len)?;
                good
            }
            Body::WriteImm { msg, rdma, msg_len, .. } => {
                let before = id.and_then(|i| self.imm_bytes.get(&i)).copied().unwrap_or(0);
                let imm_only = len == 0 && msg_len > 0;
                let qp = self.target(&msg, QpType::Srd);
                if imm_only {
                    if before != msg_len {
                        return Err(Verdict::NoRequest);
                    }
                    return if self.takes_imm(qp?) { good } else { Err(Verdict::Rnr) };
                }
                let qp = qp?;
                self.write(ip, qp.pd, rdma.rkey, rdma.raddr, len)?;
                let whole = u32::from(len) == msg_len;
                if !whole && id.is_some_and(|i| self.cancelled.contains(&i)) {
                    return Err(Verdict::NoRequest);
                }
                let last = before + u32::from(len) == msg_len;
                if last && !self.takes_imm(qp) { Err(Verdict::Rnr) } else { good }
            }
            Body::ReadReq(m, r) => {
                let pd = self.target(&m, QpType::Srd)?.pd;
                if !self.serves.0 {
                    return Err(Verdict::FeatureMismatch);
                }
                self.known(ip)?;
                if r.len == 0 {
                    return good;
                }
                self.region(pd, r.rkey, r.raddr, u64::from(r.len), Access::REMOTE_READ)?;
                // OK or busy, depending on the progress of the responses.
                Ok(None)
            }
            Body::ReadResp(_) => Ok(None),
            _ => good,
        }
    }

    fn write(&self, ip: IpAddr, pd: u16, key: u32, at: u64, len: u16) -> Result<(), Verdict> {
        if !self.serves.1 {
            return Err(Verdict::FeatureMismatch);
        }
        self.known(ip)?;
        if len == 0 {
            return Ok(());
        }
        self.region(pd, key, at, u64::from(len), Access::REMOTE_WRITE)
    }

    /// Consumes a receive and returns the completion that a message causes.
    pub fn consume(
        &mut self,
        ip: IpAddr,
        m: &Message,
        byte_len: u32,
        imm: Option<u32>,
        rdma: bool,
    ) -> Option<Completion> {
        let src_ah = self.ahs.iter().find(|a| a.1 == ip).map_or(0xFFFF, |a| a.0.0);
        let qpn = Qpn(m.dst_qpn);
        let qp = self.qp(qpn)?;
        let (kind, wr_id) = if rdma && qp.unsolicited {
            (CompletionKind::RecvUnsolicited, 0)
        } else {
            let (index, wr_id, _) = qp.receives.pop_front()?;
            let handle = srd_core::RecvHandle { qp: qpn, index };
            let filled = CompletionKind::Recv(handle);
            (if rdma { CompletionKind::RecvRdmaImm(handle) } else { filled }, wr_id)
        };
        Some(Completion {
            wr_id,
            status: srd_core::Status::Ok,
            kind,
            qpn,
            byte_len,
            imm,
            src_qpn: Qpn(m.src_qpn),
            src_ah: AhId(src_ah),
            src_ip: Some(ip),
        })
    }
}
