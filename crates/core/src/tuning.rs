//! Every number of the law of congestion: paths, round-trip times, losses, rate and grants.
//!
//! Each has its unit, where it comes from, and what goes wrong without it or with another value.
//! "Experiment" names a row of the tables in docs/congestion.md, or the command that makes one;
//! "seed" a case that the fault checker found (docs/reliability.md). What a user may want to set is
//! not here but in [`crate::config`]; bounds of memory and work are in [`crate::limits`], and the
//! numbers of the search for the size that passes beside that search (`path/mtu.rs`).

use crate::time::Span;

/// A fixed part, or a multiple, of something: numerator and denominator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Share(pub u64, pub u64);

impl Share {
    /// That part of a number, rounded down.
    pub const fn of(self, x: u64) -> u64 {
        (x as u128 * self.0 as u128 / self.1 as u128) as u64
    }
    /// That part of a span.
    pub const fn of_span(self, x: Span) -> Span {
        x.scale(self.0, self.1)
    }
}

// ---- round-trip times --------------------------------------------------------------------------

/// Weight of a sample in the smoothed RTT (RFC 6298, alpha). Without it one late packet is the RTT.
pub(crate) const SRTT_GAIN: u32 = 8;
/// Divisor of a sample in the mean deviation (RFC 6298, beta: 1/4).
pub(crate) const RTT_VAR_GAIN: u32 = 4;
/// Deviations above the smoothed RTT at which a packet is overdue (RFC 6298, K).
pub(crate) const RTO_DEVIATIONS: u64 = 4;
/// Assumed round trips that the first timeout waits, before there is a sample (RFC 6298 takes a
/// second, thousands of round trips of a datacenter). Fewer repeat a handshake's first data.
pub(crate) const RTO_UNKNOWN_RTTS: u64 = 3;
/// The ceiling of a timeout is at least this many smoothed RTTs. A ceiling below the round trip
/// only repeats what is still under way: copies made queues longer, and longer queues more copies.
pub(crate) const RTO_CEILING_RTTS: u64 = 2;
/// Most doublings of a timeout by those of its path in a row, as a shift. A path that times out
/// twice is retired, unless nearly all are as bad; then the network is overloaded, and what backs
/// off is the rate, and the packet that is sent often ([`DOUBLING_EACH`]). Without this bound the
/// last packet of a flow waited 100 ms on a path that had lost much while everybody sent: 12
/// engines per host took 13.0 of the floor, with it 1.09. Experiment shipping.
pub(crate) const RTO_DOUBLINGS_MAX: u8 = 2;

/// The least RTT is the least of this span and the one before it: it forgets after 5 to 10 s, the
/// window of BBR. A shorter one takes a standing queue for the base; a longer one keeps a route
/// that is gone.
pub(crate) const BASE_WINDOW_HALF: Span = Span::from_secs(5);
/// Part of the quickest round trip measured here that stays, whatever the peer says of its own
/// delays. Honest peers answer up to a quarter sooner than their usual now and then; one that lies
/// gains a quarter and no more (planted bug `WaitBelieved`, oracle `Belief`).
pub(crate) const RTT_BELIEVED: Share = Share(3, 4);
/// A remembered least RTT as the whole round trip that it may have been: [`RTT_BELIEVED`] upside
/// down, so that what was believed stays so.
pub(crate) const RTT_BELIEVED_INVERSE: Share = Share(4, 3);

/// Half of the time over which the quickest way from a peer is remembered (`peer/inbound.rs`): two
/// clocks drift apart by some 50 us per second at most, which is then below the delay target.
pub(crate) const INBOUND_WINDOW_HALF: Span = Span::from_secs(1);

/// Target of queueing delay as a part of the least RTT. With less, the inflight cap of 1 +
/// 2 x target does not cover the later half of the paths; with more, queues of incasts reach the
/// switch's marks. `rate.target_min` is its floor.
pub(crate) const TARGET: Share = Share(3, 4);

// ---- loss --------------------------------------------------------------------------------------

/// Reordering slack between paths, of the smoothed RTT; `loss.reorder_min` is its floor. Paths
/// differ by up to a delay target, and a quarter of an RTT took late packets for lost.
pub(crate) const SLACK_CROSS: Share = Share(1, 2);
/// What a spurious loss adds to the slack, of the smoothed RTT (RACK's reo_wnd_mult, RFC 8985).
pub(crate) const SLACK_WIDENING: Share = Share(1, 4);
/// Most widenings: three round trips. Without a bound an attacker who delays packets turns loss
/// detection off; timeouts act at that distance anyway.
pub(crate) const WIDEN_MAX: u8 = 12;
/// Rounds without a spurious loss after which the slack narrows by one step (RFC 8985 takes 16
/// recoveries; rounds without any loss count here, too).
pub(crate) const NARROW_ROUNDS: u8 = 64;

/// Silence after which the tail of a burst is sent again, of the smoothed RTT (RFC 8985 takes 2: a
/// receiver here answers a request for an acknowledgment at once). Floor: `loss.tlp_min`.
pub(crate) const TAIL_PROBE: Share = Share(3, 2);
/// Least wait for a lone packet, of the RTT of paths that are not late. Floor: `loss.hedge_min`.
pub(crate) const HEDGE: Share = Share(3, 2);
/// Packets in flight that are worth a copy sooner than a tail probe. Experiment beside-elephant.
pub(crate) const HEDGED_MAX: u32 = 4;
/// Such copies in a row, each after twice the time: the last 0.8 ms after the first on sockets.
pub(crate) const HEDGES_MAX: u8 = 3;
/// What a copy costs, in packets acknowledged: at most one in sixteen is sent twice by it, 6 % of
/// the load of connections that send next to nothing.
pub(crate) const HEDGE_COST: u8 = 16;
/// Most that can be saved for copies: eight of them, for a fault that meets several messages.
pub(crate) const HEDGE_CREDIT_MAX: u8 = 8 * HEDGE_COST;

/// A packet's timeout doubles with so many transmissions, whatever paths they took: the hundred of
/// `RETRANSMITS_MAX` last as long as the silence that a peer is allowed. Without it, requests to a
/// live peer behind a bad network ended with status 6 within a fraction of that (seed).
pub(crate) const DOUBLING_EACH: u8 = 8;
/// Most of these doublings, as a shift; `loss.rto_max` ends them before. The least timeout that any
/// host has, 100 us, reaches that with ten: the hundred transmissions then last some three seconds.
pub(crate) const DOUBLINGS_MAX: u8 = 12;
/// Any wait for a peer is at most this part of `loss.unresponsive_after`: it is asked a few times
/// before its silence counts, however long round trips were (seed: one leap of a clock).
pub(crate) const PATIENCE: Share = Share(1, 4);
/// A peer of which only an answer is awaited is asked after so many smoothed RTTs, at least after
/// `loss.rto_max`. Sooner asks while a read is being served.
pub(crate) const ALIVE_RTTS: u64 = 8;
/// Part of the wait in our own socket after which an overdue timer looks again.
pub(crate) const UNREAD_LOOK: Share = Share(1, 4);
/// Probes of a stalled peer, a round trip apart, before they become ever rarer: some may have taken
/// dead paths, or their answers may. Experiment dead-spines.
pub(crate) const STALL_PROBES_QUICK: u8 = 4;
/// Most doublings between them, as a shift; `loss.rto_max` ends them before.
pub(crate) const STALL_DOUBLINGS_MAX: u8 = 16;
/// New work for a stalled peer takes back all but so many of these doublings.
pub(crate) const STALL_DOUBLINGS_KEPT: u8 = 4;
/// And asks again after this: what is posted together is asked for once.
pub(crate) const STALL_PROBE_SOON: Span = Span::from_us(10);
/// Times that a peer which is heard is asked for verdicts before the packets themselves go again.
/// The first wait is a tail probe's; each is twice the one before.
pub(crate) const ASKS_MAX: u8 = 8;
/// Distance of two such questions while the lower edge moves, of the smoothed RTT.
pub(crate) const ASK_SOON: Share = Share(1, 2);

// ---- which path --------------------------------------------------------------------------------

/// A path that came back clean is known to be so for this many round trips: once the queue it saw
/// has passed, it says nothing.
pub(crate) const PROOF_RTTS: u64 = 2;
/// A lone acknowledgment takes the path that came back clean last, if that is not longer ago: its
/// loss is not noticed, so that it would keep to a path that has died.
/// Experiment beside-elephant.
pub(crate) const PROOF_AGE_MAX: Span = Span::from_ms(10);
/// Healthy paths that a choice looks at before it takes the least penalised of them: a bound of
/// work, and with 128 paths a sample of an eighth.
pub(crate) const SCAN_MAX: u32 = 16;
/// Draws of `rtt-p2c` before it takes any live path: misses 2^-8 of the time with half the paths
/// out of use.
pub(crate) const DRAWS_MAX: u32 = 8;
/// One in so many packets that leave alone is followed by a probe of another path (and the first
/// ones more often): 3 % more packets, for a known way out. Experiment beside-elephant.
pub(crate) const EXPLORE_EACH: u32 = 32;
/// One path is given up for so many base RTTs of lateness in sum. A path whose packets come back
/// gets as many new ones, which balances by itself; giving up more adds the noise of replacements.
/// Experiment permutation: 191.4/198.7/208.9 us with 3, 190.1/199.0/206.9 with 10.
pub(crate) const LATE_RTTS: u64 = 10;

// ---- health of a path --------------------------------------------------------------------------

/// Highest penalty: a path is passed over at most this many times. 4 bits; experiment slowlinks.
pub(crate) const PENALTY_MAX: u8 = 15;
/// What a loss adds to the penalty (a late or marked packet adds 1).
pub(crate) const PENALTY_LOSS: u8 = 4;
/// Loss events without an acknowledgment between them that retire a path. With 1, random loss of
/// 1 % empties the set; with 3, a black hole swallows a round trip more. Experiment linkfail.
pub(crate) const LOSSES_RETIRE: u8 = 2;
/// Loss events that a timeout counts for: nothing later of the path arrived either.
pub(crate) const LOSSES_TIMEOUT: u8 = 2;
/// Of the time from the smoothed RTT to the timeout: a peer that has been silent for longer has
/// stalled, since one that stalls just before an acknowledgment is due is silent for all of it.
pub(crate) const SILENCE_OF_TIMEOUT: Share = Share(3, 4);
/// The same as a part of the smoothed RTT, at least.
pub(crate) const SILENCE_OF_RTT: Share = Share(1, 2);
/// Least distance between two probes to one peer, whatever the number of retired paths: at most
/// 4,000 packets of 100 bytes per second, 0.003 % of a line of 100 Gb/s.
pub(crate) const PROBE_DISTANCE: Span = Span::from_us(250);
/// One byte of such probes to an address for so many that arrived there; and as if at least the
/// least rate of any policy ([`RATE_MIN_RTTS`], in smoothed RTTs) arrived, so that there is a way
/// back where nothing does. It is the host's: each of its engines that send there has its part.
/// Without it the probes of 64 paths and 48 processes on busy processors can fill the port that
/// their data is lost at, and more paths look dead. Test `probes.rs`.
pub(crate) const PROBE_SHARE: u64 = 64;
/// For that, a round trip is at least this long: with one of 10 us, the least rate of a sender
/// would be more than many send.
pub(crate) const PROBE_RTT_MIN: Span = Span::from_us(100);
/// While this is used up, it is looked at after so long at the latest: data that arrives earns
/// probes at once, but sets no timer.
pub(crate) const PROBE_LOOK: Span = Span::from_ms(5);
/// Most doublings of a path's probe distance, as a shift; `path.probe_max` ends them before.
pub(crate) const PROBE_DOUBLINGS_MAX: u8 = 20;

// ---- return paths ------------------------------------------------------------------------------

/// Paths of acknowledgments in rotation: enough to survive dead ones, few enough to learn about
/// each quickly.
pub(crate) const ACK_PATHS: usize = 8;
/// Acknowledgments remembered until their echo, each in the place that its number names: a round
/// trip's worth at 100 Gb/s, even through queues. With 16, dead return paths were not recognised at
/// full rate.
pub(crate) const ACKS_REMEMBERED: usize = 128;
/// Acknowledgments missed on a path, in multiples of the usual number per echo, after which it is
/// replaced: false alarms e^-6.
pub(crate) const ACK_PATIENCE: u32 = 6;
/// And so many more, because the usual number is an average.
pub(crate) const ACK_PATIENCE_MORE: u32 = 4;
/// The peer echoes at all if one of the last so many times the usual number was echoed.
pub(crate) const ACK_HEARD: u32 = 4;
/// Weight of a sample in the usual number of acknowledgments per echo: 1/8, as in the smoothed RTT.
pub(crate) const ACKS_PER_ECHO_GAIN: u16 = 8;
/// Largest sample of it: beyond, the peer did not echo for reasons of its own.
pub(crate) const ACKS_PER_ECHO_MAX: u16 = 256;

// ---- noise of hosts ----------------------------------------------------------------------------

/// What is noise on every host, in full packets on the wire at line rate: the datapath hands over
/// eight at once, and a switch passes on whole packets.
pub(crate) const NOISE_WIRES: u64 = 8;
/// One in so many batches and timers is a sample: each costs some 30 instructions.
pub(crate) const NOISE_EACH: u32 = 8;
/// Step of the ninetieth percentile upwards, of its value: some two hundred samples from nothing to
/// the ceiling. Larger ones make it swing.
pub(crate) const NOISE_RISE: u32 = 64;
/// Part of that step downwards: nine samples below balance one above, which is the percentile.
pub(crate) const NOISE_FALL: u32 = 9;
/// Least target of queueing delay, in units of the noise. With 2 an incast at 10 Gb/s is less fair
/// (largest of the least time 1.21, not 1.06), a permutation later (1.19 of the floor, not 1.11).
/// Experiments matrix and shipping, as for the next four.
pub(crate) const NOISE_TARGET: u32 = 4;
/// Least slack for packets of other paths: the target at both ends. With 5, 64 KB at 10 Gb/s take
/// 1.15 of the floor, not 1.06.
pub(crate) const NOISE_REORDER: u32 = 8;
/// Least wait for a lone packet: the same, since nothing tells of it sooner.
pub(crate) const NOISE_HEDGE: u32 = 8;
/// Least silence after which the tail of a burst is sent again. With 12, hosts with noise send 5 %
/// of 64 KB again, not 1 %.
pub(crate) const NOISE_TAIL: u32 = 20;
/// Least retransmission timeout. With 50, 12 engines per host send some points more again; a fixed
/// one of 2 ms stands for 13 times the whole transfer at 100 Gb/s.
pub(crate) const NOISE_TIMEOUT: u32 = 80;

// ---- hosts -------------------------------------------------------------------------------------

/// Longer waits in hosts are stalls, not something to be covered by bytes in flight: the time slice
/// of a busy scheduler.
pub(crate) const HOST_NS_MAX: u64 = 4_000_000;
/// How fast a host is trusted again: a busy host is late rarely, but then by much.
pub(crate) const HOST_HALF_LIFE: Span = Span::from_ms(100);
/// Part of a host's delay that is covered by bytes in flight: what waits in the peer's socket
/// because of us must not feed on itself.
pub(crate) const HOST_COVERED: Share = Share(3, 4);
/// What is left after a round of the peak rate at which bytes arrived.
pub(crate) const DELIVERED_KEPT: Share = Share(7, 8);
/// What is left of bytes in flight after the peer's receive queue dropped some: TCP's halving.
pub(crate) const DROP_CAP: Share = Share(1, 2);
/// Least cap then, in packets.
pub(crate) const DROP_CAP_PKTS_MIN: u64 = 4;
/// Rise of that cap per round: an eighth, so that six rounds undo a halving.
pub(crate) const DROP_CAP_RISE: Share = Share(1, 8);

// ---- rounds ------------------------------------------------------------------------------------

/// Idle round trips after which the rate of before says nothing about the network of now. TCP takes
/// one timeout (RFC 5681, section 4.1), which is 3 to 4 here and made pauses between messages cost
/// a new start each.
pub(crate) const RESTART_RTTS: u64 = 16;
/// The first round lasts at most this many RTTs with a full queue: then its window was too large.
pub(crate) const OPENING_RTTS: u64 = 4;
/// Times the distance from the quartile to the median of the paths' delays that is no queue, up to
/// the datapath's noise: a queue that all share delays all alike, what differs is noise.
pub(crate) const UNEVEN: u64 = 2;

// ---- rate --------------------------------------------------------------------------------------

/// Least rate of any policy: one packet in so many round trips. Below, rounds have no packets.
pub(crate) const RATE_MIN_RTTS: u64 = 8;
/// First window, in bandwidth-delay products of the base RTT: acknowledgments are coalesced, and
/// data that is sprayed at line rate meets some queue in a fabric. Experiment permutation: median
/// 190.5 us with 1.25, 188.9 with 1.4, 193.9 with 1.0.
pub(crate) const WINDOW_FIRST: Share = Share(7, 5);
/// First window where the RTT is not known yet, in bytes.
pub(crate) const WINDOW_UNKNOWN_MAX: u64 = 1 << 20;
/// Least first window, in packets.
pub(crate) const WINDOW_FIRST_PKTS_MIN: u64 = 4;
/// Least window later, in packets: one to be lost and one to tell.
pub(crate) const WINDOW_PKTS_MIN: u64 = 2;
/// Targets of delay that the window covers: the median of the paths is controlled, and the cap must
/// let the later half come back, too.
pub(crate) const WINDOW_TARGETS: u64 = 2;
/// Largest window, in bandwidth-delay products, where the targets are less.
pub(crate) const WINDOW_MOST: Share = Share(3, 2);

/// Beyond this many targets of queueing delay the rate is what was delivered.
pub(crate) const HEAVY_TARGETS: u64 = 4;
/// Targets of queueing delay that are tolerated while credits are in force: the queue is then that
/// of the fabric, which choosing paths has to even out, and slowing down only adds idle time to it.
/// Experiment smallincast 256 KB: largest of the floor 1.033 with 1, 1.017 with 2, 1.0007 with 3.
pub(crate) const CREDITED_TARGETS: u64 = 3;
/// What is tolerated more for each halving of the rate, of the target. Without that slope, the one
/// of two senders whose least RTT is the worse estimate would take all.
pub(crate) const TARGET_SLOPE: Share = Share(1, 4);
/// Halvings that count for it.
pub(crate) const TARGET_HALVINGS_MAX: u64 = 4;
/// Lost share beyond which the loss is congestion's, in thousandths. Random loss of a bad link
/// stays below it.
pub(crate) const HEAVY_PERMILLE: u32 = 50;
/// Part of the target that has to be in queue for such losses to be congestion's.
pub(crate) const HEAVY_LOSS_QUEUE: Share = Share(1, 2);
/// Least rate after one cut, of the rate before; where the sender had less to send than the rate,
/// what was delivered says less.
pub(crate) const CUT_MAX: Share = Share(1, 8);
/// See [`CUT_MAX`].
pub(crate) const CUT_MAX_LIMITED: Share = Share(1, 2);
/// What a decrease takes away at most: this part, times the excess over the whole queue. DCTCP
/// halves at a share of marks of 1; a quarter, because the round after is not decreased.
pub(crate) const DECREASE: Share = Share(1, 4);
/// A rate above this many times what was delivered was never used: a decrease begins there.
pub(crate) const USED_RATE: u64 = 2;
/// The rate after losses without delay.
pub(crate) const LOSSY_CUT: Share = Share(17, 20);
/// What is delivered of what was sent, below which the round was short.
pub(crate) const SHORT: Share = Share(9, 10);
/// Short rounds in a row that say so.
pub(crate) const SHORT_ROUNDS: u8 = 2;
/// Part of the target that has to be in queue then.
pub(crate) const SHORT_QUEUE: Share = Share(1, 4);
/// The rate after short rounds: what was delivered and a little, since bytes in queue follow, and
/// at least this part of the rate.
pub(crate) const SHORT_CUT: Share = Share(19, 20);
/// See [`SHORT_CUT`].
pub(crate) const SHORT_DELIVERED: Share = Share(21, 20);
/// Packets in a round under which its delivery rate is too coarse to accuse the network.
pub(crate) const PACKETS_TRUSTED: u64 = 8;
/// Rounds with no loss after which delay alone does not bring the rate below one burst per RTT.
pub(crate) const LOSSLESS_ROUNDS: u8 = 8;
/// A queue below this part of the target is none.
pub(crate) const CLEAR_QUEUE: u64 = 8;
/// Rounds in a row without a queue after which increases quicken by [`QUICK_STEPS`].
pub(crate) const CLEAR_ROUNDS: u8 = 4;
/// See [`CLEAR_ROUNDS`].
pub(crate) const QUICK_STEPS: u64 = 4;
/// An increase per round, at no queue at all: line rate over this. It is the same for all senders
/// whatever they have, which makes them equal; half of it takes twice as long to be so.
pub(crate) const STEP_SHARE: u64 = 64;
/// And so much of a packet per base RTT: on slow lines a step is else less than what a queue's
/// drain takes away.
pub(crate) const STEP_PACKET: Share = Share(3, 20);
/// Packets that one echo stands for: an acknowledgment has room for eight echoes, each of a burst
/// of up to eight packets on one path, and a busy receiver may acknowledge a few hundred packets at
/// once. With fewer, such a receiver would be slowed down; a peer that acknowledges what it never
/// received is sent so many times what it did receive, about.
pub(crate) const ECHO_PKTS: i32 = 64;
/// Packets acknowledged beyond what echoes stand for after which the rate is cut: half of the
/// default window, and as much may be saved up, so that no receiver that stood still and then
/// acknowledges a whole window at once is mistaken for one that invents.
pub(crate) const UNPROVEN_PKTS_MAX: i32 = 2048;
/// A burst lasts at most this long at the paced rate: what the queue of a switch gets in one piece.
/// At 100 Gb/s 250 KB, beyond every burst that is configured.
pub(crate) const BURST: Span = Span::from_us(20);
/// With nothing in flight no acknowledgment brings credit: after this many round trips the first
/// window is free again.
pub(crate) const CREDIT_PATIENCE_RTTS: u64 = 2;

// ---- engines of one host -----------------------------------------------------------------------

/// Engines of a host hear of each other at most this often per address. A scheduler moves processes
/// at such distances at best; at 100 Gb/s it is as many packets as a burst has.
pub(crate) const SHARE_EVERY: Span = Span::from_us(20);
/// Where round trips are long, once in this part of one is often enough.
pub(crate) const SHARE_RTTS: Share = Share(1, 4);
/// Who sends counts for at least this long without saying so again: a process that is not run for
/// longer does not send either, and the others take its part.
pub(crate) const SHARE_STALE_MIN: Span = Span::from_ms(1);
/// And at most this long, however slow its part is.
pub(crate) const SHARE_STALE_MAX: Span = Span::from_ms(100);

/// Packets that a receiver acknowledges together (`ack.every` of the defaults): what makes the
/// round of an engine that sends little longer than that of one which sends all.
pub(crate) const SHARE_ACKED_PKTS: u64 = 8;
/// Part of an engine's window after which it asks for an acknowledgment, where the window is a part
/// of the host's. Experiment matrix, permutation of 12 engines at 100 Gb/s.
pub(crate) const SHARE_ASKS: Share = Share(1, 4);
/// A longer round counts for at most so many of the only sender's: one that was long because the
/// process did not run says little of the network.
pub(crate) const SHARE_STRETCH_MAX: u64 = 4;

// ---- grants of a receiver ----------------------------------------------------------------------

/// Grants leave at this share of the line, so that the last hop's queue drains.
pub(crate) const GRANT_SHARE: Share = Share(98, 100);
/// Packets of one grant: one acknowledgment in the simulator brings it.
pub(crate) const GRANT_PACKETS: u32 = 4;
/// Most bytes that one peer may hold unused, as time at line rate: some round trips.
pub(crate) const GRANT_AHEAD: Span = Span::from_us(200);
/// At least as many grants, on slow lines.
pub(crate) const GRANT_AHEAD_MIN: u32 = 4;
/// The only sender meets nobody at the last hop, so its grants need no pace: it always has those of
/// so many round trips in hand, for a queue in the fabric delays them both ways. No more than its
/// window holds: what a sender cannot keep is lost (with seven, the slowest flow of a permutation
/// took 236 us instead of 201). Experiment permutation: 189.7/193.6/196.4 us paced and
/// 184.2/188.0/190.3 not.
pub(crate) const GRANT_LONE_RTTS: u64 = 2;
/// Part of a round trip after which a peer counts as the only one: those who start together are
/// heard of by then. Experiment smallincast 64 KB cold: 1.061 of the floor, 1.40 from the first
/// packet on.
pub(crate) const GRANT_LONE_AFTER: Share = Share(1, 2);
/// Grants unused this long were lost with packets, or are not wanted.
pub(crate) const GRANT_STALE: Span = Span::from_ms(1);

// ---- a host that falls behind ------------------------------------------------------------------

/// Part of the receive path's room above which senders are told that the host falls behind: half,
/// as in the published design (docs/copa.md), so that what is still under way finds room.
pub(crate) const HOST_THRESHOLD: Share = Share(1, 2);
/// But no more than the host drains in so many round trips, at which it never runs dry: a socket
/// of 8 MB would else hold 80 ms of a host that takes 50 MB/s. One leaves nothing for the time that
/// the signal takes.
pub(crate) const HOST_THRESHOLD_RTTS: u64 = 2;
/// And no less than so many full packets: a program reads a batch of them at once.
pub(crate) const HOST_THRESHOLD_PKTS: u64 = 16;
/// How far below the threshold the host is behind no more: this part of it, a few packets at most.
/// Without it every packet of every sender crosses the threshold twice, and all are told each time.
pub(crate) const HOST_SLACK_SHARE: Share = Share(1, 8);
/// See [`HOST_SLACK_SHARE`].
pub(crate) const HOST_SLACK_PKTS: u64 = 4;
/// Least time and full packets of one measurement of the drain: a packet is written at once, so a
/// few are no rate.
pub(crate) const DRAIN_SAMPLE: Share = Share(1, 4);
/// See [`DRAIN_SAMPLE`].
pub(crate) const DRAIN_PKTS: u64 = 8;
/// Weight of a measurement of the drain.
pub(crate) const DRAIN_WEIGHT: Share = Share(1, 4);
/// Round trips without anything that waits after which the host is taken to be twice as fast. While
/// it drains faster than it is sent, each round trip brings some more, and it never comes to that.
/// A packet that waited so long is something that waits. Forgetting the drain at once instead lets
/// a host that reads in pauses be told all of its socket's room: `srd net bench slowhost`.
pub(crate) const HOST_EMPTY_RTTS: u64 = 4;
/// Credits leave at this part of the drain at least and at most. More than the drain where little
/// waits: only a host that has something to take shows how fast it is.
pub(crate) const HOST_GRANT_MIN: Share = Share(1, 2);
/// See [`HOST_GRANT_MIN`].
pub(crate) const HOST_GRANT_MAX: Share = Share(5, 4);
/// Round trips within which the drops that a peer's host tells are expected among the losses.
pub(crate) const HOST_DROP_RTTS: u64 = 4;
/// Most round trips between two packets to a host that takes less than one per round trip of ours:
/// 48 senders of a host at half of its link's rate wait for two. Without the wait such a host is
/// sent a packet of each per round trip, and lost a fifth of them. Experiment copa-srd, 48 flows.
pub(crate) const HOST_PAUSE_RTTS_MAX: u64 = 16;
/// Part of what the host drains per round trip that all together are told at least, whatever waits.
pub(crate) const HOST_BUDGET_MIN: Share = Share(1, 8);
/// Round trips after which a sender with nothing in flight sends a packet although the peer was
/// behind when last heard: the word that it is not may have been lost.
pub(crate) const HOST_OPEN_RTTS: u64 = 2;
