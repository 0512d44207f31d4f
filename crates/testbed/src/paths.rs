//! Which source port takes which spine, predicted by the kernel and verified by counters.

use crate::{
    error::{NetError, Result},
    fabric::Fabric,
    spec::Node,
};
use std::net::{SocketAddr, UdpSocket};

/// Packets sent per port to find its spine.
const PACKETS: u32 = 20;

/// Result for one source port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortPath {
    /// Source port.
    pub port: u16,
    /// Spine predicted by the leaf's kernel.
    pub predicted: u8,
    /// Spine whose uplink counted the packets; `None` if no uplink counted all of them.
    pub seen: Option<u8>,
}

/// Predicts the spine of each port, then sends packets from it and reads the uplinks' counters.
///
/// # Errors
/// The hosts share a leaf, a port is in use, or the kernel refuses.
pub fn check(
    fabric: &Fabric,
    from: (u8, u8),
    to: (u8, u8),
    ports: &[u16],
    dst_port: u16,
) -> Result<Vec<PortPath>> {
    let pairs: Vec<(u16, u16)> = ports.iter().map(|p| (*p, dst_port)).collect();
    let predicted = fabric.predict(from, to, &pairs)?;
    let leaf = Node::Leaf(from.0);
    let dst = SocketAddr::new(fabric.spec().ip(to.0, to.1), dst_port);
    let src = fabric.spec().ip(from.0, from.1);
    let mut out = Vec::new();
    for (port, predicted) in ports.iter().zip(predicted) {
        let before = fabric.counters(leaf)?;
        fabric.ns(Node::Host(from.0, from.1))?.inside(|| {
            let what = |e| NetError::system(&format!("cannot send from port {port}"), e);
            let socket = UdpSocket::bind(SocketAddr::new(src, *port)).map_err(what)?;
            for _ in 0..PACKETS {
                // An ICMP "port unreachable" is reported as an error of the next send.
                if let Err(e) = socket.send_to(&[0; 64], dst)
                    && e.kind() != std::io::ErrorKind::ConnectionRefused
                {
                    return Err(what(e));
                }
            }
            Ok(())
        })?;
        // The queues on the path are empty, but softirqs may be late on a busy machine.
        std::thread::sleep(std::time::Duration::from_millis(2));
        let after = fabric.counters(leaf)?;
        let took = |s: &u8| {
            let dev = format!("up{s}");
            let sent = |c: &std::collections::BTreeMap<String, crate::fabric::DevCounters>| {
                c.get(&dev).map_or(0, |c| c.tx_packets)
            };
            sent(&after) - sent(&before) >= u64::from(PACKETS)
        };
        let seen = (0..fabric.spec().spines).find(took);
        out.push(PortPath { port: *port, predicted, seen });
    }
    Ok(out)
}

/// The table of [`check`], and whether all predictions were right.
pub fn table(rows: &[PortPath], spines: u8) -> (String, bool) {
    use std::fmt::Write as _;
    let mut text = String::new();
    for s in 0..spines {
        let ports: Vec<String> =
            rows.iter().filter(|r| r.predicted == s).map(|r| r.port.to_string()).collect();
        let _ = writeln!(text, "s{s}  {:>3} ports  {}", ports.len(), ports.join(" "));
    }
    let right = rows.iter().filter(|r| r.seen == Some(r.predicted)).count();
    let _ = write!(
        text,
        "{right} of {} ports as predicted, by the uplinks' counters ({PACKETS} packets each)",
        rows.len()
    );
    for r in rows.iter().filter(|r| r.seen != Some(r.predicted)) {
        let seen = r.seen.map_or("none of the uplinks took all".into(), |s| format!("took s{s}"));
        let _ = write!(text, "\nport {}: predicted s{}, {seen}", r.port, r.predicted);
    }
    (text, right == rows.len())
}

#[cfg(test)]
#[path = "paths_tests.rs"]
mod tests;
