//! The receiver of a file.

use super::{Abort, CHUNK_BYTES, Cut, Delivered, Progress, SLOTS, Session, session::Input};
use crate::{
    app::message::{Body, Refusal, Slots},
    failure::{Failure, Result},
    files::Target,
};
use srd::{Access, MemoryRegion, ProtectionDomain};
use std::{sync::mpsc, thread, time::Duration};

/// Longest sleep while idle.
const SLEEP: Duration = Duration::from_millis(100);
/// Interval of keep-alive messages while the disk is busy.
const KEEP_ALIVE: Duration = Duration::from_secs(1);

/// The receiver's memory, registered for the sender's writes.
pub struct Receiver {
    memory: MemoryRegion,
    slots: Slots,
}

impl Receiver {
    /// Registers memory, less for a file that is known to be small.
    ///
    /// # Errors
    /// The device has too few resources.
    pub fn new(pd: &ProtectionDomain, size: Option<u64>) -> Result<Self> {
        let count = Self::count(size);
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let memory = pd.mr_allocate(usize::from(count) * CHUNK_BYTES as usize, access)?;
        let (raddr, rkey) = (memory.addr(), memory.rkey());
        Ok(Self { memory, slots: Slots { raddr, rkey, chunk: CHUNK_BYTES, count } })
    }

    /// Memory in bytes that [`Receiver::new`] registers.
    pub fn memory_bytes(size: Option<u64>) -> u64 {
        u64::from(Self::count(size)) * u64::from(CHUNK_BYTES)
    }

    /// Number of slots for a file of `size` bytes.
    fn count(size: Option<u64>) -> u16 {
        let chunks = size.map_or(u64::MAX, |s| s.div_ceil(u64::from(CHUNK_BYTES)).max(1));
        chunks.min(u64::from(SLOTS)) as u16
    }

    /// Description of the memory for the sender.
    pub fn slots(&self) -> Slots {
        self.slots
    }

    /// Receives `size` bytes into `target`, gives the file its name, and tells the sender.
    ///
    /// # Errors
    /// The sender has gone, has given up or violated the protocol; the data is damaged; the disk is
    /// full.
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
                // Copied once, so that the hashed data is the stored data even if the sender writes
                // again.
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
                        return Err(Abort::tell(
                            Refusal::BadRequest,
                            "an unexpected chunk arrived",
                        ));
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
        // The file is complete, even if the sender has gone.
        let _ = session.send_and_wait(Body::Done);
        Ok(done)
    }
}

fn out_of_place() -> Abort {
    Abort::tell(Refusal::BadRequest, "an unexpected message arrived")
}

/// Waits for the sender's hash and compares it with `own`.
fn compare(session: &mut Session<'_>, own: blake3::Hash) -> Result<(), Abort> {
    loop {
        match session.next(SLEEP)? {
            Input::Message(Body::Finish { hash }) => {
                // Compared in constant time.
                if own == hash {
                    return Ok(());
                }
                let text = "the data was damaged in transit: the hashes differ; nothing was stored";
                return Err(Abort::tell(Refusal::Damaged, text));
            }
            Input::Quiet => {}
            Input::Message(_) | Input::Written(_) => return Err(out_of_place()),
        }
    }
}

/// Waits for the disk, and sends keep-alive messages meanwhile.
fn sync(session: &mut Session<'_>, target: &Target, stored: u64) -> Result<(), Abort> {
    thread::scope(|scope| {
        let (done, wait) = mpsc::channel();
        let _syncing = scope.spawn(move || done.send(target.sync()));
        loop {
            match wait.recv_timeout(KEEP_ALIVE) {
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
