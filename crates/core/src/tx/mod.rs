//! The journey of a work request: its turn, cut, emit; acknowledged; or lost, or taken back.

mod acked;
mod alone;
mod cut;
mod emit;
mod host;
mod loss;
mod recall;
mod schedule;

pub(crate) use loss::Silence;

use crate::api::{Transmit, TxSink};

/// Where packets go during one poll, and how many more may.
pub(crate) struct Out<'a, S> {
    pub sink: &'a mut S,
    pub left: usize,
    pub sent: usize,
}

impl<S: TxSink> Out<'_, S> {
    #[inline(always)]
    pub fn push(&mut self, t: &Transmit<'_>) {
        debug_assert!(self.left > 0, "no more than was asked for");
        self.left -= 1;
        self.sent += 1;
        self.sink.push(t);
    }
}
