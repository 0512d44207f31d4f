//! Completion queues and channels.

use crate::{
    device::srd_device,
    fail::{Fail, run},
    handle::{at, give, put, take},
};
use srd::{CompletionOp, CqInit, Status, WorkCompletion};
use std::{
    ffi::{c_char, c_int},
    os::fd::AsRawFd,
    time::Duration,
};

/// A completion queue.
pub struct srd_cq(pub(crate) srd::CompletionQueue);

/// A completion channel.
pub struct srd_channel(srd::CompletionChannel);

/// How a work request ended: EFA's numbers. srd_status_text says each in words.
#[repr(C)]
pub enum srd_wc_status {
    /// Success.
    Ok = 0,
    /// The queue pair went to ERR; it may have been executed. Reset or recreate the queue pair.
    Flushed = 1,
    /// The device has failed by an error in this software. Open another one.
    LocalQpInternalError = 2,
    /// The engine refuses the operation; no case is known.
    LocalUnsupportedOp = 3,
    /// The address handle was destroyed before the end. Keep it until the completion.
    LocalInvalidAh = 4,
    /// A memory region was deregistered before the end. Keep it until the completion.
    LocalInvalidLkey = 5,
    /// Longer than the MTU agreed with this peer, or than the path carries now. Send less.
    LocalBadLength = 6,
    /// RDMA: the peer has no such region, or not that range or access right.
    RemoteBadAddress = 7,
    /// The peer restarted or shut down; it may have been executed, once at most.
    RemoteAbort = 8,
    /// The peer has no such queue pair, or it is not ready, or the Q_Key differs.
    RemoteBadDestQpn = 9,
    /// The peer had no receive posted in time. Post more there, or raise rnr_retry.
    RemoteRnr = 10,
    /// The receive posted at the peer is shorter than the message. Post larger ones.
    RemoteBadLength = 11,
    /// The peer gave an invalid answer. Check the version that runs there.
    RemoteBadStatus = 12,
    /// The peer answered before, but has been silent for 5 s; it may have been executed.
    LocalUnrespRemote = 13,
    /// RDMA: the peer has no address handle for this host. It must create one and keep it.
    RemoteUnknownPeer = 14,
    /// The peer has never answered: not running, wrong address, or a firewall.
    LocalUnreachRemote = 15,
    /// The peer does not offer the operation.
    RemoteFeatureMismatch = 18,
}

/// What a completion is for.
#[repr(C)]
pub enum srd_wc_opcode {
    /// A message sent.
    Send = 0,
    /// An RDMA write.
    Write = 1,
    /// An RDMA read.
    Read = 2,
    /// A message received.
    Recv = 128,
    /// A peer's write with immediate.
    RecvRdmaImm = 129,
}

/// Bits of srd_wc.flags.
#[repr(C)]
pub enum srd_wc_flags {
    /// `imm` is valid.
    Imm = 1,
    /// `src_gid` is valid.
    SrcGid = 2,
    /// No receive was consumed, `wr_id` is 0.
    Unsolicited = 4,
}

/// A completion.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct srd_wc {
    /// The number given when it was posted.
    pub wr_id: u64,
    /// A srd_wc_status.
    pub status: u32,
    /// A srd_wc_opcode.
    pub opcode: u32,
    /// Bytes.
    pub byte_len: u32,
    /// Immediate data.
    pub imm: u32,
    /// Bits of srd_wc_flags.
    pub flags: u32,
    /// Local queue pair.
    pub qpn: u16,
    /// Receive: the sender's queue pair.
    pub src_qpn: u16,
    /// Receive: number of an address handle of the sender; 0xFFFF = there is none.
    pub src_ah: u16,
    /// Receive: the sender's address.
    pub src_gid: [u8; 16],
}

impl From<&WorkCompletion> for srd_wc {
    fn from(c: &WorkCompletion) -> Self {
        let (opcode, unsolicited) = match c.op {
            CompletionOp::Send => (srd_wc_opcode::Send, false),
            CompletionOp::Write => (srd_wc_opcode::Write, false),
            CompletionOp::Read => (srd_wc_opcode::Read, false),
            CompletionOp::Recv => (srd_wc_opcode::Recv, false),
            CompletionOp::RecvRdmaImm => (srd_wc_opcode::RecvRdmaImm, false),
            CompletionOp::RecvUnsolicited => (srd_wc_opcode::RecvRdmaImm, true),
        };
        let mut flags = 0;
        for (bit, set) in [
            (srd_wc_flags::Imm as u32, c.imm.is_some()),
            (srd_wc_flags::SrcGid as u32, c.src_ip.is_some()),
            (srd_wc_flags::Unsolicited as u32, unsolicited),
        ] {
            flags |= if set { bit } else { 0 };
        }
        Self {
            wr_id: c.wr_id,
            status: c.status as u32,
            opcode: opcode as u32,
            byte_len: c.byte_len,
            imm: c.imm.unwrap_or(0),
            flags,
            qpn: c.qpn.0,
            src_qpn: c.src_qpn.0,
            src_ah: c.src_ah.0,
            src_gid: c.src_ip.map_or([0; 16], srd::gid_from_ip),
        }
    }
}

/// Makes a completion channel.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srd_channel_create(
    device: *const srd_device,
    channel: *mut *mut srd_channel,
) -> c_int {
    run(|| {
        // SAFETY: the contract of the header.
        let new = unsafe { at(device, "the device") }?.0.channel_create()?;
        // SAFETY: as above.
        unsafe { give(channel, srd_channel(new)) }?;
        Ok(0)
    })
}

/// Descriptor of a channel: readable while events wait. With SRD_PROGRESS_CALLER somebody must
/// drive the device for events to come.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srd_channel_fd(channel: *const srd_channel) -> c_int {
    // SAFETY: the contract of the header.
    run(|| Ok(unsafe { at(channel, "the channel") }?.0.as_raw_fd()))
}

/// Takes the oldest event of a channel, waiting `timeout_us` microseconds at most (negative = no
/// limit): `context` gets the number that the completion queue was created with. Returns 1, or 0
/// after the time has passed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srd_channel_get(
    channel: *const srd_channel,
    timeout_us: i64,
    context: *mut u64,
) -> c_int {
    run(|| {
        // SAFETY: the contract of the header.
        let channel = &unsafe { at(channel, "the channel") }?.0;
        if context.is_null() {
            return Err(Fail::invalid("the place for the context is NULL"));
        }
        let timeout = u64::try_from(timeout_us).ok().map(Duration::from_micros);
        let Some(event) = channel.get(timeout)? else { return Ok(0) };
        // SAFETY: as above.
        unsafe { put(context, event.context) }?;
        Ok(1)
    })
}

/// Takes a channel apart. -EBUSY while a completion queue reports to it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srd_channel_destroy(channel: *mut srd_channel) -> c_int {
    run(|| {
        // SAFETY: the contract of the header.
        drop(unsafe { take(channel, "the channel", |c| c.0.in_use()) }?);
        Ok(0)
    })
}

/// Makes a completion queue of `depth` slots. `channel` may be NULL; `context` comes back in its
/// events.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srd_cq_create(
    device: *const srd_device,
    depth: u32,
    channel: *const srd_channel,
    context: u64,
    cq: *mut *mut srd_cq,
) -> c_int {
    run(|| {
        // SAFETY: the contract of the header.
        let (device, channel) = unsafe { (at(device, "the device")?, channel.as_ref()) };
        let channel = channel.map(|c| &c.0);
        let new = device.0.cq_create_ex(&CqInit { depth, channel, context })?;
        // SAFETY: as above.
        unsafe { give(cq, srd_cq(new)) }?;
        Ok(0)
    })
}

/// Takes a completion queue apart. -EBUSY while a queue pair uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srd_cq_destroy(cq: *mut srd_cq) -> c_int {
    run(|| {
        // SAFETY: the contract of the header.
        drop(unsafe { take(cq, "the completion queue", |c| c.0.in_use()) }?);
        Ok(0)
    })
}

/// Takes up to `n` completions into `wc`; returns how many. Never waits.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srd_cq_poll(cq: *const srd_cq, wc: *mut srd_wc, n: u32) -> c_int {
    /// Completions taken in one go.
    const BATCH: usize = 16;
    run(|| {
        // SAFETY: the contract of the header.
        let cq = &unsafe { at(cq, "the completion queue") }?.0;
        if wc.is_null() && n > 0 {
            return Err(Fail::invalid("the array for completions is NULL"));
        }
        let n = n.min(c_int::MAX as u32) as usize;
        let mut done = 0;
        while done < n {
            let mut batch = [WorkCompletion::default(); BATCH];
            let want = BATCH.min(n - done);
            let got = cq.poll(&mut batch[..want])?;
            for c in &batch[..got] {
                // SAFETY: the array has n entries, and done < n.
                unsafe { wc.add(done).write(c.into()) };
                done += 1;
            }
            if got < want {
                break;
            }
        }
        Ok(done as c_int)
    })
}

/// Takes one completion, waiting `timeout_us` microseconds at most. Drives the device if nobody
/// else does. Returns 1, or 0 after the time has passed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srd_cq_wait(cq: *const srd_cq, wc: *mut srd_wc, timeout_us: u64) -> c_int {
    run(|| {
        // SAFETY: the contract of the header.
        let cq = &unsafe { at(cq, "the completion queue") }?.0;
        if wc.is_null() {
            return Err(Fail::invalid("the place for the completion is NULL"));
        }
        let Some(c) = cq.wait(Duration::from_micros(timeout_us))? else { return Ok(0) };
        // SAFETY: as above.
        unsafe { put(wc, srd_wc::from(&c)) }?;
        Ok(1)
    })
}

/// Arms a completion queue: the next completion makes one event on its channel. Poll once more
/// after this.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srd_cq_req_notify(cq: *const srd_cq) -> c_int {
    run(|| {
        // SAFETY: the contract of the header.
        unsafe { at(cq, "the completion queue") }?.0.req_notify()?;
        Ok(0)
    })
}

/// What a srd_wc_status means, in words. Never NULL.
#[unsafe(no_mangle)]
pub extern "C" fn srd_status_text(status: u32) -> *const c_char {
    /// The words for a status, with the nul that C wants.
    macro_rules! words {
        ($($status:ident: $text:literal;)*) => {
            match status {
                $(n if n == Status::$status as u32 => concat!($text, "\0"),)*
                _ => "unknown status\0",
            }
        };
    }
    let text: &'static str = words! {
        Ok: "success";
        Flushed: "flushed: the queue pair went to the error state; reset it or make another";
        LocalQpInternalError: "local error inside the queue pair";
        LocalUnsupportedOp: "the queue pair does not support the operation";
        LocalInvalidAh: "the address handle was destroyed; keep it until the completion";
        LocalInvalidLkey: "the local memory region was deregistered; keep it until the completion";
        LocalBadLength: "longer than the operation allows";
        RemoteBadAddress: "the peer refused the rkey: unknown, out of bounds or no such access";
        RemoteAbort: "the peer was restarted or reset";
        RemoteBadDestQpn: "the peer has no such queue pair, or the Q_Key is wrong";
        RemoteRnr: "the peer had no receive posted in time";
        RemoteBadLength: "the receive posted at the peer is too short; post larger ones";
        RemoteBadStatus: "the peer sent an invalid answer";
        LocalUnrespRemote: "the peer answered before, but is silent now";
        RemoteUnknownPeer: "the peer has no address handle for this host: create one there";
        LocalUnreachRemote: "the peer never answered";
        RemoteFeatureMismatch: "the peer does not offer the operation";
    };
    text.as_ptr().cast()
}
