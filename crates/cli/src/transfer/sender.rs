//! The sender of a file.

use super::{Abort, Cut, Delivered, Progress, Session, session::Input};
use crate::{
    app::{
        link::Remote,
        message::{Body, Refusal, Slots},
    },
    failure::Failure,
};
use srd::{Access, MemoryRegion, ProtectionDomain};
use std::{
    fs::File,
    io::{ErrorKind, Read},
    time::Duration,
};

/// Longest sleep while idle.
const SLEEP: Duration = Duration::from_millis(100);

/// Sends `size` bytes of `file` into the receiver's slots, and waits until the file is complete
/// under its name.
///
/// # Errors
/// The file is shorter than `size` or cannot be read; the receiver has gone or has given up.
pub fn send(
    session: &mut Session<'_>,
    pd: &ProtectionDomain,
    file: File,
    size: u64,
    slots: &Slots,
    progress: Progress<'_>,
) -> Result<Delivered, Abort> {
    let cut = Cut::new(size, slots)?;
    let chunks = cut.chunks();
    let lent = cut.slots.min(chunks.max(1)) as usize;
    let memory = pd.mr_allocate(lent * cut.chunk as usize, Access::LOCAL_WRITE)?;
    let remote = Remote { raddr: slots.raddr, rkey: slots.rkey };
    let mut reading =
        Reading { file, memory, cut, hasher: blake3::Hasher::new(), buffer: Vec::new() };
    let (mut next, mut announced, mut stored) = (0, 0, 0);
    while stored < chunks {
        while next < chunks && next < stored + cut.slots && session.can_send() {
            reading.write(session, remote, next)?;
            next += 1;
        }
        match session.next(SLEEP)? {
            Input::Written(index) => {
                session.send(Body::Chunk { index, len: cut.len(index) })?;
                announced += 1;
            }
            Input::Message(Body::Credit { stored: told }) => {
                if told > announced {
                    return Err(Abort::tell(
                        Refusal::BadRequest,
                        "a credit for chunks that were not sent",
                    ));
                }
                // Messages are not ordered, so a lower credit is old and ignored.
                stored = stored.max(told);
                progress(cut.bytes_before(stored));
            }
            Input::Message(_) => {
                return Err(Abort::tell(Refusal::BadRequest, "an unexpected message arrived"));
            }
            Input::Quiet => {}
        }
    }
    let hash = reading.hasher.finalize();
    session.send(Body::Finish { hash: *hash.as_bytes() })?;
    loop {
        match session.next(SLEEP)? {
            Input::Message(Body::Done) => return Ok(Delivered { size, hash }),
            // Keep-alive messages while the receiver's disk is busy.
            Input::Message(Body::Credit { .. }) | Input::Quiet => {}
            Input::Message(_) | Input::Written(_) => {
                return Err(Abort::tell(Refusal::BadRequest, "an unexpected message arrived"));
            }
        }
    }
}

/// Reads a file chunk by chunk through registered memory.
struct Reading {
    file: File,
    memory: MemoryRegion,
    cut: Cut,
    hasher: blake3::Hasher,
    buffer: Vec<u8>,
}

impl Reading {
    /// Reads the next chunk, which has number `index`, and writes it to its slot.
    fn write(&mut self, session: &Session<'_>, remote: Remote, index: u64) -> Result<(), Abort> {
        let len = self.cut.len(index);
        self.buffer.resize(len as usize, 0);
        self.file.read_exact(&mut self.buffer).map_err(|e| {
            Abort::file(match e.kind() {
                ErrorKind::UnexpectedEof => {
                    Failure::new("the file became shorter while it was copied")
                }
                _ => Failure::new(format!("cannot read the file: {e}")),
            })
        })?;
        self.hasher.update(&self.buffer);
        let offset = self.cut.offset(index);
        self.memory.write_at(offset, &self.buffer)?;
        let to = Remote { raddr: remote.raddr.wrapping_add(offset as u64), ..remote };
        session.write(self.memory.sge(offset, len), to, index)?;
        Ok(())
    }
}
