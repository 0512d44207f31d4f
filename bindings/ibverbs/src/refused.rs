//! Ends the requests of a process that no peer has accepted, because the keys differ.
//!
//! A send that fails is not the end of many programs: they wait for a receive that never completes
//! (`fi_pingpong` reads the queue of its receives only). Where no peer agrees on sealing, no
//! program can do anything but end.

use crate::{devices, settings::warn};
use srd::Device;
use std::{env, thread, time::Duration};

/// Time for the program to end by itself after its sends have failed.
const OWN_END: Duration = Duration::from_secs(1);
/// Set by `srd run`: a program that it starts is a job, which ends when it cannot communicate.
/// Another one may be a service that waits for other peers.
pub(crate) const JOB_VARIABLE: &str = "SRD_STATS_DIR";

/// Called when requests to a peer have ended that has refused this process. If no peer has accepted
/// a device of it until a little later, all requests of that device end with an error. One that has
/// been accepted once goes on: the peer that refuses it may be the one with the wrong key.
pub(crate) fn end_soon() {
    if env::var_os(JOB_VARIABLE).is_none() {
        return;
    }
    let end = || {
        thread::sleep(OWN_END);
        let opened = devices::entries().iter().filter_map(devices::Entry::opened);
        opened.filter(is_alone).for_each(|device| {
            warn(&format!(
                "no peer accepts this process at {}, so all its requests end with an error now \
                 (status 2)",
                device.ip()
            ));
            device.fail();
        });
    };
    // The caller holds the device's lock. Without a thread the program goes on as it is.
    let _ = thread::Builder::new().name("srd-refused".to_owned()).spawn(end);
}

/// Whether a device has lost peers and never had a context.
fn is_alone(device: &Device) -> bool {
    let engine = device.counters().map(|counters| counters.engine);
    engine.is_ok_and(|e| e.contexts_opened == 0 && e.unresponsive_remote_events > 0)
}
