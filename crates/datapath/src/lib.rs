//! How packets enter and leave: a [`Datapath`] takes opaque UDP payloads with a path index and
//! hands received ones to a closure. It knows nothing of the protocol in them.
//!
//! A *path* is a number below [`Datapath::paths`]. Each path stands for one UDP source port, so
//! that equal-cost multipath routing in the network sends different paths over different links.
//!
//! Everything is driven by one caller: push packets, flush, receive, wait. Only a [`Waker`] may be
//! used from other threads.
//!
//! - [`api`]: the trait and its types
//! - [`udp`]: UDP sockets, with segmentation and merging by the kernel
//! - [`mem`]: a network in memory
//! - [`route`]: MTU, interface and speed of the way to a peer
//! - [`hops`]: which routers packets of different source ports pass
//! - [`fault`]: loses, repeats, reorders and corrupts packets of any datapath, on purpose
//! - [`capture`]: records any datapath; [`pcapng`]: the format
//! - [`clock`]: the clock
#![deny(unsafe_code)]

pub mod api;
pub mod capture;
pub mod clock;
mod event;
pub mod fault;
pub mod hops;
pub mod mem;
mod part;
pub mod pcapng;
pub mod route;
mod sync;
mod sys;
pub mod udp;
mod waker;

pub use api::{
    Counters, Datapath, Finish, RxDatagram, RxReport, TooLong, TxBatch, TxPacket, TxPushError,
    TxReport, send_batch,
};
pub use part::{Part, ReleasesParts};
pub use sys::{process_cpu_ns, timer_slack_ns_set};
pub use udp::{OpenError, UdpConfig, UdpDatapath};
pub use waker::Waker;
