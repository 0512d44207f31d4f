//! Posting sends: `ibv_post_send`, and the calls `ibv_wr_…` that build requests piece by piece.
//!
//! Requests are collected from `wr_start` to `wr_complete`, and posted either all or none.

use crate::{
    abi::{efadv_qp, ibv_ah, ibv_data_buf, ibv_qp, ibv_qp_ex, ibv_send_wr, ibv_sge},
    num::{IBV_SEND_INLINE, IBV_SEND_SIGNALED, IBV_WR_SEND, IBV_WR_SEND_WITH_IMM},
    pd::Ah,
    qp::Qp,
    unpolled::Side,
};
use libc::{c_int, c_uint, c_void, size_t};
use srd::{
    Data, Faults, INLINE_BYTES_MAX, LKey, Opcode, PostError, QKey, QpState, Qpn, RKey,
    SEND_SGES_MAX, SendWr, Sge,
};
use srd_guard::guarded;
use std::{ptr, slice};

/// Local data of a request under construction.
#[derive(Clone, Copy)]
struct Local {
    sges: [Sge; SEND_SGES_MAX],
    sges_len: usize,
    bytes: [u8; INLINE_BYTES_MAX],
    bytes_len: usize,
    inline: bool,
}

impl Default for Local {
    fn default() -> Self {
        Self {
            sges: [Sge::default(); SEND_SGES_MAX],
            sges_len: 0,
            bytes: [0; INLINE_BYTES_MAX],
            bytes_len: 0,
            inline: false,
        }
    }
}

impl Local {
    /// Sets the list of buffers, unless there are too many.
    fn sges_set(&mut self, list: &[ibv_sge]) -> Result<(), c_int> {
        let places = self.sges.get_mut(..list.len()).ok_or(libc::EINVAL)?;
        for (to, from) in places.iter_mut().zip(list) {
            *to = Sge { addr: from.addr, len: from.length, lkey: LKey(from.lkey) };
        }
        (self.sges_len, self.inline) = (list.len(), false);
        Ok(())
    }

    /// Appends bytes, unless the total would exceed `max`.
    ///
    /// # Safety
    /// `len` bytes are there.
    unsafe fn bytes_add(&mut self, from: *const u8, len: usize, max: usize) -> Result<(), c_int> {
        self.inline = true;
        let end = self.bytes_len.checked_add(len).filter(|&end| end <= max).ok_or(libc::EINVAL)?;
        let place = self.bytes.get_mut(self.bytes_len..end).ok_or(libc::EINVAL)?;
        if len > 0 {
            // SAFETY: `len` bytes are there, and the place is as long.
            unsafe { ptr::copy_nonoverlapping(from, place.as_mut_ptr(), len) };
        }
        self.bytes_len = end;
        Ok(())
    }

    fn data(&self) -> Data<'_> {
        if self.inline {
            Data::Inline(&self.bytes[..self.bytes_len])
        } else {
            Data::Sges(&self.sges[..self.sges_len])
        }
    }
}

/// A request under construction.
#[derive(Clone, Copy)]
struct Building {
    wr_id: u64,
    op: Opcode,
    rkey: u32,
    raddr: u64,
    imm: u32,
    ah: *mut ibv_ah,
    qpn: u16,
    qkey: u32,
    local: Local,
}

impl Building {
    /// The request in the device's format.
    ///
    /// # Safety
    /// The address handle is not null, and lives.
    unsafe fn wr(&self) -> SendWr<'_> {
        SendWr {
            wr_id: self.wr_id,
            op: self.op,
            // SAFETY: required of the caller.
            ah: unsafe { &Ah::of(self.ah).ah },
            dst_qpn: Qpn(self.qpn),
            qkey: QKey(self.qkey),
            data: self.local.data(),
            rkey: RKey(self.rkey),
            raddr: self.raddr,
            imm: self.imm,
        }
    }

    /// Enqueues all of the requests, or none.
    ///
    /// # Safety
    /// Each address handle is null or lives.
    unsafe fn enqueue(all: &[Self], qp: &Qp) -> Result<(), c_int> {
        if all.iter().any(|request| request.ah.is_null()) {
            return Err(libc::EINVAL);
        }
        let faults = Faults::AtCompletion;
        // SAFETY: not null, hence alive.
        let mut wrs = all.iter().map(|request| unsafe { request.wr() });
        let taken = match all {
            [_] => wrs.next().map_or(Ok(()), |wr| qp.qp.enqueue_send(&wr, faults)),
            _ => qp.qp.enqueue_sends(wrs, faults),
        };
        taken.map_err(PostError::errno)?;
        qp.unpolled.add(Side::Send, all.len() as u32);
        Ok(())
    }
}

/// Requests collected by `ibv_wr_…` since `wr_start`.
#[derive(Default)]
pub(crate) struct Session {
    requests: Vec<Building>,
    /// The first error.
    error: c_int,
}

/// Unlocks a queue pair's session when dropped.
struct Unlock<'a>(&'a Qp);

impl Drop for Unlock<'_> {
    fn drop(&mut self) {
        // SAFETY: whoever made this holds the lock.
        unsafe { libc::pthread_mutex_unlock(self.0.lock.get()) };
    }
}

/// The checks that EFA's library applies to every send request.
fn check(qp: &Qp, flags: c_uint, before: usize) -> Result<(), c_int> {
    let flags = i64::from(flags);
    if !matches!(qp.qp.state(), QpState::Rts | QpState::Sqd)
        || flags & !(IBV_SEND_SIGNALED | IBV_SEND_INLINE) != 0
        || (flags & IBV_SEND_SIGNALED == 0 && !qp.sig_all)
    {
        return Err(libc::EINVAL);
    }
    if qp.unpolled(Side::Send) as usize + before >= qp.cap.max_send_wr as usize {
        return Err(libc::ENOMEM);
    }
    Ok(())
}

/// Posts a list of requests up to the first that fails, which `bad` returns; then rings the
/// doorbell.
///
/// # Safety
/// `wr` and what `next` gives are valid requests or null, `bad` is a place for one, and `post` may
/// be called with each.
pub(crate) unsafe fn post_list<T>(
    mut wr: *mut T,
    bad: *mut *mut T,
    next: impl Fn(&T) -> *mut T,
    post: impl Fn(&T) -> Result<(), c_int>,
    ring: impl FnOnce(),
) -> c_int {
    let mut posted = false;
    let mut result = 0;
    // SAFETY: the list ends with null.
    while let Some(request) = unsafe { wr.as_ref() } {
        if let Err(code) = post(request) {
            // SAFETY: a place for the one that failed.
            unsafe { bad.write(wr) };
            result = code;
            break;
        }
        posted = true;
        wr = next(request);
    }
    if posted {
        ring();
    }
    result
}

/// `ibv_post_send`: messages only; RDMA needs `ibv_wr_…`, as with EFA.
///
/// # Safety
/// As the verbs manual page requires.
#[guarded]
pub(crate) unsafe extern "C" fn post_send(
    qp: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: a live queue pair.
    let this = unsafe { Qp::of(qp) };
    // SAFETY: a list of valid requests, as promised by the caller.
    let post = |wr: &ibv_send_wr| unsafe { post_one(this, wr) };
    // SAFETY: the same.
    unsafe { post_list(wr, bad, |wr| wr.next, post, || this.qp.doorbell()) }
}

/// # Safety
/// The request's lists and its address handle are valid.
unsafe fn post_one(qp: &Qp, wr: &ibv_send_wr) -> Result<(), c_int> {
    check(qp, wr.send_flags, 0)?;
    let op = match i64::from(wr.opcode) {
        IBV_WR_SEND => Opcode::Send,
        IBV_WR_SEND_WITH_IMM => Opcode::SendImm,
        _ => return Err(libc::EINVAL),
    };
    // SAFETY: required of the caller.
    let list = unsafe { list_of(wr.sg_list, usize::try_from(wr.num_sge).unwrap_or(usize::MAX))? };
    let mut local = Local::default();
    if i64::from(wr.send_flags) & IBV_SEND_INLINE != 0 {
        local.inline = true;
        for sge in list {
            let from = ptr::with_exposed_provenance::<u8>(sge.addr as usize);
            let max = qp.cap.max_inline_data as usize;
            // SAFETY: the program names its own memory.
            unsafe { local.bytes_add(from, sge.length as usize, max)? };
        }
    } else {
        if list.len() > qp.cap.max_send_sge as usize {
            return Err(libc::EINVAL);
        }
        local.sges_set(list)?;
    }
    let request = Building {
        wr_id: wr.wr_id,
        op,
        rkey: 0,
        raddr: 0,
        imm: u32::from_be(wr.imm_data),
        ah: wr.ah,
        qpn: wr.remote_qpn as u16,
        qkey: wr.remote_qkey,
        local,
    };
    // SAFETY: required of the caller.
    unsafe { Building::enqueue(slice::from_ref(&request), qp) }
}

/// A list passed by the program.
///
/// # Safety
/// `from` has `n` entries.
unsafe fn list_of<'a, T>(from: *const T, n: usize) -> Result<&'a [T], c_int> {
    match n {
        0 => Ok(&[]),
        _ if from.is_null() || n > 64 => Err(libc::EINVAL),
        // SAFETY: not null, hence `n` entries.
        _ => Ok(unsafe { slice::from_raw_parts(from, n) }),
    }
}

/// The function table around the plain queue pair.
pub(crate) const fn table(base: ibv_qp) -> ibv_qp_ex {
    ibv_qp_ex {
        base,
        comp_mask: 0,
        wr_id: 0,
        wr_flags: 0,
        wr_atomic_cmp_swp: no_such_wr,
        wr_atomic_fetch_add: no_such_wr,
        wr_bind_mw: no_such_wr,
        wr_local_inv: no_such_wr,
        wr_rdma_read,
        wr_rdma_write,
        wr_rdma_write_imm,
        wr_send,
        wr_send_imm,
        wr_send_inv: no_such_wr,
        wr_send_tso: no_such_wr,
        wr_set_ud_addr,
        wr_set_xrc_srqn: no_such_wr,
        wr_set_inline_data,
        wr_set_inline_data_list,
        wr_set_sge,
        wr_set_sge_list,
        wr_start,
        wr_complete,
        wr_abort,
        wr_atomic_write: no_such_wr,
        wr_flush: no_such_wr,
    }
}

/// efadv's function table.
pub(crate) const EFADV: efadv_qp =
    efadv_qp { comp_mask: 0, wr_set_processing_hints: processing_hints };

/// Hints about bursts have no effect.
///
/// # Safety
/// As the verbs manual page requires.
#[guarded]
unsafe extern "C" fn processing_hints(_qp: *mut efadv_qp, _hints: u32) {}

/// The session started by this thread.
///
/// # Safety
/// As the verbs manual page requires.
unsafe fn session<'a>(qp: *mut ibv_qp_ex) -> (&'a Qp, &'a mut Session) {
    // SAFETY: a live queue pair, locked since `wr_start`; the lock guards the session.
    unsafe {
        let this = Qp::of(qp.cast());
        (this, &mut *this.session.get())
    }
}

/// # Safety
/// As the verbs manual page requires.
#[guarded]
unsafe extern "C" fn wr_start(qp: *mut ibv_qp_ex) {
    // SAFETY: a live queue pair; the mutex was initialised and is never moved.
    unsafe {
        libc::pthread_mutex_lock(Qp::of(qp.cast()).lock.get());
        let (_, session) = session(qp);
        session.requests.clear();
        session.error = 0;
    }
}

/// # Safety
/// As the verbs manual page requires.
#[guarded]
unsafe extern "C" fn wr_complete(qp: *mut ibv_qp_ex) -> c_int {
    // SAFETY: a session was started.
    let (this, session) = unsafe { session(qp) };
    // The lock is held since `wr_start` and released here, also if this panics.
    let unlock = Unlock(this);
    let mut result = session.error;
    let posted = result == 0 && !session.requests.is_empty();
    if posted {
        // SAFETY: the program keeps address handles until requests have completed.
        result = unsafe { Building::enqueue(&session.requests, this) }.err().unwrap_or(0);
    }
    session.requests.clear();
    drop(unlock);
    if posted && result == 0 {
        this.qp.doorbell();
    }
    result
}

/// # Safety
/// As the verbs manual page requires.
#[guarded]
unsafe extern "C" fn wr_abort(qp: *mut ibv_qp_ex) {
    // SAFETY: a session was started, hence the lock is held.
    unsafe {
        let (this, session) = session(qp);
        session.requests.clear();
        libc::pthread_mutex_unlock(this.lock.get());
    }
}

/// Starts the next request of the session.
///
/// # Safety
/// As the verbs manual page requires.
unsafe fn begin(qp: *mut ibv_qp_ex, op: Opcode, rkey: u32, raddr: u64, imm: u32) {
    // SAFETY: a session was started; its owner has written number and flags.
    let (this, session, wr_id, flags) = unsafe {
        let (this, session) = session(qp);
        (this, session, (&raw const (*qp).wr_id).read(), (&raw const (*qp).wr_flags).read())
    };
    if session.error != 0 {
        return;
    }
    if let Err(code) = check(this, flags, session.requests.len()) {
        session.error = code;
        return;
    }
    session.requests.push(Building {
        wr_id,
        op,
        rkey,
        raddr,
        imm: u32::from_be(imm),
        ah: ptr::null_mut(),
        qpn: 0,
        qkey: 0,
        local: Local::default(),
    });
}

/// Changes the latest request of the session.
///
/// # Safety
/// As the verbs manual page requires.
unsafe fn change(qp: *mut ibv_qp_ex, set: impl FnOnce(&Qp, &mut Building) -> Result<(), c_int>) {
    // SAFETY: a session was started.
    let (this, session) = unsafe { session(qp) };
    if session.error != 0 {
        return;
    }
    let result = session.requests.last_mut().map_or(Err(libc::EINVAL), |last| set(this, last));
    session.error = result.err().unwrap_or(0);
}

/// # Safety
/// As the verbs manual page requires.
#[guarded]
unsafe extern "C" fn wr_send(qp: *mut ibv_qp_ex) {
    // SAFETY: within a session.
    unsafe { begin(qp, Opcode::Send, 0, 0, 0) };
}

/// # Safety
/// As the verbs manual page requires.
#[guarded]
unsafe extern "C" fn wr_send_imm(qp: *mut ibv_qp_ex, imm: u32) {
    // SAFETY: within a session.
    unsafe { begin(qp, Opcode::SendImm, 0, 0, imm) };
}

/// # Safety
/// As the verbs manual page requires.
#[guarded]
unsafe extern "C" fn wr_rdma_read(qp: *mut ibv_qp_ex, rkey: u32, addr: u64) {
    // SAFETY: within a session.
    unsafe { begin(qp, Opcode::Read, rkey, addr, 0) };
}

/// # Safety
/// As the verbs manual page requires.
#[guarded]
unsafe extern "C" fn wr_rdma_write(qp: *mut ibv_qp_ex, rkey: u32, addr: u64) {
    // SAFETY: within a session.
    unsafe { begin(qp, Opcode::Write, rkey, addr, 0) };
}

/// # Safety
/// As the verbs manual page requires.
#[guarded]
unsafe extern "C" fn wr_rdma_write_imm(qp: *mut ibv_qp_ex, rkey: u32, addr: u64, imm: u32) {
    // SAFETY: within a session.
    unsafe { begin(qp, Opcode::WriteImm, rkey, addr, imm) };
}

/// An operation that was not granted at creation.
///
/// # Safety
/// As the verbs manual page requires.
#[guarded]
unsafe extern "C" fn no_such_wr(qp: *mut ibv_qp_ex) {
    // SAFETY: within a session.
    let (_, session) = unsafe { session(qp) };
    if session.error == 0 {
        session.error = libc::EOPNOTSUPP;
    }
}

/// # Safety
/// As the verbs manual page requires.
#[guarded(look)]
unsafe extern "C" fn wr_set_ud_addr(qp: *mut ibv_qp_ex, ah: *mut ibv_ah, qpn: u32, qkey: u32) {
    let set = |_: &Qp, wr: &mut Building| {
        (wr.ah, wr.qpn, wr.qkey) = (ah, qpn as u16, qkey);
        Ok(())
    };
    // SAFETY: within a session.
    unsafe { change(qp, set) };
}

/// # Safety
/// As the verbs manual page requires.
#[guarded]
unsafe extern "C" fn wr_set_sge(qp: *mut ibv_qp_ex, lkey: u32, addr: u64, length: u32) {
    let one = [ibv_sge { addr, length, lkey }];
    // SAFETY: within a session.
    unsafe { change(qp, |qp, wr| sges_set(qp, wr, &one)) };
}

/// # Safety
/// As the verbs manual page requires.
#[guarded]
unsafe extern "C" fn wr_set_sge_list(qp: *mut ibv_qp_ex, n: size_t, list: *const ibv_sge) {
    // SAFETY: within a session; the list has `n` entries.
    unsafe { change(qp, |qp, wr| sges_set(qp, wr, list_of(list, n)?)) };
}

/// RDMA takes one buffer, messages as many as the queue pair was created for.
fn sges_set(qp: &Qp, wr: &mut Building, list: &[ibv_sge]) -> Result<(), c_int> {
    let rdma = !matches!(wr.op, Opcode::Send | Opcode::SendImm);
    let max = if rdma { 1 } else { qp.cap.max_send_sge as usize };
    if list.len() > max {
        return Err(libc::EINVAL);
    }
    wr.local.sges_set(list)
}

/// # Safety
/// As the verbs manual page requires.
#[guarded]
unsafe extern "C" fn wr_set_inline_data(qp: *mut ibv_qp_ex, addr: *mut c_void, length: size_t) {
    let one = [ibv_data_buf { addr, length }];
    // SAFETY: within a session; `length` bytes are there.
    unsafe { change(qp, |qp, wr| inline_set(qp, wr, &one)) };
}

/// # Safety
/// As the verbs manual page requires.
#[guarded]
unsafe extern "C" fn wr_set_inline_data_list(
    qp: *mut ibv_qp_ex,
    n: size_t,
    list: *const ibv_data_buf,
) {
    // SAFETY: within a session; the list has `n` entries.
    unsafe { change(qp, |qp, wr| inline_set(qp, wr, list_of(list, n)?)) };
}

/// # Safety
/// Each entry's bytes are there.
unsafe fn inline_set(qp: &Qp, wr: &mut Building, list: &[ibv_data_buf]) -> Result<(), c_int> {
    // As for EFA: RDMA writes take inline data only if the queue pair was created for it.
    let write = matches!(wr.op, Opcode::Write | Opcode::WriteImm);
    if wr.op == Opcode::Read || (write && !qp.inline_write) {
        return Err(libc::EINVAL);
    }
    let max = qp.cap.max_inline_data as usize;
    (wr.local.inline, wr.local.bytes_len) = (true, 0);
    for part in list {
        // SAFETY: required of the caller.
        unsafe { wr.local.bytes_add(part.addr.cast(), part.length, max)? };
    }
    Ok(())
}
