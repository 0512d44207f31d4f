//! Number of ECMP paths between two hosts, as reported by the routers on them. It shows whether the
//! network hashes source ports, which makes each source port a path.

use crate::host::Server;
use serde::{Deserialize, Serialize};
use srd::datapath::hops::{self, Trace};
use std::{collections::BTreeMap, io, net::IpAddr, net::SocketAddr};

/// Number of probed source ports: the default number of paths of a device.
pub const PORTS: usize = 64;
/// Deviation from an even spread, in standard deviations, above which it is reported as uneven.
const SIGMAS: f64 = 4.0;

/// Answers of the routers at one hop.
#[derive(Clone, Debug, PartialEq)]
struct Spread {
    /// Hop count: 1 is the first router.
    hop: usize,
    /// Number of ports with an answer.
    answered: usize,
    /// Number of ports per address of an answering router.
    routers: BTreeMap<IpAddr, usize>,
}

impl Spread {
    /// The address with the most ports, and their number.
    fn busiest(&self) -> Option<(IpAddr, usize)> {
        self.routers.iter().map(|(ip, n)| (*ip, *n)).max_by_key(|r| r.1)
    }

    /// Whether one address has more ports than an even spread explains.
    fn is_uneven(&self) -> bool {
        let (n, ways) = (self.answered as f64, self.routers.len() as f64);
        let fair = n / ways;
        let sigma = (fair * (1.0 - 1.0 / ways)).sqrt();
        self.busiest().is_some_and(|b| b.1 as f64 > fair + SIGMAS * sigma + 1.0)
    }

    fn text(&self, ports: usize) -> String {
        let (hop, ways) = (self.hop, self.routers.len());
        let Some((ip, most)) = self.busiest() else {
            return format!("hop {hop}: no answer");
        };
        if ways == 1 {
            return format!("hop {hop}: {ip} for all {} ports that it answered", self.answered);
        }
        let share = 100 * most / self.answered;
        let told = self.answered;
        format!(
            "hop {hop}: {ways} addresses for {told} of {ports} ports, {share} % of them at {ip}"
        )
    }
}

/// Result of a measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entropy {
    /// Whether no problem was found.
    pub good: bool,
    /// Number of ECMP paths, as far as routers answer; 0 if it cannot be measured.
    pub ways: usize,
    /// Number of routers that one packet passes, as far as they answer.
    pub hops: usize,
    /// The finding.
    pub what: String,
    /// One line per hop, and the advice.
    pub details: Vec<String>,
}

/// Sends probes from [`PORTS`] source ports towards `server`, to the last port of its range.
///
/// # Errors
/// Sending fails.
pub fn measure(server: &Server, port_base: u16) -> io::Result<Entropy> {
    // The last port of the range is open if the others are, and is the last one that devices use.
    let to = SocketAddr::new(server.ip, port_base.saturating_add(255));
    let trace = hops::trace(SocketAddr::new(server.local_ip, 0), to, PORTS)?;
    Ok(judge(&trace, PORTS))
}

/// What makes routers tell paths apart by their ports.
///
/// Linux has two policies that hash ports: 1, which takes the number that the sender's socket has
/// given to a packet instead, if the packet comes from a connected socket of the router's own
/// kernel (containers, namespaces); and 3 (Linux 5.14), which always reads the packet, but ports
/// only if the fields say so.
pub const HASH_ADVICE: &str = "routers, and hosts with several routes, must hash ports: switches \
    layer 3+4; Linux `sysctl -w net.ipv4.fib_multipath_hash_fields=0x37 \
    net.ipv4.fib_multipath_hash_policy=3` (before Linux 5.14 \
    `net.ipv4.fib_multipath_hash_policy=1`)";

fn judge(trace: &Trace, ports: usize) -> Entropy {
    let spreads: Vec<Spread> = trace.hops.iter().enumerate().map(spread).collect();
    let mut details: Vec<String> = spreads.iter().map(|s| s.text(ports)).collect();
    // The first hop with the most addresses: behind it, routers may answer each path from another
    // address.
    let best = spreads.iter().rev().max_by_key(|s| s.routers.len());
    let Some(best) = best.filter(|b| !b.routers.is_empty()) else {
        let (good, what) = if trace.arrived {
            (true, "no router is on the path: bundled links below IP cannot be told apart")
        } else {
            details.push(
                "routers or a firewall do not answer; `srd paths` shows delay and loss".into(),
            );
            (false, "no router answered: the number of ECMP paths cannot be measured")
        };
        return Entropy { good, ways: 0, hops: 0, what: what.into(), details };
    };
    let (ways, hop) = (best.routers.len(), best.hop);
    let hops = spreads.iter().rev().find(|s| !s.routers.is_empty()).map_or(0, |s| s.hop);
    if ways == 1 {
        details.push(format!("if there are several ECMP paths, {HASH_ADVICE}"));
        let what = format!("{ports} source ports take 1 ECMP path, as far as routers answer");
        return Entropy { good: false, ways, hops, what, details };
    }
    let what = format!("{ports} source ports take {ways} ECMP paths, told apart at hop {hop}");
    if best.answered < ports {
        details.push(
            "routers limit the rate of answers; the other ports may take any of the paths".into(),
        );
    }
    if best.is_uneven() {
        details.push(
            "chance does not explain it: routers hash few bits, or paths have weights".into(),
        );
        return Entropy { good: false, ways, hops, what: format!("{what}, unevenly"), details };
    }
    Entropy { good: true, ways, hops, what, details }
}

fn spread((k, hop): (usize, &hops::Hop)) -> Spread {
    let mut routers = BTreeMap::new();
    for ip in hop.routers.iter().flatten() {
        *routers.entry(*ip).or_insert(0) += 1;
    }
    Spread { hop: k + 1, answered: routers.values().sum(), routers }
}

#[cfg(test)]
mod tests {
    use super::*;
    use srd::datapath::hops::Hop;

    /// Hops with the given number of ports per router; the other ports do not answer.
    fn trace(hops: &[&[usize]], arrived: bool) -> Trace {
        let hop = |(k, counts): (usize, &&[usize])| {
            let at = |(r, n): (usize, &usize)| {
                std::iter::repeat_n(Some(IpAddr::from([10, k as u8, 0, r as u8])), *n)
            };
            let mut routers: Vec<_> = counts.iter().enumerate().flat_map(at).collect();
            routers.resize(64, None);
            Hop { routers }
        };
        Trace { hops: hops.iter().enumerate().map(hop).collect(), arrived }
    }

    #[test]
    fn paths_are_counted_at_the_hop_with_most_addresses() {
        let e = judge(&trace(&[&[64], &[15, 18, 14, 17], &[30, 34]], true), 64);
        assert!(
            e.good && e.what.contains("64 source ports take 4 ECMP paths, told apart at hop 2")
        );
        assert_eq!(e.details[0], "hop 1: 10.0.0.0 for all 64 ports that it answered");
        assert!(e.details[1].contains("4 addresses for 64 of 64 ports, 28 % of them at 10.1.0.1"));
        let few = judge(&trace(&[&[6], &[6, 6]], true), 64);
        assert!(few.good && few.details[2].contains("limit the rate"), "{few:?}");
        assert_eq!((e.ways, e.hops, few.ways), (4, 3, 2));
    }

    #[test]
    fn a_single_path_and_uneven_paths_are_reported_with_advice() {
        let one = judge(&trace(&[&[64], &[64]], true), 64);
        assert!(!one.good && one.what.contains("take 1 ECMP path"));
        assert!(one.details[2].contains("fib_multipath_hash_policy=3"), "{one:?}");
        let uneven = judge(&trace(&[&[58, 3, 3]], true), 64);
        assert!(!uneven.good && uneven.what.ends_with("unevenly"), "{uneven:?}");
    }

    #[test]
    fn missing_answers_are_reported() {
        let direct = judge(&trace(&[], true), 64);
        assert!(direct.good && direct.what.contains("no router is on the path"));
        let silent = judge(&trace(&[], false), 64);
        assert!(!silent.good && silent.what.contains("cannot be measured"));
        let gap = judge(&trace(&[&[], &[32, 32]], true), 64);
        assert!(gap.good && gap.details[0] == "hop 1: no answer", "{gap:?}");
    }
}
