//! Sealed packets: what is behind the common header is encrypted in place, and all of the packet
//! is authenticated.
//!
//! A [`Sender`] and a [`Receiver`] belong to one direction of one context. Both compute the *epoch*
//! of a packet, and so its key, from its transmission number; keys change without a message. The
//! receiver answers one question: did the peer seal exactly these bytes? Whether a packet came
//! before is the question of the core's replay window, which is asked afterwards.

use crate::refusal::Refusal;
use crate::secret::{SECRET_BYTES, Secret};
use crate::suite::{PacketKey, Suite};
use core::fmt;
use core::ops::Range;
use srd_wire::{AEAD_TAG_BYTES, Flags, HEADER_BYTES, VERSION};

/// Least bytes of a sealed packet: the common header and the tag of the seal.
pub const SEALED_BYTES_MIN: usize = HEADER_BYTES + AEAD_TAG_BYTES;
/// Transmission numbers are below this, so that no sum of them overflows.
pub const NUMBER_END: u64 = 1 << 63;

const FLAGS_AT: usize = 1;
const PATH_AT: usize = 2;
const NUMBER_AT: usize = 8;

/// Limits of a sealed context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The key of a direction changes every 2^`epoch_bits` transmission numbers; 1 to 30. Both ends
    /// must have the same (the handshake fails otherwise). The default is 22: half of the packets
    /// after which RFC 9001 (appendix B) ends a key of AES-GCM for packets of up to 64 KiB.
    pub epoch_bits: u32,
    /// Packets that fail to open before the context ends. The default is 2^36, the limit of
    /// RFC 9001 (section 6.6) for ChaCha20-Poly1305; AES-GCM would allow more.
    pub failed_opens_max: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { epoch_bits: 22, failed_opens_max: 1 << 36 }
    }
}

impl Limits {
    /// Whether `epoch_bits` is in its range.
    pub(crate) const fn valid(&self) -> bool {
        self.epoch_bits >= 1 && self.epoch_bits <= 30
    }
}

/// Why a packet is not sealed. All are mistakes of the caller; the packet is as it was, and must
/// not be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SealError {
    /// Shorter than a header and the room for the tag, or not of this version.
    Malformed,
    /// The flags say that the packet is sealed already, or has a checksum.
    Flags,
    /// The header carries another transmission number.
    Mismatch,
    /// The number is not above all sealed before: its nonce may have been used.
    Reused,
    /// The number leaves out a whole epoch (the receiver could not follow), or is past the last.
    Gap,
}

impl fmt::Display for SealError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed => "not a packet of this version with 16 bytes of room for the tag",
            Self::Flags => "the packet is sealed already or has a checksum; emit it without both",
            Self::Mismatch => "the header carries another transmission number than the one given",
            Self::Reused => {
                "the transmission number is not above the last one sealed; each transmission, also \
                 of the same data, needs a new number"
            }
            Self::Gap => "the transmission number leaves out a whole epoch of keys",
        })
    }
}

impl core::error::Error for SealError {}

/// Why a packet is not opened. The packet is dropped and counted; its bytes behind the header are
/// undefined afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OpenError {
    /// Shorter than a header and a tag.
    Truncated,
    /// Another version of the format.
    Version,
    /// The packet is not sealed; a sealed context takes no other.
    Unsealed,
    /// No context has the tag in the header.
    UnknownTag,
    /// The transmission number belongs to no key that is live, or the flag of the key's phase
    /// contradicts it.
    Epoch,
    /// The seal does not fit: forged, damaged, or sealed with another key.
    Seal,
    /// As many packets have failed to open as the cipher can bear. The context must end.
    Exhausted,
}

impl OpenError {
    /// Every reason.
    pub const ALL: &[Self] = &[
        Self::Truncated,
        Self::Version,
        Self::Unsealed,
        Self::UnknownTag,
        Self::Epoch,
        Self::Seal,
        Self::Exhausted,
    ];

    /// Name of the reason's counter.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Truncated => "truncated",
            Self::Version => "version",
            Self::Unsealed => "unsealed",
            Self::UnknownTag => "unknown_tag",
            Self::Epoch => "epoch",
            Self::Seal => "seal",
            Self::Exhausted => "exhausted",
        }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Truncated => "packet shorter than a header and the tag of a seal",
            Self::Version => "packet of another version of the format",
            Self::Unsealed => "packet without a seal for a sealed context",
            Self::UnknownTag => "no sealed context has the tag of the packet",
            Self::Epoch => "the transmission number belongs to no live key",
            Self::Seal => "the seal does not fit: forged, damaged or of another key",
            Self::Exhausted => "too many packets failed to open; the context must end",
        })
    }
}

impl core::error::Error for OpenError {}

/// A packet that was opened in place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    /// The full transmission number, of which the header carries the low half.
    pub number: u64,
    /// The packet as it was before it was sealed, from its first header byte: the flags of the seal
    /// are cleared, and `srd_wire::parse` reads it. The tag lies behind it.
    pub packet: Range<usize>,
}

/// The secret of the epoch that follows.
fn ratchet(secret: &Secret) -> Secret {
    secret.expand("next", 0)
}

/// Seals the packets of one direction of one context.
#[derive(Debug)]
pub struct Sender {
    suite: Suite,
    limits: Limits,
    /// Of the epoch below.
    secret: Secret,
    key: Option<PacketKey>,
    epoch: u64,
    /// First transmission number of the context.
    start: u64,
    /// Lowest number that no packet was sealed with.
    next: u64,
}

impl Sender {
    pub(crate) fn new(suite: Suite, secret: Secret, start: u64, limits: Limits) -> Self {
        assert!(limits.valid() && start < NUMBER_END, "limits and numbers were checked before");
        Self { suite, limits, secret, key: None, epoch: 0, start, next: start }
    }

    /// What opens the packets of the present epoch and later ones: cipher, limits, first number of
    /// the context, epoch, and its secret.
    pub(crate) const fn present(&self) -> (Suite, Limits, u64, u64, &Secret) {
        (self.suite, self.limits, self.start, self.epoch, &self.secret)
    }

    /// The transmission number with the low half `low` that is the first not below all sealed
    /// before.
    pub const fn number_complete(&self, low: u32) -> u64 {
        self.next.saturating_add(low.wrapping_sub(self.next as u32) as u64)
    }

    /// Seals `packet` in place. It holds the common header, what follows it, and 16 bytes of room
    /// for the tag; the flags `SEALED` and `KEY_PHASE` are set here. `number` is the transmission
    /// number whose low half the header carries. It must be above all numbers sealed before: that
    /// no nonce is used twice depends on nothing but this call.
    ///
    /// # Errors
    /// A [`SealError`]; the packet is unchanged.
    #[inline]
    pub fn seal(&mut self, number: u64, packet: &mut [u8]) -> Result<(), SealError> {
        if packet.len() < SEALED_BYTES_MIN || packet[0] >> 5 != VERSION {
            return Err(SealError::Malformed);
        }
        if packet[FLAGS_AT] & (Flags::SEALED | Flags::CHECKED) != 0 {
            return Err(SealError::Flags);
        }
        if low_half(packet) != number as u32 {
            return Err(SealError::Mismatch);
        }
        if number < self.next {
            return Err(SealError::Reused);
        }
        let early = u64::from(planted!(EpochOffByOne));
        let epoch = (number - self.start + early) >> self.limits.epoch_bits;
        if epoch > self.epoch + 1 || number >= NUMBER_END {
            return Err(SealError::Gap);
        }
        if epoch > self.epoch {
            self.secret = ratchet(&self.secret);
            (self.epoch, self.key) = (epoch, None);
        }
        self.next = number + 1;

        packet[FLAGS_AT] |= seal_flags(epoch);
        let key = self.key.get_or_insert_with(|| PacketKey::new(self.suite, &self.secret));
        let (head, rest) = packet.split_at_mut(HEADER_BYTES);
        let (text, tag) = rest.split_at_mut(rest.len() - AEAD_TAG_BYTES);
        let number = if fixes_nonce(head) { self.start } else { number };
        // A packet without text shows nobody else which nonce it had.
        debug_assert_eq!(number + 1, self.next, "the nonce is the number taken just now");
        key.seal(number, &bound(head), text, tag);
        Ok(())
    }

    /// Lowest transmission number that may be sealed next.
    pub const fn next(&self) -> u64 {
        self.next
    }

    /// Epoch of the last packet sealed.
    pub const fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Frees the prepared key (about 600 bytes) of an idle context. The next packet prepares it
    /// again, from the secret that is kept.
    pub fn rest(&mut self) {
        self.key = None;
    }
}

/// The key of the epoch after the present one, prepared for packets that overtake.
#[derive(Debug)]
struct Ahead {
    secret: Secret,
    key: PacketKey,
}

/// Opens the packets of one direction of one context.
#[derive(Debug)]
pub struct Receiver {
    suite: Suite,
    limits: Limits,
    /// Of the epoch below.
    secret: Secret,
    before: Option<PacketKey>,
    key: Option<PacketKey>,
    ahead: Option<Ahead>,
    /// Epoch of the newest authentic packet.
    epoch: u64,
    start: u64,
    /// Highest transmission number of an authentic packet, from which numbers are completed.
    newest: u64,
    failed: u64,
}

impl Receiver {
    pub(crate) fn new(suite: Suite, secret: Secret, start: u64, limits: Limits) -> Self {
        assert!(limits.valid() && start < NUMBER_END, "limits and numbers were checked before");
        Self {
            suite,
            limits,
            secret,
            before: None,
            key: None,
            ahead: None,
            epoch: 0,
            start,
            newest: start,
            failed: 0,
        }
    }

    /// What opens the packets of the present epoch and later ones: cipher, limits, first number of
    /// the context, epoch, and its secret.
    pub(crate) const fn present(&self) -> (Suite, Limits, u64, u64, &Secret) {
        (self.suite, self.limits, self.start, self.epoch, &self.secret)
    }

    /// As [`Self::new`], from an epoch on, whose secret is given. The numbers of that epoch are
    /// below [`NUMBER_END`].
    pub(crate) fn new_at(
        suite: Suite,
        secret: Secret,
        start: u64,
        limits: Limits,
        epoch: u64,
    ) -> Self {
        let newest = start + (epoch << limits.epoch_bits);
        Self { epoch, newest, ..Self::new(suite, secret, start, limits) }
    }

    /// Opens `packet`, all bytes of one datagram, in place. The transmission number is the one
    /// nearest to the newest authentic one; the epochs before, of and after that one have keys.
    /// Nothing but the count of failures changes unless the seal fits.
    ///
    /// # Errors
    /// An [`OpenError`]; the bytes behind the header are undefined then.
    #[inline]
    pub fn open(&mut self, packet: &mut [u8]) -> Result<Opened, OpenError> {
        sealed_check(packet)?;
        if self.exhausted() {
            return Err(OpenError::Exhausted);
        }
        let number = self.number_complete(low_half(packet)).ok_or(OpenError::Epoch)?;
        let epoch = (number - self.start) >> self.limits.epoch_bits;
        let flags = packet[FLAGS_AT];
        if flags & seal_flags(1) != seal_flags(epoch) {
            return Err(OpenError::Epoch);
        }
        if planted!(NumberBeforeSeal) {
            self.newest = self.newest.max(number);
        }
        let start = self.start;
        let key = self.key_of(epoch).ok_or(OpenError::Epoch)?;
        let (head, rest) = packet.split_at_mut(HEADER_BYTES);
        let (text, tag) = rest.split_at_mut(rest.len() - AEAD_TAG_BYTES);
        let nonce = if fixes_nonce(head) { start } else { number };
        if !key.open(nonce, &bound(head), text, tag) {
            self.failed += 1;
            return Err(OpenError::Seal);
        }
        if number > self.newest {
            self.newest = number;
            if epoch > self.epoch {
                self.advance();
            }
        }
        packet[FLAGS_AT] = flags & !seal_flags(1);
        Ok(Opened { number, packet: 0..packet.len() - AEAD_TAG_BYTES })
    }

    /// The number with this low half that is nearest to the newest authentic one, if the context
    /// can have it.
    fn number_complete(&self, low: u32) -> Option<u64> {
        let step = low.wrapping_sub(self.newest as u32).cast_signed();
        let number = self.newest.checked_add_signed(i64::from(step))?;
        (number >= self.start && number < NUMBER_END).then_some(number)
    }

    /// The key of a live epoch. The key ahead is derived when a packet first claims to need it:
    /// once, however many do.
    fn key_of(&mut self, epoch: u64) -> Option<&PacketKey> {
        if epoch == self.epoch {
            return Some(self.key.get_or_insert_with(|| PacketKey::new(self.suite, &self.secret)));
        }
        if epoch == self.epoch + 1 {
            let ahead = self.ahead.get_or_insert_with(|| {
                let secret = ratchet(&self.secret);
                Ahead { key: PacketKey::new(self.suite, &secret), secret }
            });
            return Some(&ahead.key);
        }
        let lives = epoch + 1 == self.epoch && !planted!(EpochBeforeErased);
        if lives { self.before.as_ref() } else { None }
    }

    /// An authentic packet of the next epoch has come: its key becomes the present one, and what is
    /// two epochs old is erased.
    #[cold]
    fn advance(&mut self) {
        let ahead = self.ahead.take().expect("its key has just opened a packet");
        // If nothing of the old epoch has come yet, or since a rest, its key is prepared here: what
        // was overtaken may still come.
        let old = self.key.replace(ahead.key);
        self.before = Some(old.unwrap_or_else(|| PacketKey::new(self.suite, &self.secret)));
        self.secret = ahead.secret;
        self.epoch += 1;
    }

    /// Whether so many packets have failed to open that the context must end.
    pub const fn exhausted(&self) -> bool {
        self.failed >= self.limits.failed_opens_max
    }

    /// Packets whose seal did not fit.
    pub const fn failed(&self) -> u64 {
        self.failed
    }

    /// Highest transmission number of an authentic packet; the first number before any has come.
    pub const fn newest(&self) -> u64 {
        self.newest
    }

    /// Epoch of the newest authentic packet.
    pub const fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Frees the prepared keys (about 600 bytes each) of an idle context. The next packet prepares
    /// one again from the secret that is kept. Packets of the epoch before are refused from then
    /// on, so the context should have been idle for longer than packets live.
    pub fn rest(&mut self) {
        (self.before, self.key, self.ahead) = (None, None, None);
    }
}

fn low_half(packet: &[u8]) -> u32 {
    u32::from_be_bytes(*packet[NUMBER_AT..].first_chunk().expect("the length was checked"))
}

/// What is authenticated of the header: all of it, as it was sent.
fn bound(head: &[u8]) -> [u8; HEADER_BYTES] {
    let mut bound = *head.first_chunk().expect("the length was checked");
    if planted!(PathUnbound) {
        bound[PATH_AT] = 0;
    }
    bound
}

/// Whether the nonce of this packet is not its number, which only a planted bug causes.
fn fixes_nonce(head: &[u8]) -> bool {
    planted!(CloseAckNonceFixed) && head[0] & 0x1f == srd_wire::PacketType::CloseAck as u8
}

/// The flags of a packet of this epoch.
const fn seal_flags(epoch: u64) -> u8 {
    Flags::SEALED | if epoch & 1 == 1 { Flags::KEY_PHASE } else { 0 }
}

/// What can be told without a key.
pub(crate) fn sealed_check(packet: &[u8]) -> Result<(), OpenError> {
    match packet.first() {
        Some(first) if first >> 5 != VERSION => return Err(OpenError::Version),
        _ if packet.len() < SEALED_BYTES_MIN => return Err(OpenError::Truncated),
        _ => {}
    }
    if packet[FLAGS_AT] & Flags::SEALED == 0 { Err(OpenError::Unsealed) } else { Ok(()) }
}

/// Both directions of one context, as one end has them. There is no `Clone`: a second owner would
/// use the same nonces.
#[derive(Debug)]
pub struct Session {
    /// Seals what this end sends.
    pub sender: Sender,
    /// Opens what the peer sends.
    pub receiver: Receiver,
}

impl Session {
    /// The session of an engine with itself: what it sends it receives, so both directions have one
    /// secret and one count, from `start` on. Takes 32 random bytes; the caller's copy is erased.
    ///
    /// # Errors
    /// [`Refusal::Numbers`] if `start` is 2^63 or more, [`Refusal::Limits`] if the limits are out
    /// of their range.
    pub fn with_itself(
        suite: Suite,
        limits: Limits,
        random: &mut [u8; SECRET_BYTES],
        start: u64,
    ) -> Result<Self, Refusal> {
        if !limits.valid() {
            return Err(Refusal::Limits);
        }
        if start >= NUMBER_END {
            return Err(Refusal::Numbers);
        }
        let secret = Secret::take(random);
        let receiver = Receiver::new(suite, secret.duplicate(), start, limits);
        Ok(Self { sender: Sender::new(suite, secret, start, limits), receiver })
    }

    /// The cipher of both directions.
    pub const fn suite(&self) -> Suite {
        self.sender.suite
    }

    /// Frees prepared keys: [`Sender::rest`] and [`Receiver::rest`].
    pub fn rest(&mut self) {
        self.sender.rest();
        self.receiver.rest();
    }
}

#[cfg(test)]
#[path = "packet_tests.rs"]
mod tests;
