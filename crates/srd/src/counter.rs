//! Completion counters: how many requests of the attached queue pairs have ended, by operation. A
//! program that only needs the number reads a counter instead of polling a completion queue.

use crate::{CompletionOp, Device, Error, QueuePair, driving::drive_all, sync::lock};
use srd_core::{QpState, Status};
use std::{
    ptr::NonNull,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
};

/// Completion counters of one device. Each takes some 100 bytes; the limit keeps a program that
/// creates them without end from filling memory.
pub const COUNTERS_MAX: u32 = 1024;

/// An operation of a queue pair that a [`CompletionCounter`] counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CountedOp {
    /// Messages sent.
    Send,
    /// Posted receives, whether a message or a peer's write with immediate consumed them.
    Recv,
    /// RDMA reads that this queue pair requested.
    Read,
    /// RDMA writes that this queue pair requested, with immediate or without.
    Write,
}

/// Number of the operations.
const OPS: usize = 4;

impl CountedOp {
    /// The operation whose counter a completion changes. An unsolicited write with immediate ends
    /// no request.
    #[inline]
    const fn of(op: CompletionOp) -> Option<Self> {
        match op {
            CompletionOp::Send => Some(Self::Send),
            CompletionOp::Recv | CompletionOp::RecvRdmaImm => Some(Self::Recv),
            CompletionOp::Read => Some(Self::Read),
            CompletionOp::Write => Some(Self::Write),
            CompletionOp::RecvUnsolicited => None,
        }
    }
}

/// Where one of the two numbers is.
#[derive(Debug)]
enum Cell {
    Own(AtomicU64),
    /// In the program's memory.
    Outside(NonNull<AtomicU64>),
}

// SAFETY: whoever passed the memory promised that it is valid as long as the counter or a queue
// pair uses it; it is accessed by atomic operations only.
unsafe impl Send for Cell {}
// SAFETY: as above.
unsafe impl Sync for Cell {}

impl Cell {
    /// A number that is 0 now.
    fn new(memory: Option<NonNull<u64>>) -> Self {
        let Some(memory) = memory else { return Self::Own(AtomicU64::new(0)) };
        let cell = Self::Outside(memory.cast());
        cell.get().store(0, Ordering::Release);
        cell
    }

    #[inline]
    fn get(&self) -> &AtomicU64 {
        match self {
            Self::Own(cell) => cell,
            // SAFETY: see the implementation of `Send`.
            Self::Outside(cell) => unsafe { cell.as_ref() },
        }
    }
}

/// The numbers of a counter, shared with the queue pairs that it is attached to.
#[derive(Debug)]
pub(crate) struct CounterCore {
    completions: Cell,
    errors: Cell,
    /// Queue pairs that it is attached to, each as often as it was attached.
    attached: AtomicU32,
    /// The shards of these queue pairs, and of earlier ones: one bit each.
    shards: AtomicU64,
}

/// The counters of one queue pair, by operation. Set once, under the lock of its shard.
#[derive(Debug, Default)]
pub(crate) struct QpCounters([OnceLock<Arc<CounterCore>>; OPS]);

impl QpCounters {
    /// Counts a completion. Its data is in memory, and it is not in its queue yet: a thread that
    /// sees the number finds the data, and one that polls the completion finds it counted.
    #[inline]
    pub(crate) fn count(&self, op: CompletionOp, status: Status) {
        let Some(op) = CountedOp::of(op) else { return };
        if let Some(counter) = self.0[op as usize].get() {
            let ok = status == Status::Ok;
            let cell = if ok { &counter.completions } else { &counter.errors };
            cell.get().fetch_add(1, Ordering::Release);
        }
    }
}

/// A counter's hold on a queue pair, until the queue pair is gone.
#[derive(Debug)]
pub(crate) struct Attached(Arc<CounterCore>);

impl Drop for Attached {
    fn drop(&mut self) {
        self.0.attached.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Counts the requests of queue pairs that have ended: one number of those that succeeded, one of
/// those that failed or were flushed. Both have 64 bits and wrap around. Requests that end without
/// a completion, because their queue pair is reset or destroyed, are not counted.
///
/// The numbers change when requests end, whether or not their completions are polled; the
/// completions are still to be polled, since they occupy slots of their queue. All functions may be
/// called by several threads at once.
///
/// ```
/// use srd::{CountedOp, Device, DeviceConfig, QKey, QpInit};
///
/// let device = Device::open(DeviceConfig::loopback())?;
/// let (pd, cq) = (device.pd_create()?, device.cq_create(64)?);
/// let qp = pd.qp_create(&QpInit::srd(&cq, &cq))?;
/// let sends = device.counter_create()?;
/// qp.counter_attach(&sends, &[CountedOp::Send, CountedOp::Write])?;
/// qp.activate(QKey(0x11))?;
/// assert_eq!((sends.completions(), sends.errors()), (0, 0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct CompletionCounter {
    device: Device,
    core: Arc<CounterCore>,
    /// Sum of both numbers when [`CompletionCounter::progress`] last looked.
    seen: AtomicU64,
}

impl Device {
    /// Makes a completion counter. Both its numbers are 0.
    ///
    /// # Errors
    /// There are [`COUNTERS_MAX`] already, or the device is not usable.
    pub fn counter_create(&self) -> Result<CompletionCounter, Error> {
        CompletionCounter::create(self, [None; 2])
    }

    /// Makes a completion counter whose number of completions, or of errors, or both, lie in memory
    /// of the caller, who may read them there without a call. They are set to 0.
    ///
    /// # Errors
    /// As [`Device::counter_create`]; also when the memory is not aligned to 8 bytes.
    ///
    /// # Safety
    /// The memory stays valid until the counter and all queue pairs that it was attached to are
    /// dropped, and is accessed only by atomic operations.
    pub unsafe fn counter_create_in(
        &self,
        completions: Option<NonNull<u64>>,
        errors: Option<NonNull<u64>>,
    ) -> Result<CompletionCounter, Error> {
        CompletionCounter::create(self, [completions, errors])
    }
}

impl CompletionCounter {
    fn create(device: &Device, memory: [Option<NonNull<u64>>; 2]) -> Result<Self, Error> {
        let shared = device.shared();
        shared.check()?;
        if memory.iter().flatten().any(|place| !place.is_aligned()) {
            return Err(Error::Invalid("a counter's memory must be aligned to 8 bytes"));
        }
        let one_more = |n: u32| (n < COUNTERS_MAX).then_some(n + 1);
        let number = &shared.common.counters;
        if number.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more).is_err() {
            return Err(Error::NoRoom("completion counter"));
        }
        let [completions, errors] = memory.map(Cell::new);
        let (attached, shards) = (AtomicU32::new(0), AtomicU64::new(0));
        let core = Arc::new(CounterCore { completions, errors, attached, shards });
        Ok(Self { device: device.clone(), core, seen: AtomicU64::new(0) })
    }

    /// Requests that ended with success, plus what [`CompletionCounter::add`] added.
    #[inline]
    pub fn completions(&self) -> u64 {
        self.core.completions.get().load(Ordering::Acquire)
    }

    /// Requests that ended with an error.
    #[inline]
    pub fn errors(&self) -> u64 {
        self.core.errors.get().load(Ordering::Acquire)
    }

    /// Sets the number of completions. Requests that end at the same time may or may not be in it.
    pub fn set(&self, value: u64) {
        self.core.completions.get().store(value, Ordering::Release);
    }

    /// Sets the number of errors, as [`CompletionCounter::set`].
    pub fn set_errors(&self, value: u64) {
        self.core.errors.get().store(value, Ordering::Release);
    }

    /// Adds to the number of completions. Nothing that is counted at the same time is lost.
    pub fn add(&self, amount: u64) {
        self.core.completions.get().fetch_add(amount, Ordering::AcqRel);
    }

    /// Adds to the number of errors.
    pub fn add_errors(&self, amount: u64) {
        self.core.errors.get().fetch_add(amount, Ordering::AcqRel);
    }

    /// Drives the engines of the attached queue pairs as a poll of an empty completion queue does,
    /// if neither number has changed since the last call. A program that only reads counters calls
    /// this before each read; without it, the device's thread drives a little later.
    ///
    /// # Errors
    /// In a child of `fork`. When the device is shut down there is nothing to do.
    pub fn progress(&self) -> Result<(), Error> {
        let sum = || self.completions().wrapping_add(self.errors());
        let now = sum();
        if self.seen.swap(now, Ordering::Relaxed) != now {
            return Ok(());
        }
        match self.device.check_poll() {
            Err(Error::Forked) => return Err(Error::Forked),
            Err(_) => {}
            Ok(()) => {
                drive_all(self.device.shards(), self.core.shards.load(Ordering::Acquire), true);
            }
        }
        self.seen.store(sum(), Ordering::Relaxed);
        Ok(())
    }

    /// Whether a queue pair refers to it.
    pub fn in_use(&self) -> bool {
        self.core.attached.load(Ordering::Acquire) > 0
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.device
    }
}

impl Drop for CompletionCounter {
    fn drop(&mut self) {
        self.device.shared().common.counters.fetch_sub(1, Ordering::AcqRel);
    }
}

impl QueuePair {
    /// From now on the counter counts these operations of the queue pair, until the queue pair is
    /// destroyed. A counter may have several queue pairs and operations, but an operation of a
    /// queue pair has one counter at most.
    ///
    /// # Errors
    /// The queue pair is neither in RESET nor in INIT; no operation is named; one of them has a
    /// counter ([`Error::Busy`]); the counter belongs to another device; or the device is not
    /// usable.
    pub fn counter_attach(
        &self,
        counter: &CompletionCounter,
        ops: &[CountedOp],
    ) -> Result<(), Error> {
        if !counter.device.is_same(self.device()) {
            return Err(Error::Invalid("the counter belongs to another device"));
        }
        if ops.is_empty() {
            return Err(Error::Invalid("no operation to count"));
        }
        // Under the lock, neither the state changes nor does another thread attach a counter.
        let _nic = self.shard.nic()?;
        if !matches!(self.core.state(), QpState::Reset | QpState::Init) {
            return Err(Error::Invalid("counters are attached in RESET or INIT"));
        }
        let places = || ops.iter().map(|op| &self.core.counters.0[*op as usize]);
        if places().any(|place| place.get().is_some()) {
            return Err(Error::Busy("the operation has a counter"));
        }
        counter.core.shards.fetch_or(1 << self.shard.index, Ordering::AcqRel);
        counter.core.attached.fetch_add(1, Ordering::AcqRel);
        lock(&self.attached).push(Attached(Arc::clone(&counter.core)));
        for place in places() {
            // An operation that is named twice is counted once.
            let _ = place.set(Arc::clone(&counter.core));
        }
        Ok(())
    }
}
