//! Several networks under one device: path *k* leaves by rail *k* modulo their number.
//!
//! Above the datapath a device and its peers have one address each, that on rail 0. Packets of
//! other paths go to the address that a peer has on another rail, which follows from its first one:
//! all rails give a host the same number within their networks (10.0.7.1/16 and 10.1.7.1/16). So no
//! peer can name an address that packets shall go to.

use super::config::{OpenError, UdpConfig};
use core::net::{IpAddr, SocketAddr};

/// Most rails of a device, the first included.
pub const RAILS_MAX: usize = 4;
/// The receive port on rail *r* is *r* times this above that on rail 0. No device without rails
/// listens there: it would take the packets for those of another peer.
pub const RAIL_PORTS: u16 = 256;

/// An address as a number, and how many bits it has.
fn number(ip: IpAddr) -> (u128, u8) {
    match ip {
        IpAddr::V4(ip) => (u32::from(ip).into(), 32),
        IpAddr::V6(ip) => (ip.into(), 128),
    }
}

/// The address on the rail of the local address `to` of the host that has `ip` on the rail of
/// `from`; `None` if `ip` is not in that network.
fn moved(ip: IpAddr, from: IpAddr, to: IpAddr, prefix_bits: u8) -> Option<IpAddr> {
    let ((n, bits), (from, bits_from), (to, bits_to)) = (number(ip), number(from), number(to));
    let host_bits = bits.checked_sub(prefix_bits)?;
    let network = u128::MAX.checked_shl(host_bits.into()).unwrap_or(0);
    if bits != bits_from || bits != bits_to || (n ^ from) & network != 0 {
        return None;
    }
    let n = (to & network) | (n & !network);
    Some(match u32::try_from(n) {
        Ok(n) if bits == 32 => IpAddr::V4(n.into()),
        _ => IpAddr::V6(n.into()),
    })
}

/// Whether two addresses are in one network whose addresses begin with so many equal bits.
pub fn same_network(a: IpAddr, b: IpAddr, prefix_bits: u8) -> bool {
    moved(a, b, b, prefix_bits).is_some()
}

/// The rails of a datapath.
#[derive(Clone, Debug)]
pub struct Rails {
    /// The local addresses, that of rail 0 first.
    own: Vec<IpAddr>,
    prefix_bits: u8,
    port_base: u16,
    paths: usize,
}

impl Rails {
    /// Those of a configuration.
    pub fn new(config: &UdpConfig) -> Self {
        Self {
            own: std::iter::once(config.ip).chain(config.rails.iter().copied()).collect(),
            prefix_bits: config.rail_prefix_bits,
            port_base: config.port_base,
            paths: config.paths,
        }
    }

    /// How many there are, at least one.
    pub fn count(&self) -> usize {
        self.own.len()
    }

    /// The rail that packets of `path` leave by.
    fn of_path(&self, path: u8) -> usize {
        usize::from(path) % self.count()
    }

    /// The path whose socket sends packets of `path` to `dst`, and the address that they go to. To
    /// hosts outside the network of rail 0, which have no other address, all packets leave there.
    pub fn route(&self, path: u8, dst: SocketAddr) -> (u8, SocketAddr) {
        let rail = self.of_path(path);
        if rail == 0 || usize::from(path) >= self.paths {
            return (path, dst);
        }
        let ip = moved(dst.ip(), self.own[0], self.own[rail], self.prefix_bits);
        match ip.zip(dst.port().checked_add(RAIL_PORTS * rail as u16)) {
            Some((ip, port)) => (path, SocketAddr::new(ip, port)),
            None => (path - rail as u8, dst),
        }
    }

    /// The sender of a packet that arrived on `rail`, by its address on rail 0.
    pub fn sender(&self, rail: usize, src: SocketAddr) -> SocketAddr {
        let home = moved(src.ip(), self.own[rail], self.own[0], self.prefix_bits);
        home.map_or(src, |ip| SocketAddr::new(ip, src.port()))
    }

    /// The address that packets went to, as it was before [`Rails::route`].
    pub fn receiver(&self, dst: SocketAddr) -> SocketAddr {
        let rail = dst.port().saturating_sub(self.port_base) / RAIL_PORTS;
        let home = self.own.get(usize::from(rail)).filter(|_| rail > 0);
        let home = home.and_then(|own| moved(dst.ip(), *own, self.own[0], self.prefix_bits));
        home.map_or(dst, |ip| SocketAddr::new(ip, dst.port() - RAIL_PORTS * rail))
    }
}

impl UdpConfig {
    /// The configuration of the sockets on one rail.
    pub(super) fn on_rail(&self, rail: usize) -> Self {
        let Some(&ip) = rail.checked_sub(1).and_then(|i| self.rails.get(i)) else {
            return self.clone();
        };
        let port_base = self.port_base + RAIL_PORTS * rail as u16;
        Self { ip, scope_id: 0, port_base, ..self.clone() }
    }

    /// Checks the rails.
    pub(super) fn rails_validate(&self) -> Result<(), OpenError> {
        let bad = |what: String| Err(OpenError::Rails(what));
        let (count, bits) = (self.rails.len() + 1, self.rail_prefix_bits);
        if count > RAILS_MAX || count > self.paths {
            return bad(format!("{count} rails: at most {RAILS_MAX}, and no more than paths"));
        }
        let last = u32::from(self.port_base) + 255 + u32::from(RAIL_PORTS) * (count as u32 - 1);
        if last > u32::from(u16::MAX) {
            return bad(format!("rails take {RAIL_PORTS} more UDP ports each: a lower port_base"));
        }
        for (i, &ip) in self.rails.iter().enumerate() {
            let others = std::iter::once(self.ip).chain(self.rails[..i].iter().copied());
            if moved(self.ip, self.ip, ip, bits) != Some(ip) || bits == 0 {
                return bad(format!(
                    "the rail {ip}/{bits} does not go with the device's address {}: all rails must \
                     give a host the same number behind the first {bits} bits of its addresses",
                    self.ip
                ));
            }
            let same = |other| same_network(ip, other, bits);
            if others.into_iter().any(same) {
                return bad(format!("two rails in the network of {ip}/{bits}: each needs its own"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn config(own: &str, rails: &[&str], prefix_bits: u8) -> UdpConfig {
        let mut config = UdpConfig::new(ip(own));
        config.rails = rails.iter().map(|r| ip(r)).collect();
        config.rail_prefix_bits = prefix_bits;
        config
    }

    #[test]
    fn addresses_go_to_another_rail_and_back() {
        for (own, second, bits, peer, there) in [
            ("10.0.7.1", "10.1.7.1", 16, "10.0.9.200", "10.1.9.200"),
            ("10.1.0.10", "10.61.0.10", 16, "10.1.255.255", "10.61.255.255"),
            ("192.168.1.4", "172.16.3.4", 24, "192.168.1.77", "172.16.3.77"),
            ("fd00:1::4:1", "fd00:2::4:1", 32, "fd00:1::9:ffff", "fd00:2::9:ffff"),
        ] {
            let rails = Rails::new(&config(own, &[second], bits));
            let (at, to) = (SocketAddr::new(ip(peer), 18_705), SocketAddr::new(ip(there), 18_961));
            assert_eq!(rails.route(2, at), (2, at));
            assert_eq!(rails.route(3, at), (3, to));
            assert_eq!((rails.receiver(to), rails.receiver(at)), (at, at));
            let from = SocketAddr::new(ip(there), 40_000);
            assert_eq!(rails.sender(1, from), SocketAddr::new(ip(peer), 40_000));
        }
    }

    #[test]
    fn hosts_without_another_address_are_reached_on_the_first_rail() {
        let rails = Rails::new(&config("10.0.7.1", &["10.1.7.1", "10.2.7.1"], 16));
        for far in ["10.5.0.1:18700", "[fd00::1]:18700"] {
            let far: SocketAddr = far.parse().unwrap();
            let paths: Vec<u8> = (0..7).map(|path| rails.route(path, far).0).collect();
            assert_eq!(paths, [0, 0, 0, 3, 3, 3, 6]);
            assert_eq!((rails.route(5, far).1, rails.sender(2, far)), (far, far));
        }
        // A path that does not exist stays one.
        assert_eq!(rails.route(64, "10.0.0.1:1".parse().unwrap()).0, 64);
    }

    #[test]
    fn a_port_without_room_above_it_is_reached_on_the_first_rail() {
        let rails = Rails::new(&config("10.0.7.1", &["10.1.7.1"], 16));
        let high = "10.0.0.9:65400".parse().unwrap();
        assert_eq!(rails.route(3, high), (2, high));
        let last = "10.0.0.9:65279".parse().unwrap();
        assert_eq!(rails.route(3, last), (3, "10.1.0.9:65535".parse().unwrap()));
    }

    #[test]
    fn rails_that_do_not_go_together_are_refused() {
        let refused = |own: &str, rails: &[&str], bits: u8| {
            config(own, rails, bits).validate().unwrap_err().to_string()
        };
        assert!(config("10.0.7.1", &["10.1.7.1", "10.2.7.1", "10.3.7.1"], 16).validate().is_ok());
        for (own, rails, bits, words) in [
            ("10.0.7.1", &["10.1.7.2"][..], 16, "the same number"),
            ("10.0.7.1", &["10.1.7.1"], 0, "the same number"),
            ("10.0.7.1", &["10.1.7.1"], 33, "the same number"),
            ("10.0.7.1", &["fd00::1"], 16, "the same number"),
            ("10.0.7.1", &["10.0.7.1"], 16, "each needs its own"),
            ("10.0.7.1", &["10.1.7.1", "10.1.7.1"], 16, "each needs its own"),
            ("10.0.7.1", &["10.1.7.1"; 4], 16, "at most 4"),
        ] {
            let error = refused(own, rails, bits);
            assert!(error.contains(words), "{rails:?}: {error}");
        }
        let mut few = config("10.0.7.1", &["10.1.7.1"], 16);
        few.paths = 1;
        assert!(few.validate().is_err());
        let mut high = config("10.0.7.1", &["10.1.7.1"], 16);
        high.port_base = 65_025;
        assert!(high.validate().unwrap_err().to_string().contains("port_base"));
    }
}
