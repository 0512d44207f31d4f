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
/// Send requests outstanding per engine: half of a message id is the index.
pub const WRS_MAX: usize = 1 << 16;
/// Handshake packets (answers to strangers) waiting to leave; more are dropped.
pub const CONTROL_QUEUE_MAX: usize = 1024;
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
/// Steps of work after which [`crate::Engine::handle_timeout`] leaves the timers that are still due
/// to its next call: some 0.1 us to 1 us each, so that one call stays below a millisecond however
/// many peers fall silent at once. The timer that passes the bound is not cut short; it may take as
/// many steps as its peer has packets and requests outstanding.
pub const TIMER_STEPS_MAX: u64 = 512;
/// Transmissions of one packet after the first, with the peer alive, before its request is given
/// up: what never arrives (a path MTU that is too small) must not be sent for ever.
pub const RETRANSMITS_MAX: u8 = 100;
/// Transmission numbers this far below the newest are refused as replays.
pub const REPLAY_WINDOW: u64 = 8192;
