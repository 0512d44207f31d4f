//! Changes of the states of paths, for programs that subscribe to them.
//!
//! The engine tells its observer each change. Without a subscription, that costs one read per
//! change and nothing per packet.

use crate::{
    device::Device,
    error::Error,
    eventfd::{EventFd, poll_readable},
    sync::lock,
    tasks::Tasks,
    thread::deadline,
};
use arrayvec::ArrayVec;
use srd_core::{
    Time,
    events::{Event, Observer},
};
use srd_datapath::clock;
use std::{
    collections::VecDeque,
    fmt,
    net::IpAddr,
    os::fd::{AsFd, AsRawFd, BorrowedFd},
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// Most changes kept for a subscription; with more, the oldest are dropped and counted.
pub const PATH_EVENTS_MAX: usize = 1024;
/// Most subscriptions of one device.
const SUBSCRIPTIONS_MAX: usize = 16;

/// State of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PathState {
    /// In use.
    Active,
    /// Out of use after losses; the engine probes it.
    Failed,
    /// Out of use; one probe came back, and the next one decides.
    Probing,
    /// Out of use by order of an operator.
    Denied,
}

impl PathState {
    fn of(word: &str) -> Self {
        match word {
            "retired" => Self::Failed,
            "probing" => Self::Probing,
            "denied" => Self::Denied,
            _ => Self::Active,
        }
    }
}

/// A path has changed its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathEvent {
    /// When, in ns of the host's monotonic clock.
    pub at_ns: u64,
    /// Address that the path leads to.
    pub ip: IpAddr,
    /// Number of the path.
    pub path: u8,
    /// Its state before.
    pub from: PathState,
    /// Its state now.
    pub to: PathState,
}

impl PathEvent {
    /// Whether an operator has allowed the path, which was denied before.
    pub fn is_allowed(&self) -> bool {
        self.from == PathState::Denied
    }
}

/// The subscriptions of a device.
#[derive(Debug, Default)]
pub(crate) struct PathFeed {
    /// Whether there may be one.
    wanted: AtomicBool,
    list: Mutex<Vec<Weak<Queue>>>,
}

/// What waits for one subscriber.
#[derive(Debug)]
struct Queue {
    fd: EventFd,
    waiting: Mutex<VecDeque<PathEvent>>,
    missed: AtomicU64,
    /// Futures that wait for a change.
    tasks: Tasks,
}

impl Queue {
    fn push(&self, event: PathEvent) {
        let mut waiting = lock(&self.waiting);
        if waiting.len() >= PATH_EVENTS_MAX {
            // The newest state of a path matters most. The descriptor counts as many as before.
            waiting.pop_front();
            self.missed.fetch_add(1, Ordering::Relaxed);
        } else {
            self.fd.add();
        }
        waiting.push_back(event);
        drop(waiting);
        self.tasks.wake();
    }
}

impl PathFeed {
    #[cold]
    fn push(&self, event: PathEvent) {
        let mut live = ArrayVec::<Arc<Queue>, SUBSCRIPTIONS_MAX>::new();
        let mut list = lock(&self.list);
        list.retain(|queue| queue.upgrade().map(|queue| live.push(queue)).is_some());
        self.wanted.store(!list.is_empty(), Ordering::Relaxed);
        drop(list);
        // A task that is woken may subscribe at once.
        live.iter().for_each(|queue| queue.push(event));
    }

    fn subscribe(&self) -> Result<Arc<Queue>, Error> {
        let full = Error::NoRoom("subscription to changes of paths");
        let mut list = lock(&self.list);
        list.retain(|queue| queue.strong_count() > 0);
        if list.len() >= SUBSCRIPTIONS_MAX {
            return Err(full);
        }
        let (fd, missed) = (EventFd::new().map_err(|_| full)?, AtomicU64::new(0));
        let (waiting, tasks) = (Mutex::default(), Tasks::default());
        let queue = Arc::new(Queue { fd, waiting, missed, tasks });
        list.push(Arc::downgrade(&queue));
        self.wanted.store(true, Ordering::Relaxed);
        Ok(queue)
    }
}

/// The engine's observer: passes changes of paths on to those who subscribed.
#[derive(Debug)]
pub(crate) struct PathTap(pub Arc<PathFeed>);

impl Observer for PathTap {
    #[inline(always)]
    fn event(&mut self, now: Time, event: Event) {
        if let Event::Path { ip, path, from, to } = event
            && self.0.wanted.load(Ordering::Relaxed)
        {
            let at_ns = clock::origin_ns() + now.0;
            let [from, to] = [from, to].map(PathState::of);
            self.0.push(PathEvent { at_ns, ip, path, from, to });
        }
    }
}

/// A subscription to the changes of all paths of a device ([`Device::path_events`]). It ends when
/// it is dropped.
///
/// At most [`PATH_EVENTS_MAX`] changes wait; if the program takes them too late, the oldest are
/// dropped, and [`PathEvents::missed`] counts them: [`Device::path_stats`] then tells what holds.
/// It drives no device: with [`Progress::Caller`](crate::Progress::Caller) changes happen in the
/// caller's own turns.
pub struct PathEvents {
    queue: Arc<Queue>,
    #[cfg_attr(not(feature = "async"), expect(dead_code, reason = "keeps the device open"))]
    device: Device,
}

impl PathEvents {
    pub(crate) fn open(device: &Device, feed: &PathFeed) -> Result<Self, Error> {
        Ok(Self { queue: feed.subscribe()?, device: device.clone() })
    }

    /// The oldest change that waits, if there is one.
    pub fn get(&self) -> Option<PathEvent> {
        let mut waiting = lock(&self.queue.waiting);
        let event = waiting.pop_front();
        if event.is_some() {
            self.queue.fd.take();
        }
        event
    }

    /// Waits up to `timeout` for the next change, also after a signal, and if another thread takes
    /// the change that it was woken for.
    ///
    /// # Errors
    /// The kernel refuses to wait.
    pub fn wait(&self, timeout: Duration) -> std::io::Result<Option<PathEvent>> {
        let end = deadline(timeout);
        loop {
            let left =
                end.map_or(Duration::MAX, |end| end.saturating_duration_since(Instant::now()));
            // Rounded up, so that less than a millisecond is not spent in polls that do not wait.
            let ms = i32::try_from(left.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX);
            if poll_readable(self.queue.fd.as_raw_fd(), ms)?
                && let Some(event) = self.get()
            {
                return Ok(Some(event));
            }
            if left.is_zero() {
                return Ok(None);
            }
        }
    }

    /// The next change, as a future; see [`CompletionQueue::next`](crate::CompletionQueue::next).
    ///
    /// # Errors
    /// When the device is shut down and no change is left; in a child of `fork`.
    #[cfg(feature = "async")]
    pub fn next(&self) -> impl Future<Output = Result<PathEvent, Error>> + Send + Unpin + '_ {
        let device = &self.device;
        crate::tasks::next_of(device, &self.queue.tasks, move |drive| {
            device.take_driven(drive, || self.get())
        })
    }

    /// Changes that were dropped so far because too many waited.
    pub fn missed(&self) -> u64 {
        self.queue.missed.load(Ordering::Relaxed)
    }
}

impl AsFd for PathEvents {
    /// A descriptor that is readable while changes wait.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.queue.fd.as_fd()
    }
}

impl fmt::Debug for PathEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PathEvents").field("queue", &self.queue).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(path: u8) -> Event {
        let ip = IpAddr::from([10, 0, 0, 1]);
        Event::Path { ip, path, from: "retired", to: "probing" }
    }

    #[test]
    fn the_oldest_are_dropped_and_counted() {
        let feed = Arc::new(PathFeed::default());
        let mut tap = PathTap(Arc::clone(&feed));
        tap.event(Time(0), told(9));
        let (slow, quick) = (feed.subscribe().unwrap(), feed.subscribe().unwrap());
        for i in 0..PATH_EVENTS_MAX + 3 {
            tap.event(Time(i as u64), told(i as u8));
            lock(&quick.waiting).clear();
        }
        let oldest = lock(&slow.waiting)[0];
        assert_eq!(
            (oldest.path, oldest.from, oldest.to),
            (3, PathState::Failed, PathState::Probing)
        );
        assert_eq!(lock(&slow.waiting).len(), PATH_EVENTS_MAX);
        assert_eq!([&slow, &quick].map(|q| q.missed.load(Ordering::Relaxed)), [3, 0]);
        drop((slow, quick));
        tap.event(Time(0), told(0));
        assert!(!feed.wanted.load(Ordering::Relaxed) && lock(&feed.list).is_empty());
    }

    /// A waker that subscribes, as an executor does that polls a task in `wake`.
    #[cfg(feature = "async")]
    struct Subscribes(Arc<PathFeed>, std::sync::mpsc::Sender<bool>);

    #[cfg(feature = "async")]
    impl std::task::Wake for Subscribes {
        fn wake(self: Arc<Self>) {
            self.1.send(self.0.list.try_lock().is_ok() && self.0.subscribe().is_ok()).unwrap();
        }
    }

    #[test]
    #[cfg(feature = "async")]
    fn a_task_may_subscribe_when_it_is_woken() {
        let feed = Arc::new(PathFeed::default());
        let (tx, rx) = std::sync::mpsc::channel();
        let queue = feed.subscribe().unwrap();
        let waker = Arc::new(Subscribes(Arc::clone(&feed), tx)).into();
        let mut places = [crate::wakers::Place::new(&queue.tasks)];
        assert!(crate::wakers::wait(&mut places, &waker, || None::<()>).is_pending());
        PathTap(Arc::clone(&feed)).event(Time(0), told(1));
        assert_eq!(rx.try_recv(), Ok(true), "the list of subscriptions is not locked");
    }

    #[test]
    fn who_is_woken_for_nothing_waits_on() {
        let device = Device::open(crate::DeviceConfig::loopback()).unwrap();
        let events = device.path_events().unwrap();
        let (ip, limit) = (device.ip(), Duration::from_millis(400));
        let waits = || {
            let begin = Instant::now();
            (events.wait(limit).unwrap().is_some(), begin.elapsed() >= limit)
        };
        let ended: Vec<_> = std::thread::scope(|scope| {
            let all: Vec<_> = (0..4).map(|_| scope.spawn(waits)).collect();
            std::thread::sleep(limit / 4);
            let (from, to) = (PathState::Failed, PathState::Probing);
            events.queue.push(PathEvent { at_ns: 1, ip, path: 2, from, to });
            all.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(ended.iter().filter(|(found, _)| *found).count(), 1, "{ended:?}");
        assert!(ended.iter().all(|(found, late)| *found != *late), "{ended:?}");
    }

    #[test]
    fn subscriptions_are_bounded() {
        let feed = PathFeed::default();
        let mut all: Vec<_> = (0..SUBSCRIPTIONS_MAX).map(|_| feed.subscribe().unwrap()).collect();
        assert!(matches!(feed.subscribe(), Err(Error::NoRoom(_))));
        all.pop();
        feed.subscribe().unwrap();
    }
}
