//! What running processes show: `srd stat`, `srd top` and `srd export` read the statuses that
//! devices write ([`srd_share::status`]).

pub mod export;
mod http;
mod metrics;
pub mod rates;
pub mod stat;
mod text;
mod totals;

use crate::failure::{Failure, Result};
use srd_share::status::{StatusList, StatusRow, StatusScope, status_list};

/// Which processes a command shows.
#[derive(clap::Args, Clone, Debug)]
pub struct Chosen {
    /// Processes to show [default: all]
    #[arg(value_name = "PID", value_parser = pid)]
    pub pids: Vec<u32>,
    /// Show the processes in all network namespaces (containers, `srd net`), not only in this one
    #[arg(long)]
    pub all: bool,
}

/// Parses the number of a process.
pub fn pid(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| {
        format!("`{text}` is no process number; `srd stat` shows those of the processes here")
    })
}

/// Why nothing can be seen of processes that run.
pub const UNSEEN: &str = "not seen are processes of other users (root sees them), those in other \
     network namespaces (`srd stat --all` shows them), and those that were started with \
     SRD_STATUS=0";

impl Chosen {
    /// The devices to show.
    ///
    /// # Errors
    /// `/dev/shm` cannot be read, or a process that was asked for has no device.
    pub fn list(&self) -> Result<StatusList> {
        let scope = if self.all { StatusScope::Host } else { StatusScope::Network };
        let mut list = status_list(scope).map_err(|e| {
            Failure::new(format!(
                "cannot read /dev/shm, in which processes show their status: {e}; mount it (tmpfs)"
            ))
        })?;
        for &pid in &self.pids {
            if !list.rows.iter().any(|row| row.pid == pid) {
                return Err(Failure::new(format!(
                    "process {pid} has no open SRD device; {UNSEEN}"
                )));
            }
        }
        list.rows.retain(|row| self.pids.is_empty() || self.pids.contains(&row.pid));
        Ok(list)
    }
}

/// The clock that the processes of the host share, ns.
pub fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// A name that a process chose: nothing of it may control the terminal.
pub fn printable(name: &str) -> String {
    name.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// Whether all contexts of a device are sealed: "yes", "no", "part", or "-" if it has none.
pub fn sealed_text(row: &StatusRow) -> &'static str {
    match (row.status.contexts_sealed, row.status.contexts) {
        (_, 0) => "-",
        (0, _) => "no",
        (sealed, all) if sealed >= all => "yes",
        _ => "part",
    }
}
