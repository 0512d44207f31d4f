//! Orders to a worker.

use super::protocol::Order;
use crate::error::Result;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;

/// Orders on standard input, read without blocking.
#[derive(Default)]
pub(super) struct Orders {
    bytes: Vec<u8>,
}

impl Orders {
    /// Reads the available input; `Ok(false)` at its end.
    pub fn read(&mut self) -> Result<bool> {
        let stdin = io::stdin();
        let none = Timespec { tv_sec: 0, tv_nsec: 0 };
        while poll(&mut [PollFd::new(&stdin, PollFlags::IN)], Some(&none))? > 0 {
            let mut chunk = [0; 4096];
            match rustix::io::read(&stdin, &mut chunk)? {
                0 => return Ok(false),
                n => self.bytes.extend_from_slice(&chunk[..n]),
            }
        }
        Ok(true)
    }

    /// The next order that was read.
    pub fn next(&mut self) -> Result<Option<Order>> {
        let Some(end) = self.bytes.iter().position(|b| *b == b'\n') else { return Ok(None) };
        let order = serde_json::from_slice(&self.bytes[..end])?;
        self.bytes.drain(..=end);
        Ok(Some(order))
    }
}
