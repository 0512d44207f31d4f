//! The table of paths: the state of each, and which are in use.

use super::clean::Clean;
use super::rtt::Smoothed;
use crate::rng::Rng;
use crate::state::state_machine;

state_machine! {
    /// Life of a path.
    pub enum PathState {
        /// In use.
        Live,
        /// Out of use; no probe since the last failure was echoed.
        Retired,
        /// Out of use; one probe was echoed, and a second echo returns the path to use.
        Probing,
        /// Out of use because an operator denied it.
        Denied,
    }
    /// The path lost packets while other paths did not.
    retired: Live => Retired;
    /// A probe was echoed.
    probe_good: Retired => Probing;
    /// The second probe was not echoed.
    probe_failed: Probing => Retired;
    /// The second probe was echoed.
    returned: Probing => Live;
    /// The losses were spurious.
    acquitted: Retired | Probing => Live;
    /// An operator denied the path.
    denied: Live | Retired | Probing => Denied;
    /// The path is allowed again.
    allowed: Denied => Live;
    /// The path is allowed again; it was retired when it was denied.
    allowed_retired: Denied => Retired;
}

/// Flag: the path is in the list of clean paths.
const CLEAN: u8 = 1;
/// Flag: the state differs from the one that was told last.
const CHANGED: u8 = 2;
const PROBE_OUT: u8 = 4;
/// Flag: the path is clean and has not been reused since.
const WAITS: u8 = 8;
/// Flag: the path was retired when it was denied.
const WAS_OUT: u8 = 16;
/// Flag: the path was retired with its rail.
const WITH_RAIL: u8 = 64;
/// Flag: a packet was echoed since an operator last asked for a probe.
const ECHOED: u8 = 32;

impl PathState {
    /// The state in the words of events and tools.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Retired => "retired",
            Self::Probing => "probing",
            Self::Denied => "denied",
        }
    }
}

/// State of one path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Path {
    pub rtt: Smoothed,
    pub rtt_ns_min: u32,
    /// Least queueing delay of the present round in ns; valid while the bit in `touched` is set.
    pub queue_ns: u32,
    /// Time in units of 16 ns. Live: of the last clean echo. Otherwise: when the next probe is due.
    pub at: u32,
    pub lost: u32,
    pub ce: u32,
    sent_low: u32,
    sent_high: u8,
    /// Neighbours in the list of clean paths.
    pub(super) prev: u8,
    pub(super) next: u8,
    /// Live: penalty, 0 to 15. Otherwise: number of probes sent so far.
    pub level: u8,
    /// Loss events since the last acknowledgment.
    pub losses: u8,
    /// Timeouts since the last acknowledgment.
    pub timeouts: u8,
    /// Period (of [`super::health`]) of the last loss.
    pub loss_period: u8,
    pub state: PathState,
    /// The state that was told last.
    told: PathState,
    flags: u8,
}

impl Path {
    const NEW: Self = Self {
        rtt: Smoothed { srtt_ns: 0, var_ns: 0 },
        rtt_ns_min: u32::MAX,
        queue_ns: 0,
        at: 0,
        lost: 0,
        ce: 0,
        sent_low: 0,
        sent_high: 0,
        prev: 0,
        next: 0,
        level: 0,
        losses: 0,
        timeouts: 0,
        loss_period: 0,
        state: PathState::Live,
        told: PathState::Live,
        flags: 0,
    };

    pub(crate) fn is_live(&self) -> bool {
        self.state == PathState::Live
    }

    pub(crate) fn is_denied(&self) -> bool {
        self.state == PathState::Denied
    }

    /// A packet sent on the path arrived, which ends the sequence of consecutive losses.
    pub(super) fn losses_forget(&mut self) {
        self.losses = 0;
        self.timeouts = 0;
    }

    /// Packets sent, to 40 bits.
    pub(crate) fn sent(&self) -> u64 {
        u64::from(self.sent_high) << 32 | u64::from(self.sent_low)
    }

    pub(crate) fn count_sent(&mut self) {
        let (low, carry) = self.sent_low.overflowing_add(1);
        self.sent_low = low;
        self.sent_high = self.sent_high.wrapping_add(u8::from(carry));
    }

    /// Whether the path is in the list of clean paths.
    pub(super) fn is_clean(&self) -> bool {
        self.flags & CLEAN != 0
    }
    pub(super) fn clean_set(&mut self, on: bool) {
        self.flag_set(CLEAN, on);
    }
    /// Whether the path is in that list and has not been reused since.
    pub(super) fn waits(&self) -> bool {
        self.flags & WAITS != 0
    }
    pub(super) fn waits_set(&mut self, on: bool) {
        self.flag_set(WAITS, on);
    }

    pub(crate) fn probe_out(&self) -> bool {
        self.flags & PROBE_OUT != 0
    }

    pub(crate) fn probe_out_set(&mut self, on: bool) {
        self.flag_set(PROBE_OUT, on);
    }

    /// Whether the path was retired with its rail.
    pub(super) fn with_rail(&self) -> bool {
        self.flags & WITH_RAIL != 0
    }
    pub(super) fn with_rail_set(&mut self, on: bool) {
        self.flag_set(WITH_RAIL, on);
    }

    /// Whether a packet was echoed since an operator last asked for a probe.
    pub(crate) fn echoed(&self) -> bool {
        self.flags & ECHOED != 0
    }

    pub(crate) fn echoed_set(&mut self, on: bool) {
        self.flag_set(ECHOED, on);
    }

    fn flag_set(&mut self, flag: u8, on: bool) {
        self.flags = if on { self.flags | flag } else { self.flags & !flag };
    }
}

/// All paths to one address.
#[derive(Debug)]
pub(crate) struct PathSet {
    pub paths: Box<[Path]>,
    /// Paths that are not live.
    pub out: u16,
    /// Paths of these that are denied.
    pub denied: u16,
    changes: u16,
    cursor: u8,
    scramble: u8,
    pub(super) clean: Clean,
    /// Which paths were acknowledged in the present round.
    touched: [u64; 4],
}

impl PathSet {
    pub(crate) fn new(paths: u16, salt: u32) -> Self {
        Self {
            paths: vec![Path::NEW; usize::from(paths)].into_boxed_slice(),
            out: 0,
            denied: 0,
            changes: 0,
            cursor: ((salt >> 8) as u16 & (paths - 1)) as u8,
            scramble: salt as u8,
            clean: Clean::default(),
            touched: [0; 4],
        }
    }

    /// Checks that the sums agree with the paths.
    #[cfg(debug_assertions)]
    pub(crate) fn audit(&self) {
        let count = |is: &dyn Fn(&Path) -> bool| self.paths.iter().filter(|p| is(p)).count();
        assert_eq!(usize::from(self.out), count(&|p| !p.is_live()), "paths out of use");
        assert_eq!(usize::from(self.denied), count(&|p| p.is_denied()), "denied paths");
        assert_eq!(usize::from(self.changes), count(&|p| p.flags & CHANGED != 0), "changes");
        let untold = |p: &Path| (p.flags & CHANGED != 0) != (p.state != p.told);
        assert!(!self.paths.iter().any(untold) || cfg!(planted_bugs), "each change is noted");
        self.clean_audit();
    }

    /// Index mask: the number of paths is a power of two.
    pub(crate) fn mask(&self) -> usize {
        self.paths.len() - 1
    }

    /// A path by number. Numbers beyond the table, which a peer may send, are masked.
    pub(crate) fn get(&self, path: u8) -> &Path {
        &self.paths[usize::from(path) & self.mask()]
    }

    pub(crate) fn get_mut(&mut self, path: u8) -> &mut Path {
        let i = usize::from(path) & self.mask();
        &mut self.paths[i]
    }

    pub(crate) fn live(&self) -> usize {
        self.paths.len() - usize::from(self.out)
    }

    /// Denies `path`, or allows it again. `probe_at`: when a path that was retired before is then
    /// to be probed, in the wire's clock format. Returns whether the path changed its state.
    pub(super) fn deny(&mut self, path: u8, on: bool, probe_at: u32) -> bool {
        if self.get(path).is_denied() == on {
            return false;
        }
        self.clean_forget(path);
        debug_assert!(self.changes == 0, "what came before is told first");
        let entry = self.get_mut(path);
        let out = if on { !entry.is_live() } else { entry.flags & WAS_OUT != 0 };
        let moved = match (on, out) {
            (true, _) => entry.state.denied(),
            (false, true) => entry.state.allowed_retired(),
            (false, false) => entry.state.allowed(),
        };
        debug_assert!(moved.is_ok(), "every path can be denied, and each denied one allowed");
        // The caller tells it.
        entry.told = entry.state;
        entry.flag_set(WAS_OUT, on && out);
        entry.probe_out_set(false);
        entry.losses_forget();
        entry.level = 0;
        entry.at = if out { probe_at } else { entry.at };
        if on {
            self.denied += 1;
            self.out += u16::from(!out);
        } else {
            self.denied -= 1;
            self.out -= u16::from(!out);
        }
        true
    }

    /// The path number `k` (from 0) of those that `is` accepts; `None` if they are fewer.
    pub(super) fn nth(&self, k: usize, is: impl Fn(u8, &Path) -> bool) -> Option<u8> {
        let all = self.paths.iter().enumerate().map(|(i, entry)| (i as u8, entry));
        all.filter(|&(i, entry)| is(i, entry)).nth(k).map(|(i, _)| i)
    }

    /// The next path of the round robin, in an order that changes with every turn.
    pub(crate) fn scan_next(&mut self, rng: &mut Rng) -> u8 {
        let next = usize::from(self.cursor) + 1;
        if next >= self.paths.len() {
            self.cursor = 0;
            self.scramble = rng.next_u32() as u8;
        } else {
            self.cursor = next as u8;
        }
        (usize::from(self.cursor ^ self.scramble) & self.mask()) as u8
    }

    /// The next live path of the round robin, whatever its penalty.
    pub(crate) fn scan_live(&mut self, rng: &mut Rng) -> u8 {
        let mut path = self.scan_next(rng);
        for _ in 0..2 * self.paths.len() {
            if self.get(path).is_live() {
                break;
            }
            path = self.scan_next(rng);
        }
        path
    }

    /// The live path with the least smoothed RTT of those that were measured and have lost nothing
    /// since, except `avoid`.
    pub(super) fn quickest(&self, avoid: Option<u8>) -> Option<u8> {
        let known = |&(i, entry): &(usize, &Path)| {
            entry.is_live() && entry.rtt.srtt_ns != 0 && entry.losses == 0 && avoid != Some(i as u8)
        };
        let known = self.paths.iter().enumerate().filter(known);
        let path = known.min_by_key(|(_, entry)| entry.rtt.srtt_ns).map(|(i, _)| i as u8);
        debug_assert!(path.is_none() || path != avoid, "it avoids what it is told");
        path
    }

    /// Paths of rail `rail` of `count`, live or not.
    pub(super) fn of_rail(&self, rail: usize, count: u8) -> impl Iterator<Item = u8> + use<> {
        debug_assert!(rail < usize::from(count), "rails are numbered from 0");
        (rail..self.paths.len()).step_by(count.into()).map(|path| path as u8)
    }

    /// The next live path of the round robin that `is` accepts, if there is one.
    #[cold]
    pub(super) fn scan_where(
        &mut self,
        rng: &mut Rng,
        is: impl Fn(u8, &Path) -> bool,
    ) -> Option<u8> {
        // The order changes at each wrap: two turns reach every path.
        for _ in 0..2 * self.paths.len() {
            let path = self.scan_next(rng);
            let entry = self.get(path);
            if entry.is_live() && is(path, entry) {
                return Some(path);
            }
        }
        None
    }

    /// Whether the next turn of the round robin is about to begin.
    #[cfg(test)]
    pub(crate) fn at_wrap(&self) -> bool {
        usize::from(self.cursor) + 1 == self.paths.len()
    }

    /// Notes a queueing delay for the median of the round.
    pub(crate) fn touch(&mut self, path: u8, queue_ns: u32) {
        let i = usize::from(path) & self.mask();
        let (word, bit) = (i / 64, 1u64 << (i % 64));
        let seen = self.touched[word] & bit != 0;
        self.touched[word] |= bit;
        let least = &mut self.paths[i].queue_ns;
        *least = if seen { queue_ns.min(*least) } else { queue_ns };
    }

    /// Lower median and lower quartile, in ns, of the least queueing delays of the paths
    /// acknowledged since the last call.
    pub(crate) fn quartiles_take(&mut self) -> Option<(u32, u32)> {
        let mut delays = [0u32; 256];
        let mut n = 0;
        for (word, bits) in self.touched.iter_mut().enumerate() {
            while *bits != 0 {
                delays[n] = self.paths[word * 64 + bits.trailing_zeros() as usize].queue_ns;
                n += 1;
                *bits &= *bits - 1;
            }
        }
        if n == 0 {
            return None;
        }
        // The lower median, because half of the paths being late is no majority.
        let half = (n - 1) / 2;
        let median = *delays[..n].select_nth_unstable(half).1;
        let quartile = *delays[..=half].select_nth_unstable(half / 2).1;
        debug_assert!(quartile <= median && n <= self.paths.len(), "of paths of the table");
        Some((median, quartile))
    }

    /// Notes that the state of `path` changed, for [`Self::change_take`].
    pub(crate) fn change_note(&mut self, path: u8) {
        let entry = self.get_mut(path);
        let was = entry.flags & CHANGED != 0;
        // A second change before the report may undo the first one.
        let is = entry.state != entry.told;
        entry.flag_set(CHANGED, is);
        debug_assert!(!was || self.changes > 0, "it was counted");
        self.changes = self.changes + u16::from(is) - u16::from(was);
    }

    /// A path whose state is not the one that was told last, with the former and the new state.
    pub(crate) fn change_take(&mut self) -> Option<(u8, PathState, PathState)> {
        if self.changes == 0 {
            return None;
        }
        let i = self.paths.iter().position(|p| p.flags & CHANGED != 0)?;
        debug_assert!(usize::from(self.changes) <= self.paths.len(), "one each");
        self.changes -= 1;
        let entry = &mut self.paths[i];
        entry.flags &= !CHANGED;
        let from = core::mem::replace(&mut entry.told, entry.state);
        Some((i as u8, from, entry.state))
    }

    /// The state of `path` is known to whoever is told of changes.
    pub(super) fn told_set(&mut self, path: u8) {
        let entry = self.get_mut(path);
        debug_assert!(entry.flags & CHANGED == 0, "nothing waits to be told");
        entry.told = entry.state;
    }

    pub(crate) fn changes(&self) -> bool {
        self.changes > 0
    }
}
