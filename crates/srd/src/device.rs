//! The device: one or several shards, each an engine on a datapath, and the objects created from
//! them.

use crate::{
    AsyncEvent, CompletionChannel, CompletionQueue, CqInit, DeviceAttr, DeviceConfig, DeviceError,
    Error, PortAttr, ProtectionDomain,
    counters::DeviceCounters,
    events::EventQueue,
    nic::Turn,
    open,
    path_events::PathEvents,
    shard::Shard,
    shards::{self, Common},
    sync::lock,
    thread,
};
use srd_core::{ContextStats, path::PathStats};
use std::{
    fmt,
    net::IpAddr,
    os::fd::BorrowedFd,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

/// Owns the device; dropped with the last handle on it or on one of its objects.
pub(crate) struct Owner {
    shards: Box<[Arc<Shard>]>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    closed: AtomicBool,
    warnings: Vec<String>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        if self.shards[0].is_left() {
            // A child of `fork` has no thread of the parent and must not talk to its peers.
            self.shards.iter().for_each(|shard| std::mem::forget(Arc::clone(shard)));
            std::mem::forget(std::mem::take(&mut *lock(&self.threads)));
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
        for shard in &self.shards {
            shard.end();
            shard.waker.wake();
        }
        if self.shards.iter().any(|shard| shard.holder.is_me()) {
            // In a signal handler that interrupted a turn of this thread: the lock stays held, and
            // the device's thread may wait for it for ever.
            return;
        }
        self.shards.iter().for_each(|shard| shard.driving.callers.rest());
        let own = std::thread::current().id();
        for thread in std::mem::take(&mut *lock(&self.threads)) {
            if thread.thread().id() == own {
                // The last handle went with a task that the device's thread has woken: the thread
                // ends by itself.
                continue;
            }
            // A panic of the thread has printed its message; the device is closed either way.
            let _ = thread.join();
        }
        // Of several shards, each says goodbye in its own thread, all at the same time.
        if let [only] = &*self.shards
            && let Ok(mut nic) = only.nic_for_driver()
        {
            nic.say_goodbye(only);
        }
    }
}

/// An SRD device: engines with their sockets, and the factory of all other objects.
///
/// Cheap to clone; every object holds it, and the device closes (telling its peers) when the last
/// handle is gone. A child of `fork` cannot use it.
///
/// ```
/// use srd::{Access, Device, DeviceConfig, Progress, QKey, QpInit, RecvWr, SendWr};
/// use std::time::Duration;
///
/// // Two devices on the loopback interface; each takes a free slot.
/// let (a, b) = (Device::open(DeviceConfig::loopback())?, Device::open(DeviceConfig::loopback())?);
/// let (pd_a, pd_b) = (a.pd_create()?, b.pd_create()?);
/// let (cq_a, cq_b) = (a.cq_create(64)?, b.cq_create(64)?);
/// let qp_a = pd_a.qp_create(&QpInit::srd(&cq_a, &cq_a))?;
/// let qp_b = pd_b.qp_create(&QpInit::srd(&cq_b, &cq_b))?;
/// qp_a.activate(QKey(0x11))?;
/// qp_b.activate(QKey(0x11))?;
///
/// // B posts a receive, A sends into it.
/// let buffer = pd_b.mr_allocate(4096, Access::LOCAL_WRITE)?;
/// qp_b.post_recv(&RecvWr::recv(7).sges(&[buffer.sge(0, 4096)]))?;
/// let to_b = pd_a.ah_create(b.ip())?;
/// qp_a.post_send(&SendWr::send(1, &to_b, qp_b.qpn(), QKey(0x11)).inline(b"hello"))?;
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
        let events = EventQueue::new(watch)
            .map_err(|source| DeviceError::Os { what: "making an event counter", source })?;
        let common = Arc::new(Common::new(parts.attr, parts.port, events));
        let shard = |(index, nic)| Arc::new(Shard::new(&common, index as u8, progress, nic));
        let shards: Box<[_]> = parts.nics.into_iter().enumerate().map(shard).collect();
        common.shards_set(&shards);
        let owner = Owner {
            shards,
            threads: Mutex::default(),
            closed: AtomicBool::new(false),
            warnings: parts.warnings,
        };
        // If a thread cannot be started, the owner closes what runs.
        for shard in &owner.shards {
            let Some(manner) = thread::Manner::of(progress) else { continue };
            let thread = thread::start(Arc::clone(shard), manner)?;
            shard.driving.callers.thread_set(thread.thread().clone());
            lock(&owner.threads).push(thread);
        }
        Ok(Self(Arc::new(owner)))
    }

    /// Closes the device while objects of it may still exist, for process exit: refuses new
    /// requests, transmits what was posted, lets peers learn the result of their requests, and
    /// sends Close. That takes as long as a peer needs, at most one second. A device whose last
    /// handle is dropped closes by itself. In a child of `fork` this call does nothing.
    pub fn close(&self) {
        if !self.shared().is_left() {
            self.0.close();
        }
    }

    /// Makes the device fail, as after a panic of its engine: all requests end with status 2, the
    /// event [`AsyncEvent::DeviceFatal`] reports it, and only destroying objects still works. For
    /// callers that caught a panic of their own and cannot continue.
    pub fn fail(&self) {
        for shard in self.shards() {
            // A poisoned lock means that this was done already.
            if let Ok(mut nic) = shard.nic_to_destroy() {
                nic.fail(shard);
            }
        }
    }

    /// Panics with the engine's lock held, like a bug in the engine: for tests of bindings.
    #[cfg(debug_assertions)]
    #[doc(hidden)]
    pub fn panic_on_purpose(&self) {
        let _nic = self.shared().nic();
        panic!("on purpose, with the engine's lock held");
    }

    /// Whether the device has failed, all of it; see [`Device::fail`].
    #[inline]
    pub fn has_failed(&self) -> bool {
        self.shards().iter().all(|shard| shard.failed.load(Ordering::Relaxed))
    }

    /// Whether this process is a child of `fork` of the process that opened the device. A child
    /// cannot use the device.
    pub fn is_left(&self) -> bool {
        self.shared().is_left()
    }

    /// The first shard, for what all have in common.
    pub(crate) fn shared(&self) -> &Shard {
        &self.0.shards[0]
    }

    /// All shards, at least one.
    #[inline]
    pub(crate) fn shards(&self) -> &[Arc<Shard>] {
        &self.0.shards
    }

    /// Number of shards: engines that work at the same time, each for some of the queue pairs.
    pub fn shard_count(&self) -> usize {
        self.0.shards.len()
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
        let mut all: Option<crate::SealStatus> = None;
        for shard in self.shards() {
            let Some(one) = shard.nic()?.seal.as_ref().map(|seal| seal.status()) else { continue };
            match &mut all {
                Some(all) => all.add(one),
                None => all = Some(one),
            }
        }
        Ok(all)
    }

    /// Limits and capabilities of the device.
    pub fn attr(&self) -> &DeviceAttr {
        &self.shared().common.attr
    }

    /// The device's port: MTU, addresses.
    pub fn port(&self) -> &PortAttr {
        &self.shared().common.port
    }

    /// Address of this device, which peers pass to [`ProtectionDomain::ah_create`].
    pub fn ip(&self) -> IpAddr {
        self.shared().common.port.ip
    }

    /// The address as a GID.
    pub fn gid(&self) -> [u8; 16] {
        self.shared().common.port.gid
    }

    /// Largest message in bytes: the device MTU.
    pub fn mtu(&self) -> usize {
        self.shared().common.port.max_msg_sz as usize
    }

    /// Engine slot: the high byte of every QPN of this device; of the first shard's QPNs if it has
    /// several.
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

    /// Takes one turn of each engine: takes posts, receives, sends, delivers completions. Returns
    /// whether anything was done. Does nothing while another thread drives the engine.
    ///
    /// Needed with [`Progress::Caller`](crate::Progress::Caller); allowed if a thread of the device
    /// drives the engine.
    ///
    /// # Errors
    /// In a child of `fork`, or when the device is shut down.
    pub fn progress(&self) -> Result<bool, Error> {
        let mut done = false;
        for shard in self.shards() {
            shard.check()?;
            if let Some(mut nic) = shard.try_nic() {
                done |= nic.turn(shard) != Turn::default();
            }
        }
        Ok(done)
    }

    /// Sleeps up to `timeout` (`None` = no limit) until there may be something to do, then takes a
    /// turn. For callers that drive the device and have nothing else to do.
    ///
    /// # Errors
    /// As [`Device::progress`].
    pub fn wait(&self, timeout: Option<Duration>) -> Result<bool, Error> {
        let shared = self.shared();
        shared.check()?;
        let deadline = timeout.and_then(thread::deadline);
        let only = self.shard_count() == 1;
        let Some(mut nic) = shared.try_nic().filter(|_| only) else {
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
        self.shared().common.events.pop()
    }

    /// The next asynchronous event, as a future; see
    /// [`CompletionQueue::next`](crate::CompletionQueue::next).
    ///
    /// # Errors
    /// When the device is shut down and no event is left; in a child of `fork`.
    #[cfg(feature = "async")]
    pub fn event_next(
        &self,
    ) -> impl Future<Output = Result<AsyncEvent, Error>> + Send + Unpin + '_ {
        crate::tasks::next_of(self, &self.shared().common.events.tasks, |drive| {
            self.take_driven(drive, || self.event_get())
        })
    }

    /// What `get` finds, now or after a turn, if this is the caller's to take.
    #[cfg(feature = "async")]
    pub(crate) fn take_driven<T>(
        &self,
        drive: bool,
        get: impl Fn() -> Option<T>,
    ) -> Result<Option<T>, Error> {
        // Whatever comes before the end is seen before it.
        let alive = self.check_poll();
        if let Some(item) = get() {
            return Ok(Some(item));
        }
        alive?;
        if drive && self.shared().driving.by_caller_only() {
            self.progress()?;
            return Ok(get());
        }
        Ok(None)
    }

    /// A descriptor that is readable while asynchronous events are pending.
    pub fn event_fd(&self) -> BorrowedFd<'_> {
        self.shared().common.events.fd()
    }

    /// Subscribes to changes of the states of all paths of this device: failed, probed, in use
    /// again, denied, allowed. It begins with the next change; [`Device::path_stats`] tells what
    /// holds now.
    ///
    /// # Errors
    /// There are 16 subscriptions already, no file descriptor is left, or as [`Device::progress`].
    pub fn path_events(&self) -> Result<PathEvents, Error> {
        PathEvents::open(self, &self.shared().nic()?.feed)
    }

    /// Counters of the engines, the datapaths and the device since it was opened.
    ///
    /// # Errors
    /// As [`Device::progress`].
    pub fn counters(&self) -> Result<DeviceCounters, Error> {
        let dropped = self.shared().common.events.dropped();
        let mut all = DeviceCounters::collect(&*self.shared().nic()?, dropped);
        for shard in &self.shards()[1..] {
            all.add(&DeviceCounters::collect(&*shard.nic()?, 0));
        }
        Ok(all)
    }

    /// The paths to an address, one entry per path; empty if no packet was ever sent to the
    /// address. With several shards, an entry has the packets of all, and the state of the one that
    /// sent most.
    ///
    /// # Errors
    /// As [`Device::progress`].
    pub fn path_stats(&self, ip: IpAddr) -> Result<Vec<PathStats>, Error> {
        let mut all = Vec::new();
        for shard in self.shards() {
            shards::paths_add(&mut all, shard.nic()?.engine.path_stats(ip));
        }
        Ok(all)
    }

    /// State, outstanding requests, rate and RTT of each peer engine; with several shards, as each
    /// of them knows it.
    ///
    /// # Errors
    /// As [`Device::progress`].
    pub fn context_stats(&self) -> Result<Vec<ContextStats>, Error> {
        let mut all = Vec::new();
        for shard in self.shards() {
            all.extend(shard.nic()?.engine.context_stats());
        }
        Ok(all)
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shared = self.shared();
        f.debug_struct("Device")
            .field("ip", &shared.common.port.ip)
            .field("slot", &shared.slot)
            .field("shards", &self.shard_count())
            .field("mtu", &shared.common.port.max_msg_sz)
            .finish_non_exhaustive()
    }
}
