//! The end that wants the file.

use super::{Abort, CHUNK_BYTES, Cut, Delivered, Progress, SLOTS, Session, session::Input};
use crate::{
    app::message::{Body, Refusal, Slots},
    failure::{Failure, Result},
    files::Target,
};
use srd::{Access, MemoryRegion, ProtectionDomain};
use std::{sync::mpsc, thread, time::Duration};

/// Longest sleep without anything to do.
const SLEEP: Duration = Duration::from_millis(100);
/// How often a sign of life is sent while the disk takes its time.
const SIGN_OF_LIFE: Duration = Duration::from_secs(1);

/// Memory that is lent to the sender.
pub struct Receiver {
    memory: MemoryRegion,
    slots: Slots,
}

impl Receiver {
    /// Lends memory: little for a file that is known to be small.
    ///
    /// # Errors
    /// The device has no room.
    pub fn new(pd: &ProtectionDomain, size: Option<u64>) -> Result<Self> {
        let count = Self::count(size);
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let memory = pd.mr_allocate(usize::from(count) * CHUNK_BYTES as usize, access)?;
        let (raddr, rkey) = (memory.addr(), memory.rkey());
        Ok(Self { memory, slots: Slots { raddr, rkey, chunk: CHUNK_BYTES, count } })
    }

    /// Memory that [`Receiver::new`] lends, in bytes.
    pub fn memory_bytes(size: Option<u64>) -> u64 {
        u64::from(Self::count(size)) * u64::from(CHUNK_BYTES)
    }

    /// Slots for a file of this size.
    fn count(size: Option<u64>) -> u16 {
        let chunks = size.map_or(u64::MAX, |s| s.div_ceil(u64::from(CHUNK_BYTES)).max(1));
        chunks.min(u64::from(SLOTS)) as u16
    }

    /// What to tell the sender of it.
    pub fn slots(&self) -> Slots {
        self.slots
    }

    /// Receives `size` bytes into `target` and gives it its name. The other end hears of it.
    ///
    /// # Errors
    /// The other end has gone, given up or broken the rules; the data is damaged; the disk is full.
    pub fn receive(
        &self,
        session: &mut Session<'_>,
        mut target: Target,
        size: u64,
        progress: Progress<'_>,
    ) -> Result<Delivered, Abort> {
        let cut = Cut::new(size, &self.slots)?;
        let mut hasher = blake3::Hasher::new();
        let mut buffer = Vec::new();
        let mut ready = vec![false; cut.slots as usize];
        let mut stored = 0;
        while stored < cut.chunks() {
            if ready[cut.slot(stored)] {
                ready[cut.slot(stored)] = false;
                buffer.resize(cut.len(stored) as usize, 0);
                // Copied once: what is hashed is what is stored, whatever the peer writes now.
                self.memory.read_at(cut.offset(stored), &mut buffer)?;
                hasher.update(&buffer);
                target.write(&buffer).map_err(Abort::file)?;
                stored += 1;
                progress(cut.bytes_before(stored));
                if session.can_send() || stored == cut.chunks() {
                    session.send(Body::Credit { stored })?;
                }
                continue;
            }
            match session.next(SLEEP)? {
                Input::Message(Body::Chunk { index, len }) => {
                    let expected = (stored..(stored + cut.slots).min(cut.chunks()))
                        .contains(&index)
                        && len == cut.len(index)
                        && !ready[cut.slot(index)];
                    if !expected {
                        return Err(Abort::tell(Refusal::BadRequest, "a chunk out of place"));
                    }
                    ready[cut.slot(index)] = true;
                }
                Input::Quiet => {}
                Input::Message(_) | Input::Written(_) => return Err(out_of_place()),
            }
        }
        let hash = hasher.finalize();
        compare(session, hash)?;
        sync(session, &target, stored)?;
        target.commit().map_err(Abort::file)?;
        let done = Delivered { size, hash };
        // The file is there; that the other end may have gone does not take it away.
        let _ = session.send_and_wait(Body::Done);
        Ok(done)
    }
}

fn out_of_place() -> Abort {
    Abort::tell(Refusal::BadRequest, "a message out of place")
}

/// Waits for the sender's hash.
fn compare(session: &mut Session<'_>, own: blake3::Hash) -> Result<(), Abort> {
    loop {
        match session.next(SLEEP)? {
            Input::Message(Body::Finish { hash }) => {
                // Compares in constant time, which costs nothing here.
                if own == hash {
                    return Ok(());
                }
                let text = "the data was damaged on its way: the hashes differ; nothing was kept";
                return Err(Abort::tell(Refusal::Damaged, text));
            }
            Input::Quiet => {}
            Input::Message(_) | Input::Written(_) => return Err(out_of_place()),
        }
    }
}

/// Waits for the disk, and gives signs of life meanwhile.
fn sync(session: &mut Session<'_>, target: &Target, stored: u64) -> Result<(), Abort> {
    thread::scope(|scope| {
        let (done, wait) = mpsc::channel();
        let _syncing = scope.spawn(move || done.send(target.sync()));
        loop {
            match wait.recv_timeout(SIGN_OF_LIFE) {
                Ok(synced) => return synced.map_err(Abort::file),
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    while !matches!(session.next(Duration::ZERO)?, Input::Quiet) {}
                    if session.can_send() {
                        session.send(Body::Credit { stored })?;
                    }
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    return Err(Abort::file(Failure::new("writing to the disk has failed")));
                }
            }
        }
    })
}
