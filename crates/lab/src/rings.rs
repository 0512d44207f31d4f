//! Rings of the network from a spec's `[host]`, and their results.

use crate::floor::{Drain, Drains, Framing};
use crate::spec::{FaultSpec, HostSpec, PlacementSpec, Shape, Spec, Transport};
use crate::workload::Flows;
use srd_core::wire::PacketType;
use srd_fabric::{Host, HostId, NS, Placement, RingConfig, RingStats, World};
use std::collections::BTreeSet;

/// Least drain rate in Gb/s, equal to that of a link; at lower rates, times exceed the length of a
/// run.
const DRAIN_GBPS_MIN: f64 = 0.001;
/// Most pulses of a host: each consists of two faults of the network.
const PULSES_MAX: u32 = 100_000;

/// Counters of a host's ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingOutcome {
    /// The host.
    pub host: HostId,
    /// Counters of its ring.
    pub stats: RingStats,
}

impl RingOutcome {
    /// Share of the host's capacity, from its first packet to its last byte, that was unused
    /// because no packet waited.
    pub fn idle_share(&self) -> f64 {
        let could = self.stats.idle_bytes + self.stats.written_bytes;
        self.stats.idle_bytes as f64 / could.max(1) as f64
    }
}

/// Checks `[host]` and the faults that need it.
///
/// # Errors
/// The text names the field and its range.
pub fn check(spec: &Spec) -> Result<(), String> {
    spec.fault.iter().try_for_each(|fault| fault_check(fault, spec.host.as_ref()))?;
    let Some(host) = &spec.host else { return Ok(()) };
    if matches!(spec.transport, Transport::Saa | Transport::Static) {
        return Err(
            "host: rings drop packets that do not fit, and this transport's networks lose \
                    nothing: leave the table out"
                .into(),
        );
    }
    if spec.transport == Transport::Copa && host.placement == PlacementSpec::Host {
        return Err("host.placement = \"host\": COPA's transport is on the card and sees packets \
                    on arrival; give \"card\""
            .into());
    }
    drain_check(host, spec)?;
    let packet = packet_bytes(spec);
    if host.ring_bytes < packet {
        return Err(format!(
            "host.ring_bytes = {} holds no packet of {packet} B: give at least this size",
            host.ring_bytes
        ));
    }
    if host.dma_delay_ns > 1_000_000_000 {
        return Err("host.dma_delay_ns: give at most a second, 1_000_000_000".into());
    }
    match &host.hosts {
        Some(hosts) if hosts.is_empty() => {
            Err("host.hosts = []: name a host, or leave the table [host] out".into())
        }
        _ => Ok(()),
    }
}

fn drain_check(host: &HostSpec, spec: &Spec) -> Result<(), String> {
    let Some(gbps) = host.drain_gbps else { return Ok(()) };
    if !(DRAIN_GBPS_MIN..=1e6).contains(&gbps) {
        return Err(format!(
            "host.drain_gbps = {gbps}: give a rate above 0 (from {DRAIN_GBPS_MIN} to 1,000,000), \
             or leave it out: no limit"
        ));
    }
    let link = spec.network.link_gbps;
    let known = spec.network.shape != Shape::Topo;
    if known && host.placement == PlacementSpec::Card && gbps > link {
        return Err(format!(
            "host.drain_gbps = {gbps} is above network.link_gbps = {link}: the ring of a card is \
             then always empty; give at most {link}, or leave it out"
        ));
    }
    Ok(())
}

fn fault_check(fault: &FaultSpec, host: Option<&HostSpec>) -> Result<(), String> {
    let (name, percent, of) = match fault {
        FaultSpec::HostSlow { host, percent, .. } => ("host-slow", *percent, *host),
        FaultSpec::HostPulse { host, percent, times, slow_us, fast_us, .. } => {
            if *times == 0 || *times > PULSES_MAX || *slow_us == 0 || *fast_us == 0 {
                return Err(format!(
                    "fault host-pulse: give times from 1 to {PULSES_MAX}, and slow_us and fast_us \
                     of at least 1"
                ));
            }
            ("host-pulse", *percent, *host)
        }
        _ => return Ok(()),
    };
    if host.is_none_or(|h| h.drain_gbps.is_none()) {
        return Err(format!(
            "fault {name}: it changes the rate of a host's ring; give a table [host] with \
             drain_gbps"
        ));
    }
    if host.and_then(|h| h.hosts.as_ref()).is_some_and(|hosts| !hosts.contains(&of)) {
        return Err(format!("fault {name}: host {of} has no ring; name it in host.hosts"));
    }
    if !(1..=1000).contains(&percent) {
        return Err(format!("fault {name}: percent = {percent}: give 1 to 1000"));
    }
    Ok(())
}

/// Bytes of a full packet on the wire.
fn packet_bytes(spec: &Spec) -> u64 {
    match spec.transport {
        Transport::Copa => {
            let copa = spec.copa.clone().unwrap_or_default();
            copa.config(1).map_or(0, |c| c.packet_bytes().into())
        }
        Transport::Tcp => {
            spec.tcp.config().map_or(0, |c| (c.mss + c.header_bytes + c.link_bytes).into())
        }
        _ => Framing::new(spec.engine.mtu.into(), PacketType::Write).full(),
    }
}

/// The ring of each host that has one.
///
/// # Errors
/// If a host does not exist.
pub fn rings_of(
    spec: &Spec,
    hosts: u32,
    flows: &Flows,
) -> Result<Vec<(HostId, RingConfig)>, String> {
    let host = spec.host.as_ref().filter(|host| !host.only_noise());
    let Some(host) = host else { return Ok(Vec::new()) };
    let config = RingConfig {
        limit_bytes: host.ring_bytes,
        bits_per_s: host.drain_gbps.map(|g| (g * 1e9).round() as u64),
        dma_delay_ps: host.dma_delay_ns * NS,
        placement: match host.placement {
            PlacementSpec::Card => Placement::Card,
            PlacementSpec::Host => Placement::Host,
        },
    };
    let receivers = || {
        let flows = flows.flows.iter();
        flows.map(|f| if spec.reads() { f.src.0 } else { f.dst.0 }).collect::<BTreeSet<u32>>()
    };
    let chosen = match &host.hosts {
        Some(named) => named.iter().copied().collect(),
        None => receivers(),
    };
    match chosen.last() {
        Some(last) if *last >= hosts => {
            Err(format!("host.hosts: host {last} does not exist: there are 0 to {}", hosts - 1))
        }
        _ => Ok(chosen.into_iter().map(|h| (HostId(h), config)).collect()),
    }
}

/// Drain rates of these rings, for the floors of flows.
pub fn drains_of(rings: &[(HostId, RingConfig)]) -> Drains {
    let drain = |(host, c): &(HostId, RingConfig)| {
        let card = c.placement == Placement::Card;
        let drain = Drain {
            bits_per_s: c.bits_per_s?,
            // A card acknowledges packets that are not yet written.
            waiting_bytes: if card { c.limit_bytes } else { 0 },
            delay_ps: if card { 0 } else { c.dma_delay_ps },
        };
        Some((host.0, drain))
    };
    rings.iter().filter_map(drain).collect()
}

/// Counters of all rings.
pub fn outcomes<P: Clone, H: Host<P>>(
    world: &World<P, H>,
    rings: &[(HostId, RingConfig)],
) -> Vec<RingOutcome> {
    let of = |host: HostId| world.ring_stats(host).map(|stats| RingOutcome { host, stats });
    rings.iter().filter_map(|(host, _)| of(*host)).collect()
}
