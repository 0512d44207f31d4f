//! Asynchronous events: what happens outside of work requests.

use crate::{config::EventWatch, eventfd::EventFd, logging, sync::lock, tasks::Tasks};
use srd_core::{CloseCode, Endpoint, Qpn};
use std::{
    collections::VecDeque,
    io, mem,
    net::IpAddr,
    os::fd::{AsFd, BorrowedFd},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

/// Most events kept for the user; later ones are dropped and counted.
pub(crate) const EVENTS_MAX: usize = 4096;
/// Most events of kinds that peers and networks can cause as often as they like. The rest of the
/// queue stays free for events of queue pairs and the device, which a program must not miss even if
/// it never reads events about paths.
const EVENTS_CAUSED_MAX: usize = EVENTS_MAX - EVENTS_MAX / 4;

/// An asynchronous event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AsyncEvent {
    /// The peer answered before but is silent now. Its outstanding requests ended with status 13.
    PeerUnresponsive(Endpoint),
    /// The peer never answered. Requests to it ended with status 15.
    PeerUnreachable(Endpoint),
    /// The peer proved that it lost its state, by a restart or shutdown. Outstanding requests ended
    /// with status 8.
    PeerReset(Endpoint),
    /// The device refused a request that it had sent to itself. If another process was meant, that
    /// process has ended and this device took over its address and port.
    PeerIsSelf(Endpoint),
    /// The peer answered that the two sides do not agree on sealing: it demands a seal and this
    /// device has no key file, or the reverse, or the keys differ. Anybody who sees the traffic can
    /// send such an answer, so requests to the peer are still tried, for 3 s at most.
    SealRefused {
        /// The peer.
        peer: Endpoint,
        /// Its reason.
        code: CloseCode,
    },
    /// This device has refused a peer that wanted a context without a seal, or with another key.
    /// Reported once a second at most, and once a minute for one address and reason.
    SealDenied {
        /// The peer.
        peer: Endpoint,
        /// The reason that it was told.
        code: CloseCode,
    },
    /// The key file has changed and is not usable; the keys of its last good version stay.
    /// [`Device::seal`](crate::Device::seal) has the reason.
    KeyFileRefused,
    /// The context to this peer was ended because its key has left the key file: requests that had
    /// begun did not end within 10 seconds, so that it could not be opened anew with another key.
    /// Outstanding requests ended with status 8; new ones open a context with a key of the file.
    KeyRemoved(Endpoint),
    /// A path to an address was retired, or returned to use.
    PathChanged {
        /// The address.
        ip: IpAddr,
        /// The path.
        path: u8,
        /// True if it was retired.
        retired: bool,
    },
    /// The packet size to this address has changed, because the path or the local link permits only
    /// smaller packets, or larger ones again. Requests continue with packets of the new size;
    /// messages that are longer end with status 6.
    PathMtu {
        /// The address.
        ip: IpAddr,
        /// Largest payload of a packet, bytes.
        payload_max: u16,
    },
    /// The queue pair entered the error state without a request of the user.
    QpFatal(Qpn),
    /// All requests of a queue pair in SQD have ended.
    SqDrained(Qpn),
    /// The device has failed: a bug made the engine panic. All requests ended with status 2, and
    /// only destroying objects still works.
    DeviceFatal,
    /// The datapath is broken (not just a lost packet); the number is an errno. The device keeps
    /// retrying.
    DatapathError(i32),
}

impl AsyncEvent {
    /// What an event about sealing means and what to do, for a user; `None` for other events.
    pub fn seal_text(&self) -> Option<String> {
        let why = |code: &CloseCode| match code {
            CloseCode::SealRequired => "it accepts sealed contexts only",
            CloseCode::SealUnknown => {
                "it has no key file or does not use it (the policy prefer goes on without a seal)"
            }
            _ => "the two sides have different keys, or know each other by other addresses",
        };
        match self {
            Self::SealRefused { peer, code } => Some(format!(
                "{}, UDP port {}, refuses this process: {}; give both the same key file \
                 (SRD_KEY_FILE, --key) or none",
                peer.ip,
                peer.port,
                why(code)
            )),
            Self::SealDenied { peer, code } => {
                let why = match code {
                    CloseCode::SealRequired => {
                        "it does not seal, and sealing is required here (SRD_SEAL, --seal)"
                    }
                    _ => "it has another key, or knows this host by another address",
                };
                Some(format!("{}, UDP port {}, was refused: {why}", peer.ip, peer.port))
            }
            Self::KeyRemoved(peer) => Some(format!(
                "{}, UDP port {}: the context was ended, because its key is no longer in the key \
                 file and its requests did not end in time; they ended with status 8",
                peer.ip, peer.port
            )),
            Self::KeyFileRefused => Some(
                "the key file has changed and cannot be used; the keys of its last good version \
                 stay in use; `srd key show FILE` says what is wrong"
                    .to_owned(),
            ),
            _ => None,
        }
    }
}

/// The queue between the engine's turn and the user.
pub(crate) struct EventQueue {
    fd: EventFd,
    watch: Option<EventWatch>,
    waiting: Mutex<VecDeque<AsyncEvent>>,
    dropped: AtomicU64,
    /// Futures that wait for an event.
    pub tasks: Tasks,
}

impl EventQueue {
    pub(crate) fn new(watch: Option<EventWatch>) -> io::Result<Self> {
        Ok(Self {
            fd: EventFd::new()?,
            watch,
            waiting: Mutex::new(VecDeque::new()),
            dropped: AtomicU64::new(0),
            tasks: Tasks::default(),
        })
    }

    pub(crate) fn push(&self, event: AsyncEvent) {
        logging::event(&event);
        if let Some(watch) = &self.watch
            && let Err(panic) = catch_unwind(AssertUnwindSafe(|| watch(&event)))
        {
            // In a turn, a panic would make the whole device fail.
            log::error!("the program's function that watches events panicked at {event:?}");
            // What it panicked with may panic when it is dropped.
            mem::forget(panic);
        }
        let own = matches!(
            event,
            AsyncEvent::QpFatal(_) | AsyncEvent::SqDrained(_) | AsyncEvent::DeviceFatal
        );
        let max = if own { EVENTS_MAX } else { EVENTS_CAUSED_MAX };
        let mut waiting = lock(&self.waiting);
        if waiting.len() >= max {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        waiting.push_back(event);
        self.fd.add();
        drop(waiting);
        self.tasks.wake();
    }

    pub(crate) fn pop(&self) -> Option<AsyncEvent> {
        let mut waiting = lock(&self.waiting);
        let event = waiting.pop_front();
        if event.is_some() {
            self.fd.take();
        }
        event
    }

    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eventfd::poll_readable;
    use std::os::fd::AsRawFd;

    #[test]
    fn the_descriptor_is_readable_while_events_wait() {
        let q = EventQueue::new(None).unwrap();
        assert!(!poll_readable(q.fd().as_raw_fd(), 0).unwrap());
        q.push(AsyncEvent::QpFatal(Qpn(1)));
        q.push(AsyncEvent::SqDrained(Qpn(2)));
        assert_eq!(q.pop(), Some(AsyncEvent::QpFatal(Qpn(1))));
        assert!(poll_readable(q.fd().as_raw_fd(), 0).unwrap());
        assert_eq!(q.pop(), Some(AsyncEvent::SqDrained(Qpn(2))));
        assert!(!poll_readable(q.fd().as_raw_fd(), 0).unwrap());
        assert_eq!(q.pop(), None);
    }

    #[test]
    fn a_full_queue_drops_and_counts() {
        let q = EventQueue::new(None).unwrap();
        for i in 0..EVENTS_MAX + 3 {
            q.push(AsyncEvent::SqDrained(Qpn(i as u16)));
        }
        assert_eq!(q.dropped(), 3);
        assert_eq!(q.pop(), Some(AsyncEvent::SqDrained(Qpn(0))));
    }

    /// Without room reserved for them, a peer that makes paths fail and recover often enough keeps
    /// a program that rarely reads events from learning that its queue pair is drained, or that its
    /// device has failed.
    #[test]
    fn what_peers_cause_leaves_room_for_the_rest() {
        let q = EventQueue::new(None).unwrap();
        let ip = IpAddr::from([10, 0, 0, 1]);
        for i in 0..EVENTS_MAX {
            q.push(AsyncEvent::PathChanged { ip, path: i as u8, retired: i % 2 == 0 });
        }
        let dropped = q.dropped();
        q.push(AsyncEvent::SqDrained(Qpn(1)));
        q.push(AsyncEvent::DeviceFatal);
        assert_eq!((dropped, q.dropped()), (EVENTS_MAX as u64 / 4, dropped));
    }
}
