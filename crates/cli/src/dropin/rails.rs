//! The networks of `SRD_RAILS`, as `srd doctor` checks them: each has UDP ports of its own, which
//! firewalls that know only the first 256 close.

use crate::{failure::Result, paths::Survey};
use serde::{Deserialize, Serialize};
use srd::{
    DeviceConfig, Rails,
    datapath::udp::{RAIL_PORTS, same_network},
};
use std::net::IpAddr;

/// The networks that a device uses: its own, and those of `SRD_RAILS`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Networks {
    /// The device's address in each of them, its own first.
    ips: Vec<IpAddr>,
    /// How many bits of an address name the network; 0 for a device with one network.
    prefix_bits: u8,
    /// First UDP port of devices in the first network.
    port_base: u16,
}

/// A network in which nothing arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Silent {
    /// Number of the network, 0 for that of the device's own address.
    pub rail: usize,
    /// Paths that leave by it.
    pub paths: usize,
}

impl Networks {
    /// Those of a device of this host at `ip`, by the settings.
    ///
    /// # Errors
    /// The list is malformed, or names an interface that does not exist.
    pub fn of_settings(ip: IpAddr, port_base: u16) -> Result<Self> {
        let rails = match DeviceConfig::ip(ip).rails {
            Some(list) => Rails::of(&list, ip)?,
            None => Rails::default(),
        };
        let prefix_bits = if rails.ips.is_empty() { 0 } else { rails.prefix_bits };
        let ips = std::iter::once(ip).chain(rails.ips).collect();
        Ok(Self { ips, prefix_bits, port_base })
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.ips.len()
    }

    /// The device's address in one of them.
    pub fn ip(&self, rail: usize) -> Option<IpAddr> {
        self.ips.get(rail).copied()
    }

    /// First and last UDP port at which the devices of a host receive in one of them.
    pub fn ports(&self, rail: usize) -> (u16, u16) {
        let offset = usize::from(RAIL_PORTS).saturating_mul(rail);
        let first = self.port_base.saturating_add(u16::try_from(offset).unwrap_or(u16::MAX));
        (first, first.saturating_add(RAIL_PORTS - 1))
    }

    /// First and last UDP port of all of them, without gaps.
    pub fn ports_all(&self) -> (u16, u16) {
        (self.port_base, self.ports(self.count().saturating_sub(1)).1)
    }

    /// What else a device receives at, for people; `None` with one network.
    pub fn further(&self) -> Option<String> {
        let of = |rail: usize| {
            let (first, last) = self.ports(rail);
            format!("{} at UDP ports {first} to {last}", self.ips[rail])
        };
        let all: Vec<String> = (1..self.count()).map(of).collect();
        (!all.is_empty()).then(|| all.join(", "))
    }

    /// Whether hosts with these and `others` use the same networks in the same order.
    pub fn alike(&self, others: &Self) -> bool {
        let same = |(own, other): (&IpAddr, &IpAddr)| same_network(*own, *other, self.prefix_bits);
        self.count() == others.count()
            && self.prefix_bits == others.prefix_bits
            && (self.count() == 1 || self.ips.iter().zip(&others.ips).all(same))
    }

    /// The networks of which no path to the host `to` answers, if others do. Paths leave by the
    /// networks in turn, but for a host outside of the first one, which has no other address.
    pub fn silent(&self, to: IpAddr, survey: &Survey) -> Vec<Silent> {
        let n = self.count();
        if n < 2 || survey.answering == 0 || !same_network(to, self.ips[0], self.prefix_bits) {
            return Vec::new();
        }
        let of = |rail: usize| {
            let paths = (rail..survey.total).step_by(n).count();
            let silent = survey.silent.iter().filter(|&&path| usize::from(path) % n == rail);
            (paths > 0 && silent.count() == paths).then_some(Silent { rail, paths })
        };
        (0..n).filter_map(of).collect()
    }

    /// The networks as text, to be compared by people: the setting that would give them.
    pub fn setting(&self) -> String {
        match self.count() {
            1 => "no SRD_RAILS".to_owned(),
            _ => {
                let bits = self.prefix_bits;
                let all: Vec<String> = self.ips.iter().map(|ip| format!("{ip}/{bits}")).collect();
                format!("SRD_RAILS={}", all.join(","))
            }
        }
    }
}

/// The number of a network for people.
pub fn ordinal(rail: usize) -> &'static str {
    ["first", "second", "third", "fourth"].get(rail).copied().unwrap_or("last")
}

/// A command that opens ports of firewalld.
pub fn firewall_command((first, last): (u16, u16)) -> String {
    format!("firewall-cmd --permanent --add-port={first}-{last}/udp && firewall-cmd --reload")
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// Networks of 16 bits of devices at these addresses.
    pub fn networks(ips: &[&str]) -> Networks {
        Networks {
            ips: ips.iter().map(|ip| ip.parse().unwrap()).collect(),
            prefix_bits: if ips.len() > 1 { 16 } else { 0 },
            port_base: 18_700,
        }
    }

    /// A survey in which some of the paths do not answer.
    pub fn survey(total: usize, silent: impl Fn(usize) -> bool) -> Survey {
        let silent: Vec<u8> = (0..total).filter(|&p| silent(p)).map(|p| p as u8).collect();
        Survey {
            server: "s".into(),
            answering: total - silent.len(),
            total,
            silent,
            rtt_us_min: 80.0,
            rtt_us_max: 90.0,
            narrow: None,
        }
    }

    #[test]
    fn each_network_has_ports_of_its_own_without_gaps() {
        let two = networks(&["10.0.0.1", "10.1.0.1"]);
        assert_eq!((two.ports(0), two.ports(1)), ((18_700, 18_955), (18_956, 19_211)));
        assert_eq!(two.ports_all(), (18_700, 19_211));
        assert_eq!(two.further().unwrap(), "10.1.0.1 at UDP ports 18956 to 19211");
        let one = networks(&["10.0.0.1"]);
        assert_eq!((one.ports_all(), one.further()), ((18_700, 18_955), None));
        let high = Networks { port_base: 65_400, ..two };
        assert_eq!(high.ports(1), (65_535, 65_535));
    }

    #[test]
    fn a_network_is_silent_if_none_of_its_paths_answers() {
        let to = "10.0.0.9".parse().unwrap();
        let two = networks(&["10.0.0.1", "10.1.0.1"]);
        let of = |networks: &Networks, survey| networks.silent(to, &survey);
        assert_eq!(of(&two, survey(64, |p| p % 2 == 1)), [Silent { rail: 1, paths: 32 }]);
        assert_eq!(of(&two, survey(64, |p| p % 2 == 0)), [Silent { rail: 0, paths: 32 }]);
        // One of its paths answers: that is no closed port.
        assert_eq!(of(&two, survey(64, |p| p % 2 == 1 && p > 1)), []);
        assert_eq!(of(&two, survey(64, |_| true)), []);
        let three = networks(&["10.0.0.1", "10.1.0.1", "10.2.0.1"]);
        let said = of(&three, survey(64, |p| p % 3 != 0));
        assert_eq!(said, [1, 2].map(|rail| Silent { rail, paths: 21 }));
        // To hosts elsewhere, and with one network, paths do not tell networks apart.
        let far = "10.7.0.9".parse().unwrap();
        assert_eq!(two.silent(far, &survey(64, |p| p % 2 == 1)), []);
        assert_eq!(of(&networks(&["10.0.0.1"]), survey(64, |p| p > 0)), []);
    }

    #[test]
    fn hosts_are_alike_if_their_networks_are() {
        let a = networks(&["10.0.0.1", "10.1.0.1"]);
        assert!(a.alike(&networks(&["10.0.0.2", "10.1.0.2"])));
        for other in [&["10.0.0.2"][..], &["10.0.0.2", "10.2.0.2"], &["10.1.0.2", "10.0.0.2"]] {
            assert!(!a.alike(&networks(other)), "{other:?}");
        }
        // Without rails it does not matter where hosts are.
        assert!(networks(&["10.0.0.1"]).alike(&networks(&["192.168.0.1"])));
    }
}
