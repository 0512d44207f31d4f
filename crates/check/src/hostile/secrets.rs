//! What peers see of random numbers says nothing about the secrets, and the other way round: the
//! first packet of an engine depends on the seed of its secrets alone.

use super::peer::QKEY;
use super::plan::Plan;
use crate::engines::qp_ready;
use srd_core::wire::{Body, OpenParams};
use srd_core::{
    Access, Engine, MrKey, Opcode, Qpn, Randomness, SendRequest, Time, Transmit, TxSink,
};

/// The Open among the packets that leave.
#[derive(Default)]
struct Opens(Option<OpenParams>);

impl TxSink for Opens {
    fn push(&mut self, t: &Transmit<'_>) {
        if let Body::Open(p) = t.packet.body {
            self.0 = Some(p);
        }
    }
}

/// What a fresh engine with these seeds shows: its first Open, and the key of its first region.
fn first(plan: &Plan, secret: [u8; 32], fast: [u64; 4]) -> (Option<OpenParams>, MrKey) {
    let now = Time(1_000);
    let mut cfg = plan.config.clone();
    (cfg.psn_start, cfg.tx_num_start) = (None, None);
    let random = Randomness::from_entropy(secret, fast);
    let mut engine = Engine::new(cfg, random, now, ()).expect("a sound plan");
    let cq = engine.cq_create(16).expect("room");
    let pd = engine.pd_create().expect("room");
    let key = engine.mr_register(pd, 0, 100, Access(Access::REMOTE_READ)).expect("room");
    let qp = qp_ready(&mut engine, now, (pd, cq), 4, QKEY);
    let ah = engine.ah_create(now, pd, super::plan::ip_of(1, 0)).expect("room");
    let wr = SendRequest {
        wr_id: 1,
        op: Opcode::Send,
        ah,
        dst_qpn: Qpn(0),
        qkey: QKEY,
        len: 1,
        rkey: 0,
        raddr: 0,
        imm: 0,
    };
    engine.post_send(now, qp, &wr).expect("room");
    let mut opens = Opens::default();
    engine.poll_transmit(now, 16, &mut opens);
    (opens.0, key)
}

/// What is wrong with the random numbers of an engine, if something is.
pub(super) fn check(plan: &Plan) -> Option<String> {
    let secret = [plan.words as u8 | 1; 32];
    let [a, b] = [[1, 2, 3, 4], [5, 6, 7, plan.pause_ns]].map(|fast| first(plan, secret, fast));
    if a.0.is_none() || a != b {
        return Some(format!("secrets depend on the seed of the fast generator: {a:?} and {b:?}"));
    }
    let other = first(plan, secret.map(|x| !x), [1, 2, 3, 4]);
    let same = |p: &OpenParams, q: &OpenParams| {
        p.tag == q.tag
            || p.psn_start == q.psn_start
            || p.tx_num_start == q.tx_num_start
            || p.incarnation == q.incarnation
    };
    let same = a.0.zip(other.0).is_none_or(|(p, q)| same(&p, &q)) || a.1 == other.1;
    same.then(|| format!("secrets do not depend on their seed: {a:?} and {other:?}"))
}
