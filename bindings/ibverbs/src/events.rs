//! Asynchronous events.

use crate::{
    abi::{ibv_async_event, ibv_context, ibv_qp},
    context::Context,
    errno,
    num::{IBV_EVENT_PORT_ERR, IBV_EVENT_QP_FATAL, IBV_EVENT_SQ_DRAINED, int},
    qp::Qp,
};
use libc::{c_int, c_void};
use srd::{AsyncEvent, Qpn};
use std::{
    collections::BTreeMap,
    ptr,
    sync::{Mutex, MutexGuard, PoisonError, atomic::Ordering},
};

/// A queue pair's address; only its number is used until it is known to live.
struct Pointer(*mut ibv_qp);

// SAFETY: the pointer is only an entry of a table, used under the rules of verbs.
unsafe impl Send for Pointer {}

/// The queue pairs of this process by number; a process has one engine slot per device, so numbers
/// of two devices differ in their high byte.
static QPS: Mutex<BTreeMap<u32, Pointer>> = Mutex::new(BTreeMap::new());

fn qps() -> MutexGuard<'static, BTreeMap<u32, Pointer>> {
    QPS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A queue pair was made.
pub(crate) fn qp_add(number: u32, qp: *mut ibv_qp) {
    qps().insert(number, Pointer(qp));
}

/// A queue pair goes.
pub(crate) fn qp_remove(number: u32) {
    qps().remove(&number);
}

fn qp_of(qpn: Qpn) -> Option<*mut ibv_qp> {
    qps().get(&u32::from(qpn.0)).map(|p| p.0)
}

/// What verbs calls an event of the device; `None` for those that it has no word for.
fn translate(event: AsyncEvent) -> Option<ibv_async_event> {
    let (element, kind) = match event {
        AsyncEvent::QpFatal(qpn) => (qp_of(qpn)?.cast::<c_void>(), IBV_EVENT_QP_FATAL),
        AsyncEvent::SqDrained(qpn) => {
            let qp = qp_of(qpn)?;
            // SAFETY: the table has only live ones.
            if !unsafe { Qp::of(qp) }.drain_notice.load(Ordering::Relaxed) {
                return None;
            }
            (qp.cast(), IBV_EVENT_SQ_DRAINED)
        }
        AsyncEvent::DatapathError(_) => {
            (ptr::without_provenance_mut::<c_void>(1), IBV_EVENT_PORT_ERR)
        }
        _ => return None,
    };
    Some(ibv_async_event { element, event_type: int(kind) })
}

/// Waits for an event, unless the program made the descriptor non-blocking.
///
/// # Safety
/// As verbs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_get_async_event(
    context: *mut ibv_context,
    event: *mut ibv_async_event,
) -> c_int {
    // SAFETY: the context is open.
    let (this, fd) = unsafe { (Context::of(context), (*context).async_fd) };
    loop {
        while let Some(next) = this.device.event_get() {
            if let Some(translated) = translate(next) {
                // SAFETY: a place for the event.
                unsafe { event.write(translated) };
                return 0;
            }
        }
        // SAFETY: no memory is passed.
        if unsafe { libc::fcntl(fd, libc::F_GETFL) } & libc::O_NONBLOCK != 0 {
            return errno::minus_one(libc::EAGAIN);
        }
        let mut wanted = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // SAFETY: one valid entry.
        if unsafe { libc::poll(&raw mut wanted, 1, -1) } < 0 {
            return -1;
        }
    }
}

/// Events hold nothing that must be given back.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_ack_async_event(_event: *mut ibv_async_event) {}
