//! Rails: further networks that a device sends and receives on, beside that of its address.

use crate::{Bind, DeviceError, interface, interface_addresses};
use srd_datapath::udp::same_network;
use std::net::IpAddr;

/// Local addresses on further rails, and the length of the rails' networks in bits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rails {
    /// The addresses, without that of the device.
    pub ips: Vec<IpAddr>,
    /// How many bits of an address name the network.
    pub prefix_bits: u8,
}

impl Rails {
    /// Those of a device at `own`. The list has interfaces or addresses with the bits of their
    /// network, as `e1/16, 10.2.0.7/16`. The network of `own` may be in it, and is left out. A
    /// device on the loopback interface has the rails that are there.
    ///
    /// # Errors
    /// The list is malformed, or names an interface that does not exist or has no address.
    pub fn of(list: &str, own: IpAddr) -> Result<Self, DeviceError> {
        let mut rails = Self::default();
        for (i, text) in list.split(',').map(str::trim).enumerate() {
            let (at, bits) = text.split_once('/').unwrap_or((text, ""));
            let Ok(bits) = bits.trim().parse::<u8>() else {
                return Err(DeviceError::Rails(format!(
                    "`{text}`: write an interface or an address and the bits of its network, as \
                     e1/16"
                )));
            };
            if i > 0 && bits != rails.prefix_bits {
                return Err(DeviceError::Rails(format!(
                    "`{list}`: the networks of all rails must have the same number of bits"
                )));
            }
            rails.prefix_bits = bits;
            let (ip, with_own) = address(at.trim(), own)?;
            if bits >= if ip.is_ipv4() { 32 } else { 128 } {
                return Err(DeviceError::Rails(format!(
                    "`{text}`: the bits of the network leave none for the number of a host in it"
                )));
            }
            let is_own = same_network(ip, own, bits);
            if is_own && !with_own && !own.is_loopback() {
                return Err(DeviceError::Rails(format!(
                    "`{text}`: {ip} is no further network beside {own}, because the first {bits} \
                     bits of both are the same: write the bits by which the networks differ"
                )));
            }
            if !is_own && (ip.is_loopback() || !own.is_loopback()) {
                rails.ips.push(ip);
            }
        }
        Ok(rails)
    }
}

/// The address that an entry names, and whether it or the interface that it names has `own`.
fn address(text: &str, own: IpAddr) -> Result<(IpAddr, bool), DeviceError> {
    let bind = text.parse().map_or_else(|_| Bind::Interface(text.to_owned()), Bind::Ip);
    match bind {
        Bind::Ip(ip) => Ok((ip, ip == own)),
        Bind::Interface(name) => {
            let ip = interface::address_of(&name)?.ip;
            let all = interface_addresses().unwrap_or_default();
            Ok((ip, all.iter().any(|one| one.name == name && one.ip == own)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(list: &str, own: &str) -> Result<Rails, String> {
        Rails::of(list, own.parse().unwrap()).map_err(|e| e.to_string())
    }

    #[test]
    fn a_list_has_the_rails_beside_the_devices_own() {
        let rails = |ips: &[&str]| {
            let ips = ips.iter().map(|ip| ip.parse().unwrap()).collect();
            Ok(Rails { ips, prefix_bits: 16 })
        };
        assert_eq!(of("10.1.0.7/16", "10.0.0.7"), rails(&["10.1.0.7"]));
        let all = "10.0.0.7/16, 10.1.0.7/16,10.2.0.7/16";
        assert_eq!(of(all, "10.0.0.7"), rails(&["10.1.0.7", "10.2.0.7"]));
        assert_eq!(of(all, "10.1.0.7"), rails(&["10.0.0.7", "10.2.0.7"]));
        // A device on the loopback interface stays there.
        assert_eq!(of(all, "127.0.0.1"), rails(&[]));
        assert_eq!(of("127.1.0.1/16", "127.0.0.1"), rails(&["127.1.0.1"]));
        assert_eq!(of("lo/16", "127.3.0.1"), rails(&["127.0.0.1"]));
    }

    #[test]
    fn what_is_no_list_is_refused_with_an_example() {
        for list in ["", "10.1.0.7", "e1", "10.1.0.7/x", "10.1.0.7/16,", "10.1.0.7/300"] {
            let error = of(list, "10.0.0.7").unwrap_err();
            assert!(error.contains("as e1/16"), "{list}: {error}");
        }
        assert!(of("10.1.0.7/16,10.2.0.7/24", "10.0.0.7").unwrap_err().contains("same number"));
        assert!(of("no-such-interface/16", "10.0.0.7").unwrap_err().contains("does not exist"));
        // Too few bits make two networks one, and all of them leave no hosts.
        for list in ["10.1.0.7/8", "10.0.0.7/8, 10.1.0.7/8", "10.1.0.7/0"] {
            let error = of(list, "10.0.0.7").unwrap_err();
            assert!(error.contains("bits by which the networks differ"), "{list}: {error}");
        }
        for list in ["10.1.0.7/32", "fd00::7/128", "10.1.0.7/33"] {
            let error = of(list, "10.0.0.7").unwrap_err();
            assert!(error.contains("leave none for the number"), "{list}: {error}");
        }
    }
}
