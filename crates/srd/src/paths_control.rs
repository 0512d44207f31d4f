//! The device's part in the control of paths: it obeys what an operator denies with `srd paths
//! deny` ([`srd_share::PathControl`]).

use crate::nic::Nic;
use log::{info, warn};
use srd_core::{PathMask, Time};
use srd_share::PathControl;
use std::{io, net::IpAddr};

/// The control file, and what was taken from it.
#[derive(Debug)]
pub(crate) struct PathsControl {
    control: PathControl,
    /// Number of the table that was applied last.
    seen: u64,
    /// Addresses with denied paths.
    denied: Vec<IpAddr>,
}

impl PathsControl {
    pub(crate) fn open() -> io::Result<Self> {
        Ok(Self { control: PathControl::open()?, seen: 0, denied: Vec::new() })
    }
}

impl Nic {
    /// Applies new orders. Nearly always there are none: one atomic read.
    #[inline]
    pub(crate) fn paths_turn(&mut self, now: Time) {
        if self.paths.as_ref().is_some_and(|paths| paths.control.number() != paths.seen) {
            self.paths_apply(now);
        }
    }

    #[cold]
    fn paths_apply(&mut self, now: Time) {
        let Self { engine, paths: Some(paths), .. } = self else { return };
        let Some((number, orders)) = paths.control.orders() else { return };
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
    }
}
