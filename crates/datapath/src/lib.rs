//! Packet input and output: a [`Datapath`] sends opaque UDP payloads over a path and passes
//! received ones to a closure. It does not know the protocol in them.
//!
//! A *path* is a number below [`Datapath::paths`]. Each path stands for one UDP source port, so
//! that equal-cost multipath routing in the network sends different paths over different links.
//!
//! One caller drives everything: push packets, flush, receive, wait. Only a [`Waker`] may be used
//! from other threads.
//!
//! - [`api`]: the trait and its types
//! - [`udp`]: UDP sockets, with segmentation and merging by the kernel
//! - [`mem`]: a network in memory
//! - [`route`]: interface, MTU and speed of a local address
//! - [`hops`]: the routers that packets of different source ports pass
//! - [`fault`]: injects loss, duplication, reordering and corruption into any datapath
//! - [`capture`]: records any datapath; [`pcapng`]: the format
//! - [`watch`]: shows what any datapath receives to a function
//! - [`clock`]: the process's clock
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
pub mod watch;

pub use api::{
    Counters, Datapath, Finish, RxBacklog, RxDatagram, RxReport, TooLong, TxBatch, TxPacket,
    TxPushError, TxReport, send_batch,
};
pub use part::{Part, ReleasesParts};
pub use sys::{process_cpu_ns, timer_slack_ns_set, wait_any};
pub use udp::{OpenError, UdpConfig, UdpDatapath};
pub use waker::Waker;
