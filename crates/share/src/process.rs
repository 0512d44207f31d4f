//! Identifies the process that owns a slot, and tells whether it is alive.

use std::fs;

/// Bits of the start time in an owner's word; the other 22 bits hold the process number, which
/// Linux keeps below 2^22.
const START_BITS: u32 = 42;

/// A process: its number and start time in one word, so that another process that later gets the
/// same number is not mistaken for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner(u64);

impl Owner {
    /// This process.
    pub fn current() -> Self {
        let pid = std::process::id();
        Self::of(pid, start_of(pid).unwrap_or(0))
    }

    /// The process `pid` that started at `start`, in clock ticks since boot.
    pub const fn of(pid: u32, start: u64) -> Self {
        Self((pid as u64) << START_BITS | start & ((1 << START_BITS) - 1))
    }

    /// The owner in a word of the table; `None` = the slot is free.
    pub(crate) fn from_word(word: u64) -> Option<Self> {
        (word != 0).then_some(Self(word))
    }

    pub(crate) const fn word(self) -> u64 {
        self.0
    }

    /// The process number.
    pub const fn pid(self) -> u32 {
        (self.0 >> START_BITS) as u32
    }

    /// Whether the process is still alive.
    pub fn is_alive(self) -> bool {
        start_of(self.pid()).is_some_and(|start| Self::of(self.pid(), start) == self)
    }
}

/// When a process started, in clock ticks since boot. `None`: there is no such process, or it has
/// ended and its parent has not yet waited for it.
fn start_of(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may contain any character, so fields are counted from its end.
    let mut fields = stat.get(stat.rfind(')')? + 1..)?.split_ascii_whitespace();
    let state = fields.next()?;
    let start = fields.nth(18)?.parse().ok()?;
    (state != "Z" && state != "X").then_some(start)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_process_lives_until_it_ends_and_its_number_alone_is_not_it() {
        assert!(Owner::current().is_alive());
        assert_eq!(Owner::current().pid(), std::process::id());
        let mut child =
            Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().expect("sleep runs");
        let owner = Owner::of(child.id(), start_of(child.id()).expect("it runs"));
        assert!(owner.is_alive());
        let other = Owner::of(child.id(), start_of(child.id()).expect("it runs") + 1);
        assert!(!other.is_alive(), "the same number, another process");
        child.kill().expect("it can be killed");
        // Ended but not waited for (a zombie): it counts as dead.
        while owner.is_alive() {
            std::thread::yield_now();
        }
        child.wait().expect("it has ended");
        assert!(!owner.is_alive());
    }
}
