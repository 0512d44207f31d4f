//! What worlds with a network of their own do alike with their engines.

use srd_core::events::{Event, Observer};
use srd_core::{
    CqId, Engine, EngineConfig, PdId, QpInit, QpModify, QpState, QpType, Qpn, Time, limits,
};

/// Counts the steps of each call and panics in a call that has too many: a loop.
#[derive(Debug)]
pub(crate) struct Watch {
    pub steps: u64,
    pub max: u64,
    /// Steps of the longest call.
    pub longest: u64,
}

impl Watch {
    /// For an engine with this configuration. Most steps (packets, judgments, timers,
    /// acknowledgments) of one call: each request and each PSN of every window a few times.
    pub fn of(cfg: &EngineConfig) -> Self {
        let window = u64::from(limits::WINDOW_MAX);
        let max = 8 * (window + u64::from(cfg.wrs_max) + u64::from(cfg.contexts_max));
        Self { steps: 0, max, longest: 0 }
    }
}

impl Observer for Watch {
    fn event(&mut self, _: Time, e: Event) {
        self.steps += 1;
        self.longest = self.longest.max(self.steps);
        assert!(self.steps <= self.max, "a loop: {} steps in one call, last {e:?}", self.steps);
    }
}

/// A reliable queue pair that may send, and tries again as often as it takes where a receive is
/// missing; `depth`: of its queues.
pub(crate) fn qp_ready<O: Observer>(
    engine: &mut Engine<O>,
    now: Time,
    (pd, cq): (PdId, CqId),
    depth: u32,
    qkey: u32,
) -> Qpn {
    let init = QpInit {
        kind: QpType::Srd,
        pd,
        send_cq: cq,
        recv_cq: cq,
        sq_depth: depth,
        rq_depth: depth,
        unsolicited_write_recv: false,
    };
    let qpn = engine.qp_create(now, init).expect("a fresh engine has room");
    for step in [
        QpModify { state: Some(QpState::Init), qkey: Some(qkey), ..QpModify::default() },
        QpModify { state: Some(QpState::Rtr), ..QpModify::default() },
        QpModify { state: Some(QpState::Rts), rnr_retry: Some(7), ..QpModify::default() },
    ] {
        engine.qp_modify(now, qpn, step).expect("the usual moves");
    }
    qpn
}

/// When an engine is to be woken, in ns: never sooner than after `now`.
pub(crate) fn wake_ns<O: Observer>(engine: &Engine<O>, now: u64) -> u64 {
    match engine.next_timeout() {
        Time::NEVER => u64::MAX,
        t => t.0.max(now + 1),
    }
}
