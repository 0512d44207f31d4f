//! Counts of our outstanding requests to a peer, and of the read and write-with-immediate credits
//! in use.

use super::Negotiated;
use crate::time::Time;

/// Counts of outstanding requests and used credits.
#[derive(Debug)]
pub(crate) struct Outstanding {
    /// Start of the present period with at least one outstanding request (`Time::NEVER`: no request
    /// is outstanding).
    since: Time,
    requests: u32,
    /// The peer has asked for another context, and no request has ended since.
    asked: bool,
    /// Reads that the peer serves or was asked to serve.
    reads: u16,
    /// Multi-packet writes with immediate that the peer tracks or was asked to track.
    imms: u16,
}

impl Default for Outstanding {
    fn default() -> Self {
        Self { since: Time::NEVER, requests: 0, asked: false, reads: 0, imms: 0 }
    }
}

impl Outstanding {
    /// Number of outstanding requests.
    #[inline(always)]
    pub fn requests(&self) -> u32 {
        self.requests
    }
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        debug_assert!(self.requests > 0 || self.since == Time::NEVER, "{self:?}");
        self.requests == 0
    }
    /// Start of the present period with at least one outstanding request (`Time::NEVER`: no request
    /// is outstanding).
    pub fn since(&self) -> Time {
        debug_assert!(
            (self.since == Time::NEVER) == (self.requests == 0) || cfg!(planted_bugs),
            "{self:?}"
        );
        self.since
    }
    /// Notes that a request is posted.
    #[inline(always)]
    pub fn begin(&mut self, now: Time) {
        self.requests += 1;
        if self.since == Time::NEVER {
            self.since = now;
        }
        debug_assert!(self.since <= now, "it began at some time before: {self:?}");
    }
    /// What is outstanding waits for another context from now on.
    pub fn begin_again(&mut self, now: Time) {
        if self.since != Time::NEVER {
            self.since = now;
        }
    }
    /// Notes that the peer asks for another context, for which requests are to wait. Returns
    /// whether they do: once between two ends of requests.
    pub fn asked(&mut self) -> bool {
        !core::mem::replace(&mut self.asked, true)
    }
    /// Notes that a request has ended.
    #[inline(always)]
    pub fn end(&mut self) {
        debug_assert!(self.requests > 0, "a request ends once");
        self.requests -= 1;
        self.asked = false;
        if self.requests == 0 {
            self.since = Time::NEVER;
        }
    }

    /// Reads that the peer serves or was asked to serve.
    #[cfg(debug_assertions)]
    pub fn reads(&self) -> u16 {
        self.reads
    }
    /// Whether a read credit is free.
    #[inline(always)]
    pub fn may_read(&self, limits: &Negotiated) -> bool {
        debug_assert!(
            self.reads <= limits.reads_max || cfg!(planted_bugs),
            "no more than the peer serves: {self:?}"
        );
        self.reads < limits.reads_max
    }
    /// Takes a read credit, when a read is sent.
    pub fn read_begin(&mut self) {
        self.reads += 1;
        debug_assert!(
            u32::from(self.reads) <= self.requests || cfg!(planted_bugs),
            "each is a live request: {self:?}"
        );
    }
    /// Returns a read credit, when a read has ended or was refused.
    pub fn read_end(&mut self) {
        debug_assert!(self.reads > 0, "a read is over once");
        self.reads -= 1;
    }

    /// Multi-packet writes with immediate that the peer tracks or was asked to track.
    pub fn imms(&self) -> u16 {
        self.imms
    }
    /// Whether the peer tracks another multi-packet write with immediate.
    #[inline(always)]
    pub fn may_imm(&self, limits: &Negotiated) -> bool {
        debug_assert!(
            self.imms <= limits.imms_max || cfg!(planted_bugs),
            "no more than the peer tracks: {self:?}"
        );
        self.imms < limits.imms_max
    }
    /// Notes that the first packet of such a message is sent.
    pub fn imm_begin(&mut self) {
        self.imms += 1;
    }
    /// Notes that the peer tracks one message less.
    pub fn imm_end(&mut self) {
        debug_assert!(self.imms > 0, "a message is forgotten once");
        self.imms -= 1;
    }
    /// Notes that the peer tracks no message any more.
    pub fn imms_forget(&mut self) {
        self.imms = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use srd_wire::Features;

    #[test]
    fn the_time_counts_from_the_first_of_those_that_overlap() {
        let mut o = Outstanding::default();
        assert_eq!((o.since(), o.is_empty()), (Time::NEVER, true));
        o.begin(Time(5));
        o.begin(Time(9));
        o.end();
        assert_eq!((o.since(), o.requests()), (Time(5), 1));
        o.end();
        o.begin(Time(20));
        assert_eq!((o.since(), o.is_empty()), (Time(20), false));
    }

    #[test]
    fn places_are_those_that_the_peer_gave() {
        let features = Features(0);
        let limits = Negotiated {
            mtu: 1,
            window: 1,
            reads_max: 1,
            imms_max: 2,
            features,
            checked: false,
            sealed: false,
        };
        let mut o = Outstanding::default();
        o.begin(Time(5));
        o.read_begin();
        assert!(!o.may_read(&limits) && o.may_imm(&limits));
        o.imm_begin();
        o.imm_begin();
        assert!(!o.may_imm(&limits));
        o.imm_end();
        o.read_end();
        assert!(o.may_read(&limits) && o.may_imm(&limits));
        assert_eq!((o.reads(), o.imms()), (0, 1));
        o.imms_forget();
        assert_eq!(o.imms(), 0);
    }
}
