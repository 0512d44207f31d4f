//! What the applications of a world do.

/// Kinds of applications. A world runs one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// Many tiny messages, many in flight.
    Tiny,
    /// Few large RDMA writes and reads.
    Huge,
    /// All operations, many of them with immediate data.
    MixedImm,
    /// Few receives, posted late.
    Rnr,
    /// Queue pairs, address handles and regions are created and destroyed while in use.
    Churn,
    /// Engines are killed and restarted; packets of former incarnations return.
    Restart,
    /// Every engine sends to every other one.
    AllToAll,
    /// Two engines per host share one path context per peer address.
    Shared,
    /// Hosts stand still for a while.
    Stall,
    /// Unreliable datagrams among reliable messages.
    Datagrams,
    /// All engines send to one.
    Incast,
    /// A little work between long pauses: contexts become idle and wake up.
    Idle,
    /// More peers than the context table holds: contexts are closed and reopened.
    Crowd,
    /// Multi-packet messages are cancelled while their packets are in flight.
    GiveUp,
    /// Several engines per host behind one small cap on the bytes in flight to an address.
    Capped,
    /// Some members do not follow the protocol; see `hostile`.
    Hostile,
    /// A sealed world; the applications of other worlds are not used.
    Sealed,
    /// A crowded world; the applications of other worlds are not used.
    Bottleneck,
}

/// Parameters of a workload.
#[derive(Clone, Copy, Debug)]
pub struct Profile {
    /// Weights of send, send with immediate, write, write with immediate, read, datagram.
    pub ops: [u32; 6],
    /// Weights of lengths: empty, tiny, one packet, several packets, many packets.
    pub lens: [u32; 5],
    /// Messages of one engine.
    pub messages: u32,
    /// Most requests posted at once.
    pub burst: u32,
    /// Largest pause between steps of an application, in ns.
    pub pause_ns: u64,
    /// Receives kept posted per queue pair.
    pub receives: u32,
    /// Two engines per host.
    pub two_slots: bool,
    /// Every engine sends to host 0.
    pub incast: bool,
    /// Churn steps that destroy an object, in percent.
    pub churn: u64,
    /// Objects of host 0 do not churn.
    pub steady: bool,
}

impl Workload {
    /// Workloads of which each seed draws one.
    pub const ALL: [Self; 13] = [
        Self::Tiny,
        Self::Huge,
        Self::MixedImm,
        Self::Rnr,
        Self::Churn,
        Self::Restart,
        Self::AllToAll,
        Self::Shared,
        Self::Stall,
        Self::Datagrams,
        Self::Incast,
        Self::Idle,
        Self::Crowd,
    ];

    /// Workloads that a share of the seeds gets instead; see `focus.rs`.
    pub const FOCUSED: [Self; 2] = [Self::GiveUp, Self::Capped];

    /// Its parameters.
    pub const fn profile(self) -> Profile {
        let base = Profile {
            ops: [40, 15, 15, 10, 15, 5],
            lens: [5, 30, 40, 20, 5],
            messages: 60,
            burst: 6,
            pause_ns: 60_000,
            receives: 16,
            two_slots: false,
            incast: false,
            churn: 25,
            steady: false,
        };
        match self {
            Self::Tiny => Profile {
                ops: [80, 15, 5, 0, 0, 0],
                lens: [10, 80, 10, 0, 0],
                messages: 200,
                burst: 40,
                receives: 48,
                ..base
            },
            Self::Huge => Profile {
                ops: [0, 0, 45, 10, 45, 0],
                lens: [0, 0, 5, 25, 70],
                messages: 10,
                burst: 2,
                ..base
            },
            Self::MixedImm => Profile { ops: [10, 30, 10, 40, 10, 0], receives: 6, ..base },
            Self::Rnr => Profile { ops: [40, 20, 5, 35, 0, 0], receives: 2, burst: 8, ..base },
            Self::Churn => Profile {
                ops: [25, 10, 15, 30, 15, 5],
                lens: [5, 10, 25, 50, 10],
                messages: 80,
                ..base
            },
            Self::Restart | Self::Hostile | Self::Sealed | Self::Bottleneck => base,
            Self::AllToAll => Profile { messages: 40, ..base },
            Self::Shared => Profile { two_slots: true, messages: 40, ..base },
            Self::Stall => Profile { messages: 50, ..base },
            Self::Datagrams => Profile { ops: [25, 10, 10, 5, 10, 40], ..base },
            Self::Incast => Profile { incast: true, burst: 12, ..base },
            Self::Idle => Profile { messages: 30, burst: 3, pause_ns: 2_000_000, ..base },
            Self::Crowd => {
                Profile { two_slots: true, messages: 25, burst: 3, pause_ns: 400_000, ..base }
            }
            Self::GiveUp => Profile {
                ops: [5, 5, 0, 70, 20, 0],
                lens: [0, 0, 10, 70, 20],
                messages: 100,
                burst: 8,
                pause_ns: 20_000,
                incast: true,
                churn: 60,
                steady: true,
                ..base
            },
            Self::Capped => Profile {
                // A host that only serves reads has nothing outstanding that would make it retry.
                ops: [15, 5, 5, 5, 70, 0],
                lens: [0, 20, 30, 45, 5],
                messages: 30,
                incast: true,
                ..base
            },
        }
    }
}
