//! Layout of the table: which word holds what. A segment with another layout is not used.

/// Most engines of a host: as many as an address has ports for.
pub(crate) const MEMBERS: usize = 256;
/// Most remote addresses that are sent to at once; beyond that, engines share nothing about an
/// address.
pub(crate) const ADDRESSES: usize = 128;

/// First word of the file: "SRDSHARE", with the version in place of the last letter.
pub(crate) const MAGIC: u64 = u64::from_be_bytes(*b"SRDSHAR\x01");
/// Sizes of the table, since another build of the same version could use others.
pub(crate) const SIZES: u64 = (MEMBERS as u64) << 32 | ADDRESSES as u64;

/// Words of the head of the table.
const HEAD: usize = 16;
/// Word of the head that holds [`MAGIC`].
pub(crate) const AT_MAGIC: usize = 0;
/// Word of the head that holds [`SIZES`].
pub(crate) const AT_SIZES: usize = 1;
/// Word of the head that holds the number of member slots ever used: slots from this number on were
/// never taken.
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
    /// Process number and start time of the owner ([`crate::Owner`]); 0 = the slot is free.
    Owner = 0,
    /// When the member last wrote that it is alive, ns of the host's clock.
    Heard,
    /// Until when the member counts as an engine that hands out grants, ns of the host's clock.
    GrantsUntil,
    /// Hash of the member's local address; grants are shared among members with the same one.
    Local,
}

/// Words of the head of an entry.
#[derive(Clone, Copy)]
pub(crate) enum EntryWord {
    /// Hash of local and remote address; 0 = the entry is free.
    Key = 0,
    /// The remote address, as IPv6, in two words.
    Remote,
    RemoteLow,
    /// The local address, as IPv6, in two words.
    Local,
    LocalLow,
    /// When the sum was calculated, ns of the host's clock.
    SumAt = 8,
    /// Number of senders (16 bits), number of backlogged ones (16), minimum RTT in ns (32).
    SumCounts,
    /// Mean of the senders' estimates of the rate that the host may send at, bytes per second.
    SumRate,
    /// Delivery rate of the senders without a backlog together, bytes per second.
    SumLimited,
    /// Like [`SeatWord::Delivered`], for all senders together.
    SumDelivered,
}

/// Words of a seat.
#[derive(Clone, Copy)]
pub(crate) enum SeatWord {
    /// The entry's key when the seat was written: a seat written for another address does not
    /// count.
    Key = 0,
    /// Until when the seat counts, ns of the host's clock, shifted left by one; the lowest bit says
    /// that the member has a backlog.
    Until,
    /// Rate that the host may send at, as this member estimates it, bytes per second; 0 = unknown.
    RateHost,
    /// Pacing rate of the member, bytes per second.
    RateOwn,
    /// Delivery rate in the last round trip, bytes per second (48 bits), and the lost bytes per
    /// thousand of lost and delivered bytes (16 bits).
    Delivered,
    /// Bytes in flight and the congestion window in bytes, 32 bits each.
    Inflight,
    /// Minimum and smoothed RTT in ns, 32 bits each.
    Rtt,
    /// Packets sent and lost, 32 bits each.
    Packets,
}

const _: () = assert!(SeatWord::Packets as usize == SEAT - 1);
const _: () = assert!((EntryWord::SumDelivered as usize) < ENTRY);
const _: () = assert!((MemberWord::Local as usize) < MEMBER);
