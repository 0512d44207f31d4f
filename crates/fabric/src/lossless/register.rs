//! Registers of links: one number per link, which packets read and change as they pass.

use crate::topo::LinkId;
use std::collections::VecDeque;

/// Change numbers that a link remembers in order to ignore repetitions. Larger than the number of
/// flows on a link in any experiment, so that a repetition one round trip later is recognised.
const NUMBERS_KEPT: usize = 256;

/// Operation of a packet on the register of every link of its path.
///
/// Each link applies a change number once, when the packet begins to leave on the link. The packet
/// then records the register if it exceeds the earlier ones, so the largest value on the path
/// arrives as [`crate::Delivered::register_max`]. A change of 0 only reads, and its number is
/// ignored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegisterOp {
    /// Added to the register.
    pub add: i64,
    /// Number of the change, the same in repetitions and unique in a run otherwise. A link
    /// remembers the last 256 numbers.
    pub number: u64,
}

/// Register state that a packet carries.
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
    /// Numbers of the last changes of each link, oldest first.
    seen: Vec<VecDeque<u64>>,
}

impl Registers {
    pub fn new(links: u32) -> Self {
        Self { values: vec![0; links as usize], seen: vec![VecDeque::new(); links as usize] }
    }

    pub fn value(&self, link: u32) -> i64 {
        self.values[link as usize]
    }

    /// Applies a change that no packet carries.
    pub fn add(&mut self, link: LinkId, add: i64) {
        let value = &mut self.values[link.0 as usize];
        *value = value.wrapping_add(add);
    }

    /// Records the number of a change. Returns true if it is new.
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

    /// Applies the operation of a passing packet. Returns true if it changed the register.
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
