//! Contexts of one address that wait to send: for room in flight, or for the pacer.

use crate::ids::Ctx;
use crate::time::Time;
use std::collections::VecDeque;

/// Contexts that wait. Mostly there are none, and the list takes one word per address.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    lists: Option<Box<Lists>>,
}

#[derive(Debug)]
struct Lists {
    /// Contexts that wait until less is in flight to the address, with their own bytes in flight:
    /// those with the least first, among equals in the order in which they were parked.
    parked: Vec<(Ctx, u64)>,
    /// Contexts that wait for the pacer: the first one sends next; after sending, a context goes to
    /// the end.
    paced: VecDeque<Ctx>,
    /// When the first context in `paced` is called. `NEVER`: it has been called, or no context
    /// waits.
    paced_at: Time,
}

impl Waits {
    fn lists(&mut self) -> &mut Lists {
        self.lists.get_or_insert_with(|| {
            let (parked, paced) = (Vec::new(), VecDeque::new());
            Box::new(Lists { parked, paced, paced_at: Time::NEVER })
        })
    }
    /// The address is idle: no context waits, and the memory is freed.
    pub fn rest(&mut self) {
        debug_assert!(self.paced_first().is_none(), "who rests waits for nothing");
        self.lists = None;
    }

    // ---- for room ------------------------------------------------------------------------------

    /// Context `ci`, which has `flying` bytes in flight, waits until there is room for more. Who
    /// has the least in flight is the first: so each comes to an equal part of the room, however
    /// long the packets of the others stay in flight.
    pub fn park(&mut self, ci: Ctx, flying: u64) {
        let parked = &mut self.lists().parked;
        let at = match planted!(RoomUnordered) {
            true => parked.len(),
            false => parked.partition_point(|&(_, other)| other <= flying),
        };
        parked.insert(at, (ci, flying));
        debug_assert!(parked.is_sorted_by_key(|&(_, flying)| flying), "the least first");
    }
    /// Takes all contexts that wait for room, in order.
    pub fn parked_take(&mut self) -> impl Iterator<Item = Ctx> {
        self.lists.iter_mut().flat_map(|lists| lists.parked.drain(..).map(|(ci, _)| ci))
    }
    /// Whether a context waits for room.
    #[cfg(debug_assertions)]
    pub fn is_parked(&self, ci: Ctx) -> bool {
        self.lists.as_ref().is_some_and(|lists| lists.parked.iter().any(|p| p.0 == ci))
    }

    /// Whether no context waits, neither for room nor for the pacer.
    pub fn is_empty(&self) -> bool {
        self.lists.as_ref().is_none_or(|l| l.parked.is_empty() && l.paced.is_empty())
    }

    // ---- for the pacer -------------------------------------------------------------------------

    /// The context that sends next.
    #[inline(always)]
    pub fn paced_first(&self) -> Option<Ctx> {
        self.lists.as_ref()?.paced.front().copied()
    }
    /// Context `ci`, which does not wait yet, joins the queue at its end.
    pub fn pace_join(&mut self, ci: Ctx) {
        let paced = &mut self.lists().paced;
        debug_assert!(!paced.contains(&ci), "each waits once");
        paced.push_back(ci);
    }
    /// Sets the time at which the first context is called.
    pub fn pace_set(&mut self, at: Time) {
        debug_assert!(self.paced_first().is_some(), "there is somebody to call");
        self.lists().paced_at = at;
    }
    /// When the first context is to be called.
    #[inline(always)]
    pub fn pace_at(&self) -> Time {
        self.lists.as_ref().map_or(Time::NEVER, |lists| lists.paced_at)
    }
    /// The first context, if it is time to call it. It is returned once; then its turn comes.
    pub fn pace_call(&mut self, now: Time) -> Option<Ctx> {
        if self.pace_at() > now {
            return None;
        }
        self.lists().paced_at = Time::NEVER;
        let first = self.paced_first();
        debug_assert!(first.is_some(), "nobody is called who does not wait");
        first
    }
    /// Context `ci` leaves the queue. If it was the first, returns the new first context, which is
    /// to be called.
    pub fn pace_leave(&mut self, ci: Ctx) -> Option<Ctx> {
        let lists = self.lists.as_mut()?;
        if lists.paced.front() != Some(&ci) {
            lists.paced.retain(|&c| c != ci);
            return None;
        }
        lists.paced.pop_front();
        lists.paced_at = Time::NEVER;
        lists.paced.front().copied()
    }
    /// All contexts that wait for the pacer.
    #[cfg(debug_assertions)]
    pub fn paced(&self) -> impl Iterator<Item = Ctx> {
        self.lists.iter().flat_map(|lists| lists.paced.iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_called_and_who_leaves_calls_the_next() {
        let mut w = Waits::default();
        assert_eq!(
            (w.pace_at(), w.pace_call(Time(9)), w.pace_leave(Ctx(1))),
            (Time::NEVER, None, None)
        );
        (1..=3).for_each(|ci| w.pace_join(Ctx(ci)));
        w.pace_set(Time(10));
        assert_eq!(w.pace_call(Time(9)), None, "too early");
        assert_eq!((w.pace_call(Time(10)), w.pace_call(Time(11))), (Some(Ctx(1)), None), "once");
        assert_eq!(w.pace_leave(Ctx(2)), None, "it is not its turn");
        assert_eq!(w.pace_leave(Ctx(1)), Some(Ctx(3)));
        w.pace_join(Ctx(1));
        assert_eq!((w.pace_leave(Ctx(3)), w.pace_leave(Ctx(1))), (Some(Ctx(1)), None));
        assert_eq!(w.pace_at(), Time::NEVER, "nobody waits");
    }

    #[test]
    fn who_has_the_least_in_flight_is_let_go_first_and_equals_in_order() {
        let mut w = Waits::default();
        assert_eq!(w.parked_take().count(), 0);
        let parked = [(2, 900), (1, 900), (3, 0), (4, 2000), (5, 900), (6, 0)];
        parked.into_iter().for_each(|(ci, flying)| w.park(Ctx(ci), flying));
        assert!(w.parked_take().eq([3, 6, 2, 1, 5, 4].map(Ctx)));
        assert_eq!(w.parked_take().count(), 0, "once");
    }
}
