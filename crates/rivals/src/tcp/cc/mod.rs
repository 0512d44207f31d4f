//! Congestion control: how the window, in segments, grows and shrinks. Loss detection and the steps
//! of a recovery are in `sender`.

pub(crate) mod bbr;
pub(crate) mod cubic;
pub(crate) mod dctcp;
pub(crate) mod hystart;

use crate::tcp::config::{Algorithm, SlowStart, TcpConfig};
use bbr::{Bbr, Report};
use cubic::Cubic;
use dctcp::Dctcp;
use hystart::{HyStart, HyStartPlusPlus};
use srd_fabric::Ps;

/// Slow start threshold before the first congestion signal.
pub(crate) const INFINITE: u32 = i32::MAX as u32;

/// The congestion window and the slow start threshold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    /// Segments that may be in flight.
    pub size: u32,
    /// Slow start ends at this window.
    pub threshold: u32,
    /// Segments acknowledged since the window last grew by one.
    pub count: u32,
}

impl Window {
    pub const fn slow(&self) -> bool {
        self.size < self.threshold
    }

    /// Grows the window by one segment per `every` acknowledged.
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

    /// Slow start up to the threshold; returns the acknowledged segments left over.
    fn grow(&mut self, acked: u32) -> u32 {
        let size = self.size.saturating_add(acked).min(self.threshold);
        let used = size - self.size;
        self.size = size;
        acked - used
    }
}

/// What congestion control reads from an ack.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AckInfo {
    pub now: Ps,
    /// Lowest unacknowledged byte after the ack.
    pub una: u64,
    /// Next new byte to send.
    pub next: u64,
    /// Segments newly acknowledged, cumulatively or selectively.
    pub acked: u32,
    /// Latest RTT sample in it.
    pub rtt: Option<Ps>,
    pub srtt: Ps,
    /// Time in which the NIC sends a burst at the current rate.
    pub burst_ps: Ps,
    /// The ack carries the ECN echo.
    pub ece: bool,
    /// Growth per acknowledged segment that coupled subflows permit.
    pub growth: f64,
}

#[derive(Clone, Debug)]
enum Rule {
    Reno,
    Cubic(Box<Cubic>),
    Dctcp(Dctcp),
    Bbr(Box<Bbr>),
    Coupled(Coupled),
}

/// The window of a subflow whose growth depends on the others'.
#[derive(Clone, Copy, Debug, Default)]
struct Coupled {
    /// Growth not yet applied, segments.
    part: f64,
    /// Segments acknowledged between the last two losses, and since the last.
    before: u64,
    since: u64,
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
    /// The state of a new connection. `seed` distinguishes connections.
    pub fn new(config: &TcpConfig, seed: u64) -> Self {
        let rule = match config.algorithm {
            Algorithm::Reno => Rule::Reno,
            Algorithm::Cubic => Rule::Cubic(Box::default()),
            Algorithm::Dctcp => Rule::Dctcp(Dctcp::new()),
            Algorithm::Lia | Algorithm::Olia => Rule::Coupled(Coupled::default()),
            Algorithm::Bbr => {
                let (window, burst) = (config.initial_window, config.burst_segments());
                Rule::Bbr(Box::new(Bbr::new(window, burst, seed)))
            }
        };
        let exit = match config.slow_start {
            SlowStart::Standard => Exit::Standard,
            SlowStart::HyStart => Exit::HyStart(HyStart::new(config.pacing)),
            SlowStart::HyStartPlusPlus => Exit::PlusPlus(Box::new(HyStartPlusPlus::new())),
        };
        Self { rule, exit }
    }

    /// Evaluates an ack in any state of the sender.
    pub fn on_ack(&mut self, ack: &AckInfo, window: &mut Window) {
        match &mut self.rule {
            Rule::Dctcp(dctcp) => dctcp.on_ack(ack),
            Rule::Coupled(coupled) => coupled.since += u64::from(ack.acked),
            _ => {}
        }
        let fresh = match &self.rule {
            // RTT samples right after a recovery do not describe an undisturbed path.
            Rule::Cubic(cubic) => cubic.settled(ack.now),
            _ => true,
        };
        match &mut self.exit {
            Exit::HyStart(h) if fresh && window.slow() => h.on_ack(ack, window),
            Exit::PlusPlus(h) if window.slow() => h.on_ack(ack, window),
            _ => {}
        }
    }

    /// Grows the window for an ack.
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
            Rule::Coupled(coupled) => {
                coupled.part += ack.growth * f64::from(acked);
                let whole = coupled.part as i32;
                coupled.part -= f64::from(whole);
                window.size = window.size.saturating_add_signed(whole).max(1);
            }
            Rule::Bbr(_) => unreachable!("BBR sets its window itself"),
        }
    }

    /// Returns the threshold after a congestion signal. `window` is the window before it.
    pub fn reduce(&mut self, window: &Window, ece: bool) -> u32 {
        match &mut self.rule {
            Rule::Reno => (window.size / 2).max(2),
            Rule::Coupled(coupled) => {
                *coupled = Coupled { before: coupled.since, ..Coupled::default() };
                (window.size / 2).max(2)
            }
            Rule::Cubic(cubic) => cubic.reduce(window.size),
            Rule::Dctcp(dctcp) => dctcp.reduce(window.size, ece),
            Rule::Bbr(bbr) => {
                bbr.window_save(window.size);
                window.threshold
            }
        }
    }

    /// Resets the algorithm after a retransmission timeout.
    pub fn timed_out(&mut self) {
        match &mut self.rule {
            Rule::Cubic(cubic) => cubic.reset(),
            Rule::Bbr(bbr) => bbr.timed_out(),
            _ => {}
        }
        match &mut self.exit {
            Exit::Standard => {}
            Exit::HyStart(h) => h.reset(),
            Exit::PlusPlus(h) => **h = HyStartPlusPlus::new(),
        }
    }

    /// Notes that sending resumes after an idle period. `limited`: the application had nothing to
    /// send.
    pub fn resumed(&mut self, idle_since: Ps, now: Ps, limited: bool) {
        match &mut self.rule {
            Rule::Cubic(cubic) => cubic.shift(idle_since, now),
            Rule::Bbr(bbr) => bbr.resumed(now, limited),
            _ => {}
        }
    }

    /// Notes the round trip of the handshake.
    pub fn opened(&mut self, now: Ps, rtt: Ps, window: u32) {
        if let Rule::Bbr(bbr) = &mut self.rule {
            bbr.opened(now, rtt, window);
        }
    }

    /// Notes that a reduction was undone.
    pub fn undone(&mut self) {
        if let Rule::Bbr(bbr) = &mut self.rule {
            bbr.undone();
        }
    }

    /// Segments acknowledged between the last two losses or since the last one, whichever is more.
    pub fn loss_span(&self) -> u64 {
        if let Rule::Coupled(c) = &self.rule { c.before.max(c.since) } else { 0 }
    }

    /// BBR, if it is the algorithm.
    pub fn bbr(&self) -> Option<&Bbr> {
        if let Rule::Bbr(bbr) = &self.rule { Some(bbr) } else { None }
    }

    /// Whether the algorithm sets the window on every ack itself, in recoveries, too.
    pub const fn whole(&self) -> bool {
        matches!(self.rule, Rule::Bbr(_))
    }

    /// Lets BBR evaluate an ack. True: the connection is to count as limited by its application.
    pub fn model(&mut self, report: &Report, window: &mut Window) -> bool {
        if let Rule::Bbr(bbr) = &mut self.rule { bbr.on_ack(report, window) } else { false }
    }
}

#[cfg(test)]
mod tests;
