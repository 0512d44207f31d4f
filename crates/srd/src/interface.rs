//! The addresses of this host's network interfaces.

use crate::DeviceError;
use std::{
    ffi::CStr,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    ptr,
};

/// An address and, for a link-local one, the number of its interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Local {
    pub ip: IpAddr,
    pub scope_id: u32,
}

/// An address of a network interface of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceAddress {
    /// Name of the interface.
    pub name: String,
    /// The address.
    pub ip: IpAddr,
    /// Whether the interface is up.
    pub up: bool,
    /// Whether it is the loopback interface.
    pub loopback: bool,
}

/// Every address of every interface of this host, in the kernel's order.
///
/// # Errors
/// The kernel refuses the list.
pub fn interface_addresses() -> io::Result<Vec<InterfaceAddress>> {
    let all = addresses()?.into_iter();
    Ok(all
        .filter_map(|(name, local, flags)| {
            let has = |flag: i32| flags & flag as u32 != 0;
            let (up, loopback) = (has(libc::IFF_UP), has(libc::IFF_LOOPBACK));
            Some(InterfaceAddress { name, ip: local?.ip, up, loopback })
        })
        .collect())
}

/// Smaller is preferred: IPv4, then global IPv6, then link-local.
fn rank(local: &Local) -> u8 {
    match local.ip {
        IpAddr::V4(_) => 0,
        IpAddr::V6(ip) if !ip.is_unicast_link_local() => 1,
        IpAddr::V6(_) => 2,
    }
}

/// The address to use of an interface.
pub(crate) fn address_of(name: &str) -> Result<Local, DeviceError> {
    let all = addresses()
        .map_err(|source| DeviceError::Os { what: "listing the network interfaces", source })?;
    let problem = |problem| DeviceError::Interface { name: name.to_owned(), problem };
    let mut known = false;
    let here = all.iter().filter(|(n, ..)| n == name).inspect(|_| known = true);
    let best = here.filter_map(|(_, local, _)| *local).min_by_key(rank);
    best.ok_or_else(|| problem(if known { "has no IP address" } else { "does not exist" }))
}

/// The scope of a link-local address of this host; 0 for any other.
pub(crate) fn scope_of(ip: IpAddr) -> u32 {
    let all = addresses().unwrap_or_default();
    all.iter().find_map(|(_, l, _)| l.filter(|l| l.ip == ip)).map_or(0, |l| l.scope_id)
}

/// Name of the interface, address and flags, for every entry of the kernel's list.
fn addresses() -> io::Result<Vec<(String, Option<Local>, u32)>> {
    let mut head: *mut libc::ifaddrs = ptr::null_mut();
    // SAFETY: a place for the list's head is passed.
    if unsafe { libc::getifaddrs(&raw mut head) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut found = Vec::new();
    let mut next = head;
    while !next.is_null() {
        // SAFETY: nodes of the list stay valid until freeifaddrs.
        let node = unsafe { &*next };
        // SAFETY: every node has a nul-terminated name.
        let name = unsafe { CStr::from_ptr(node.ifa_name) }.to_string_lossy().into_owned();
        // SAFETY: ifa_addr is null or a socket address of the family it names.
        found.push((name, unsafe { local_of(node.ifa_addr) }, node.ifa_flags));
        next = node.ifa_next;
    }
    // SAFETY: the list came from getifaddrs, and no reference into it is left.
    unsafe { libc::freeifaddrs(head) };
    Ok(found)
}

/// # Safety
/// `addr` is null or points to a socket address of the family that it names.
unsafe fn local_of(addr: *const libc::sockaddr) -> Option<Local> {
    if addr.is_null() {
        return None;
    }
    // SAFETY: not null, so there is a family to read.
    match i32::from(unsafe { (*addr).sa_family }) {
        libc::AF_INET => {
            // SAFETY: the family says which structure it is.
            let v4 = unsafe { addr.cast::<libc::sockaddr_in>().read_unaligned() };
            let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
            Some(Local { ip: ip.into(), scope_id: 0 })
        }
        libc::AF_INET6 => {
            // SAFETY: the family says which structure it is.
            let v6 = unsafe { addr.cast::<libc::sockaddr_in6>().read_unaligned() };
            let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
            Some(Local { ip: ip.into(), scope_id: v6.sin6_scope_id })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_prefers_ipv4_and_unknown_names_are_told() {
        assert_eq!(address_of("lo").unwrap().ip, IpAddr::V4(Ipv4Addr::LOCALHOST));
        let e = address_of("no-such-interface").unwrap_err().to_string();
        assert!(e.contains("does not exist") && e.contains("ip -br addr"), "{e}");
        assert_eq!(scope_of(IpAddr::V4(Ipv4Addr::LOCALHOST)), 0);
    }
}
