//! Queue pairs: creation, state changes, destruction.

use crate::{
    abi::{
        efadv_qp, efadv_qp_init_attr, ibv_context, ibv_pd, ibv_qp, ibv_qp_attr, ibv_qp_cap,
        ibv_qp_ex, ibv_qp_init_attr, ibv_qp_init_attr_ex,
    },
    context::{Context, RQ_DEPTH_MAX, SQ_DEPTH_MAX},
    cq::Cq,
    errno,
    num::{
        EFADV_QP_DRIVER_TYPE_SRD, EFADV_QP_FLAGS_INLINE_WRITE,
        EFADV_QP_FLAGS_UNSOLICITED_WRITE_RECV, EFADV_WR_EX_WITH_PROCESSING_HINTS, IBV_QP_CAP,
        IBV_QP_CUR_STATE, IBV_QP_EN_SQD_ASYNC_NOTIFY, IBV_QP_EX_WITH_RDMA_READ,
        IBV_QP_EX_WITH_RDMA_WRITE, IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM, IBV_QP_EX_WITH_SEND,
        IBV_QP_EX_WITH_SEND_WITH_IMM, IBV_QP_INIT_ATTR_PD, IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
        IBV_QP_PKEY_INDEX, IBV_QP_PORT, IBV_QP_QKEY, IBV_QP_RNR_RETRY, IBV_QP_SQ_PSN, IBV_QP_STATE,
        IBV_QPS_ERR, IBV_QPS_INIT, IBV_QPS_RESET, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPS_SQD,
        IBV_QPT_DRIVER, IBV_QPT_UD, int,
    },
    opened::Opened,
    pd::{Pd, next_handle},
    tail::read_tail,
    unpolled::{Side, Unpolled},
    wr::{self, Session},
};
use libc::c_int;
use srd::{QKey, QpInit, QpModify, QpState, QpType, QueuePair};
use srd_guard::guarded;
use std::{
    cell::UnsafeCell,
    ptr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

/// A queue pair.
#[repr(C)]
pub(crate) struct Qp {
    pub base: ibv_qp_ex,
    pub efadv: efadv_qp,
    pub qp: QueuePair,
    pub opened: Arc<Opened>,
    pub cap: ibv_qp_cap,
    pub sig_all: bool,
    /// Created for the `ibv_wr_…` functions.
    extended: bool,
    /// RDMA writes may carry inline data.
    pub inline_write: bool,
    /// Requests whose completions were not polled.
    pub unpolled: Unpolled,
    sq_psn: AtomicU32,
    /// The program requested an event when the send queue has drained.
    pub drain_notice: AtomicBool,
    /// Events that the program received but did not acknowledge.
    pub events_open: AtomicU32,
    /// Guards `session`; held from `wr_start` to `wr_complete` or `wr_abort`.
    pub lock: UnsafeCell<libc::pthread_mutex_t>,
    pub session: UnsafeCell<Session>,
}

impl Qp {
    /// Number of requests of one queue whose completions were not polled.
    #[inline]
    pub(crate) fn unpolled(&self, side: Side) -> u32 {
        self.unpolled.count(&self.opened.polled, side)
    }

    /// # Safety
    /// `qp` was created here and is not destroyed.
    pub(crate) unsafe fn of<'a>(qp: *mut ibv_qp) -> &'a Self {
        // SAFETY: such pointers are to the first field of the first field.
        unsafe { &*qp.cast::<Self>() }
    }
}

/// Parameters of a new queue pair, whichever function creates it.
struct Wanted<'a> {
    kind: QpType,
    base: &'a ibv_qp_init_attr,
    pd: *mut ibv_pd,
    extended: bool,
    /// Flags of efadv.
    flags: i64,
}

impl<'a> Wanted<'a> {
    /// Parameters without the extended functions' additions.
    fn plain(kind: QpType, base: &'a ibv_qp_init_attr, pd: *mut ibv_pd) -> Self {
        Self { kind, base, pd, extended: false, flags: 0 }
    }
}

/// # Safety
/// As the verbs manual page requires.
#[unsafe(no_mangle)]
#[guarded]
pub unsafe extern "C" fn ibv_create_qp(
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
) -> *mut ibv_qp {
    // SAFETY: a valid structure.
    let base = unsafe { &*attr };
    if i64::from(base.qp_type) != IBV_QPT_UD {
        return errno::null(libc::EOPNOTSUPP);
    }
    // SAFETY: the domain and the queues live.
    unsafe { create(&Wanted::plain(QpType::Ud, base, pd)) }
}

/// `ibv_create_qp_ex`.
///
/// # Safety
/// As the verbs manual page requires.
#[guarded]
pub(crate) unsafe extern "C" fn create_qp_ex(
    _context: *mut ibv_context,
    attr: *mut ibv_qp_init_attr_ex,
) -> *mut ibv_qp {
    // SAFETY: a valid structure.
    let attr = unsafe { &*attr };
    if i64::from(attr.qp_type) != IBV_QPT_UD {
        return errno::null(libc::EOPNOTSUPP);
    }
    // SAFETY: required of the caller.
    unsafe { create_from_ex(QpType::Ud, attr, 0) }
}

/// `efadv_create_driver_qp`, called by libefa.so.1.
///
/// # Safety
/// As the efadv manual page requires.
#[unsafe(no_mangle)]
#[guarded]
pub unsafe extern "C" fn srd_efadv_create_driver_qp(
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
    kind: u32,
) -> *mut ibv_qp {
    // SAFETY: a valid structure.
    let base = unsafe { &*attr };
    if i64::from(base.qp_type) != IBV_QPT_DRIVER {
        return errno::null(libc::EINVAL);
    }
    if i64::from(kind) != EFADV_QP_DRIVER_TYPE_SRD {
        return errno::null(libc::EOPNOTSUPP);
    }
    // SAFETY: the domain and the queues live.
    unsafe { create(&Wanted::plain(QpType::Srd, base, pd)) }
}

/// `efadv_create_qp_ex`, called by libefa.so.1.
///
/// # Safety
/// As the efadv manual page requires: `efa` has `len` bytes.
#[unsafe(no_mangle)]
#[guarded]
pub unsafe extern "C" fn srd_efadv_create_qp_ex(
    _context: *mut ibv_context,
    attr: *mut ibv_qp_init_attr_ex,
    efa: *const efadv_qp_init_attr,
    len: u32,
) -> *mut ibv_qp {
    const FLAGS: i64 = EFADV_QP_FLAGS_UNSOLICITED_WRITE_RECV | EFADV_QP_FLAGS_INLINE_WRITE;
    // SAFETY: required of the caller.
    let (Some(efa), attr) = (unsafe { read_tail(efa, len as usize) }, unsafe { &*attr }) else {
        return errno::null(libc::EINVAL);
    };
    if efa.comp_mask != 0 || efa.reserved != 0 || i64::from(attr.qp_type) != IBV_QPT_DRIVER {
        return errno::null(libc::EINVAL);
    }
    if i64::from(efa.driver_qp_type) != EFADV_QP_DRIVER_TYPE_SRD
        || i64::from(efa.flags) & !FLAGS != 0
        || efa.wr_flags & !(EFADV_WR_EX_WITH_PROCESSING_HINTS as u64) != 0
    {
        return errno::null(libc::EOPNOTSUPP);
    }
    // SAFETY: required of the caller.
    unsafe { create_from_ex(QpType::Srd, attr, i64::from(efa.flags)) }
}

/// # Safety
/// As the verbs manual page requires.
unsafe fn create_from_ex(kind: QpType, attr: &ibv_qp_init_attr_ex, flags: i64) -> *mut ibv_qp {
    const SENDS: i64 = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
    const RDMA: i64 =
        IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
    let mask = i64::from(attr.comp_mask);
    if mask & !(IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) != 0 {
        return errno::null(libc::EOPNOTSUPP);
    }
    if mask & IBV_QP_INIT_ATTR_PD == 0 || attr.pd.is_null() {
        return errno::null(libc::EINVAL);
    }
    // Also if no operation is listed.
    let extended = mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS != 0;
    let send_ops = if extended { attr.send_ops_flags as i64 } else { 0 };
    let offered = if kind == QpType::Srd { SENDS | RDMA } else { SENDS };
    if send_ops & !offered != 0 {
        return errno::null(libc::EOPNOTSUPP);
    }
    // SAFETY: the domain and the queues live.
    unsafe { create(&Wanted { kind, base: &attr.base(), pd: attr.pd, extended, flags }) }
}

/// # Safety
/// The domain and the completion queues live.
unsafe fn create(wanted: &Wanted<'_>) -> *mut ibv_qp {
    let Wanted { kind, base, pd, extended, flags } = *wanted;
    if base.send_cq.is_null() || base.recv_cq.is_null() || !base.srq.is_null() {
        return errno::null(libc::EINVAL);
    }
    // SAFETY: required of the caller.
    let (domain, send_cq, recv_cq) =
        unsafe { (Pd::of(pd), Cq::of(base.send_cq), Cq::of(base.recv_cq)) };
    let limits = domain.pd.device().attr();
    let cap = base.cap;
    if cap.max_send_wr > SQ_DEPTH_MAX
        || cap.max_recv_wr > RQ_DEPTH_MAX
        || cap.max_send_sge > limits.max_sq_sge
        || cap.max_recv_sge > limits.max_rq_sge
        || cap.max_inline_data > limits.inline_buf_size_ex
    {
        return errno::null(libc::EINVAL);
    }
    let mut init = QpInit::srd(&send_cq.cq, &recv_cq.cq);
    init.kind = kind;
    // Verbs allows a depth of 0 for a queue that the program does not use.
    (init.sq_depth, init.rq_depth) = (cap.max_send_wr.max(1), cap.max_recv_wr.max(1));
    init.send_sges_max = cap.max_send_sge.max(1);
    init.recv_sges_max = cap.max_recv_sge.max(1);
    init.inline_bytes_max = cap.max_inline_data;
    init.unsolicited_write_recv = flags & EFADV_QP_FLAGS_UNSOLICITED_WRITE_RECV != 0;
    let qp = match domain.pd.qp_create(&init) {
        Ok(qp) => qp,
        Err(e) => return errno::null(e.errno()),
    };
    let qpn = qp.qpn();
    let number = u32::from(qpn.0);
    // SAFETY: the domain lives, and its context is open.
    let (context, opened) =
        unsafe { ((*pd).context, Arc::clone(&Context::of((*pd).context).opened)) };
    let plain = ibv_qp {
        context,
        qp_context: base.qp_context,
        pd,
        send_cq: base.send_cq,
        recv_cq: base.recv_cq,
        srq: ptr::null_mut(),
        handle: next_handle(),
        qp_num: number,
        state: int(IBV_QPS_RESET),
        qp_type: base.qp_type,
        mutex: libc::PTHREAD_MUTEX_INITIALIZER,
        cond: libc::PTHREAD_COND_INITIALIZER,
        events_completed: 0,
    };
    let made = Box::into_raw(Box::new(Qp {
        base: wr::table(plain),
        efadv: wr::EFADV,
        qp,
        opened: Arc::clone(&opened),
        cap,
        sig_all: base.sq_sig_all != 0,
        extended,
        inline_write: flags & EFADV_QP_FLAGS_INLINE_WRITE != 0,
        unpolled: Unpolled::new(qpn, &opened.polled),
        sq_psn: AtomicU32::new(0),
        drain_notice: AtomicBool::new(false),
        events_open: AtomicU32::new(0),
        lock: UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER),
        session: UnsafeCell::default(),
    }));
    domain.refer();
    opened.senders.qp_add(qpn, domain.family());
    opened.queues.add(number, made.cast());
    made.cast()
}

/// The extended interface (`ibv_wr_…`), if it was requested at creation.
///
/// # Safety
/// As the verbs manual page requires.
#[unsafe(no_mangle)]
#[guarded]
pub unsafe extern "C" fn ibv_qp_to_qp_ex(qp: *mut ibv_qp) -> *mut ibv_qp_ex {
    // SAFETY: a live queue pair.
    if unsafe { Qp::of(qp) }.extended { qp.cast() } else { ptr::null_mut() }
}

/// `efadv_qp_from_ibv_qp_ex`, called by libefa.so.1.
///
/// # Safety
/// As the efadv manual page requires.
#[unsafe(no_mangle)]
#[guarded]
pub unsafe extern "C" fn srd_efadv_qp_from_ibv_qp_ex(qp: *mut ibv_qp_ex) -> *mut efadv_qp {
    // SAFETY: a live queue pair.
    (&raw const unsafe { Qp::of(qp.cast()) }.efadv).cast_mut()
}

/// Attributes that a state change requires, and those it permits in addition. As for EFA.
fn allowed(from: QpState, to: QpState, kind: QpType) -> Option<(i64, i64)> {
    let rnr = if kind == QpType::Srd { IBV_QP_RNR_RETRY } else { 0 };
    Some(match (from, to) {
        (_, QpState::Reset | QpState::Err) => (0, 0),
        (QpState::Reset, QpState::Init) => (IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY, 0),
        (QpState::Init, QpState::Init) => (0, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY),
        (QpState::Init, QpState::Rtr) => (0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY),
        (QpState::Rtr, QpState::Rts) => (IBV_QP_SQ_PSN, IBV_QP_QKEY | rnr),
        (QpState::Rts, QpState::Sqd) => (0, IBV_QP_EN_SQD_ASYNC_NOTIFY),
        (QpState::Rts | QpState::Sqd | QpState::Sqe, QpState::Rts) => (0, IBV_QP_QKEY),
        (QpState::Sqd, QpState::Sqd) => (0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY),
        _ => return None,
    })
}

/// # Safety
/// As the verbs manual page requires.
#[unsafe(no_mangle)]
#[guarded]
pub unsafe extern "C" fn ibv_modify_qp(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    mask: c_int,
) -> c_int {
    // SAFETY: a live queue pair and a valid structure.
    let (this, attr) = unsafe { (Qp::of(qp), &*attr) };
    let mask = i64::from(mask);
    let has = |bit: i64| mask & bit != 0;
    let from = this.qp.state();
    let to = if has(IBV_QP_STATE) { state_of(attr.qp_state) } else { Some(from) };
    let Some(to) = to else { return libc::EINVAL };
    let Some((needed, optional)) = allowed(from, to, this.qp.kind()) else { return libc::EINVAL };
    let known = needed | optional | IBV_QP_STATE | IBV_QP_CUR_STATE;
    let cur_wrong = has(IBV_QP_CUR_STATE) && state_of(attr.cur_qp_state) != Some(from);
    if mask & needed != needed
        || mask & !known != 0
        || cur_wrong
        || (has(IBV_QP_PKEY_INDEX) && attr.pkey_index != 0)
        || (has(IBV_QP_PORT) && attr.port_num != 1)
        || (has(IBV_QP_RNR_RETRY) && attr.rnr_retry > srd::RNR_RETRY_INFINITE)
    {
        return libc::EINVAL;
    }
    if has(IBV_QP_EN_SQD_ASYNC_NOTIFY) {
        this.drain_notice.store(attr.en_sqd_async_notify != 0, Ordering::Relaxed);
    }
    let change = QpModify {
        state: (to != from || matches!(to, QpState::Reset | QpState::Err)).then_some(to),
        qkey: has(IBV_QP_QKEY).then_some(QKey(attr.qkey)),
        rnr_retry: has(IBV_QP_RNR_RETRY).then_some(attr.rnr_retry),
    };
    if let Err(e) = this.qp.modify(change) {
        return e.errno();
    }
    if has(IBV_QP_SQ_PSN) {
        this.sq_psn.store(attr.sq_psn, Ordering::Relaxed);
    }
    if to == QpState::Reset {
        forget_completions(this);
    }
    // SAFETY: programs read the state without a lock, and rdma-core writes it without one.
    unsafe { (&raw mut (*qp).state).write(number_of(to)) };
    0
}

/// Drops completions of the queue pair that were taken from the device but not polled.
fn forget_completions(this: &Qp) {
    let plain = &this.base.base;
    for cq in [plain.send_cq, plain.recv_cq] {
        // SAFETY: a queue pair's completion queues cannot be destroyed before it.
        unsafe { Cq::of(cq) }.forget(this.qp.qpn());
    }
    this.unpolled.forget(&this.opened.polled);
}

/// # Safety
/// As the verbs manual page requires.
#[unsafe(no_mangle)]
#[guarded]
pub unsafe extern "C" fn ibv_query_qp(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    mask: c_int,
    init: *mut ibv_qp_init_attr,
) -> c_int {
    const KNOWN: i64 = IBV_QP_STATE
        | IBV_QP_CUR_STATE
        | IBV_QP_PKEY_INDEX
        | IBV_QP_PORT
        | IBV_QP_QKEY
        | IBV_QP_SQ_PSN
        | IBV_QP_CAP
        | IBV_QP_RNR_RETRY;
    if i64::from(mask) & !KNOWN != 0 {
        return libc::EOPNOTSUPP;
    }
    // SAFETY: a live queue pair.
    let this = unsafe { Qp::of(qp) };
    let now = match this.qp.query() {
        Ok(now) => now,
        Err(e) => return e.errno(),
    };
    let state = number_of(now.state);
    let of = ibv_qp_attr {
        qp_state: state,
        cur_qp_state: state,
        qkey: now.qkey.0,
        sq_psn: this.sq_psn.load(Ordering::Relaxed),
        cap: this.cap,
        port_num: 1,
        rnr_retry: now.rnr_retry,
        sq_draining: u8::from(now.state == QpState::Sqd && this.qp.sends_outstanding() > 0),
        ..ibv_qp_attr::default()
    };
    let plain = &this.base.base;
    // SAFETY: places for both structures; the state is read by programs without a lock.
    unsafe {
        attr.write(of);
        init.write(ibv_qp_init_attr {
            qp_context: plain.qp_context,
            send_cq: plain.send_cq,
            recv_cq: plain.recv_cq,
            srq: ptr::null_mut(),
            cap: this.cap,
            qp_type: plain.qp_type,
            sq_sig_all: c_int::from(this.sig_all),
        });
        (&raw mut (*qp).state).write(state);
    }
    0
}

/// Waits, as verbs requires, until every asynchronous event of the queue pair was acknowledged.
///
/// # Safety
/// As the verbs manual page requires.
#[unsafe(no_mangle)]
#[guarded]
pub unsafe extern "C" fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int {
    // SAFETY: a live queue pair.
    let this = unsafe { Qp::of(qp) };
    this.opened.queues.remove(u32::from(this.qp.qpn().0));
    for inbox in this.opened.inboxes().iter() {
        inbox.forget(this.qp.qpn());
    }
    while this.events_open.load(Ordering::Acquire) > 0 {
        std::thread::sleep(Duration::from_micros(100));
    }
    // SAFETY: it came from `create`.
    let this = unsafe { Box::from_raw(qp.cast::<Qp>()) };
    let pd = this.base.base.pd;
    let (cqs, qpn) = ([this.base.base.send_cq, this.base.base.recv_cq], this.qp.qpn());
    drop(this);
    // The device has removed the queue pair, so that no new completion can arrive.
    for cq in cqs {
        // SAFETY: a queue pair's completion queues cannot be destroyed before it.
        unsafe { Cq::of(cq) }.forget(qpn);
    }
    // SAFETY: a queue pair's domain cannot be freed before it.
    unsafe { Pd::of(pd) }.unrefer();
    0
}

/// Aligned blocks of 128 bytes arrive whole and exactly once if segments end on such blocks.
///
/// # Safety
/// As the verbs manual page requires.
#[unsafe(no_mangle)]
#[guarded]
pub unsafe extern "C" fn ibv_query_qp_data_in_order(
    qp: *mut ibv_qp,
    _op: c_int,
    flags: u32,
) -> c_int {
    /// `IBV_QUERY_QP_DATA_IN_ORDER_RETURN_CAPS`, and the result bit for aligned blocks.
    const RETURN_CAPS: u32 = 1;
    const ALIGNED_128_BYTES: c_int = 2;
    // SAFETY: a live queue pair.
    let caps = unsafe { Context::of((*qp).context) }.opened.device.attr().device_caps;
    let aligned = caps & srd::caps::DATA_POLLING_128 != 0;
    if flags & RETURN_CAPS != 0 && aligned { ALIGNED_128_BYTES } else { 0 }
}

fn state_of(number: c_int) -> Option<QpState> {
    Some(match i64::from(number) {
        IBV_QPS_RESET => QpState::Reset,
        IBV_QPS_INIT => QpState::Init,
        IBV_QPS_RTR => QpState::Rtr,
        IBV_QPS_RTS => QpState::Rts,
        IBV_QPS_SQD => QpState::Sqd,
        IBV_QPS_ERR => QpState::Err,
        _ => return None,
    })
}

const fn number_of(state: QpState) -> c_int {
    int(match state {
        QpState::Reset => IBV_QPS_RESET,
        QpState::Init => IBV_QPS_INIT,
        QpState::Rtr => IBV_QPS_RTR,
        QpState::Rts => IBV_QPS_RTS,
        QpState::Sqd => IBV_QPS_SQD,
        QpState::Sqe => crate::num::IBV_QPS_SQE,
        QpState::Err => IBV_QPS_ERR,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moves_are_those_of_efa() {
        use QpState::{Err, Init, Reset, Rtr, Rts, Sqd};
        let (needed, optional) = allowed(Rtr, Rts, QpType::Srd).unwrap();
        assert_eq!((needed, optional), (IBV_QP_SQ_PSN, IBV_QP_QKEY | IBV_QP_RNR_RETRY));
        assert_eq!(allowed(Rtr, Rts, QpType::Ud).unwrap().1, IBV_QP_QKEY);
        assert!(allowed(Reset, Rts, QpType::Srd).is_none());
        assert!(allowed(Reset, Rtr, QpType::Srd).is_none());
        for from in [Reset, Init, Rtr, Rts, Sqd, Err] {
            assert!(allowed(from, Reset, QpType::Srd).is_some(), "{from:?}");
            assert!(allowed(from, Err, QpType::Srd).is_some(), "{from:?}");
            assert_eq!(state_of(number_of(from)), Some(from));
        }
        assert_eq!(state_of(7), None);
    }
}
