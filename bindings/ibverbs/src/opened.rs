//! An open device and the state of its objects. Numbers of queue pairs and address handles are
//! unique per device only: two devices of one process (two rails) may assign the same ones, and so
//! may a device that is closed and reopened.

use crate::{
    events::{Inbox, Queues},
    senders::Senders,
    unpolled::Polled,
};
use srd::{AhId, Device, WorkCompletion};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A device, from its first context until its last object is gone.
pub(crate) struct Opened {
    pub device: Device,
    /// Its queue pairs.
    pub queues: Queues,
    /// Which domains have handles for which senders.
    pub senders: Senders,
    /// Counts of polled completions.
    pub polled: Polled,
    /// Inboxes of its contexts.
    inboxes: Mutex<Vec<Arc<Inbox>>>,
}

impl Opened {
    pub(crate) fn new(device: Device) -> Arc<Self> {
        Arc::new(Self {
            device,
            queues: Queues::default(),
            senders: Senders::default(),
            polled: Polled::default(),
            inboxes: Mutex::default(),
        })
    }

    /// Inboxes of its contexts.
    pub(crate) fn inboxes(&self) -> MutexGuard<'_, Vec<Arc<Inbox>>> {
        self.inboxes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The sender's address handle in the domain of the receiving queue pair, by number.
    #[inline]
    pub(crate) fn ah_of(&self, c: &WorkCompletion) -> AhId {
        self.senders.ah_of(&self.queues, c)
    }
}
