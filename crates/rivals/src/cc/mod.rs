//! Congestion control: how the window, in segments, grows and shrinks. Loss detection and the
//! course of a recovery are not its business.

pub(crate) mod cubic;
pub(crate) mod dctcp;
pub(crate) mod hystart;

use crate::config::{Algorithm, SlowStart, TcpConfig};
use cubic::Cubic;
use dctcp::Dctcp;
use hystart::{HyStart, HyStartPlusPlus};
use srd_fabric::Ps;

/// "No threshold yet".
pub(crate) const INFINITE: u32 = i32::MAX as u32;

/// The congestion window and its threshold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    /// Segments that may be in the network.
    pub size: u32,
    /// Slow start ends here.
    pub threshold: u32,
    /// Segments acknowledged since the last growth by one.
    pub count: u32,
}

impl Window {
    pub const fn slow(&self) -> bool {
        self.size < self.threshold
    }

    /// Grows by one segment per `every` acknowledged.
    fn add(&mut self, every: u32, acked: u32) {
        let every = every.max(1);
        if self.count >= every {
            self.count = 0;
            self.size += 1;
        }
        self.count += acked;
        self.size += self.count / every;
        self.count %= every;
    }

    /// Slow start up to the threshold; the acknowledged segments it did not use.
    fn grow(&mut self, acked: u32) -> u32 {
        let size = self.size.saturating_add(acked).min(self.threshold);
        let used = size - self.size;
        self.size = size;
        acked - used
    }
}

/// What an ack tells.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AckInfo {
    pub now: Ps,
    /// Lower edge after it.
    pub una: u64,
    /// Next new byte.
    pub next: u64,
    /// Segments newly acknowledged, selectively or not.
    pub acked: u32,
    /// Newest round trip time in it.
    pub rtt: Option<Ps>,
    pub srtt: Ps,
    /// The time in which the card sends a burst at the present rate.
    pub burst_ps: Ps,
    /// The ack echoed congestion.
    pub ece: bool,
}

#[derive(Clone, Debug)]
enum Rule {
    Reno,
    Cubic(Box<Cubic>),
    Dctcp(Dctcp),
}

#[derive(Clone, Debug)]
enum Exit {
    Standard,
    HyStart(HyStart),
    PlusPlus(Box<HyStartPlusPlus>),
}

/// A connection's congestion control.
#[derive(Clone, Debug)]
pub(crate) struct Control {
    rule: Rule,
    exit: Exit,
}

impl Control {
    pub fn new(config: &TcpConfig) -> Self {
        let rule = match config.algorithm {
            Algorithm::Reno => Rule::Reno,
            Algorithm::Cubic => Rule::Cubic(Box::default()),
            Algorithm::Dctcp => Rule::Dctcp(Dctcp::new()),
        };
        let exit = match config.slow_start {
            SlowStart::Standard => Exit::Standard,
            SlowStart::HyStart => Exit::HyStart(HyStart::new(config.pacing)),
            SlowStart::HyStartPlusPlus => Exit::PlusPlus(Box::new(HyStartPlusPlus::new())),
        };
        Self { rule, exit }
    }

    /// An ack arrived, whatever the state.
    pub fn on_ack(&mut self, ack: &AckInfo, window: &mut Window) {
        if let Rule::Dctcp(dctcp) = &mut self.rule {
            dctcp.on_ack(ack);
        }
        let fresh = match &self.rule {
            // Delays right after a recovery are not those of an undisturbed path.
            Rule::Cubic(cubic) => cubic.settled(ack.now),
            _ => true,
        };
        match &mut self.exit {
            Exit::HyStart(h) if fresh && window.slow() => h.on_ack(ack, window),
            Exit::PlusPlus(h) if window.slow() => h.on_ack(ack, window),
            _ => {}
        }
    }

    /// An ack arrived that lets the window grow.
    pub fn grow(&mut self, ack: &AckInfo, window: &mut Window) {
        let mut acked = ack.acked;
        if window.slow() {
            if let Exit::PlusPlus(h) = &mut self.exit {
                acked = h.slowed(acked);
            }
            acked = window.grow(acked);
            if acked == 0 {
                return;
            }
        }
        match &mut self.rule {
            Rule::Reno | Rule::Dctcp(_) => window.add(window.size, acked),
            Rule::Cubic(cubic) => {
                let every = cubic.every(ack.now, ack.srtt, window.size, acked);
                window.add(every, acked);
            }
        }
    }

    /// The threshold after a congestion signal. `window` is what it was.
    pub fn reduce(&mut self, window: &Window, ece: bool) -> u32 {
        match &mut self.rule {
            Rule::Reno => (window.size / 2).max(2),
            Rule::Cubic(cubic) => cubic.reduce(window.size),
            Rule::Dctcp(dctcp) => dctcp.reduce(window.size, ece),
        }
    }

    /// A timeout.
    pub fn timed_out(&mut self) {
        if let Rule::Cubic(cubic) = &mut self.rule {
            cubic.reset();
        }
        match &mut self.exit {
            Exit::Standard => {}
            Exit::HyStart(h) => h.reset(),
            Exit::PlusPlus(h) => **h = HyStartPlusPlus::new(),
        }
    }

    /// Something is sent after a pause in which nothing was in flight.
    pub fn resumed(&mut self, idle_since: Ps, now: Ps) {
        if let Rule::Cubic(cubic) = &mut self.rule {
            cubic.shift(idle_since, now);
        }
    }
}

#[cfg(test)]
mod tests;
