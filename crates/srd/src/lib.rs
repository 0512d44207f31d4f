//! Devices, queue pairs and completion queues over software SRD: reliable datagrams, RDMA reads
//! and writes between any two hosts with an IP network in between, sprayed over many paths.
//!
//! The objects and their meanings are those of verbs and of EFA: a [`Device`] makes
//! [`ProtectionDomain`]s and [`CompletionQueue`]s; a protection domain makes [`MemoryRegion`]s,
//! [`AddressHandle`]s and [`QueuePair`]s. One queue pair reaches any number of peers. A message
//! ([`SendWr::send`]) is one datagram of at most the device's MTU, delivered at most once and in
//! no order; RDMA operations go up to 1 GiB. A send completes when the peer has accepted it, or
//! with the reason why not ([`Status`]).
//!
//! ```
//! use srd::{Access, Device, DeviceConfig, Progress, QKey, QpInit, RecvWr, SendWr};
//! use std::time::Duration;
//!
//! let open = || {
//!     let mut config = DeviceConfig::loopback();
//!     config.progress = Progress::Thread { spin: Duration::ZERO };
//!     Device::open(config)
//! };
//! let (a, b) = (open()?, open()?);
//! let (pd_a, pd_b) = (a.pd_create()?, b.pd_create()?);
//! let (cq_a, cq_b) = (a.cq_create(16)?, b.cq_create(16)?);
//! let qp_a = pd_a.qp_create(&QpInit::srd(&cq_a, &cq_a))?;
//! let qp_b = pd_b.qp_create(&QpInit::srd(&cq_b, &cq_b))?;
//! qp_a.activate(QKey(1))?;
//! qp_b.activate(QKey(1))?;
//!
//! // A message goes into the memory of a receive that was posted before.
//! let to_b = pd_a.ah_create(b.ip())?;
//! let inbox = pd_b.mr_allocate(64, Access::LOCAL_WRITE)?;
//! qp_b.post_recv(&RecvWr::recv(3).sges(&[inbox.sge(0, 64)]))?;
//! qp_a.post_send(&SendWr::send(4, &to_b, qp_b.qpn(), QKey(1)).inline(b"hello"))?;
//! let sent = cq_a.wait(Duration::from_secs(20))?.expect("in time").ok()?;
//! let got = cq_b.wait(Duration::from_secs(20))?.expect("in time").ok()?;
//! assert_eq!((sent.wr_id, got.wr_id, got.byte_len), (4, 3, 5));
//! assert_eq!(inbox.to_vec(0, 5)?, b"hello");
//!
//! // RDMA needs an address handle for the requester at the responder.
//! let _to_a = pd_b.ah_create(a.ip())?;
//! let source = pd_a.mr_allocate(1 << 20, Access::LOCAL_WRITE)?;
//! let target = pd_b.mr_allocate(1 << 20, Access::ALL)?;
//! source.write_at(0, &[0xAB; 1 << 20])?;
//!
//! // Write a mebibyte into B's memory, then read half of it back.
//! let write = SendWr::write(1, &to_b, qp_b.qpn(), QKey(1)).remote(target.addr(), target.rkey());
//! qp_a.post_send(&write.sges(&[source.sge(0, 1 << 20)]))?;
//! cq_a.wait(Duration::from_secs(20))?.expect("in time").ok()?;
//! assert_eq!(target.to_vec(0, 1 << 20)?, [0xAB; 1 << 20]);
//!
//! target.write_at(0, &[0xCD; 1 << 19])?;
//! let read = SendWr::read(2, &to_b, qp_b.qpn(), QKey(1)).remote(target.addr(), target.rkey());
//! qp_a.post_send(&read.sges(&[source.sge(0, 1 << 19)]))?;
//! cq_a.wait(Duration::from_secs(20))?.expect("in time").ok()?;
//! assert_eq!(source.to_vec(0, 1 << 19)?, [0xCD; 1 << 19]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Two processes tell each other a [`PeerInfo`], and a [`RemoteMemory`] for RDMA, as text: the
//! example `pair` does so over TCP (`cargo run -p srd --example pair`).
//!
//! # Waiting
//!
//! [`CompletionQueue::wait`] sleeps for a completion, [`CompletionQueue::poll`] does not; a
//! [`CompletionChannel`] has a descriptor for `poll` and `epoll`. With the feature `async`, which
//! is on by default and brings no dependency, [`CompletionQueue::next`], [`Device::event_next`]
//! and [`PathEvents::next`] are futures for any executor: the example `tasks` is two processes
//! under tokio (`cargo run -p srd --example tasks`). [`Progress`] advises on who should drive the
//! device, and [`Status`] on what to do about requests that failed.
//!
//! # How it runs
//!
//! The *turn* is the one function in which an engine without I/O ([`srd_core`]) and a datapath
//! ([`srd_datapath`]) meet: it takes posted requests from the rings, receives packets, runs timers,
//! sends packets and puts completions into the rings. A thread of the device takes turns, or the
//! caller does ([`Progress`]). Posting threads and the turn share only bounded single-producer
//! rings and counted slots.
//!
//! One engine runs on one processor at a time. A device may have several
//! ([`DeviceConfig::shards`]), each for some of its queue pairs; completion queues, regions and
//! address handles serve all of them.

mod ah;
mod arrivals;
mod budget;
mod callers;
mod cancel;
mod channel;
mod completion;
mod config;
mod copy;
mod cork;
mod counter;
mod counters;
mod cq;
mod crowd;
mod deliver;
mod denied;
mod device;
mod dirty;
mod driving;
mod entropy;
mod error;
mod eventfd;
mod events;
mod failed;
mod few;
mod fork;
mod interface;
mod key_watch;
mod keys;
mod logging;
mod mem;
mod mirror;
mod mr;
mod nic;
mod open;
mod path_events;
mod paths_control;
mod pd;
mod peer_info;
mod place;
mod post;
mod posts;
mod qp;
mod queue;
mod rails;
mod regions;
mod rest;
mod sealing;
mod settings;
mod shard;
mod shards;
mod share;
mod status;
mod sync;
mod taker;
#[cfg(feature = "async")]
mod tasks;
#[cfg(not(feature = "async"))]
#[path = "no_tasks.rs"]
mod tasks;
mod thread;
mod turn;
mod wait;
#[cfg(feature = "async")]
mod wakers;

pub use ah::AddressHandle;
pub use cancel::Uncancelled;
pub use channel::{CompletionChannel, CqEvent};
pub use completion::{CompletionError, CompletionOp, WorkCompletion, status_text};
pub use config::{
    Bind, DatapathWrap, DeviceAttr, DeviceConfig, EngineTune, PortAttr, Progress, SecretsSink,
    UdpTune, caps, gid_from_ip, ip_from_gid,
};
pub use counter::{COUNTERS_MAX, CompletionCounter, CountedOp};
pub use counters::{DeviceCounters, PARSE_ERROR_KINDS};
pub use cq::{CompletionQueue, CqInit};
pub use device::Device;
pub use error::{DeviceError, Error, PostError};
pub use events::AsyncEvent;
pub use interface::{InterfaceAddress, interface_addresses};
pub use keys::{Access, LKey, QKey, RKey};
pub use logging::log_from_env;
pub use mr::{MemoryRegion, Sge};
pub use path_events::{PATH_EVENTS_MAX, PathEvent, PathEvents, PathState};
pub use pd::ProtectionDomain;
pub use peer_info::{PeerInfo, PeerInfoError, RemoteMemory};
pub use post::{Data, Faults, RecvWr, SendWr};
pub use qp::{QpAttr, QpInit, QpModify, QueuePair};
pub use queue::{
    CQ_DEPTH_MAX, CQS_MAX, INLINE_BYTES_DEFAULT, INLINE_BYTES_MAX, QUEUE_DEPTH_MAX, RECV_SGES_MAX,
    SEND_SGES_MAX,
};

pub use rails::Rails;
pub use sealing::SealStatus;
pub use settings::{SETTINGS_FILE, SettingsFile, setting, settings_file};
pub use shards::SHARDS_MAX;
pub use srd_core::{
    AhId, CloseCode, ContextStats, CqId, Endpoint, Opcode, PdId, QpState, QpType, Qpn, Span,
    Status,
    config::{HostPolicy, PORT_BASE_DEFAULT, PathPolicy, RatePolicy},
    limits::{GRH_BYTES, RDMA_BYTES_MAX, RNR_RETRY_INFINITE, RNR_RETRY_LONG},
    path::PathStats,
};
pub use srd_datapath as datapath;
pub use srd_seal as seal;
