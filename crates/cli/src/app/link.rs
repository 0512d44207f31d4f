//! A link: a queue pair that carries the tool's messages, with its buffers.

use crate::{
    app::message::{MESSAGE_BYTES_MAX, Malformed, Message},
    failure::{Failure, Result},
};
use srd::{
    Access, AddressHandle, CompletionOp, CompletionQueue, MemoryRegion, PostError,
    ProtectionDomain, QKey, QpInit, Qpn, QueuePair, RKey, RecvWr, SendWr, Sge, Status,
    WorkCompletion,
};
use std::net::IpAddr;

/// Size of one buffer in bytes.
const BUFFER_BYTES: usize = MESSAGE_BYTES_MAX.next_multiple_of(64);
/// Bit in the `wr_id` of a work request that marks an RDMA write; the other bits are the caller's
/// tag.
const WRITE_BIT: u64 = 1 << 63;

/// Capacity of a link.
#[derive(Clone, Copy, Debug)]
pub struct LinkDepth {
    /// Messages being sent.
    pub sends: u16,
    /// Messages that may arrive before they are read: posted receives.
    pub recvs: u16,
    /// RDMA writes in flight.
    pub writes: u16,
}

/// Destination of messages.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Handle of the host.
    pub ah: AddressHandle,
    /// Queue pair.
    pub qpn: Qpn,
    /// Q_Key of the queue pair.
    pub qkey: QKey,
}

/// Remote memory: address and key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote {
    /// Address of the first byte.
    pub raddr: u64,
    /// Key of the memory region.
    pub rkey: RKey,
}

/// An event on a link.
#[derive(Debug)]
pub enum Event {
    /// A message arrived.
    Message(Arrival),
    /// The send of a message completed; the tag is the one passed to [`Link::send`].
    Sent { tag: u64, status: Status },
    /// A write completed.
    Written { tag: u64, status: Status },
}

/// A received message and its sender.
#[derive(Debug)]
pub struct Arrival {
    /// Sender's address.
    pub ip: IpAddr,
    /// Sender's queue pair.
    pub qpn: Qpn,
    /// The message, or why the bytes are not a message.
    pub message: Result<Message, Malformed>,
    /// Request number and reply Q_Key; readable in every protocol version.
    pub head: Option<(u64, QKey)>,
}

/// A message being sent. Keeps the address handle alive that the send needs.
struct Outgoing {
    tag: u64,
    ah: AddressHandle,
    qpn: Qpn,
}

/// A queue pair with buffers for messages.
pub struct Link {
    qp: QueuePair,
    memory: MemoryRegion,
    qkey: QKey,
    /// Messages being sent, indexed by buffer.
    outgoing: Vec<Option<Outgoing>>,
    /// Indices of free send buffers.
    free: Vec<u16>,
}

impl Link {
    /// Creates a queue pair that completes to `cq`, and posts all receives.
    ///
    /// # Errors
    /// The device has too few resources.
    pub fn new(
        pd: &ProtectionDomain,
        cq: &CompletionQueue,
        qkey: QKey,
        depth: LinkDepth,
    ) -> Result<Self> {
        let mut init = QpInit::srd(cq, cq);
        init.sq_depth = u32::from(depth.sends) + u32::from(depth.writes);
        init.rq_depth = u32::from(depth.recvs);
        let qp = pd.qp_create(&init)?;
        qp.activate(qkey)?;
        let bytes = Self::memory_bytes(depth) as usize;
        let memory = pd.mr_allocate(bytes, Access::LOCAL_WRITE)?;
        let outgoing = (0..depth.sends).map(|_| None).collect();
        let link = Self { qp, memory, qkey, outgoing, free: (0..depth.sends).collect() };
        for i in 0..usize::from(depth.recvs) {
            link.post_recv(usize::from(depth.sends) + i)?;
        }
        Ok(link)
    }

    /// Memory of a link's buffers, in bytes.
    pub fn memory_bytes(depth: LinkDepth) -> u64 {
        (u64::from(depth.sends) + u64::from(depth.recvs)) * BUFFER_BYTES as u64
    }

    /// Number of the queue pair.
    pub fn qpn(&self) -> Qpn {
        self.qp.qpn()
    }

    /// Q_Key of the queue pair.
    pub fn qkey(&self) -> QKey {
        self.qkey
    }

    fn post_recv(&self, buffer: usize) -> Result<(), PostError> {
        let sge = self.memory.sge(buffer * BUFFER_BYTES, BUFFER_BYTES as u32);
        self.qp.post_recv(&RecvWr { wr_id: buffer as u64, sges: &[sge] })
    }

    /// Whether a message can be sent now.
    pub fn can_send(&self) -> bool {
        !self.free.is_empty()
    }

    /// Whether more than `kept` messages can be sent now.
    pub fn can_send_more_than(&self, kept: usize) -> bool {
        self.free.len() > kept
    }

    /// Number of messages being sent to a queue pair, and to its whole host.
    pub fn outgoing_to(&self, ip: IpAddr, qpn: Qpn) -> (usize, usize) {
        let of_host = self.outgoing.iter().flatten().filter(|o| o.ah.ip() == ip);
        of_host.fold((0, 0), |(qp, host), o| (qp + usize::from(o.qpn == qpn), host + 1))
    }

    /// Whether a message has not been acknowledged yet.
    pub fn is_sending(&self) -> bool {
        self.outgoing.iter().any(Option::is_some)
    }

    /// Sends a message. An [`Event::Sent`] with `tag` follows.
    ///
    /// # Errors
    /// No buffer is free, or the message does not fit the device's MTU.
    pub fn send(&mut self, to: &Peer, message: &Message, tag: u64) -> Result {
        let bytes = message.to_bytes();
        let mtu = self.qp.device().mtu();
        if bytes.len() > mtu {
            return Err(Failure::new(format!(
                "a message of {} bytes does not fit the MTU of {mtu}: use a shorter name or a \
                 larger --mtu",
                bytes.len()
            )));
        }
        let buffer = self
            .free
            .pop()
            .ok_or_else(|| Failure::new("too many messages are being sent; try again"))?;
        let offset = usize::from(buffer) * BUFFER_BYTES;
        self.memory.write_at(offset, &bytes)?;
        let sges = [self.memory.sge(offset, bytes.len() as u32)];
        let wr = SendWr::send(u64::from(buffer), &to.ah, to.qpn, to.qkey).sges(&sges);
        if let Err(e) = self.qp.post_send(&wr) {
            self.free.push(buffer);
            return Err(e.into());
        }
        self.outgoing[usize::from(buffer)] = Some(Outgoing { tag, ah: to.ah.clone(), qpn: to.qpn });
        Ok(())
    }

    /// Writes `data` to the peer's memory. An [`Event::Written`] with `tag` (below 2^63) follows.
    ///
    /// # Errors
    /// See [`PostError`].
    pub fn write(&self, to: &Peer, data: Sge, remote: Remote, tag: u64) -> Result<(), PostError> {
        let wr = SendWr::write(WRITE_BIT | tag, &to.ah, to.qpn, to.qkey);
        self.qp.post_send(&wr.remote(remote.raddr, remote.rkey).sges(&[data]))
    }

    /// Converts a completion of this link's queue pair to an event, and posts a consumed receive
    /// again.
    ///
    /// # Errors
    /// The device is shut down.
    pub fn handle(&mut self, wc: &WorkCompletion) -> Result<Option<Event>> {
        match wc.op {
            CompletionOp::Write => {
                let tag = wc.wr_id & !WRITE_BIT;
                Ok(Some(Event::Written { tag, status: wc.status }))
            }
            CompletionOp::Send => {
                let buffer = wc.wr_id as usize;
                let Some(outgoing) = self.outgoing[buffer].take() else { return Ok(None) };
                self.free.push(buffer as u16);
                Ok(Some(Event::Sent { tag: outgoing.tag, status: wc.status }))
            }
            CompletionOp::Recv => {
                let buffer = wc.wr_id as usize;
                let arrival = if wc.is_ok() { self.read(wc, buffer)? } else { None };
                match self.post_recv(buffer) {
                    Ok(()) | Err(PostError::BadState) => Ok(arrival.map(Event::Message)),
                    Err(e) => Err(e.into()),
                }
            }
            // Clients never do either to this queue pair; a faulty peer that does harms only
            // itself.
            CompletionOp::Read | CompletionOp::RecvRdmaImm | CompletionOp::RecvUnsolicited => {
                if wc.op == CompletionOp::RecvRdmaImm {
                    self.post_recv(wc.wr_id as usize)?;
                }
                Ok(None)
            }
        }
    }

    fn read(&self, wc: &WorkCompletion, buffer: usize) -> Result<Option<Arrival>> {
        let Some(ip) = wc.src_ip else { return Ok(None) };
        let len = (wc.byte_len as usize).min(BUFFER_BYTES);
        let bytes = self.memory.to_vec(buffer * BUFFER_BYTES, len)?;
        let (message, head) = (Message::from_bytes(&bytes), Message::head_of(&bytes));
        Ok(Some(Arrival { ip, qpn: wc.src_qpn, message, head }))
    }
}
