//! Hosts whose processors are away: spans in which no program of the host runs, at random times.
//!
//! Where the transport is on the card, only the application waits: it posts and sees completions
//! when its processor is there. Where the transport is on the host, it waits, too: it sees neither
//! packets nor timers meanwhile (the fault `host-stall`).

use crate::app;
use crate::noise::{Distribution, HostModel};
use crate::spec::{HostSpec, PlacementSpec, Spec, Transport};
use crate::workload::Flows;
use srd_fabric::{Fault, Host, HostId, MS, Ps, Rng, SEC, US, World, WorldConfig};
use std::collections::BTreeSet;
use std::path::Path;

/// Stream kind of a host's spans.
const STREAM_AWAY: u64 = 0xa3a7;
/// The timer tick of a kernel: 5 us, a thousand times per second.
const TICK_PS: Ps = 5 * US;
const TICK_GAP_PS: Ps = MS;
/// Another program that takes the processor: 0.1 to 10 ms, 20 times per second.
const BUSY_PS: (Ps, Ps) = (100 * US, 10 * MS);
const BUSY_GAP_PS: Ps = SEC / 20;

/// Length of a span.
#[derive(Clone, Debug, PartialEq)]
enum Length {
    Fixed(Ps),
    /// Between two lengths, each order of magnitude equally likely.
    Between(Ps, Ps),
    /// Recorded on a host.
    Recorded(Distribution),
}

/// Model of a host's absences: spans begin at random times, independent of each other.
#[derive(Clone, Debug, PartialEq)]
pub struct AwayModel {
    /// Mean time from the end of a span to the start of the next.
    gap_ps: Ps,
    length: Length,
    placement: PlacementSpec,
    /// Hosts, ascending.
    hosts: Vec<u32>,
}

impl AwayModel {
    /// The model of a spec; `None` if processors are always there.
    ///
    /// # Errors
    /// The text names the field.
    pub fn of(
        spec: &Spec,
        folder: &Path,
        hosts: u32,
        flows: &Flows,
    ) -> Result<Option<Self>, String> {
        let Some(host) = &spec.host else { return Ok(None) };
        let Some(name) = &host.noise else { return Ok(None) };
        let (gap_ps, length) = match name.as_str() {
            "tick" => (TICK_GAP_PS, Length::Fixed(TICK_PS)),
            "none" => return Ok(None),
            "busy" => (BUSY_GAP_PS, Length::Between(BUSY_PS.0, BUSY_PS.1)),
            file => match HostModel::load(file, folder) {
                Ok(Some(m)) => ((m.stolen_gap.mean() * 1e3) as Ps, Length::Recorded(m.stolen)),
                Ok(None) => return Ok(None),
                Err(e) => {
                    return Err(format!(
                        "host.noise = \"{file}\": give \"none\", \"tick\", \"busy\", or a file of \
                         `srd net record-noise` ({e})"
                    ));
                }
            },
        };
        let ends = || flows.flows.iter().flat_map(|f| [f.src.0, f.dst.0]);
        let chosen: BTreeSet<u32> = match &host.hosts {
            Some(named) => named.iter().copied().collect(),
            None => ends().collect(),
        };
        match chosen.last() {
            Some(last) if *last >= hosts => {
                return Err(format!("host.hosts: host {last} does not exist: there are {hosts}"));
            }
            _ => {}
        }
        let hosts = chosen.into_iter().collect();
        Ok(Some(Self { gap_ps, length, placement: host.placement, hosts }))
    }
}

/// Checks the noise of a spec's hosts.
///
/// # Errors
/// The text names the field.
pub fn check(spec: &Spec) -> Result<(), String> {
    if spec.host.as_ref().is_none_or(|h| h.noise.is_none()) {
        return Ok(());
    }
    if !matches!(spec.transport, Transport::Srd | Transport::Tcp | Transport::Rc | Transport::Ue) {
        return Err(
            "host.noise: for transport = \"srd\", \"tcp\", \"rc\" and \"ue\"; leave it out".into(),
        );
    }
    if app::is_program(spec.workload.pattern) {
        return Err(
            "host.noise: not with a parallel program (pattern \"app\" or \"goal\"), whose \
                    computation knows no absences; leave one of them out"
                .into(),
        );
    }
    if !spec.also.is_empty() {
        return Err("host.noise: not with [[workload.also]]; leave one of them out".into());
    }
    Ok(())
}

impl HostSpec {
    /// Whether the table is about absences only, and packets wait in no ring.
    pub(crate) fn only_noise(&self) -> bool {
        self.noise.is_some() && self.drain_gbps.is_none() && self.dma_delay_ns == 0
    }
}

/// Limits what waits for an absent transport to what a ring would hold.
pub fn world_config(spec: &Spec, mut config: WorldConfig) -> WorldConfig {
    if let Some(host) = spec.host.as_ref().filter(|h| h.noise.is_some()) {
        config.host_hold_bytes = host.ring_bytes;
    }
    config
}

/// Absences of one host, generated as far as they were asked for.
#[derive(Debug)]
struct Spans {
    rng: Rng,
    /// Starts and ends, in order.
    spans: Vec<(Ps, Ps)>,
    /// Number of spans that the network knows.
    told: usize,
}

/// Absences of the hosts of a run.
#[derive(Debug)]
pub struct Away {
    model: AwayModel,
    /// Of each host; `None`: it is always there.
    hosts: Vec<Option<Spans>>,
    /// Whether the receiver sees a flow's end first.
    at_receiver: bool,
}

/// How long hosts were away.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct AwayOutcome {
    /// Share of the time in which the mean host was away.
    pub share: f64,
    /// Longest absence.
    pub longest_ps: Ps,
}

impl Away {
    /// The absences of a run of `transport`.
    pub fn new(model: AwayModel, transport: Transport, seed: u64) -> Self {
        let most = model.hosts.last().map_or(0, |h| *h as usize + 1);
        let mut hosts: Vec<Option<Spans>> = (0..most).map(|_| None).collect();
        for h in &model.hosts {
            let rng = Rng::stream(seed, STREAM_AWAY, (*h).into());
            hosts[*h as usize] = Some(Spans { rng, spans: Vec::new(), told: 0 });
        }
        Self { model, hosts, at_receiver: transport == Transport::Tcp }
    }

    /// When a program of `host` that has something to do at `at` runs.
    pub fn present(&mut self, host: HostId, at: Ps) -> Ps {
        let Some(Some(spans)) = self.hosts.get_mut(host.0 as usize) else { return at };
        spans.extend(&self.model, at);
        let next = spans.spans.partition_point(|(from, _)| *from <= at);
        next.checked_sub(1).map_or(at, |i| spans.spans[i].1.max(at))
    }

    /// When the application sees the end of a flow.
    pub fn seen(&mut self, src: HostId, dst: HostId, at: Ps) -> Ps {
        self.present(if self.at_receiver { dst } else { src }, at)
    }

    /// Stalls the hosts of a world in their absences up to `end`, if the transport is on them.
    pub fn tell<P: Clone, H: Host<P>>(&mut self, world: &mut World<P, H>, end: Ps) {
        if self.model.placement == PlacementSpec::Card {
            return;
        }
        for (h, spans) in (0..).zip(&mut self.hosts) {
            let Some(spans) = spans else { continue };
            spans.extend(&self.model, end);
            while let Some((from, to)) = spans.spans.get(spans.told).filter(|s| s.0 <= end) {
                let fault = Fault::HostStall { host: HostId(h), for_ps: to - from };
                world.fault_at(*from, fault).expect("a host that exists can be away");
                spans.told += 1;
            }
        }
    }

    /// How long hosts were away up to `end`.
    pub fn outcome(&mut self, end: Ps) -> AwayOutcome {
        let mut out = AwayOutcome::default();
        let (mut sum, mut hosts) = (0u64, 0u64);
        for spans in self.hosts.iter_mut().flatten() {
            spans.extend(&self.model, end);
            hosts += 1;
            for (from, to) in spans.spans.iter().filter(|s| s.0 < end) {
                sum += to.min(&end) - from;
                out.longest_ps = out.longest_ps.max(to - from);
            }
        }
        out.share = sum as f64 / (hosts.max(1) as f64 * end.max(1) as f64);
        out
    }
}

impl Spans {
    /// Generates spans until one starts after `at`.
    fn extend(&mut self, model: &AwayModel, at: Ps) {
        while self.spans.last().is_none_or(|(from, _)| *from <= at) {
            let end = self.spans.last().map_or(0, |s| s.1);
            // Between two absences the time is exponential: their starts are a Poisson process.
            let gap = -(1.0 - self.rng.unit()).ln() * model.gap_ps as f64;
            let from = end + (gap as Ps).max(1);
            let length = match &model.length {
                Length::Fixed(ps) => *ps,
                Length::Between(least, most) => {
                    let (least, most) = (*least as f64, *most as f64);
                    (least * (most / least).powf(self.rng.unit())) as Ps
                }
                Length::Recorded(d) => d.draw_ps(&mut self.rng),
            };
            self.spans.push((from, from + length.max(1)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn away(length: Length, gap_ps: Ps) -> Away {
        let model = AwayModel { gap_ps, length, placement: PlacementSpec::Card, hosts: vec![1] };
        Away::new(model, Transport::Srd, 7)
    }

    #[test]
    fn a_program_runs_when_its_processor_is_there() {
        let mut a = away(Length::Fixed(5 * US), MS);
        assert_eq!(a.present(HostId(0), 77), 77, "this host is always there");
        a.present(HostId(1), 100 * MS);
        let spans = a.hosts[1].as_ref().unwrap().spans.clone();
        assert!(spans.windows(2).all(|w| w[0].1 < w[1].0));
        for (from, to) in spans.iter().take(50) {
            assert_eq!(a.present(HostId(1), from - 1), from - 1);
            assert_eq!(a.present(HostId(1), *from), *to);
            assert_eq!(a.present(HostId(1), from + 2 * US), *to);
            assert_eq!(a.present(HostId(1), *to), *to);
        }
    }

    #[test]
    fn shares_are_those_of_the_models() {
        // 5 us per 1,005 us; and the mean of 0.1 to 10 ms by orders of magnitude is 9.9 / ln 100.
        let busy = 9.9 / 100f64.ln();
        for (length, gap, want) in [
            (Length::Fixed(TICK_PS), TICK_GAP_PS, 5.0 / 1_005.0),
            (Length::Between(BUSY_PS.0, BUSY_PS.1), BUSY_GAP_PS, busy / (busy + 50.0)),
        ] {
            let share = away(length, gap).outcome(2_000 * SEC).share;
            assert!((share / want - 1.0).abs() < 0.02, "{share}, expected {want}");
        }
    }
}
