//! Shares of the receive budget, for the senders that have more to send.
//!
//! A sender's claim to have more to send is not enough: it has a share only while useful payload of
//! it arrives, and each byte pays for a little time ([`CLAIM_PKTS`]). The budget is divided among
//! networks, in proportion to their addresses with a share, up to [`CLAIM_ADDRESSES_MAX`] each; the
//! part of a network among its addresses, and the part of an address among its contexts. So a peer
//! that opens many contexts, from one address or from a network full of them, gets no more than a
//! few hosts do.

use crate::config::EngineConfig;
use crate::ids::{Ctx, Network, Way};
use crate::limits::{CLAIM_ADDRESSES_MAX, CLAIM_PKTS};
use crate::time::{Span, Time};

/// Contexts examined for expired shares with each acknowledgment.
const SCAN: usize = 32;
/// Expiry time of a context without a share.
const NONE: Time = Time(0);

#[derive(Clone, Copy, Debug)]
struct Flow {
    /// Time up to which the share is paid for, or [`NONE`].
    until: Time,
    way: Way,
}

#[derive(Clone, Copy, Debug, Default)]
struct Address {
    network: Network,
    /// Contexts of the address that have a share.
    flows: u32,
}

/// The shares of all contexts.
#[derive(Debug)]
pub(crate) struct Flows {
    /// Share of each context, by context number.
    flows: Vec<Flow>,
    /// Counts of each address, by the number of its path table entry.
    addresses: Vec<Address>,
    /// By network: the number of its addresses that have a share.
    networks: Vec<u32>,
    /// Parts into which the budget is divided.
    parts: u32,
    /// Contexts that have a share.
    senders: u32,
    /// The longest time for which a share can be paid in advance.
    longest: Span,
    /// Time in nanoseconds for which a byte of payload pays.
    byte_ns: u64,
    /// When the last search for expired shares was complete.
    struck_at: Time,
    /// Where the search for expired shares continues.
    hand: usize,
}

impl Flows {
    pub fn new(now: Time, cfg: &EngineConfig) -> Self {
        let longest = cfg.loss.rto_max;
        Self {
            flows: Vec::new(),
            addresses: Vec::new(),
            networks: Vec::new(),
            parts: 0,
            senders: 0,
            longest,
            byte_ns: longest.0 / u64::from(CLAIM_PKTS * u32::from(cfg.mtu)) + 1,
            struck_at: now,
            hand: 0,
        }
    }

    /// Registers context `ci`, of address `way` in `network`.
    pub fn context_begin(&mut self, ci: Ctx, way: Way, network: Network) {
        let new = Flow { until: NONE, way };
        entry(&mut self.flows, ci.index(), new).way = way;
        let address = entry(&mut self.addresses, way.index(), Address::default());
        debug_assert!(address.flows == 0 || address.network == network || cfg!(planted_bugs));
        address.network = network;
        entry(&mut self.networks, network.index(), 0);
    }

    /// Ends the share of context `ci`, which has ended.
    pub fn context_end(&mut self, now: Time, ci: Ctx) {
        if planted!(FlowingLeaks) {
            self.flows[ci.index()].until = NONE;
        }
        self.note(now, ci, false, 0);
    }

    /// Notes a packet with `paid` bytes of useful payload, whose sender has more to send or not
    /// (`more`).
    #[inline]
    pub fn note(&mut self, now: Time, ci: Ctx, more: bool, paid: u16) {
        let flow = &mut self.flows[ci.index()];
        let had = flow.until;
        if !more {
            flow.until = NONE;
        } else if planted!(ClaimBelieved) {
            flow.until = now + self.longest;
        } else if paid > 0 {
            let to = had.max(now) + Span(u64::from(paid) * self.byte_ns);
            flow.until = to.min(now + self.longest);
        }
        let (had, has, way) = (had != NONE, flow.until != NONE, flow.way);
        debug_assert!(!has || more, "who has no more to come has no share");
        if had != has {
            self.count(way, has);
        }
    }

    /// Counts one more context of the address with a share, or one less.
    fn count(&mut self, way: Way, begins: bool) {
        let address = &mut self.addresses[way.index()];
        let was = address.flows;
        address.flows = if begins { was + 1 } else { was - 1 };
        self.senders = if begins { self.senders + 1 } else { self.senders - 1 };
        let alone = was.min(address.flows) == 0;
        debug_assert!(address.flows as usize <= self.flows.len(), "no more than contexts");
        if planted!(ClaimBelieved) {
            self.parts = if begins { self.parts + 1 } else { self.parts - 1 };
        } else if alone {
            let of_network = &mut self.networks[address.network.index()];
            let before = *of_network;
            *of_network = if begins { before + 1 } else { before - 1 };
            debug_assert!(self.parts >= parts(before), "all parts, and those of one network");
            self.parts = self.parts - parts(before) + parts(*of_network);
        }
    }

    /// The part of `budget` bytes that context `ci` may have in flight while it sends.
    pub fn share(&mut self, now: Time, ci: Ctx, budget: u32) -> u32 {
        if now.since(self.struck_at) > self.longest {
            self.strike(now);
        }
        if planted!(ClaimBelieved) {
            return budget / self.parts.max(1);
        }
        let flow = self.flows[ci.index()];
        let address = self.addresses[flow.way.index()];
        let of_network = self.networks[address.network.index()];
        // A context without a share yet is counted as if it had one.
        let flows = address.flows + u32::from(flow.until == NONE);
        let addresses = of_network + u32::from(address.flows == 0);
        let all = self.parts - parts(of_network) + parts(addresses);
        debug_assert!(all > 0 && addresses > 0 && flows > 0, "it shares with itself at least");
        let of_budget = u64::from(budget) * u64::from(parts(addresses)) / u64::from(all);
        (of_budget / u64::from(addresses) / u64::from(flows)) as u32
    }

    /// Number of contexts that have a share.
    pub fn senders(&self) -> u32 {
        self.senders
    }

    /// Upper bound of the context numbers.
    pub fn contexts(&self) -> usize {
        self.flows.len()
    }

    /// Whether context `ci` has a share: it sends, and has more to send.
    pub fn is_sharing(&self, ci: Ctx) -> bool {
        self.flows.get(ci.index()).is_some_and(|f| f.until != NONE)
    }

    /// Ends expired shares: a few contexts are examined with each call, until all have been.
    fn strike(&mut self, now: Time) {
        debug_assert!(self.hand <= self.flows.len(), "the hand is in the table, or at its end");
        for _ in 0..SCAN {
            let Some(flow) = self.flows.get_mut(self.hand) else {
                (self.hand, self.struck_at) = (0, now);
                return;
            };
            self.hand += 1;
            if flow.until != NONE && flow.until < now {
                flow.until = NONE;
                let way = flow.way;
                self.count(way, false);
            }
        }
    }

    /// Checks the counts against the contexts that have a share.
    #[cfg(debug_assertions)]
    pub fn audit(&self) {
        let sharing = self.flows.iter().filter(|f| f.until != NONE).count();
        let counted: u32 = self.addresses.iter().map(|a| a.flows).sum();
        assert_eq!(counted as usize, sharing, "senders with more to come");
        assert_eq!(self.senders as usize, sharing, "their number");
        let addresses = self.addresses.iter().filter(|a| a.flows > 0).count();
        let counted: u32 = self.networks.iter().sum();
        assert!(counted as usize == addresses || cfg!(planted_bugs), "their addresses");
        let all: u32 = self.networks.iter().map(|&n| parts(n)).sum();
        assert!(self.parts == all || cfg!(planted_bugs), "parts of the budget");
    }
}

/// Parts of the budget for a network of which `addresses` have a share.
fn parts(addresses: u32) -> u32 {
    addresses.min(CLAIM_ADDRESSES_MAX)
}

/// Entry `i` of a table, which is extended with `new` if it is too short.
fn entry<T: Copy>(table: &mut Vec<T>, i: usize, new: T) -> &mut T {
    if table.len() <= i {
        table.resize(i + 1, new);
    }
    &mut table[i]
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::{IpAddr, Ipv4Addr};

    const BUDGET: u32 = 1 << 20;
    const FULL: u16 = 1000;

    /// Packets of 1000 bytes, and 2 us: a byte pays for a nanosecond.
    fn new() -> Flows {
        let ip = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let mut cfg = EngineConfig::sockets(ip, 0, FULL);
        cfg.loss.rto_max = Span(2_000 - 1);
        Flows::new(Time(0), &cfg)
    }

    /// Context `ci` at address `way` of a network sends full packets until 2 us after `at`.
    fn sends(f: &mut Flows, at: u64, ci: u32, way: u32, network: u32) {
        f.context_begin(Ctx(ci), Way(way), Network(network));
        f.note(Time(at), Ctx(ci), true, FULL);
        f.note(Time(at), Ctx(ci), true, FULL);
        f.audit();
    }

    #[test]
    fn the_budget_is_shared_among_networks_addresses_and_contexts() {
        let mut f = new();
        sends(&mut f, 1, 0, 0, 0);
        assert_eq!(f.share(Time(2), Ctx(0), BUDGET), BUDGET);
        // Sixteen contexts of another address in the same network.
        (1..17).for_each(|ci| sends(&mut f, 1, ci, 1, 0));
        assert_eq!(f.share(Time(2), Ctx(0), BUDGET), BUDGET / 2);
        assert_eq!(f.share(Time(2), Ctx(3), BUDGET), BUDGET / 32);
        // Sixty-four addresses of another network, of which four count.
        (20..84).for_each(|ci| sends(&mut f, 1, ci, ci, 1));
        assert_eq!(f.share(Time(2), Ctx(0), BUDGET), (BUDGET / 6 * 2).div_ceil(2));
        assert_eq!(f.share(Time(2), Ctx(30), BUDGET), BUDGET * 2 / 3 / 64);
        // The shares add up to no more than the budget.
        let all: u64 = (0..84)
            .filter(|ci| !(17..20).contains(ci))
            .map(|ci| u64::from(f.share(Time(2), Ctx(ci), BUDGET)))
            .sum();
        assert!(all <= u64::from(BUDGET) && all > u64::from(BUDGET) * 99 / 100, "{all}");
        assert_eq!(f.senders(), 81);
        // A context that does not send is told the share that it would have.
        f.note(Time(2), Ctx(0), false, FULL);
        assert_eq!(f.senders(), 80);
        assert_eq!(f.share(Time(2), Ctx(0), BUDGET), (BUDGET / 6 * 2).div_ceil(2));
        f.audit();
    }

    #[test]
    fn a_share_is_paid_for_by_wanted_payload() {
        let mut f = new();
        sends(&mut f, 1, 0, 0, 0);
        (1..40).for_each(|ci| f.context_begin(Ctx(ci), Way(ci), Network(0)));
        (1..40).for_each(|ci| f.note(Time(5), Ctx(ci), true, 0));
        assert_eq!(f.share(Time(5), Ctx(0), BUDGET), BUDGET, "nobody has paid");
        (1..8).for_each(|ci| f.note(Time(5), Ctx(ci), true, 100));
        assert_eq!(f.share(Time(5), Ctx(0), BUDGET), BUDGET / 8);
        // 100 bytes pay for 100 ns, and at most 2 us are paid in advance.
        (0..9).for_each(|_| f.note(Time(2_500), Ctx(0), true, FULL));
        let later = |f: &mut Flows, at| {
            (0..4).for_each(|_| _ = f.share(Time(at), Ctx(39), BUDGET));
            f.share(Time(at), Ctx(39), BUDGET)
        };
        assert_eq!(later(&mut f, 4_400), BUDGET / 2, "the first and this one");
        assert_eq!(later(&mut f, 9_000), BUDGET);
        f.audit();
    }

    #[test]
    fn a_context_that_ends_gives_its_share_back() {
        let mut f = new();
        sends(&mut f, 1, 0, 0, 0);
        sends(&mut f, 1, 1, 1, 1);
        assert_eq!(f.share(Time(2), Ctx(1), BUDGET), BUDGET / 2);
        f.context_end(Time(2), Ctx(0));
        f.context_end(Time(2), Ctx(0));
        assert_eq!(f.share(Time(2), Ctx(1), BUDGET), BUDGET);
        // Context and address numbers are reused, in another network.
        sends(&mut f, 3, 0, 0, 1);
        assert_eq!(f.share(Time(3), Ctx(1), BUDGET), BUDGET / 2);
        f.audit();
    }
}
