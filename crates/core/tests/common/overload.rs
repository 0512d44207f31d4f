//! Hosts that come to a halt for random times, sockets that overflow meanwhile, and a cable whose
//! queue is full of other people's packets: what an overloaded host or network looks like.

use super::{Flying, Rng, Span, Time};
use std::collections::VecDeque;

/// Packets that a host takes from its socket in one turn.
const TURN_PACKETS: usize = 64;
/// How long such a turn takes.
const TURN: Span = Span::from_us(50);

/// What is overloaded, and how much.
#[derive(Clone, Copy, Debug, Default)]
pub struct Load {
    /// Hosts halt for up to so long.
    pub halt_max: Span,
    /// And run for up to so long between two halts.
    pub run_max: Span,
    /// Packets wait at least for so long in the sockets of all hosts but the first, whose
    /// processors serve others in turn.
    pub wait: Span,
    /// Room of a socket in bytes.
    pub socket_bytes: usize,
    /// While the cable is busy, its queue has room for a random number of bytes up to this one:
    /// the larger a packet is, the more rarely it fits.
    pub room_max: u32,
    /// It is busy, and free, for up to so long.
    pub busy_max: Span,
    pub free_max: Span,
}

/// The state of one host.
#[derive(Default)]
struct Site {
    halted_until: Time,
    halts_at: Time,
    waiting: VecDeque<(Time, Flying)>,
    bytes: usize,
    drops: u32,
}

pub struct Overload {
    load: Load,
    rng: Rng,
    sites: Vec<Site>,
    busy: bool,
    changes_at: Time,
    /// Packets that found no room in the cable's queue: those of full size, and others.
    pub refused: (u64, u64),
}

fn bytes_of(f: &Flying) -> usize {
    let padded = usize::from(f.padded_len);
    (100 + f.payload.len()).max(padded)
}

impl Overload {
    pub fn new(load: Load, seed: u64, hosts: usize) -> Self {
        let sites = (0..hosts).map(|_| Site::default()).collect();
        let rng = Rng::from_seed(seed ^ 0x10AD);
        Self { load, rng, sites, busy: false, changes_at: Time(0), refused: (0, 0) }
    }

    fn up_to(&mut self, max: Span) -> Span {
        Span(1 + self.rng.next_u64() % max.0.max(1))
    }

    /// Moves on to `now`.
    pub fn advance(&mut self, now: Time) {
        if self.changes_at <= now {
            self.busy = !self.busy && self.load.room_max > 0;
            let max = if self.busy { self.load.busy_max } else { self.load.free_max };
            self.changes_at = now + self.up_to(max);
        }
        for i in 0..self.sites.len() {
            if self.load.halt_max > Span::ZERO && self.sites[i].halts_at <= now {
                let (halt, run) = (self.up_to(self.load.halt_max), self.up_to(self.load.run_max));
                let first = self.sites[i].halts_at == Time(0);
                let until = if first { now } else { now + halt };
                (self.sites[i].halted_until, self.sites[i].halts_at) = (until, until + run);
            }
        }
    }

    /// Whether the host does something now, and if not, when it will.
    pub fn halted(&self, i: usize, now: Time) -> Option<Time> {
        Some(self.sites[i].halted_until).filter(|&until| until > now)
    }

    /// When something changes by itself.
    pub fn next(&self, now: Time) -> Time {
        let wakes = self.sites.iter().enumerate().filter_map(|(i, s)| {
            let first = s.waiting.front()?.0;
            Some(s.halted_until.max(now + TURN).max(first + self.wait_of(i)))
        });
        wakes.min().unwrap_or(Time::NEVER)
    }

    /// Whether a packet finds room in the cable's queue.
    pub fn fits(&mut self, f: &Flying) -> bool {
        if !self.busy {
            return true;
        }
        let fits = bytes_of(f) < self.rng.below(self.load.room_max) as usize;
        if !fits && bytes_of(f) > 1024 {
            self.refused.0 += 1;
        } else if !fits {
            self.refused.1 += 1;
        }
        fits
    }

    /// A packet arrives at the socket of host `i`.
    pub fn arrive(&mut self, now: Time, i: usize, f: Flying) {
        let s = &mut self.sites[i];
        if s.bytes + bytes_of(&f) > self.load.socket_bytes {
            s.drops += 1;
            return;
        }
        s.bytes += bytes_of(&f);
        s.waiting.push_back((now, f));
    }

    fn wait_of(&self, i: usize) -> Span {
        if i == 0 { Span::ZERO } else { self.load.wait }
    }

    /// What the host takes in this turn: when each packet arrived, and the drops so far.
    pub fn take(&mut self, now: Time, i: usize) -> (Vec<(Time, Flying)>, u32) {
        let wait = self.wait_of(i);
        let s = &mut self.sites[i];
        let waited = s.waiting.iter().take_while(|(at, _)| *at + wait <= now);
        let n = waited.take(TURN_PACKETS).count();
        let taken: Vec<_> = s.waiting.drain(..n).collect();
        s.bytes -= taken.iter().map(|(_, f)| bytes_of(f)).sum::<usize>();
        (taken, s.drops)
    }

    /// Until when all that arrived was taken.
    pub fn read_until(&self, i: usize, now: Time) -> Time {
        self.sites[i].waiting.front().map_or(now, |w| w.0)
    }
}
