//! The end that has the file.

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

/// Longest sleep without anything to do.
const SLEEP: Duration = Duration::from_millis(100);

/// Sends `size` bytes of `file` into the other end's slots, and waits until it has them all under
/// their name.
///
/// # Errors
/// The file is shorter than `size` or cannot be read; the other end has gone or given up.
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
                    return Err(Abort::tell(Refusal::BadRequest, "credit for what was not sent"));
                }
                // Messages may overtake each other, so an older credit is ignored.
                stored = stored.max(told);
                progress(cut.bytes_before(stored));
            }
            Input::Message(_) => {
                return Err(Abort::tell(Refusal::BadRequest, "a message out of place"));
            }
            Input::Quiet => {}
        }
    }
    let hash = reading.hasher.finalize();
    session.send(Body::Finish { hash: *hash.as_bytes() })?;
    loop {
        match session.next(SLEEP)? {
            Input::Message(Body::Done) => return Ok(Delivered { size, hash }),
            // Signs of life while the other end writes to its disk.
            Input::Message(Body::Credit { .. }) | Input::Quiet => {}
            Input::Message(_) | Input::Written(_) => {
                return Err(Abort::tell(Refusal::BadRequest, "a message out of place"));
            }
        }
    }
}

/// The file, chunk by chunk through registered memory.
struct Reading {
    file: File,
    memory: MemoryRegion,
    cut: Cut,
    hasher: blake3::Hasher,
    buffer: Vec<u8>,
}

impl Reading {
    /// Reads the next chunk, which is number `index`, and writes it to its slot.
    fn write(&mut self, session: &Session<'_>, remote: Remote, index: u64) -> Result<(), Abort> {
        let len = self.cut.len(index);
        self.buffer.resize(len as usize, 0);
        self.file.read_exact(&mut self.buffer).map_err(|e| {
            Abort::file(match e.kind() {
                ErrorKind::UnexpectedEof => Failure::new("the file has become shorter meanwhile"),
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
