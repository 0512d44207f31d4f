//! Constants of the rules for networks that overflow again and again: a full buffer that is proven,
//! and a cap where losses go on. "Experiment: table of overload" is that of
//! `rate/tests/overload.rs`.

use super::Share;

// ---- a full buffer: rule CC-40 -----------------------------------------------------------------

/// Share of the largest payload from which on a packet is a full one.
pub(crate) const FULL_PACKET: Share = Share(3, 4);
/// Longest time of a full packet's own transmissions, as so many at the rate of the local port: two
/// switches each way and slower links in between.
pub(crate) const OWN_LINKS: u64 = 8;
/// Overflows of a buffer, each after all losses of the one before were known, that prove it. The
/// first windows of many senders overflow it once or twice.
pub(crate) const FULL_OVERFLOWS: u8 = 12;
/// The same where others keep the queue above the target of this sender.
pub(crate) const FULL_OVERFLOWS_JOIN: u8 = 2;
/// Most overflows that count once the rule is in force: so many losses at other delays end it.
pub(crate) const FULL_OVERFLOWS_MAX: u8 = 8;
/// Times that the rule was wrong after which [`FULL_OVERFLOWS`] doubles no more.
pub(crate) const FULL_DOUBTS_MAX: u8 = 4;
/// Share of the full buffer's delay that the delay has to reach for a loss to be an overflow.
pub(crate) const FULL_NEAR: Share = Share(3, 4);
/// The same for the queue to be at its peak.
pub(crate) const FULL_AT: Share = Share(7, 8);
/// Share of what is sent at the peak that has to be lost.
pub(crate) const FULL_SHARE_LOST: Share = Share(1, 20);
/// Packets that have to be lost there.
pub(crate) const FULL_LOST_LEAST: u64 = 8;
/// A larger share, for which fewer packets are enough.
pub(crate) const FULL_SHARE_HEAVY: Share = Share(1, 5);
/// See [`FULL_SHARE_HEAVY`].
pub(crate) const FULL_LOST_HEAVY: u64 = 4;
/// Round trips of the full buffer for which a sender watches it before the rule begins. All others
/// have to see the buffer as well: one that did not would take the link, because it still tolerates
/// more delay.
pub(crate) const FULL_WATCH_SPANS: u64 = 32;
/// Bytes after which what was delivered and lost counts half.
pub(crate) const FULL_TALLY: u64 = 4 << 20;
/// So many times more at the peak than below it, and what is below says nothing.
pub(crate) const FULL_TALLY_LEAST: u64 = 8;
/// Share of the full buffer's delay that the median path has to show: a queue on some paths is a
/// matter of path choice.
pub(crate) const FULL_MEDIAN: Share = Share(2, 3);
/// Least delay of a full buffer, in delay targets. The noise of hosts is a quarter of a target.
pub(crate) const FULL_TARGETS: Share = Share(1, 2);
/// The delay of a full buffer is the largest of this many to twice as many overflows. All senders
/// have to find the same: a tenth more is twice the rate.
pub(crate) const FULL_LEARN: u8 = 8;
/// Window in packets whose target is [`FULL_TARGET_LEAST`].
pub(crate) const FULL_WINDOW: u64 = 64;
/// Halvings of it at which the target is [`FULL_TARGET_MOST`].
pub(crate) const FULL_HALVINGS_MAX: u64 = 16;
/// Target of delay of a large window, in 1/1024 of the full buffer's: a tenth, so that the link is
/// used while windows swing.
pub(crate) const FULL_TARGET_LEAST: u64 = 102;
/// Target of delay of a small window, in 1/1024 of the full buffer's: eight tenths, so that packets
/// that happen to come together still fit.
pub(crate) const FULL_TARGET_MOST: u64 = 819;
/// Doublings beyond [`FULL_WINDOW`] at which the target is half of the least. With the same target
/// for all large windows, unequal ones would stay unequal.
pub(crate) const FULL_FLAT: u64 = 4;
/// Divisor of the excess over the target in the change of the window per round trip.
pub(crate) const FULL_STEP: u64 = 4;
/// What a loss at the full buffer leaves of the window.
pub(crate) const FULL_CUT: Share = Share(9, 10);
/// Delay below the target, in 2^-20 of the full buffer's, beyond which a window of less than a
/// packet begins to rise faster.
pub(crate) const FULL_QUICK_BELOW: i64 = (1 << 20) / 10;
/// Packets in a row after which such a rise begins, and after which it doubles. Of 64 senders, 4
/// that stay use the link again after some 20 of their packets.
pub(crate) const FULL_QUICK_ECHOES: u8 = 2;
/// Most doublings of the rise from one packet on. Without them a sender whose losses another fault
/// had caused needed 0.3 s to leave a rate of a packet per 2 ms (seed 91300008417).
pub(crate) const FULL_QUICK_DOUBLINGS: u32 = 2;
/// Longest gap between two packets of a sender in a crowd: the least rate. Requests have to end
/// after a fault that looked like a crowd (seed 91200000286).
pub(crate) const FULL_TURN_NS: u64 = 50_000_000;
/// Least delay that is believed to be that of a full buffer: two ceilings of the noise of hosts.
/// What is shorter may be the delay of a host, which stays whatever is sent (seeds 91500004549 and
/// 91500012404).
pub(crate) const FULL_NS_MIN: u64 = 50_000;
/// Rounds in a row with a full buffer's delay and without a loss that refute it.
pub(crate) const FULL_CALM_ROUNDS: u8 = 24;
/// Longest delay that is believed to be that of a full buffer: 250 ms at any rate. Longer ones are
/// faults of clocks and hosts, and all spans of the rule are multiples of it.
pub(crate) const FULL_NS_MAX: u64 = 250_000_000;
/// A queue below the full buffer's delay divided by this, and below half of the target, is as good
/// as empty.
pub(crate) const FULL_LOW: u64 = 16;
/// Round trips of the full buffer for which the queue is empty before the rule ends.
pub(crate) const FULL_LOW_SPANS: u64 = 32;
/// Rounds for which it is empty, at least: a sender with few packets sees little of the queue.
pub(crate) const FULL_LOW_ROUNDS: u8 = 4;
/// Round trips of the full buffer for which the queue is empty before what was learnt is forgotten
/// where the rule is not in force.
pub(crate) const FULL_FORGET_SPANS: u64 = 64;
/// Round trips of the full buffer of a queue above its target after which a sender joins.
pub(crate) const FULL_JOIN_SPANS: u64 = 4;

// ---- a cap where losses go on: rules CC-41 and CC-42 -------------------------------------------

/// Least length of an interval over which a cap by losses is judged, in sums of smoothed RTT and
/// delay target. A loss is found after 8 noise (two targets), at worst after a timeout of 80 noise
/// (20 targets). With 24, 8 senders behind a policer of 1 Gb/s at 20 ms share less equally (Jain's
/// index 0.65, not 0.93). Experiment: table of overload, as for the next ones.
pub(crate) const CAP_INTERVAL: u64 = 16;
/// Least packets of such an interval, unless [`CAP_LOSSY_ROUNDS`] rounds had losses: with fewer, a
/// share of 2 % cannot be told from chance, and 3 % of random loss lowered the rate to a third.
pub(crate) const CAP_PKTS: u64 = 256;
/// Rounds with losses that end an interval earlier. Lost packets do not count for that, because a
/// short buffer drops most of a burst at once.
pub(crate) const CAP_LOSSY_ROUNDS: u64 = 12;
/// Share lost, per thousand, at which a cap falls: the goal behind a policer. A cap begins at
/// [`HEAVY_PERMILLE`], above what bad links lose.
pub(crate) const CAP_PERMILLE: u32 = 20;
/// By this factor the rate has to fall before losses that remain are a bad link's.
pub(crate) const CAP_FALL: u64 = 2;
/// The same where more than [`CAP_UNLIKE_LINKS_PERMILLE`] are lost: others who share a limit may
/// take long to lower their rates.
pub(crate) const CAP_HEAVY_FALL: u64 = 8;
/// Share lost, per thousand, that hardly a link loses by itself.
pub(crate) const CAP_UNLIKE_LINKS_PERMILLE: u32 = 200;
/// Largest difference of two delivery rates that count as the same: a limit passes the same
/// whatever is sent.
pub(crate) const CAP_SAME: Share = Share(1, 4);
/// Shares lost that are alike to this fraction do not depend on the rate.
pub(crate) const CAP_ALIKE: Share = Share(3, 4);
/// Cap, as a fraction of what was delivered: what the bottleneck has stored drains.
pub(crate) const CAP_KEPT: Share = Share(63, 64);
/// Fall of a cap that does not end the losses, beyond [`CAP_KEPT`]. Three or four such falls halve
/// the rate, which tells a bad link from a limit.
pub(crate) const CAP_TRIAL_CUT: Share = Share(7, 8);
/// First fall of a cap after it had ended the losses for a while.
pub(crate) const CAP_CUT: Share = Share(31, 32);
/// Intervals for which a bad link is believed to be one, the first time; later twice as many each
/// time, up to [`CAP_EXEMPT_MAX`]. A trial takes some 8 intervals.
pub(crate) const CAP_EXEMPT_MIN: u16 = 32;
/// See [`CAP_EXEMPT_MIN`].
pub(crate) const CAP_EXEMPT_MAX: u16 = 1024;
/// Standard deviations by which the share lost exceeds that of the trial where it is no bad link's.
/// It is looked at after each interval, up to a thousand times.
pub(crate) const CAP_DEVIATIONS: u64 = 2;
/// Packets after which those that were counted count half: 256 intervals of the least size.
pub(crate) const CAP_LOSSES_MOST: u64 = 1 << 16;
/// Least lengths of an interval after the last loss before a cap rises.
pub(crate) const CAP_HOLD: u64 = 8;
/// Rise of a cap in the least length of an interval, as a fraction of the root of cap x line rate:
/// slower senders rise by a larger share of what they have, so that equals become equal, and the
/// sum of 64 of them by no more than 8 times as much as one would.
pub(crate) const CAP_RISE: Share = Share(1, 8192);
/// Largest rise at the end of an interval that takes longer, because the sender is slow.
pub(crate) const CAP_RISE_LATE: Share = Share(1, 64);
/// The rise doubles after so many least lengths, and [`CAP_CLEAN`] intervals, without a loss: a
/// limit that is gone is left after some 100 least lengths.
pub(crate) const CAP_DOUBLES: u64 = 8;
/// See [`CAP_DOUBLES`].
pub(crate) const CAP_CLEAN: u8 = 4;
/// Most doublings of the rise.
pub(crate) const CAP_DOUBLINGS_MAX: u64 = 9;
/// Largest rise at the end of an interval, after doublings.
pub(crate) const CAP_RISE_MAX: Share = Share(1, 4);
/// A rise of this share is judged after an interval in which its losses are found.
pub(crate) const CAP_RISE_SETTLES: Share = Share(1, 16);

// ---- rivals: rule CC-53 ------------------------------------------------------------------------

/// Round trips with a queue longer than any sender of the law tolerates that prove rivals.
pub(crate) const RIVAL_SPANS: u64 = 16;
/// A shorter queue counts against that by one part in so many of its time: a rival's window that
/// shrinks by 30 % fills a buffer of a bandwidth-delay product for a fifth of the time.
pub(crate) const RIVAL_FORGET: u32 = 16;
/// Contests without rivals after which the evidence asked for doubles no more.
pub(crate) const RIVAL_DOUBTS_MAX: u8 = 10;
/// Round trips after which a contest that goes on was one with rivals.
pub(crate) const RIVAL_LONG_SPANS: u64 = 256;
/// Packets of the window with which a contest begins at least. In a crowd none had as many when the
/// buffer overflowed.
pub(crate) const RIVAL_BEGIN: u64 = 8;
/// Packets of the least window.
pub(crate) const RIVAL_LEAST: u64 = 4;
/// What is left of the window after an overflow: that of CUBIC (RFC 9438, section 4.6).
pub(crate) const RIVAL_CUT: Share = Share(7, 10);
/// Share of the largest queueing delay at which the queue counts as empty, as a divisor.
pub(crate) const RIVAL_LOW: u64 = 8;
/// Rounds in a row with such a queue that end a contest.
pub(crate) const RIVAL_LOW_ROUNDS: u8 = 2;
/// Round trips from one look to the next.
pub(crate) const RIVAL_LOOK_EACH: u64 = 32;
/// Round trips that a look takes.
pub(crate) const RIVAL_LOOK: Share = Share(3, 2);
/// Share of the window that is used meanwhile.
pub(crate) const RIVAL_LOOK_SHARE: Share = Share(1, 4);
/// Round trips after which losses are summed up.
pub(crate) const RIVAL_TALLY_SPANS: u64 = 16;
/// Least share of packets, in thousandths, lost with the least window, that is: others who hear
/// losses lose less.
pub(crate) const RIVAL_LOST_LEAST: u32 = 50;
/// Largest share of packets, in thousandths, lost with the least window, that is taken for the
/// doing of others. A crowd of senders with least windows loses more.
pub(crate) const RIVAL_LOST_MOST: u32 = 300;
/// Losses beyond that share, in thousandths, that are heard.
pub(crate) const RIVAL_LOST_MORE: u32 = 50;
/// Round trips for which losses of others are tolerated at a time.
pub(crate) const RIVAL_TRUCE_SPANS: u64 = 512;
/// Rounds in a row with marks on all packets that prove rivals.
pub(crate) const RIVAL_MARKED_ROUNDS: u8 = 80;
/// Share of the line rate from which on a rate that only falls is a sign of rivals: less than that
/// of sixteen equals.
pub(crate) const RIVAL_LITTLE: Share = Share(1, 16);
/// Share of the largest delay below which a queue is not the same any more.
pub(crate) const RIVAL_STEADY: Share = Share(3, 4);
/// Share of the rate from which on a queue that stays the same is kept by others.
pub(crate) const MARKED_OTHERS: Share = Share(1, 4);
