//! Ctrl-C and SIGTERM: the first asks to end in good order, a second ends at once.

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
    /// The system refuses them.
    pub fn install() -> Result<Self> {
        let stop = Self(Arc::new(AtomicBool::new(false)));
        for signal in [SIGINT, SIGTERM] {
            // In this order: at the first signal the flag is not set yet.
            flag::register_conditional_default(signal, Arc::clone(&stop.0))
                .and_then(|_| flag::register(signal, Arc::clone(&stop.0)))
                .map_err(|e| Failure::new(format!("cannot handle signals: {e}")))?;
        }
        Ok(stop)
    }

    /// Whether to end.
    pub fn asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// The flag itself, which is set when asked to end.
    pub fn flag(&self) -> &AtomicBool {
        &self.0
    }

    /// # Errors
    /// [`Failure::interrupted`] when asked to end.
    pub fn check(&self) -> Result {
        if self.asked() { Err(Failure::interrupted()) } else { Ok(()) }
    }
}
