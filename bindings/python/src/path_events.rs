//! Subscriptions to the changes of paths.

use crate::errors::{DeviceError, device};
use pyo3::{exceptions::PyOSError, prelude::*};
use srd::PathState;
use std::{
    os::fd::{AsFd as _, AsRawFd as _},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// A wait looks this often whether Ctrl-C was pressed.
const SIGNALS_EVERY: Duration = Duration::from_millis(50);

/// A subscription to the changes of all paths of a device, until it is closed.
#[pyclass(frozen, module = "srd._native")]
pub struct PathEvents(Mutex<Option<srd::PathEvents>>);

/// A path has changed its state.
#[pyclass(frozen, get_all, module = "srd._native")]
pub struct PathEvent {
    /// When, in ns of `time.monotonic_ns`.
    at_ns: u64,
    /// Address that the path leads to.
    ip: String,
    /// Number of the path.
    path: u8,
    /// Its state before: "active", "failed", "probing" or "denied".
    before: &'static str,
    /// Its state now.
    now: &'static str,
}

const fn name(of: PathState) -> &'static str {
    match of {
        PathState::Active => "active",
        PathState::Failed => "failed",
        PathState::Probing => "probing",
        PathState::Denied => "denied",
    }
}

impl From<srd::PathEvent> for PathEvent {
    fn from(e: srd::PathEvent) -> Self {
        let (at_ns, path) = (e.at_ns, e.path);
        Self { at_ns, ip: e.ip.to_string(), path, before: name(e.from), now: name(e.to) }
    }
}

impl PathEvents {
    pub fn open(of: &srd::Device) -> PyResult<Self> {
        Ok(Self(Mutex::new(Some(of.path_events().map_err(device)?))))
    }

    fn with<T>(&self, act: impl FnOnce(&srd::PathEvents) -> T) -> PyResult<T> {
        let open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let closed = || DeviceError::new_err("the subscription is closed");
        Ok(act(open.as_ref().ok_or_else(closed)?))
    }
}

#[pymethods]
impl PathEvents {
    /// The oldest change that waits; `None`: there is none.
    fn get(&self) -> PyResult<Option<PathEvent>> {
        self.with(|events| events.get().map(PathEvent::from))
    }

    /// Waits for the next change; `None`: there was none within `timeout_s` seconds.
    #[pyo3(signature = (timeout_s=None))]
    fn wait(&self, py: Python<'_>, timeout_s: Option<f64>) -> PyResult<Option<PathEvent>> {
        let wrong = || DeviceError::new_err("timeout_s must be a number of seconds, 0 or more");
        let limit = timeout_s.map(|s| Duration::try_from_secs_f64(s).map_err(|_| wrong()));
        // A time that no clock reaches is no limit.
        let end = limit.transpose()?.and_then(|limit| Instant::now().checked_add(limit));
        loop {
            let left = end.map_or(SIGNALS_EVERY, |at| at.saturating_duration_since(Instant::now()));
            let told = py.detach(|| self.with(|events| events.wait(left.min(SIGNALS_EVERY))))?;
            if let Some(event) = told.map_err(PyOSError::new_err)? {
                return Ok(Some(event.into()));
            }
            py.check_signals()?;
            if left.is_zero() {
                return Ok(None);
            }
        }
    }

    /// Changes that were dropped because more than 1,024 waited.
    #[getter]
    fn missed(&self) -> PyResult<u64> {
        self.with(srd::PathEvents::missed)
    }

    /// A descriptor that is readable while changes wait.
    fn fileno(&self) -> PyResult<i32> {
        self.with(|events| events.as_fd().as_raw_fd())
    }

    /// Ends the subscription.
    fn close(&self) {
        drop(self.0.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

#[pymethods]
impl PathEvent {
    fn __repr__(&self) -> String {
        let Self { ip, path, before, now, .. } = self;
        format!("<PathEvent path {path} to {ip}: {before} -> {now}>")
    }
}
