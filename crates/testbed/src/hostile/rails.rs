//! One process with two devices on separate interfaces ("rails"), whose queue pairs have equal
//! numbers. Traffic of one rail must never appear on the other; if one rail is cut off, its
//! requests must end, without an effect on the other. And one device over both interfaces.

use super::party::{self, Direction, Party};
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

/// Duration of the use of both rails before the cut, and after the repair.
const TIME: Duration = Duration::from_secs(2);
/// Duration of the use of the rail that is cut off; posts continue after the cut.
const CUT_TIME: Duration = Duration::from_secs(2);
/// Time of the cut.
const CUT_AFTER: Duration = Duration::from_millis(500);
/// Duration of the use of the other rail meanwhile: until all requests of the first rail must have
/// ended, which takes the 5 s of silence that a peer is allowed.
const BESIDE_TIME: Duration = Duration::from_secs(8);
/// Time limit for requests after the last one was posted: three times those 5 s.
const LIMIT: Duration = Duration::from_secs(15);
/// Share of its rate that the uncut rail must keep. It is below 1 only because both ends, the
/// switches and the timers of the cut rail share the processors.
const SHARE_MIN: f64 = 0.7;

/// Rate of all links where one device uses both rails: so little that links bound the rate and not
/// the processors, which both ends and all switches share.
const JOINED_BITS_PER_SEC: u64 = 50_000_000;
/// Share of the sum of both rails' rates that one device over both must reach. It is below 1
/// because the rate yields to a queue at either rail.
const SUM_MIN: f64 = 0.8;
/// Duration of the use of one rail while the other is cut off.
const ALONE_TIME: Duration = Duration::from_secs(3);

/// Longest time without a block where one rail is cut off: some ten milliseconds, and what a busy
/// machine adds.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Both ends of one rail, or of devices over all rails.
struct Rail {
    a: Party,
    b: Party,
}

impl Rail {
    /// Opens a device at each end; their queue pairs get the numbers of those of `twin`.
    fn open(fabric: &Fabric, rail: u8, twin: Option<&Self>) -> Result<Self> {
        Ok(Self {
            a: Party::open_rail(fabric, (0, 0), rail, twin.map(|t| &t.a))?,
            b: Party::open_rail(fabric, (1, 0), rail, twin.map(|t| &t.b))?,
        })
    }

    /// Opens a device over all rails at each end.
    fn open_joined(fabric: &Fabric) -> Result<Self> {
        Ok(Self { a: Party::open_joined(fabric, (0, 0))?, b: Party::open_joined(fabric, (1, 0))? })
    }

    /// An exchange in which all blocks must arrive although `cut` is called once. Returns their
    /// number, and the longest time without one.
    fn whole_with(&mut self, mut cut: impl FnMut() -> Result) -> Result<(u64, Duration)> {
        let (began, mut is_cut) = (Instant::now(), false);
        let done = party::exchange(&mut self.a, &mut self.b, CUT_TIME, LIMIT, |_| {
            if !is_cut && began.elapsed() > CUT_AFTER {
                is_cut = true;
                cut()?;
            }
            Ok(())
        })?;
        Ok((done.blocks, done.pause))
    }

    /// An exchange in which all blocks must arrive. Returns blocks per second.
    fn whole(&mut self, time: Duration) -> Result<f64> {
        let done = party::exchange(&mut self.a, &mut self.b, time, LIMIT, |_| Ok(()))?;
        Ok(done.per_sec())
    }

    /// A transfer during which `cut` is called once.
    fn cut_off(&mut self, mut cut: impl FnMut() -> Result) -> Result<[Direction; 2]> {
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

    /// Events since the last call that report a lost peer, of both ends.
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
/// A block was misdelivered, duplicated or damaged; a request of the cut rail did not end, or an
/// end got no event about it; the other rail was affected; the repaired rail carries nothing.
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
        return Err(NetError::new(format!("{text}; wrong on the rail that was cut off: {bad:?}")));
    }
    if failed.iter().any(|f| f.is_empty()) || told.len() < 2 {
        return Err(NetError::new(format!(
            "{text}; not both ends were told of the loss: {told:?}"
        )));
    }
    let noticed = stays.gone();
    if share < SHARE_MIN || !noticed.is_empty() {
        return Err(NetError::new(format!("{text}; the other rail was affected: {noticed:?}")));
    }

    fault::cable_mend(&fabric, (1, 0), 1)?;
    let [_, after] = both(&mut stays, &mut cut)?;
    Ok(format!("{text}; repaired: {after:.0} blocks/s"))
}

/// Runs the check of devices over both interfaces: the bandwidth of the sum, and nothing lost when
/// either of them is cut off.
///
/// # Errors
/// A block was lost, refused, duplicated or damaged; a rate is too low, or a pause too long; an end
/// was told that its peer is gone.
pub fn joined() -> Result<String> {
    let spec = FabricSpec {
        hosts: 1,
        rails: 2,
        host_bits_per_sec: JOINED_BITS_PER_SEC,
        uplink_bits_per_sec: JOINED_BITS_PER_SEC,
        ..FabricSpec::default()
    };
    let (fabric, _) = Fabric::build(&spec)?;
    let [first, second] = {
        let mut first = Rail::open(&fabric, 0, None)?;
        let mut second = Rail::open(&fabric, 1, None)?;
        [first.whole(TIME)?, second.whole(TIME)?]
    };
    let mut both = Rail::open_joined(&fabric)?;
    let rate = both.whole(TIME)?;
    let mut text =
        format!("alone {first:.0} and {second:.0} blocks/s, one device over both {rate:.0}");
    let low = |text: &str| Err(NetError::new(format!("{text}: too low")));
    if rate < SUM_MIN * (first + second) {
        return low(&text);
    }
    for (rail, other) in [(1, first), (0, second)] {
        let (blocks, pause) = both.whole_with(|| fault::cable_cut(&fabric, (1, 0), rail))?;
        let alone = both.whole(ALONE_TIME)?;
        text += &format!(
            "; rail {rail} cut off: all {blocks} blocks arrived, never none for longer than {:.0} \
             ms, then {alone:.0} blocks/s",
            pause.as_secs_f64() * 1e3
        );
        if alone < SHARE_MIN * other {
            return low(&text);
        }
        if pause > PAUSE_MAX {
            return Err(NetError::new(format!("{text}: too long a pause")));
        }
        fault::cable_mend(&fabric, (1, 0), rail)?;
        let began = Instant::now();
        let after = loop {
            let after = both.whole(TIME)?;
            if after >= SUM_MIN * rate || began.elapsed() > LIMIT {
                break after;
            }
        };
        text += &format!(", repaired {after:.0}");
        if after < SUM_MIN * rate {
            return low(&text);
        }
    }
    let gone = both.gone();
    if !gone.is_empty() {
        return Err(NetError::new(format!("{text}; an end lost its peer: {gone:?}")));
    }
    Ok(text)
}

/// Uses both rails at once; all blocks must arrive. Returns blocks per second of each.
fn both(stays: &mut Rail, cut: &mut Rail) -> Result<[f64; 2]> {
    thread::scope(|s| {
        let first = s.spawn(|| stays.whole(TIME));
        let second = cut.whole(TIME)?;
        let first = first.join().map_err(|_| NetError::new("a thread ended early"))??;
        Ok([first, second])
    })
}
