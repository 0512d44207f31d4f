//! Why a handshake packet is refused.

use core::fmt;

/// Why a packet of a handshake is not taken, or a handshake is not begun. Each reason has its own
/// counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// The datagram, or the room for one, is shorter than its type needs.
    Truncated,
    /// Another version of the format.
    Version,
    /// Another packet type.
    Type,
    /// Flags other than `SEALED` alone.
    Flags,
    /// Bytes other than zero behind the message.
    Padding,
    /// The tag is 0, or is not the one of this handshake.
    Tag,
    /// This end has no key with the number that the peer names.
    KeyId,
    /// The keyed hash is wrong: a stranger, another key under the same number, other addresses, or
    /// damage.
    Mac,
    /// The parameters were not sealed with the key of this handshake.
    Seal,
    /// The peer's public share is none: the secret would not depend on our share.
    Share,
    /// The ends have no cipher in common, or the peer chose one that was not offered.
    Suite,
    /// The handshake has had its answer.
    Settled,
    /// A first transmission number of 2^63 or more.
    Numbers,
    /// Limits out of their range.
    Limits,
}

impl Refusal {
    /// Every reason.
    pub const ALL: &[Self] = &[
        Self::Truncated,
        Self::Version,
        Self::Type,
        Self::Flags,
        Self::Padding,
        Self::Tag,
        Self::KeyId,
        Self::Mac,
        Self::Seal,
        Self::Share,
        Self::Suite,
        Self::Settled,
        Self::Numbers,
        Self::Limits,
    ];

    /// Name of the reason's counter.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Truncated => "truncated",
            Self::Version => "version",
            Self::Type => "type",
            Self::Flags => "flags",
            Self::Padding => "padding",
            Self::Tag => "tag",
            Self::KeyId => "key_id",
            Self::Mac => "mac",
            Self::Seal => "seal",
            Self::Share => "share",
            Self::Suite => "suite",
            Self::Settled => "settled",
            Self::Numbers => "numbers",
            Self::Limits => "limits",
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Truncated => "a datagram shorter than its type needs",
            Self::Version => "packet of another version of the format",
            Self::Type => "another packet type than expected here",
            Self::Flags => "a packet of a handshake with other flags than SEALED",
            Self::Padding => "bytes other than zero behind the message",
            Self::Tag => "the tag is 0 or not the one of this handshake",
            Self::KeyId => {
                "the peer uses a key that the key file here lacks; give both hosts the same file"
            }
            Self::Mac => {
                "the keyed hash is wrong: the peer has another key under this number, knows this \
                 host by another address, or the packet was damaged or forged"
            }
            Self::Seal => "the parameters were not sealed with the key of this handshake",
            Self::Share => "the peer's public share is not one",
            Self::Suite => "the two ends have no cipher in common",
            Self::Settled => "the handshake has had its answer",
            Self::Numbers => "the first transmission number must be below 2^63",
            Self::Limits => "the limits are out of range: an epoch has 2^1 to 2^30 numbers",
        })
    }
}

impl core::error::Error for Refusal {}
