//! Kernel counters of the hosts during a measurement: TCP's retransmissions, and packets that
//! sockets drop.

use super::FlowSpec;
use crate::{error::Result, fabric::Fabric, ns::NetNs, spec::Node};
use std::{collections::BTreeSet, fs};

/// Drops at TCP's sockets (group `TcpExt` of `/proc/net/netstat`): backlog full, receive buffer
/// full (in order, out of order), and packets freed under memory pressure.
const TCP_DROPS: [&str; 4] = ["TCPBacklogDrop", "TCPRcvQDrop", "TCPOFODrop", "RcvPruned"];

/// Counters of some hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelCounts {
    /// TCP segments that the sending hosts sent, without retransmitted ones.
    pub tcp_segments: u64,
    /// TCP segments that they retransmitted.
    pub tcp_retransmitted: u64,
    /// TCP retransmission timeouts at the sending hosts.
    pub tcp_timeouts: u64,
    /// Packets that TCP's sockets of all hosts dropped.
    pub tcp_socket_drops: u64,
    /// Packets that UDP's sockets of all hosts dropped because their buffers were full.
    pub udp_socket_drops: u64,
}

impl KernelCounts {
    /// Reads the counters of all hosts of `flows`.
    ///
    /// # Errors
    /// A host does not exist, or `/proc` is not mounted.
    pub fn read(fabric: &Fabric, flows: &[FlowSpec]) -> Result<Self> {
        let senders: BTreeSet<(u8, u8)> = flows.iter().map(|f| f.from).collect();
        let hosts: BTreeSet<(u8, u8)> = flows.iter().flat_map(|f| [f.from, f.to]).collect();
        let mut sum = Self::default();
        for host in hosts {
            let texts = texts(fabric.ns(Node::Host(host.0, host.1))?)?;
            sum.add(&Self::parse(&texts, senders.contains(&host)));
        }
        Ok(sum)
    }

    /// Parses the texts of `/proc/net/snmp`, `snmp6` and `netstat` of one host.
    fn parse([snmp, snmp6, netstat]: &[String; 3], sends: bool) -> Self {
        let tcp = |name| if sends { value(snmp, "Tcp", name) } else { 0 };
        let ext = |name| value(netstat, "TcpExt", name);
        Self {
            tcp_segments: tcp("OutSegs"),
            tcp_retransmitted: tcp("RetransSegs"),
            tcp_timeouts: if sends { ext("TCPTimeouts") } else { 0 },
            tcp_socket_drops: TCP_DROPS.into_iter().map(ext).sum(),
            udp_socket_drops: value(snmp, "Udp", "RcvbufErrors")
                + value6(snmp6, "Udp6RcvbufErrors"),
        }
    }

    /// Adds the counters of another host or run.
    pub fn add(&mut self, other: &Self) {
        self.tcp_segments += other.tcp_segments;
        self.tcp_retransmitted += other.tcp_retransmitted;
        self.tcp_timeouts += other.tcp_timeouts;
        self.tcp_socket_drops += other.tcp_socket_drops;
        self.udp_socket_drops += other.udp_socket_drops;
    }

    /// The increase of the counters since `before`.
    pub fn since(&self, before: &Self) -> Self {
        Self {
            tcp_segments: self.tcp_segments.saturating_sub(before.tcp_segments),
            tcp_retransmitted: self.tcp_retransmitted.saturating_sub(before.tcp_retransmitted),
            tcp_timeouts: self.tcp_timeouts.saturating_sub(before.tcp_timeouts),
            tcp_socket_drops: self.tcp_socket_drops.saturating_sub(before.tcp_socket_drops),
            udp_socket_drops: self.udp_socket_drops.saturating_sub(before.udp_socket_drops),
        }
    }

    /// Share of TCP's segments that were retransmissions, in percent of all segments sent.
    pub fn tcp_again_percent(&self) -> f64 {
        let all = self.tcp_segments + self.tcp_retransmitted;
        self.tcp_retransmitted as f64 * 100.0 / all.max(1) as f64
    }
}

fn texts(ns: &NetNs) -> Result<[String; 3]> {
    ns.inside(|| {
        // A kernel without IPv6 has no `snmp6`.
        let text = |name| fs::read_to_string(format!("/proc/thread-self/net/{name}"));
        Ok([text("snmp")?, text("snmp6").unwrap_or_default(), text("netstat")?])
    })
}

/// A value of `/proc/net/snmp` or `netstat`: two lines begin with the group's name, the first with
/// the names, the second with the values. 0 if the kernel has no such counter.
fn value(text: &str, group: &str, name: &str) -> u64 {
    let mut lines = text.lines().filter(|l| l.split_once(':').is_some_and(|(g, _)| g == group));
    let (Some(names), Some(values)) = (lines.next(), lines.next()) else { return 0 };
    let at = names.split_whitespace().position(|n| n == name);
    at.and_then(|at| values.split_whitespace().nth(at)?.parse().ok()).unwrap_or(0)
}

/// A value of `/proc/net/snmp6`: name and value in one line.
fn value6(text: &str, name: &str) -> u64 {
    let of = |l: &str| {
        let mut words = l.split_whitespace();
        (words.next()? == name).then(|| words.next()?.parse().ok())?
    };
    text.lines().find_map(of).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SNMP: &str = "Ip: Forwarding DefaultTTL\nIp: 1 64\n\
        Tcp: RtoAlgorithm OutSegs RetransSegs InErrs\nTcp: 1 900 100 7\n\
        Udp: InDatagrams RcvbufErrors\nUdp: 5 3\n\
        UdpLite: InDatagrams RcvbufErrors\nUdpLite: 5 90\n";
    const NETSTAT: &str = "TcpExt: RcvPruned TCPTimeouts TCPBacklogDrop\nTcpExt: 1 4 2\n\
        IpExt: RcvPruned\nIpExt: 50\n";

    #[test]
    fn counters_are_found_by_group_and_name() {
        let texts = [SNMP.into(), "Udp6RcvbufErrors\t4\nUdp6InErrors 9\n".into(), NETSTAT.into()];
        let sender = KernelCounts::parse(&texts, true);
        assert_eq!(
            (sender.tcp_segments, sender.tcp_retransmitted, sender.tcp_timeouts),
            (900, 100, 4)
        );
        assert_eq!((sender.tcp_socket_drops, sender.udp_socket_drops), (3, 7));
        assert!((sender.tcp_again_percent() - 10.0).abs() < 1e-9);
        // A receiver sends only acknowledgments.
        let receiver = KernelCounts::parse(&texts, false);
        assert_eq!((receiver.tcp_segments, receiver.tcp_timeouts), (0, 0));
        assert_eq!(receiver.udp_socket_drops, 7);
        assert_eq!(sender.since(&receiver).tcp_segments, 900);
    }

    #[test]
    fn a_kernel_without_a_counter_counts_nothing() {
        let none = [String::new(), String::new(), "TcpExt: A\n".into()];
        assert_eq!(KernelCounts::parse(&none, true), KernelCounts::default());
    }
}
