//! Memory that an engine holds for one peer, and its maximum.
//!
//! Memory for the work of the local program (requests, queue pairs, regions, completion queues) is
//! that program's choice and is not counted, except for the lists that refer to it by peer.

use crate::config::EngineConfig;
use crate::engine::Engine;
use crate::events::Observer;
use crate::limits::QPS_MAX;
use crate::path::table::PathEntry;
use crate::path::{PathContext, PathMtu};
use crate::peer::handshake::Handshake;
use crate::peer::read_job::ReadJobs;
use crate::peer::scoreboard::Scoreboard;
use crate::peer::send_queues::SendQueues;
use crate::peer::sent_log::SentLog;
use crate::peer::verdicts::Verdicts;
use crate::peer::window::RxWindow;
use crate::peer::write_imm::ImmTable;
use crate::peer::{Context, Window};
use crate::psn::Psn;

/// Bytes of one peer's entries in shared tables: context, tag, address, timer, share of the receive
/// budget, network. Counted twice, because tables grow by doubling.
const TABLES_BYTES: usize = 2 * (6 * size_of::<u64>() + 9 * size_of::<u64>());

impl Window {
    /// Memory held by the window state, itself included, in bytes.
    fn held_bytes(&self) -> usize {
        size_of::<Self>()
            + self.board.held_bytes()
            + self.sent_log.held_bytes()
            + self.rx_window.held_bytes()
            + self.replay.held_bytes()
            + self.verdicts.held_bytes()
            + self.imms.held_bytes()
            + self.queues.held_bytes()
            + self.jobs.held_bytes()
            + self.loss.held_bytes()
    }

    fn held_bytes_max(cfg: &EngineConfig) -> usize {
        let fresh = Self::new(cfg);
        let window = usize::from(cfg.window).max(64);
        size_of::<Self>()
            + Scoreboard::held_bytes_max(window)
            + SentLog::held_bytes_max(window.next_power_of_two())
            + RxWindow::new(Psn(0), cfg.window.max(64)).held_bytes()
            + fresh.replay.held_bytes()
            + Verdicts::new(cfg.window).held_bytes_max()
            + ImmTable::held_bytes_max(usize::from(cfg.write_imms_per_context_max))
            + fresh.loss.held_bytes()
            + SendQueues::held_bytes_max(QPS_MAX, cfg.wrs_max as usize, window)
            + ReadJobs::held_bytes_max(cfg.reads_per_context_max.into())
    }
}

impl EngineConfig {
    /// Maximum number of bytes of memory that an engine holds for one peer and its address,
    /// whatever the peer sends. An idle peer takes a few hundred.
    pub fn peer_bytes_max(&self) -> usize {
        size_of::<Context>()
            + TABLES_BYTES
            + Handshake::held_bytes_max()
            + Window::held_bytes_max(self)
            + size_of::<PathEntry>()
            + PathContext::held_bytes_max(usize::from(self.path.paths), self.path.rails)
            + PathMtu::held_bytes_max()
    }
}

/// Bytes of memory held for a context without its address.
fn context_bytes(c: &Context) -> usize {
    size_of::<Context>()
        + TABLES_BYTES
        + c.handshake().held_bytes()
        + c.win().map_or(0, |a| a.held_bytes())
}

impl PathEntry {
    /// Memory held for an address, in bytes.
    fn held_bytes(&self) -> usize {
        size_of::<Self>() + self.paths.held_bytes() + self.mtu.held_bytes()
    }
}

impl<O: Observer> Engine<O> {
    /// Bytes of memory held for the peer of `c`, its address included.
    pub(crate) fn held_bytes(&self, c: &Context) -> usize {
        context_bytes(c) + self.paths.get(c.way()).held_bytes()
    }

    /// Bytes of memory held for all peers. An address that several peers share is counted once,
    /// where [`ContextStats::held_bytes`](crate::engine::ContextStats::held_bytes) has it for each.
    pub fn peers_held_bytes(&self) -> usize {
        let contexts: usize = self.contexts.iter().map(|(_, c)| context_bytes(c)).sum();
        contexts + self.paths.iter().map(PathEntry::held_bytes).sum::<usize>()
    }
}
