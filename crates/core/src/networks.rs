//! Networks that addresses of peers belong to. The owner of one address often owns its whole
//! network, so resources that are shared among peers are shared among networks as well.

use crate::hash::Keyed;
use crate::ids::Network;
use core::net::IpAddr;
use hashbrown::HashMap;

/// A network that one party is likely to own: an IPv4 /24 or an IPv6 /64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Prefix {
    V4([u8; 3]),
    V6([u16; 4]),
}

impl Prefix {
    /// The network of an address.
    pub fn of(ip: IpAddr) -> Self {
        match ip.to_canonical() {
            IpAddr::V4(a) => {
                let [x, y, z, _] = a.octets();
                Self::V4([x, y, z])
            }
            IpAddr::V6(a) => {
                let [w, x, y, z, ..] = a.segments();
                Self::V6([w, x, y, z])
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Members {
    prefix: Prefix,
    addresses: u32,
    /// Reads being served to these addresses.
    jobs: u32,
}

/// The networks of all addresses with which there is a context.
#[derive(Debug)]
pub(crate) struct Networks {
    by_prefix: HashMap<Prefix, Network, Keyed>,
    slots: Vec<Members>,
    free: Vec<Network>,
}

impl Networks {
    pub fn new(keyed: Keyed) -> Self {
        Self { by_prefix: HashMap::with_hasher(keyed), slots: Vec::new(), free: Vec::new() }
    }

    /// Counts one more address in the network of `ip`, and returns the network.
    pub fn join(&mut self, ip: IpAddr) -> Network {
        let prefix = Prefix::of(ip);
        if let Some(&n) = self.by_prefix.get(&prefix) {
            debug_assert_eq!(self.slots[n.index()].prefix, prefix, "found by its prefix");
            debug_assert!(self.slots[n.index()].addresses > 0, "found while it has an address");
            self.slots[n.index()].addresses += 1;
            return n;
        }
        let members = Members { prefix, addresses: 1, jobs: 0 };
        let n = self.free.pop().unwrap_or_else(|| {
            self.slots.push(members);
            Network(self.slots.len() as u32 - 1)
        });
        self.slots[n.index()] = members;
        let other = self.by_prefix.insert(prefix, n);
        debug_assert!(other.is_none(), "one number for each network");
        n
    }

    /// Counts one address less in the network.
    pub fn leave(&mut self, n: Network) {
        let members = &mut self.slots[n.index()];
        debug_assert!(members.addresses > 0, "an address leaves once");
        members.addresses -= 1;
        if members.addresses == 0 {
            debug_assert!(members.jobs == 0 || cfg!(planted_bugs), "nobody is left to read");
            let listed = self.by_prefix.remove(&members.prefix);
            debug_assert_eq!(listed, Some(n), "found by its prefix until then");
            self.free.push(n);
        }
    }

    /// Reads being served to the addresses of the network.
    pub fn jobs(&self, n: Network) -> u32 {
        debug_assert!(self.slots[n.index()].addresses > 0, "somebody there may read");
        self.slots[n.index()].jobs
    }
    /// Counts one more such read, or one less.
    pub fn jobs_count(&mut self, n: Network, begins: bool) {
        step(&mut self.slots[n.index()].jobs, begins);
    }
}

/// Counts one more, or one less.
pub(crate) fn step(n: &mut u32, begins: bool) {
    debug_assert!(begins || *n > 0, "counted once");
    *n = if begins { *n + 1 } else { n.saturating_sub(1) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    fn ip(s: &str) -> IpAddr {
        s.parse().unwrap()
    }

    #[test]
    fn which_addresses_are_of_one_network() {
        let same = |a, b| Prefix::of(ip(a)) == Prefix::of(ip(b));
        assert!(same("10.1.2.3", "10.1.2.250") && !same("10.1.2.3", "10.1.3.3"));
        assert!(same("fd00::1", "fd00::2:1:1:1") && !same("fd00::1", "fd00:0:0:1::1"));
        assert!(same("10.1.2.3", "::ffff:10.1.2.9"));
        assert!(!same("0.0.0.1", "::1"));
    }

    #[test]
    fn a_network_is_known_while_it_has_addresses() {
        let mut all = Networks::new(Keyed::draw(&mut Rng::from_seed(1)));
        let a = all.join(ip("10.1.2.3"));
        assert_eq!(all.join(ip("10.1.2.4")), a);
        let b = all.join(ip("fd00::1"));
        all.jobs_count(a, true);
        all.jobs_count(a, true);
        all.jobs_count(a, false);
        assert_eq!((all.jobs(a), all.jobs(b)), (1, 0));
        all.jobs_count(a, false);
        all.leave(a);
        assert_eq!(all.join(ip("10.1.2.9")), a, "one address was left");
        all.leave(a);
        all.leave(a);
        assert_eq!((all.join(ip("10.9.9.9")), all.by_prefix.len()), (a, 2), "its place is free");
    }
}
