//! Interface, MTU and speed of the link with a local address.

use crate::sys;
use core::net::IpAddr;
use std::{fs, io, path::Path};

/// Bytes of the IPv4 and UDP headers.
pub const HEADERS_V4_BYTES: usize = 28;
/// Bytes of the IPv6 and UDP headers.
pub const HEADERS_V6_BYTES: usize = 48;
/// Most UDP payload over IPv4: its length field counts the headers, too.
const PAYLOAD_V4_BYTES_MAX: usize = 65_535 - HEADERS_V4_BYTES;

/// Most bytes of UDP payload in one packet on a link of `mtu` bytes, to or from `ip`.
pub fn udp_payload_max(mtu: u32, ip: IpAddr) -> usize {
    let headers = if ip.is_ipv4() { HEADERS_V4_BYTES } else { HEADERS_V6_BYTES };
    (mtu as usize).saturating_sub(headers).min(PAYLOAD_V4_BYTES_MAX)
}

/// MTU in bytes, IP header included, of the interface with the address `local`.
///
/// This is never the kernel's MTU of a route (`IP_MTU`), because that may come from an ICMP
/// message, and those can be forged. Path sockets ignore it, too.
///
/// # Errors
/// `local` is not an address of this host.
pub fn mtu_of_interface(local: IpAddr) -> io::Result<u32> {
    let mtu = sys::interface_mtu(&interface_of(local)?)?;
    // IPv4's length field has 16 bits, also on a loopback link of 64 KiB.
    Ok(if local.is_ipv4() { mtu.min(65_535) } else { mtu })
}

/// Name of the interface with the address `ip`.
///
/// # Errors
/// No interface has it; the message lists the host's addresses.
pub fn interface_of(ip: IpAddr) -> io::Result<String> {
    let all = sys::interface_addresses()?;
    // All of 127/8 is local although only one of its addresses is listed.
    let found = all.iter().find(|a| a.ip == ip);
    let found = found.or_else(|| all.iter().find(|a| ip.is_loopback() && a.loopback));
    found.map(|a| a.name.clone()).ok_or_else(|| {
        let list = all.iter().map(|a| a.ip.to_string()).collect::<Vec<_>>().join(", ");
        let what = format!("no interface has the address {ip}; this host has: {list}");
        io::Error::new(io::ErrorKind::AddrNotAvailable, what)
    })
}

/// Speed of the link with the address `ip`, in bits per second, if its driver reports it. Loopback
/// interfaces report none, and some virtual ones report a fictitious value.
pub fn link_bits_per_sec(ip: IpAddr) -> Option<u64> {
    speed_read(&Path::new("/sys/class/net").join(interface_of(ip).ok()?))
}

/// The speed from an interface's sysfs directory, in bits per second. Interfaces of a device report
/// its speed, and interfaces stacked on others inherit theirs. Of the rest, veth always reports 10
/// Gb/s and tun 10 Mb/s.
fn speed_read(interface: &Path) -> Option<u64> {
    const STACKED: [&str; 3] = ["DEVTYPE=vlan", "DEVTYPE=bond", "DEVTYPE=macvlan"];
    let stacked = || {
        let text = fs::read_to_string(interface.join("uevent")).unwrap_or_default();
        text.lines().any(|line| STACKED.contains(&line))
    };
    if !interface.join("device").exists() && !stacked() {
        return None;
    }
    let mbits = fs::read_to_string(interface.join("speed")).ok()?.trim().parse::<i64>().ok()?;
    u64::try_from(mbits).ok().filter(|&mbits| mbits > 0).map(|mbits| mbits * 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;

    const LO4: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    #[test]
    fn payload_is_what_the_headers_leave() {
        let v6 = "::1".parse().unwrap();
        assert_eq!(udp_payload_max(1500, LO4), 1472);
        assert_eq!(udp_payload_max(9000, v6), 8952);
        assert_eq!(udp_payload_max(65_536, LO4), 65_507);
        assert_eq!(udp_payload_max(65_536, v6), 65_488);
        assert_eq!(udp_payload_max(20, LO4), 0);
    }

    #[test]
    fn only_those_who_know_tell_the_speed() {
        let dir = std::env::temp_dir().join(format!("srd-speed-{}", std::process::id()));
        let interface = |name: &str, files: &[(&str, &str)]| {
            let dir = dir.join(name);
            fs::create_dir_all(&dir).unwrap();
            files.iter().for_each(|(name, text)| fs::write(dir.join(name), text).unwrap());
            speed_read(&dir)
        };
        assert_eq!(interface("nic", &[("device", ""), ("speed", "25000\n")]), Some(25_000_000_000));
        assert_eq!(interface("down", &[("device", ""), ("speed", "-1\n")]), None);
        assert_eq!(interface("veth", &[("uevent", "INTERFACE=v\n"), ("speed", "10000\n")]), None);
        let bond = [("uevent", "DEVTYPE=bond\nINTERFACE=b\n"), ("speed", "20000\n")];
        assert_eq!(interface("bond", &bond), Some(20_000_000_000));
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn all_addresses_of_loopback_have_its_interface() {
        let mtu = mtu_of_interface(LO4).unwrap();
        assert!(mtu >= 1280);
        assert_eq!(mtu_of_interface("127.9.9.9".parse().unwrap()).unwrap(), mtu);
        assert_eq!(interface_of(LO4).unwrap(), "lo");
    }

    #[test]
    fn a_foreign_address_is_refused_with_the_list_of_ours() {
        // 192.0.2.0/24 is reserved for documentation: no host has it.
        let error = mtu_of_interface("192.0.2.7".parse().unwrap()).unwrap_err().to_string();
        assert!(error.contains("192.0.2.7") && error.contains("127.0.0.1"), "{error}");
    }
}
