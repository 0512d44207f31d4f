//! Which source port takes which spine, predicted by the kernel and verified by counters.

use crate::{
    error::{NetError, Result},
    fabric::Fabric,
    spec::Node,
};
use serde::Deserialize;
use std::{
    io::ErrorKind,
    net::{IpAddr, SocketAddr, UdpSocket},
};

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
            for i in 0..PACKETS {
                // Half of them from a connected socket, as those of SRD are after a while.
                if i == PACKETS / 2 {
                    socket.connect(dst).map_err(what)?;
                }
                let connected = i >= PACKETS / 2;
                let send = || {
                    if connected { socket.send(&[0; 64]) } else { socket.send_to(&[0; 64], dst) }
                };
                // An ICMP "port unreachable" is reported as an error of the next call, which then
                // sends nothing.
                let refused = |e: &std::io::Error| e.kind() == ErrorKind::ConnectionRefused;
                let mut sent = send();
                while sent.as_ref().is_err_and(refused) {
                    sent = send();
                }
                sent.map_err(what)?;
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

/// The paths of a running device to a host, and the spine of each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DevicePaths {
    /// Process of the device.
    pub pid: u32,
    /// Each path that is shown, with its state and its spine.
    pub paths: Vec<(u8, String, u8)>,
}

impl DevicePaths {
    /// The paths that cross `spine`.
    pub fn across(&self, spine: u8) -> impl Iterator<Item = u8> {
        self.paths.iter().filter(move |(_, _, s)| *s == spine).map(|(path, ..)| *path)
    }
}

/// What is read of the output of `srd stat --json`.
#[derive(Deserialize)]
struct Shown {
    devices: Vec<ShownDevice>,
}

#[derive(Deserialize)]
struct ShownDevice {
    pid: u32,
    peers: Vec<ShownPeer>,
}

#[derive(Deserialize)]
struct ShownPeer {
    peer: IpAddr,
    paths: Vec<ShownPath>,
}

#[derive(Deserialize)]
struct ShownPath {
    path: u8,
    udp_port: u16,
    state: String,
}

/// The paths of the devices that run on `from` to the UDP port `dst_port` of `to`: their source
/// ports as `srd stat` shows them, and the spine that the leaf's kernel routes each to.
///
/// # Errors
/// The hosts share a leaf, or no device on `from` has spoken with `to`.
pub fn of_devices(
    fabric: &Fabric,
    from: (u8, u8),
    to: (u8, u8),
    dst_port: u16,
) -> Result<Vec<DevicePaths>> {
    let dst = fabric.spec().ip(to.0, to.1);
    let program = std::env::current_exe()?;
    let host = Node::Host(from.0, from.1);
    let said = fabric.ns(host)?.run(&program.display().to_string(), &["stat", "--json"], "")?;
    let shown: Shown = serde_json::from_str(&said)?;
    let mut out = Vec::new();
    for device in shown.devices {
        let peer = device.peers.into_iter().find(|p| p.peer == dst);
        let Some(paths) = peer.map(|p| p.paths).filter(|paths| !paths.is_empty()) else { continue };
        let ports: Vec<(u16, u16)> = paths.iter().map(|p| (p.udp_port, dst_port)).collect();
        let spines = fabric.predict(from, to, &ports)?;
        let paths = paths.into_iter().zip(spines).map(|(p, spine)| (p.path, p.state, spine));
        out.push(DevicePaths { pid: device.pid, paths: paths.collect() });
    }
    if out.is_empty() {
        return Err(NetError::new(format!("no device that runs on {host} has spoken with {dst}")));
    }
    Ok(out)
}

/// The table of [`of_devices`].
pub fn devices_table(found: &[DevicePaths], spines: u8) -> String {
    let mut lines = Vec::new();
    for device in found {
        lines.push(format!("process {}", device.pid));
        for s in 0..spines {
            let count = device.paths.iter().filter(|(_, _, spine)| *spine == s).count();
            // As `srd paths deny` takes them.
            let across: Vec<_> = device.across(s).map(|path| path.to_string()).collect();
            lines.push(format!("s{s}  {count:>3} paths  {}", across.join(",")));
        }
    }
    lines.join("\n")
}

#[cfg(test)]
#[path = "paths_tests.rs"]
mod tests;
