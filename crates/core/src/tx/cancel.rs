//! Work given up: its PSNs become tombstones, so that the window never stalls on them.

use crate::api::{AsyncEvent, Qpn, Status, WrHandle};
use crate::engine::Engine;
use crate::events::Observer;
use crate::tx::scoreboard::{Kind, SentState};
use crate::wr::WrState;

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
        for &wi in list {
            if self.wrs.find(WrHandle(wi)).is_none() {
                continue;
            }
            let ci = self.wrs.get(wi).ctx;
            self.wr_withdraw(wi);
            match ending {
                Ending::Complete(status) => self.wr_end(wi, status),
                Ending::Release => {
                    let w = self.wr_retire(wi);
                    if let Some(qp) = self.qps.get(w.qp) {
                        let cq = qp.init.send_cq;
                        if let Some(cq) = self.cqs.get_mut(cq) {
                            cq.release(1);
                        }
                    }
                    self.event_push(AsyncEvent::WrReleased(WrHandle(wi)));
                }
            }
            self.ready_push(ci);
            self.context_rearm(ci);
        }
    }

    /// Takes everything of `wi` out of queues and scoreboard.
    fn wr_withdraw(&mut self, wi: u32) {
        let w = *self.wrs.get(wi);
        let a = self.contexts.get_mut(w.ctx).act();
        if w.open > 0 {
            let psns = a.board.psns();
            for p in psns {
                let e = a.board.get_mut(p);
                let own =
                    matches!(e.kind, Kind::Send | Kind::Write | Kind::ImmRetry | Kind::ReadReq);
                if own && e.wr == wi && e.state != SentState::Acked && !planted!(TombstoneForgotten)
                {
                    (e.kind, e.len) = (Kind::Tombstone, 0);
                }
            }
        }
        self.wr_uncut(wi);
        let w = self.wrs.get_mut(wi);
        w.open = 0;
        w.awaited = 0;
        w.state = WrState::Sent;
        // A message that the peer tracks must be forgotten there, whatever the completion says.
        w.failed = w.failed.or(Some(Status::Flushed));
    }

    /// Flushes a queue pair: sends and receives end with `status`.
    pub(crate) fn qp_flush(&mut self, qpn: Qpn, status: Status) {
        let list = self.wrs.select(|w| w.qp == qpn);
        self.wrs_cancel(&list, Ending::Complete(status));
        self.recvs_flush(qpn, status);
    }

    /// Every posted receive ends with `status`.
    fn recvs_flush(&mut self, qpn: Qpn, status: Status) {
        use crate::api::{AhId, Completion, CompletionKind, RecvHandle};
        let Some(qp) = self.qps.get_mut(qpn) else { return };
        let recv_cq = qp.init.recv_cq;
        while let Some((index, recv)) = qp.rq.pop() {
            let Some(cq) = self.cqs.get_mut(recv_cq) else { continue };
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
