//! Server addresses on the command line: `HOST`, `HOST:PORT`, `[IPV6]:PORT`.

use crate::failure::{Failure, Result};
use std::{
    fmt,
    net::{IpAddr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket},
};

/// A server as named by the user, not resolved yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostName {
    /// Host name or address, without brackets.
    pub host: String,
    /// UDP port, if one was given.
    pub port: Option<u16>,
}

/// A resolved server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Server {
    /// Its IP address.
    pub ip: IpAddr,
    /// Its UDP port.
    pub port: u16,
    /// Its slot: its UDP port minus the port base.
    pub slot: u8,
    /// Local address of the route to it.
    pub local_ip: IpAddr,
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&SocketAddr::new(self.ip, self.port), f)
    }
}

/// Parses an address.
pub fn ip(text: &str) -> Result<IpAddr, String> {
    let wrong = |_| format!("`{text}` is no IP address; write it as 10.0.0.5 or 2001:db8::7");
    text.parse().map_err(wrong)
}

impl HostName {
    /// Parses `HOST`, `HOST:PORT`, `IPV6`, `[IPV6]` or `[IPV6]:PORT`.
    ///
    /// # Errors
    /// An error text for the user.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (host, port) = if let Some(rest) = text.strip_prefix('[') {
            let (host, rest) = rest.split_once(']').ok_or("`[` without `]`")?;
            (host, if rest.is_empty() { None } else { Some(rest) })
        } else if text.split('%').next().is_some_and(|ip| ip.parse::<Ipv6Addr>().is_ok()) {
            (text, None)
        } else {
            match text.find(':') {
                Some(at) => (&text[..at], Some(&text[at..])),
                None => (text, None),
            }
        };
        let port = port.map(port_of).transpose()?;
        if host.is_empty() {
            return Err("the host's name is missing".into());
        }
        Ok(Self { host: host.to_owned(), port })
    }

    /// Resolves the host, and finds the local address of the route to it.
    ///
    /// # Errors
    /// The host does not exist, has no route, or the port is not one of the 256 from `port_base`.
    pub fn resolve(&self, port_base: u16, family: Option<IpAddr>) -> Result<Server> {
        let port = self.port.unwrap_or(port_base);
        let slot = port.checked_sub(port_base).and_then(|s| u8::try_from(s).ok());
        let slot = slot.ok_or_else(|| {
            let last = port_base.saturating_add(255);
            Failure::usage(format!(
                "port {port} cannot be a server's: servers use ports {port_base} to {last}; if \
                 the server was started with another --port-base, give the same here"
            ))
        })?;
        let remote = self.lookup(port, family)?;
        let local_ip = local_ip_to(remote)?;
        Ok(Server { ip: remote.ip().to_canonical(), port, slot, local_ip })
    }

    /// The first address, of the same family as `like` if given.
    fn lookup(&self, port: u16, like: Option<IpAddr>) -> Result<SocketAddr> {
        let host = &self.host;
        if let Some((ip, zone)) = host.split_once('%')
            && let Ok(ip) = ip.parse::<Ipv6Addr>()
        {
            return scoped(ip, zone, port);
        }
        let unknown = |e| Failure::new(format!("cannot find the host `{host}`: {e}"));
        let mut found = (host.as_str(), port).to_socket_addrs().map_err(unknown)?;
        let fits = |a: &SocketAddr| like.is_none_or(|ip| ip.is_ipv4() == a.is_ipv4());
        found.find(fits).ok_or_else(|| {
            let kind = if like.is_some_and(|ip| ip.is_ipv4()) { "IPv4" } else { "IPv6" };
            Failure::new(format!("the host `{host}` has no {kind} address, but --ip is one"))
        })
    }
}

fn port_of(text: &str) -> Result<u16, String> {
    let wrong = || format!("`{text}`: a port from 1 to 65535 must follow the colon");
    let port = text.strip_prefix(':').ok_or_else(wrong)?.parse().map_err(|_| wrong())?;
    if port == 0 { Err(wrong()) } else { Ok(port) }
}

/// A link-local address with its interface, given by name or number.
fn scoped(ip: Ipv6Addr, zone: &str, port: u16) -> Result<SocketAddr> {
    let number = zone.parse::<u32>().ok().or_else(|| {
        let socket = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).ok()?;
        rustix::net::netdevice::name_to_index(socket, zone).ok()
    });
    let scope = number
        .ok_or_else(|| Failure::new(format!("no interface `{zone}`; `ip -br link` lists them")))?;
    Ok(std::net::SocketAddrV6::new(ip, port, 0, scope).into())
}

/// Local address of the route to `remote`. Sends no packets.
fn local_ip_to(remote: SocketAddr) -> Result<IpAddr> {
    let any: IpAddr = match remote {
        SocketAddr::V4(_) => std::net::Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let local = UdpSocket::bind((any, 0)).and_then(|socket| {
        socket.connect(remote)?;
        socket.local_addr()
    });
    match local {
        Ok(local) => Ok(local.ip()),
        Err(e) => Err(Failure::new(format!("no route to {}: {e}", remote.ip()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(host: &str, port: Option<u16>) -> Result<HostName, String> {
        Ok(HostName { host: host.into(), port })
    }

    #[test]
    fn names_and_addresses_are_read() {
        assert_eq!(HostName::parse("node7"), name("node7", None));
        assert_eq!(HostName::parse("node7:18702"), name("node7", Some(18_702)));
        assert_eq!(HostName::parse("::1"), name("::1", None));
        assert_eq!(HostName::parse("fe80::1%eth0"), name("fe80::1%eth0", None));
        assert_eq!(HostName::parse("[::1]:5"), name("::1", Some(5)));
        assert_eq!(HostName::parse("[::1]"), name("::1", None));
        for text in ["", ":1", "a:", "a:0", "a:65536", "a:b", "[::1", "[::1]5", "[]:5"] {
            assert!(HostName::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn ports_become_slots() {
        let server = HostName::parse("127.0.0.1:18702").unwrap().resolve(18_700, None).unwrap();
        assert_eq!((server.slot, server.local_ip), (2, server.ip));
        let other = HostName::parse("127.0.0.1:18702").unwrap().resolve(18_703, None);
        assert!(other.unwrap_err().to_string().contains("--port-base"));
        let v6 = HostName::parse("::1").unwrap().resolve(18_700, None).unwrap();
        assert_eq!((v6.slot, v6.to_string().as_str()), (0, "[::1]:18700"));
    }
}
