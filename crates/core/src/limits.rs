//! Every bound of the engine in one place. Each has a defined, counted effect when it is reached.

use crate::time::Span;

/// Largest RDMA operation (EFA: `max_rdma_size`).
pub const RDMA_BYTES_MAX: u32 = 1 << 30;
/// Most paths per remote address.
pub const PATHS_MAX: usize = 256;
/// Queue pairs per engine: the low byte of a QPN.
pub const QPS_MAX: usize = 256;
/// Window sizes a peer may negotiate, in PSNs.
pub const WINDOW_MIN: u16 = 16;
/// See [`WINDOW_MIN`]. `una` travels as a 16-bit distance.
pub const WINDOW_MAX: u16 = 32_768;
/// Least payload of one packet.
pub const MTU_MIN: u16 = 64;
/// Send requests outstanding per engine: half of a message id is the index.
pub const WRS_MAX: usize = 1 << 16;
/// Handshake packets waiting to leave; more are dropped.
pub const CONTROL_QUEUE_MAX: usize = 1024;
/// Addresses of which other engines of the host wait to hear; of others they hear later.
pub const SHARES_MAX: usize = 4096;
/// Answers to strangers (Challenges and Resets) waiting to leave; more are dropped. They leave
/// behind everything else.
pub const STRANGERS_QUEUE_MAX: usize = 256;
/// Resets to strangers in a row. A peer that got none asks again, with the next packet.
pub const STRANGER_RESETS_MAX: u32 = 256;
/// One more may leave each time that this has passed: 10,000 a second, 6 Mb/s.
pub const STRANGER_RESET_EVERY: Span = Span::from_us(100);
/// A peer is asked at most this often whether it still has a context, whoever says that it has not.
pub const DOUBT_EVERY: Span = Span::from_ms(100);
/// Challenges that a peer which has taken leave can answer, each after twice the time, before it
/// counts as gone: 155 ms with the 5 ms of `open_retry` on sockets.
pub const GOODBYE_CHALLENGES: u32 = 5;
/// Transmission numbers refused in a row, with the tag of the context and a likely PSN, before the
/// peer is asked for its present one. A network rarely doubles so many packets with none between.
pub const REPLAYS_MAX: u32 = 16;
/// Async events waiting to be read; more are dropped and counted.
pub const EVENTS_MAX: usize = 1024;
/// GRH area in front of a UD message (verbs: `struct ibv_grh`).
pub const GRH_BYTES: u32 = 40;
/// `rnr_retry` value that means "for ever" (verbs).
pub const RNR_RETRY_INFINITE: u8 = 7;
/// `rnr_retry` value of this project that means "long, but not for ever".
pub const RNR_RETRY_LONG: u8 = 8;
/// Retries that [`RNR_RETRY_LONG`] stands for. With back-offs of 10 to 20 ms
/// ([`crate::config::RnrConfig`]) they take a minute: time for a program that computes between two
/// receives, while a peer that waits in vain for one that is gone ends in bounded time.
pub const RNR_ROUNDS_LONG: u16 = 4_000;
/// Cookies of a challenge are good for one to two of these.
pub const COOKIE_LIFETIME: Span = Span::from_secs(8);
/// Memory regions per engine.
pub const MRS_MAX: usize = 1 << 20;
/// Keys that no region ever had, judged in a row: what a program that has its keys wrong sends
/// before it notices. Beyond them, requests for memory from contexts that sent such keys are
/// dropped unjudged, so that guessing takes time: 2^24 guesses take 37 hours.
pub const KEY_GUESSES_MAX: u32 = 1024;
/// One more of them is judged each time that this has passed.
pub const KEY_GUESS_EVERY: Span = Span::from_ms(8);
/// Wrong keys of one peer that are kept in mind, so that the packets of one wrong request are one
/// guess, however many there are: those of requests that are under way together, few as a rule.
pub const WRONG_KEYS_MAX: usize = 8;
/// Messages of one peer, given up by it, that are kept in mind while something it sent before is
/// missing: each segment of a write with immediate is compared with them. Four round trips of what
/// a peer may have under way by default; a Cancel beyond them is neither taken nor acknowledged,
/// and comes again.
pub const CANCELLED_MAX: usize = 256;
/// Addresses (IPv6: /64 networks) that guessed a key lately, and how long they are kept in mind. A
/// context that begins with one of them has no guess for nothing; nor has any while these are all.
/// So at most as many guesses as are addresses here come for nothing in an hour, and one for each
/// context that was there before: 2^24 guesses still take 37 hours.
pub const GUESSERS_MAX: usize = 1024;
/// See [`GUESSERS_MAX`].
pub const GUESSERS_KEPT: Span = Span::from_secs(3600);
/// Steps of work after which [`crate::Engine::handle_timeout`] leaves the timers that are still due
/// to its next call: some 0.1 us to 1 us each, so that one call stays below a millisecond however
/// many peers fall silent at once. The timer that passes the bound is not cut short; it may take as
/// many steps as its peer has packets and requests outstanding.
pub const TIMER_STEPS_MAX: u64 = 512;
/// Steps that a peer counts for which is forgotten: all its tables are freed.
pub const FORGET_STEPS: u64 = 4;
/// Contexts whose timers one call sets anew, some 0.15 us each; more wait for the next call.
pub const REARMS_MAX: usize = 1024;
/// Transmissions of one packet after the first, with the peer alive, before its request is given
/// up: what never arrives (a path MTU that is too small) must not be sent for ever. As many again,
/// without content, and the context is given up.
pub const RETRANSMITS_MAX: u8 = 100;
/// How many of these may pass while it is asked whether packets of that size can arrive at all.
/// More are not counted then: enough for the longest wait between two (`tx/loss.rs`), and so few
/// that as many are left when the answer is that they can.
pub const RETRANSMITS_DOUBTED_MAX: u8 = RETRANSMITS_MAX / 2;
/// Transmissions of a context that are kept in mind for echoes, beyond twice those in flight: 32
/// KiB, what the first cache of a processor holds. More within one round trip leave no sample.
pub const SENT_LOG_MAX: usize = 4096;
/// For so long at least, while they are no more: the longest timeout by default. What all contexts
/// keep in mind is what the engine has sent in that time: 0.8 MB at a million packets per second,
/// twice that with the room to grow.
pub const SENT_LOG_SPAN: Span = Span::from_ms(100);
/// Transmission numbers this far below the newest are refused as replays, and this far above it as
/// ones that the peer may not have used: it is asked then.
pub const REPLAY_WINDOW: u64 = 8192;
/// A read that is served loses its place when another one is wanted, there is none, and it got less
/// than [`READ_BYTES_PER_SEC_MIN`] for so long: a third of the 30 s for which a requester bears to
/// be told "busy" ([`crate::config::LossConfig::busy_after`]).
pub const READ_PATIENCE: Span = Span::from_secs(10);
/// See [`READ_PATIENCE`]: 512 kb/s. To keep all of 4,096 places a peer has to take 2.1 Gb/s. On
/// slow lines it is less: one in [`READ_LINE_SHARE`] of what each gets when all places are taken
/// and the line is shared equally.
pub const READ_BYTES_PER_SEC_MIN: u64 = 64 << 10;
/// See [`READ_BYTES_PER_SEC_MIN`].
pub const READ_LINE_SHARE: u64 = 4;
/// Reads that a request which finds no place looks at: 64 such requests have seen all of 4,096.
pub const READS_LOOKED_MAX: usize = 64;
/// Reads that lose their places in one turn at most.
pub const READS_SLOW_MAX: usize = 8;
/// Packets of full size whose payload pays for a whole `loss.rto_max` of a sender's share in the
/// receive budget ([`crate::EngineConfig::rx_budget_bytes`]): what every sender may have in flight
/// whatever its share, so that whoever sends with round trips below that time keeps it.
pub const CLAIM_PKTS: u32 = 2;
/// Addresses of one IPv4 /24 or IPv6 /64 that count in the receive budget, beside other networks:
/// whoever holds a network takes as much from others as so many hosts do. More would cost an honest
/// sender more; with fewer, the hosts of a large network get less than those of a small one.
pub const CLAIM_ADDRESSES_MAX: u32 = 4;
