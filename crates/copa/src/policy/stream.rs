//! `stream`: no bound; packets leave at the rate of the link.

use super::Policy;
use srd_fabric::Ps;

#[derive(Debug)]
pub(crate) struct Streaming;

impl Policy for Streaming {
    fn allows(&self, _: Ps, _: u64) -> bool {
        true
    }
}
