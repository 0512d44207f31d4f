//! Registers of links: one number each, which packets read and change as they pass.

use crate::topo::LinkId;
use std::collections::VecDeque;

/// Numbers of changes that a link remembers, to know a repeated one: more than there are flows on
/// a link in any experiment, so that a repetition one round trip later is recognised, and still a
/// bound.
const NUMBERS_KEPT: usize = 256;

/// What a packet does to the register of every link it passes.
///
/// The change is made, once per link and number, when the packet begins to leave on the link. Then
/// the packet notes the register if it is larger than those before: the largest on its way arrives
/// as [`crate::Delivered::register_max`]. A change of 0 only reads, and its number has no meaning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegisterOp {
    /// Added to the register.
    pub add: i64,
    /// Number of the change, the same when it is repeated; no two changes of a run may share one.
    /// A link remembers the last 256 that it made.
    pub number: u64,
}

/// What a packet carries.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Carried {
    pub op: RegisterOp,
    /// Largest register so far.
    pub max: i64,
}

/// The registers of all links.
#[derive(Clone, Debug)]
pub(crate) struct Registers {
    values: Vec<i64>,
    /// Numbers of the last changes of each link, the oldest first.
    seen: Vec<VecDeque<u64>>,
}

impl Registers {
    pub fn new(links: u32) -> Self {
        Self { values: vec![0; links as usize], seen: vec![VecDeque::new(); links as usize] }
    }

    pub fn value(&self, link: u32) -> i64 {
        self.values[link as usize]
    }

    /// A change that no packet brings.
    pub fn add(&mut self, link: LinkId, add: i64) {
        let value = &mut self.values[link.0 as usize];
        *value = value.wrapping_add(add);
    }

    /// Takes note of the number of a change. True if it is new.
    pub fn note(&mut self, link: u32, op: RegisterOp) -> bool {
        let seen = &mut self.seen[link as usize];
        if op.add == 0 || seen.contains(&op.number) {
            return false;
        }
        if seen.len() == NUMBERS_KEPT {
            seen.pop_front();
        }
        seen.push_back(op.number);
        true
    }

    /// A packet passes. True if it changed the register.
    pub fn pass(&mut self, link: u32, carried: &mut Carried, may_change: bool) -> bool {
        let changes = may_change && self.note(link, carried.op);
        if changes {
            self.add(LinkId(link), carried.op.add);
        }
        carried.max = carried.max.max(self.values[link as usize]);
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_change_is_made_once_and_the_largest_register_is_carried() {
        let mut registers = Registers::new(3);
        let mut packet = Carried { op: RegisterOp { add: 5, number: 9 }, max: 0 };
        assert!(registers.pass(0, &mut packet, true) && !registers.pass(0, &mut packet, true));
        assert!(registers.pass(1, &mut packet, true));
        registers.add(LinkId(1), 40);
        let mut probe = Carried::default();
        for link in 0..3 {
            assert!(!registers.pass(link, &mut probe, true));
        }
        assert_eq!((probe.max, registers.value(0), registers.value(2)), (45, 5, 0));
        let mut stray = Carried { op: RegisterOp { add: 7, number: 10 }, max: 0 };
        assert!(!registers.pass(2, &mut stray, false));
        assert_eq!(registers.value(2), 0);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut registers = Registers::new(1);
        for number in 0..1_000 {
            let mut packet = Carried { op: RegisterOp { add: 1, number }, max: 0 };
            assert!(registers.pass(0, &mut packet, true));
        }
        assert_eq!((registers.seen[0].len(), registers.value(0)), (NUMBERS_KEPT, 1_000));
    }
}
