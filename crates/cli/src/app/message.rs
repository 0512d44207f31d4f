//! Messages between client and server: little-endian fields, parsed without trusting the sender.
//! `docs/tool.md` describes each kind.

use crate::failure::Failure;
use srd::{QKey, RKey};
use std::fmt;

/// First bytes of every message.
const MAGIC: [u8; 3] = *b"SRT";
/// Version of this protocol; client and server must have the same.
pub const VERSION: u8 = 1;
/// Longest message in bytes; smaller than any link's MTU.
pub const MESSAGE_BYTES_MAX: usize = 1100;
/// Longest file name in bytes.
pub const NAME_BYTES_MAX: usize = 1024;
/// Longest text of a refusal in bytes; longer texts are truncated.
const TEXT_BYTES_MAX: usize = 800;
/// Most queue pairs of one measurement.
pub const QPS_MAX: usize = 64;

/// The operation that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Operation {
    /// Messages (send and receive).
    Send = 0,
    /// RDMA writes.
    Write = 1,
    /// RDMA reads.
    Read = 2,
}

/// A client's request for a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PerfOpen {
    /// The operation.
    pub operation: Operation,
    /// The server answers each message with one of the same kind and size.
    pub echo: bool,
    /// The server polls without sleeping until the session ends.
    pub spin: bool,
    /// Number of queue pairs.
    pub qps: u8,
    /// Receives to keep posted per queue pair.
    pub depth: u32,
    /// Bytes of the largest message or operation.
    pub size: u32,
    /// Address of the client's memory for echoes of writes.
    pub raddr: u64,
    /// Key of the client's memory for echoes of writes.
    pub rkey: RKey,
}

/// The server's answer to [`PerfOpen`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PerfReady {
    /// Q_Key of the server's queue pairs, and of the client's if the server echoes.
    pub qkey: QKey,
    /// Largest message that the server accepts, in bytes.
    pub mtu: u32,
    /// Address of the server's memory for writes and reads.
    pub raddr: u64,
    /// Key of that memory.
    pub rkey: RKey,
    /// Size of that memory in bytes.
    pub len: u64,
    /// Numbers of the server's queue pairs.
    pub qpns: Vec<u16>,
}

/// The server's counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PerfReport {
    /// CPU time of the server's process in nanoseconds, for all clients.
    pub cpu_ns: u64,
    /// Messages received since the measurement began.
    pub messages: u64,
    /// Packets retransmitted by the server's device, for all clients.
    pub retransmitted: u64,
}

/// Registered memory in which the receiver of a file receives chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slots {
    /// Address of the first slot.
    pub raddr: u64,
    /// Key of the memory region.
    pub rkey: RKey,
    /// Bytes per slot, which is the size of a chunk.
    pub chunk: u32,
    /// Number of slots; chunk `i` goes to slot `i % count`.
    pub count: u16,
}

/// Reason of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Refusal {
    /// The peer uses another protocol version.
    Version = 1,
    /// The request is invalid.
    BadRequest = 2,
    /// The server has too many sessions.
    Busy = 3,
    /// A file cannot be used: not permitted, not found, no space, and so on.
    File = 4,
    /// The hash of the received data differs from the sender's.
    Damaged = 5,
    /// The user cancelled the copy.
    Cancelled = 6,
    /// An internal error of the peer.
    Internal = 7,
}

/// Body of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// Empty; its acknowledgment proves that the peer is alive.
    Ping,
    /// The session or request has failed.
    Fail(Refusal, String),
    /// Requests a measurement.
    PerfOpen(PerfOpen),
    /// Answer to `PerfOpen`.
    PerfReady(PerfReady),
    /// Requests the counters.
    PerfQuery,
    /// Answer to `PerfQuery`.
    PerfReport(PerfReport),
    /// Ends a measurement.
    PerfClose,
    /// Answer to `PerfClose`.
    PerfClosed,
    /// Requests to store a file of `size` bytes at the server.
    PutOpen { size: u64, name: String },
    /// Answer to `PutOpen`, sent by the session's queue pair: the transfer may begin.
    PutReady { qkey: QKey, slots: Slots },
    /// Requests a file from the server.
    GetOpen { slots: Slots, name: String },
    /// Answer to `GetOpen`, sent by the session's queue pair: the file has `size` bytes.
    GetReady { qkey: QKey, size: u64 },
    /// Chunk `index` is in its slot.
    Chunk { index: u64, len: u32 },
    /// All chunks before `stored` are stored; their slots are free.
    Credit { stored: u64 },
    /// All chunks have been sent; `hash` is BLAKE3 of the whole file.
    Finish { hash: [u8; 32] },
    /// The file is complete under its final name.
    Done,
    /// Asks the server to prove that it holds the token.
    Challenge { nonce: [u8; 32] },
    /// Answer to `Challenge`; the proof covers both nonces.
    Nonce { nonce: [u8; 32], proof: [u8; 32] },
    /// A session request, with the proof that its sender holds the token.
    Proved { proof: [u8; 32], body: Box<Body> },
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Number of the request or session, chosen by the client.
    pub id: u64,
    /// Q_Key at which the sender accepts answers.
    pub reply_qkey: QKey,
    /// Kind and content.
    pub body: Body,
}

/// Why bytes are not a valid message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// The message has another protocol version.
    Version(u8),
    /// The bytes are not a message of this protocol.
    Bytes,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version(v) => write!(
                f,
                "the other side's srd speaks version {v} of the tool's protocol, this one \
                 version {VERSION}: use the same release on both sides"
            ),
            Self::Bytes => f.write_str("the other side sent something that is not a message"),
        }
    }
}

impl From<Malformed> for Failure {
    fn from(e: Malformed) -> Self {
        Self::new(e.to_string())
    }
}

struct Writer(Vec<u8>);

impl Writer {
    fn u8(&mut self, n: u8) {
        self.0.push(n);
    }
    fn u16(&mut self, n: u16) {
        self.0.extend(n.to_le_bytes());
    }
    fn u32(&mut self, n: u32) {
        self.0.extend(n.to_le_bytes());
    }
    fn u64(&mut self, n: u64) {
        self.0.extend(n.to_le_bytes());
    }
    /// Writes the length and the text, truncated at a character boundary to `max` bytes.
    fn text(&mut self, text: &str, max: usize) {
        let mut end = text.len().min(max);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        self.u16(end as u16);
        self.0.extend(&text.as_bytes()[..end]);
    }
    fn slots(&mut self, s: &Slots) {
        self.u64(s.raddr);
        self.u32(s.rkey.0);
        self.u32(s.chunk);
        self.u16(s.count);
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, n: usize) -> Result<&'a [u8], Malformed> {
        let (head, rest) = self.0.split_at_checked(n).ok_or(Malformed::Bytes)?;
        self.0 = rest;
        Ok(head)
    }
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        self.take(N)?.try_into().map_err(|_| Malformed::Bytes)
    }
    fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(self.array::<1>()?[0])
    }
    fn flag(&mut self) -> Result<bool, Malformed> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed::Bytes),
        }
    }
    fn u16(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_le_bytes)
    }
    fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_le_bytes)
    }
    fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_le_bytes)
    }
    fn text(&mut self, max: usize) -> Result<String, Malformed> {
        let len = usize::from(self.u16()?);
        if len > max {
            return Err(Malformed::Bytes);
        }
        let bytes = self.take(len)?.to_vec();
        String::from_utf8(bytes).map_err(|_| Malformed::Bytes)
    }
    fn slots(&mut self) -> Result<Slots, Malformed> {
        Ok(Slots {
            raddr: self.u64()?,
            rkey: RKey(self.u32()?),
            chunk: self.u32()?,
            count: self.u16()?,
        })
    }
}

impl Refusal {
    fn from_u8(n: u8) -> Result<Self, Malformed> {
        use Refusal::{BadRequest, Busy, Cancelled, Damaged, File, Internal, Version};
        let all = [Version, BadRequest, Busy, File, Damaged, Cancelled, Internal];
        all.into_iter().find(|r| *r as u8 == n).ok_or(Malformed::Bytes)
    }
}

impl Operation {
    fn from_u8(n: u8) -> Result<Self, Malformed> {
        let all = [Self::Send, Self::Write, Self::Read];
        all.into_iter().find(|o| *o as u8 == n).ok_or(Malformed::Bytes)
    }
}

impl Body {
    const fn kind(&self) -> u8 {
        match self {
            Self::Ping => 0,
            Self::Fail(..) => 1,
            Self::PerfOpen(_) => 2,
            Self::PerfReady(_) => 3,
            Self::PerfQuery => 4,
            Self::PerfReport(_) => 5,
            Self::PerfClose => 6,
            Self::PerfClosed => 7,
            Self::PutOpen { .. } => 8,
            Self::PutReady { .. } => 9,
            Self::GetOpen { .. } => 10,
            Self::GetReady { .. } => 11,
            Self::Chunk { .. } => 12,
            Self::Credit { .. } => 13,
            Self::Finish { .. } => 14,
            Self::Done => 15,
            Self::Challenge { .. } => 16,
            Self::Nonce { .. } => 17,
            Self::Proved { .. } => 18,
        }
    }

    /// Whether the message requests a session.
    pub const fn opens(&self) -> bool {
        matches!(self, Self::PerfOpen(_) | Self::PutOpen { .. } | Self::GetOpen { .. })
    }

    fn write(&self, w: &mut Writer) {
        match self {
            Self::Ping | Self::PerfQuery | Self::PerfClose | Self::PerfClosed | Self::Done => {}
            Self::Fail(why, text) => {
                w.u8(*why as u8);
                w.text(text, TEXT_BYTES_MAX);
            }
            Self::PerfOpen(p) => {
                w.u8(p.operation as u8);
                w.u8(u8::from(p.echo));
                w.u8(u8::from(p.spin));
                w.u8(p.qps);
                w.u32(p.depth);
                w.u32(p.size);
                w.u64(p.raddr);
                w.u32(p.rkey.0);
            }
            Self::PerfReady(p) => {
                w.u32(p.qkey.0);
                w.u32(p.mtu);
                w.u64(p.raddr);
                w.u32(p.rkey.0);
                w.u64(p.len);
                w.u8(p.qpns.len() as u8);
                p.qpns.iter().for_each(|n| w.u16(*n));
            }
            Self::PerfReport(p) => {
                w.u64(p.cpu_ns);
                w.u64(p.messages);
                w.u64(p.retransmitted);
            }
            Self::PutOpen { size, name } => {
                w.u64(*size);
                w.text(name, NAME_BYTES_MAX);
            }
            Self::PutReady { qkey, slots } => {
                w.u32(qkey.0);
                w.slots(slots);
            }
            Self::GetOpen { slots, name } => {
                w.slots(slots);
                w.text(name, NAME_BYTES_MAX);
            }
            Self::GetReady { qkey, size } => {
                w.u32(qkey.0);
                w.u64(*size);
            }
            Self::Chunk { index, len } => {
                w.u64(*index);
                w.u32(*len);
            }
            Self::Credit { stored } => w.u64(*stored),
            Self::Finish { hash } => w.0.extend(hash),
            Self::Challenge { nonce } => w.0.extend(nonce),
            Self::Nonce { nonce, proof } => w.0.extend([*nonce, *proof].concat()),
            Self::Proved { proof, body } => {
                w.0.extend(proof);
                w.u8(body.kind());
                body.write(w);
            }
        }
    }

    fn read(kind: u8, r: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(match kind {
            0 => Self::Ping,
            1 => Self::Fail(Refusal::from_u8(r.u8()?)?, r.text(TEXT_BYTES_MAX)?),
            2 => Self::PerfOpen(PerfOpen {
                operation: Operation::from_u8(r.u8()?)?,
                echo: r.flag()?,
                spin: r.flag()?,
                qps: r.u8()?,
                depth: r.u32()?,
                size: r.u32()?,
                raddr: r.u64()?,
                rkey: RKey(r.u32()?),
            }),
            3 => Self::PerfReady(Self::read_ready(r)?),
            4 => Self::PerfQuery,
            5 => Self::PerfReport(PerfReport {
                cpu_ns: r.u64()?,
                messages: r.u64()?,
                retransmitted: r.u64()?,
            }),
            6 => Self::PerfClose,
            7 => Self::PerfClosed,
            8 => Self::PutOpen { size: r.u64()?, name: r.text(NAME_BYTES_MAX)? },
            9 => Self::PutReady { qkey: QKey(r.u32()?), slots: r.slots()? },
            10 => Self::GetOpen { slots: r.slots()?, name: r.text(NAME_BYTES_MAX)? },
            11 => Self::GetReady { qkey: QKey(r.u32()?), size: r.u64()? },
            12 => Self::Chunk { index: r.u64()?, len: r.u32()? },
            13 => Self::Credit { stored: r.u64()? },
            14 => Self::Finish { hash: r.array()? },
            15 => Self::Done,
            16 => Self::Challenge { nonce: r.array()? },
            17 => Self::Nonce { nonce: r.array()?, proof: r.array()? },
            18 => Self::read_proved(r)?,
            _ => return Err(Malformed::Bytes),
        })
    }

    fn read_proved(r: &mut Reader<'_>) -> Result<Self, Malformed> {
        let (proof, kind) = (r.array()?, r.u8()?);
        // A `Proved` message must not contain another one.
        let body = if kind < 16 { Self::read(kind, r)? } else { return Err(Malformed::Bytes) };
        if !body.opens() {
            return Err(Malformed::Bytes);
        }
        Ok(Self::Proved { proof, body: Box::new(body) })
    }

    fn read_ready(r: &mut Reader<'_>) -> Result<PerfReady, Malformed> {
        let mut ready = PerfReady {
            qkey: QKey(r.u32()?),
            mtu: r.u32()?,
            raddr: r.u64()?,
            rkey: RKey(r.u32()?),
            len: r.u64()?,
            qpns: Vec::new(),
        };
        let n = usize::from(r.u8()?);
        if n > QPS_MAX {
            return Err(Malformed::Bytes);
        }
        for _ in 0..n {
            ready.qpns.push(r.u16()?);
        }
        Ok(ready)
    }
}

impl Message {
    /// The encoded message. Names longer than [`NAME_BYTES_MAX`] are truncated, so the result has
    /// at most [`MESSAGE_BYTES_MAX`] bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut w = Writer(MAGIC.to_vec());
        w.u8(VERSION);
        w.u64(self.id);
        w.u32(self.reply_qkey.0);
        w.u8(self.body.kind());
        self.body.write(&mut w);
        debug_assert!(w.0.len() <= MESSAGE_BYTES_MAX, "{} bytes", w.0.len());
        w.0
    }

    /// Request number and reply Q_Key; their position is the same in every protocol version.
    pub fn head_of(bytes: &[u8]) -> Option<(u64, QKey)> {
        let mut r = Reader(bytes);
        if r.array::<3>().ok()? != MAGIC {
            return None;
        }
        let _version = r.u8().ok()?;
        Some((r.u64().ok()?, QKey(r.u32().ok()?)))
    }

    /// Parses a message.
    ///
    /// # Errors
    /// The bytes are not a message, are followed by others, or have another protocol version.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut r = Reader(bytes);
        if r.array::<3>()? != MAGIC {
            return Err(Malformed::Bytes);
        }
        match r.u8()? {
            VERSION => {}
            other => return Err(Malformed::Version(other)),
        }
        let (id, reply_qkey, kind) = (r.u64()?, QKey(r.u32()?), r.u8()?);
        let body = Body::read(kind, &mut r)?;
        if !r.0.is_empty() {
            return Err(Malformed::Bytes);
        }
        Ok(Self { id, reply_qkey, body })
    }
}

#[cfg(test)]
mod tests;
