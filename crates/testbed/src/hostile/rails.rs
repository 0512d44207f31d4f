//! One process with two devices, each on an interface of its own ("rails"), whose queue pairs have
//! equal numbers: traffic on one never shows on the other, and what is asked of a rail that was cut
//! off ends there and nowhere else.

use super::party::{self, Party, Way};
use crate::{
    error::{NetError, Result},
    fabric::Fabric,
    fault,
    spec::FabricSpec,
};
use srd::AsyncEvent;
use std::{
    thread,
    time::{Duration, Instant},
};

/// How long both rails are used before the cut, and after the repair.
const TIME: Duration = Duration::from_secs(2);
/// How long the rail that is cut off is used: posts go on beyond the cut.
const CUT_TIME: Duration = Duration::from_secs(2);
/// When the cable is cut.
const CUT_AFTER: Duration = Duration::from_millis(500);
/// How long the other rail is used meanwhile: until all requests of the first must have ended,
/// which takes the 5 s that a peer may be silent.
const BESIDE_TIME: Duration = Duration::from_secs(8);
/// Requests end within this after the last one was posted: three times those 5 s.
const LIMIT: Duration = Duration::from_secs(15);
/// The rail that stays keeps this share of its rate. It has no reason to lose any; less than all
/// because both ends, the switches and the cut rail's timers share the processors.
const SHARE_MIN: f64 = 0.7;

/// Both ends of one rail.
struct Rail {
    a: Party,
    b: Party,
}

impl Rail {
    /// Opens a device at each end; their queue pairs get the numbers of `twin`'s.
    fn open(fabric: &Fabric, rail: u8, twin: Option<&Self>) -> Result<Self> {
        Ok(Self {
            a: Party::open_rail(fabric, (0, 0), rail, twin.map(|t| &t.a))?,
            b: Party::open_rail(fabric, (1, 0), rail, twin.map(|t| &t.b))?,
        })
    }

    /// All of it must arrive, whole and once; blocks per second.
    fn whole(&mut self, time: Duration) -> Result<f64> {
        let done = party::exchange(&mut self.a, &mut self.b, time, LIMIT, |_| Ok(()))?;
        Ok(done.per_sec())
    }

    /// A transfer in the middle of which `cut` is called once.
    fn cut_off(&mut self, mut cut: impl FnMut() -> Result) -> Result<[Way; 2]> {
        let (began, mut is_cut) = (Instant::now(), false);
        let (ways, _) = party::transfer(&mut self.a, &mut self.b, CUT_TIME, LIMIT, |_| {
            if !is_cut && began.elapsed() > CUT_AFTER {
                is_cut = true;
                cut()?;
            }
            Ok(())
        })?;
        Ok(ways)
    }

    /// Devices of this rail that have told since the last call that a peer is gone, and who it was.
    fn gone(&self) -> Vec<String> {
        let ends = [&self.a.device, &self.b.device];
        let events = ends.into_iter().flat_map(|d| std::iter::from_fn(|| d.event_get()));
        let is_gone = |e: &AsyncEvent| {
            use AsyncEvent::{PeerReset, PeerUnreachable, PeerUnresponsive};
            matches!(e, PeerUnresponsive(_) | PeerUnreachable(_) | PeerReset(_))
        };
        events.filter(is_gone).map(|e| format!("{e:?}")).collect()
    }
}

/// Runs the check.
///
/// # Errors
/// A block went astray, twice or damaged; a request of the rail that was cut off did not end, or
/// nobody was told; the other rail noticed; the repaired rail carries nothing.
pub fn check() -> Result<String> {
    let spec = FabricSpec { hosts: 1, rails: 2, ..FabricSpec::default() };
    let (fabric, _) = Fabric::build(&spec)?;
    let mut stays = Rail::open(&fabric, 0, None)?;
    let mut cut = Rail::open(&fabric, 1, Some(&stays))?;
    let [before, before_cut] = both(&mut stays, &mut cut)?;

    let (beside, ways) = thread::scope(|s| {
        let beside = s.spawn(|| stays.whole(BESIDE_TIME));
        let ways = cut.cut_off(|| fault::cable_cut(&fabric, (1, 0), 1))?;
        let beside = beside.join().map_err(|_| NetError::new("a thread ended early"))??;
        Ok::<_, NetError>((beside, ways))
    })?;
    let failed: Vec<_> = ways.iter().map(|w| &w.failed).collect();
    let told = cut.gone();
    let share = beside / before;
    let text = format!(
        "queue pairs {} and {} on both rails: {before:.0} and {before_cut:.0} blocks/s; one rail \
         cut off: of its requests {failed:?} ended with an error, {} of its devices' events told \
         of it, the other went on with {:.0} %",
        stays.a.qpn().0,
        stays.b.qpn().0,
        told.len(),
        share * 100.0
    );
    if let Some(bad) = ways.iter().find(|w| !w.is_true()) {
        return Err(NetError::new(format!("{text}; the rail that was cut off: {bad:?}")));
    }
    if failed.iter().any(|f| f.is_empty()) || told.len() < 2 {
        return Err(NetError::new(format!("{text}; both ends must be told: {told:?}")));
    }
    let noticed = stays.gone();
    if share < SHARE_MIN || !noticed.is_empty() {
        return Err(NetError::new(format!("{text}; the other rail was told: {noticed:?}")));
    }

    fault::cable_mend(&fabric, (1, 0), 1)?;
    let [_, after] = both(&mut stays, &mut cut)?;
    Ok(format!("{text}; mended: {after:.0} blocks/s"))
}

/// Both rails at once: all must arrive. Blocks per second of each.
fn both(stays: &mut Rail, cut: &mut Rail) -> Result<[f64; 2]> {
    thread::scope(|s| {
        let first = s.spawn(|| stays.whole(TIME));
        let second = cut.whole(TIME)?;
        let first = first.join().map_err(|_| NetError::new("a thread ended early"))??;
        Ok([first, second])
    })
}
