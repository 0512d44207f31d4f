//! Worlds with one rare situation in mind, made often: a share of all seeds. What ordinary worlds
//! come to by chance once in hundreds, these do on most of their seeds.

use crate::class::{Class, Classes};
use crate::draw::Draw;
use crate::scenario::stream;
use crate::workload::Workload;
use srd_core::EngineConfig;
use srd_core::config::{Integrity, PathPolicy, RatePolicy};

/// Share of the seeds whose world is one of these, in percent.
const SHARE: u64 = 6;

/// The focused workload of a seed, if it has one. From a stream of its own: the other seeds keep
/// their worlds.
pub(crate) fn draw(seed: u64) -> Option<Workload> {
    let mut d = Draw::new(seed, stream::FOCUS, 0);
    d.percent(SHARE).then(|| d.pick(&Workload::FOCUSED))
}

/// Classes without which the situation does not come about.
pub(crate) fn classes(set: Classes, w: Workload) -> Classes {
    match w {
        // Paths of unlike length: the word that a message is given up overtakes its segments.
        Workload::GiveUp => set.with(Class::Churn).with(Class::Skew).with(Class::Spike),
        _ => set,
    }
}

/// Slots of each host's engines.
pub(crate) fn slots(w: Workload, drawn: Vec<u8>) -> Vec<u8> {
    // Several contexts per address share what may be in flight to it.
    if w == Workload::Capped { vec![0, 1, 7, 255] } else { drawn }
}

/// The configuration that brings the situation about.
pub(crate) fn config(seed: u64, w: Workload, c: &mut EngineConfig) {
    let mut d = Draw::new(seed, stream::FOCUS, 1);
    match w {
        Workload::GiveUp => {
            c.path.policy = d.pick(&[PathPolicy::Srd, PathPolicy::Oblivious]);
            c.path.paths = d.pick(&[8, 64]);
            c.path.live_min = c.path.live_min.min(c.path.paths);
            c.window = c.window.max(64);
            c.write_imms_per_context_max = 16;
        }
        Workload::Capped => {
            c.rate.policy = RatePolicy::Fixed;
            c.rate.inflight_fixed_bytes = d.pick(&[1, 1, u64::from(c.mtu) * 2]);
            c.rate.rate_fixed_bytes_per_sec = c.rate.line_bytes_per_sec;
            (c.reads_max, c.reads_per_context_max) = (4, 16);
        }
        _ => {}
    }
}

/// Which packets carry a checksum. It is not calculated here, since payload has no bytes: only the
/// handling of the flag and of four more bytes is tested.
pub(crate) fn integrity_draw(seed: u64) -> Integrity {
    Draw::new(seed, stream::INTEGRITY, 0).pick(&[Integrity::On, Integrity::Off])
}

/// Bursts of 16 or 64 packets in some worlds: an engine on sockets sends up to 64 packets as one
/// segmented send. From a stream of its own: the other seeds keep their worlds.
pub(crate) fn burst_draw(seed: u64) -> Option<u16> {
    /// Share of the seeds that have such bursts, in percent.
    const SHARE: u64 = 6;
    let mut d = Draw::new(seed, stream::BURST, 0);
    d.percent(SHARE).then(|| d.pick(&[16, 64]))
}

/// Rails of the engines in some worlds: as rails the paths tell nothing there, but all other faults
/// come about. From a stream of its own: the other seeds keep their worlds.
pub(crate) fn rails_draw(seed: u64) -> Option<u8> {
    /// Share of the seeds with several rails, in percent.
    const SHARE: u64 = 5;
    let mut d = Draw::new(seed, stream::JOINED, 1);
    d.percent(SHARE).then(|| d.pick(&[2, 2, 3, 4]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{Limits, Scenario};

    #[test]
    fn a_share_of_the_seeds_is_focused_and_has_what_it_takes() {
        let mut counts = [0; 2];
        for seed in 0..2_000 {
            let Some(w) = draw(seed) else { continue };
            let limits = Limits { classes: Classes::ORDINARY, ..Limits::NONE };
            let s = Scenario::from_seed(seed, limits);
            assert_eq!(s.workload, w);
            match w {
                Workload::GiveUp => {
                    counts[0] += 1;
                    assert!(s.classes.has(Class::Churn) && s.classes.has(Class::Skew));
                    assert!(s.config.path.paths >= 8 && s.hosts > 2, "seed {seed}");
                }
                _ => {
                    counts[1] += 1;
                    let few = 2 * u64::from(s.config.mtu);
                    assert_eq!((w, s.slots.len()), (Workload::Capped, 4));
                    assert!(s.config.rate.inflight_fixed_bytes <= few, "seed {seed}");
                }
            }
        }
        assert!(counts.iter().all(|n| (30..100).contains(n)), "{counts:?}");
    }

    #[test]
    fn seeds_of_the_corpus_keep_their_worlds() {
        let all = crate::corpus::parse(crate::corpus::BUILT_IN).unwrap();
        // The first 35 were found before there were focused worlds.
        assert!(all.iter().take(35).all(|e| draw(e.seed).is_none()));
        // None of those that were found before there were hostile worlds is one now; a hostile
        // world is no focused one, whatever its seed would draw.
        let hostile = |seed| crate::hostile::draw(seed, &[], Classes::ALL).is_some();
        let named = |e: &crate::corpus::Entry| {
            e.story.starts_with("Hostile") || e.story.starts_with("Joined")
        };
        assert!(all.iter().all(|e| named(e) || rails_draw(e.seed).is_none()));
        let moved: Vec<u64> =
            all.iter().filter(|e| hostile(e.seed) && !named(e)).map(|e| e.seed).collect();
        assert!(moved.is_empty(), "{moved:?}");
    }
}
