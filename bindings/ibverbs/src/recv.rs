//! Posting receives.

use crate::{
    abi::{ibv_qp, ibv_recv_wr, ibv_sge},
    qp::Qp,
    unpolled::Side,
    wr::post_list,
};
use libc::c_int;
use srd::{Faults, LKey, PostError, RECV_SGES_MAX, RecvWr, Sge};
use srd_guard::guarded;
use std::slice;

/// `ibv_post_recv`.
///
/// # Safety
/// As the verbs manual page requires.
#[guarded]
pub(crate) unsafe extern "C" fn post_recv(
    qp: *mut ibv_qp,
    wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: a live queue pair.
    let this = unsafe { Qp::of(qp) };
    // SAFETY: a list of valid requests, as promised by the caller.
    let post = |wr: &ibv_recv_wr| unsafe { post_one(this, wr) };
    // SAFETY: the same.
    unsafe { post_list(wr, bad, |wr| wr.next, post, || this.qp.doorbell_recv()) }
}

/// # Safety
/// The request's list is valid.
unsafe fn post_one(qp: &Qp, wr: &ibv_recv_wr) -> Result<(), c_int> {
    let n = usize::try_from(wr.num_sge).map_err(|_| libc::EINVAL)?;
    if n > qp.cap.max_recv_sge as usize || (n > 0 && wr.sg_list.is_null()) {
        return Err(libc::EINVAL);
    }
    if qp.unpolled(Side::Recv) >= qp.cap.max_recv_wr.max(1) {
        return Err(libc::ENOMEM);
    }
    let mut sges = [Sge::default(); RECV_SGES_MAX];
    if n > 0 {
        // SAFETY: not null, hence `n` entries, which are no more than the queue pair takes.
        let list: &[ibv_sge] = unsafe { slice::from_raw_parts(wr.sg_list, n) };
        for (to, from) in sges.iter_mut().zip(list) {
            *to = Sge { addr: from.addr, len: from.length, lkey: LKey(from.lkey) };
        }
    }
    let wr = RecvWr { wr_id: wr.wr_id, sges: &sges[..n] };
    qp.qp.enqueue_recv(&wr, Faults::AtCompletion).map_err(PostError::errno)?;
    qp.unpolled.add(Side::Recv, 1);
    Ok(())
}
