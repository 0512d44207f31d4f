//! Ends a run in which a world loops inside one call, and says how much CPU time was used.
//!
//! What counts is the CPU time of the thread that runs the world, not the time of day: on a busy
//! machine a thread may wait for minutes, and its world is no worse for it. Linux lets a thread
//! read another one's CPU time without `unsafe` code in `/proc` alone.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A world that takes this much CPU time is in a loop: no world needs a hundredth of it.
const WORLD_MAX: Duration = Duration::from_secs(60);

/// What one thread runs.
#[derive(Debug, Default)]
pub(crate) struct Work {
    /// Its file of CPU time, once it has begun.
    stat: OnceLock<PathBuf>,
    /// Worlds begun plus worlds ended: odd while one runs.
    turn: AtomicU64,
    /// Seed of that world.
    seed: AtomicU64,
}

impl Work {
    /// Notes that the calling thread is the one that runs these worlds.
    pub fn own(&self) {
        // Without such a file the thread is not watched, and the CPU time of the run is 0 as well.
        if let Ok(thread) = std::fs::read_link("/proc/thread-self") {
            let _ = self.stat.set(Path::new("/proc").join(thread).join("stat"));
        }
    }
    /// Notes that the world of `seed` begins.
    pub fn begin(&self, seed: u64) {
        self.seed.store(seed, Ordering::Relaxed);
        self.turn.fetch_add(1, Ordering::Release);
    }
    /// Notes that it has ended.
    pub fn end(&self) {
        self.turn.fetch_add(1, Ordering::Release);
    }
}

/// Looks at the worlds of a run from time to time.
#[derive(Debug)]
pub(crate) struct Watchdog {
    /// By thread: its world when it was last looked at, and the thread's CPU time when that world
    /// was first seen.
    seen: Vec<(u64, Duration)>,
}

impl Watchdog {
    /// A watchdog of `threads` threads.
    pub fn new(threads: usize) -> Self {
        Self { seen: vec![(0, Duration::ZERO); threads] }
    }

    /// The seed of a world that has taken too much CPU time, if there is one.
    pub fn look(&mut self, work: &[Work]) -> Option<u64> {
        self.look_with(work, |w| w.stat.get().map_or(Duration::ZERO, |stat| cpu(stat)))
    }

    fn look_with(&mut self, work: &[Work], cpu: impl Fn(&Work) -> Duration) -> Option<u64> {
        for (work, seen) in work.iter().zip(&mut self.seen) {
            let turn = work.turn.load(Ordering::Acquire);
            if turn.is_multiple_of(2) {
                continue;
            }
            let now = cpu(work);
            if seen.0 != turn {
                *seen = (turn, now);
            } else if now.saturating_sub(seen.1) > WORLD_MAX {
                return Some(work.seed.load(Ordering::Relaxed));
            }
        }
        None
    }

    /// Ends the process and names the seed if a world has taken too much CPU time: a thread cannot
    /// be stopped, and a run must not hang.
    pub fn check(&mut self, work: &[Work]) {
        if let Some(seed) = self.look(work) {
            crate::runner::tell(&format!(
                "seed {seed} failed: Loop: no end after {WORLD_MAX:?} of CPU time"
            ));
            std::process::exit(1);
        }
    }
}

/// CPU time of this process.
pub(crate) fn process_cpu() -> Duration {
    cpu(Path::new("/proc/self/stat"))
}

/// CPU time of a process or thread from its file `stat`: fields 14 (user) and 15 (system), in ticks
/// of 10 ms. Zero if there is no such file.
fn cpu(stat: &Path) -> Duration {
    let text = std::fs::read_to_string(stat).unwrap_or_default();
    // The name, field 2, may contain anything, but ends with the last parenthesis.
    let after_name = text.rsplit(')').next().unwrap_or_default();
    let fields = after_name.split_whitespace().skip(11).take(2);
    let ticks: u64 = fields.filter_map(|f| f.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> impl Fn(&Work) -> Duration {
        move |_| Duration::from_secs(secs)
    }

    #[test]
    fn a_world_fails_by_the_cpu_time_that_it_took_itself() {
        let work = [Work::default(), Work::default()];
        let mut dog = Watchdog::new(2);
        assert_eq!(dog.look_with(&work, at(1_000)), None, "nothing runs");
        work[1].begin(7);
        assert_eq!(dog.look_with(&work, at(1_000)), None, "worlds before it took all of this");
        for _ in 0..10_000 {
            assert_eq!(dog.look_with(&work, at(1_060)), None, "it waits for a processor");
        }
        assert_eq!(dog.look_with(&work, at(1_061)), Some(7));
        work[1].end();
        assert_eq!(dog.look_with(&work, at(2_000)), None, "it has ended");
        work[1].begin(7);
        assert_eq!(dog.look_with(&work, at(2_000)), None, "the same seed, another world");
        work[1].end();
        work[1].begin(8);
        assert_eq!(dog.look_with(&work, at(3_000)), None, "it ended between two looks");
        assert_eq!(dog.look_with(&work, at(3_061)), Some(8));
    }

    #[test]
    #[cfg(target_os = "linux")]
    #[expect(clippy::disallowed_methods, reason = "two threads, of which one does nothing")]
    fn the_time_of_a_thread_is_its_own() {
        let (busy, idle) = (Work::default(), Work::default());
        let time = |w: &Work| cpu(w.stat.get().expect("it has begun"));
        let (begun, over) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                idle.own();
                begun.wait();
                over.wait();
            });
            busy.own();
            begun.wait();
            let (from, process) = (time(&busy), process_cpu());
            let mut spins = 0_u64;
            while time(&busy) < from + Duration::from_millis(200) {
                spins += 1;
                assert!(spins < 1 << 30, "the time of a busy thread grows");
            }
            assert!(time(&idle) < Duration::from_millis(100), "it waits");
            assert!(process_cpu() >= process + Duration::from_millis(200), "the sum of both");
            over.wait();
        });
    }
}
