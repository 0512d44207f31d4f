//! The rings between user threads and the engine's turn: two per queue pair and one per completion
//! queue. Counted slots make a post to a full queue fail.

use crate::{
    budget::{CqSlots, QueueSlots},
    channel::ChannelCore,
    completion::WorkCompletion,
    counter::QpCounters,
    few::Few,
    regions::{RegionCache, RegionId},
    tasks::Tasks,
};
use rtrb::{Consumer, Producer};
use srd_core::{CqId, PdId, QpState, QpType, Qpn, RecvRequest, SendRequest, Status};
use std::{
    collections::VecDeque,
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering},
    },
};

/// Scatter/gather entries of a send request (EFA: 2).
pub const SEND_SGES_MAX: usize = 2;
/// Scatter/gather entries of a receive request.
pub const RECV_SGES_MAX: usize = 4;
/// Inline bytes per request of a queue pair unless more are requested (EFA: 64-byte requests).
pub const INLINE_BYTES_DEFAULT: u32 = 32;
/// Most inline bytes per request (EFA: 128-byte requests).
pub const INLINE_BYTES_MAX: usize = 80;
/// Largest depth of a send or receive queue, in requests.
pub const QUEUE_DEPTH_MAX: u32 = 16_384;
/// Slots of the largest completion queue.
pub const CQ_DEPTH_MAX: u32 = 1 << 20;
/// Completion queues of one device.
pub const CQS_MAX: usize = 1024;

/// One piece of a scatter/gather list; it was checked against its region when it was posted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Piece {
    pub region: RegionId,
    pub len: u32,
    /// Offset from the region's first byte, in bytes.
    pub offset: u64,
}

/// Local data of a send request.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum WrData {
    #[default]
    Empty,
    Pieces(Few<Piece, SEND_SGES_MAX>),
    Inline(Few<u8, INLINE_BYTES_MAX>),
}

impl WrData {
    /// Its pieces of registered memory.
    pub(crate) fn pieces(&self) -> &[Piece] {
        if let Self::Pieces(pieces) = self { pieces } else { &[] }
    }
}

/// A send request in the ring to the engine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SendEntry {
    pub wr: SendRequest,
    /// If this is an error, the request ends with it and has no other effect. (As a field of its
    /// own it would make the entry longer than the 128 bytes that are copied without a call.)
    pub data: Result<WrData, Status>,
}

/// A receive request in the ring to the engine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecvEntry {
    pub wr: RecvRequest,
    pub pieces: Few<Piece, RECV_SGES_MAX>,
    /// The memory is invalid: the request ends with status 5 when a message would fill it.
    pub faulty: bool,
}

/// A completion in the ring to the user.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CqEntry {
    pub wc: WorkCompletion,
    /// Whether the engine reserved a slot for it, too, and must be told when the slot is free.
    pub engine_slot: bool,
}

/// The ring of one shard's completions to a queue, at the reader's end.
#[derive(Debug)]
pub(crate) struct Lane {
    /// Number of the shard.
    pub shard: u8,
    pub ring: Consumer<CqEntry>,
    /// Count of polled completions with a slot reserved in the shard's engine, since creation;
    /// wraps around. Written under the reader's lock.
    pub released: Arc<AtomicU32>,
}

impl Lane {
    /// Tells the engine of `n` freed slots.
    fn release(&self, n: u32) {
        let released = self.released.load(Ordering::Relaxed);
        self.released.store(released.wrapping_add(n), Ordering::Release);
    }
}

/// The reader's state of a completion queue.
#[derive(Debug, Default)]
pub(crate) struct CqReader {
    /// One ring for each shard with a queue pair that uses the queue.
    lanes: Vec<Lane>,
    /// The ring to read first, so that none waits for another.
    next: usize,
    /// Completions taken out of a ring when a queue pair was destroyed, each with its shard; older
    /// than the ring's content.
    stash: VecDeque<(u8, CqEntry)>,
}

impl CqReader {
    /// Adds the ring of a shard that has none yet.
    pub(crate) fn lane_add(&mut self, lane: Lane) {
        debug_assert!(self.lanes.iter().all(|l| l.shard != lane.shard), "one ring for each shard");
        self.lanes.push(lane);
    }

    /// Whether no completion waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.stash.is_empty() && self.lanes.iter().all(|lane| lane.ring.is_empty())
    }

    /// Moves completions to `out`, the oldest of each queue pair first, and tells the engines of
    /// their slots. Returns how many were moved, and the shards whose slots were freed (one bit
    /// each).
    #[inline]
    pub(crate) fn take(&mut self, out: &mut [WorkCompletion]) -> (usize, u64) {
        let (mut n, mut freed) = (0, 0);
        if !self.stash.is_empty() {
            (n, freed) = self.take_stashed(out);
        }
        for _ in 0..self.lanes.len() {
            if n == out.len() {
                break;
            }
            let lane = &mut self.lanes[self.next];
            let (before, mut engine) = (n, 0);
            while n < out.len()
                && let Ok(entry) = lane.ring.pop()
            {
                out[n] = entry.wc;
                n += 1;
                engine += u32::from(entry.engine_slot);
            }
            if n > before {
                lane.release(engine);
                freed |= 1 << lane.shard;
            }
            self.next = if self.next + 1 < self.lanes.len() { self.next + 1 } else { 0 };
        }
        (n, freed)
    }

    #[cold]
    fn take_stashed(&mut self, out: &mut [WorkCompletion]) -> (usize, u64) {
        let (mut n, mut freed) = (0, 0);
        while n < out.len()
            && let Some((shard, entry)) = self.stash.pop_front()
        {
            out[n] = entry.wc;
            n += 1;
            freed |= 1 << shard;
            let lane = self.lanes.iter().find(|lane| lane.shard == shard);
            if let (Some(lane), true) = (lane, entry.engine_slot) {
                lane.release(1);
            }
        }
        (n, freed)
    }

    /// Removes the completions of a shard's queue pair. Returns how many of them have a slot
    /// reserved in the engine, and how many there were in all.
    pub(crate) fn purge(&mut self, shard: u8, qpn: Qpn) -> (u32, u32) {
        let mut kept = std::mem::take(&mut self.stash);
        if let Some(lane) = self.lanes.iter_mut().find(|lane| lane.shard == shard) {
            kept.extend(std::iter::from_fn(|| lane.ring.pop().ok()).map(|entry| (shard, entry)));
        }
        let all = kept.len();
        let mut engine = 0;
        kept.retain(|(_, e)| {
            let gone = e.wc.qpn == qpn;
            engine += u32::from(gone && e.engine_slot);
            !gone
        });
        let removed = (all - kept.len()) as u32;
        self.stash = kept;
        (engine, removed)
    }
}

/// The poster's state of a send or receive queue.
#[derive(Debug)]
pub(crate) struct Poster<T> {
    pub ring: Producer<T>,
    pub regions: RegionCache,
}

impl<T> Poster<T> {
    pub(crate) fn new(ring: Producer<T>) -> Self {
        Self { ring, regions: RegionCache::default() }
    }
}

/// State shared by the user's and the engine's side of a completion queue.
#[derive(Debug)]
pub(crate) struct CqCore {
    pub id: CqId,
    pub reader: Mutex<CqReader>,
    /// The shards that complete into it: one bit each.
    pub shards: AtomicU64,
    /// Slots reserved for posts and for the engines.
    pub slots: CqSlots,
    /// Completions put into the rings since creation, and taken out of them, both modulo 2^32: if
    /// they are equal, a poll need not lock the reader. The first changes after the completion is
    /// in its ring, the second under the reader's lock.
    pub pushed: AtomicU32,
    pub popped: AtomicU32,
    /// Whether the next completion sends an event to `channel`.
    pub armed: AtomicBool,
    pub channel: Option<Arc<ChannelCore>>,
    /// The user's number, returned in events.
    pub context: u64,
    /// Threads asleep until a completion arrives.
    pub sleepers: AtomicU32,
    pub bed: (Mutex<()>, Condvar),
    /// Waits in a row whose completion came soon, up to a few; see [`crate::wait`].
    pub soon: AtomicU8,
    /// Futures that wait for a completion.
    pub tasks: Tasks,
}

/// State shared by the user's and the engine's side of a queue pair.
#[derive(Debug)]
pub(crate) struct QpCore {
    pub qpn: Qpn,
    pub kind: QpType,
    pub pd: PdId,
    pub state: AtomicU8,
    pub sq: Mutex<Poster<SendEntry>>,
    pub rq: Mutex<Poster<RecvEntry>>,
    pub sq_slots: QueueSlots,
    pub rq_slots: QueueSlots,
    pub send_cq: Arc<CqCore>,
    pub recv_cq: Arc<CqCore>,
    pub send_sges_max: usize,
    pub recv_sges_max: usize,
    pub inline_bytes_max: usize,
    pub counters: QpCounters,
}

impl CqCore {
    /// Notes that `n` completions were taken out of the ring. Only under the reader's lock.
    #[inline]
    pub(crate) fn popped_add(&self, n: u32) {
        let popped = self.popped.load(Ordering::Relaxed);
        self.popped.store(popped.wrapping_add(n), Ordering::Release);
    }

    /// Whether completions wait in the ring, or did so when this thread last saw it change.
    #[inline]
    pub(crate) fn may_have(&self) -> bool {
        self.pushed.load(Ordering::Acquire) != self.popped.load(Ordering::Acquire)
    }
}

impl QpCore {
    /// The state last set; posts are checked against it.
    #[inline]
    pub(crate) fn state(&self) -> QpState {
        state_from_u8(self.state.load(Ordering::Acquire))
    }

    pub(crate) fn set_state(&self, state: QpState) {
        self.state.store(state_to_u8(state), Ordering::Release);
    }
}

/// Numbers of the states: EFA's (`efa_admin_qp_state`).
pub(crate) const fn state_to_u8(state: QpState) -> u8 {
    match state {
        QpState::Reset => 0,
        QpState::Init => 1,
        QpState::Rtr => 2,
        QpState::Rts => 3,
        QpState::Sqd => 4,
        QpState::Sqe => 5,
        QpState::Err => 6,
    }
}

/// The state with that number; anything unknown counts as the error state.
pub(crate) const fn state_from_u8(n: u8) -> QpState {
    match n {
        0 => QpState::Reset,
        1 => QpState::Init,
        2 => QpState::Rtr,
        3 => QpState::Rts,
        4 => QpState::Sqd,
        5 => QpState::Sqe,
        _ => QpState::Err,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::lock;

    fn entry(qpn: u16, wr_id: u64, engine_slot: bool) -> CqEntry {
        let wc = WorkCompletion { wr_id, qpn: Qpn(qpn), ..WorkCompletion::default() };
        CqEntry { wc, engine_slot }
    }

    /// A reader with a ring of this length for each shard, and the engines' ends.
    fn reader(shards: u8, len: usize) -> (CqReader, Vec<Producer<CqEntry>>, Vec<Arc<AtomicU32>>) {
        let (mut reader, mut rings, mut counts) = (CqReader::default(), vec![], vec![]);
        for shard in 0..shards {
            let (tx, ring) = rtrb::RingBuffer::new(len);
            let released = Arc::new(AtomicU32::new(0));
            counts.push(Arc::clone(&released));
            reader.lane_add(Lane { shard, ring, released });
            rings.push(tx);
        }
        (reader, rings, counts)
    }

    fn take_all(reader: &mut CqReader, at_once: usize) -> Vec<u64> {
        let mut all = Vec::new();
        let mut out = vec![WorkCompletion::default(); at_once];
        loop {
            let (n, freed) = reader.take(&mut out);
            assert_eq!(n == 0, freed == 0);
            if n == 0 {
                return all;
            }
            all.extend(out[..n].iter().map(|wc| wc.wr_id));
        }
    }

    #[test]
    fn purge_removes_one_queue_pair_and_keeps_the_order() {
        for at_once in [1, 2, 16] {
            let (mut reader, mut rings, counts) = reader(1, 16);
            for (i, qpn) in [1, 2, 1, 3, 2].into_iter().enumerate() {
                rings[0].push(entry(qpn, i as u64, i != 2)).unwrap();
            }
            assert_eq!(reader.purge(0, Qpn(1)), (1, 2));
            rings[0].push(entry(1, 9, true)).unwrap();
            assert_eq!(reader.purge(0, Qpn(3)), (1, 1));
            assert_eq!(take_all(&mut reader, at_once), [1, 4, 9]);
            assert_eq!(counts[0].load(Ordering::Relaxed), 3, "the others were purged");
        }
    }

    #[test]
    fn each_shard_learns_of_its_own_slots() {
        for at_once in [1, 3, 64] {
            let (mut reader, mut rings, counts) = reader(3, 16);
            for i in 0..12_u64 {
                // Shard 1 has every second completion, and one that its engine does not know.
                let shard = [0, 1, 2, 1][i as usize % 4];
                rings[shard].push(entry(shard as u16, i, i != 5)).unwrap();
            }
            // Those of shard 2 that are not of this queue pair are put aside.
            assert_eq!(reader.purge(2, Qpn(7)), (0, 0));
            let mut all = take_all(&mut reader, at_once);
            for shard in 0..3 {
                let of = |i: &u64| [0, 1, 2, 1][*i as usize % 4] == shard;
                assert!(all.iter().filter(|i| of(i)).is_sorted(), "order of a queue pair");
            }
            all.sort_unstable();
            assert_eq!(all, (0..12).collect::<Vec<_>>());
            let released: Vec<_> = counts.iter().map(|c| c.load(Ordering::Relaxed)).collect();
            assert_eq!(released, [3, 5, 3]);
            assert!(reader.is_empty());
        }
    }

    /// A shard that completes all the time does not hide another's completions.
    #[test]
    fn every_ring_has_its_turn() {
        let (mut reader, mut rings, _) = reader(2, 16);
        rings[1].push(entry(1, 1000, true)).unwrap();
        let mut out = [WorkCompletion::default()];
        let found = (0..3).any(|i| {
            rings[0].push(entry(0, 2 * i, true)).unwrap();
            rings[0].push(entry(0, 2 * i + 1, true)).unwrap();
            reader.take(&mut out);
            out[0].wr_id == 1000
        });
        assert!(found);
    }

    /// Two threads post, one takes, and slots are returned: nothing is lost, torn or duplicated.
    #[test]
    fn posts_cross_the_ring_whole_and_in_order() {
        const EACH: u64 = if cfg!(miri) { 12 } else { 4_000 };
        let (ring, mut posts) = rtrb::RingBuffer::new(4);
        let (queue, slots) = (Mutex::new(Poster::new(ring)), QueueSlots::new(4));
        let post = |thread: u64| {
            for n in 0..EACH {
                let bytes = [(thread * EACH + n) as u8; INLINE_BYTES_MAX];
                let mut entry = Some((thread, n, WrData::Inline(Few::from_slice(&bytes).unwrap())));
                while entry.is_some() {
                    let mut poster = lock(&queue);
                    if slots.any_free() {
                        slots.take();
                        poster.ring.push(entry.take().unwrap()).unwrap();
                    } else {
                        drop(poster);
                        std::thread::yield_now();
                    }
                }
            }
        };
        std::thread::scope(|s| {
            s.spawn(|| post(0));
            s.spawn(|| post(1));
            let mut next = [0; 2];
            while next != [EACH; 2] {
                let Ok((thread, n, data)) = posts.pop() else {
                    std::thread::yield_now();
                    continue;
                };
                slots.give(1);
                assert_eq!(n, next[thread as usize]);
                next[thread as usize] += 1;
                let WrData::Inline(bytes) = data else { unreachable!("inline it was") };
                assert!(bytes.iter().all(|&b| b == (thread * EACH + n) as u8));
            }
        });
        assert!(posts.is_empty() && slots.used() == 0);
    }

    /// The engine completes, a reader polls, and a third thread removes a queue pair's completions.
    #[test]
    fn completions_cross_the_ring_while_some_are_removed() {
        const N: u64 = if cfg!(miri) { 24 } else { 8_000 };
        let (reader, mut rings, _) = reader(1, 4);
        let (reader, mut ring) = (Mutex::new(reader), rings.remove(0));
        let removed = AtomicU32::new(0);
        std::thread::scope(|s| {
            s.spawn(move || {
                for n in 0..N {
                    let mut completion = entry((n % 3) as u16, n, true);
                    while let Err(rtrb::PushError::Full(back)) = ring.push(completion) {
                        completion = back;
                        std::thread::yield_now();
                    }
                }
            });
            s.spawn(|| {
                for _ in 0..if cfg!(miri) { 3 } else { 200 } {
                    removed.fetch_add(lock(&reader).purge(0, Qpn(2)).1, Ordering::AcqRel);
                    std::thread::yield_now();
                }
            });
            let (mut polled, mut last) = (0, [None; 3]);
            while polled + u64::from(removed.load(Ordering::Acquire)) < N {
                let mut one = [WorkCompletion::default()];
                if lock(&reader).take(&mut one).0 == 0 {
                    std::thread::yield_now();
                    continue;
                }
                let [wc] = one;
                let last = &mut last[usize::from(wc.qpn.0)];
                assert!(last.is_none_or(|l| l < wc.wr_id), "{wc:?} after {last:?}");
                *last = Some(wc.wr_id);
                polled += 1;
            }
            assert_eq!(polled + u64::from(removed.load(Ordering::Acquire)), N);
        });
    }

    #[test]
    fn states_have_their_numbers() {
        for n in 0..=6 {
            assert_eq!(state_to_u8(state_from_u8(n)), n);
        }
        assert_eq!(state_from_u8(200), QpState::Err);
    }
}
