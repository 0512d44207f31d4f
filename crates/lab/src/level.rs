//! Warnings where an experiment compares transports that are not level: another packet size,
//! timers that do not fit, marks that never come.

use crate::spec::{Spec, Transport};
use std::collections::{BTreeMap, BTreeSet};

/// Floor of DCTCP's retransmission timeout from which on timeouts, not marks, decide: one hundred
/// base round trips of a datacenter, 10 us.
const DCTCP_FLOOR_MS: f64 = 10.0;

/// What is not level in an experiment, one sentence each with the field that changes it; empty if
/// there is nothing, or one transport only.
pub fn warnings(cases: &[Spec]) -> Vec<String> {
    let mut out: BTreeSet<String> = BTreeSet::new();
    out.extend(payloads(cases.iter().flat_map(groups)));
    out.extend(cases.iter().filter_map(|case| payloads(groups(case))));
    for spec in cases.iter().flat_map(groups) {
        out.extend(timers(spec));
        out.extend(marks(spec));
    }
    out.into_iter().collect()
}

/// The groups of flows of a case.
fn groups(case: &Spec) -> impl Iterator<Item = &Spec> {
    std::iter::once(case).chain(&case.also)
}

/// Payload of a full packet, and the field that sets it.
fn payload(spec: &Spec) -> Option<(&'static str, u32, &'static str)> {
    Some(match spec.transport {
        Transport::Srd => ("SRD", spec.engine.mtu.into(), "engine.mtu"),
        Transport::Tcp => ("TCP", spec.tcp.config().ok()?.mss, "tcp.mss"),
        Transport::Rc => ("RoCE", spec.rc.config(100e9, 136_000).ok()?.mtu, "rc.mtu"),
        Transport::Ue => ("UE", spec.ue.config(12_000_000, 100e9, 54_000_000).ok()?.mtu, "ue.mtu"),
        Transport::Saa | Transport::Copa | Transport::Static => return None,
    })
}

/// A sentence if no payload is common to all transports.
fn payloads<'a>(groups: impl Iterator<Item = &'a Spec>) -> Option<String> {
    let mut by_transport: BTreeMap<(&str, &str), BTreeSet<u32>> = BTreeMap::new();
    for (name, bytes, field) in groups.filter_map(payload) {
        by_transport.entry((name, field)).or_default().insert(bytes);
    }
    let mut common = by_transport.values().cloned().reduce(|a, b| &a & &b)?;
    if common.pop_first().is_some() {
        return None;
    }
    let each: Vec<String> = by_transport
        .iter()
        .map(|((name, field), bytes)| {
            let sizes: Vec<String> = bytes.iter().map(u32::to_string).collect();
            format!("{name} {} B ({field})", sizes.join(" and "))
        })
        .collect();
    Some(format!("packets have different payloads: {}", each.join(", ")))
}

/// Sentences on the timers of DCTCP.
fn timers(spec: &Spec) -> Vec<String> {
    let tcp = &spec.tcp;
    if spec.transport != Transport::Tcp || tcp.cc.as_deref() != Some("dctcp") {
        return Vec::new();
    }
    let Ok(config) = tcp.config() else { return Vec::new() };
    let ms = |ps: u64| ps as f64 / 1e9;
    let (floor, delayed) = (ms(config.rto_min_ps), ms(config.delayed_ack_ps));
    let mut out = Vec::new();
    if floor >= DCTCP_FLOOR_MS {
        out.push(format!(
            "DCTCP waits at least {floor} ms for a lost packet (tcp.rto_floor_ms): 1 ms fits \
             round trips of some 10 us"
        ));
    }
    if delayed > floor {
        out.push(format!(
            "acknowledgments of DCTCP wait up to {delayed} ms (tcp.delayed_ack_ms), longer than \
             its retransmission timeout of {floor} ms (tcp.rto_floor_ms)"
        ));
    }
    out
}

/// Whether the transport acts on marks.
fn heeds_marks(spec: &Spec) -> Option<&'static str> {
    match spec.transport {
        Transport::Srd => Some("SRD"),
        Transport::Ue => Some("UE"),
        Transport::Rc => spec.rc.dcqcn.unwrap_or(true).then_some("DCQCN"),
        Transport::Tcp if spec.tcp.cc.as_deref() == Some("dctcp") => Some("DCTCP"),
        Transport::Tcp => spec.tcp.ecn.unwrap_or(false).then_some("TCP with ECN"),
        Transport::Saa | Transport::Copa | Transport::Static => None,
    }
}

/// Sentences on marks that come too late or not at all.
fn marks(spec: &Spec) -> Option<String> {
    let n = &spec.network;
    let name = heeds_marks(spec)?;
    if n.ecn_bytes_min == 0 {
        // SRD and UE measure delays and need no marks.
        let needs = ["DCTCP", "DCQCN", "TCP with ECN"].contains(&name);
        return needs.then(|| {
            format!("{name} has no marks to act on: network.ecn_bytes_min = 0 turns ECN off")
        });
    }
    let buffer = match n.shared_buffer_bytes {
        Some(bytes) => {
            let alpha = n.shared_buffer_alpha.unwrap_or(1.0);
            (bytes as f64 * alpha / (1.0 + alpha)) as u64
        }
        None => n.buffer_bytes,
    };
    let lossless = n.flow_control != crate::spec::FlowControlSpec::Drop;
    (n.ecn_bytes_max > buffer && !lossless).then(|| {
        format!(
            "queues overflow before every packet is marked: network.ecn_bytes_max = {} is more \
             than the {buffer} B that a queue may hold (network.buffer_bytes)",
            n.ecn_bytes_max
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::SpecFile;
    use std::path::Path;

    fn of(more: &str) -> Vec<String> {
        let text = format!(
            "name = \"t\"\ntitle = \"t\"\nnetwork.shape = \"back-to-back\"\n\
             workload.pattern = \"permutation\"\n{more}\n[[cases]]\ncase = \"SRD\"\n\
             [[cases]]\ncase = \"TCP\"\ntransport = \"tcp\"\n[[cases]]\ncase = \"DCTCP\"\n\
             transport = \"tcp\"\ntcp.cc = \"dctcp\"\n"
        );
        warnings(&SpecFile::parse(&text, Path::new("."), false).unwrap().cases)
    }

    #[test]
    fn defaults_are_level_whatever_the_buffer() {
        for buffer in [20_000, 100_000, 680_000, 10_000_000] {
            assert_eq!(of(&format!("network.buffer_bytes = {buffer}")), Vec::<String>::new());
        }
        assert_eq!(of("engine.mtu = 8000"), Vec::<String>::new());
    }

    /// Groups of one network are compared, too, and have the defaults of cases.
    #[test]
    fn groups_of_a_case_are_level_and_are_warned_of() {
        let group = "[[workload.also]]\ntransport = \"tcp\"\npattern = \"permutation\"\n";
        assert_eq!(of(&format!("{group}tcp.cc = \"dctcp\"")), Vec::<String>::new());
        let got = of(&format!("{group}tcp.mss = 1448\ntcp.rto_floor_ms = 1")).join("; ");
        assert!(got.contains("SRD 4096 B (engine.mtu), TCP 1448 B (tcp.mss)"), "{got}");
        let got = of(&format!("{group}tcp = {{ cc = \"dctcp\", rto_floor_ms = 50 }}")).join("; ");
        assert!(got.contains("tcp.rto_floor_ms"), "{got}");
    }

    #[test]
    fn what_is_not_level_is_named_with_its_field() {
        for (more, parts) in [
            ("tcp.mss = 8948", ["SRD 4096 B (engine.mtu)", "TCP 8948 B (tcp.mss)"]),
            ("tcp.rto_floor_ms = 50", ["50 ms", "tcp.rto_floor_ms"]),
            ("tcp.rto_floor_ms = 1", ["wait up to 40 ms", "tcp.delayed_ack_ms"]),
            ("network.ecn_bytes_min = 0", ["DCTCP has no marks", "network.ecn_bytes_min"]),
            ("network.ecn_bytes_max = 700_000", ["700000", "680000 B that a queue may hold"]),
        ] {
            let got = of(more).join("; ");
            assert!(parts.iter().all(|p| got.contains(p)), "{more}: {got}");
        }
    }
}
