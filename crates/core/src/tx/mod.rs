//! The journey of a work request: post, schedule, cut, emit; acknowledged, completed; or lost.

pub(crate) mod acked;
mod complete;
pub(crate) mod control;
mod cut;
mod emit;
pub(crate) mod loss;
pub(crate) mod mtu;
mod schedule;

use crate::api::{Transmit, TxSink};

/// Where packets go during one poll, and how many more may.
pub(crate) struct Out<'a, S> {
    pub sink: &'a mut S,
    pub left: usize,
    pub sent: usize,
}

impl<S: TxSink> Out<'_, S> {
    pub fn push(&mut self, t: &Transmit<'_>) {
        debug_assert!(self.left > 0);
        self.left -= 1;
        self.sent += 1;
        self.sink.push(t);
    }
}
