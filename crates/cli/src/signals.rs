//! Ctrl-C and SIGTERM: the first requests an orderly end, a second ends the process at once.

use crate::failure::{Failure, Result};
use signal_hook::{
    consts::{SIGINT, SIGTERM},
    flag,
};
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

/// Whether the process was asked to end.
#[derive(Clone, Debug)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Installs the handlers.
    ///
    /// # Errors
    /// The system refuses the handlers.
    pub fn install() -> Result<Self> {
        let stop = Self(Arc::new(AtomicBool::new(false)));
        for signal in [SIGINT, SIGTERM] {
            // The order matters: at the first signal the flag must not be set yet.
            flag::register_conditional_default(signal, Arc::clone(&stop.0))
                .and_then(|_| flag::register(signal, Arc::clone(&stop.0)))
                .map_err(|e| Failure::new(format!("cannot handle signals: {e}")))?;
        }
        Ok(stop)
    }

    /// Whether the process was asked to end.
    pub fn asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// The flag, which is set by the first signal.
    pub fn flag(&self) -> &AtomicBool {
        &self.0
    }

    /// # Errors
    /// [`Failure::interrupted`] if the process was asked to end.
    pub fn check(&self) -> Result {
        if self.asked() { Err(Failure::interrupted()) } else { Ok(()) }
    }
}
