//! Completion queues: creation, and polling by arrays of work completions.

use crate::{
    abi::{efadv_cq, ibv_comp_channel, ibv_context, ibv_cq, ibv_cq_ex, ibv_pd, ibv_wc},
    channel::Channel,
    context::Context,
    cq_ex, errno,
    num::{
        IBV_WC_BAD_RESP_ERR, IBV_WC_GRH, IBV_WC_LOC_LEN_ERR, IBV_WC_LOC_PROT_ERR,
        IBV_WC_LOC_QP_OP_ERR, IBV_WC_RDMA_WRITE, IBV_WC_RECV, IBV_WC_RECV_RDMA_WITH_IMM,
        IBV_WC_REM_ABORT_ERR, IBV_WC_REM_ACCESS_ERR, IBV_WC_REM_INV_RD_REQ_ERR,
        IBV_WC_REM_INV_REQ_ERR, IBV_WC_REM_OP_ERR, IBV_WC_RESP_TIMEOUT_ERR,
        IBV_WC_RNR_RETRY_EXC_ERR, IBV_WC_SEND, IBV_WC_SUCCESS, IBV_WC_WITH_IMM,
        IBV_WC_WR_FLUSH_ERR, int,
    },
    opened::Opened,
    pd::{Pd, next_handle},
    unpolled::Polled,
};
use libc::{c_int, c_void};
use srd::{CompletionOp, CompletionQueue, CqInit, Qpn, Status, WorkCompletion};
use srd_guard::guarded;
use std::{
    cell::UnsafeCell,
    ptr,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicUsize, Ordering},
    },
    time::Duration,
};

/// Completions taken from the device in one batch.
pub(crate) const BATCH: usize = 16;

/// Least depth of a queue. Verbs lets a program post more than its completion queue holds if it
/// polls in time; here each post reserves a slot.
const DEPTH_MIN: u32 = 1024;

/// A completion queue.
#[repr(C)]
pub(crate) struct Cq {
    pub base: ibv_cq_ex,
    pub efadv: efadv_cq,
    pub cq: CompletionQueue,
    /// Guards `taken`; held from `start_poll` to `end_poll`. A program may arm the queue, or
    /// destroy a queue pair, in the middle of a poll.
    lock: CallLock,
    taken: UnsafeCell<Taken>,
    channel: *mut ibv_comp_channel,
    /// The parent domain it was created in, or null.
    domain: *mut ibv_pd,
    pub opened: Arc<Opened>,
    events_sent: AtomicU32,
    events_acked: AtomicU32,
}

/// Completions taken from the device but not yet polled by the program.
#[derive(Default)]
pub(crate) struct Taken {
    batch: [WorkCompletion; BATCH],
    next: usize,
    len: usize,
    /// The completion whose fields the program is reading.
    pub current: WorkCompletion,
}

impl Taken {
    /// The oldest completion. If none is left, polls the device. If `more` says that this poll
    /// already returned a completion, takes only those that are ready: a full turn, which reads the
    /// network, would delay that completion.
    #[inline]
    pub(crate) fn take(
        &mut self,
        cq: &CompletionQueue,
        polled: &Polled,
        more: bool,
    ) -> Option<WorkCompletion> {
        if self.next == self.len {
            let taken =
                if more { cq.poll_waiting(&mut self.batch) } else { cq.poll(&mut self.batch) };
            (self.next, self.len) = (0, taken.unwrap_or(0));
            if self.len == 0 {
                return None;
            }
        } else if !more {
            cq.posts_flush();
        }
        self.next += 1;
        let taken = self.batch[self.next - 1];
        polled.add(&taken);
        Some(taken)
    }

    fn forget(&mut self, qpn: Qpn) {
        let mut kept = 0;
        for i in self.next..self.len {
            if self.batch[i].qpn != qpn {
                self.batch[kept] = self.batch[i];
                kept += 1;
            }
        }
        (self.next, self.len) = (0, kept);
    }
}

impl Cq {
    /// # Safety
    /// `cq` was created here and is not destroyed.
    pub(crate) unsafe fn of<'a>(cq: *mut ibv_cq) -> &'a Self {
        // SAFETY: such pointers are to the first field of the first field.
        unsafe { &*cq.cast::<Self>() }
    }

    /// Takes the lock; `None` if this thread holds it already, in the middle of a poll.
    #[inline]
    pub(crate) fn locked(&self) -> Option<Locked<'_>> {
        self.lock.lock(|| self.opened.device.is_left()).then(|| Locked(self))
    }

    /// Does something with what the lock protects, also in the middle of a poll of this thread.
    fn with_taken<R>(&self, f: impl FnOnce(&mut Taken) -> R) -> R {
        let locked = self.locked();
        // SAFETY: this thread holds the lock, by this call or since `start_poll`, and no other
        // reference is used meanwhile.
        let result = f(unsafe { self.held() });
        drop(locked);
        result
    }

    /// What the lock protects, while this thread holds it.
    ///
    /// # Safety
    /// This thread holds the lock.
    #[inline]
    #[expect(clippy::mut_from_ref, reason = "the lock makes it exclusive")]
    pub(crate) unsafe fn held(&self) -> &mut Taken {
        // SAFETY: required of the caller.
        unsafe { &mut *self.taken.get() }
    }

    /// Ends a poll; without effect if there is none.
    #[inline]
    pub(crate) fn unlock(&self) {
        self.lock.unlock();
    }

    /// Completions taken from the device that the program has not polled.
    pub(crate) fn unread(&self) -> usize {
        self.with_taken(|taken| taken.len - taken.next)
    }

    /// Drops the completions of a queue pair that is being destroyed.
    pub(crate) fn forget(&self, qpn: Qpn) {
        self.with_taken(|taken| taken.forget(qpn));
    }

    /// Counts an event of this queue that the program received.
    pub(crate) fn event_sent(&self) {
        self.events_sent.fetch_add(1, Ordering::Release);
    }

    /// Counts `n` events that the program acknowledged.
    pub(crate) fn events_ack(&self, n: u32) {
        self.events_acked.fetch_add(n, Ordering::Release);
    }
}

/// A queue's lock, held.
pub(crate) struct Locked<'a>(&'a Cq);

impl Locked<'_> {
    /// What the lock protects.
    #[inline]
    pub(crate) fn taken(&mut self) -> &mut Taken {
        // SAFETY: this thread holds the lock.
        unsafe { self.0.held() }
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.0.unlock();
    }
}

/// Creates a completion queue, for both polling interfaces.
///
/// # Safety
/// The context is open; `channel` is null or a live channel, `domain` null or a live domain.
pub(crate) unsafe fn create(
    context: *mut ibv_context,
    cqe: u32,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    comp_vector: u32,
    domain: *mut ibv_pd,
) -> *mut Cq {
    // SAFETY: the context is open.
    let of = unsafe { Context::of(context) };
    // SAFETY: as above.
    let vectors = unsafe { (*context).num_comp_vectors } as u32;
    if cqe == 0 || cqe > of.opened.device.attr().max_cqe || comp_vector >= vectors {
        return errno::null(libc::EINVAL);
    }
    let depth = cqe.max(DEPTH_MIN).next_power_of_two().min(of.opened.device.attr().max_cqe);
    // SAFETY: null or a live channel.
    let told = unsafe { Channel::of(channel) };
    let handle = next_handle();
    let mut cq = Box::new_uninit();
    // Its address identifies the queue in events.
    let place: *mut Cq = cq.as_mut_ptr();
    let init = CqInit { depth, channel: told.map(|c| &c.channel), context: place.addr() as u64 };
    let made = match of.opened.device.cq_create_ex(&init) {
        Ok(made) => made,
        Err(e) => return errno::null(e.errno()),
    };
    if let Some(channel) = told {
        channel.refer();
    }
    // SAFETY: null or a live domain.
    if let Some(domain) = unsafe { domain.cast::<Pd>().as_ref() } {
        domain.refer();
    }
    cq.write(Cq {
        base: cq_ex::table(ibv_cq {
            context,
            channel,
            cq_context,
            handle,
            cqe: depth as c_int,
            mutex: libc::PTHREAD_MUTEX_INITIALIZER,
            cond: libc::PTHREAD_COND_INITIALIZER,
            comp_events_completed: 0,
            async_events_completed: 0,
        }),
        efadv: cq_ex::EFADV,
        cq: made,
        lock: CallLock::new(),
        taken: UnsafeCell::default(),
        channel,
        domain,
        opened: Arc::clone(&of.opened),
        events_sent: AtomicU32::new(0),
        events_acked: AtomicU32::new(0),
    });
    // SAFETY: just written.
    Box::into_raw(unsafe { cq.assume_init() })
}

/// # Safety
/// As the verbs manual page requires.
#[unsafe(no_mangle)]
#[guarded]
pub unsafe extern "C" fn ibv_create_cq(
    context: *mut ibv_context,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    comp_vector: c_int,
) -> *mut ibv_cq {
    let (Ok(cqe), Ok(vector)) = (u32::try_from(cqe), u32::try_from(comp_vector)) else {
        return errno::null(libc::EINVAL);
    };
    // SAFETY: required of the caller.
    unsafe { create(context, cqe, cq_context, channel, vector, ptr::null_mut()) }.cast()
}

/// Waits, as verbs requires, until every event of the queue was acknowledged.
///
/// # Safety
/// As the verbs manual page requires.
#[unsafe(no_mangle)]
#[guarded]
pub unsafe extern "C" fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int {
    // SAFETY: a live queue.
    let this = unsafe { Cq::of(cq) };
    if this.cq.in_use() {
        return libc::EBUSY;
    }
    // From here on no event is taken; every event taken before is counted.
    this.cq.events_forget();
    while this.events_acked.load(Ordering::Acquire) != this.events_sent.load(Ordering::Acquire) {
        std::thread::sleep(Duration::from_micros(100));
    }
    // SAFETY: null or a live channel.
    let channel = unsafe { Channel::of(this.channel) };
    // SAFETY: null or a live domain.
    let domain = unsafe { this.domain.cast::<Pd>().as_ref() };
    // SAFETY: it came from `create`.
    drop(unsafe { Box::from_raw(cq.cast::<Cq>()) });
    if let Some(channel) = channel {
        channel.unrefer();
    }
    if let Some(domain) = domain {
        domain.unrefer();
    }
    0
}

/// Resizing is not supported: a queue keeps its depth.
#[unsafe(no_mangle)]
#[guarded]
pub extern "C" fn ibv_resize_cq(_cq: *mut ibv_cq, _cqe: c_int) -> c_int {
    libc::EOPNOTSUPP
}

/// `ibv_poll_cq`.
///
/// # Safety
/// As the verbs manual page requires.
#[guarded(-1)]
pub(crate) unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, max: c_int, wc: *mut ibv_wc) -> c_int {
    // SAFETY: a live queue.
    let this = unsafe { Cq::of(cq) };
    // In the middle of a poll of this thread, EFA's library would wait for ever.
    let Some(mut locked) = this.locked() else { return errno::minus_one(libc::EDEADLK) };
    let mut n = 0;
    while n < max
        && let Some(completion) = locked.taken().take(&this.cq, &this.opened.polled, n > 0)
    {
        // SAFETY: the caller has room for `max`.
        unsafe { wc.add(n as usize).write(plain(&completion, &this.opened)) };
        n += 1;
    }
    drop(locked);
    if n == 0 && max > 0 && this.opened.device.has_failed() {
        return errno::minus_one(libc::EIO);
    }
    n
}

/// A completion in the format of verbs.
fn plain(c: &WorkCompletion, opened: &Opened) -> ibv_wc {
    ibv_wc {
        wr_id: c.wr_id,
        status: status(c.status),
        opcode: opcode(c.op),
        vendor_err: vendor_err(c.status),
        byte_len: c.byte_len,
        imm_data: c.imm.unwrap_or(0).to_be(),
        qp_num: u32::from(c.qpn.0),
        src_qp: u32::from(c.src_qpn.0),
        wc_flags: wc_flags(c),
        pkey_index: 0,
        slid: opened.ah_of(c).0,
        sl: 0,
        dlid_path_bits: 0,
    }
}

/// `enum ibv_wc_status`, mapped from the device's codes as in EFA's library.
pub(crate) const fn status(status: Status) -> c_int {
    int(match status {
        Status::Ok => IBV_WC_SUCCESS,
        Status::Flushed => IBV_WC_WR_FLUSH_ERR,
        Status::LocalQpInternalError | Status::LocalUnsupportedOp | Status::LocalInvalidAh => {
            IBV_WC_LOC_QP_OP_ERR
        }
        Status::LocalInvalidLkey => IBV_WC_LOC_PROT_ERR,
        Status::LocalBadLength => IBV_WC_LOC_LEN_ERR,
        Status::RemoteBadAddress => IBV_WC_REM_ACCESS_ERR,
        Status::RemoteAbort => IBV_WC_REM_ABORT_ERR,
        Status::RemoteBadDestQpn => IBV_WC_REM_INV_RD_REQ_ERR,
        Status::RemoteRnr => IBV_WC_RNR_RETRY_EXC_ERR,
        Status::RemoteBadLength | Status::RemoteFeatureMismatch => IBV_WC_REM_INV_REQ_ERR,
        Status::RemoteBadStatus => IBV_WC_BAD_RESP_ERR,
        Status::LocalUnrespRemote | Status::LocalUnreachRemote => IBV_WC_RESP_TIMEOUT_ERR,
        Status::RemoteUnknownPeer => IBV_WC_REM_OP_ERR,
    })
}

/// The device's own status code, with EFA's values.
pub(crate) const fn vendor_err(status: Status) -> u32 {
    status as u32
}

/// `enum ibv_wc_opcode`. Reads are reported as sends, as in EFA's library and as libfabric expects.
pub(crate) const fn opcode(op: CompletionOp) -> c_int {
    int(match op {
        CompletionOp::Send | CompletionOp::Read => IBV_WC_SEND,
        CompletionOp::Write => IBV_WC_RDMA_WRITE,
        CompletionOp::Recv => IBV_WC_RECV,
        CompletionOp::RecvRdmaImm | CompletionOp::RecvUnsolicited => IBV_WC_RECV_RDMA_WITH_IMM,
    })
}

/// `enum ibv_wc_flags`.
pub(crate) fn wc_flags(c: &WorkCompletion) -> u32 {
    let imm = if c.imm.is_some() { IBV_WC_WITH_IMM } else { 0 };
    (imm | if c.grh { IBV_WC_GRH } else { 0 }) as u32
}

/// A lock between calls. Unlike the C library's, it refuses a thread that holds it already instead
/// of making it wait for ever; and unlike those that check errors, any thread may unlock it, since
/// runtimes move a function from thread to thread between two calls.
#[derive(Debug)]
pub(crate) struct CallLock {
    mutex: UnsafeCell<libc::pthread_mutex_t>,
    /// [`me`] of the thread that holds it, or 0.
    owner: AtomicUsize,
    /// Process that took it over from a thread of its parent, or 0.
    heir: AtomicU32,
}

// SAFETY: all threads may use a mutex.
unsafe impl Send for CallLock {}
// SAFETY: as above.
unsafe impl Sync for CallLock {}

impl CallLock {
    pub(crate) const fn new() -> Self {
        let mutex = UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER);
        Self { mutex, owner: AtomicUsize::new(0), heir: AtomicU32::new(0) }
    }

    /// Takes it; false if this thread holds it already. It must not be moved any more. `left`:
    /// whether this process is a child of `fork`, in which the thread that holds it may not exist.
    #[inline]
    pub(crate) fn lock(&self, left: impl FnOnce() -> bool) -> bool {
        // Only this thread stores its own number, so it sees the newest value if it is that.
        if self.owner.load(Ordering::Relaxed) == me() {
            return false;
        }
        // SAFETY: the mutex was initialised.
        let taken = unsafe { libc::pthread_mutex_trylock(self.mutex.get()) } == 0;
        if !(taken || left() && self.take_over()) {
            // SAFETY: as above.
            unsafe { libc::pthread_mutex_lock(self.mutex.get()) };
        }
        self.owner.store(me(), Ordering::Relaxed);
        true
    }

    /// A child of `fork` finds it held: the first thread to do so takes the place of the parent's
    /// thread, which will never give it back. Others wait for that one. What the lock protects may
    /// be half changed: numbers and copies of completions, whose bounds each use checks.
    #[cold]
    fn take_over(&self) -> bool {
        let (own, before) = (std::process::id(), self.heir.load(Ordering::Relaxed));
        let (order, fail) = (Ordering::AcqRel, Ordering::Relaxed);
        before != own && self.heir.compare_exchange(before, own, order, fail).is_ok()
    }

    /// Gives it back; without effect if nobody holds it.
    #[inline]
    pub(crate) fn unlock(&self) {
        if self.owner.swap(0, Ordering::Relaxed) != 0 {
            // SAFETY: somebody holds it, and only the first of those who give it back comes here.
            unsafe { libc::pthread_mutex_unlock(self.mutex.get()) };
        }
    }
}

/// A number that no other thread of now has, and not 0.
#[inline]
fn me() -> usize {
    thread_local!(static HERE: u8 = const { 0 });
    HERE.with(|here| ptr::from_ref(here).addr())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completions_of_a_queue_pair_that_goes_are_dropped_and_the_rest_keeps_its_order() {
        let mut taken = Taken::default();
        for (i, qpn) in [7, 1, 2, 1, 3].into_iter().enumerate() {
            taken.batch[i] =
                WorkCompletion { qpn: Qpn(qpn), wr_id: i as u64, ..WorkCompletion::default() };
        }
        (taken.next, taken.len) = (1, 5);
        taken.forget(Qpn(1));
        let left: Vec<_> = taken.batch[taken.next..taken.len].iter().map(|c| c.wr_id).collect();
        assert_eq!(left, [2, 4]);
    }

    #[test]
    fn statuses_are_those_of_efa() {
        assert_eq!(status(Status::RemoteRnr), int(IBV_WC_RNR_RETRY_EXC_ERR));
        assert_eq!(
            (vendor_err(Status::RemoteRnr), vendor_err(Status::LocalUnreachRemote)),
            (10, 15)
        );
        assert_eq!(vendor_err(Status::RemoteFeatureMismatch), 18);
    }

    /// Whether another thread waits for the lock, which this one holds, and has it then.
    fn makes_wait(lock: &CallLock, left: bool) -> bool {
        std::thread::scope(|scope| {
            let other = scope.spawn(|| lock.lock(|| left));
            std::thread::sleep(std::time::Duration::from_millis(20));
            let waits = !other.is_finished();
            lock.unlock();
            waits && other.join().unwrap()
        })
    }

    #[test]
    fn it_refuses_its_owner_and_anybody_may_give_it_back() {
        let lock = CallLock::new();
        lock.unlock();
        assert!(lock.lock(|| false) && !lock.lock(|| false));
        std::thread::scope(|scope| {
            scope.spawn(|| lock.unlock());
        });
        lock.unlock();
        assert!(lock.lock(|| false), "free again, and given back once");
        assert!(makes_wait(&lock, false), "another thread waits, and has it then");
    }
    #[test]
    fn a_child_takes_it_over_from_a_thread_that_it_does_not_have() {
        let lock = CallLock::new();
        std::thread::scope(|scope| {
            scope.spawn(|| assert!(lock.lock(|| unreachable!("it is free"))));
        });
        assert!(lock.lock(|| true), "nobody gives it back");
        assert!(makes_wait(&lock, true), "from a thread of its own it takes nothing");
    }
}
