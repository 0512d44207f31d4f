//! The server's side of copies: one thread per copy, because disks block.

use super::{
    control::ClientAddress,
    limits::{Lease, Limits, Share},
};
use crate::{
    app::{
        link::{Link, Peer},
        message::{Body, Refusal, Slots},
        qkey_random,
    },
    failure::{Failure, Result},
    files::Folder,
    output,
    transfer::{self, Abort, Delivered, Receiver, Session},
    units::bytes_text,
};
use srd::{Device, ProtectionDomain, QKey};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Instant,
};

/// Most copies at once.
const COPIES_MAX: usize = 32;

/// A client's request for a copy.
pub enum CopyRequest {
    /// The client sends a file.
    Put { size: u64, name: String },
    /// The client fetches a file.
    Get { slots: Slots, name: String },
}

/// All running copies.
pub struct Copies {
    folder: Option<Arc<Folder>>,
    limits: Limits,
    running: Vec<JoinHandle<bool>>,
    stop: Arc<AtomicBool>,
    /// Number of successful copies.
    pub done: u64,
    /// Number of failed copies.
    pub failed: u64,
}

/// State of a copy's thread.
struct Copy {
    device: Device,
    folder: Arc<Folder>,
    limits: Limits,
    stop: Arc<AtomicBool>,
    from: ClientAddress,
    id: u64,
    reply_qkey: QKey,
    _lease: Lease,
}

impl Copies {
    /// No running copies.
    pub fn new(folder: Option<Folder>, limits: Limits) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let folder = folder.map(Arc::new);
        Self { folder, limits, running: Vec::new(), stop, done: 0, failed: 0 }
    }

    /// Starts a copy, whose thread answers the client. Returns a refusal for the caller to send.
    pub fn begin(
        &mut self,
        device: &Device,
        from: ClientAddress,
        (id, reply_qkey): (u64, QKey),
        request: CopyRequest,
    ) -> Option<Body> {
        let refuse = |why, text: String| Some(Body::Fail(why, text));
        let Some(folder) = &self.folder else {
            let text = "the server was started without --dir and serves no files";
            return refuse(Refusal::File, text.into());
        };
        let disk = match &request {
            CopyRequest::Put { .. } if self.limits.read_only => {
                let text = "the server accepts no files (--read-only)";
                return refuse(Refusal::File, text.into());
            }
            CopyRequest::Put { size, .. } => *size,
            CopyRequest::Get { .. } => 0,
        };
        if self.running.len() >= COPIES_MAX {
            let text = format!("{COPIES_MAX} copies are running already; try again later");
            return refuse(Refusal::Busy, text);
        }
        let memory = match &request {
            CopyRequest::Put { size, .. } => Receiver::memory_bytes(Some(*size)),
            // No more bytes are in flight than the client's slots hold.
            CopyRequest::Get { slots, .. } => {
                transfer::MEMORY_BYTES_MAX.min(u64::from(slots.chunk) * u64::from(slots.count))
            }
        };
        let memory = memory + Link::memory_bytes(transfer::DEPTH);
        let share = Share { qps: 1, memory, disk };
        let lease = match self.limits.take(from.ip, share) {
            Ok(lease) => lease,
            Err(e) => {
                output::note(&format!("srd: {} is refused a copy: {e}", from.ip));
                return refuse(Refusal::Busy, e.to_string());
            }
        };
        let (device, folder, stop) = (device.clone(), Arc::clone(folder), Arc::clone(&self.stop));
        let limits = self.limits.clone();
        let copy = Copy { device, folder, limits, stop, from, id, reply_qkey, _lease: lease };
        let thread = std::thread::Builder::new().name("srd-copy".into());
        match thread.spawn(move || copy.run(request)) {
            Ok(handle) => self.running.push(handle),
            Err(e) => {
                return refuse(Refusal::Busy, format!("the server cannot start a thread: {e}"));
            }
        }
        None
    }

    /// Removes the threads that have ended. Returns whether there were any.
    pub fn reap(&mut self) -> bool {
        let mut ended = false;
        for i in (0..self.running.len()).rev() {
            if self.running[i].is_finished() {
                let well = self.running.swap_remove(i).join().unwrap_or(false);
                self.done += u64::from(well);
                self.failed += u64::from(!well);
                ended = true;
            }
        }
        ended
    }

    /// Whether copies are running.
    pub fn any(&self) -> bool {
        !self.running.is_empty()
    }

    /// Asks all copies to end. The caller must drive the device until they have ended.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

impl Copy {
    /// Runs the copy, and returns whether it succeeded.
    fn run(&self, request: CopyRequest) -> bool {
        let (verb, name) = match &request {
            CopyRequest::Put { name, .. } => ("stores", name.clone()),
            CopyRequest::Get { name, .. } => ("fetches", name.clone()),
        };
        let what = format!("{} {verb} {name:?}", self.from.ip);
        let begin = Instant::now();
        match self.copy(request) {
            Ok(Delivered { size, hash }) => {
                let seconds = begin.elapsed().as_secs_f64();
                let size = bytes_text(size);
                let text = format!("{what}: {size} in {seconds:.2} s, blake3 {hash}");
                // The reader of the output may have exited; the copy succeeded anyway.
                let _ = output::line(&text);
                true
            }
            Err(e) => {
                output::note(&format!("srd: {what}: {e}"));
                false
            }
        }
    }

    fn copy(&self, request: CopyRequest) -> Result<Delivered> {
        // A protection domain of its own: no other client's queue pair can access its memory.
        let pd = self.device.pd_create()?;
        let depth = transfer::DEPTH;
        let slots = u32::from(depth.sends) + u32::from(depth.recvs) + u32::from(depth.writes);
        let cq = self.device.cq_create(slots)?;
        let qkey = qkey_random()?;
        let link = Link::new(&pd, &cq, qkey, depth)?;
        let ah = pd.ah_create(self.from.ip)?;
        let peer = Peer { ah, qpn: self.from.qpn, qkey: self.reply_qkey };
        let stop = || match self.stop.load(Ordering::Relaxed) {
            true => Err(Failure::new("the server was ended")),
            false => Ok(()),
        };
        let mut session = Session::new(link, cq, peer, self.id, &stop);
        let done = match request {
            CopyRequest::Put { size, name } => self.put(&mut session, &pd, qkey, size, &name),
            CopyRequest::Get { slots, name } => self.get(&mut session, &pd, qkey, &slots, &name),
        };
        done.map_err(|abort| {
            session.abort(&abort);
            abort.failure
        })
    }

    fn put(
        &self,
        session: &mut Session<'_>,
        pd: &ProtectionDomain,
        qkey: QKey,
        size: u64,
        name: &str,
    ) -> Result<Delivered, Abort> {
        let target = self.folder.create(name, size).map_err(Abort::file)?;
        self.limits.disk_check().map_err(Abort::file)?;
        let receiver = Receiver::new(pd, Some(size))?;
        session.send(Body::PutReady { qkey, slots: receiver.slots() })?;
        let done = receiver.receive(session, target, size, &mut |_| {});
        // The client is told while the memory still exists; otherwise its writes would fail first.
        done.inspect_err(|abort| session.abort(abort))
    }

    fn get(
        &self,
        session: &mut Session<'_>,
        pd: &ProtectionDomain,
        qkey: QKey,
        slots: &Slots,
        name: &str,
    ) -> Result<Delivered, Abort> {
        let (file, size) = self.folder.read(name).map_err(Abort::file)?;
        // Messages are not ordered: the client must know the size before the first chunk.
        session.send_and_wait(Body::GetReady { qkey, size })?;
        transfer::send(session, pd, file, size, slots, &mut |_| {})
    }
}
