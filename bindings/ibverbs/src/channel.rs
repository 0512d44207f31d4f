//! Completion channels and events of completion queues.

use crate::{
    abi::{ibv_comp_channel, ibv_context, ibv_cq},
    context::Context,
    cq::Cq,
    errno,
    guard::{Look, wait_cancellable},
};
use libc::{c_int, c_uint, c_void};
use srd::CompletionChannel;
use srd_guard::guarded;
use std::{
    os::fd::AsRawFd,
    sync::atomic::{AtomicI32, Ordering},
};

/// A completion channel.
#[repr(C)]
pub(crate) struct Channel {
    base: ibv_comp_channel,
    pub channel: CompletionChannel,
    users: AtomicI32,
}

impl Channel {
    /// # Safety
    /// `channel` is null, or was created here and is not destroyed.
    pub(crate) unsafe fn of<'a>(channel: *mut ibv_comp_channel) -> Option<&'a Self> {
        // SAFETY: such pointers are to the first field.
        unsafe { channel.cast::<Self>().as_ref() }
    }

    /// Adds a completion queue that reports to the channel.
    pub(crate) fn refer(&self) {
        self.users.fetch_add(1, Ordering::AcqRel);
    }

    /// Removes a completion queue.
    pub(crate) fn unrefer(&self) {
        self.users.fetch_sub(1, Ordering::AcqRel);
    }
}

/// # Safety
/// As the verbs manual page requires.
#[unsafe(no_mangle)]
#[guarded]
pub unsafe extern "C" fn ibv_create_comp_channel(
    context: *mut ibv_context,
) -> *mut ibv_comp_channel {
    // SAFETY: the context is open.
    match unsafe { Context::of(context) }.opened.device.channel_create() {
        Ok(channel) => {
            let base = ibv_comp_channel { context, fd: channel.as_raw_fd(), refcnt: 0 };
            Box::into_raw(Box::new(Channel { base, channel, users: AtomicI32::new(0) })).cast()
        }
        Err(e) => errno::null(e.errno()),
    }
}

/// # Safety
/// As the verbs manual page requires.
#[unsafe(no_mangle)]
#[guarded]
pub unsafe extern "C" fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int {
    // SAFETY: null or a live channel.
    let Some(this) = (unsafe { Channel::of(channel) }) else { return libc::EINVAL };
    if this.users.load(Ordering::Acquire) > 0 {
        return libc::EBUSY;
    }
    // SAFETY: it came from `ibv_create_comp_channel`.
    drop(unsafe { Box::from_raw(channel.cast::<Channel>()) });
    0
}

/// Requests one event for the next completion. EFA has no solicited events.
///
/// # Safety
/// As the verbs manual page requires.
#[guarded]
pub(crate) unsafe extern "C" fn req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    if solicited_only != 0 {
        return libc::EOPNOTSUPP;
    }
    // SAFETY: a live queue.
    let this = unsafe { Cq::of(cq) };
    match this.cq.req_notify_beyond(this.unread()) {
        Ok(()) => 0,
        Err(e) => e.errno(),
    }
}

/// Waits for an event, unless the descriptor is non-blocking. The wait is a cancellation point at
/// which no lock is held.
///
/// # Safety
/// As the verbs manual page requires.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ibv_get_cq_event(
    channel: *mut ibv_comp_channel,
    cq: *mut *mut ibv_cq,
    cq_context: *mut *mut c_void,
) -> c_int {
    loop {
        // SAFETY: required of the caller.
        match unsafe { event_get(channel, cq, cq_context) } {
            Look::Done(result) => return result,
            Look::Wait(fd) => {
                // SAFETY: nothing of this frame needs to be dropped.
                if !unsafe { wait_cancellable(fd) } {
                    return -1;
                }
            }
        }
    }
}

/// Takes an event if there is one.
///
/// # Safety
/// As [`ibv_get_cq_event`].
#[guarded(Look::Done(-1))]
unsafe fn event_get(
    channel: *mut ibv_comp_channel,
    cq: *mut *mut ibv_cq,
    cq_context: *mut *mut c_void,
) -> Look {
    // SAFETY: null or a live channel.
    let Some(this) = (unsafe { Channel::of(channel) }) else {
        return Look::Done(errno::minus_one(libc::EINVAL));
    };
    let taken = this.channel.try_get_with(|event| {
        let of = std::ptr::with_exposed_provenance_mut::<ibv_cq>(event.context as usize);
        // SAFETY: the queue is alive: before it is destroyed it removes its events from the
        // channel, which is locked here, and waits for acknowledgment of those counted. The caller
        // owns both out parameters.
        unsafe {
            let queue = Cq::of(of);
            queue.event_sent();
            cq.write(of);
            cq_context.write(queue.base.base.cq_context);
        }
    });
    if taken.is_some() {
        return Look::Done(0);
    }
    // SAFETY: no memory is passed.
    let flags = unsafe { libc::fcntl(this.base.fd, libc::F_GETFL) };
    if flags & libc::O_NONBLOCK != 0 {
        return Look::Done(errno::minus_one(libc::EAGAIN));
    }
    if this.channel.device().has_failed() {
        return Look::Done(errno::minus_one(libc::EIO));
    }
    Look::Wait(this.base.fd)
}

/// # Safety
/// As the verbs manual page requires.
#[unsafe(no_mangle)]
#[guarded]
pub unsafe extern "C" fn ibv_ack_cq_events(cq: *mut ibv_cq, n: c_uint) {
    // SAFETY: a live queue.
    unsafe { Cq::of(cq) }.events_ack(n);
}
