//! Layout of a copy of a status, as 64-bit words. One description serves both directions.

use super::{
    Counter, Path, PathState, Peer, STATUS_NAME_BYTES_MAX, STATUS_PATHED_MAX, STATUS_PEERS_MAX,
    SealMode, Status,
};
use std::net::{IpAddr, Ipv6Addr};

/// Words of a name: its length and its bytes.
const NAME_WORDS: usize = 1 + (STATUS_NAME_BYTES_MAX + 1) / 8;
/// Words of a status without peers.
const FIXED_WORDS: usize = 2 * NAME_WORDS + 2 + 8 + Counter::COUNT + 1;
/// Words of a peer without paths.
const PEER_WORDS: usize = 2 + 2 + 1 + 4 + 1 + 3 + 3 + 3 + 1;
/// Words of a path.
const PATH_WORDS: usize = 5;

/// Most words of the copy of a device with so many paths per address.
pub(super) const fn words_max(paths: u16) -> usize {
    FIXED_WORDS + STATUS_PEERS_MAX * PEER_WORDS + STATUS_PATHED_MAX * paths as usize * PATH_WORDS
}

/// A direction: writes words, or reads them into the fields.
trait Words {
    fn word(&mut self, value: &mut u64);

    fn pair(&mut self, high: &mut u32, low: &mut u32) {
        let mut word = u64::from(*high) << 32 | u64::from(*low);
        self.word(&mut word);
        (*high, *low) = ((word >> 32) as u32, word as u32);
    }

    fn ip(&mut self, ip: &mut IpAddr) {
        let bits = match ip {
            IpAddr::V4(v4) => v4.to_ipv6_mapped().to_bits(),
            IpAddr::V6(v6) => v6.to_bits(),
        };
        let (mut high, mut low) = ((bits >> 64) as u64, bits as u64);
        self.word(&mut high);
        self.word(&mut low);
        *ip = Ipv6Addr::from_bits(u128::from(high) << 64 | u128::from(low)).to_canonical();
    }

    /// The length of a list, limited to `max`.
    fn len<T: Default>(&mut self, list: &mut Vec<T>, max: usize) {
        let mut len = list.len().min(max) as u64;
        self.word(&mut len);
        list.resize_with((len as usize).min(max), T::default);
    }
}

struct Put<'a>(&'a mut Vec<u64>);

impl Words for Put<'_> {
    fn word(&mut self, value: &mut u64) {
        self.0.push(*value);
    }
}

/// Reads zeros beyond the end.
struct Take<'a>(std::slice::Iter<'a, u64>);

impl Words for Take<'_> {
    fn word(&mut self, value: &mut u64) {
        *value = self.0.next().copied().unwrap_or(0);
    }
}

/// Appends the words of a status. Lists that are too long are cut off in the status as well.
pub(super) fn put(status: &mut Status, to: &mut Vec<u64>) {
    each(status, &mut Put(to));
}

/// The status in these words, whatever they are.
pub(super) fn take(words: &[u64]) -> Status {
    let mut status = Status::default();
    each(&mut status, &mut Take(words.iter()));
    status
}

fn each(s: &mut Status, io: &mut impl Words) {
    name(&mut s.program, io);
    name(&mut s.name, io);
    // One more than the rank; 0 = none.
    let mut rank = s.rank.map_or(0, |rank| u64::from(rank) + 1);
    io.word(&mut rank);
    s.rank = rank.checked_sub(1).map(|rank| rank as u32);
    io.ip(&mut s.local);
    let (mut port, mut slot) = (u32::from(s.port), u32::from(s.slot));
    let (mut mtu, mut paths) = (u32::from(s.mtu), u32::from(s.paths));
    let mut seal = s.seal as u32;
    io.pair(&mut port, &mut slot);
    io.pair(&mut mtu, &mut paths);
    (s.port, s.slot, s.mtu, s.paths) = (port as u16, slot as u8, mtu as u16, paths as u16);
    io.pair(&mut seal, &mut s.qps);
    s.seal = [SealMode::Never, SealMode::Prefer, SealMode::Require][seal.min(2) as usize];
    io.word(&mut s.opened_ns);
    io.word(&mut s.written_ns);
    io.pair(&mut s.contexts, &mut s.contexts_sealed);
    let mut addresses = u64::from(s.addresses);
    io.word(&mut addresses);
    s.addresses = addresses as u32;
    s.counters.iter_mut().for_each(|counter| io.word(counter));
    io.len(&mut s.peers, STATUS_PEERS_MAX);
    let mut pathed = 0;
    for p in &mut s.peers {
        peer(p, io);
        let most = if pathed < STATUS_PATHED_MAX { usize::from(s.paths) } else { 0 };
        io.len(&mut p.paths, most);
        pathed += usize::from(!p.paths.is_empty());
        p.paths.iter_mut().for_each(|of| path(of, io));
    }
}

fn name(name: &mut String, io: &mut impl Words) {
    let mut bytes = std::mem::take(name).into_bytes();
    bytes.truncate(STATUS_NAME_BYTES_MAX);
    let mut len = bytes.len() as u64;
    io.word(&mut len);
    bytes.resize(STATUS_NAME_BYTES_MAX + 1, 0);
    for group in bytes.as_chunks_mut().0 {
        let mut word = u64::from_le_bytes(*group);
        io.word(&mut word);
        *group = word.to_le_bytes();
    }
    bytes.truncate((len as usize).min(STATUS_NAME_BYTES_MAX));
    *name = String::from_utf8_lossy(&bytes).into_owned();
}

fn peer(p: &mut Peer, io: &mut impl Words) {
    io.ip(&mut p.ip);
    io.pair(&mut p.contexts, &mut p.contexts_sealed);
    io.pair(&mut p.contexts_stalled, &mut p.outstanding);
    let mut in_flight = u64::from(p.packets_in_flight);
    io.word(&mut in_flight);
    p.packets_in_flight = in_flight as u32;
    io.word(&mut p.inflight_bytes);
    io.word(&mut p.inflight_bytes_max);
    io.word(&mut p.rate_bytes_per_sec);
    io.word(&mut p.delivered_bytes_per_sec);
    io.pair(&mut p.rtt_ns_smoothed, &mut p.rtt_ns_min);
    io.word(&mut p.packets_sent);
    io.word(&mut p.packets_lost);
    io.word(&mut p.packets_ce);
    let (pairs, last) = p.path_counts.as_chunks_mut();
    for [high, low] in pairs {
        io.pair(high, low);
    }
    let mut rest = 0;
    last.iter_mut().for_each(|count| io.pair(&mut rest, count));
    for [high, low] in p.limits.as_chunks_mut().0 {
        io.pair(high, low);
    }
}

fn path(p: &mut Path, io: &mut impl Words) {
    // Versions that knew no ports wrote zeros in their place.
    let low = u32::from(p.path) | u32::from(p.echoed) << 8;
    let (mut number, mut state) = (low | u32::from(p.port) << 16, p.state as u32);
    io.pair(&mut number, &mut state);
    let state = (state as usize).min(PathState::ALL.len() - 1);
    (p.path, p.port, p.state) = (number as u8, (number >> 16) as u16, PathState::ALL[state]);
    p.echoed = number >> 8 & 1 == 1;
    io.pair(&mut p.rtt_ns_smoothed, &mut p.rtt_ns_min);
    io.word(&mut p.packets_sent);
    io.word(&mut p.packets_lost);
    io.word(&mut p.packets_ce);
}
