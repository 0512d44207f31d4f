//! Patterns of parallel applications: pairs of communicating hosts, step by step.
//!
//! A step begins when every flow of the previous step has arrived (the application's barrier).

use crate::spec::Placing;
use srd_fabric::Rng;

/// Pairs of hosts, step by step.
pub type Steps = Vec<Vec<(u32, u32)>>;

/// Every host to every other, in one step.
pub fn all_to_all(hosts: u32) -> Steps {
    let others = |a: u32| (1..hosts).map(move |k| (a, (a + k) % hosts));
    vec![(0..hosts).flat_map(others).collect()]
}

/// An allreduce by recursive doubling: in step i, host h exchanges with h xor 2^i.
///
/// # Errors
/// If the number of hosts is not a power of two.
pub fn allreduce(hosts: u32) -> Result<Steps, String> {
    if hosts < 2 || !hosts.is_power_of_two() {
        return Err(format!(
            "workload.pattern = \"allreduce\" needs a power of two, not {hosts} hosts"
        ));
    }
    let step = |i: u32| (0..hosts).map(move |h| (h, h ^ (1 << i))).collect();
    Ok((0..hosts.ilog2()).map(step).collect())
}

/// An exchange with the neighbours on a three-dimensional torus whose sides are as equal as the
/// number of hosts allows. A side of two has one neighbour, a side of one has none.
pub fn halo(hosts: u32) -> Steps {
    let sides = sides_of(hosts);
    let mut pairs = Vec::new();
    for h in 0..hosts {
        let at = [h % sides[0], h / sides[0] % sides[1], h / sides[0] / sides[1]];
        let mut seen = Vec::new();
        for (axis, by) in (0..3).flat_map(|axis| [(axis, 1), (axis, sides[axis] - 1)]) {
            let mut to = at;
            to[axis] = (at[axis] + by) % sides[axis];
            let to = to[0] + sides[0] * (to[1] + sides[1] * to[2]);
            if to != h && !seen.contains(&to) {
                seen.push(to);
                pairs.push((h, to));
            }
        }
    }
    vec![pairs]
}

/// Three factors of a number, as close to each other as possible, the largest first.
pub(crate) fn sides_of(hosts: u32) -> [u32; 3] {
    let mut best = [hosts, 1, 1];
    for c in (1..=hosts).take_while(|c| c * c * c <= hosts).filter(|c| hosts.is_multiple_of(*c)) {
        let rest = hosts / c;
        let halves = (c..=rest).take_while(|b| b * b <= rest);
        for b in halves.filter(|b| rest.is_multiple_of(*b)) {
            let sides = [rest / b, b, c];
            if sides[0] - sides[2] < best[0] - best[2] {
                best = sides;
            }
        }
    }
    best
}

/// `n` permutations of the hosts without fixed points, all in one step.
///
/// # Errors
/// If there are fewer than two hosts.
pub fn permutations(hosts: u32, n: u32, rng: &mut Rng) -> Result<Steps, String> {
    let mut all = Vec::new();
    for _ in 0..n {
        all.extend(crate::workload::permutation(hosts, rng)?);
    }
    Ok(vec![all])
}

/// Hosts of the network "shared-input": three senders on each of two switches, and five receivers.
pub const SHARED_INPUT_HOSTS: u32 = 11;

/// The eight flows of the slides' example. On each of two switches one output is shared by one flow
/// from each of two inputs and two flows from a third input; the four flows of the third inputs end
/// at one host.
///
/// # Errors
/// If the network is not "shared-input".
pub fn shared_input(hosts: u32) -> Result<Steps, String> {
    if hosts != SHARED_INPUT_HOSTS {
        return Err(
            "workload.pattern = \"shared-input\" needs network.shape = \"shared-input\"".into()
        );
    }
    // Hosts 0 to 2 and 3 to 5 send. Each of 6 to 9 receives from one host, 10 from both hosts that
    // send twice.
    Ok(vec![vec![(0, 6), (1, 7), (2, 10), (2, 10), (3, 8), (4, 9), (5, 10), (5, 10)]])
}

/// Maps the application's ranks to hosts.
pub fn place(steps: &mut Steps, hosts: u32, placing: Placing, rng: &mut Rng) {
    if placing == Placing::Drawn {
        let mut host: Vec<u32> = (0..hosts).collect();
        rng.shuffle(&mut host);
        for (a, b) in steps.iter_mut().flatten() {
            (*a, *b) = (host[*a as usize], host[*b as usize]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn grids_are_as_cubic_as_their_size_allows() {
        for (hosts, sides) in [(64, [4, 4, 4]), (512, [8, 8, 8]), (16, [4, 2, 2]), (7, [7, 1, 1])] {
            assert_eq!(sides_of(hosts), sides);
        }
    }

    #[test]
    fn everybody_hears_from_whom_it_sends_to() {
        for hosts in [2, 8, 16, 64, 30] {
            for steps in [all_to_all(hosts), halo(hosts)] {
                let pairs: BTreeSet<_> = steps[0].iter().copied().collect();
                assert_eq!(pairs.len(), steps[0].len(), "{hosts} hosts: a pair stands once");
                assert!(pairs.iter().all(|(a, b)| a != b && pairs.contains(&(*b, *a))));
            }
        }
        assert_eq!(all_to_all(8)[0].len(), 8 * 7);
        assert_eq!(halo(64)[0].len(), 64 * 6);
        assert_eq!(halo(8)[0].len(), 8 * 3);
    }

    #[test]
    fn after_an_allreduce_everybody_has_heard_of_everybody() {
        let steps = allreduce(32).unwrap();
        let mut known: Vec<u32> = (0..32).map(|h| 1 << h).collect();
        for step in &steps {
            let before = known.clone();
            step.iter().for_each(|(a, b)| known[*b as usize] |= before[*a as usize]);
        }
        assert_eq!((steps.len(), known), (5, vec![u32::MAX; 32]));
        assert!(allreduce(48).unwrap_err().contains("48"));
    }

    #[test]
    fn ranks_are_shuffled_as_one() {
        let mut steps = allreduce(8).unwrap();
        place(&mut steps, 8, Placing::Drawn, &mut Rng::new(1));
        let hit: BTreeSet<u32> = steps[0].iter().map(|(_, b)| *b).collect();
        assert_eq!(hit.len(), 8);
        assert_ne!(steps, allreduce(8).unwrap());
    }
}
