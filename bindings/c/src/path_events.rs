//! Subscriptions to the changes of paths.

use crate::{
    device::srd_device,
    fail::{Fail, run},
    handle::{at, give, put, take},
};
use srd::PathState;
use std::{
    ffi::c_int,
    os::fd::{AsFd as _, AsRawFd as _},
    time::Duration,
};

/// A subscription to the changes of all paths of a device.
pub struct srd_path_events(srd::PathEvents);

/// State of a path.
#[repr(C)]
pub enum srd_path_state {
    /// In use.
    Active = 0,
    /// Out of use after losses; the device probes it.
    Failed = 1,
    /// Out of use; one probe came back, and the next one decides.
    Probing = 2,
    /// Out of use by order of an operator (`srd paths deny`).
    Denied = 3,
}

/// A path has changed its state.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct srd_path_event {
    /// When, in ns of CLOCK_MONOTONIC.
    pub at_ns: u64,
    /// The address that the path leads to, as a GID.
    pub gid: [u8; 16],
    /// Number of the path.
    pub path: u8,
    /// A srd_path_state: before. From SRD_PATH_STATE_DENIED: an operator allows it again.
    pub from: u8,
    /// A srd_path_state: now.
    pub to: u8,
}

const fn state(of: PathState) -> u8 {
    let state = match of {
        PathState::Active => srd_path_state::Active,
        PathState::Failed => srd_path_state::Failed,
        PathState::Probing => srd_path_state::Probing,
        PathState::Denied => srd_path_state::Denied,
    };
    state as u8
}

/// Subscribes to the changes of all paths of a device, from now on: at most 16 subscriptions, and
/// 1024 changes that wait for each; if they are taken too late, the oldest are dropped, and
/// srd_path_events_missed counts them. A subscription drives no device: with SRD_PROGRESS_CALLER
/// changes happen in the turns of the caller.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srd_path_events_open(
    device: *const srd_device,
    events: *mut *mut srd_path_events,
) -> c_int {
    run(|| {
        // SAFETY: the contract of the header.
        let new = unsafe { at(device, "the device") }?.0.path_events()?;
        // SAFETY: as above.
        unsafe { give(events, srd_path_events(new)) }?;
        Ok(0)
    })
}

/// Takes the oldest change, waiting `timeout_us` microseconds at most (negative = no limit, rounded
/// up to milliseconds). Returns 1, or 0 when there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srd_path_events_get(
    events: *const srd_path_events,
    event: *mut srd_path_event,
    timeout_us: i64,
) -> c_int {
    run(|| {
        // SAFETY: the contract of the header.
        let events = &unsafe { at(events, "the subscription") }?.0;
        if event.is_null() {
            return Err(Fail::invalid("the place for the event is NULL"));
        }
        let told = loop {
            let wait = u64::try_from(timeout_us).map_or(i32::MAX as u64, |us| us.div_ceil(1000));
            let told = match wait {
                0 => events.get(),
                ms => events.wait(Duration::from_millis(ms)).map_err(|e| {
                    Fail::new(e.raw_os_error().unwrap_or(libc::EIO), &format!("cannot wait: {e}"))
                })?,
            };
            if told.is_some() || timeout_us >= 0 {
                break told;
            }
        };
        let Some(e) = told else { return Ok(0) };
        let (gid, path) = (srd::gid_from_ip(e.ip), e.path);
        let value =
            srd_path_event { at_ns: e.at_ns, gid, path, from: state(e.from), to: state(e.to) };
        // SAFETY: as above.
        unsafe { put(event, value) }?;
        Ok(1)
    })
}

/// A descriptor that is readable while changes wait. It belongs to the subscription.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srd_path_events_fd(events: *const srd_path_events) -> c_int {
    // SAFETY: the contract of the header.
    run(|| Ok(unsafe { at(events, "the subscription") }?.0.as_fd().as_raw_fd()))
}

/// Changes that were dropped so far because too many waited, at most 2147483647.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srd_path_events_missed(events: *const srd_path_events) -> c_int {
    run(|| {
        // SAFETY: the contract of the header.
        let missed = unsafe { at(events, "the subscription") }?.0.missed();
        Ok(c_int::try_from(missed).unwrap_or(c_int::MAX))
    })
}

/// Ends a subscription.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srd_path_events_close(events: *mut srd_path_events) -> c_int {
    run(|| {
        // SAFETY: the contract of the header.
        drop(unsafe { take(events, "the subscription", |_| false) }?);
        Ok(0)
    })
}
