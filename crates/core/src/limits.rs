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
/// Cookies of a challenge are good for one to two of these.
pub const COOKIE_LIFETIME: Span = Span::from_secs(8);
/// Transmissions of one packet after the first, with the peer alive, before its request is given
/// up: what never arrives (a path MTU that is too small) must not be sent for ever.
pub const RETRANSMITS_MAX: u8 = 100;
/// Transmission numbers this far below the newest are refused as replays.
pub const REPLAY_WINDOW: u64 = 8192;
