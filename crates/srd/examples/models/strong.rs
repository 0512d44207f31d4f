//! Files under `shuttle`.

pub(crate) mod sync {
    pub(crate) use shuttle::{sync::atomic, thread};
}
#[path = "../../src/callers.rs"]
pub(crate) mod callers;
#[path = "../../src/dirty.rs"]
pub(crate) mod dirty;
#[path = "../../src/rest.rs"]
pub(crate) mod rest;
#[path = "../../../datapath/src/waker.rs"]
pub(crate) mod waker;

/// What the kernel's event descriptor does.
pub(crate) mod event {
    use shuttle::sync::{Condvar, Mutex};
    use std::{
        io,
        os::fd::{AsRawFd, RawFd},
    };

    #[derive(Debug)]
    pub(crate) struct Event {
        set: Mutex<bool>,
        changed: Condvar,
    }

    impl Event {
        pub(crate) fn new() -> io::Result<Self> {
            Ok(Self { set: Mutex::new(false), changed: Condvar::new() })
        }
        pub(crate) fn set(&self) {
            *self.set.lock().unwrap() = true;
            self.changed.notify_all();
        }
        pub(crate) fn clear(&self) {
            *self.set.lock().unwrap() = false;
        }
        /// `poll` without a timeout: if nobody sets it, the model reports a deadlock.
        pub(crate) fn wait(&self) {
            let mut set = self.set.lock().unwrap();
            while !*set {
                set = self.changed.wait(set).unwrap();
            }
        }
    }

    impl AsRawFd for Event {
        fn as_raw_fd(&self) -> RawFd {
            -1
        }
    }
}
