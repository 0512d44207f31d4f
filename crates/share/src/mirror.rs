//! A ring in which a device mirrors its packets while `srd capture` runs.
//!
//! The tool makes one file of `/dev/shm` per device ([`CaptureRing`]) and then tells the devices by
//! [`PathControl::nudge`](crate::PathControl::nudge); a device that finds the file of its name
//! writes into it ([`CaptureFeed`]) until the tool ends. There is one writer and one reader, each
//! with a position of its own; neither waits for the other. What finds no room is counted, and not
//! mirrored. A tool that was killed stops its beat, and the device stops within
//! [`SILENCE_NS_MAX`].
//!
//! No word is trusted by either side: the writer stays within the ring whatever the reader's
//! position says, and the reader checks each record.

use crate::map::{Map, file_link, file_reserve, file_unnamed, user};
use crate::segment::{FOLDER, namespaces};
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Beginning of the files' names. It ends with the version of the layout.
const PREFIX: &str = "srd-capture-v1-";
/// First word of the file: "SRDCAPT" and the version.
const MAGIC: u64 = u64::from_be_bytes(*b"SRDCAPT\x01");
/// Words in front of the ring. Words of the two sides are in cache lines of their own.
const HEAD_WORDS: usize = 24;
/// Most bytes of a packet that are mirrored.
const SNAP_AT: usize = 1;
/// 1: the secrets of sealed contexts are asked for.
const SECRETS_AT: usize = 2;
/// When the reader looked last, ns of the host's monotonic clock; 0 = it has ended.
const BEAT_AT: usize = 8;
/// Position of the reader: words since the beginning.
const READ_AT: usize = 9;
/// Position of the writer.
const WRITTEN_AT: usize = 16;
/// Packets that found no room.
const DROPPED_AT: usize = 17;
/// Not 0: a device writes here.
const ATTACHED_AT: usize = 18;
/// Words of a record in front of its bytes.
const RECORD_WORDS: usize = 6;
/// Longest time without a beat of the reader, ns: the writer ends then. The reader beats each
/// millisecond unless it gets no processor.
pub const SILENCE_NS_MAX: u64 = 2_000_000_000;
/// Least and largest ring, in bytes: powers of two. The least one holds eight packets of the
/// largest size.
pub const RING_BYTES: std::ops::RangeInclusive<usize> = 1 << 19..=1 << 30;
/// Most files of killed tools that are looked at.
const SWEPT_MAX: usize = 256;

/// Kinds of records.
const SENT: u64 = 1;
const RECEIVED: u64 = 2;
const SECRET: u64 = 3;

/// A packet as the device saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MirroredPacket<'a> {
    /// Nanoseconds since 1970.
    pub unix_ns: u64,
    /// Whether the device sent it.
    pub sent: bool,
    /// ECN field, 0 to 3.
    pub ecn: u8,
    /// UDP port of the device: source of sent packets, destination of received ones.
    pub local_port: u16,
    /// The other end.
    pub remote: SocketAddr,
    /// Bytes of UDP payload.
    pub len: u32,
    /// The first of them: all, or as many as the reader asked for.
    pub bytes: &'a [u8],
}

/// What is in the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mirrored<'a> {
    /// A packet.
    Packet(MirroredPacket<'a>),
    /// A line with the secret of a sealed context, for the packets behind it.
    Secret(&'a str),
}

/// Path of the file for the device of this user at an address and port, in the network namespace
/// with this inode.
fn path_of(network: u64, local: IpAddr, port: u16) -> PathBuf {
    let ip = bits_of(local);
    Path::new(FOLDER).join(format!("{PREFIX}{}-{network}-{ip:x}-{port}", user()))
}

fn bits_of(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().to_bits(),
        IpAddr::V6(ip) => ip.to_bits(),
    }
}

/// The reader's end of a ring. The file is removed, and the device stops, when it is dropped.
#[derive(Debug)]
pub struct CaptureRing {
    map: Map,
    /// Holds the lock that says that the tool runs.
    _file: File,
    path: PathBuf,
    mask: u64,
    at: u64,
    bytes: Vec<u8>,
    /// Records that made no sense: then all that waits is skipped.
    damaged: u64,
}

impl CaptureRing {
    /// Makes a ring of `bytes` (a power of two in [`RING_BYTES`]) for the device of this user and
    /// network namespace at `local` and `port`. Of each packet it gets the first `snap` bytes;
    /// `secrets`: and the secrets of sealed contexts, if the device gives them.
    ///
    /// # Errors
    /// There is no room in `/dev/shm`, or another tool captures this device.
    pub fn make(
        local: IpAddr,
        port: u16,
        bytes: usize,
        snap: u32,
        secrets: bool,
    ) -> io::Result<Self> {
        Self::make_at(&path_of(namespaces().0, local, port), bytes, snap, secrets)
    }

    fn make_at(path: &Path, bytes: usize, snap: u32, secrets: bool) -> io::Result<Self> {
        assert!(bytes.is_power_of_two() && RING_BYTES.contains(&bytes), "a permitted size");
        let words = HEAD_WORDS + bytes / 8;
        let file = file_unnamed(path)?;
        file_reserve(&file, 8 * words)?;
        let map = Map::new(&file, words)?;
        let head = map.words();
        head[0].store(MAGIC, Relaxed);
        head[SNAP_AT].store(snap.into(), Relaxed);
        head[SECRETS_AT].store(secrets.into(), Relaxed);
        file.try_lock().map_err(io::Error::from)?;
        if file_link(&file, path).is_err() {
            // Of a tool that was killed, or one that runs.
            remove_if_left(path);
            file_link(&file, path).map_err(|e| match e.kind() {
                ErrorKind::AlreadyExists => {
                    io::Error::new(e.kind(), "another `srd capture` captures it: end that one")
                }
                _ => e,
            })?;
        }
        let mask = (bytes / 8) as u64 - 1;
        let (path, at) = (path.to_owned(), 0);
        Ok(Self { map, _file: file, path, mask, at, bytes: Vec::new(), damaged: 0 })
    }

    /// Says that the reader is there. `now_ns`: the host's monotonic clock.
    pub fn beat(&self, now_ns: u64) {
        self.map.words()[BEAT_AT].store(now_ns.max(1), Relaxed);
    }

    /// Whether a device has found the ring.
    pub fn is_attached(&self) -> bool {
        self.map.words()[ATTACHED_AT].load(Relaxed) != 0
    }

    /// Packets that found no room.
    pub fn dropped(&self) -> u64 {
        self.map.words()[DROPPED_AT].load(Relaxed)
    }

    /// Records that made no sense, because somebody else wrote into the file.
    pub fn damaged(&self) -> u64 {
        self.damaged
    }

    /// Passes what waits to `sink`, and frees its room. Returns whether there was anything.
    pub fn read(&mut self, mut sink: impl FnMut(Mirrored<'_>)) -> bool {
        let words = self.map.words();
        let written = words[WRITTEN_AT].load(Acquire);
        let before = self.at;
        while self.at != written {
            let left = written.wrapping_sub(self.at);
            let at = self.at;
            let word = |i: u64| {
                words[HEAD_WORDS + (at.wrapping_add(i) & self.mask) as usize].load(Relaxed)
            };
            let head: [u64; RECORD_WORDS] = std::array::from_fn(|i| word(i as u64));
            let Some(len) = self.record_len(left, head[0], head[2]) else {
                // Nothing tells where the next one begins.
                self.damaged += 1;
                self.at = written;
                break;
            };
            let kept = (head[2] >> 32) as usize;
            self.bytes.clear();
            for i in 0..kept.div_ceil(8) as u64 {
                self.bytes.extend_from_slice(&word(RECORD_WORDS as u64 + i).to_ne_bytes());
            }
            self.bytes.truncate(kept);
            match record_of(&head, &self.bytes) {
                Some(record) => sink(record),
                None => self.damaged += 1,
            }
            self.at = self.at.wrapping_add(len);
        }
        words[READ_AT].store(self.at, Release);
        self.at != before
    }

    /// Words of the record that begins with `first`, if that can be.
    fn record_len(&self, left: u64, first: u64, lens: u64) -> Option<u64> {
        let len = first & 0xFFFF_FFFF;
        let fits = RECORD_WORDS as u64 + (lens >> 32).div_ceil(8) == len;
        (fits && len <= left && left <= self.mask + 1).then_some(len)
    }
}

impl Drop for CaptureRing {
    fn drop(&mut self) {
        self.map.words()[BEAT_AT].store(0, Relaxed);
        let _ = fs::remove_file(&self.path);
    }
}

/// Removes the rings of this user whose tools were killed.
pub fn capture_rings_sweep() {
    let Ok(list) = fs::read_dir(FOLDER) else { return };
    let mine = format!("{PREFIX}{}-", user());
    let named = |entry: &fs::DirEntry| {
        entry.file_name().to_str().is_some_and(|name| name.starts_with(&mine))
    };
    list.flatten().filter(named).take(SWEPT_MAX).for_each(|entry| remove_if_left(&entry.path()));
}

/// Removes a file that nobody has locked.
fn remove_if_left(path: &Path) {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    if let Ok(file) = OpenOptions::new().read(true).custom_flags(flags).open(path)
        && file.metadata().is_ok_and(|meta| meta.is_file() && meta.uid() == user())
        && file.try_lock().is_ok()
    {
        let _ = fs::remove_file(path);
    }
}

fn record_of<'a>(head: &[u64; RECORD_WORDS], bytes: &'a [u8]) -> Option<Mirrored<'a>> {
    let [first, unix_ns, lens, ports, high, low] = *head;
    let (kind, ecn) = (first >> 32 & 0xFF, (first >> 40 & 3) as u8);
    if kind == SECRET {
        return std::str::from_utf8(bytes).ok().map(Mirrored::Secret);
    }
    if kind != SENT && kind != RECEIVED {
        return None;
    }
    let ip = IpAddr::V6(Ipv6Addr::from_bits(u128::from(high) << 64 | u128::from(low)));
    let len = lens as u32;
    (bytes.len() <= len as usize).then(|| {
        Mirrored::Packet(MirroredPacket {
            unix_ns,
            sent: kind == SENT,
            ecn,
            local_port: ports as u16,
            remote: SocketAddr::new(ip.to_canonical(), (ports >> 16) as u16),
            len,
            bytes,
        })
    })
}

/// The device's end of a ring.
#[derive(Debug)]
pub struct CaptureFeed {
    map: Map,
    mask: u64,
    at: u64,
    snap: usize,
}

impl CaptureFeed {
    /// The ring for the device of this process at `local` and `port`, if a tool has made one and
    /// still reads it. `now_ns`: the host's monotonic clock.
    pub fn find(local: IpAddr, port: u16, now_ns: u64) -> Option<Self> {
        Self::find_at(&path_of(namespaces().0, local, port), now_ns)
    }

    fn find_at(path: &Path, now_ns: u64) -> Option<Self> {
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(path).ok()?;
        let meta = file.metadata().ok()?;
        if !meta.is_file() || meta.uid() != user() || meta.mode() & 0o077 != 0 {
            return None;
        }
        let bytes = usize::try_from(meta.len()).ok()?.checked_sub(8 * HEAD_WORDS)?;
        if !bytes.is_power_of_two() || !RING_BYTES.contains(&bytes) {
            return None;
        }
        let map = Map::new(&file, HEAD_WORDS + bytes / 8).ok()?;
        let word = |at: usize| &map.words()[at];
        if word(0).load(Relaxed) != MAGIC || word(ATTACHED_AT).swap(1, Relaxed) != 0 {
            return None;
        }
        let snap = usize::try_from(word(SNAP_AT).load(Relaxed)).unwrap_or(usize::MAX);
        let at = word(WRITTEN_AT).load(Relaxed);
        let feed = Self { mask: (bytes / 8) as u64 - 1, at, snap, map };
        feed.is_read(now_ns).then_some(feed)
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        &self.map.words()[at]
    }

    /// Whether the tool still reads.
    pub fn is_read(&self, now_ns: u64) -> bool {
        let beat = self.word(BEAT_AT).load(Relaxed);
        beat != 0 && now_ns.saturating_sub(beat) <= SILENCE_NS_MAX
    }

    /// Whether the tool asks for the secrets of sealed contexts.
    pub fn wants_secrets(&self) -> bool {
        self.word(SECRETS_AT).load(Relaxed) == 1
    }

    /// Bytes of each packet that are wanted.
    pub fn snap(&self) -> usize {
        self.snap
    }

    /// Whether a packet of `len` bytes finds room now.
    pub fn has_room(&self, len: usize) -> bool {
        self.has_words((RECORD_WORDS + len.min(self.snap).div_ceil(8)) as u64)
    }

    fn has_words(&self, len: u64) -> bool {
        let used = self.at.wrapping_sub(self.word(READ_AT).load(Acquire));
        // A reader's position that cannot be leaves no room, either.
        used.checked_add(len).is_some_and(|all| all <= self.mask + 1)
    }

    /// Counts a packet that found no room.
    pub fn drop_one(&self) {
        let dropped = self.word(DROPPED_AT);
        dropped.store(dropped.load(Relaxed).wrapping_add(1), Relaxed);
    }

    /// Mirrors a packet; of its `bytes` as many as are wanted.
    pub fn packet(&mut self, packet: &MirroredPacket<'_>) {
        let kind = if packet.sent { SENT } else { RECEIVED };
        let bytes = &packet.bytes[..packet.bytes.len().min(self.snap)];
        let ip = bits_of(packet.remote.ip());
        self.put(
            [
                kind << 32 | u64::from(packet.ecn & 3) << 40,
                packet.unix_ns,
                packet.len.into(),
                u64::from(packet.local_port) | u64::from(packet.remote.port()) << 16,
                (ip >> 64) as u64,
                ip as u64,
            ],
            bytes,
        );
    }

    /// Adds a line with a secret, given without its end.
    pub fn secret(&mut self, line: &str) {
        self.put([SECRET << 32, 0, 0, 0, 0, 0], line.as_bytes());
    }

    /// Writes a record, if there is room. The lengths are added to its head.
    fn put(&mut self, mut head: [u64; RECORD_WORDS], bytes: &[u8]) {
        let len = (RECORD_WORDS + bytes.len().div_ceil(8)) as u64;
        if !self.has_words(len) {
            self.drop_one();
            return;
        }
        head[0] |= len;
        head[2] |= (bytes.len() as u64) << 32;
        let (whole, rest) = bytes.as_chunks();
        self.append(&head.map(u64::to_ne_bytes));
        self.append(whole);
        if !rest.is_empty() {
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            self.append(&[last]);
        }
        self.word(WRITTEN_AT).store(self.at, Release);
    }

    /// Writes words behind the others, for which there is room. In two runs, up to the end of the
    /// ring and from its beginning: a look at the mask for each word would take most of the time.
    fn append(&mut self, words: &[[u8; 8]]) {
        let ring = &self.map.words()[HEAD_WORDS..][..=self.mask as usize];
        let (begin, end) = ring.split_at((self.at & self.mask) as usize);
        let (first, second) = words.split_at(words.len().min(end.len()));
        for (slots, words) in [(end, first), (begin, second)] {
            for (slot, word) in slots.iter().zip(words) {
                slot.store(u64::from_ne_bytes(*word), Relaxed);
            }
        }
        self.at = self.at.wrapping_add(words.len() as u64);
    }
}

impl Drop for CaptureFeed {
    fn drop(&mut self) {
        self.word(ATTACHED_AT).store(0, Relaxed);
    }
}

#[cfg(test)]
#[path = "mirror_tests.rs"]
mod tests;
