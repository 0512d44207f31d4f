//! The metrics: their names, and their values from what processes show.

use super::{
    text::{Kind, Text},
    totals::{PathTotal, Totals},
};
use srd_share::status::{Counter, Limit, PathState, Peer, StatusRow};
use std::{collections::BTreeMap, net::IpAddr};

/// The metrics of node_exporter's infiniband collector, for EFA: name, counter of ours, help. The
/// names are those of prometheus/node_exporter#3670.
const NODE: [(&str, Counter, &str); 12] = [
    (
        "port_data_transmitted_bytes_total",
        Counter::TxBytes,
        "Number of data octets transmitted on all links",
    ),
    (
        "port_data_received_bytes_total",
        Counter::RxBytes,
        "Number of data octets received on all links",
    ),
    (
        "port_packets_transmitted_total",
        Counter::TxPkts,
        "Number of packets transmitted on all virtual lanes",
    ),
    (
        "port_packets_received_total",
        Counter::RxPkts,
        "Number of packets received on all virtual lanes",
    ),
    ("efa_rx_drops_total", Counter::RxDrops, "EFA: received packets that were dropped"),
    ("efa_retrans_packets_total", Counter::RetransPkts, "EFA: packets sent again"),
    ("efa_retrans_bytes_total", Counter::RetransBytes, "EFA: bytes sent again"),
    (
        "efa_retrans_timeout_events_total",
        Counter::RetransTimeoutEvents,
        "EFA: timeouts after which packets were sent again",
    ),
    (
        "efa_unresponsive_remote_events_total",
        Counter::UnresponsiveRemoteEvents,
        "EFA: peers that stopped to answer",
    ),
    (
        "efa_impaired_remote_conn_events_total",
        Counter::ImpairedRemoteConnEvents,
        "EFA: times that no path to a peer answered",
    ),
    ("efa_rdma_read_bytes_total", Counter::RdmaReadBytes, "EFA: bytes that RDMA reads fetched"),
    ("efa_rdma_write_bytes_total", Counter::RdmaWriteBytes, "EFA: bytes of RDMA writes"),
];

/// A gauge of a device.
type DeviceGauge = (&'static str, &'static str, fn(&StatusRow) -> f64);

const DEVICE_GAUGES: [DeviceGauge; 4] = [
    ("srd_queue_pairs", "Queue pairs of the device", |r| r.status.qps.into()),
    ("srd_contexts", "Peer engines that the device has a context with", |r| {
        r.status.contexts.into()
    }),
    ("srd_contexts_sealed", "Contexts in which every packet is sealed", |r| {
        r.status.contexts_sealed.into()
    }),
    ("srd_addresses", "Remote addresses of the contexts", |r| r.status.addresses.into()),
];

/// A metric of a peer.
type PeerMetric = (&'static str, Kind, &'static str, fn(&Peer) -> f64);

const PEER_METRICS: [PeerMetric; 10] = [
    ("srd_peer_rate_bytes_per_second", Kind::Gauge, "Paced rate to the address", |p| {
        p.rate_bytes_per_sec as f64
    }),
    (
        "srd_peer_delivered_bytes_per_second",
        Kind::Gauge,
        "Delivery rate to the address in the last round trip that was reported",
        |p| p.delivered_bytes_per_sec as f64,
    ),
    ("srd_peer_rtt_seconds", Kind::Gauge, "Smoothed round-trip time", |p| {
        f64::from(p.rtt_ns_smoothed) / 1e9
    }),
    ("srd_peer_rtt_min_seconds", Kind::Gauge, "Least recent round-trip time", |p| {
        f64::from(p.rtt_ns_min) / 1e9
    }),
    ("srd_peer_inflight_bytes", Kind::Gauge, "Bytes in flight", |p| p.inflight_bytes as f64),
    ("srd_peer_window_bytes", Kind::Gauge, "Congestion window: most bytes in flight", |p| {
        p.inflight_bytes_max as f64
    }),
    ("srd_peer_requests", Kind::Gauge, "Send requests posted and not completed", |p| {
        p.outstanding.into()
    }),
    ("srd_peer_packets_total", Kind::Counter, "Packets sent to the address", |p| {
        p.packets_sent as f64
    }),
    ("srd_peer_packets_lost_total", Kind::Counter, "Packets declared lost", |p| {
        p.packets_lost as f64
    }),
    (
        "srd_peer_packets_marked_total",
        Kind::Counter,
        "Packets acknowledged with the mark CE (congestion experienced)",
        |p| p.packets_ce as f64,
    ),
];

/// A counter of a path.
type PathCounter = (&'static str, &'static str, fn(&PathTotal) -> u64);

const PATH_COUNTERS: [PathCounter; 3] = [
    ("srd_path_packets_total", "Packets sent on the path, by all processes", |p| p.sent),
    ("srd_path_packets_lost_total", "Packets sent on the path that were declared lost", |p| p.lost),
    (
        "srd_path_packets_marked_total",
        "Packets sent on the path that were acknowledged with the mark CE",
        |p| p.ce,
    ),
];

/// All metrics of these devices; `paths`: with those of each path.
pub fn text(rows: &[StatusRow], totals: &Totals, foreign: usize, paths: bool) -> String {
    // Process numbers of different PID namespaces may be equal; Prometheus refuses a text in which
    // two samples have equal labels.
    let unique: BTreeMap<_, _> =
        rows.iter().map(|r| ((r.pid, r.status.port, &r.status.name), r)).collect();
    let rows: &[&StatusRow] = &unique.into_values().collect::<Vec<_>>();
    let mut text = Text::default();
    node(&mut text, totals);
    devices(&mut text, rows);
    peers(&mut text, rows);
    if paths {
        path_counters(&mut text, totals);
        path_gauges(&mut text, rows);
    }
    let help = "Devices of other users, which only root sees";
    text.metric("srd_export_devices_of_others", Kind::Gauge, help);
    text.sample("srd_export_devices_of_others", &[], foreign as f64);
    let help = "Times that a path was not counted because there are too many";
    text.metric("srd_export_paths_dropped_total", Kind::Counter, help);
    text.sample("srd_export_paths_dropped_total", &[], totals.paths_dropped as f64);
    text.finish()
}

/// What all processes together did, with node_exporter's names.
fn node(text: &mut Text, totals: &Totals) {
    for (name, counter, help) in NODE {
        let name = format!("node_infiniband_{name}");
        text.metric(&name, Kind::Counter, help);
        for (device, counters) in &totals.devices {
            let labels = [("device", device.as_str()), ("port", "1")];
            text.sample(&name, &labels, counters[counter as usize] as f64);
        }
    }
}

/// Values of the labels of a device.
struct Of {
    pid: String,
    rank: String,
    udp_port: String,
}

impl Of {
    fn new(row: &StatusRow) -> Self {
        let rank = row.status.rank.map_or_else(String::new, |rank| rank.to_string());
        Self { pid: row.pid.to_string(), rank, udp_port: row.status.port.to_string() }
    }

    fn labels<'a>(&'a self, row: &'a StatusRow) -> [(&'a str, &'a str); 5] {
        [
            ("pid", &self.pid),
            ("program", &row.status.program),
            ("rank", &self.rank),
            ("device", &row.status.name),
            ("udp_port", &self.udp_port),
        ]
    }
}

fn devices(text: &mut Text, rows: &[&StatusRow]) {
    for (name, help, value) in DEVICE_GAUGES {
        text.metric(name, Kind::Gauge, help);
        for row in rows {
            text.sample(name, &Of::new(row).labels(row), value(row));
        }
    }
    for &counter in Counter::ALL {
        let name = format!("srd_{}_total", counter.name());
        text.metric(&name, Kind::Counter, counter.help());
        for row in rows {
            text.sample(&name, &Of::new(row).labels(row), row.status.counter(counter) as f64);
        }
    }
}

fn peers(text: &mut Text, rows: &[&StatusRow]) {
    for (name, kind, help, value) in PEER_METRICS {
        text.metric(name, kind, help);
        peers_sample(text, rows, name, &[None], |peer, _| value(peer));
    }
    let name = "srd_peer_paths";
    text.metric(name, Kind::Gauge, "Paths to the address by state");
    let states = PathState::ALL.map(|state| Some(("state", state.name())));
    peers_sample(text, rows, name, &states, |peer, i| peer.path_counts[i].into());
    let name = "srd_peer_limited_total";
    let help = "How often each limit was found; looked at up to ten times per second, when the \
                device did something";
    text.metric(name, Kind::Counter, help);
    let limits = Limit::ALL.map(|limit| Some(("limit", limit.name())));
    peers_sample(text, rows, name, &limits, |peer, i| peer.limits[i].into());
}

/// Samples of all peers of all devices, one for each value of one more label, if there is one.
fn peers_sample(
    text: &mut Text,
    rows: &[&StatusRow],
    name: &str,
    more: &[Option<(&str, &str)>],
    value: impl Fn(&Peer, usize) -> f64,
) {
    for row in rows {
        let of = Of::new(row);
        for peer in &row.status.peers {
            let ip = peer.ip.to_string();
            for (i, more) in more.iter().enumerate() {
                let mut labels = of.labels(row).to_vec();
                labels.push(("peer", &ip));
                labels.extend(more);
                text.sample(name, &labels, value(peer, i));
            }
        }
    }
}

fn path_counters(text: &mut Text, totals: &Totals) {
    for (name, help, value) in PATH_COUNTERS {
        text.metric(name, Kind::Counter, help);
        for ((device, ip, path), total) in &totals.paths {
            let (ip, path) = (ip.to_string(), path.to_string());
            let labels = [("device", device.as_str()), ("peer", &ip), ("path", &path)];
            text.sample(name, &labels, value(total) as f64);
        }
    }
}

/// What the processes that use a path say about it now.
#[derive(Default)]
struct PathNow {
    states: [u32; PathState::ALL.len()],
    /// Sum and number of the smoothed RTTs, ns.
    rtt: (u64, u64),
    rtt_ns_min: Option<u32>,
}

fn path_gauges(text: &mut Text, rows: &[&StatusRow]) {
    let mut all: BTreeMap<(&str, IpAddr, u8), PathNow> = BTreeMap::new();
    for row in rows {
        for peer in &row.status.peers {
            for path in &peer.paths {
                let now = all.entry((&row.status.name, peer.ip, path.path)).or_default();
                now.states[path.state as usize] += 1;
                if path.rtt_ns_smoothed > 0 {
                    now.rtt = (now.rtt.0 + u64::from(path.rtt_ns_smoothed), now.rtt.1 + 1);
                }
                if path.rtt_ns_min > 0 {
                    let least = now.rtt_ns_min.unwrap_or(u32::MAX).min(path.rtt_ns_min);
                    now.rtt_ns_min = Some(least);
                }
            }
        }
    }
    for (name, help, values) in PATH_GAUGES {
        text.metric(name, Kind::Gauge, help);
        for ((device, ip, path), now) in &all {
            let (ip, path) = (ip.to_string(), path.to_string());
            for (state, value) in values(now) {
                let mut labels = vec![("device", *device), ("peer", &ip), ("path", &path)];
                labels.extend(state.map(|state| ("state", state.name())));
                text.sample(name, &labels, value);
            }
        }
    }
}

/// A gauge of a path: its samples, each with a state if it is about one.
type PathGauge = (&'static str, &'static str, fn(&PathNow) -> Vec<(Option<PathState>, f64)>);

const PATH_GAUGES: [PathGauge; 3] = [
    ("srd_path_rtt_seconds", "Smoothed round-trip time: mean of the processes", |now| {
        let (sum_ns, count) = now.rtt;
        let mean = (count > 0).then(|| sum_ns as f64 / count as f64 / 1e9);
        mean.map(|seconds| (None, seconds)).into_iter().collect()
    }),
    ("srd_path_rtt_min_seconds", "Least round-trip time of all processes", |now| {
        now.rtt_ns_min.map(|ns| (None, f64::from(ns) / 1e9)).into_iter().collect()
    }),
    ("srd_path_processes", "Devices that have the path in this state", |now| {
        PathState::ALL.map(|state| (Some(state), now.states[state as usize].into())).to_vec()
    }),
];
