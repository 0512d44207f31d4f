//! Denial of paths: an operator takes paths to an address out of use, for example before a switch
//! is serviced, and allows them again later.
//!
//! A denied path carries no new packet of any kind. What flies on it is awaited as usual, and no
//! loss follows from the denial itself. Denials are kept by address in a bounded table, so that
//! they outlive the contexts to the address; the states of the paths follow from that table.

use super::active::ActivePaths;
use super::set::PathState;
use crate::limits::{DENIALS_MAX, PATHS_MAX};
use crate::params::Params;
use crate::rng::Rng;
use crate::time::{Span, Time};
use core::net::IpAddr;

/// Words of a [`PathMask`].
const WORDS: usize = PATHS_MAX / 64;

/// A set of paths to one address: one bit for each of the 256 path numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PathMask(pub [u64; WORDS]);

impl PathMask {
    /// No path.
    pub const NONE: Self = Self([0; WORDS]);

    /// Whether `path` is in the set.
    pub fn has(&self, path: u8) -> bool {
        self.0[usize::from(path) / 64] >> (path % 64) & 1 == 1
    }

    /// Adds `path` to the set (`on`), or removes it.
    pub fn put(&mut self, path: u8, on: bool) {
        let (word, bit) = (&mut self.0[usize::from(path) / 64], 1 << (path % 64));
        *word = if on { *word | bit } else { *word & !bit };
    }

    /// Whether no path is in the set.
    pub fn is_empty(&self) -> bool {
        *self == Self::NONE
    }

    /// Number of paths in the set.
    pub fn len(&self) -> u16 {
        self.0.iter().map(|w| w.count_ones() as u16).sum()
    }

    /// The paths of the set below number `paths`.
    #[must_use]
    pub fn below(&self, paths: u16) -> Self {
        let mut mask = *self;
        (usize::from(paths)..PATHS_MAX).for_each(|i| mask.put(i as u8, false));
        mask
    }
}

/// Why paths could not be denied. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DenyError {
    /// `left` paths would remain in use, but `least` must.
    TooFewLeft {
        /// Paths that would remain.
        left: u16,
        /// Paths that must remain.
        least: u16,
    },
    /// [`DENIALS_MAX`] other addresses have denied paths.
    TableFull,
}

impl core::fmt::Display for DenyError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::TooFewLeft { left, least } => write!(
                f,
                "{left} paths to the address would remain in use, but at least {least} must: deny \
                 fewer paths"
            ),
            Self::TableFull => write!(
                f,
                "{DENIALS_MAX} addresses have denied paths, which is the most: allow the paths of \
                 an address first"
            ),
        }
    }
}

impl core::error::Error for DenyError {}

/// The denied paths of each address that has any.
#[derive(Debug, Default)]
pub(crate) struct Denials {
    /// At most [`DENIALS_MAX`] entries; it allocates nothing while no path is denied.
    of: Vec<(IpAddr, PathMask)>,
}

impl Denials {
    pub fn get(&self, ip: &IpAddr) -> PathMask {
        self.of.iter().find(|e| e.0 == *ip).map_or(PathMask::NONE, |e| e.1)
    }

    pub fn set(&mut self, ip: IpAddr, mask: PathMask) -> Result<(), DenyError> {
        if let Some(at) = self.of.iter().position(|e| e.0 == ip) {
            if mask.is_empty() {
                self.of.swap_remove(at);
            } else {
                self.of[at].1 = mask;
            }
            return Ok(());
        }
        if mask.is_empty() {
            return Ok(());
        }
        if self.of.len() >= DENIALS_MAX {
            return Err(DenyError::TableFull);
        }
        self.of.push((ip, mask));
        Ok(())
    }

    /// A random path to `ip` that is not denied, of `paths`; it draws one number.
    #[inline(always)]
    pub fn draw(&self, ip: &IpAddr, paths: u16, rng: &mut Rng) -> u8 {
        if self.of.is_empty() || planted!(DeniedOpened) {
            return rng.below(u32::from(paths)) as u8;
        }
        self.draw_allowed(ip, paths, rng)
    }

    #[cold]
    fn draw_allowed(&self, ip: &IpAddr, paths: u16, rng: &mut Rng) -> u8 {
        let denied = self.get(ip).below(paths);
        let allowed = paths - denied.len();
        debug_assert!(allowed > 0, "not all paths are denied");
        let mut which = rng.below(u32::from(allowed.max(1)));
        for i in 0..paths {
            if !denied.has(i as u8) {
                if which == 0 {
                    return i as u8;
                }
                which -= 1;
            }
        }
        0
    }
}

impl ActivePaths {
    /// See [`super::PathContext::probes_order`]. A probe that is under way stays the one whose echo
    /// counts: a small one does not prove that a path carries packets of full size.
    pub(crate) fn probes_order(&mut self, p: &Params, now: Time, mask: &PathMask) -> PathMask {
        let mut live = PathMask::NONE;
        for i in 0..self.set.paths.len() {
            let path = i as u8;
            if !mask.has(path) || self.set.get(path).is_denied() {
                continue;
            }
            let entry = self.set.get_mut(path);
            entry.echoed_set(false);
            if entry.is_live() {
                live.put(path, true);
            } else if !entry.probe_out() {
                entry.at = now.to_wire();
            }
        }
        self.health.probe_schedule(p, &self.set, now);
        live
    }

    /// Denies the paths of `mask` and allows all others. `told` takes each path that changes, and
    /// its old and new state.
    pub(crate) fn deny(
        &mut self,
        p: &Params,
        now: Time,
        mask: &PathMask,
        mut told: impl FnMut(u8, PathState, PathState),
    ) {
        let wait = Span(u64::from(p.probe_ns_first));
        for i in 0..self.set.paths.len() {
            let path = i as u8;
            let was = self.set.get(path).state;
            if self.set.deny(path, mask.has(path), (now + wait).to_wire()) {
                told(path, was, self.set.get(path).state);
            }
        }
        // The paths that remain must be able to carry something.
        let allowed = self.set.paths.len() - usize::from(self.set.denied);
        let least = usize::from(p.live_min).min(allowed);
        let short = least.saturating_sub(self.set.live());
        self.health.acquit_some(&mut self.set, short);
        debug_assert!(self.set.live() >= least.min(1) || cfg!(planted_bugs), "some path is live");
        self.health.probe_schedule(p, &self.set, now);
    }
}
