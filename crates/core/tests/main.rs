//! All integration tests of this crate: one program, because each program is linked by itself.

mod common;

mod attack;
mod beliefs;
mod bursts;
mod contexts;
mod copies;
mod dead_peers;
mod figures;
mod forged;
mod found_by_seeds;
mod guards;
mod handles;
mod integrity;
mod late_hosts;
mod late_receiver;
mod law;
mod liars;
mod lies;
mod life;
mod messages;
mod mtu;
mod narrow;
mod newest;
mod port;
mod probes;
mod rdma;
mod renewal;
mod renewal_lies;
mod reviewed;
mod sealed;
mod shared_address;
mod shares;
mod silent_peers;
mod slow_host;
mod storms;
