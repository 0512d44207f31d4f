//! The list of clean paths: those whose last echoed packet came back without delay, in the order of
//! these echoes. Rules CC-06 and CC-07.
//!
//! A path that is late, loses a packet or is retired leaves the list, so each path in the list is
//! in use and has no penalty. The newest paths in the list wait to be reused, each once.

use super::set::{Path, PathSet};
use crate::time::{Span, Time};

/// The doubly linked list of clean paths; its links are in the paths.
#[derive(Debug, Default)]
pub(super) struct Clean {
    oldest: u8,
    newest: u8,
    len: u16,
    /// The first path that waits to be reused. The paths that wait are the newest of the list.
    front: u8,
    waiting: u16,
}

impl PathSet {
    /// `path`, which is in use and has no penalty, came back clean. It is in the list only once,
    /// however often it comes back between two packets: bursts on one path must not crowd out the
    /// others.
    pub(crate) fn clean_note(&mut self, now: Time, path: u8) {
        let entry = self.get(path);
        debug_assert!(entry.is_live() && entry.level == 0, "only such a path is clean");
        self.clean_forget(path);
        let last = self.clean.newest;
        let entry = self.get_mut(path);
        (entry.at, entry.prev) = (now.to_wire(), last);
        entry.clean_set(true);
        entry.waits_set(true);
        let clean = &mut self.clean;
        if clean.len == 0 {
            clean.oldest = path;
        } else {
            self.get_mut(last).next = path;
        }
        let clean = &mut self.clean;
        if clean.waiting == 0 {
            clean.front = path;
        }
        clean.newest = path;
        clean.len += 1;
        clean.waiting += 1;
    }

    /// Removes `path` from the list of clean paths, if it is in it.
    pub(crate) fn clean_forget(&mut self, path: u8) {
        let entry = self.get_mut(path);
        if !entry.is_clean() {
            return;
        }
        let (prev, next, waited) = (entry.prev, entry.next, entry.waits());
        entry.clean_set(false);
        entry.waits_set(false);
        let (first, last) = (self.clean.oldest == path, self.clean.newest == path);
        if !last {
            self.get_mut(next).prev = prev;
        }
        if !first {
            self.get_mut(prev).next = next;
        }
        let clean = &mut self.clean;
        if first {
            clean.oldest = next;
        }
        if last {
            clean.newest = prev;
        }
        if clean.front == path {
            clean.front = next;
        }
        debug_assert!(clean.len > 0 && clean.waiting >= u16::from(waited), "it was counted");
        clean.len -= 1;
        clean.waiting -= u16::from(waited);
    }

    /// Whether the last clean echo of `path` is less than `age_max` ago. An older one says nothing
    /// about the present queues.
    fn is_fresh(&self, now: Time, path: u8, age_max: Span) -> bool {
        now.since_wire(self.get(path).at) < age_max
    }

    /// Takes the path that has waited longest to be reused, except `avoid`. The path waits no
    /// longer.
    pub(crate) fn clean_next(&mut self, now: Time, age_max: Span, avoid: Option<u8>) -> Option<u8> {
        while self.clean.waiting > 0 {
            let path = self.clean.front;
            let fresh = self.is_fresh(now, path, age_max);
            if !fresh || avoid != Some(path) {
                // A path that is not fresh stays in the list: it may soon be the best that is
                // known.
                self.get_mut(path).waits_set(false);
                self.clean.front = self.get(path).next;
                self.clean.waiting -= 1;
                if fresh {
                    return Some(path);
                }
            } else if self.clean.waiting > 1 {
                // The avoided path keeps its place; the one after it is taken out of the list.
                let other = self.get(path).next;
                let fresh = self.is_fresh(now, other, age_max);
                self.clean_forget(other);
                return fresh.then_some(other);
            } else {
                return None;
            }
        }
        None
    }

    /// The most recently clean path, except `avoid`, if its echo is less than `age_max` ago.
    pub(crate) fn clean_newest(&self, now: Time, age_max: Span, avoid: Option<u8>) -> Option<u8> {
        let newest = (self.clean.len > 0).then_some(self.clean.newest)?;
        let other = avoid == Some(newest);
        if other && self.clean.len == 1 {
            return None;
        }
        let path = if other { self.get(newest).prev } else { newest };
        self.is_fresh(now, path, age_max).then_some(path)
    }

    /// The most recently clean path that `is` accepts.
    #[cold]
    pub(super) fn clean_newest_where(&self, is: impl Fn(u8, &Path) -> bool) -> Option<u8> {
        let mut path = self.clean.newest;
        for _ in 0..self.clean.len {
            let entry = self.get(path);
            if is(path, entry) {
                return Some(path);
            }
            path = entry.prev;
        }
        None
    }

    /// Checks that links and sums agree, and that each path in the list is live and has no penalty.
    #[cfg(debug_assertions)]
    pub(crate) fn clean_audit(&self) {
        let (mut at, mut waiting) = (self.clean.oldest, 0);
        for k in 0..self.clean.len {
            let entry = self.get(at);
            assert!(entry.is_clean() && entry.is_live() && entry.level == 0);
            assert!(waiting == 0 || entry.waits(), "those that wait are the newest");
            if entry.waits() && waiting == 0 {
                assert_eq!(self.clean.front, at, "the first that waits");
            }
            waiting += u16::from(entry.waits());
            if k + 1 < self.clean.len {
                assert_eq!(self.get(entry.next).prev, at, "links lead back");
                at = entry.next;
            }
        }
        assert!(self.clean.len == 0 || at == self.clean.newest, "the list ends with the newest");
        assert_eq!(waiting, self.clean.waiting, "paths that wait to be used again");
        let listed = self.paths.iter().filter(|p| p.is_clean()).count();
        assert_eq!(listed, usize::from(self.clean.len), "clean paths");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    const AGE: Span = Span::from_us(60);

    /// The list against a plain one, with the same rules.
    #[test]
    fn it_agrees_with_a_plain_list() {
        let mut rng = Rng::from_seed(5);
        let mut set = PathSet::new(256, 0);
        // Path, time, whether it waits.
        let mut model: Vec<(u8, Time, bool)> = vec![];
        let mut now = Time(1_000_000);
        let mut taken = 0;
        for step in 0..20_000 {
            now += Span(u64::from(rng.below(2_000)) << 4);
            let path = rng.below(if step % 3 == 0 { 256 } else { 8 }) as u8;
            let avoid = (rng.below(3) == 0).then_some(path);
            let fresh = |m: &(u8, Time, bool)| now.since(m.1) < AGE;
            match rng.below(4) {
                0 => {
                    set.clean_note(now, path);
                    model.retain(|m| m.0 != path);
                    model.push((path, now, true));
                }
                1 => {
                    set.clean_forget(path);
                    model.retain(|m| m.0 != path);
                }
                2 => {
                    let got = set.clean_next(now, AGE, avoid);
                    // Paths that are no longer fresh do not wait any more.
                    for m in &mut model {
                        m.2 &= fresh(m);
                    }
                    let at = model.iter().position(|m| m.2);
                    let expected = match at {
                        Some(at) if avoid != Some(model[at].0) => {
                            model[at].2 = false;
                            Some(model[at].0)
                        }
                        Some(at) if at + 1 < model.len() => {
                            let other = model.remove(at + 1);
                            fresh(&other).then_some(other.0)
                        }
                        _ => None,
                    };
                    assert_eq!(got, expected, "step {step}");
                    taken += u32::from(got.is_some());
                }
                _ => {
                    let other = model.iter().rev().find(|m| avoid != Some(m.0));
                    let expected = other.filter(|m| fresh(m)).map(|m| m.0);
                    assert_eq!(set.clean_newest(now, AGE, avoid), expected, "step {step}");
                }
            }
            #[cfg(debug_assertions)]
            set.clean_audit();
        }
        assert!(taken > 1_000, "{taken} were used again");
    }
}
