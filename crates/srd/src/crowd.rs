//! Whether other threads want the processor on which this thread polls.
//!
//! Where more threads poll than there are processors, each keeps its processor for a whole slice of
//! the scheduler (milliseconds) while the thread that could answer waits for one. A poll that finds
//! nothing then yields, and after a while of that sleeps until a packet arrives, so that the
//! processor goes to those who work. A yield is the cheaper of the two: nobody has to wake this
//! thread, and it is not the last in a queue of those that were woken. Where processors are free,
//! polls do neither: waking up would cost more than a round trip.
//!
//! The kernel counts for each thread how long it was ready to run and had no processor
//! (`/proc/thread-self/schedstat`, second number). A thread that has a processor of its own never
//! waits. While it sleeps between polls it still waits for a processor each time it wakes, so the
//! measure holds in both states.

use std::{cell::RefCell, fs::File, os::unix::fs::FileExt, thread, time::Duration};

/// Longest sleep in one poll. The program may wait for something else than packets of this device
/// (shared memory, another library, its own threads): that is looked at so often. A wake-up costs
/// some 5 us, 2 % of this.
pub(crate) const SLEEP_MAX: Duration = Duration::from_micros(250);

/// How long a poll sleeps that found the device's lock taken, where yields did not help: some turns
/// of its holder.
pub(crate) const LOCK_SLEEP: Duration = Duration::from_micros(20);

/// How long polls find nothing, and yield, before one of them sleeps. With four to eight ranks on
/// two processors and small messages, most answers come before that; 10 us without yields, the
/// former rule, made a third fewer rounds, and a whole millisecond no more than a tenth more.
const PATIENCE_NS: u64 = 250_000;

/// A yield that takes so long gave the processor to a thread that works for a whole slice of the
/// scheduler, perhaps for ever.
const YIELD_LONG_NS: u64 = 1_000_000;

/// For how long polls sleep rather than yield after that. Whoever is woken by a packet gets the
/// processor before such a thread; whoever yields waits for its slice (3 ms) at each message. One
/// slice of this is little.
const YIELDLESS_NS: u64 = 20_000_000;

/// How long polls find nothing before one of them sleeps in that time: as long as a wake-up takes,
/// so that at most as much is lost by sleeping as by not sleeping.
const YIELDLESS_PATIENCE_NS: u64 = 10_000;

/// How often the kernel's count is read, which costs about 1 us: shorter than the slice of the
/// scheduler (3 ms), after which a polling thread loses its processor for the first time.
const LOOK_NS: u64 = 1_000_000;

/// Share of the time without a processor from which the processors count as crowded: 1/16. The
/// kernel's own threads, interrupts and short-lived processes take less of a processor.
const CROWDED_SHARE: u64 = 16;

/// How long the processors count as crowded after they were seen to be. Several slices: the thread
/// that shares this processor may work for one without this one waiting.
const MEMORY_NS: u64 = 20_000_000;

/// What a thread knows of its processor.
#[derive(Debug, Default)]
struct Look {
    /// The kernel's count for this thread. `None`: not opened yet, or there is none.
    file: Option<File>,
    opened: bool,
    /// When the count was read last, and its value.
    read_ns: u64,
    waited_ns: u64,
    crowded_until_ns: u64,
    /// Until when polls sleep rather than yield.
    yieldless_until_ns: u64,
    /// Since when polls have found nothing.
    idle_since_ns: u64,
}

thread_local! {
    static LOOK: RefCell<Look> = RefCell::default();
}

/// What a poll that found nothing does for those who want its processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// Nothing: nobody wants it.
    Stay,
    /// It yields the processor, without holding the device's lock.
    Yield,
    /// It sleeps until a packet arrives, for [`SLEEP_MAX`] at most.
    Sleep,
}

/// Notes that a poll found nothing at this time; returns what it should do.
pub(crate) fn idle(now_ns: u64) -> Room {
    LOOK.with_borrow_mut(|look| look.idle(now_ns))
}

/// Yields the processor. The clock is that of the polls.
pub(crate) fn yield_now(clock: impl Fn() -> u64) {
    let begin_ns = clock();
    thread::yield_now();
    LOOK.with_borrow_mut(|look| look.yielded(begin_ns, clock()));
}

/// Notes that a poll found something.
#[inline]
pub(crate) fn busy() {
    LOOK.with_borrow_mut(|look| look.idle_since_ns = 0);
}

/// Makes this thread believe from now on that others want its processor.
#[cfg(test)]
pub(crate) fn this_thread_is_crowded() {
    let look = Look { opened: true, crowded_until_ns: u64::MAX, ..Look::default() };
    LOOK.set(look);
}

impl Look {
    fn idle(&mut self, now_ns: u64) -> Room {
        if self.idle_since_ns == 0 {
            self.idle_since_ns = now_ns;
        }
        if now_ns.saturating_sub(self.read_ns) >= LOOK_NS {
            self.read(now_ns);
        }
        let idle_ns = now_ns.saturating_sub(self.idle_since_ns);
        let yieldless = now_ns < self.yieldless_until_ns;
        if now_ns >= self.crowded_until_ns || (yieldless && idle_ns < YIELDLESS_PATIENCE_NS) {
            Room::Stay
        } else if !yieldless && idle_ns < PATIENCE_NS {
            Room::Yield
        } else {
            Room::Sleep
        }
    }

    /// A yield went on from one time to the other.
    fn yielded(&mut self, begin_ns: u64, end_ns: u64) {
        if end_ns.saturating_sub(begin_ns) >= YIELD_LONG_NS {
            self.yieldless_until_ns = end_ns + YIELDLESS_NS;
        }
    }

    /// Reads the kernel's count.
    fn read(&mut self, now_ns: u64) {
        if !self.opened {
            self.opened = true;
            self.file = File::open("/proc/thread-self/schedstat").ok();
        }
        let Some(waited_ns) = self.file.as_ref().and_then(waited_ns) else { return };
        self.look(now_ns, waited_ns);
    }

    /// Judges by the kernel's count.
    fn look(&mut self, now_ns: u64, waited_ns: u64) {
        let (time_ns, lost_ns) =
            (now_ns.saturating_sub(self.read_ns), waited_ns.saturating_sub(self.waited_ns));
        // The first value says nothing: it counts from the start of the thread.
        if self.read_ns > 0 && lost_ns * CROWDED_SHARE > time_ns {
            self.crowded_until_ns = now_ns + MEMORY_NS;
        }
        (self.read_ns, self.waited_ns) = (now_ns, waited_ns);
    }
}

/// The second number of the file.
fn waited_ns(file: &File) -> Option<u64> {
    let mut text = [0; 64];
    let len = file.read_at(&mut text, 0).ok()?;
    std::str::from_utf8(&text[..len]).ok()?.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// A thread that was seen once, at 10 ms, with a count of 70 ms from before.
    fn seen() -> Look {
        let mut look = Look { opened: true, ..Look::default() };
        look.look(10 * MS, 70 * MS);
        look
    }

    #[test]
    fn a_thread_with_its_own_processor_keeps_it() {
        let mut look = seen();
        for now in (11..100).map(|ms| ms * MS) {
            // The kernel's threads take 1 % of the processor.
            look.look(now, 70 * MS + (now - 10 * MS) / 100);
            assert_eq!((look.idle(now), look.idle(now + MS / 2)), (Room::Stay, Room::Stay));
        }
    }

    #[test]
    fn a_thread_that_waits_for_its_processor_yields_and_sleeps_after_its_patience() {
        let mut look = seen();
        assert_eq!(look.idle(11 * MS), Room::Stay, "nothing is known yet");
        look.look(13 * MS, 72 * MS);
        assert_eq!(look.idle(13 * MS), Room::Sleep, "polls found nothing since 11 ms");
        look.idle_since_ns = 0;
        assert_eq!(look.idle(14 * MS), Room::Yield, "a poll found something");
        assert_eq!(look.idle(14 * MS + PATIENCE_NS - 1), Room::Yield);
        assert_eq!(look.idle(14 * MS + PATIENCE_NS), Room::Sleep);
    }

    #[test]
    fn a_yield_that_takes_a_slice_is_followed_by_sleeps_for_a_while() {
        let mut look = seen();
        look.look(13 * MS, 76 * MS);
        assert_eq!(look.idle(13 * MS), Room::Yield);
        look.yielded(13 * MS, 14 * MS - 1);
        assert_eq!(look.idle(13 * MS + 1), Room::Yield, "nobody took a slice");
        look.yielded(13 * MS + 1, 16 * MS + 1);
        look.idle_since_ns = 0;
        assert_eq!(look.idle(17 * MS), Room::Stay, "less than a wake-up takes");
        assert_eq!(look.idle(17 * MS + YIELDLESS_PATIENCE_NS), Room::Sleep);
        look.look(35 * MS, 90 * MS);
        look.idle_since_ns = 0;
        assert_eq!(look.idle(16 * MS + 1 + YIELDLESS_NS), Room::Yield, "yields are tried again");
    }

    #[test]
    fn crowding_is_forgotten() {
        let mut look = seen();
        look.look(13 * MS, 72 * MS);
        look.idle(13 * MS);
        assert_eq!(look.idle(13 * MS + MEMORY_NS - 1), Room::Sleep);
        assert_eq!(look.idle(13 * MS + MEMORY_NS), Room::Stay);
        // A little is lost in each look: the share decides, not the time.
        look.look(40 * MS, 72 * MS + 27 * MS / CROWDED_SHARE);
        assert_eq!(look.idle(40 * MS), Room::Stay);
        look.look(41 * MS, look.waited_ns + MS / CROWDED_SHARE + 1);
        assert_eq!(look.idle(41 * MS), Room::Sleep);
    }

    #[test]
    fn without_the_kernels_count_every_poll_stays() {
        let mut look = Look { opened: true, ..Look::default() };
        assert!((1..50).all(|ms| look.idle(ms * MS) == Room::Stay));
    }

    #[test]
    fn the_kernels_count_is_read() {
        // Absent in a kernel without scheduler statistics.
        if let Ok(file) = File::open("/proc/thread-self/schedstat") {
            assert!(waited_ns(&file).is_some());
        }
    }
}
