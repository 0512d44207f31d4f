//! The device: one engine on one datapath, and the objects created from it.

use crate::{
    AsyncEvent, CompletionChannel, CompletionQueue, CqInit, DeviceAttr, DeviceConfig, DeviceError,
    Error, PortAttr, Progress, ProtectionDomain,
    counters::DeviceCounters,
    crowd,
    dirty::DirtySet,
    driving::Driving,
    events::EventQueue,
    failed::{Holder, NicGuard},
    fork::Process,
    nic::{Nic, Turn},
    open,
    queue::QpCore,
    regions::RegionViews,
    rest::Rest,
    sync::lock,
    thread,
};
use srd_core::{ContextStats, path::PathStats};
use srd_datapath::Waker;
use std::{
    fmt,
    net::IpAddr,
    os::fd::BorrowedFd,
    sync::{
        Arc, Mutex, TryLockError,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

/// State shared by all handles, the driving thread and the turn.
pub(crate) struct Shared {
    pub attr: DeviceAttr,
    pub port: PortAttr,
    pub slot: u8,
    process: Process,
    nic: Mutex<Nic>,
    /// The thread that has locked it.
    pub holder: Holder,
    /// Threads that wait for the lock while its holder may sleep in the datapath.
    pub control_waiting: AtomicU32,
    /// Whether the driver sleeps in the datapath and must be woken for new work.
    pub rest: Rest,
    pub waker: Waker,
    /// Queue pairs with new posts.
    pub posted: DirtySet,
    /// Completion queues with freed slots.
    pub polled: DirtySet,
    /// Whether some queue pair's posts wait for freed slots.
    pub held: AtomicBool,
    pub regions: RegionViews,
    /// The queue pairs whose posts wait for freed slots.
    queues: Mutex<Vec<Arc<QpCore>>>,
    /// Whether the send queues together are deeper than the engine's table of requests.
    sends_limited: AtomicBool,
    pub events: EventQueue,
    pub stop: AtomicBool,
    /// Whether the engine has panicked; see [`Nic::fail`].
    pub failed: AtomicBool,
    pub driving: Driving,
}

impl Shared {
    /// Whether the device is usable.
    #[inline]
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.process.is_left() {
            return Err(Error::Forked);
        }
        if self.stop.load(Ordering::Relaxed) {
            return Err(Error::Closed);
        }
        Ok(())
    }

    /// Takes the lock for a command. Wakes the holder if it sleeps.
    pub(crate) fn nic(&self) -> Result<NicGuard<'_>, Error> {
        self.check()?;
        self.nic_to_destroy()
    }

    /// Takes the lock to destroy an object. It also succeeds on a device that is shut down, which
    /// may still be closing its contexts.
    pub(crate) fn nic_to_destroy(&self) -> Result<NicGuard<'_>, Error> {
        if self.process.is_left() {
            return Err(Error::Forked);
        }
        if let Some(nic) = self.try_nic() {
            return Ok(nic);
        }
        self.control_waiting.fetch_add(1, Ordering::SeqCst);
        self.waker.wake();
        let nic = self.nic_for_driver();
        self.control_waiting.fetch_sub(1, Ordering::SeqCst);
        nic
    }

    /// Takes the lock unless another thread holds it.
    pub(crate) fn try_nic(&self) -> Option<NicGuard<'_>> {
        match self.nic.try_lock() {
            Ok(nic) if !self.failed.load(Ordering::Relaxed) => Some(NicGuard::new(nic, self)),
            Ok(_) | Err(TryLockError::WouldBlock) => None,
            Err(TryLockError::Poisoned(_)) => {
                self.stop.store(true, Ordering::SeqCst);
                None
            }
        }
    }

    /// Takes the lock. If a thread panicked while it held the lock, the engine must not be used
    /// again: the device is closed, sends nothing more, and reads no registered memory. A thread
    /// that holds the lock already, and was interrupted by a signal, gets an error.
    pub(crate) fn nic_for_driver(&self) -> Result<NicGuard<'_>, Error> {
        if self.holder.is_me() {
            return Err(Error::Closed);
        }
        let locked = self.nic.lock().map_err(|_| {
            self.stop.store(true, Ordering::SeqCst);
            Error::Closed
        })?;
        if self.failed.load(Ordering::Relaxed) {
            return Err(Error::Closed);
        }
        Ok(NicGuard::new(locked, self))
    }

    /// Notes that a queue pair has new posts.
    #[inline]
    pub(crate) fn note_post(&self, qp_index: usize) {
        self.posted.insert(qp_index);
        if self.driving.posts_leave_at_once()
            && let Some(mut nic) = self.try_nic()
        {
            nic.send_posts(self);
        } else if self.rest.needs_wake() {
            self.waker.wake();
        }
    }

    /// Notes that a queue pair has new receives: the next turn takes them before it handles
    /// packets.
    #[inline]
    pub(crate) fn note_recvs(&self, qp_index: usize) {
        self.posted.insert(qp_index);
    }

    /// Notes that a completion queue has freed slots.
    #[inline]
    pub(crate) fn note_poll(&self, cq_index: usize) {
        self.polled.insert(cq_index);
        if self.held.load(Ordering::SeqCst) && self.rest.needs_wake() {
            self.waker.wake();
        }
    }

    /// Whether there is work that neither a packet nor a timer announces.
    pub(crate) fn has_work(&self) -> bool {
        self.has_work_of_callers() || self.driving.callers.drive()
    }

    /// As [`Shared::has_work`], for a caller, which drives itself.
    fn has_work_of_callers(&self) -> bool {
        self.posted.any()
            || (self.held.load(Ordering::SeqCst) && self.polled.any())
            || self.control_waiting.load(Ordering::SeqCst) > 0
            || self.stop.load(Ordering::SeqCst)
    }

    /// Sleeps in the datapath, up to `limit`, until something can be done.
    pub(crate) fn sleep(&self, nic: &mut Nic, limit: Option<Duration>) {
        self.sleep_unless(|| self.has_work(), nic, limit);
    }

    /// Sleeps in a poll that found nothing, because others want the processor.
    pub(crate) fn sleep_in_poll(&self, nic: &mut Nic) {
        self.sleep_unless(|| self.has_work_of_callers(), nic, Some(crowd::SLEEP_MAX));
    }

    fn sleep_unless(
        &self,
        has_work: impl FnOnce() -> bool,
        nic: &mut Nic,
        limit: Option<Duration>,
    ) {
        self.rest.sleep_unless(has_work, || {
            let idle = nic.idle_time(limit);
            if idle != Some(Duration::ZERO)
                && let Err(e) = nic.net.wait(idle)
            {
                nic.net_failed(self, &e);
            }
        });
    }

    /// Notes that a queue pair was created (before its first post) or destroyed.
    pub(crate) fn queues_change(&self, change: impl FnOnce(&mut Vec<Arc<QpCore>>)) {
        let mut queues = lock(&self.queues);
        change(&mut queues);
        let sends: u64 = queues.iter().map(|q| u64::from(q.sq_slots.limit())).sum();
        self.sends_limited.store(sends > u64::from(self.attr.max_wr), Ordering::Release);
    }

    /// Whether the engine's table has room for another send request. Requests are counted only if
    /// the send queues together could exceed the table. Two threads that post concurrently may both
    /// find the last free entry: the request that does not get it waits in its ring.
    #[inline]
    pub(crate) fn sends_have_room(&self) -> bool {
        !self.sends_limited.load(Ordering::Acquire) || self.sends_used() < self.attr.max_wr
    }

    #[cold]
    fn sends_used(&self) -> u32 {
        lock(&self.queues).iter().map(|q| q.sq_slots.used()).sum()
    }
}

/// Owns the device; dropped with the last handle on it or on one of its objects.
pub(crate) struct Owner {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
    closed: AtomicBool,
    warnings: Vec<String>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        if self.shared.process.is_left() {
            // A child of `fork` has no thread of the parent and must not talk to its peers.
            std::mem::forget(Arc::clone(&self.shared));
            std::mem::forget(lock(&self.thread).take());
            return;
        }
        self.close();
    }
}

impl Owner {
    /// Stops the device and tells its peers. A second call has no effect.
    fn close(&self) {
        if self.closed.swap(true, Ordering::SeqCst) {
            return;
        }
        self.shared.stop.store(true, Ordering::SeqCst);
        self.shared.waker.wake();
        if self.shared.holder.is_me() {
            // In a signal handler that interrupted a turn of this thread: the lock stays held, and
            // the device's thread may wait for it for ever.
            return;
        }
        self.shared.driving.callers.rest();
        if let Some(thread) = lock(&self.thread).take() {
            // A panic of the thread has printed its message; the device is closed either way.
            let _ = thread.join();
        }
        if let Ok(mut nic) = self.shared.nic_for_driver() {
            nic.say_goodbye(&self.shared);
        }
    }
}

/// An SRD device: an engine with its sockets, and the factory of all other objects.
///
/// Cheap to clone; every object holds it, and the device closes (telling its peers) when the last
/// handle is gone. A child of `fork` cannot use it.
///
/// ```
/// use srd::{Access, Device, DeviceConfig, Progress, QpInit, RecvWr, SendWr};
/// use std::time::Duration;
///
/// // Two devices on the loopback interface; each takes a free slot.
/// let (a, b) = (Device::open(DeviceConfig::loopback())?, Device::open(DeviceConfig::loopback())?);
/// let (pd_a, pd_b) = (a.pd_create()?, b.pd_create()?);
/// let (cq_a, cq_b) = (a.cq_create(64)?, b.cq_create(64)?);
/// let qp_a = pd_a.qp_create(&QpInit::srd(&cq_a, &cq_a))?;
/// let qp_b = pd_b.qp_create(&QpInit::srd(&cq_b, &cq_b))?;
/// qp_a.activate(0x11)?;
/// qp_b.activate(0x11)?;
///
/// // B posts a receive, A sends into it.
/// let buffer = pd_b.mr_allocate(4096, Access::LOCAL_WRITE)?;
/// qp_b.post_recv(&RecvWr { wr_id: 7, sges: &[buffer.sge(0, 4096)] })?;
/// let to_b = pd_a.ah_create(b.ip())?;
/// qp_a.post_send(&SendWr::send(1, &to_b, qp_b.qpn(), 0x11).inline(b"hello"))?;
///
/// let sent = cq_a.wait(Duration::from_secs(10))?.expect("in time").ok()?;
/// let received = cq_b.wait(Duration::from_secs(10))?.expect("in time").ok()?;
/// assert_eq!((sent.wr_id, received.wr_id, received.byte_len), (1, 7, 5));
/// assert_eq!(buffer.to_vec(0, 5)?, b"hello");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Device(Arc<Owner>);

impl Device {
    /// Opens a device.
    ///
    /// # Errors
    /// See [`DeviceError`]; the text says what to do.
    pub fn open(mut config: DeviceConfig) -> Result<Self, DeviceError> {
        let (progress, watch) = (config.progress, config.watch.take());
        let parts = open::open(config)?;
        let shared = Arc::new(Shared {
            slot: parts.nic.engine.config().slot,
            process: Process::current(),
            driving: Driving::new(progress),
            control_waiting: AtomicU32::new(0),
            rest: Rest::new(),
            waker: parts.nic.net.waker(),
            posted: DirtySet::default(),
            polled: DirtySet::default(),
            held: AtomicBool::new(false),
            regions: RegionViews::default(),
            queues: Mutex::default(),
            sends_limited: AtomicBool::new(false),
            events: EventQueue::new(watch)
                .map_err(|source| DeviceError::Os { what: "making an event counter", source })?,
            stop: AtomicBool::new(false),
            failed: AtomicBool::new(false),
            attr: parts.attr,
            port: parts.port,
            nic: Mutex::new(parts.nic),
            holder: Holder::default(),
        });
        let thread = match progress {
            Progress::Caller => None,
            Progress::Thread { spin } => {
                Some(thread::start(Arc::clone(&shared), thread::Manner::Always { spin })?)
            }
            Progress::Shared { idle } => {
                Some(thread::start(Arc::clone(&shared), thread::Manner::WhenIdle { idle })?)
            }
        };
        if let Some(thread) = &thread {
            shared.driving.callers.thread_set(thread.thread().clone());
        }
        let thread = Mutex::new(thread);
        let closed = AtomicBool::new(false);
        Ok(Self(Arc::new(Owner { shared, thread, closed, warnings: parts.warnings })))
    }

    /// Closes the device while objects of it may still exist, for process exit: refuses new
    /// requests, transmits what was posted, lets peers learn the result of their requests, and
    /// sends Close. That takes as long as a peer needs, at most one second. A device whose last
    /// handle is dropped closes by itself. In a child of `fork` this call does nothing.
    pub fn close(&self) {
        if !self.shared().process.is_left() {
            self.0.close();
        }
    }

    /// Makes the device fail, as after a panic of its engine: all requests end with status 2, the
    /// event [`AsyncEvent::DeviceFatal`] reports it, and only destroying objects still works. For
    /// callers that caught a panic of their own and cannot continue.
    pub fn fail(&self) {
        let shared = self.shared();
        // A poisoned lock means that this was done already.
        if let Ok(mut nic) = shared.nic_to_destroy() {
            nic.fail(shared);
        }
    }

    /// Panics with the engine's lock held, like a bug in the engine: for tests of bindings.
    #[cfg(debug_assertions)]
    #[doc(hidden)]
    pub fn panic_on_purpose(&self) {
        let _nic = self.shared().nic();
        panic!("on purpose, with the engine's lock held");
    }

    /// Whether the device has failed; see [`Device::fail`].
    #[inline]
    pub fn has_failed(&self) -> bool {
        self.shared().failed.load(Ordering::Relaxed)
    }

    /// Whether this process is a child of `fork` of the process that opened the device. A child
    /// cannot use the device.
    pub fn is_left(&self) -> bool {
        self.shared().process.is_left()
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.0.shared
    }

    /// Whether both handles refer to the same device.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Whether objects of the device (or other handles to it) exist.
    pub fn in_use(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    /// Settings of this host that slow the device down, each with the command that corrects it.
    pub fn warnings(&self) -> &[String] {
        &self.0.warnings
    }

    /// What the device does about sealing: `None` if it does not seal.
    ///
    /// # Errors
    /// The device is not usable.
    pub fn seal(&self) -> Result<Option<crate::SealStatus>, Error> {
        Ok(self.shared().nic()?.seal.as_ref().map(|seal| seal.status()))
    }

    /// Limits and capabilities of the device.
    pub fn attr(&self) -> &DeviceAttr {
        &self.shared().attr
    }

    /// The device's port: MTU, addresses.
    pub fn port(&self) -> &PortAttr {
        &self.shared().port
    }

    /// Address of this device, which peers pass to [`ProtectionDomain::ah_create`].
    pub fn ip(&self) -> IpAddr {
        self.shared().port.ip
    }

    /// The address as a GID.
    pub fn gid(&self) -> [u8; 16] {
        self.shared().port.gid
    }

    /// Largest message in bytes: the device MTU.
    pub fn mtu(&self) -> usize {
        self.shared().port.max_msg_sz as usize
    }

    /// Engine slot: the high byte of every QPN of this device.
    pub fn slot(&self) -> u8 {
        self.shared().slot
    }

    /// Makes a protection domain.
    ///
    /// # Errors
    /// The table is full, or the device is not usable.
    pub fn pd_create(&self) -> Result<ProtectionDomain, Error> {
        ProtectionDomain::create(self)
    }

    /// Makes a completion queue of `depth` slots without a channel.
    ///
    /// # Errors
    /// As [`Device::cq_create_ex`].
    pub fn cq_create(&self, depth: u32) -> Result<CompletionQueue, Error> {
        self.cq_create_ex(&CqInit { depth, channel: None, context: 0 })
    }

    /// Makes a completion queue.
    ///
    /// # Errors
    /// A depth of 0 or above `max_cqe`, a full table, or a device that is not usable.
    pub fn cq_create_ex(&self, init: &CqInit<'_>) -> Result<CompletionQueue, Error> {
        CompletionQueue::create(self, init)
    }

    /// Makes a completion channel.
    ///
    /// # Errors
    /// No file descriptor is left, or the device is not usable.
    pub fn channel_create(&self) -> Result<CompletionChannel, Error> {
        self.shared().check()?;
        CompletionChannel::new(self.clone())
    }

    /// Takes one turn of the engine: takes posts, receives, sends, delivers completions. Returns
    /// whether anything was done. Does nothing while another thread drives the engine.
    ///
    /// Needed with [`Progress::Caller`]; allowed if a thread of the device drives the engine.
    ///
    /// # Errors
    /// In a child of `fork`, or when the device is shut down.
    pub fn progress(&self) -> Result<bool, Error> {
        let shared = self.shared();
        shared.check()?;
        let Some(mut nic) = shared.try_nic() else { return Ok(false) };
        Ok(nic.turn(shared) != Turn::default())
    }

    /// Sleeps up to `timeout` (`None` = no limit) until there may be something to do, then takes a
    /// turn. For callers that drive the device and have nothing else to do.
    ///
    /// # Errors
    /// As [`Device::progress`].
    pub fn wait(&self, timeout: Option<Duration>) -> Result<bool, Error> {
        let shared = self.shared();
        shared.check()?;
        let deadline = timeout.map(|t| Instant::now() + t);
        let Some(mut nic) = shared.try_nic() else {
            // Another thread drives. Check again soon, since it may stop driving.
            std::thread::sleep(timeout.map_or(thread::HANDOVER, |t| t.min(thread::HANDOVER)));
            return Ok(false);
        };
        let left = deadline.map(|d| d.saturating_duration_since(Instant::now()));
        shared.sleep(&mut nic, left);
        Ok(nic.turn(shared) != Turn::default())
    }

    /// The oldest asynchronous event, if there is one.
    pub fn event_get(&self) -> Option<AsyncEvent> {
        self.shared().events.pop()
    }

    /// A descriptor that is readable while asynchronous events are pending.
    pub fn event_fd(&self) -> BorrowedFd<'_> {
        self.shared().events.fd()
    }

    /// Counters of the engine, the datapath and the device since it was opened.
    ///
    /// # Errors
    /// As [`Device::progress`].
    pub fn counters(&self) -> Result<DeviceCounters, Error> {
        let shared = self.shared();
        let nic = shared.nic()?;
        Ok(DeviceCounters::collect(&nic, shared.events.dropped()))
    }

    /// The paths to an address, one entry per path; empty if no packet was ever sent to the
    /// address.
    ///
    /// # Errors
    /// As [`Device::progress`].
    pub fn path_stats(&self, ip: IpAddr) -> Result<Vec<PathStats>, Error> {
        Ok(self.shared().nic()?.engine.path_stats(ip))
    }

    /// State, outstanding requests, rate and RTT of each peer engine.
    ///
    /// # Errors
    /// As [`Device::progress`].
    pub fn context_stats(&self) -> Result<Vec<ContextStats>, Error> {
        Ok(self.shared().nic()?.engine.context_stats())
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shared = self.shared();
        f.debug_struct("Device")
            .field("ip", &shared.port.ip)
            .field("slot", &shared.slot)
            .field("mtu", &shared.port.max_msg_sz)
            .finish_non_exhaustive()
    }
}
