//! The acknowledgment block. It rides on any packet with room, or forms a packet of its own.

use crate::bytes::{put, u8_at, u16_at, u32_at};
use crate::{ParseError, Verdict};
use arrayvec::ArrayVec;

/// Most 64-bit bitmap words in one block (512 PSNs).
pub const ACK_WORDS_MAX: usize = 8;
/// Most entries with verdicts in one block.
pub const ACK_VERDICTS_MAX: usize = 16;
/// Number of PSNs after the first one that the mask of an entry covers.
pub const ACK_MASK_BITS: u32 = 24;
/// Most echoes in one block.
pub const ACK_ECHOES_MAX: usize = 8;
/// Bytes of a block whose lists are empty.
pub const ACK_FIXED_BYTES: usize = 28;
/// Bytes that each bitmap word adds.
pub const ACK_WORD_BYTES: usize = 8;
/// Bytes that each entry with verdicts adds.
pub const ACK_VERDICT_BYTES: usize = 8;
/// Bytes that each echo adds.
pub const ACK_ECHO_BYTES: usize = 12;
/// Bytes of the largest block.
pub const ACK_BYTES_MAX: usize = ACK_FIXED_BYTES
    + ACK_WORDS_MAX * ACK_WORD_BYTES
    + ACK_VERDICTS_MAX * ACK_VERDICT_BYTES
    + ACK_ECHOES_MAX * ACK_ECHO_BYTES;
/// Unit of [`AckBlock::credit`].
pub const CREDIT_UNIT_BYTES: u32 = 64;
/// Unit of [`Echo::delay`].
pub const ECHO_DELAY_UNIT_NS: u64 = 64;

// The lengths of the lists are encoded in 4, 5 and 4 bits.
const _: () = assert!(ACK_WORDS_MAX < 16 && ACK_VERDICTS_MAX < 32 && ACK_ECHOES_MAX < 16);

/// State of the receiver: 28 fixed bytes and three short lists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AckBlock {
    /// Cumulative acknowledgment: every PSN before this one was received. Its verdict is OK unless
    /// `verdicts` lists another one; if the block is `partial`, it may also be unknown.
    pub cum: u32,
    /// PSN of bit 0 of `words[0]`.
    pub base: u32,
    /// Receiver's cumulative credit grant in units of 64 bytes (wraps around). Valid only if the
    /// feature `CREDITS` is in force.
    pub credit: u32,
    /// Bytes that this sender may have in flight, as the receiver's buffers allow; `u32::MAX` = no
    /// limit.
    pub rx_budget: u32,
    /// Datagrams the receiver's socket has dropped so far (SO_RXQ_OVFL), modulo 2^32.
    pub rxq_drops: u32,
    /// Packets of this context that arrived with the CE mark so far, modulo 2^32.
    pub ce_count: u32,
    /// Packets waiting in the receiver when the block was written (saturating).
    pub rxq_depth: u16,
    /// The receiver's backlog is above its threshold: the host drains it more slowly than the peers
    /// send. False unless the feature `HOST_SIGNAL` is in force.
    pub above: bool,
    /// Selective bits from `base` on, the lowest bit of each word first: 1 = received.
    pub words: ArrayVec<u64, ACK_WORDS_MAX>,
    /// More verdicts exist than fit. For PSNs after the last one in `verdicts`, the block reports
    /// only that they were received, not their verdict.
    pub partial: bool,
    /// Verdicts other than OK in the order of PSNs. Each is repeated until the sender's `una` has
    /// passed it.
    pub verdicts: ArrayVec<VerdictEntry, ACK_VERDICTS_MAX>,
    /// Timing of recently received packets.
    pub echoes: ArrayVec<Echo, ACK_ECHOES_MAX>,
}

/// One verdict and the PSNs, near each other, that it applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VerdictEntry {
    /// First PSN.
    pub psn: u32,
    /// What the responder decided.
    pub verdict: Verdict,
    /// The other PSNs.
    pub others: Others,
}

/// PSNs that share the verdict of the first PSN of their entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Others {
    /// The first PSN and those right after it: a run of this many PSNs (1 to 65,535).
    Run(u16),
    /// Bit `b` stands for the first PSN + `b` + 1. Not zero, and below 2^[`ACK_MASK_BITS`].
    Mask(u32),
}

/// Echo of one received packet to its sender: RTT = now - timestamp - delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Echo {
    /// Low 32 bits of the packet's transmission number.
    pub tx_num: u32,
    /// The packet's timestamp, copied.
    pub timestamp: u32,
    /// Time from the arrival of the packet to the departure of this block, in units of 64 ns;
    /// `u16::MAX`: too long for the field, so no RTT can be computed.
    pub delay: u16,
    /// Path on which the packet arrived.
    pub path: u8,
    /// Whether the packet carried the CE mark.
    pub ce: bool,
}

impl AckBlock {
    /// Bit of `partial` in the lengths of the lists.
    const PARTIAL: usize = 0b100;
    /// Bit of `above` in the lengths of the lists.
    const ABOVE: usize = 0b010;
    /// Reserved bit in the lengths of the lists.
    const RESERVED: usize = 0b001;

    /// The verdict on `psn`, which must be received according to the block; `None` if the block is
    /// `partial` and does not list it.
    ///
    /// ```
    /// use srd_wire::{AckBlock, Verdict, VerdictEntry};
    /// let mut ack = AckBlock { cum: 9, partial: true, ..AckBlock::default() };
    /// ack.verdicts.push(VerdictEntry::one(5, Verdict::Rnr));
    /// assert_eq!(ack.verdict(4), Some(Verdict::Ok));
    /// assert_eq!(ack.verdict(5), Some(Verdict::Rnr));
    /// assert_eq!(ack.verdict(6), None);
    /// ```
    #[inline]
    pub fn verdict(&self, psn: u32) -> Option<Verdict> {
        if let Some(e) = self.verdicts.iter().find(|e| e.covers(psn)) {
            return Some(e.verdict);
        }
        let told = !self.partial
            || self.verdicts.last().is_some_and(|e| (psn.wrapping_sub(e.end()) as i32) < 0);
        told.then_some(Verdict::Ok)
    }

    /// Length of the block in bytes.
    ///
    /// ```
    /// use srd_wire::{ACK_FIXED_BYTES, AckBlock};
    /// let mut ack = AckBlock::default();
    /// assert_eq!(ack.encoded_len(), ACK_FIXED_BYTES);
    /// ack.words.push(0b1011);
    /// assert_eq!(ack.encoded_len(), ACK_FIXED_BYTES + 8);
    /// ```
    #[inline]
    pub fn encoded_len(&self) -> usize {
        ACK_FIXED_BYTES
            + self.words.len() * ACK_WORD_BYTES
            + self.verdicts.len() * ACK_VERDICT_BYTES
            + self.echoes.len() * ACK_ECHO_BYTES
    }

    /// Resets to the default without writing the unused capacity of the lists.
    #[inline]
    pub fn clear(&mut self) {
        let Self { cum, base, credit, rx_budget, rxq_drops, ce_count, .. } = self;
        for field in [cum, base, credit, rx_budget, rxq_drops, ce_count] {
            *field = 0;
        }
        self.rxq_depth = 0;
        (self.above, self.partial) = (false, false);
        self.words.clear();
        self.verdicts.clear();
        self.echoes.clear();
    }

    /// Reads a block from the start of `bytes` into `self`, whose lists must be empty, and returns
    /// the rest.
    pub(crate) fn read<'b>(&mut self, bytes: &'b [u8]) -> Result<&'b [u8], ParseError> {
        let (fixed, rest) =
            bytes.split_first_chunk::<ACK_FIXED_BYTES>().ok_or(ParseError::Truncated)?;
        self.cum = u32_at::<0, _>(fixed);
        self.base = u32_at::<4, _>(fixed);
        self.credit = u32_at::<8, _>(fixed);
        self.rx_budget = u32_at::<12, _>(fixed);
        self.rxq_drops = u32_at::<16, _>(fixed);
        self.ce_count = u32_at::<20, _>(fixed);
        self.rxq_depth = u16_at::<24, _>(fixed);

        let counts = usize::from(u16_at::<26, _>(fixed));
        let (words, verdicts, echoes) = (counts >> 12, (counts >> 7) & 0x1f, (counts >> 3) & 0xf);
        if words > ACK_WORDS_MAX || verdicts > ACK_VERDICTS_MAX || echoes > ACK_ECHOES_MAX {
            return Err(ParseError::ListTooLong);
        }
        if counts & Self::RESERVED != 0 {
            return Err(ParseError::Value);
        }
        self.partial = counts & Self::PARTIAL != 0;
        self.above = counts & Self::ABOVE != 0;
        let rest = read_list(rest, words, &mut self.words, |b| Some(u64::from_be_bytes(*b)))?;
        let rest = read_list(rest, verdicts, &mut self.verdicts, VerdictEntry::read)?;
        read_list(rest, echoes, &mut self.echoes, Echo::read)
    }

    /// Writes the block to the start of `out` and returns the rest, or `None` if it does not fit.
    pub(crate) fn write<'b>(&self, out: &'b mut [u8]) -> Option<&'b mut [u8]> {
        let (fixed, rest) = out.split_first_chunk_mut::<ACK_FIXED_BYTES>()?;
        put::<0, 4, _>(fixed, self.cum.to_be_bytes());
        put::<4, 4, _>(fixed, self.base.to_be_bytes());
        put::<8, 4, _>(fixed, self.credit.to_be_bytes());
        put::<12, 4, _>(fixed, self.rx_budget.to_be_bytes());
        put::<16, 4, _>(fixed, self.rxq_drops.to_be_bytes());
        put::<20, 4, _>(fixed, self.ce_count.to_be_bytes());
        put::<24, 2, _>(fixed, self.rxq_depth.to_be_bytes());
        let (words, verdicts, echoes) = (self.words.len(), self.verdicts.len(), self.echoes.len());
        let counts = words << 12 | verdicts << 7 | echoes << 3;
        let partial = usize::from(self.partial) * Self::PARTIAL;
        let above = usize::from(self.above) * Self::ABOVE;
        put::<26, 2, _>(fixed, ((counts | partial | above) as u16).to_be_bytes());

        let rest = write_list(rest, &self.words, |word, b| *b = word.to_be_bytes())?;
        let rest = write_list(rest, &self.verdicts, VerdictEntry::write)?;
        write_list(rest, &self.echoes, Echo::write)
    }
}

impl VerdictEntry {
    /// Bit of the code that distinguishes a mask from a run.
    const MASK: u8 = 0x80;

    /// An entry with one PSN.
    pub const fn one(psn: u32, verdict: Verdict) -> Self {
        Self { psn, verdict, others: Others::Run(1) }
    }

    /// Whether the entry applies to `psn`.
    #[inline]
    pub fn covers(&self, psn: u32) -> bool {
        let d = psn.wrapping_sub(self.psn);
        match self.others {
            Others::Run(len) => d < u32::from(len),
            Others::Mask(mask) => d == 0 || d <= ACK_MASK_BITS && mask >> (d - 1) & 1 == 1,
        }
    }

    /// One past the last PSN of the entry.
    pub fn end(&self) -> u32 {
        self.psn.wrapping_add(match self.others {
            Others::Run(len) => u32::from(len),
            Others::Mask(mask) => 1 + (u32::BITS - mask.leading_zeros()),
        })
    }

    /// PSNs of the entry, in order.
    pub fn psns(&self) -> impl Iterator<Item = u32> + use<> {
        let (this, len) = (*self, self.end().wrapping_sub(self.psn));
        (0..len).map(move |k| this.psn.wrapping_add(k)).filter(move |&p| this.covers(p))
    }

    fn read(b: &[u8; ACK_VERDICT_BYTES]) -> Option<Self> {
        let code = u8_at::<4, _>(b);
        let verdict = Verdict::from_wire(code & !Self::MASK).filter(|&v| v != Verdict::Ok)?;
        let low = u32_at::<4, _>(b) & 0x00ff_ffff;
        let others = if code & Self::MASK != 0 {
            Others::Mask(low)
        } else {
            Others::Run(u16::try_from(low).ok()?)
        };
        (low != 0).then_some(Self { psn: u32_at::<0, _>(b), verdict, others })
    }

    fn write(&self, b: &mut [u8; ACK_VERDICT_BYTES]) {
        debug_assert!(self.verdict != Verdict::Ok, "an accepted PSN is a set bit, not an entry");
        let (form, low) = match self.others {
            Others::Run(len) => (0, u32::from(len)),
            Others::Mask(mask) => (Self::MASK, mask),
        };
        debug_assert!(low != 0 && low < 1 << ACK_MASK_BITS, "{self:?}");
        put::<0, 4, _>(b, self.psn.to_be_bytes());
        put::<4, 4, _>(b, (u32::from(self.verdict as u8 | form) << 24 | low).to_be_bytes());
    }
}

impl Echo {
    const CE: u8 = 1;

    fn read(b: &[u8; ACK_ECHO_BYTES]) -> Option<Self> {
        let flags = u8_at::<11, _>(b);
        (flags & !Self::CE == 0).then_some(Self {
            tx_num: u32_at::<0, _>(b),
            timestamp: u32_at::<4, _>(b),
            delay: u16_at::<8, _>(b),
            path: u8_at::<10, _>(b),
            ce: flags & Self::CE != 0,
        })
    }

    fn write(&self, b: &mut [u8; ACK_ECHO_BYTES]) {
        put::<0, 4, _>(b, self.tx_num.to_be_bytes());
        put::<4, 4, _>(b, self.timestamp.to_be_bytes());
        put::<8, 2, _>(b, self.delay.to_be_bytes());
        put::<10, 2, _>(b, [self.path, u8::from(self.ce) * Self::CE]);
    }
}

/// Appends `count` entries of `W` bytes to `list` and returns the rest of the bytes. `read` returns
/// `None` for an invalid entry.
#[inline]
fn read_list<'b, T, const W: usize, const CAP: usize>(
    bytes: &'b [u8],
    count: usize,
    list: &mut ArrayVec<T, CAP>,
    read: impl Fn(&[u8; W]) -> Option<T>,
) -> Result<&'b [u8], ParseError> {
    let (entries, rest) = bytes.split_at_checked(count * W).ok_or(ParseError::Truncated)?;
    for entry in entries.as_chunks::<W>().0 {
        let value = read(entry).ok_or(ParseError::Value)?;
        list.try_push(value).map_err(|_| ParseError::ListTooLong)?;
    }
    Ok(rest)
}

/// Writes the entries of `list` to the start of `out` and returns the rest.
#[inline]
fn write_list<'b, T, const W: usize>(
    out: &'b mut [u8],
    list: &[T],
    write: impl Fn(&T, &mut [u8; W]),
) -> Option<&'b mut [u8]> {
    let (entries, rest) = out.split_at_mut_checked(list.len() * W)?;
    for (value, entry) in list.iter().zip(entries.as_chunks_mut::<W>().0) {
        write(value, entry);
    }
    Some(rest)
}
