//! Looks at the key file in a thread of its own: a file system that is slow or gone holds up no
//! packet. The engine asks, and takes what is new whenever it is there.

use crate::{DeviceError, sync::lock};
use srd_seal::{KeyFile, KeyRing, RingChange};
use std::{
    fmt,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
};

/// Keys of a new version of the file and what they change, or why it is not used.
pub(crate) type News = Result<(Arc<KeyRing>, RingChange), String>;

/// What both threads see.
#[derive(Default)]
struct Shared {
    /// Asked and not answered yet. While it is set, nothing more is asked: so at most one answer
    /// waits.
    asked: AtomicBool,
    stop: AtomicBool,
    ready: AtomicBool,
    news: Mutex<Option<News>>,
}

/// See the module.
pub(crate) struct KeyWatch {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl fmt::Debug for KeyWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyWatch").finish_non_exhaustive()
    }
}

impl KeyWatch {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system has no room for one.
    pub fn of_file(mut file: KeyFile) -> Result<Self, DeviceError> {
        Self::start(move || match file.refresh() {
            Ok(None) => None,
            Ok(Some(change)) => Some(Ok((file.ring_shared(), change))),
            Err(error) => Some(Err(error.to_string())),
        })
    }

    fn start(mut look: impl FnMut() -> Option<News> + Send + 'static) -> Result<Self, DeviceError> {
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        let run = move || {
            while !theirs.stop.load(Ordering::Acquire) {
                if theirs.asked.load(Ordering::Acquire) {
                    if let Some(news) = look() {
                        *lock(&theirs.news) = Some(news);
                        theirs.ready.store(true, Ordering::Release);
                    }
                    theirs.asked.store(false, Ordering::Release);
                }
                thread::park();
            }
        };
        let started = thread::Builder::new().name("srd-keys".to_owned()).spawn(run);
        let thread = started.map_err(|source| DeviceError::Os {
            what: "starting the thread that looks at the key file",
            source,
        })?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Has the file looked at, unless that is under way or its result waits. Never waits.
    pub fn ask(&self) {
        if !self.ready() && !self.shared.asked.swap(true, Ordering::AcqRel) {
            self.unpark();
        }
    }

    /// Whether [`Self::take`] has something.
    #[inline]
    pub fn ready(&self) -> bool {
        self.shared.ready.load(Ordering::Relaxed)
    }

    /// What the last look has found.
    pub fn take(&self) -> Option<News> {
        if !self.shared.ready.swap(false, Ordering::Acquire) {
            return None;
        }
        lock(&self.shared.news).take()
    }

    fn unpark(&self) {
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }
}

impl Drop for KeyWatch {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.unpark();
        // A thread that waits for the file system ends by itself when it has its answer.
        if let Some(thread) = self.thread.take()
            && !self.shared.asked.load(Ordering::Acquire)
        {
            // It has nothing that could panic but the look, whose result is not wanted any more.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn a_look_that_takes_long_holds_nobody_up() {
        let (answer, answers) = mpsc::channel::<String>();
        let watch = KeyWatch::start(move || answers.recv().ok().map(Err)).unwrap();
        for _ in 0..3 {
            watch.ask();
            assert!(!watch.ready() && watch.take().is_none(), "the look is under way");
        }
        answer.send("first".to_owned()).unwrap();
        while !watch.ready() {
            thread::yield_now();
        }
        assert_eq!(watch.take().unwrap().unwrap_err(), "first");
        assert!(watch.take().is_none(), "told once");
        // The thread is stuck in its second look when the device goes: nobody waits for it.
        while watch.shared.asked.load(Ordering::Acquire) {
            thread::yield_now();
        }
        watch.ask();
        drop(watch);
        drop(answer);
    }
}
