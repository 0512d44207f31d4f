//! Where in the table what is. A segment of another layout is not used.

/// Engines of a host: as many as an address has ports for.
pub(crate) const MEMBERS: usize = 256;
/// Remote addresses with something to send at once; what goes to more is each engine's own affair.
pub(crate) const ADDRESSES: usize = 128;

/// What the file begins with: "SRDSHARE", with the version in place of the last letter.
pub(crate) const MAGIC: u64 = u64::from_be_bytes(*b"SRDSHAR\x01");
/// The sizes, which a table of the same version could be built with differently.
pub(crate) const SIZES: u64 = (MEMBERS as u64) << 32 | ADDRESSES as u64;

/// Words of the head of the table.
const HEAD: usize = 16;
/// In it: [`MAGIC`].
pub(crate) const AT_MAGIC: usize = 0;
/// In it: [`SIZES`].
pub(crate) const AT_SIZES: usize = 1;
/// In it: members beyond this number were never in use.
pub(crate) const AT_TOP: usize = 2;

/// Words of a member: a cache line.
const MEMBER: usize = 8;
/// Words of the head of an entry.
const ENTRY: usize = 16;
/// Words of a seat: a cache line.
const SEAT: usize = 8;
/// Words of an entry with its seats.
const ENTRY_ALL: usize = ENTRY + MEMBERS * SEAT;
const ENTRIES_AT: usize = HEAD + MEMBERS * MEMBER;

/// Words of the whole table: about 2 MiB.
pub(crate) const WORDS: usize = ENTRIES_AT + ADDRESSES * ENTRY_ALL;

/// Word `word` of member `member`.
pub(crate) const fn member_at(member: usize, word: MemberWord) -> usize {
    HEAD + member * MEMBER + word as usize
}

/// Word `word` of the head of entry `entry`.
pub(crate) const fn entry_at(entry: usize, word: EntryWord) -> usize {
    ENTRIES_AT + entry * ENTRY_ALL + word as usize
}

/// Word `word` of the seat of `member` in entry `entry`.
pub(crate) const fn seat_at(entry: usize, member: usize, word: SeatWord) -> usize {
    ENTRIES_AT + entry * ENTRY_ALL + ENTRY + member * SEAT + word as usize
}

/// Words of a member.
#[derive(Clone, Copy)]
pub(crate) enum MemberWord {
    /// Process and its start ([`crate::Owner`]); 0 = free.
    Owner = 0,
    /// When it last said anything, ns of the host's clock.
    Heard,
    /// Up to when it hands out grants, ns.
    GrantsUntil,
    /// Hash of its local address, whose link it hands out.
    Local,
}

/// Words of the head of an entry.
#[derive(Clone, Copy)]
pub(crate) enum EntryWord {
    /// Hash of local and remote address; 0 = free.
    Key = 0,
    /// The remote address, as IPv6, in two words.
    Remote,
    RemoteLow,
    /// The local one.
    Local,
    LocalLow,
    /// When the sum was made, ns.
    SumAt = 8,
    /// Senders (16 bits), those of them that would send more (16), least round trip in ns (32).
    SumCounts,
    /// Mean of what senders think that the host may send.
    SumRate,
    /// What senders with little to send take.
    SumLimited,
    /// As [`SeatWord::Delivered`], of all senders.
    SumDelivered,
}

/// Words of a seat.
#[derive(Clone, Copy)]
pub(crate) enum SeatWord {
    /// The entry's key when this was written: what was written of another address does not count.
    Key = 0,
    /// Up to when it counts, ns; the lowest bit says that there is more to send.
    Until,
    /// What the host may send, as this member sees it; 0 = not known.
    RateHost,
    /// What the member paces.
    RateOwn,
    /// Bytes per second that arrived in the last round trip (48 bits), and how many of a thousand
    /// bytes were lost (16).
    Delivered,
    /// Bytes in flight and their cap, 32 bits each.
    Inflight,
    /// Least and smoothed round trip in ns, 32 bits each.
    Rtt,
    /// Packets sent and lost, 32 bits each.
    Packets,
}

const _: () = assert!(SeatWord::Packets as usize == SEAT - 1);
const _: () = assert!((EntryWord::SumDelivered as usize) < ENTRY);
const _: () = assert!((MemberWord::Local as usize) < MEMBER);
