//! Arrays for one `sendmmsg` or `recvmmsg`.
#![allow(unsafe_code, reason = "the two calls and the message headers they take")]

use super::{
    addr::SockAddr,
    control::{ReceiveControl, SegmentControl},
};
use crate::Part;
use core::{mem::MaybeUninit, net::SocketAddr};
use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd},
    ptr,
};

/// Messages in one system call.
pub const MESSAGES_MAX: usize = 64;
/// Flags of all calls that send.
const SEND_FLAGS: i32 = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
/// Bytes of one receive buffer: the longest merged datagram.
pub const BUFFER_BYTES: usize = 65_536;

const _: () = {
    assert!(size_of::<Part>() == size_of::<libc::iovec>());
    assert!(align_of::<Part>() == align_of::<libc::iovec>());
};

/// Messages to send from one socket: each is one datagram, or several datagrams of equal size.
#[derive(Default)]
pub struct SendRing {
    parts: Vec<Part>,
    messages: Vec<Message>,
    /// Whether the last part belongs to an arena and to the last message.
    arena_tail: bool,
}

/// One message of a [`SendRing`].
pub struct Message {
    /// Destination.
    pub dst: SocketAddr,
    /// Number of datagrams.
    pub packets: usize,
    /// Bytes in it.
    pub bytes: usize,
    /// Bytes of each datagram but the last.
    pub segment_len: usize,
    parts_at: usize,
    addr: SockAddr,
    control: SegmentControl,
}

impl SendRing {
    /// Room for `packets` datagrams without allocation.
    pub fn with_capacity(packets: usize) -> Self {
        let (parts, messages) = (Vec::with_capacity(packets * 4), Vec::with_capacity(packets));
        Self { parts, messages, arena_tail: false }
    }

    /// Removes all messages.
    pub fn clear(&mut self) {
        self.parts.clear();
        self.messages.clear();
    }

    /// Starts a message of datagrams of `segment_len` bytes.
    pub fn message_start(&mut self, dst: SocketAddr, segment_len: usize) {
        let segment = u16::try_from(segment_len).unwrap_or(u16::MAX);
        self.arena_tail = false;
        self.messages.push(Message {
            dst,
            packets: 0,
            bytes: 0,
            segment_len,
            parts_at: self.parts.len(),
            addr: SockAddr::new(dst),
            control: SegmentControl::new(segment),
        });
    }

    /// Adds `packets` datagrams of `bytes` bytes in total to the last message; their parts are
    /// pushed before or after this.
    pub fn packets_add(&mut self, packets: usize, bytes: usize) {
        if let Some(message) = self.messages.last_mut() {
            message.packets += packets;
            message.bytes += bytes;
        }
    }

    /// Appends `part` to the last message.
    pub fn part_push(&mut self, part: Part) {
        if !part.is_empty() {
            self.parts.push(part);
            self.arena_tail = false;
        }
    }

    /// Appends `part` of an arena to the last message. An adjacent part is merged with the previous
    /// one: the kernel copies a long part much faster than several short ones.
    pub fn arena_part_push(&mut self, part: Part) {
        let last = self.parts.last_mut().filter(|_| self.arena_tail);
        if !last.is_some_and(|last| last.extend(&part)) {
            self.part_push(part);
            self.arena_tail = !part.is_empty();
        }
    }

    /// The messages.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Appends the bytes of message `index` to `out`.
    pub fn message_copy(&self, index: usize, out: &mut Vec<u8>) {
        for part in self.parts_of(index) {
            part.copy_into(out);
        }
    }

    fn parts_of(&self, index: usize) -> &[Part] {
        let end = self.messages.get(index + 1).map_or(self.parts.len(), |next| next.parts_at);
        &self.parts[self.messages[index].parts_at..end]
    }

    /// Sends messages from index `from` on, at most [`MESSAGES_MAX`]. Returns how many the kernel
    /// accepted (at least one), or the error number of the first. Messages to `connected`, the
    /// socket's connected address, are sent without an address.
    pub fn send(
        &self,
        fd: BorrowedFd<'_>,
        from: usize,
        connected: Option<SocketAddr>,
    ) -> Result<usize, i32> {
        if self.messages.len() - from == 1 {
            let message = &self.messages[from];
            if let ([part], 1) = (self.parts_of(from), message.packets) {
                let to = (connected != Some(message.dst)).then_some(&message.addr);
                return datagram_send(fd, to, *part).map(|()| 1);
            }
            let header = self.header(from, connected);
            // SAFETY: as below, for one message.
            let rc = unsafe {
                libc::syscall(libc::SYS_sendmsg, fd.as_raw_fd(), &raw const header, SEND_FLAGS)
            };
            return if rc >= 0 { Ok(1) } else { Err(errno()) };
        }
        let mut headers = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; MESSAGES_MAX];
        let count = (self.messages.len() - from).min(MESSAGES_MAX);
        for (i, header) in headers[..count].iter_mut().enumerate() {
            header.write(libc::mmsghdr { msg_hdr: self.header(from + i, connected), msg_len: 0 });
        }
        // SAFETY: the first `count` headers are initialised. They point to addresses, controls and
        // parts of `self`, which the kernel only reads here; a Part has the layout of an iovec
        // (`repr(C)`, pointer then length), and its bytes are readable by the contract of
        // `Part::new`.
        let rc = unsafe {
            libc::sendmmsg(fd.as_raw_fd(), headers.as_mut_ptr().cast(), count as u32, SEND_FLAGS)
        };
        if rc > 0 { Ok(rc as usize) } else { Err(errno()) }
    }

    fn header(&self, index: usize, connected: Option<SocketAddr>) -> libc::msghdr {
        let (message, parts) = (&self.messages[index], self.parts_of(index));
        // SAFETY: an all-zero msghdr is a valid value of that plain struct.
        let mut h: libc::msghdr = unsafe { core::mem::zeroed() };
        if connected != Some(message.dst) {
            h.msg_name = message.addr.as_ptr().cast_mut().cast();
            h.msg_namelen = message.addr.len();
        }
        h.msg_iov = parts.as_ptr().cast_mut().cast();
        h.msg_iovlen = parts.len();
        if message.packets > 1 {
            h.msg_control = message.control.as_ptr().cast_mut().cast();
            h.msg_controllen = SegmentControl::BYTES;
        }
        h
    }
}

/// Sends one datagram, to the connected address of the socket if `to` is `None`. Without a message
/// header and a list of parts, the call is about 50 ns faster.
pub fn datagram_send(fd: BorrowedFd<'_>, to: Option<&SockAddr>, datagram: Part) -> Result<(), i32> {
    let (name, name_len) = to.map_or((ptr::null(), 0), |to| (to.as_ptr(), to.len()));
    let (at, len) = (datagram.as_ptr(), datagram.len());
    // SAFETY: the `len` bytes are readable by the contract of `Part::new`, and the address is null
    // or of the given length.
    let rc = unsafe {
        libc::syscall(libc::SYS_sendto, fd.as_raw_fd(), at, len, SEND_FLAGS, name, name_len)
    };
    if rc >= 0 { Ok(()) } else { Err(errno()) }
}

/// Buffers to receive into.
pub struct RecvRing {
    buffers: Vec<u8>,
    slots: Vec<Slot>,
}

struct Slot {
    addr: SockAddr,
    control: ReceiveControl,
    control_len: usize,
    len: usize,
    truncated: bool,
}

impl Slot {
    /// Prepares to receive a message into this slot and the buffer of `iovec`.
    fn header(&mut self, iovec: &mut libc::iovec) -> libc::msghdr {
        // SAFETY: an all-zero msghdr is a valid value of that plain struct.
        let mut h: libc::msghdr = unsafe { core::mem::zeroed() };
        h.msg_name = self.addr.as_mut_ptr().cast();
        h.msg_namelen = super::addr::BYTES_MAX as u32;
        h.msg_iov = ptr::from_mut(iovec);
        h.msg_iovlen = 1;
        h.msg_control = self.control.0.as_mut_ptr().cast();
        h.msg_controllen = ReceiveControl::BYTES;
        h
    }

    /// Reads the lengths written by the kernel.
    fn take(&mut self, header: &libc::msghdr, len: usize) {
        self.addr.len_set(header.msg_namelen);
        self.control_len = header.msg_controllen.min(ReceiveControl::BYTES);
        self.len = len.min(BUFFER_BYTES);
        self.truncated = header.msg_flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) != 0;
    }
}

fn iovec_of(buffer: &mut [u8]) -> libc::iovec {
    libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() }
}

/// One received message.
pub struct RecvMessage<'a> {
    /// Source, if it is an IP address.
    pub src: Option<SocketAddr>,
    /// The datagram, or several merged.
    pub bytes: &'a mut [u8],
    /// Control messages.
    pub control: &'a [u8],
    /// The datagram or its control messages were longer than the buffers.
    pub truncated: bool,
}

impl RecvRing {
    /// Buffers for `messages` messages, at most [`MESSAGES_MAX`]. Memory is first touched when
    /// used.
    pub fn new(messages: usize) -> Self {
        let messages = messages.clamp(1, MESSAGES_MAX);
        let slot = || Slot {
            addr: SockAddr::EMPTY,
            control: ReceiveControl([0; ReceiveControl::BYTES]),
            control_len: 0,
            len: 0,
            truncated: false,
        };
        let slots = core::iter::repeat_with(slot).take(messages).collect();
        Self { buffers: vec![0; messages * BUFFER_BYTES], slots }
    }

    /// Number of messages that fit.
    pub fn capacity(&self) -> usize {
        self.slots.len()
    }

    /// Receives at most `want` messages without blocking; returns how many, or the error number.
    pub fn receive(&mut self, fd: BorrowedFd<'_>, want: usize) -> Result<usize, i32> {
        if want <= 1 {
            return self.receive_one(fd);
        }
        let count = want.min(self.slots.len());
        let mut iovecs = [const { MaybeUninit::<libc::iovec>::uninit() }; MESSAGES_MAX];
        let mut headers = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; MESSAGES_MAX];
        let buffers = self.buffers.chunks_exact_mut(BUFFER_BYTES);
        for (i, (slot, buffer)) in self.slots[..count].iter_mut().zip(buffers).enumerate() {
            let iovec = iovecs[i].write(iovec_of(buffer));
            headers[i].write(libc::mmsghdr { msg_hdr: slot.header(iovec), msg_len: 0 });
        }
        // SAFETY: the first `count` headers are initialised; each points to an address, a control
        // buffer, an iovec and a data buffer of its own, of the lengths given, all alive here.
        let rc = unsafe {
            libc::recvmmsg(
                fd.as_raw_fd(),
                headers.as_mut_ptr().cast(),
                count as u32,
                libc::MSG_DONTWAIT,
                ptr::null_mut(),
            )
        };
        if rc < 0 {
            return Err(errno());
        }
        for (slot, header) in self.slots.iter_mut().zip(&headers[..rc as usize]) {
            // SAFETY: all of the first `count` headers were initialised, and `rc` <= `count`.
            let h = unsafe { header.assume_init_ref() };
            slot.take(&h.msg_hdr, h.msg_len as usize);
        }
        Ok(rc as usize)
    }

    /// Receives one message: the cheaper call while polling an empty socket.
    fn receive_one(&mut self, fd: BorrowedFd<'_>) -> Result<usize, i32> {
        let mut iovec = iovec_of(&mut self.buffers[..BUFFER_BYTES]);
        let mut header = self.slots[0].header(&mut iovec);
        // SAFETY: as in `receive`, for one message.
        let rc = unsafe {
            libc::syscall(libc::SYS_recvmsg, fd.as_raw_fd(), &raw mut header, libc::MSG_DONTWAIT)
        };
        if rc < 0 {
            return Err(errno());
        }
        self.slots[0].take(&header, rc as usize);
        Ok(1)
    }

    /// Message `index` of the last receive.
    pub fn message(&mut self, index: usize) -> RecvMessage<'_> {
        let slot = &self.slots[index];
        RecvMessage {
            src: slot.addr.get(),
            bytes: &mut self.buffers[index * BUFFER_BYTES..][..slot.len],
            control: &slot.control.0[..slot.control_len],
            truncated: slot.truncated,
        }
    }
}

fn errno() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(0)
}
