//! Computed rates for applications that alternate between computation and communication: each flow
//! gets the share w_f / W_f of the line rate, where w_f is its size and W_f the largest sum of
//! sizes on a link of its path, so that a phase ends in the least time that the paths permit.
//!
//! After V. Zdornov, Y. Birk, "Improving Communication-Phase Completion Times in HPC Clusters
//! Through Congestion Mitigation" (SYSTOR 2009). `docs/saa.md` lists the decisions that their
//! slides leave open.
#![forbid(unsafe_code)]

mod assign;
mod control;
mod fluid;
mod host;
mod inject;
mod phase;
mod static_load;
mod weight;

pub use assign::{Assignment, Rate, optimal};
pub use control::{
    CONTROL_BYTES, Control, ControlCounters, Event, FLOW_MAX, FlowControl, NotControl, Numbers,
    State,
};
pub use fluid::{Fluid, run as fluid_run};
pub use host::{ANNOUNCE, ASK, Rates, SaaConfig, SaaHost, SaaPacket};
pub use inject::{Injection, Pacer};
pub use phase::{Arrival, Phase, PhaseFlow, RateTimes};
pub use static_load::{Congestion, StaticLoad};
pub use weight::{LinkWeights, Paths};
