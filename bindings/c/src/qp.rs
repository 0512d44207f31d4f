//! Queue pairs and work requests.

use crate::{
    cq::srd_cq,
    device::{srd_ah, srd_pd},
    fail::{Fail, run},
    handle::{at, give, put, slice, take},
};
use srd::{
    Data, Faults, LKey, QKey, QpInit, QpModify, QpState, QpType, Qpn, RKey, RecvWr, SendWr, Sge,
};
use std::ffi::{c_int, c_void};

/// A queue pair.
pub struct srd_qp(srd::QueuePair);

/// Types of queue pairs.
#[repr(C)]
pub enum srd_qp_type {
    /// Reliable datagrams.
    Srd = 0,
    /// Unreliable datagrams; a received message comes after 40 bytes (GRH).
    Ud = 1,
}

/// States of a queue pair: EFA's numbers.
#[repr(C)]
#[allow(missing_docs, reason = "verbs states")]
pub enum srd_qp_state {
    Reset = 0,
    Init = 1,
    Rtr = 2,
    Rts = 3,
    Sqd = 4,
    Sqe = 5,
    Err = 6,
}

/// Operations of send requests.
#[repr(C)]
pub enum srd_opcode {
    /// Message of at most max_msg_sz bytes.
    Send = 0,
    /// Message with immediate data.
    SendImm = 1,
    /// RDMA write.
    Write = 2,
    /// RDMA write with immediate data.
    WriteImm = 3,
    /// RDMA read.
    Read = 4,
}

/// Which fields of srd_qp_attr srd_qp_modify uses; to be added up.
#[repr(C)]
pub enum srd_qp_mask {
    /// `state`.
    State = 1,
    /// `qkey`.
    Qkey = 2,
    /// `rnr_retry`.
    RnrRetry = 4,
}

/// How to create a queue pair; srd_qp_init_defaults fills in all but the completion queues.
#[repr(C)]
pub struct srd_qp_init {
    /// A srd_qp_type.
    pub qp_type: u32,
    /// Completions of sends go here.
    pub send_cq: *const srd_cq,
    /// Completions of receives go here; may be the same.
    pub recv_cq: *const srd_cq,
    /// Send requests outstanding at most.
    pub sq_depth: u32,
    /// Receives posted at most.
    pub rq_depth: u32,
    /// Scatter/gather entries per send request.
    pub send_sges_max: u32,
    /// Scatter/gather entries per receive.
    pub recv_sges_max: u32,
    /// Inline bytes per send request.
    pub inline_bytes_max: u32,
    /// A peer's write with immediate consumes no receive.
    pub unsolicited_write_recv: bool,
}

/// State of a queue pair.
#[repr(C)]
pub struct srd_qp_attr {
    /// A srd_qp_state.
    pub state: u32,
    /// Q_Key.
    pub qkey: u32,
    /// RNR retries, 0 to 8; 7 = for ever, 8 = 4,000 retries, which take a minute.
    pub rnr_retry: u32,
}

/// A piece of registered memory.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct srd_sge {
    /// Address of the first byte.
    pub addr: u64,
    /// Bytes.
    pub len: u32,
    /// Key of its region.
    pub lkey: u32,
}

/// A send request.
#[repr(C)]
pub struct srd_send_wr {
    /// Comes back in the completion.
    pub wr_id: u64,
    /// A srd_opcode.
    pub opcode: u32,
    /// To which host.
    pub ah: *const srd_ah,
    /// To which queue pair there.
    pub dst_qpn: u16,
    /// Its Q_Key.
    pub qkey: u32,
    /// Local data in registered memory.
    pub sges: *const srd_sge,
    /// Entries of `sges`.
    pub num_sge: u32,
    /// Local data copied at the post instead; NULL = use `sges`.
    pub inline_data: *const c_void,
    /// Bytes of `inline_data`.
    pub inline_len: u32,
    /// RDMA: first byte of the remote memory.
    pub raddr: u64,
    /// RDMA: its key.
    pub rkey: u32,
    /// Immediate data.
    pub imm: u32,
}

/// A receive request.
#[repr(C)]
pub struct srd_recv_wr {
    /// Comes back in the completion.
    pub wr_id: u64,
    /// Where the message goes.
    pub sges: *const srd_sge,
    /// Entries of `sges`.
    pub num_sge: u32,
}

/// Most entries of a list that are looked at: more than any queue pair allows.
const SGES_MAX: usize = srd::RECV_SGES_MAX + 1;

/// Fills in the defaults: SRD, 256 sends and receives, 32 inline bytes, both queues `cq`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srd_qp_init_defaults(init: *mut srd_qp_init, cq: *const srd_cq) -> c_int {
    run(|| {
        let defaults = srd_qp_init {
            qp_type: srd_qp_type::Srd as u32,
            send_cq: cq,
            recv_cq: cq,
            sq_depth: 256,
            rq_depth: 256,
            send_sges_max: srd::SEND_SGES_MAX as u32,
            recv_sges_max: srd::RECV_SGES_MAX as u32,
            inline_bytes_max: srd::INLINE_BYTES_DEFAULT,
            unsolicited_write_recv: false,
        };
        // SAFETY: the contract of the header.
        unsafe { put(init, defaults) }?;
        Ok(0)
    })
}

/// Makes a queue pair in the state RESET.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srd_qp_create(
    pd: *const srd_pd,
    init: *const srd_qp_init,
    qp: *mut *mut srd_qp,
) -> c_int {
    run(|| {
        // SAFETY: the contract of the header.
        let (pd, init) = unsafe { (at(pd, "the protection domain")?, at(init, "init")?) };
        // SAFETY: as above.
        let send_cq = &unsafe { at(init.send_cq, "the send completion queue") }?.0;
        // SAFETY: as above.
        let recv_cq = &unsafe { at(init.recv_cq, "the receive completion queue") }?.0;
        let kind = match init.qp_type {
            0 => QpType::Srd,
            1 => QpType::Ud,
            _ => return Err(Fail::invalid("unknown type of queue pair")),
        };
        let new = pd.0.qp_create(&QpInit {
            kind,
            send_cq,
            recv_cq,
            sq_depth: init.sq_depth,
            rq_depth: init.rq_depth,
            send_sges_max: init.send_sges_max,
            recv_sges_max: init.recv_sges_max,
            inline_bytes_max: init.inline_bytes_max,
            unsolicited_write_recv: init.unsolicited_write_recv,
        })?;
        // SAFETY: as above.
        unsafe { give(qp, srd_qp(new)) }?;
        Ok(0)
    })
}

/// Takes a queue pair apart: its requests are withdrawn, its completions removed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srd_qp_destroy(qp: *mut srd_qp) -> c_int {
    run(|| {
        // SAFETY: the contract of the header.
        drop(unsafe { take(qp, "the queue pair", |_| false) }?);
        Ok(0)
    })
}

/// Number of a queue pair, as peers name it: 0 to 65535.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srd_qp_number(qp: *const srd_qp) -> c_int {
    // SAFETY: the contract of the header.
    run(|| Ok(c_int::from(unsafe { at(qp, "the queue pair") }?.0.qpn().0)))
}

/// Takes a fresh queue pair through INIT and RTR to RTS. `rnr_retry` is 0 to 8, 7 = for ever, 8 =
/// 4,000 retries, which take a minute.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srd_qp_activate(qp: *const srd_qp, qkey: u32, rnr_retry: u32) -> c_int {
    run(|| {
        // SAFETY: the contract of the header.
        let qp = &unsafe { at(qp, "the queue pair") }?.0;
        qp.activate_with(QKey(qkey), retries(rnr_retry)?)?;
        Ok(0)
    })
}

fn retries(n: u32) -> Result<u8, Fail> {
    u8::try_from(n).map_err(|_| Fail::invalid("rnr_retry must be from 0 to 8"))
}

/// Changes the fields of a queue pair that `mask` names (sum of srd_qp_mask).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srd_qp_modify(
    qp: *const srd_qp,
    attr: *const srd_qp_attr,
    mask: u32,
) -> c_int {
    const ALL: u32 =
        srd_qp_mask::State as u32 | srd_qp_mask::Qkey as u32 | srd_qp_mask::RnrRetry as u32;
    run(|| {
        // SAFETY: the contract of the header.
        let (qp, attr) = unsafe { (&at(qp, "the queue pair")?.0, at(attr, "attr")?) };
        if mask & !ALL != 0 {
            return Err(Fail::invalid("unknown bit in the mask"));
        }
        let mut change = QpModify::default();
        if mask & srd_qp_mask::State as u32 != 0 {
            change.state = Some(match attr.state {
                0 => QpState::Reset,
                1 => QpState::Init,
                2 => QpState::Rtr,
                3 => QpState::Rts,
                4 => QpState::Sqd,
                5 => QpState::Sqe,
                6 => QpState::Err,
                _ => return Err(Fail::invalid("unknown state of queue pair")),
            });
        }
        if mask & srd_qp_mask::Qkey as u32 != 0 {
            change.qkey = Some(QKey(attr.qkey));
        }
        if mask & srd_qp_mask::RnrRetry as u32 != 0 {
            change.rnr_retry = Some(retries(attr.rnr_retry)?);
        }
        qp.modify(change)?;
        Ok(0)
    })
}

/// Reads state, Q_Key and RNR retries.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srd_qp_query(qp: *const srd_qp, attr: *mut srd_qp_attr) -> c_int {
    run(|| {
        // SAFETY: the contract of the header.
        let a = unsafe { at(qp, "the queue pair") }?.0.query()?;
        let state = match a.state {
            QpState::Reset => srd_qp_state::Reset,
            QpState::Init => srd_qp_state::Init,
            QpState::Rtr => srd_qp_state::Rtr,
            QpState::Rts => srd_qp_state::Rts,
            QpState::Sqd => srd_qp_state::Sqd,
            QpState::Sqe => srd_qp_state::Sqe,
            QpState::Err => srd_qp_state::Err,
        };
        let value =
            srd_qp_attr { state: state as u32, qkey: a.qkey.0, rnr_retry: a.rnr_retry.into() };
        // SAFETY: as above.
        unsafe { put(attr, value) }?;
        Ok(0)
    })
}

/// The list in Rust's form; longer ones than any queue pair allows are cut, and refused later.
fn list(from: &[srd_sge]) -> ([Sge; SGES_MAX], usize) {
    let mut to = [Sge::default(); SGES_MAX];
    for (to, s) in to.iter_mut().zip(from) {
        *to = Sge { addr: s.addr, len: s.len, lkey: LKey(s.lkey) };
    }
    (to, from.len().min(SGES_MAX))
}

/// The request in Rust's form; `sges` has its list.
///
/// # Safety
/// The pointers of `wr` are null or valid.
unsafe fn send_of<'a>(wr: &'a srd_send_wr, sges: &'a [Sge]) -> Result<SendWr<'a>, Fail> {
    // SAFETY: promised by the caller.
    let ah = &unsafe { at(wr.ah, "the address handle") }?.0;
    let data = if wr.inline_data.is_null() {
        Data::Sges(sges)
    } else {
        // SAFETY: as above.
        Data::Inline(unsafe { slice(wr.inline_data.cast::<u8>(), wr.inline_len as usize) }?)
    };
    let op = match wr.opcode {
        0 => srd::Opcode::Send,
        1 => srd::Opcode::SendImm,
        2 => srd::Opcode::Write,
        3 => srd::Opcode::WriteImm,
        4 => srd::Opcode::Read,
        _ => return Err(Fail::invalid("unknown opcode")),
    };
    Ok(SendWr {
        wr_id: wr.wr_id,
        op,
        ah,
        dst_qpn: Qpn(wr.dst_qpn),
        qkey: QKey(wr.qkey),
        data,
        rkey: RKey(wr.rkey),
        raddr: wr.raddr,
        imm: wr.imm,
    })
}

/// Posts a send request. Never waits; -ENOMEM = full, poll the completion queue.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srd_qp_post_send(qp: *const srd_qp, wr: *const srd_send_wr) -> c_int {
    run(|| {
        // SAFETY: the contract of the header.
        let (qp, wr) = unsafe { (&at(qp, "the queue pair")?.0, at(wr, "the request")?) };
        // SAFETY: as above.
        let (sges, n) = list(unsafe { slice(wr.sges, wr.num_sge as usize) }?);
        // SAFETY: as above.
        qp.post_send(&unsafe { send_of(wr, &sges[..n]) }?)?;
        Ok(0)
    })
}

/// Posts `n` send requests at once, all or none, which costs less than one by one. Never waits;
/// -ENOMEM = no room for all, poll the completion queue.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srd_qp_post_sends(
    qp: *const srd_qp,
    wrs: *const srd_send_wr,
    n: u32,
) -> c_int {
    run(|| {
        // SAFETY: the contract of the header.
        let qp = &unsafe { at(qp, "the queue pair") }?.0;
        // SAFETY: as above.
        let wrs = unsafe { slice(wrs, room(n)?) }?;
        let mut lists = Vec::with_capacity(wrs.len());
        for wr in wrs {
            // SAFETY: as above.
            lists.push(list(unsafe { slice(wr.sges, wr.num_sge as usize) }?));
        }
        let mut sends = Vec::with_capacity(wrs.len());
        for (wr, (sges, n)) in wrs.iter().zip(&lists) {
            // SAFETY: as above.
            sends.push(unsafe { send_of(wr, &sges[..*n]) }?);
        }
        qp.enqueue_sends(sends.into_iter(), Faults::AtPost)?;
        qp.doorbell();
        Ok(0)
    })
}

/// As many requests as a queue pair may hold.
fn room(n: u32) -> Result<usize, Fail> {
    if n > srd::QUEUE_DEPTH_MAX {
        return Err(srd::PostError::QueueFull.into());
    }
    Ok(n as usize)
}

/// Posts a receive. Never waits; -ENOMEM = full, poll the completion queue.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srd_qp_post_recv(qp: *const srd_qp, wr: *const srd_recv_wr) -> c_int {
    // SAFETY: the contract of the header.
    run(|| unsafe { recv_post(&at(qp, "the queue pair")?.0, at(wr, "the request")?, true) })
}

/// Posts `n` receives at once, which costs less than one by one. Returns how many were posted: if
/// fewer, the next one was refused, and srd_last_error says why. Never waits; -ENOMEM = full.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srd_qp_post_recvs(
    qp: *const srd_qp,
    wrs: *const srd_recv_wr,
    n: u32,
) -> c_int {
    run(|| {
        // SAFETY: the contract of the header.
        let qp = &unsafe { at(qp, "the queue pair") }?.0;
        // SAFETY: as above.
        let wrs = unsafe { slice(wrs, n as usize) }?;
        let mut posted = 0;
        for wr in wrs {
            // SAFETY: as above.
            match unsafe { recv_post(qp, wr, false) } {
                Ok(_) => posted += 1,
                Err(e) if posted == 0 => return Err(e),
                Err(e) => {
                    run(|| Err(e));
                    break;
                }
            }
        }
        qp.doorbell_recv();
        Ok(posted)
    })
}

/// Puts a receive into the queue, and `tell`s the device.
///
/// # Safety
/// The pointers of `wr` are null or valid.
unsafe fn recv_post(qp: &srd::QueuePair, wr: &srd_recv_wr, tell: bool) -> Result<c_int, Fail> {
    // SAFETY: promised by the caller.
    let (sges, n) = list(unsafe { slice(wr.sges, wr.num_sge as usize) }?);
    let wr = RecvWr { wr_id: wr.wr_id, sges: &sges[..n] };
    if tell { qp.post_recv(&wr) } else { qp.enqueue_recv(&wr, Faults::AtPost) }?;
    Ok(0)
}
