//! The transfer of a file over SRD. Both clients and servers can be sender or receiver.
//!
//! The receiver provides registered memory, divided into slots. The sender writes chunks into the
//! slots by RDMA, several in flight, and announces each chunk once its write has completed. The
//! receiver stores the chunks in order and returns credits for the freed slots. Both compute BLAKE3
//! over the whole file, and the receiver gives the file its name only if the hashes agree.

mod receiver;
mod sender;
mod session;

pub use receiver::Receiver;
pub use sender::send;
pub use session::{Abort, Session};

use crate::app::{
    link::LinkDepth,
    message::{Refusal, Slots},
};

/// Bytes of a chunk.
const CHUNK_BYTES: u32 = 512 << 10;
/// Slots that a receiver provides: enough to hide the round-trip time and the disk's delay.
const SLOTS: u16 = 16;
/// Most memory in bytes that a sender uses, whatever the receiver offers.
pub const MEMORY_BYTES_MAX: u64 = 64 << 20;
/// Smallest chunk in bytes that a sender accepts.
const CHUNK_BYTES_MIN: u32 = 4096;
/// Most slots that a sender accepts.
const SLOTS_MAX: u16 = 256;

/// Buffers of a transfer's link: one write and one message per slot, credits, and a few more.
pub const DEPTH: LinkDepth =
    LinkDepth { sends: 2 * SLOTS_MAX + 8, recvs: 2 * SLOTS_MAX + 8, writes: SLOTS_MAX };

/// Called with the number of bytes stored or acknowledged so far.
pub type Progress<'a> = &'a mut dyn FnMut(u64);

/// A file that was transferred completely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivered {
    /// Its size in bytes.
    pub size: u64,
    /// BLAKE3 of its content.
    pub hash: blake3::Hash,
}

/// How a file is divided into chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cut {
    size: u64,
    chunk: u32,
    slots: u64,
}

impl Cut {
    /// # Errors
    /// The slots are invalid, or need too much memory.
    fn new(size: u64, slots: &Slots) -> Result<Self, Abort> {
        let bytes = u64::from(slots.chunk) * u64::from(slots.count);
        let chunk_ok = slots.chunk >= CHUNK_BYTES_MIN;
        if !chunk_ok || !(1..=SLOTS_MAX).contains(&slots.count) || bytes > MEMORY_BYTES_MAX {
            return Err(Abort::tell(Refusal::BadRequest, "slots out of bounds"));
        }
        Ok(Self { size, chunk: slots.chunk, slots: u64::from(slots.count) })
    }

    fn chunks(&self) -> u64 {
        self.size.div_ceil(u64::from(self.chunk))
    }

    /// Size in bytes of chunk `index`, which must exist.
    fn len(&self, index: u64) -> u32 {
        let begin = index * u64::from(self.chunk);
        (self.size - begin).min(u64::from(self.chunk)) as u32
    }

    /// Size of all chunks before `index` in bytes.
    fn bytes_before(&self, index: u64) -> u64 {
        index.saturating_mul(u64::from(self.chunk)).min(self.size)
    }

    fn slot(&self, index: u64) -> usize {
        (index % self.slots) as usize
    }

    /// Offset of the slot of chunk `index` in the slots' memory.
    fn offset(&self, index: u64) -> usize {
        self.slot(index) * self.chunk as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use srd::RKey;

    fn slots(chunk: u32, count: u16) -> Slots {
        Slots { raddr: 0, rkey: RKey(0), chunk, count }
    }

    #[test]
    fn files_are_cut_without_gaps() {
        for size in [0, 1, 4095, 4096, 4097, 40_960, 1_000_000] {
            let cut = Cut::new(size, &slots(4096, 3)).unwrap();
            let sum: u64 = (0..cut.chunks()).map(|i| u64::from(cut.len(i))).sum();
            assert_eq!(sum, size);
            for i in 0..cut.chunks() {
                assert!(cut.len(i) > 0);
                assert_eq!(cut.bytes_before(i + 1) - cut.bytes_before(i), u64::from(cut.len(i)));
                assert_eq!(cut.offset(i), (i % 3) as usize * 4096);
            }
        }
    }

    #[test]
    fn hostile_slots_are_refused() {
        for (chunk, count) in
            [(0, 1), (4095, 1), (4096, 0), (u32::MAX, 1), (1 << 20, 65), (4096, 257)]
        {
            assert!(Cut::new(1, &slots(chunk, count)).is_err(), "{chunk} {count}");
        }
        assert!(Cut::new(u64::MAX, &slots(4096, 1)).is_ok_and(|c| c.chunks() > 1 << 50));
    }
}
