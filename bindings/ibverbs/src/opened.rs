//! An open device with what is kept about its objects. Numbers of queue pairs and of handles mean
//! something on their device only: two devices of one process (two rails) may give out the
//! same ones, and so may a device that is closed and opened again.

use crate::{
    events::{Inbox, Queues},
    senders::Senders,
    unpolled::Polled,
};
use srd::{AhId, Device, WorkCompletion};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A device, from its first context to the last of its objects.
pub(crate) struct Opened {
    pub device: Device,
    /// Its queue pairs.
    pub queues: Queues,
    /// Which domains know which senders.
    pub senders: Senders,
    /// What the program has polled.
    pub polled: Polled,
    /// Where its contexts get their events.
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

    /// Where its contexts get their events.
    pub(crate) fn inboxes(&self) -> MutexGuard<'_, Vec<Arc<Inbox>>> {
        self.inboxes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of the sender's address handle in the domain of the queue pair that received.
    #[inline]
    pub(crate) fn ah_of(&self, c: &WorkCompletion) -> AhId {
        self.senders.ah_of(&self.queues, c)
    }
}
