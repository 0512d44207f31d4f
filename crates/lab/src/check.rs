//! Checks of a case that precede all runs. Settings of the network's shape are checked when it is
//! built.

use crate::policy::own_policies;
use crate::spec::{
    FlowControlSpec, InjectionSpec, Pattern, RatesSpec, Routing, SaaSpec, Shape, Spec, Transport,
    VerbSpec,
};
use crate::{app, away, mixed, noise, rings};
use srd_fabric::PACKET_BYTES_MAX;

/// Most placements of a run, about a week of computing.
const PLACEMENTS_MAX: u32 = 10_000_000;

/// Where an error is: the experiment, and its case if that has a name.
pub fn place(experiment: &str, case: &str) -> String {
    match case {
        "" => experiment.to_string(),
        case => format!("{experiment}, case \"{case}\""),
    }
}

/// Checks that a case's transport and its settings are compatible.
///
/// # Errors
/// The text names the field and what to give instead.
pub fn check(spec: &Spec) -> Result<(), String> {
    mixed::check(spec)?;
    group(spec)?;
    spec.also
        .iter()
        .zip(2..)
        .try_for_each(|(also, n)| group(also).map_err(|e| format!("workload.also, group {n}: {e}")))
}

/// Checks a group of flows, which is the whole case if there is only one.
fn group(spec: &Spec) -> Result<(), String> {
    spec.network.check()?;
    rings::check(spec)?;
    away::check(spec)?;
    poisson(spec)?;
    program(spec)?;
    host_model(spec)?;
    trace(spec)?;
    let name = match spec.transport {
        Transport::Srd => "srd",
        Transport::Tcp => "tcp",
        Transport::Rc => "rc",
        Transport::Ue => "ue",
        Transport::Saa => "saa",
        Transport::Copa => "copa",
        Transport::Static => "static",
    };
    if spec.network.ring_hops_max.is_some() && !spec.fault.is_empty() {
        return Err(
            "network.ring_hops_max: paths around failed links may need more steps along a \
                    ring; leave out this field or the faults"
                .into(),
        );
    }
    let lossless = match spec.network.flow_control {
        FlowControlSpec::Drop => None,
        FlowControlSpec::Credits => Some("credits"),
        FlowControlSpec::Pfc => Some("pfc"),
    };
    if spec.saa.is_some() && spec.transport != Transport::Saa {
        return Err(format!(
            "saa: rates are computed with transport = \"saa\" only, and this case has \"{name}\": \
             leave the table out"
        ));
    }
    if spec.copa.is_some() && spec.transport != Transport::Copa {
        return Err(format!(
            "copa: these are settings of transport = \"copa\", and this case has \"{name}\": leave \
             the table out"
        ));
    }
    if spec.placed.is_some() && spec.transport != Transport::Static {
        return Err(format!(
            "static: flows are placed with transport = \"static\" only, and this case has \
             \"{name}\": leave the table out"
        ));
    }
    match spec.transport {
        Transport::Srd | Transport::Tcp | Transport::Rc | Transport::Ue | Transport::Copa
            if spec.network.routing != Routing::Ecmp =>
        {
            Err(format!(
                "network.routing: transport = \"{name}\" runs over \"ecmp\"; \"oblivious\" and \
             \"circuits\" are for \"saa\" and \"static\""
            ))
        }
        Transport::Srd | Transport::Tcp | Transport::Ue | Transport::Copa if lossless.is_some() => {
            Err(format!(
                "network.flow_control = \"{}\": transport = \"{name}\" runs over \"drop\"",
                lossless.unwrap_or_default()
            ))
        }
        Transport::Srd => own_policies(&spec.engine).map(|_| ()),
        Transport::Tcp => spec.tcp.config().map(|_| ()),
        Transport::Ue => spec.ue.config(12_000_000, 100e9, 54_000_000).map(|_| ()),
        Transport::Rc => {
            let packet = spec.rc.config(100e9, 136_000)?;
            if packet.ib_cc.is_some() && spec.network.flow_control != FlowControlSpec::Credits {
                return Err("rc.ib_cc: InfiniBand's congestion control marks by credits; give \
                            network.flow_control = \"credits\""
                    .into());
            }
            fits(spec, packet.mtu + packet.header_bytes)
        }
        Transport::Copa => copa(spec),
        Transport::Saa => phase(spec),
        Transport::Static => placed(spec),
    }
}

/// Checks settings of open-loop arrivals, which define sizes and times of flows themselves.
fn poisson(spec: &Spec) -> Result<(), String> {
    let w = &spec.workload;
    let Some(poisson) = &w.poisson else {
        return match w.pattern {
            Pattern::Poisson => {
                Err("workload.poisson is missing: pattern = \"poisson\" needs its sizes and load"
                    .into())
            }
            _ => Ok(()),
        };
    };
    if w.pattern != Pattern::Poisson {
        return Err("workload.poisson: only workload.pattern = \"poisson\" has it; leave the \
                    table out"
            .into());
    }
    if matches!(spec.transport, Transport::Saa | Transport::Static | Transport::Copa) {
        return Err(
            "workload.pattern = \"poisson\" is for transport = \"srd\", \"tcp\", \"rc\" or \"ue\""
                .into(),
        );
    }
    let other = [
        ("rounds", w.rounds != 1),
        ("flows_per_pair", w.flows_per_pair != 1),
        ("jitter_ns", w.jitter_ns != 0),
        ("both_ways", w.both_ways),
        ("endless", w.endless),
        ("background_pairs", w.background_pairs != 0),
    ];
    if let Some((name, _)) = other.iter().find(|(_, given)| *given) {
        return Err(format!(
            "workload.{name}: pattern = \"poisson\" has arrivals of its own; leave it out"
        ));
    }
    poisson.check()
}

/// Checks a parallel program. Its senders hand in further messages of a flow before the first has
/// ended, which only these transports take.
fn program(spec: &Spec) -> Result<(), String> {
    app::check(spec)?;
    let takes =
        matches!(spec.transport, Transport::Srd | Transport::Tcp | Transport::Rc | Transport::Ue);
    if app::is_program(spec.workload.pattern) && !takes {
        return Err("workload.pattern: \"app\" and \"goal\" are for transport = \"srd\", \
                    \"tcp\", \"rc\" or \"ue\""
            .into());
    }
    Ok(())
}

/// Checks a trace of packets.
fn trace(spec: &Spec) -> Result<(), String> {
    if !spec.measure.trace {
        return Ok(());
    }
    let traced =
        matches!(spec.transport, Transport::Srd | Transport::Tcp | Transport::Rc | Transport::Ue);
    if !traced || spec.engine.verb == VerbSpec::Send {
        return Err("measure.trace is for transport = \"srd\" (with writes), \"tcp\", \"rc\" or \
                    \"ue\"; leave it out"
            .into());
    }
    if spec.workload.rounds != 1 || app::is_program(spec.workload.pattern) {
        return Err(
            "measure.trace follows each byte of a flow once: give workload.rounds = 1, and \
                    no program (\"app\", \"goal\")"
                .into(),
        );
    }
    Ok(())
}

/// Kernel models apply to SRD on sockets only.
fn host_model(spec: &Spec) -> Result<(), String> {
    let Some(name) = spec.host_model.as_deref().filter(|name| *name != noise::IDEAL) else {
        return Ok(());
    };
    if spec.transport != Transport::Srd {
        return Err(format!(
            "host = \"{name}\": kernel and thread of SRD's engine are modelled, and of no other \
             transport; give \"ideal\" or transport = \"srd\""
        ));
    }
    if spec.host.is_some() {
        return Err(format!("host = \"{name}\": a table [host] beside it is not possible"));
    }
    Ok(())
}

/// Whether the input buffers of a lossless network hold a packet.
fn fits(spec: &Spec, packet_bytes: u32) -> Result<(), String> {
    let n = &spec.network;
    for (field, given) in [("input_bytes", n.input_bytes), ("pfc_xoff_bytes", n.pfc_xoff_bytes)] {
        if let Some(bytes) = given.filter(|bytes| *bytes < u64::from(packet_bytes)) {
            return Err(format!(
                "network.{field} = {bytes} holds no packet of {packet_bytes} bytes: give more"
            ));
        }
    }
    n.pfc_check(packet_bytes)
}

fn copa(spec: &Spec) -> Result<(), String> {
    if spec.measure.order || spec.measure.flows || spec.workload.background_pairs > 0 {
        return Err("measure.order, measure.flows and workload.background_pairs are not for \
                    transport = \"copa\""
            .into());
    }
    spec.copa.clone().unwrap_or_default().config(1).map(|_| ())
}

/// Whether routing keeps each flow on one path.
fn keeps_ways(spec: &Spec) -> bool {
    let network = &spec.network;
    matches!(network.routing, Routing::Oblivious | Routing::Circuits)
        // There is only one path.
        || network.shape == Shape::SharedInput
}

fn phase(spec: &Spec) -> Result<(), String> {
    if spec.network.flow_control == FlowControlSpec::Drop {
        return Err("network.flow_control = \"drop\": packets of transport = \"saa\" are never \
                    sent again; give \"credits\""
            .into());
    }
    if spec.workload.endless || spec.workload.background_pairs > 0 || spec.measure.order {
        return Err("workload.endless, workload.background_pairs and measure.order are not for \
                    transport = \"saa\""
            .into());
    }
    let saa = spec.saa.clone().unwrap_or_default();
    if saa.rates != RatesSpec::None && !keeps_ways(spec) {
        let rates = if saa.rates == RatesSpec::Optimal { "optimal" } else { "distributed" };
        return Err(format!(
            "saa.rates = \"{rates}\" needs flows with one path each; give network.routing \
             = \"circuits\" or \"oblivious\""
        ));
    }
    if saa.rates == RatesSpec::Optimal && spec.workload.pattern == Pattern::Allreduce {
        return Err("saa.rates = \"optimal\": rates are computed once, and the steps of an \
                    allreduce differ; give \"distributed\""
            .into());
    }
    let input = spec.network.input_bytes.unwrap_or(u64::MAX);
    if input < saa.packet_bytes.into() {
        return Err(format!(
            "network.input_bytes = {input} holds no packet of saa.packet_bytes = {}",
            saa.packet_bytes
        ));
    }
    spec.network.pfc_check(saa.packet_bytes)?;
    settings(&saa)
}

fn settings(saa: &SaaSpec) -> Result<(), String> {
    if saa.rates == RatesSpec::None && saa.injection.is_some_and(|i| i != InjectionSpec::None) {
        return Err(
            "saa.injection: there is no rate to inject at; give saa.rates = \"optimal\" or \
                    \"distributed\""
                .into(),
        );
    }
    if saa.bucket_packets.is_some() && saa.injection != Some(InjectionSpec::Bucket) {
        return Err("saa.bucket_packets: only saa.injection = \"bucket\" uses it".into());
    }
    if saa.bucket_packets == Some(0) || saa.probe_packets == 0 {
        return Err("saa.bucket_packets and saa.probe_packets must be at least 1".into());
    }
    if saa.packet_bytes <= saa.header_bytes || saa.packet_bytes > PACKET_BYTES_MAX {
        return Err(format!(
            "saa.packet_bytes = {} must be more than saa.header_bytes = {}, and at most \
             {PACKET_BYTES_MAX}",
            saa.packet_bytes, saa.header_bytes
        ));
    }
    match saa.timeout_us {
        Some(us) if !(0.001..=1e9).contains(&us) => {
            Err(format!("saa.timeout_us = {us} must be from 0.001 to 1,000,000,000"))
        }
        _ => Ok(()),
    }
}

fn placed(spec: &Spec) -> Result<(), String> {
    let runs = spec.placed.clone().unwrap_or_default().runs;
    if !(1..=PLACEMENTS_MAX).contains(&runs) {
        return Err(format!(
            "static.runs = {runs} must be at least 1, and at most {PLACEMENTS_MAX}"
        ));
    }
    if spec.network.shape != Shape::KAryNTree || spec.network.routing == Routing::Ecmp {
        return Err(
            "transport = \"static\" places flows on network.shape = \"k-ary-n-tree\" with \
                    network.routing = \"circuits\" or \"oblivious\""
                .into(),
        );
    }
    if spec.network.flow_gbps.is_some() {
        return Err("network.flow_gbps: transport = \"static\" has no packets that a card could \
                    limit; leave it out"
            .into());
    }
    if !spec.fault.is_empty() {
        return Err("fault: transport = \"static\" has no packets that faults could affect".into());
    }
    Ok(())
}
