//! The device's part in the control of paths: it obeys what an operator denies with `srd paths
//! deny` ([`srd_share::PathControl`]).

use crate::nic::Nic;
use log::{info, warn};
use srd_core::{PathMask, Time};
use srd_share::{PathControl, PathTable};
use std::{io, net::IpAddr};

/// The control file, and what was taken from it.
#[derive(Debug)]
pub(crate) struct PathsControl {
    control: PathControl,
    /// Number of the table that was applied last.
    seen: u64,
    /// Number of the last table whose probes were sent.
    probed: u64,
    /// Addresses with denied paths.
    denied: Vec<IpAddr>,
}

impl PathsControl {
    pub(crate) fn open() -> io::Result<Self> {
        let control = PathControl::open()?;
        // What was to be probed before is no matter of this device.
        let probed = control.table().map_or(0, |table| table.probes_number);
        Ok(Self { control, seen: 0, probed, denied: Vec::new() })
    }
}

impl Nic {
    /// Applies new orders, and returns whether there were any. Nearly always there are none: one
    /// atomic read.
    #[inline]
    pub(crate) fn paths_turn(&mut self, now: Time) -> bool {
        let new = self.paths.as_ref().is_some_and(|paths| paths.control.number() != paths.seen);
        new && self.paths_apply(now)
    }

    #[cold]
    fn paths_apply(&mut self, now: Time) -> bool {
        let Self { engine, paths: Some(paths), .. } = self else { return false };
        let Some(table) = paths.control.table() else { return false };
        let PathTable { number, orders, probes_number, probes } = table;
        paths.seen = number;
        let gone = |ip: &&IpAddr| !orders.iter().any(|order| order.ip == **ip);
        for ip in paths.denied.iter().filter(gone) {
            // Allowing needs no room and leaves more paths, so it cannot fail.
            let _ = engine.paths_deny(now, *ip, &PathMask::NONE, 1);
            info!(target: "srd", "all paths to {ip} are allowed again");
        }
        paths.denied.clear();
        for order in &orders {
            match engine.paths_deny(now, order.ip, &order.mask, order.least) {
                Ok(()) => {
                    info!(target: "srd", "{} paths to {} are denied", order.mask.len(), order.ip)
                }
                Err(e) => warn!(target: "srd", "paths to {} are not denied: {e}", order.ip),
            }
            paths.denied.push(order.ip);
        }
        if std::mem::replace(&mut paths.probed, probes_number) != probes_number {
            for (ip, mask) in &probes {
                // Without a context to the address there is nothing to probe.
                engine.paths_probe(now, *ip, mask);
            }
        }
        self.mirror_look(now);
        true
    }
}
