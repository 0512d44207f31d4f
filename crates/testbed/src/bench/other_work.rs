//! Other work on the machine during a measurement (`--busy`): one process per processor that
//! computes without a pause, at the priority of the measurement.

use crate::error::{NetError, Result};
use clap::Args;
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
use std::{
    fs,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

/// Time after which other work ends, whatever its measurement does.
const MOST: Duration = Duration::from_secs(3600);
/// Memory that each process of other work reads and writes in turn: as large as the second-level
/// cache of a processor, which real work uses, too.
const BYTES: usize = 1 << 20;

/// Options of one process of other work.
#[derive(Clone, Debug, Args)]
pub struct OtherArgs {
    /// The measuring process, with which this one ends
    #[arg(long)]
    pub parent: i32,
    /// Time after which it ends
    #[arg(long, value_name = "TIME", value_parser = crate::units::duration)]
    pub most: Duration,
}

/// Processes that take all processors; ended when dropped.
#[derive(Debug)]
pub struct OtherWork(Vec<Child>);

impl OtherWork {
    /// Starts a process for each of `count` processors. Must be called by the main thread, because
    /// the processes are killed when the thread that started them ends.
    ///
    /// # Errors
    /// A process cannot be started.
    pub fn start(count: usize) -> Result<Self> {
        let mut all = Self(Vec::new());
        for _ in 0..count {
            let mut command = Command::new(std::env::current_exe()?);
            command.args(["net", "other-work", "--parent", &std::process::id().to_string()]);
            command.args(["--most", &MOST.as_secs().to_string()]);
            let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
            all.0.push(child.map_err(|e| NetError::system("cannot start other work", e))?);
        }
        Ok(all)
    }

    /// As [`OtherWork::start`] for all processors of the machine if `busy`, else nothing.
    ///
    /// # Errors
    /// A process cannot be started.
    pub fn of(busy: bool) -> Result<Self> {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        Self::start(if busy { cpus } else { 0 })
    }

    /// Number of processes.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Process IDs.
    pub fn pids(&self) -> Vec<u32> {
        self.0.iter().map(Child::id).collect()
    }

    /// Processor time that the processes have used, in clock ticks.
    pub fn ticks(&self) -> u64 {
        self.0.iter().map(|c| ticks_of(c.id())).sum()
    }
}

impl Drop for OtherWork {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // Fails if the process has ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Processor time of a process in clock ticks; 0 if it has ended.
fn ticks_of(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The process name may contain any character, but is followed by the last ')'.
    let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let word = |at: usize| rest.split_whitespace().nth(at).and_then(|w| w.parse::<u64>().ok());
    word(11).unwrap_or(0) + word(12).unwrap_or(0)
}

/// One process of other work.
///
/// # Errors
/// The kernel refuses to tie it to its parent.
pub fn run(args: &OtherArgs) -> Result {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let (began, parent) = (Instant::now(), Pid::from_raw(args.parent));
    let mut memory = vec![1u64; BYTES / 8];
    // The parent may have ended before the signal was requested.
    while getppid() == parent && began.elapsed() < args.most {
        work(&mut memory);
    }
    Ok(())
}

/// Some hundreds of microseconds of work.
fn work(memory: &mut [u64]) {
    let mut word = memory.first().copied().unwrap_or(1) | 1;
    for place in &mut *memory {
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        *place = place.wrapping_add(word);
    }
    std::hint::black_box(memory);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_of_a_process_is_counted() {
        let before = ticks_of(std::process::id());
        let mut memory = vec![1; BYTES / 8];
        let until = Instant::now() + Duration::from_secs(60);
        while ticks_of(std::process::id()) < before + 2 {
            work(&mut memory);
            assert!(Instant::now() < until, "a minute of work without a tick of processor time");
        }
        assert_eq!(ticks_of(u32::MAX), 0);
    }
}
