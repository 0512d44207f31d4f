//! Every constant of congestion control: paths, round-trip times, losses, rate and grants.
//!
//! The comment of each constant gives its unit, its source, and what goes wrong without it or with
//! another value. "Experiment" names a row of the tables in docs/congestion.md, or the command that
//! makes one; "seed" names a case that the fault checker found (docs/reliability.md). Settings that
//! a user may want to change are in [`crate::config`], bounds of memory and work in
//! [`crate::limits`], and the constants of path MTU discovery in `path/mtu.rs`. What holds where a
//! network overflows again and again is in `tuning/overload.rs`.

mod overload;

pub(crate) use overload::*;

use crate::time::Span;

/// A constant fraction or multiple: numerator and denominator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Share(pub u64, pub u64);

impl Share {
    /// This fraction of a number, rounded down.
    pub const fn of(self, x: u64) -> u64 {
        (x as u128 * self.0 as u128 / self.1 as u128) as u64
    }
    /// The number of which `x` is this fraction, rounded down.
    pub const fn over(self, x: u64) -> u64 {
        Share(self.1, self.0).of(x)
    }
    /// This fraction of a span.
    pub const fn of_span(self, x: Span) -> Span {
        x.scale(self.0, self.1)
    }
}

// ---- round-trip times --------------------------------------------------------------------------

/// Weight of a sample in the smoothed RTT (RFC 6298, alpha). Without smoothing, one late packet
/// would set the RTT.
pub(crate) const SRTT_GAIN: u32 = 8;
/// Divisor of a sample in the mean deviation (RFC 6298, beta: 1/4).
pub(crate) const RTT_VAR_GAIN: u32 = 4;
/// Deviations above the smoothed RTT at which a packet is overdue (RFC 6298, K).
pub(crate) const RTO_DEVIATIONS: u64 = 4;
/// Least margin above the smoothed RTT at which a packet is overdue, as a fraction of it (RFC 6298
/// has the granularity of the clock in its place). A queue that grows evenly leaves no deviation:
/// packets were sent again whose acknowledgments came 0.3 us after the timeout of 131 us (fault
/// checker, seed 81000480105).
pub(crate) const RTO_MARGIN: Share = Share(1, 16);
/// Retransmission timeout before the first RTT sample, in assumed round trips (RFC 6298 takes a
/// second, thousands of round trips of a datacenter). With fewer, the first data after a handshake
/// is retransmitted needlessly.
pub(crate) const RTO_UNKNOWN_RTTS: u64 = 3;
/// The ceiling of a timeout is at least this many smoothed RTTs. A ceiling below the round trip
/// retransmits packets that are still under way: the copies lengthen the queues, and longer queues
/// cause more copies.
pub(crate) const RTO_CEILING_RTTS: u64 = 2;
/// Most doublings of a path's timeout by consecutive timeouts of that path, as a shift. A path that
/// times out twice is retired, unless nearly all paths are as bad. In that case the network is
/// overloaded, and the rate backs off instead, as does a packet that has been sent often
/// ([`DOUBLING_EACH`]). Without this bound the last packet of a flow waited 100 ms on a path that
/// had lost many packets while all hosts sent: 12 engines per host took 13.0 times the least
/// possible time, with the bound 1.09 times. Experiment shipping.
pub(crate) const RTO_DOUBLINGS_MAX: u8 = 2;

/// The least RTT is the minimum over the present span of this length and the one before it, so a
/// sample is forgotten after 5 to 10 s (BBR's window is 10 s). A shorter window takes a standing
/// queue for the base RTT; a longer one keeps the RTT of a route that is gone.
pub(crate) const BASE_WINDOW_HALF: Span = Span::from_secs(5);
/// Lower bound of the RTT that remains after the peer's reported delays are subtracted, as a
/// fraction of the shortest round trip measured here. Honest peers occasionally answer up to a
/// quarter sooner than usual; a peer that reports false delays gains a quarter and no more (planted
/// bug `WaitBelieved`, oracle `Belief`).
pub(crate) const RTT_BELIEVED: Share = Share(3, 4);
/// Converts a remembered least RTT to the longest measured round trip that it may stem from: the
/// inverse of [`RTT_BELIEVED`], so that the bound does not reject the remembered value.
pub(crate) const RTT_BELIEVED_INVERSE: Share = Share(4, 3);

/// Half of the window over which the minimum one-way delay from a peer is kept (`peer/inbound.rs`).
/// Two clocks drift apart by at most some 50 us per second, so within the window the drift stays
/// below the delay target.
pub(crate) const INBOUND_WINDOW_HALF: Span = Span::from_secs(1);

/// Target of queueing delay as a fraction of the least RTT; `rate.target_min` is its floor. With
/// less, the inflight cap of 1 + 2 x target does not cover the slower half of the paths; with more,
/// the queue of an incast reaches the switch's marking threshold.
pub(crate) const TARGET: Share = Share(3, 4);

// ---- loss --------------------------------------------------------------------------------------

/// Reordering slack between paths, as a fraction of the smoothed RTT; `loss.reorder_min` is its
/// floor. The delays of paths differ by up to a delay target; with a quarter of an RTT, late
/// packets were declared lost.
pub(crate) const SLACK_CROSS: Share = Share(1, 2);
/// What a spurious loss adds to the reordering slack, as a fraction of the smoothed RTT (RACK's
/// reo_wnd_mult, RFC 8985).
pub(crate) const SLACK_WIDENING: Share = Share(1, 4);
/// Most widenings of the slack: they add up to three round trips. Without a bound, an attacker who
/// delays packets turns loss detection off. Timeouts fire at about that age anyway.
pub(crate) const WIDEN_MAX: u8 = 12;
/// Rounds without a spurious loss after which the slack narrows by one step (RFC 8985 takes 16
/// recoveries; here rounds without any loss count as well).
pub(crate) const NARROW_ROUNDS: u8 = 64;

/// Tail-loss probe timeout as a fraction of the smoothed RTT. RFC 8985 takes 2; less suffices here
/// because a receiver answers a request for an acknowledgment at once. Floor: `loss.tlp_min`.
pub(crate) const TAIL_PROBE: Share = Share(3, 2);
/// Least wait before a lone packet is copied, as a fraction of the smoothed RTT of the paths that
/// are not late. Floor: `loss.hedge_min`.
pub(crate) const HEDGE: Share = Share(3, 2);
/// Most packets in flight with which a copy is sent earlier than a tail-loss probe, and packets are
/// not spread over paths. Experiment beside-elephant, test `lone.rs`.
pub(crate) const HEDGED_MAX: u32 = 4;
/// Most such copies in a row, each after twice the wait: on sockets the last leaves 0.8 ms after
/// the first.
pub(crate) const HEDGES_MAX: u8 = 3;
/// Acknowledged packets that pay for one such copy: at most one packet in sixteen is sent twice,
/// which adds 6 % to the load of connections that send next to nothing.
pub(crate) const HEDGE_COST: u8 = 16;
/// Most acknowledged packets that can be saved up: eight copies, for a fault that affects several
/// messages. With less than half of it left, copies leave later. Test `lone.rs`.
pub(crate) const HEDGE_CREDIT_MAX: u8 = 8 * HEDGE_COST;

/// A packet's timeout doubles after every this many transmissions, whatever paths they took, so
/// that the hundred transmissions of `RETRANSMITS_MAX` last about as long as a peer may be silent.
/// Without the doubling, requests to a live peer behind a bad network ended with status 6 within a
/// fraction of that time (seed).
pub(crate) const DOUBLING_EACH: u8 = 8;
/// Most of these doublings, as a shift; `loss.rto_max` normally limits the timeout earlier. The
/// least timeout of any host, 100 us, reaches that limit with ten doublings; the hundred
/// transmissions then last some three seconds.
pub(crate) const DOUBLINGS_MAX: u8 = 12;
/// Upper bound of any wait for a peer, as a fraction of `loss.unresponsive_after`: the peer is
/// asked a few times before its silence counts, however long the measured round trips were (seed:
/// one leap of a clock).
pub(crate) const PATIENCE: Share = Share(1, 4);
/// A peer from which only an answer is awaited is probed after this many smoothed RTTs, and not
/// before `loss.rto_max`. A shorter wait probes peers that are still serving a read.
pub(crate) const ALIVE_RTTS: u64 = 8;
/// An overdue loss timer waits while received packets are unread in our own socket; it is checked
/// again after this fraction of the time that they have waited.
pub(crate) const UNREAD_LOOK: Share = Share(1, 4);
/// Probes of a stalled peer that leave a round trip apart before the interval grows: some probes,
/// or their answers, may have taken dead paths. Experiment dead-spines.
pub(crate) const STALL_PROBES_QUICK: u8 = 4;
/// Most doublings of the interval of these probes, as a shift; `loss.rto_max` normally limits it
/// earlier.
pub(crate) const STALL_DOUBLINGS_MAX: u8 = 16;
/// New work for a stalled peer takes back all but this many of these doublings.
pub(crate) const STALL_DOUBLINGS_KEPT: u8 = 4;
/// The next probe then leaves after this time, so that requests posted together cause one probe.
pub(crate) const STALL_PROBE_SOON: Span = Span::from_us(10);
/// Times that a responsive peer is asked for missing verdicts before the packets themselves are
/// sent again. The first wait is that of a tail-loss probe; each later one is twice the one before.
pub(crate) const ASKS_MAX: u8 = 8;
/// Interval of two such requests while the lower edge of the send window advances, as a fraction of
/// the smoothed RTT.
pub(crate) const ASK_SOON: Share = Share(1, 2);

// ---- which path --------------------------------------------------------------------------------

/// A path whose last packet came back without delay counts as clean for this many round trips:
/// later the queues along it may have changed.
pub(crate) const PROOF_RTTS: u64 = 2;
/// A lone acknowledgment takes the most recently clean path, unless that was longer ago than this.
/// The loss of an acknowledgment is not noticed, so without the bound it would keep to a path that
/// has died. Experiment beside-elephant.
pub(crate) const PROOF_AGE_MAX: Span = Span::from_ms(10);
/// Live paths that a choice examines before it takes the least penalised of them: a bound of work,
/// and with 128 paths a sample of an eighth.
pub(crate) const SCAN_MAX: u32 = 16;
/// Draws of `rtt-p2c` before it takes any live path. With half of the paths retired, all draws miss
/// in 2^-8 of the cases.
pub(crate) const DRAWS_MAX: u32 = 8;
/// One in this many lone packets (the first ones more often) is followed by a probe of another
/// path: 3 % more packets, so that a good alternative is known. Experiment beside-elephant.
pub(crate) const EXPLORE_EACH: u32 = 32;
/// But no sooner than this after the last such probe: what is known of paths ages by time, not by
/// packets. Each probe makes one round trip at either end longer by a system call; with 250 round
/// trips of 8 us between two of them, fewer than one in a hundred.
pub(crate) const EXPLORE_EVERY: Span = Span::from_ms(4);
/// From this many packets on that each took the path that the one before came back on, the 4th,
/// 8th, 16th ... is followed by a probe. Not sooner: a probe is transmitted faster than a full
/// packet, so that the least round trip that is known becomes too short for the flow that follows.
/// From the first one on: largest of the floor of 31 rows 1.842, not 1.808.
pub(crate) const LOOP_EXPLORED: u32 = 4;
/// One path is given up for every this many base RTTs of accumulated lateness. A path gets new
/// packets at the rate at which its packets come back, which balances the load by itself; giving up
/// more paths adds the noise of replacing them. Experiment permutation: 191.4/198.7/208.9 us with
/// 3, 190.1/199.0/206.9 with 10.
pub(crate) const LATE_RTTS: u64 = 10;

// ---- health of a path --------------------------------------------------------------------------

/// Highest penalty: the scan passes over a path at most this many times. Experiment slowlinks.
pub(crate) const PENALTY_MAX: u8 = 15;
/// What a loss adds to the penalty (a late or marked packet adds 1).
pub(crate) const PENALTY_LOSS: u8 = 4;
/// Loss events, with no acknowledgment between them, that retire a path. With 1, random loss of 1 %
/// retires nearly all paths; with 3, a black hole costs one more round trip. Experiment linkfail.
pub(crate) const LOSSES_RETIRE: u8 = 2;
/// Loss events that a timeout counts as: no later packet of the path arrived either.
pub(crate) const LOSSES_TIMEOUT: u8 = 2;
/// Paths of a rail on which nothing arrives that make the rail suspect, if what left on another
/// rail later did arrive. With random losses of 10 % so many packets in a row are lost once in
/// 10,000.
pub(crate) const RAIL_PATHS: usize = 4;
/// Changes of the path by which a peer's packets come, none of them to a certain rail, after which
/// acknowledgments avoid that rail. Of two rails that work, the paths are of either alike.
pub(crate) const RAIL_QUIET: u8 = 16;
/// Of so many acknowledgments that would leave by a rail in doubt one does, to see whether it is
/// echoed.
pub(crate) const ACK_RETRY: u8 = 64;
/// The same while the peer echoes no acknowledgment at all.
pub(crate) const ACK_RETRY_UNHEARD: u8 = 2;
/// Of so many closing packets one leaves the rail to chance; the others take the one by which the
/// peer was heard, which may be dead in the other direction.
pub(crate) const ANSWER_ELSEWHERE: u64 = 4;
/// A peer that has been silent for this fraction of the time from the smoothed RTT to the timeout
/// counts as stalled. A peer that stalls just before an acknowledgment is due is silent for all of
/// that time.
pub(crate) const SILENCE_OF_TIMEOUT: Share = Share(3, 4);
/// Lower bound of that silence, as a fraction of the smoothed RTT.
pub(crate) const SILENCE_OF_RTT: Share = Share(1, 2);
/// Least interval between two probes to one peer, whatever the number of retired paths: at most
/// 4,000 packets of 100 bytes per second, 0.003 % of a line of 100 Gb/s.
pub(crate) const PROBE_DISTANCE: Span = Span::from_us(250);
/// Budget of probes of retired paths: one byte for every this many bytes acknowledged by the
/// address. At least the least rate of any policy ([`RATE_MIN_RTTS`], in smoothed RTTs) counts as
/// acknowledged, so that paths can return where no data arrives. The budget is that of the host;
/// each of its engines that send to the address has a share. Without it, the probes of 64 paths and
/// 48 processes on busy processors can fill the very port at which their data is lost, and more
/// paths look dead. Test `probes.rs`.
pub(crate) const PROBE_SHARE: u64 = 64;
/// Lower bound of the round trip in that calculation: with 10 us, the least rate of a sender would
/// exceed what many senders send.
pub(crate) const PROBE_RTT_MIN: Span = Span::from_us(100);
/// While the budget is used up, it is checked again after at most this time: acknowledged data adds
/// to the budget at once, but sets no timer.
pub(crate) const PROBE_LOOK: Span = Span::from_ms(5);
/// Most doublings of a path's probe interval, as a shift; `path.probe_max` normally limits it
/// earlier.
pub(crate) const PROBE_DOUBLINGS_MAX: u8 = 20;

// ---- return paths ------------------------------------------------------------------------------

/// Paths of acknowledgments in rotation: enough to survive dead ones, few enough to learn about
/// each quickly.
pub(crate) const ACK_PATHS: usize = 8;
/// Acknowledgments remembered until their echo, in a table indexed by the low bits of their number:
/// a round trip's worth at 100 Gb/s, even through queues. With 16, dead return paths were not
/// recognised at full rate.
pub(crate) const ACKS_REMEMBERED: usize = 128;
/// An acknowledgment that was not echoed for this long is timed no longer.
pub(crate) const ECHO_LONGEST: Span = Span::from_secs(1);
/// Acknowledgments without an echo, in multiples of the usual number per echo, after which their
/// path is replaced: the probability of a false alarm is e^-6.
pub(crate) const ACK_PATIENCE: u32 = 6;
/// Added to that number of acknowledgments, because the usual number is an average.
pub(crate) const ACK_PATIENCE_MORE: u32 = 4;
/// Acknowledgments, in multiples of the usual number per echo, of which one must have been echoed
/// for the peer to count as echoing at all.
pub(crate) const ACK_HEARD: u32 = 4;
/// Weight of a sample in the usual number of acknowledgments per echo: 1/8, as in the smoothed RTT.
pub(crate) const ACKS_PER_ECHO_GAIN: u16 = 8;
/// Largest sample of that number: with more, the peer stopped echoing for other reasons.
pub(crate) const ACKS_PER_ECHO_MAX: u16 = 256;

// ---- noise of hosts ----------------------------------------------------------------------------

/// Least noise of any host, in transmission times of a full packet at line rate: the datapath hands
/// over eight packets at once, and a switch forwards whole packets.
pub(crate) const NOISE_WIRES: u64 = 8;
/// One in this many batches and timers is sampled; a sample costs some 30 instructions.
pub(crate) const NOISE_EACH: u32 = 8;
/// Upward step of the ninetieth percentile, as a divisor of its value: some two hundred samples
/// lead from zero to the ceiling. Larger steps make the estimate oscillate.
pub(crate) const NOISE_RISE: u32 = 64;
/// Divisor of the upward step that gives the downward one: nine samples below balance one above,
/// which makes the estimate the ninetieth percentile.
pub(crate) const NOISE_FALL: u32 = 9;
/// Least target of queueing delay, in units of the noise. With 2, an incast at 10 Gb/s is less fair
/// (the slowest flow takes 1.21 times the least possible time, not 1.06), and a permutation takes
/// 1.19 times that time, not 1.11. Experiments matrix and shipping, as for the next four.
pub(crate) const NOISE_TARGET: u32 = 4;
/// Least reordering slack, in units of the noise: the delay target of both ends. With 5, transfers
/// of 64 KB at 10 Gb/s take 1.15 times the least possible time, not 1.06.
pub(crate) const NOISE_REORDER: u32 = 8;
/// Least wait before a lone packet is copied, in units of the noise: the same, since no other
/// packet shows its loss sooner.
pub(crate) const NOISE_HEDGE: u32 = 8;
/// Least tail-loss probe timeout, in units of the noise. With 12, hosts with noise retransmit 5 %
/// of transfers of 64 KB, not 1 %.
pub(crate) const NOISE_TAIL: u32 = 20;
/// Least retransmission timeout, in units of the noise. With 50, 12 engines per host retransmit
/// some percentage points more; a fixed timeout of 2 ms is 13 times as long as the whole transfer
/// at 100 Gb/s.
pub(crate) const NOISE_TIMEOUT: u32 = 80;

// ---- hosts -------------------------------------------------------------------------------------

/// Longest delay in hosts that more bytes in flight cover, ns: the time slice of a busy scheduler.
/// Timers cover longer ones where they are the rule.
pub(crate) const HOST_NS_MAX: u64 = 4_000_000;
/// Weight of one delay in the mean delay in hosts is 1/8, as in the smoothed RTT.
pub(crate) const HOST_MEAN_GAIN: u64 = 8;
/// Half-life of the remembered delay in hosts: a busy host is late rarely, but then by much.
pub(crate) const HOST_HALF_LIFE: Span = Span::from_ms(100);
/// Fraction of the delay in hosts that more bytes in flight cover. With all of it, our own packets
/// in the peer's socket would lengthen the delay, and the delay would let more packets out.
pub(crate) const HOST_COVERED: Share = Share(3, 4);
/// Decay per round of the remembered peak of the delivery rate.
pub(crate) const DELIVERED_KEPT: Share = Share(7, 8);
/// Inflight cap after drops in the peer's receive queue, as a fraction of the bytes in flight:
/// TCP's halving.
pub(crate) const DROP_CAP: Share = Share(1, 2);
/// Least cap after such drops, in packets.
pub(crate) const DROP_CAP_PKTS_MIN: u64 = 4;
/// Rise of that cap per round: an eighth, so that six rounds undo a halving.
pub(crate) const DROP_CAP_RISE: Share = Share(1, 8);

// ---- rounds ------------------------------------------------------------------------------------

/// Idle round trips after which the old rate says nothing about the present state of the network.
/// TCP takes one timeout (RFC 5681, section 4.1), which is 3 to 4 round trips here and made every
/// pause between messages cost a new start.
pub(crate) const RESTART_RTTS: u64 = 16;
/// Longest first round, in sums of base RTT and delay target. A longer round means that the first
/// window was too large.
pub(crate) const OPENING_RTTS: u64 = 4;
/// This many times the distance from the lower quartile to the median of the paths' queueing delays
/// is subtracted from the median as noise, up to the noise of the datapath: a shared queue delays
/// all paths alike, so what differs between them is noise.
pub(crate) const UNEVEN: u64 = 2;

// ---- the rate of the port: rule CC-44 ----------------------------------------------------------

/// Where the line rate is not told: the first guess, in bytes per second (10 Gb/s, of the range
/// from 100 Mb/s to 400 Gb/s that ports have).
pub(crate) const LINE_FIRST: u64 = 1_250_000_000;
/// The most, in bytes per second (400 Gb/s).
pub(crate) const LINE_MOST: u64 = 50_000_000_000;
/// As [`TARGET_HALVINGS_MAX`] and [`TARGET_SLOPE`] where the line rate is learnt: halvings from
/// [`LINE_MOST`] to some 100 Mb/s, and twice the target at the most.
pub(crate) const LINE_HALVINGS_MAX: u64 = 12;
/// See [`LINE_HALVINGS_MAX`].
pub(crate) const LINE_SLOPE: Share = Share(1, 12);
/// Such a line rate, in multiples of what was delivered.
pub(crate) const LINE_OVER: u64 = 2;

// ---- rate --------------------------------------------------------------------------------------

/// Least rate of any policy: one packet in this many round trips. Below it, rounds have no packets.
pub(crate) const RATE_MIN_RTTS: u64 = 8;
/// First window, in bandwidth-delay products of the base RTT: acknowledgments are coalesced, and
/// data that is sprayed at line rate meets some queue in a fabric. Experiment permutation: median
/// 190.5 us with 1.25, 188.9 with 1.4, 193.9 with 1.0.
pub(crate) const WINDOW_FIRST: Share = Share(7, 5);
/// First window where the RTT is not known yet, in bytes.
pub(crate) const WINDOW_UNKNOWN_MAX: u64 = 1 << 20;
/// Least first window, in packets.
pub(crate) const WINDOW_FIRST_PKTS_MIN: u64 = 4;
/// Least window later, in packets: if one is lost, the other one shows it.
pub(crate) const WINDOW_PKTS_MIN: u64 = 2;
/// Delay targets that the window covers on top of the base RTT: the control loop acts on the median
/// of the paths, and the cap must leave room for the slower half.
pub(crate) const WINDOW_TARGETS: Share = Share(2, 1);
/// The same while credits are in force: it bounds what a second sender adds to a full port before
/// either has heard of the other. With 1, the slowest flow of a permutation takes 1.25 times the
/// floor, not 1.18; with 2, web search flows at 60 % load lose twice as many packets. Without
/// credits, 8 senders that share a buffer become unequal with less than 2 (Jain's index 0.15).
pub(crate) const WINDOW_CREDITED: Share = Share(3, 2);
/// Largest window in bandwidth-delay products, where the delay targets amount to less.
pub(crate) const WINDOW_MOST: Share = Share(3, 2);

/// Beyond this many targets of queueing delay, the rate falls to the delivery rate.
pub(crate) const HEAVY_TARGETS: u64 = 4;
/// Targets of queueing delay that are tolerated while credits are in force. The queue then is in
/// the fabric, where path choice evens it out; slowing down would only add idle time. Experiment
/// `shipping matrix --quick --seeds 6`, share sent again and largest time of the floor, geometric
/// mean: 1.68 % and 1.847 with 1, 2.00 % and 1.816 with 2, 2.25 % and 1.835 with 3.
pub(crate) const CREDITED_TARGETS: u64 = 2;
/// Additional queueing delay tolerated for each halving of the rate below line rate, as a fraction
/// of the target. Without this slope, of two senders the one with the worse estimate of the least
/// RTT would take all of the bandwidth.
pub(crate) const TARGET_SLOPE: Share = Share(1, 4);
/// Queueing delay that is tolerated where nearly all paths have it, at line rate, as a fraction of
/// the target. 99th percentile of slowdown in the experiment poisson (web search, sockets, two
/// seeds) at 30, 60 and 80 % load: 5.1, 9.8 and 14.0 with 1/4, 5.4, 10.1 and 14.5 with 1/2. With
/// 1/4 flows to other hosts beside an incast (experiment headofline) take 1.11 of the floor, not
/// 1.07.
pub(crate) const SHARED_TARGET: Share = Share(1, 2);
/// By how many times [`TARGET_SLOPE`] each halving of the rate raises it: senders of a sixteenth of
/// the line tolerate five times as much as one that has all of it.
pub(crate) const SHARED_SLOPE: u64 = 4;
/// A shared queue counts as at most this many tolerated delays, so that it takes an eighth of the
/// rate at most ([`DECREASE`]). With 4, incasts of 48 flows of 2 MB (experiment incast) take 1.010
/// of the floor, not 1.004, and warm ones of 256 KB 1.026, not 1.014.
pub(crate) const SHARED_MOST: u64 = 2;
/// Mean deviations of round trips up to which a shared queue is not believed: on hosts that read in
/// batches the least of few round trips is no queue. With 1 instead of 2, the slowest flow of a
/// permutation on quiet hosts at 10 Gb/s takes 2.2 times the floor, not 1.9.
pub(crate) const UNSURE_DEVIATIONS: u64 = 2;
/// Most halvings that count for [`TARGET_SLOPE`].
pub(crate) const TARGET_HALVINGS_MAX: u64 = 4;
/// Loss rate in thousandths above which losses count as congestion. Random loss of a bad link stays
/// below it.
pub(crate) const HEAVY_PERMILLE: u32 = 50;
/// Fraction of the target that the queueing delay must exceed for such losses to count as overload.
pub(crate) const HEAVY_LOSS_QUEUE: Share = Share(1, 2);
/// Least rate after one cut to the delivery rate, as a fraction of the old rate. The fraction is
/// larger ([`CUT_MAX_LIMITED`]) where the sender had less to send than the rate allowed, since the
/// delivery rate then says less.
pub(crate) const CUT_MAX: Share = Share(1, 8);
/// See [`CUT_MAX`].
pub(crate) const CUT_MAX_LIMITED: Share = Share(1, 2);
/// A decrease takes away this fraction of the rate, times the part of the queueing delay that
/// exceeds the target. DCTCP halves when all packets are marked; here it is a quarter, and the next
/// round brings no decrease.
pub(crate) const DECREASE: Share = Share(1, 4);
/// A decrease starts from at most this many times the delivery rate: a higher rate was never used.
pub(crate) const USED_RATE: u64 = 2;
/// Rate after a first round in which most packets were marked, in multiples of the delivery rate.
/// With 3, some rows of the experiments shipping and matrix send 2 to 3 percentage points more
/// again. The queue of the first window is still to drain, so 1 would leave the link idle. The next
/// first window after a start that lost packets follows from the same multiple; with 1, some rows
/// take a third of their floor longer.
pub(crate) const MARKED_START: u64 = 2;
/// Share of a round's echoes beyond which all packets count as marked.
pub(crate) const MARKED_ALL: Share = Share(7, 8);
/// Rounds in a row with all packets marked, from which on marks lower the rate. A queue that the
/// sender's own start or its delay target explains is usually over before.
pub(crate) const MARKED_ROUNDS: u8 = 16;
/// What each further such round takes from the rate.
pub(crate) const MARKED_CUT: Share = Share(1, 16);
/// Rounds in a row with a steady delay above what is tolerated, after which the base RTT is that of
/// a longer way: sixteen decreases, each with a round in which its effect is seen.
pub(crate) const STALE_ROUNDS: u8 = 32;
/// The least of these delays is at least this share of the greatest, ...
pub(crate) const STALE_STEADY: Share = Share(4, 5);
/// ... and the rate fell to this share.
pub(crate) const STALE_RATE: Share = Share(1, 2);
/// Most halvings of the first window after starts that lost packets. 128 senders that start
/// together then fit; one that is alone again has its whole window after 7 round trips.
pub(crate) const START_HALVINGS_MAX: u32 = 7;
/// Rate after losses without delay, as a fraction of the old rate.
pub(crate) const LOSSY_CUT: Share = Share(17, 20);
/// A round is short when less than this fraction of the bytes sent was delivered.
pub(crate) const SHORT: Share = Share(9, 10);
/// Short rounds in a row after which the rate is reduced.
pub(crate) const SHORT_ROUNDS: u8 = 2;
/// Fraction of the target that the queueing delay must exceed for short rounds to count.
pub(crate) const SHORT_QUEUE: Share = Share(1, 4);
/// Rate after short rounds: [`SHORT_DELIVERED`] of the delivery rate, since bytes in the queue
/// still follow, but at least this fraction of the old rate.
pub(crate) const SHORT_CUT: Share = Share(19, 20);
/// See [`SHORT_CUT`].
pub(crate) const SHORT_DELIVERED: Share = Share(21, 20);
/// Packets in a round below which its delivery rate is too coarse to indicate congestion.
pub(crate) const PACKETS_TRUSTED: u64 = 8;
/// Rounds without a loss after which delay alone does not bring the rate below one burst per RTT.
pub(crate) const LOSSLESS_ROUNDS: u8 = 8;
/// A queueing delay below the target divided by this counts as no queue.
pub(crate) const CLEAR_QUEUE: u64 = 8;
/// Rounds in a row without a queue after which increases quicken by [`QUICK_STEPS`].
pub(crate) const CLEAR_ROUNDS: u8 = 4;
/// See [`CLEAR_ROUNDS`].
pub(crate) const QUICK_STEPS: u64 = 4;
/// The increase per round without any queue is the line rate divided by this. It is the same for
/// all senders whatever their rates are, which makes them converge; half of it takes twice as long.
pub(crate) const STEP_SHARE: u64 = 64;
/// Additional increase per round, in packets per base RTT: on slow lines the increase would
/// otherwise be less than what a decrease takes away.
pub(crate) const STEP_PACKET: Share = Share(3, 20);
/// Most packets given up for which a proof that they never arrived counts as a loss of now.
pub(crate) const UNSURE_MAX: u8 = 2;

// ---- what may leave, and when ------------------------------------------------------------------

/// Packets that one echo stands for: an acknowledgment has room for eight echoes, each of a burst
/// of up to eight packets on one path, and a busy receiver may acknowledge a few hundred packets at
/// once. With fewer, the sender would slow down towards such a receiver. A peer that acknowledges
/// packets it never received is sent about this many times what it did receive.
pub(crate) const ECHO_PKTS: i32 = 64;
/// Packets acknowledged beyond those that echoes stand for after which the rate is cut: half of the
/// default window. As many may be saved up, so that a receiver that stood still and then
/// acknowledges a whole window at once is not mistaken for one that invents acknowledgments.
pub(crate) const UNPROVEN_PKTS_MAX: i32 = 2048;
/// Longest burst, as time at the paced rate: it bounds what the queue of a switch gets at once. At
/// 100 Gb/s it is 250 KB, more than every configured burst.
pub(crate) const BURST: Span = Span::from_us(20);
/// Longest burst on one path, as a fraction of the inflight cap: a full window is spread over eight
/// paths at least, however fast the sender is, but a small window not in less than a turn of a
/// queue pair ([`FLOW_TURN_PKTS`]): hosts whose calls are slow lose more by small bursts than paths
/// gain. Test `bursts.rs`.
pub(crate) const PATH_BURST: Share = Share(1, 8);
/// Packets of one queue pair in a row while others wait. A burst on one path may hold several such
/// turns.
pub(crate) const FLOW_TURN_PKTS: u16 = 8;
/// What an idle port may catch up at once, as time at its rate. Threads are woken up to about 50 us
/// late; with less, a port whose engine sleeps between bursts would not be full.
pub(crate) const PORT_LAG: Span = Span::from_us(100);
/// Bytes of a packet on a cable beside what UDP carries: Ethernet with preamble and gap (38), IPv4
/// (20) and UDP (8). IPv6 has 20 more.
pub(crate) const FRAME_BYTES: u64 = 66;
/// With nothing in flight no acknowledgment brings credit: after this many round trips the first
/// window is free again.
pub(crate) const CREDIT_PATIENCE_RTTS: u64 = 2;

// ---- engines of one host -----------------------------------------------------------------------

/// Least interval between two notes that the engines of a host exchange about one address. A
/// scheduler hardly switches processes more often; at 100 Gb/s a burst of packets leaves in that
/// time.
pub(crate) const SHARE_EVERY: Span = Span::from_us(20);
/// Where round trips are long, that interval is this fraction of the smoothed RTT.
pub(crate) const SHARE_RTTS: Share = Share(1, 4);
/// An engine counts as a sender for at least this long after a note. A process that is not
/// scheduled for longer does not send either, and the other engines take its share.
pub(crate) const SHARE_STALE_MIN: Span = Span::from_ms(1);
/// And for at most this long, however low its rate is.
pub(crate) const SHARE_STALE_MAX: Span = Span::from_ms(100);

/// Packets that a receiver acknowledges together (the default of `ack.every`): for an engine that
/// sends few packets, waiting for that many makes a round longer.
pub(crate) const SHARE_ACKED_PKTS: u64 = 8;
/// Fraction of an engine's window after which it requests an acknowledgment, where several engines
/// share the host's window. Experiment matrix, permutation of 12 engines at 100 Gb/s.
pub(crate) const SHARE_ASKS: Share = Share(1, 4);
/// A longer round of such an engine counts as at most this many rounds of a single sender: a round
/// that was long because the process did not run says little about the network.
pub(crate) const SHARE_STRETCH_MAX: u64 = 4;

/// Packets that a late engine among several of its host may catch up at least. With three, 12
/// engines per host send 8 % again on quiet hosts, and with one 5 %.
pub(crate) const SHARE_LATE_PKTS: u32 = 1;

// ---- grants of a receiver ----------------------------------------------------------------------

/// Rate of all grants as a fraction of the line rate, so that the queue of the last hop drains.
pub(crate) const GRANT_SHARE: Share = Share(98, 100);
/// Packets of one grant: as many as one acknowledgment covers in the simulator.
pub(crate) const GRANT_PACKETS: u32 = 4;
/// One grant covers this many times the noise of the host at line rate, if that is more: each is an
/// acknowledgment of its own, which takes as much of the host's time as some packets. Permutation
/// on quiet hosts at 100 Gb/s, multiples of the floor: 9.45 with 1/2, 9.1 with 1, 8.9 with 2, 9.03
/// without credits.
pub(crate) const GRANT_NOISES: Share = Share(2, 1);
/// What a host was late is granted at once, up to this many times its noise: grants that are lost
/// to lateness are lost bandwidth. Incast of 2 MB on quiet hosts at 10 Gb/s, multiples of the
/// floor: 1.43 with 0, 1.00 with 4.
pub(crate) const GRANT_LATE_NOISES: u64 = 16;
/// Granted bytes that one peer may hold unused, as time at line rate: some round trips in a
/// datacenter. With longer ones it is [`GRANT_LONE_RTTS`] of them.
pub(crate) const GRANT_AHEAD: Span = Span::from_us(200);
/// Lower bound of that on slow lines, in grants.
pub(crate) const GRANT_AHEAD_MIN: u32 = 4;
/// The only sender has the last hop to itself, so its grants need no pacing: it always holds grants
/// for this many round trips, since a queue in the fabric delays both data and grants. Experiment
/// permutation: 189.7/193.6/196.4 us paced and 184.2/188.0/190.3 not.
pub(crate) const GRANT_LONE_RTTS: u64 = 2;
/// Fraction of a round trip after which a peer counts as the only sender: peers that start together
/// have been heard by then. Experiment smallincast 64 KB cold: 1.061 times the least possible time;
/// 1.40 if a peer counts as the only one from its first packet on.
pub(crate) const GRANT_LONE_AFTER: Share = Share(1, 2);
/// Longest round trip for which grants are given ahead: the longest for which the engine is made.
pub(crate) const GRANT_RTT_MAX: Span = Span::from_ms(100);
/// Silence in round trips that grants survive: who gets one after a time without sends a round trip
/// later.
pub(crate) const GRANT_STALE_RTTS: u64 = 4;
/// Grants unused for this long count as lost with packets, or not wanted.
pub(crate) const GRANT_STALE: Span = Span::from_ms(1);
/// The same as full packets on the line, for slow ones: packets that are paced at a sixteenth of
/// the line are no silence.
pub(crate) const GRANT_STALE_PKTS: u32 = 16;

// ---- a host that falls behind ------------------------------------------------------------------

/// Fraction of the receive buffer above which senders are told that the host falls behind: half, as
/// in the published design (docs/copa.md), so that packets in flight still find room.
pub(crate) const HOST_THRESHOLD: Share = Share(1, 2);
/// Upper bound of that threshold: what the host drains in this many round trips, with which the
/// buffer never runs empty. Otherwise a socket of 8 MB would hold 80 ms of data of a host that
/// takes 50 MB/s. One round trip leaves no time for the signal to arrive.
pub(crate) const HOST_THRESHOLD_RTTS: u64 = 2;
/// Lower bound of that threshold in full packets: a program reads a batch of them at once.
pub(crate) const HOST_THRESHOLD_PKTS: u64 = 16;
/// The same per sender: 12 processes that had a packet each left a third of a slow port idle, while
/// acknowledgments waited for their processes.
pub(crate) const HOST_SENDER_PKTS: u64 = 2;
/// Hysteresis: the host has caught up when the backlog is below the threshold by this fraction of
/// it, at most [`HOST_SLACK_PKTS`] packets. Without it every packet of every sender crosses the
/// threshold twice, and all senders are told each time.
pub(crate) const HOST_SLACK_SHARE: Share = Share(1, 8);
/// See [`HOST_SLACK_SHARE`].
pub(crate) const HOST_SLACK_PKTS: u64 = 4;
/// Least duration (fraction of a round trip) and least number of full packets of one measurement of
/// the drain rate: a packet is placed at once, so a few do not give a rate.
pub(crate) const DRAIN_SAMPLE: Share = Share(1, 4);
/// See [`DRAIN_SAMPLE`].
pub(crate) const DRAIN_PKTS: u64 = 8;
/// Weight of one measurement in the smoothed drain rate.
pub(crate) const DRAIN_WEIGHT: Share = Share(1, 4);
/// Round trips without a backlog after which the drain rate of the host is assumed to be twice as
/// high. A packet that has waited this long counts as backlog. Forgetting the drain rate at once
/// instead makes a host that reads with pauses announce all of its socket's room: `srd net bench
/// slowhost`.
pub(crate) const HOST_EMPTY_RTTS: u64 = 4;
/// Rate of credits in multiples of the drain rate: this at least, [`HOST_GRANT_MAX`] at most. It
/// exceeds the drain rate where the backlog is small, since only a host that has packets to take
/// shows how fast it is.
pub(crate) const HOST_GRANT_MIN: Share = Share(1, 2);
/// See [`HOST_GRANT_MIN`].
pub(crate) const HOST_GRANT_MAX: Share = Share(5, 4);
/// Drops that a peer's host reports are matched with losses declared within this many round trips.
pub(crate) const HOST_DROP_RTTS: u64 = 4;
/// Longest interval, in round trips, between two packets to a host that drains less than one of our
/// packets per round trip: 48 senders to a host at half of its link's rate wait for two. Without
/// the wait each sender sends a packet per round trip, and the host dropped a fifth of them.
/// Experiment copa-srd, 48 flows.
pub(crate) const HOST_PAUSE_RTTS_MAX: u64 = 16;
/// Waits for a host that is behind are counted in smoothed round trips, but in no more than this
/// multiple of the least one of the last 5 to 10 s. Networks whose queues are longer than three
/// round trips only see a few packets more, each alone in flight. Without the bound a leap of a
/// clock by 39 ms made a round trip of 0.1 ms one of 26 ms, and a packet left every 50 ms (fault
/// checker, seed 81000122851).
pub(crate) const HOST_RTT_LEAST_MAX: u64 = 4;
/// Least budget announced to all senders together, as a fraction of what the host drains per round
/// trip, however large the backlog is.
pub(crate) const HOST_BUDGET_MIN: Share = Share(1, 8);
/// Round trips after which a sender with nothing in flight sends a packet although the peer's host
/// was behind when last heard: the signal that it has caught up may have been lost.
pub(crate) const HOST_OPEN_RTTS: u64 = 2;
/// Round trips after which the signal of a host that was behind ends where another engine at its
/// address says otherwise: a sender with nothing in flight asks every [`HOST_OPEN_RTTS`], so that a
/// host to which something is still sent has been asked eight times. Without it an engine that
/// nothing more was sent to stopped what went to its neighbour for ever.
pub(crate) const HOST_SIGNAL_RTTS: u64 = 16;
