//! Asynchronous events.

use crate::{
    abi::{ibv_async_event, ibv_context, ibv_qp},
    context::Context,
    errno,
    guard::{Look, wait_cancellable},
    num::{
        IBV_EVENT_DEVICE_FATAL, IBV_EVENT_PORT_ERR, IBV_EVENT_QP_FATAL, IBV_EVENT_SQ_DRAINED, int,
    },
    opened::Opened,
    pd::Pd,
    qp::Qp,
};
use libc::{c_int, c_void};
use srd::{AhId, AsyncEvent, Device, Qpn};
use srd_guard::guarded;
use std::{
    collections::{BTreeMap, VecDeque},
    net::IpAddr,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    ptr,
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::Ordering},
};

/// A queue pair's address; dereferenced only while the queue pair is known to be alive.
struct Pointer(*mut ibv_qp);

// SAFETY: the pointer is only an entry of a table, used under the rules of verbs.
unsafe impl Send for Pointer {}

/// The queue pairs of one open device by number. Two devices of a process may assign the same
/// numbers, so each has its own table.
#[derive(Default)]
pub(crate) struct Queues(Mutex<BTreeMap<u32, Pointer>>);

impl Queues {
    fn locked(&self) -> MutexGuard<'_, BTreeMap<u32, Pointer>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a queue pair.
    pub(crate) fn add(&self, number: u32, qp: *mut ibv_qp) {
        self.locked().insert(number, Pointer(qp));
    }

    /// Removes a queue pair.
    pub(crate) fn remove(&self, number: u32) {
        self.locked().remove(&number);
    }

    /// The number of the address handle that a queue pair's domain has for a host.
    pub(crate) fn handle_of(&self, qpn: Qpn, ip: IpAddr) -> Option<AhId> {
        let table = self.locked();
        let qp = table.get(&u32::from(qpn.0))?.0;
        // SAFETY: while the table is locked, its queue pairs live, and their domains with them.
        unsafe { Pd::of((*qp).pd).handle_of(ip) }
    }

    /// Address of the context in which a queue pair was created.
    fn context_of(&self, qpn: Qpn) -> Option<usize> {
        let table = self.locked();
        let qp = table.get(&u32::from(qpn.0))?.0;
        // SAFETY: while the table is locked, its queue pairs live.
        Some(unsafe { (*qp).context }.addr())
    }
}

/// The events of one context. All contexts of a device share the device's queue: the one that reads
/// it forwards the events of the others.
pub(crate) struct Inbox {
    /// Address of the context; used for comparison only.
    owner: usize,
    waiting: Mutex<VecDeque<AsyncEvent>>,
    /// Readable while an event is pending.
    bell: OwnedFd,
}

impl Inbox {
    /// Creates a context's inbox; `None` if the process has no descriptor left.
    pub(crate) fn new(owner: usize) -> Option<Arc<Self>> {
        // SAFETY: no memory is passed; a descriptor that is not negative is ours alone.
        let bell = unsafe {
            let fd = libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK);
            (fd >= 0).then(|| OwnedFd::from_raw_fd(fd))?
        };
        Some(Arc::new(Self { owner, waiting: Mutex::default(), bell }))
    }

    /// A descriptor that is readable while events of this context or of its device may be pending.
    pub(crate) fn descriptor(&self, device: &Device) -> c_int {
        // SAFETY: no memory is passed.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        for inner in [self.bell.as_raw_fd(), device.event_fd().as_raw_fd()] {
            let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
            // SAFETY: a valid structure; a descriptor that is not there is refused.
            unsafe { libc::epoll_ctl(fd, libc::EPOLL_CTL_ADD, inner, &raw mut event) };
        }
        fd
    }

    fn locked(&self) -> MutexGuard<'_, VecDeque<AsyncEvent>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, event: AsyncEvent) {
        let mut waiting = self.locked();
        // Which error it was, verbs has no word for: one that waits says all. A program that never
        // reads keeps no more than one for each time that it drained a queue pair.
        let broken = |e: &AsyncEvent| matches!(e, AsyncEvent::DatapathError(_));
        if broken(&event) && waiting.iter().any(broken) {
            return;
        }
        waiting.push_back(event);
        drop(waiting);
        let one = 1_u64;
        // SAFETY: eight bytes are there.
        unsafe { libc::write(self.bell.as_raw_fd(), (&raw const one).cast(), size_of::<u64>()) };
    }

    fn pop(&self) -> Option<AsyncEvent> {
        let mut waiting = self.locked();
        let next = waiting.pop_front();
        if waiting.is_empty() {
            let mut count = 0_u64;
            // SAFETY: there is room for eight bytes.
            unsafe { libc::read(self.bell.as_raw_fd(), (&raw mut count).cast(), size_of::<u64>()) };
        }
        next
    }

    /// Drops the events of a queue pair that is being destroyed.
    pub(crate) fn forget(&self, qpn: Qpn) {
        self.locked().retain(|event| of_qp(*event) != Some(qpn));
    }
}

/// The queue pair that an event concerns.
fn of_qp(event: AsyncEvent) -> Option<Qpn> {
    match event {
        AsyncEvent::QpFatal(qpn) | AsyncEvent::SqDrained(qpn) => Some(qpn),
        _ => None,
    }
}

/// Distributes the device's events: a queue pair's to its context, the port's to all contexts.
fn distribute(opened: &Opened) {
    while let Some(event) = opened.device.event_get() {
        let owner = match (of_qp(event), event) {
            (Some(qpn), _) => match opened.queues.context_of(qpn) {
                Some(owner) => Some(owner),
                None => continue,
            },
            (None, AsyncEvent::DatapathError(_) | AsyncEvent::DeviceFatal) => None,
            // Verbs has no such event.
            _ => continue,
        };
        for inbox in opened.inboxes().iter().filter(|i| owner.is_none_or(|owner| owner == i.owner))
        {
            inbox.push(event);
        }
    }
}

/// The verbs event for `event`; `None` if verbs has none. From here on a queue pair's destruction
/// waits until the event is acknowledged.
fn translate(opened: &Opened, event: AsyncEvent) -> Option<ibv_async_event> {
    let Some(qpn) = of_qp(event) else {
        let (element, kind) = match event {
            AsyncEvent::DeviceFatal => (ptr::null_mut(), IBV_EVENT_DEVICE_FATAL),
            // The port number.
            _ => (ptr::without_provenance_mut::<c_void>(1), IBV_EVENT_PORT_ERR),
        };
        return Some(ibv_async_event { element, event_type: int(kind) });
    };
    let table = opened.queues.locked();
    let qp = table.get(&u32::from(qpn.0))?.0;
    // SAFETY: while the table is locked, its queue pairs live.
    let this = unsafe { Qp::of(qp) };
    let kind = match event {
        AsyncEvent::SqDrained(_) if !this.drain_notice.load(Ordering::Relaxed) => return None,
        AsyncEvent::SqDrained(_) => IBV_EVENT_SQ_DRAINED,
        _ => IBV_EVENT_QP_FATAL,
    };
    this.events_open.fetch_add(1, Ordering::AcqRel);
    Some(ibv_async_event { element: qp.cast(), event_type: int(kind) })
}

/// Waits for an event, unless the descriptor is non-blocking. The wait is a cancellation point at
/// which no lock is held.
///
/// # Safety
/// As the verbs manual page requires.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ibv_get_async_event(
    context: *mut ibv_context,
    event: *mut ibv_async_event,
) -> c_int {
    loop {
        // SAFETY: required of the caller.
        match unsafe { event_get(context, event) } {
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
/// As [`ibv_get_async_event`].
#[guarded(Look::Done(-1))]
unsafe fn event_get(context: *mut ibv_context, event: *mut ibv_async_event) -> Look {
    // SAFETY: the context is open.
    let (this, fd) = unsafe { (Context::of(context), (*context).async_fd) };
    distribute(&this.opened);
    while let Some(next) = this.inbox.pop() {
        if let Some(translated) = translate(&this.opened, next) {
            // SAFETY: a place for the event.
            unsafe { event.write(translated) };
            return Look::Done(0);
        }
    }
    // SAFETY: no memory is passed.
    if unsafe { libc::fcntl(fd, libc::F_GETFL) } & libc::O_NONBLOCK != 0 {
        return Look::Done(errno::minus_one(libc::EAGAIN));
    }
    Look::Wait(fd)
}

/// Acknowledges an event; a queue pair can be destroyed once all of its events are acknowledged.
///
/// # Safety
/// As the verbs manual page requires: the event came from [`ibv_get_async_event`].
#[unsafe(no_mangle)]
#[guarded]
pub unsafe extern "C" fn ibv_ack_async_event(event: *mut ibv_async_event) {
    // SAFETY: a valid event; its queue pair lives until this call.
    unsafe {
        let event = &*event;
        if matches!(i64::from(event.event_type), IBV_EVENT_QP_FATAL | IBV_EVENT_SQ_DRAINED) {
            Qp::of(event.element.cast()).events_open.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn readable(fd: c_int) -> bool {
        let mut wanted = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // SAFETY: one valid entry.
        unsafe { libc::poll(&raw mut wanted, 1, 0) == 1 }
    }

    #[test]
    fn a_descriptor_is_readable_while_events_wait() {
        let device = Device::open(srd::DeviceConfig::loopback()).unwrap();
        let inbox = Inbox::new(1).unwrap();
        let fd = inbox.descriptor(&device);
        assert!(fd >= 0 && !readable(fd));
        inbox.push(AsyncEvent::QpFatal(Qpn(3)));
        inbox.push(AsyncEvent::SqDrained(Qpn(4)));
        assert!(readable(fd));
        inbox.forget(Qpn(3));
        assert_eq!(inbox.pop(), Some(AsyncEvent::SqDrained(Qpn(4))));
        assert!(inbox.pop().is_none() && !readable(fd));
        // Errors of the network that nobody reads do not pile up.
        (0..1000).for_each(|errno| inbox.push(AsyncEvent::DatapathError(errno)));
        assert_eq!(inbox.locked().len(), 1);
        assert!(inbox.pop().is_some() && !readable(fd));
        // SAFETY: the descriptor is this test's.
        unsafe { libc::close(fd) };
    }

    #[test]
    fn events_go_to_the_context_of_their_queue_pair() {
        use crate::{
            abi::{ibv_qp_attr, ibv_qp_init_attr},
            context::{ibv_close_device, ibv_open_device},
            cq::{ibv_create_cq, ibv_destroy_cq},
            devices,
            num::*,
            pd::{ibv_alloc_pd, ibv_dealloc_pd},
            qp::{ibv_destroy_qp, ibv_modify_qp, srd_efadv_create_driver_qp},
        };
        let ip = std::net::Ipv4Addr::LOCALHOST.into();
        let entry = devices::Entry::leaked(ip, "lo");
        // SAFETY: the calls follow the rules of verbs.
        unsafe {
            let [a, b] = [(); 2].map(|()| ibv_open_device(entry));
            assert!(!a.is_null() && !b.is_null());
            for context in [a, b] {
                libc::fcntl((*context).async_fd, libc::F_SETFL, libc::O_NONBLOCK);
            }
            let pd = ibv_alloc_pd(a);
            let cq = ibv_create_cq(a, 16, ptr::null_mut(), ptr::null_mut(), 0);
            let mut init = ibv_qp_init_attr::driver(cq, 8);
            let qp = srd_efadv_create_driver_qp(pd, &raw mut init, 0);
            assert!(!qp.is_null());
            let step = |state: i64, mask: i64| {
                let mut attr = ibv_qp_attr { qp_state: int(state), ..ibv_qp_attr::default() };
                (attr.port_num, attr.en_sqd_async_notify) = (1, 1);
                assert_eq!(ibv_modify_qp(qp, &raw mut attr, int(mask | IBV_QP_STATE)), 0);
            };
            step(IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
            step(IBV_QPS_RTR, 0);
            step(IBV_QPS_RTS, IBV_QP_SQ_PSN);
            step(IBV_QPS_SQD, IBV_QP_EN_SQD_ASYNC_NOTIFY);
            let mut event = ibv_async_event { element: ptr::null_mut(), event_type: -1 };
            // A context that reads first must not take another context's event.
            assert_eq!(ibv_get_async_event(b, &raw mut event), -1);
            assert!(readable((*a).async_fd));
            assert_eq!(ibv_get_async_event(a, &raw mut event), 0);
            assert_eq!((event.element, event.event_type), (qp.cast(), int(IBV_EVENT_SQ_DRAINED)));
            assert_eq!(ibv_get_async_event(a, &raw mut event), -1);
            let address = qp.expose_provenance();
            let destroyed = std::thread::spawn(move || {
                ibv_destroy_qp(ptr::with_exposed_provenance_mut(address))
            });
            std::thread::sleep(std::time::Duration::from_millis(20));
            assert!(!destroyed.is_finished(), "the event was not acknowledged");
            event.element = qp.cast();
            event.event_type = int(IBV_EVENT_SQ_DRAINED);
            ibv_ack_async_event(&raw mut event);
            assert_eq!(destroyed.join().unwrap(), 0);
            assert_eq!((ibv_destroy_cq(cq), ibv_dealloc_pd(pd)), (0, 0));
            assert_eq!((ibv_close_device(a), ibv_close_device(b)), (0, 0));
        }
    }
}
