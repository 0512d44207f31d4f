//! Data blocks. Each byte of a block is a function of flow, run and block number, so the receiver
//! can detect damaged and duplicate blocks.

use serde::{Deserialize, Serialize};

/// Bytes before the pattern: flow, run, number, due time.
pub const HEADER_BYTES: usize = 24;
/// Most blocks of one flow in one run.
pub const BLOCKS_MAX: u64 = 1 << 24;
/// Width of a bucket of [`FlowStats::buckets`] in ns.
pub const BUCKET_NS: u64 = 10_000_000;

/// Header of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockHead {
    /// Number of the flow.
    pub flow: u32,
    /// Number of the run; blocks of earlier runs are not counted.
    pub run: u32,
    /// Number of the block within flow and run, from 0.
    pub number: u64,
    /// Time at which the block was due, in ns of the monotonic clock.
    pub due_ns: u64,
}

fn pattern_seed(head: &BlockHead) -> u64 {
    let id = u64::from(head.flow) << 32 | u64::from(head.run);
    let mixed = id.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ head.number;
    mixed.wrapping_mul(0xBF58_476D_1CE4_E5B9) | 1
}

/// One step of the pattern: a linear congruential generator with Knuth's MMIX constants.
fn pattern_step(word: u64) -> u64 {
    word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407)
}

/// Fills `out` with a block.
///
/// # Panics
/// `out` is shorter than [`HEADER_BYTES`].
pub fn fill(out: &mut [u8], head: &BlockHead) {
    let (header, body) = out.split_at_mut(HEADER_BYTES);
    header[..4].copy_from_slice(&head.flow.to_le_bytes());
    header[4..8].copy_from_slice(&head.run.to_le_bytes());
    header[8..16].copy_from_slice(&head.number.to_le_bytes());
    header[16..].copy_from_slice(&head.due_ns.to_le_bytes());
    let mut word = pattern_seed(head);
    for chunk in body.chunks_mut(8) {
        word = pattern_step(word);
        chunk.copy_from_slice(&word.to_le_bytes()[..chunk.len()]);
    }
}

/// Parses a block; `None` if any byte is wrong.
pub fn check(block: &[u8]) -> Option<BlockHead> {
    let (header, body) = block.split_at_checked(HEADER_BYTES)?;
    let u32_at = |i: usize| Some(u32::from_le_bytes(header.get(i..i + 4)?.try_into().ok()?));
    let u64_at = |i: usize| Some(u64::from_le_bytes(header.get(i..i + 8)?.try_into().ok()?));
    let head =
        BlockHead { flow: u32_at(0)?, run: u32_at(4)?, number: u64_at(8)?, due_ns: u64_at(16)? };
    if head.number >= BLOCKS_MAX {
        return None;
    }
    let mut word = pattern_seed(&head);
    for chunk in body.chunks(8) {
        word = pattern_step(word);
        if chunk != &word.to_le_bytes()[..chunk.len()] {
            return None;
        }
    }
    Some(head)
}

/// Statistics of a receiver about one flow in one run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct FlowStats {
    /// Number of the flow.
    pub flow: u32,
    /// Undamaged blocks received, without duplicates.
    pub blocks: u64,
    /// Bytes in them.
    pub bytes: u64,
    /// Duplicate blocks received.
    pub duplicated: u64,
    /// Arrival time of the last block in ns of the monotonic clock; 0 if none arrived.
    pub last_ns: u64,
    /// Longest interval without a block, from the start of the run to the last block, in ns.
    pub gap_ns: u64,
    /// Longest time from a block's due time to its arrival, in ns.
    pub late_ns: u64,
    /// Bytes received in each [`BUCKET_NS`] since the start of the run.
    pub buckets: Vec<u32>,
}

/// Receiver of one flow.
#[derive(Debug)]
pub struct FlowRx {
    stats: FlowStats,
    run: u32,
    start_ns: u64,
    seen: Vec<u64>,
}

impl FlowRx {
    /// A flow before its first run.
    pub fn new(flow: u32) -> Self {
        let stats = FlowStats { flow, ..FlowStats::default() };
        Self { stats, run: 0, start_ns: 0, seen: Vec::new() }
    }

    /// Begins a run, unless one of its blocks already has. Runs are numbered from 1.
    pub fn begin(&mut self, run: u32, start_ns: u64) {
        if run != self.run {
            *self = Self { run, ..Self::new(self.stats.flow) };
        }
        self.start_ns = start_ns;
    }

    /// Counts an undamaged block. The first block of an unannounced run begins the run.
    pub fn take(&mut self, head: &BlockHead, bytes: usize, now_ns: u64) {
        if head.run > self.run {
            self.begin(head.run, head.due_ns);
        }
        if head.run != self.run {
            return;
        }
        let (word, bit) = ((head.number / 64) as usize, 1u64 << (head.number % 64));
        if word >= self.seen.len() {
            self.seen.resize(word + 1, 0);
        }
        if self.seen[word] & bit != 0 {
            self.stats.duplicated += 1;
            return;
        }
        self.seen[word] |= bit;
        let s = &mut self.stats;
        s.blocks += 1;
        s.bytes += bytes as u64;
        let before = if s.last_ns == 0 { self.start_ns } else { s.last_ns };
        s.gap_ns = s.gap_ns.max(now_ns.saturating_sub(before));
        s.late_ns = s.late_ns.max(now_ns.saturating_sub(head.due_ns));
        s.last_ns = now_ns;
        let bucket = (now_ns.saturating_sub(self.start_ns) / BUCKET_NS) as usize;
        // Ten minutes; later blocks are not in the throughput curve.
        if bucket < 60_000 {
            if bucket >= s.buckets.len() {
                s.buckets.resize(bucket + 1, 0);
            }
            s.buckets[bucket] = s.buckets[bucket].saturating_add(bytes as u32);
        }
    }

    /// Number of blocks received in this run.
    pub fn blocks(&self) -> u64 {
        self.stats.blocks
    }

    /// The statistics of this run.
    pub fn stats(&self) -> FlowStats {
        self.stats.clone()
    }
}

/// The monotonic clock in ns, the same in all processes of the machine.
pub fn now_ns() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_any_byte_is_detected() {
        let head = BlockHead { flow: 7, run: 3, number: 99, due_ns: 12345 };
        let mut block = vec![0; 1003];
        fill(&mut block, &head);
        assert_eq!(check(&block), Some(head));
        for at in [0, 4, 8, 24, 500, 1002] {
            let mut bad = block.clone();
            bad[at] ^= 1;
            assert_eq!(check(&bad), None, "byte {at}");
        }
        assert_eq!(check(&block[..20]), None);
    }

    #[test]
    fn duplicates_and_gaps_are_counted() {
        let mut rx = FlowRx::new(1);
        rx.begin(5, 1_000);
        let mut take = |run, number, now| {
            rx.take(&BlockHead { flow: 1, run, number, due_ns: 900 }, 100, now);
        };
        take(5, 0, 2_000);
        take(5, 2, 2_500);
        take(5, 0, 2_600);
        take(4, 1, 2_700);
        take(5, 1, 30_000_000);
        let s = rx.stats();
        assert_eq!((s.blocks, s.bytes, s.duplicated), (3, 300, 1));
        assert_eq!((s.gap_ns, s.late_ns), (30_000_000 - 2_500, 30_000_000 - 900));
        assert_eq!(s.buckets, [200, 0, 100]);
    }

    #[test]
    fn a_block_may_come_before_its_run_was_announced() {
        let mut rx = FlowRx::new(1);
        let block = |rx: &mut FlowRx, run, number, now| {
            rx.take(&BlockHead { flow: 1, run, number, due_ns: 900 }, 100, now);
        };
        block(&mut rx, 1, 0, 2_000);
        rx.begin(1, 1_000);
        block(&mut rx, 1, 0, 2_100);
        block(&mut rx, 1, 1, 2_200);
        let s = rx.stats();
        assert_eq!((s.blocks, s.duplicated, s.late_ns), (2, 1, 1_300));
        block(&mut rx, 2, 0, 3_000);
        block(&mut rx, 1, 2, 3_100);
        rx.begin(2, 2_900);
        assert_eq!((rx.blocks(), rx.stats().duplicated), (1, 0));
    }
}
