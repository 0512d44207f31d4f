//! Work given up: its PSNs become tombstones, so that the window never stalls on them.

use crate::api::{AsyncEvent, Qpn, Status, WrHandle};
use crate::engine::Engine;
use crate::events::Observer;
use crate::objects::wr::WrState;
use crate::peer::scoreboard::{Kind, SentState};

/// How cancelled requests end.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ending {
    /// With a completion.
    Complete(Status),
    /// Silently: the queue pair is gone, the memory is released.
    Release,
}

impl<O: Observer> Engine<O> {
    /// Ends the requests `list` now, whatever is in flight of them.
    pub(crate) fn wrs_cancel(&mut self, list: &[u32], ending: Ending) {
        self.wrs_withdraw(list);
        for &wi in list {
            let Some(w) = self.objects.wrs.find(WrHandle(wi)) else { continue };
            let ci = w.ctx;
            match ending {
                Ending::Complete(status) => self.wr_end(wi, status),
                Ending::Release => {
                    let w = self.wr_retire(wi);
                    if let Some(qp) = self.objects.qps.get(w.qp) {
                        let cq = qp.init.send_cq;
                        if let Some(cq) = self.objects.cqs.get_mut(cq) {
                            cq.release(1);
                        }
                    }
                    self.shared.event_push(AsyncEvent::WrReleased(WrHandle(wi)));
                }
            }
            self.shared.out.ready_push(ci);
            self.shared.out.rearm_push(ci);
        }
    }

    /// Takes everything of the requests out of queues, and out of each scoreboard in one pass.
    fn wrs_withdraw(&mut self, list: &[u32]) {
        let mut open = Vec::new();
        for &wi in list {
            if self.objects.wrs.find(WrHandle(wi)).is_none() {
                continue;
            }
            self.wr_uncut(wi);
            let w = self.objects.wrs.get_mut(wi);
            if w.open > 0 {
                w.withdrawn = true;
                open.push((w.ctx, w.open));
                let recuts = &mut self.contexts.get_mut(w.ctx).act().recuts;
                recuts.retain(|r| r.kind != Kind::Write || r.wr != wi);
            }
            w.open = 0;
            w.awaited = 0;
            w.state = WrState::Sent;
            // A message that the peer tracks must be forgotten there, whatever the completion says.
            w.failed = w.failed.or(Some(Status::Flushed));
        }
        open.sort_unstable();
        for of_context in open.chunk_by(|a, b| a.0 == b.0) {
            let psns = of_context.iter().map(|o| o.1).sum();
            self.board_withdraw(of_context[0].0, psns);
        }
    }

    /// So many PSNs of withdrawn requests become tombstones.
    fn board_withdraw(&mut self, ci: u32, mut psns: u32) {
        let a = self.contexts.get_mut(ci).act();
        for p in a.board.psns() {
            let e = a.board.get_mut(p);
            let open =
                e.kind.is_own() && e.state != SentState::Acked && !planted!(TombstoneForgotten);
            self.shared.counters.cancel_steps += 1;
            if !open || self.objects.wrs.find(WrHandle(e.wr)).is_none_or(|w| !w.withdrawn) {
                continue;
            }
            (e.kind, e.len) = (Kind::Tombstone, 0);
            psns -= 1;
            if psns == 0 {
                return;
            }
        }
    }

    /// Flushes a queue pair: sends and receives end with `status`.
    pub(crate) fn qp_flush(&mut self, qpn: Qpn, status: Status) {
        let list = self.objects.wrs.select(|w| w.qp == qpn);
        self.wrs_cancel(&list, Ending::Complete(status));
        self.recvs_flush(qpn, status);
    }

    /// Every posted receive ends with `status`.
    fn recvs_flush(&mut self, qpn: Qpn, status: Status) {
        use crate::api::{AhId, Completion, CompletionKind, RecvHandle};
        let Some(qp) = self.objects.qps.get_mut(qpn) else { return };
        let recv_cq = qp.init.recv_cq;
        while let Some((index, recv)) = qp.rq.pop() {
            let Some(cq) = self.objects.cqs.get_mut(recv_cq) else { continue };
            cq.push(Completion {
                wr_id: recv.wr_id,
                status,
                kind: CompletionKind::Recv(RecvHandle { qp: qpn, index }),
                qpn,
                byte_len: 0,
                imm: None,
                src_qpn: Qpn(0),
                src_ah: AhId::UNKNOWN,
                src_ip: None,
            });
        }
    }
}
