//! Bounds of the engine's memory and work. Reaching one has a defined, counted effect.

use crate::time::Span;

/// Largest RDMA operation in bytes (EFA: `max_rdma_size`).
pub const RDMA_BYTES_MAX: u32 = 1 << 30;
/// Most paths per remote address: a path is 8 bits of source-port entropy.
pub const PATHS_MAX: usize = 256;
/// Most rails, as the sockets have them: networks by which paths leave in turn.
pub const RAILS_MAX: usize = 4;
/// Most addresses with denied paths ([`crate::Engine::paths_deny`]): as many as the host's control
/// file of paths has room for. Each keeps the state of its paths while it is idle, some 16 KiB.
pub const DENIALS_MAX: usize = 128;
/// Most probes that may wait for [`crate::Engine::paths_probe`] to order more: those of eight
/// addresses with all their paths.
pub const PROBES_ORDERED_MAX: usize = 8 * PATHS_MAX;
/// Most queue pairs per engine: the index is the low byte of a QPN.
pub const QPS_MAX: usize = 256;
/// Least window that a peer may negotiate, in PSNs.
pub const WINDOW_MIN: u16 = 16;
/// Largest window that a peer may negotiate, in PSNs: packets carry `una` as a 16-bit distance.
pub const WINDOW_MAX: u16 = 32_768;
/// Least configurable payload of one packet in bytes.
pub const MTU_MIN: u16 = 64;
/// Most outstanding send requests per engine: the index takes half of the bits of a message id.
pub const WRS_MAX: usize = 1 << 16;
/// Most handshake packets in the send queue; more are dropped.
pub const CONTROL_QUEUE_MAX: usize = 1024;
/// Most queued notes to the other engines of the host, one per address; further notes are sent
/// later.
pub const SHARES_MAX: usize = 4096;
/// Most queued answers to peers without a context (Challenges and Resets); more are dropped. They
/// are sent after everything else.
pub const STRANGERS_QUEUE_MAX: usize = 256;
/// Most Resets in a row to peers without a context (a token bucket, half of which is kept for
/// addresses that have had none lately). A peer that got none triggers another one with its next
/// packet.
pub const STRANGER_RESETS_MAX: u32 = 256;
/// Interval at which one more such Reset may be sent: 10,000 a second, 6 Mb/s.
pub const STRANGER_RESET_EVERY: Span = Span::from_us(100);
/// How long two addresses that share one 128th of these Resets go on sharing it: then they are
/// mixed anew, so that nobody stays beside an address that floods. An Open is repeated for longer.
pub const STRANGERS_MIXED_EVERY: Span = Span::from_secs(1);
/// When a peer has refused the seal of an Open, or the want of one, and has not accepted it for
/// this long, requests end with status 15: long enough for hosts whose key files change one after
/// the other, and short beside the time that a silent peer has.
pub const REFUSED_AFTER: Span = Span::from_secs(3);
/// Least interval between two checks whether a peer still has a context, however many packets claim
/// that it has not.
pub const DOUBT_EVERY: Span = Span::from_ms(100);
/// Challenges without an answer, at doubling intervals, after which a peer that has announced its
/// end counts as gone: 155 ms with the 5 ms of `open_retry` on sockets.
pub const GOODBYE_CHALLENGES: u32 = 5;
/// Consecutive packets with the context's tag and a plausible PSN whose transmission numbers are
/// refused, after which the peer is asked for its present number. A network rarely duplicates so
/// many packets with no new one in between.
pub const REPLAYS_MAX: u32 = 16;
/// Most queued asynchronous events; more are dropped and counted.
pub const EVENTS_MAX: usize = 1024;
/// Bytes of the GRH area in front of a received UD message (verbs: `struct ibv_grh`).
pub const GRH_BYTES: u32 = 40;
/// `rnr_retry` value that means "for ever" (verbs).
pub const RNR_RETRY_INFINITE: u8 = 7;
/// `rnr_retry` value of this project that means "long, but not for ever".
pub const RNR_RETRY_LONG: u8 = 8;
/// Number of retries that [`RNR_RETRY_LONG`] stands for. With back-offs of 10 to 20 ms
/// ([`crate::config::RnrConfig`]) they take a minute: enough for a receiving program that computes
/// before it posts its next receive, while a sender whose receiver is gone ends in bounded time.
pub const RNR_ROUNDS_LONG: u16 = 4_000;
/// A cookie of a Challenge is valid for one to two times this long.
pub const COOKIE_LIFETIME: Span = Span::from_secs(8);
/// Most memory regions per engine.
pub const MRS_MAX: usize = 1 << 20;
/// Most requests in a row, with keys that no region ever had, that are judged (a token bucket): as
/// many as a faulty program sends before it notices. Beyond them, RDMA requests from contexts that
/// sent such keys are dropped unjudged, so that guessing takes time: 2^24 guesses take 37 hours.
pub const KEY_GUESSES_MAX: u32 = 1024;
/// Interval at which one more such request is judged.
pub const KEY_GUESS_EVERY: Span = Span::from_ms(8);
/// Wrong keys remembered per peer, so that all packets of one wrong request count as one guess: as
/// many as there usually are requests in flight together.
pub const WRONG_KEYS_MAX: usize = 8;
/// Cancelled messages remembered per peer while packets that it sent before the Cancel are missing:
/// each segment of a write with immediate is compared with them. They are four times what a peer
/// may have in flight by default; a further Cancel is neither accepted nor acknowledged, and is
/// retransmitted.
pub const CANCELLED_MAX: usize = 256;
/// Most remembered addresses (IPv6: /64 networks) that recently guessed a key. The first wrong key
/// of a context is free, except for contexts with a remembered address and, while the table is
/// full, for all new contexts. So the free guesses in an hour are at most as many as this table's
/// entries, and one for each older context: 2^24 guesses still take 37 hours.
pub const GUESSERS_MAX: usize = 1024;
/// How long the addresses of [`GUESSERS_MAX`] are remembered.
pub const GUESSERS_KEPT: Span = Span::from_secs(3600);
/// Steps of work, of some 0.1 us to 1 us each, after which [`crate::Engine::handle_timeout`] leaves
/// further due timers to its next call, so that one call stays below a millisecond however many
/// peers fall silent at once. The timer that exceeds the bound is completed; it may take as many
/// steps as its peer has packets and requests outstanding.
pub const TIMER_STEPS_MAX: u64 = 512;
/// Steps that dropping a silent peer counts for: all its tables are freed.
pub const FORGET_STEPS: u64 = 4;
/// Most contexts whose timers one call recalculates, some 0.15 us each; more wait for the next
/// call.
pub const REARMS_MAX: usize = 1024;
/// Retransmissions of one packet to a live peer before its request is given up: a packet that never
/// arrives (because the path MTU is too small) must not be sent for ever. After as many again,
/// without content, the context is given up.
pub const RETRANSMITS_MAX: u8 = 100;
/// Most of these retransmissions that count during a search for the path MTU. It is enough to reach
/// the longest interval between two (`tx/loss.rs`), and leaves as many for afterwards, if packets
/// of that size do pass.
pub const RETRANSMITS_DOUBTED_MAX: u8 = RETRANSMITS_MAX / 2;
/// Transmissions remembered per context for matching echoes, if that is more than twice the packets
/// in flight: 32 KiB, the size of an L1 cache. If more leave within one round trip, some give no
/// RTT sample.
pub const SENT_LOG_MAX: usize = 4096;
/// Least time for which a transmission is remembered, within that number: the longest timeout by
/// default. All contexts together remember what the engine sent in that time: 0.8 MB at a million
/// packets per second, twice that with the room to grow.
pub const SENT_LOG_SPAN: Span = Span::from_ms(100);
/// Width of the replay window: transmission numbers this far below the newest are refused as
/// replays. Numbers this far above it are refused as well, and the peer is asked for its present
/// number.
pub const REPLAY_WINDOW: u64 = 8192;
/// A read being served loses its place to a new one, if all places are taken and it progressed at
/// less than [`READ_BYTES_PER_SEC_MIN`] for this long: a third of the 30 s for which a requester
/// accepts the answer "busy" ([`crate::config::LossConfig::busy_after`]).
pub const READ_PATIENCE: Span = Span::from_secs(10);
/// Least progress of a read ([`READ_PATIENCE`]) in bytes per second: 512 kb/s. To keep all of 4,096
/// places, peers have to take 2.1 Gb/s. On slow lines it is less: 1 / [`READ_LINE_SHARE`] of an
/// equal share of the line when all places are taken.
pub const READ_BYTES_PER_SEC_MIN: u64 = 64 << 10;
/// Divisor for slow lines; see [`READ_BYTES_PER_SEC_MIN`].
pub const READ_LINE_SHARE: u64 = 4;
/// Reads that a request without a free place examines for slow ones: 64 such requests examine all
/// 4,096.
pub const READS_LOOKED_MAX: usize = 64;
/// Most reads that lose their places in one turn.
pub const READS_SLOW_MAX: usize = 8;
/// Full packets whose payload keeps a sender's share of the receive budget
/// ([`crate::EngineConfig::rx_budget_bytes`]) for one `loss.rto_max`. Every sender may have this
/// many in flight whatever its share, so a sender with shorter round trips keeps its share.
pub const CLAIM_PKTS: u32 = 2;
/// Most addresses of one IPv4 /24 or IPv6 /64 that count in the receive budget: the owner of a
/// whole network takes no more from others than this many hosts. With more, an honest sender would
/// lose more; with fewer, the hosts of a large network get less than those of a small one.
pub const CLAIM_ADDRESSES_MAX: u32 = 4;
