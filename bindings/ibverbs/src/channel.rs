//! Completion channels and events of completion queues.

use crate::{
    abi::{ibv_comp_channel, ibv_context, ibv_cq},
    context::Context,
    cq::Cq,
    errno,
};
use libc::{c_int, c_uint, c_void};
use srd::CompletionChannel;
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
    /// `channel` is null, or came from here and was not given back.
    pub(crate) unsafe fn of<'a>(channel: *mut ibv_comp_channel) -> Option<&'a Self> {
        // SAFETY: such pointers are to the first field.
        unsafe { channel.cast::<Self>().as_ref() }
    }

    /// A queue reports to it.
    pub(crate) fn refer(&self) {
        self.users.fetch_add(1, Ordering::AcqRel);
    }

    /// A queue that reported to it is gone.
    pub(crate) fn unrefer(&self) {
        self.users.fetch_sub(1, Ordering::AcqRel);
    }
}

/// # Safety
/// As verbs.
#[unsafe(no_mangle)]
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
/// As verbs.
#[unsafe(no_mangle)]
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

/// Asks for one event with the next completion. EFA has no solicited ones.
///
/// # Safety
/// As verbs.
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

/// Waits for an event, unless the program made the descriptor non-blocking.
///
/// # Safety
/// As verbs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_get_cq_event(
    channel: *mut ibv_comp_channel,
    cq: *mut *mut ibv_cq,
    cq_context: *mut *mut c_void,
) -> c_int {
    // SAFETY: null or a live channel.
    let Some(this) = (unsafe { Channel::of(channel) }) else {
        return errno::minus_one(libc::EINVAL);
    };
    // SAFETY: no memory is passed.
    let flags = unsafe { libc::fcntl(this.base.fd, libc::F_GETFL) };
    let event = match this.channel.try_get() {
        Some(event) => event,
        None if flags & libc::O_NONBLOCK != 0 => return errno::minus_one(libc::EAGAIN),
        None => match this.channel.get(None) {
            Ok(Some(event)) => event,
            Ok(None) => return errno::minus_one(libc::EAGAIN),
            Err(e) => return errno::minus_one(e.errno()),
        },
    };
    let of = std::ptr::with_exposed_provenance_mut::<ibv_cq>(event.context as usize);
    // SAFETY: events of a queue that was destroyed are taken off the channel, so it lives; both
    // places are the caller's.
    unsafe {
        let queue = Cq::of(of);
        queue.event_sent();
        cq.write(of);
        cq_context.write(queue.base.base.cq_context);
    }
    0
}

/// # Safety
/// As verbs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_ack_cq_events(cq: *mut ibv_cq, n: c_uint) {
    // SAFETY: a live queue.
    unsafe { Cq::of(cq) }.events_ack(n);
}
