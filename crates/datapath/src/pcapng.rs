//! Writes packet traces for Wireshark and tcpdump: pcapng with raw IP packets.
//!
//! The IP and UDP headers are constructed around the payload: addresses, ports, ECN field, a TTL of
//! 64, correct checksums. Format: IETF draft-ietf-opsawg-pcapng.

use core::net::{IpAddr, SocketAddr};
use std::io::{self, Write};

/// Link type "raw IP", version by the first four bits (tcpdump.org, LINKTYPE_RAW).
const LINKTYPE_RAW: u16 = 101;
/// Options of an interface: name and description.
const OPTION_IF_NAME: u16 = 2;
const OPTION_IF_DESCRIPTION: u16 = 3;
/// Option "timestamps have a resolution of 10^-9 s".
const OPTION_IF_TSRESOL: u16 = 9;
/// Most bytes of an option; longer texts are cut off.
const OPTION_BYTES_MAX: usize = 1024;
/// Block that describes an interface.
const BLOCK_INTERFACE: u32 = 1;
/// Block with secrets that open packets behind it.
const BLOCK_SECRETS: u32 = 10;
/// Block with the counts of an interface.
const BLOCK_STATISTICS: u32 = 5;
/// Its options: packets that came to be captured, and those dropped for want of room.
const OPTION_ISB_IFRECV: u16 = 4;
const OPTION_ISB_IFDROP: u16 = 5;
/// Direction of a packet.
const OPTION_EPB_FLAGS: u16 = 2;
const TTL: u8 = 64;
const PROTOCOL_UDP: u8 = 17;

/// Direction of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The packet was received.
    In,
    /// The packet was sent.
    Out,
}

/// One packet to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Nanoseconds since 1970.
    pub unix_ns: u64,
    /// Direction.
    pub way: Way,
    /// Source.
    pub src: SocketAddr,
    /// Destination, of the same address family as `src`.
    pub dst: SocketAddr,
    /// ECN field, 0 to 3.
    pub ecn: u8,
    /// UDP payload.
    pub payload: &'a [u8],
}

/// Writes a trace.
pub struct PcapNg<W> {
    out: W,
    block: Vec<u8>,
    packet: Vec<u8>,
    interfaces: u32,
}

impl<W: Write> PcapNg<W> {
    /// Starts a trace with its section and one interface, which has no name.
    ///
    /// # Errors
    /// Errors of writing to `out`.
    pub fn new(out: W) -> io::Result<Self> {
        let mut trace = Self::without_interfaces(out)?;
        trace.interface_with(&[])?;
        Ok(trace)
    }

    /// Starts a trace with its section. Each packet needs an interface: [`Self::interface`].
    ///
    /// # Errors
    /// Errors of writing to `out`.
    pub fn without_interfaces(out: W) -> io::Result<Self> {
        let mut trace = Self { out, block: Vec::new(), packet: Vec::new(), interfaces: 0 };
        trace.block.extend_from_slice(&0x1a2b_3c4d_u32.to_le_bytes());
        trace.block.extend_from_slice(&[1, 0, 0, 0]);
        // The length of the section is unknown in advance.
        trace.block.extend_from_slice(&u64::MAX.to_le_bytes());
        trace.block_end(0x0a0d_0d0a)?;
        Ok(trace)
    }

    /// Adds an interface with a name and a description; returns its number.
    ///
    /// # Errors
    /// Errors of the output.
    pub fn interface(&mut self, name: &str, description: &str) -> io::Result<u32> {
        self.interface_with(&[(OPTION_IF_NAME, name), (OPTION_IF_DESCRIPTION, description)])
    }

    fn interface_with(&mut self, texts: &[(u16, &str)]) -> io::Result<u32> {
        self.block.extend_from_slice(&LINKTYPE_RAW.to_le_bytes());
        self.block.extend_from_slice(&[0; 6]);
        for (code, text) in texts {
            self.option_more(*code, text.as_bytes());
        }
        self.option(OPTION_IF_TSRESOL, &[9]);
        self.block_end(BLOCK_INTERFACE)?;
        self.interfaces += 1;
        Ok(self.interfaces - 1)
    }

    /// Copies the body of an interface block of another trace of raw IP packets.
    ///
    /// # Errors
    /// Errors of the output.
    pub fn interface_copy(&mut self, body: &[u8]) -> io::Result<()> {
        self.block.extend_from_slice(body);
        self.interfaces += 1;
        self.block_end(BLOCK_INTERFACE)
    }

    /// Writes how many packets came to be captured on an interface until now, and how many of them
    /// are missing.
    ///
    /// # Errors
    /// Errors of the output.
    pub fn statistics(
        &mut self,
        interface: u32,
        unix_ns: u64,
        received: u64,
        dropped: u64,
    ) -> io::Result<()> {
        self.block.extend_from_slice(&interface.to_le_bytes());
        self.time(unix_ns);
        self.option_more(OPTION_ISB_IFRECV, &received.to_le_bytes());
        self.option(OPTION_ISB_IFDROP, &dropped.to_le_bytes());
        self.block_end(BLOCK_STATISTICS)
    }

    /// Writes one packet of the first interface.
    ///
    /// # Errors
    /// Errors of the output, or if source and destination have different address families.
    pub fn write(&mut self, record: &Record<'_>) -> io::Result<()> {
        self.write_on(0, record, record.payload.len())
    }

    /// Writes one packet of an interface, whose payload had `len` bytes when it was sent: the
    /// record may hold fewer. The UDP checksum of such a packet is 0.
    ///
    /// # Errors
    /// As for [`Self::write`].
    pub fn write_on(&mut self, interface: u32, record: &Record<'_>, len: usize) -> io::Result<()> {
        debug_assert!(interface < self.interfaces, "a trace names its interfaces first");
        self.packet.clear();
        ip_packet(record, len, &mut self.packet)?;
        let kept = self.packet.len() as u32;
        let len = kept + len.saturating_sub(record.payload.len()) as u32;
        self.block.extend_from_slice(&interface.to_le_bytes());
        self.time(record.unix_ns);
        self.block.extend_from_slice(&kept.to_le_bytes());
        self.block.extend_from_slice(&len.to_le_bytes());
        self.block.extend_from_slice(&self.packet);
        self.block.resize(self.block.len().next_multiple_of(4), 0);
        let way: u32 = if record.way == Way::In { 1 } else { 2 };
        self.option(OPTION_EPB_FLAGS, &way.to_le_bytes());
        self.block_end(6)
    }

    /// Writes a block with secrets, which open packets that are written after it. `kind`: how they
    /// are to be read.
    ///
    /// # Errors
    /// Errors of the output.
    pub fn secrets(&mut self, kind: u32, secrets: &[u8]) -> io::Result<()> {
        self.block.extend_from_slice(&kind.to_le_bytes());
        self.block.extend_from_slice(&(secrets.len() as u32).to_le_bytes());
        self.block.extend_from_slice(secrets);
        self.block.resize(self.block.len().next_multiple_of(4), 0);
        self.block_end(BLOCK_SECRETS)
    }

    /// Flushes the output.
    ///
    /// # Errors
    /// Errors of the output.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// Returns the output after flushing it.
    ///
    /// # Errors
    /// Errors of the output.
    pub fn into_inner(mut self) -> io::Result<W> {
        self.out.flush()?;
        Ok(self.out)
    }

    fn time(&mut self, unix_ns: u64) {
        self.block.extend_from_slice(&((unix_ns >> 32) as u32).to_le_bytes());
        self.block.extend_from_slice(&(unix_ns as u32).to_le_bytes());
    }

    /// A block's last option and the end of its options.
    fn option(&mut self, code: u16, value: &[u8]) {
        self.option_more(code, value);
        self.block.extend_from_slice(&[0; 4]);
    }

    /// An option that others follow.
    fn option_more(&mut self, code: u16, value: &[u8]) {
        let value = &value[..value.len().min(OPTION_BYTES_MAX)];
        self.block.extend_from_slice(&code.to_le_bytes());
        self.block.extend_from_slice(&(value.len() as u16).to_le_bytes());
        self.block.extend_from_slice(value);
        self.block.resize(self.block.len().next_multiple_of(4), 0);
    }

    /// Writes the collected body as a block of `kind`, with its length before and after it.
    fn block_end(&mut self, kind: u32) -> io::Result<()> {
        let len = (self.block.len() as u32 + 12).to_le_bytes();
        self.out.write_all(&kind.to_le_bytes())?;
        self.out.write_all(&len)?;
        self.out.write_all(&self.block)?;
        self.out.write_all(&len)?;
        self.block.clear();
        Ok(())
    }
}

/// Appends the packet of a record whose payload had `len` bytes.
fn ip_packet(record: &Record<'_>, len: usize, out: &mut Vec<u8>) -> io::Result<()> {
    let bad = |what: &str| io::Error::new(io::ErrorKind::InvalidInput, what);
    let udp_len = u16::try_from(len.max(record.payload.len()) + 8)
        .map_err(|_| bad("payload is longer than a UDP datagram can be: 65527 bytes"))?;
    match (record.src.ip(), record.dst.ip()) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let total = udp_len
                .checked_add(20)
                .ok_or_else(|| bad("payload is longer than IPv4 can carry: 65507 bytes"))?;
            out.extend_from_slice(&[0x45, record.ecn & 3]);
            out.extend_from_slice(&total.to_be_bytes());
            // No identification, "don't fragment", then the checksum field.
            out.extend_from_slice(&[0, 0, 0x40, 0, TTL, PROTOCOL_UDP, 0, 0]);
            out.extend_from_slice(&src.octets());
            out.extend_from_slice(&dst.octets());
            let sum = checksum(ones_sum(0, out));
            out[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            out.extend_from_slice(&[0x60, (record.ecn & 3) << 4, 0, 0]);
            out.extend_from_slice(&udp_len.to_be_bytes());
            out.extend_from_slice(&[PROTOCOL_UDP, TTL]);
            out.extend_from_slice(&src.octets());
            out.extend_from_slice(&dst.octets());
        }
        _ => return Err(bad("source and destination are of different families")),
    }
    udp_header(record, udp_len, out);
    out.extend_from_slice(record.payload);
    Ok(())
}

/// Appends the UDP header with its checksum; `out` ends with both IP addresses (RFC 768, 8200).
fn udp_header(record: &Record<'_>, udp_len: u16, out: &mut Vec<u8>) {
    let addresses = if record.src.is_ipv4() { 8 } else { 32 };
    let pseudo =
        ones_sum(u32::from(PROTOCOL_UDP) + u32::from(udp_len), &out[out.len() - addresses..]);
    let at = out.len();
    out.extend_from_slice(&record.src.port().to_be_bytes());
    out.extend_from_slice(&record.dst.port().to_be_bytes());
    out.extend_from_slice(&udp_len.to_be_bytes());
    if usize::from(udp_len) > record.payload.len() + 8 {
        // Nobody can tell what it was.
        out.extend_from_slice(&[0; 2]);
        return;
    }
    let sum = checksum(ones_sum(ones_sum(pseudo, &out[at..]), record.payload));
    // A checksum of 0 would mean "no checksum".
    out.extend_from_slice(&if sum == 0 { 0xffff } else { sum }.to_be_bytes());
}

/// Adds big-endian 16-bit words to `sum` (RFC 1071).
fn ones_sum(sum: u32, bytes: &[u8]) -> u32 {
    let words = bytes.chunks(2).map(|w| u32::from(w[0]) << 8 | w.get(1).map_or(0, |&b| b.into()));
    // Folded after each word: otherwise 65535 bytes of 0xff would overflow.
    words.fold(sum, |sum, word| {
        let sum = sum + word;
        (sum & 0xffff) + (sum >> 16)
    })
}

fn checksum(sum: u32) -> u16 {
    let folded = (sum & 0xffff) + (sum >> 16);
    !(((folded & 0xffff) + (folded >> 16)) as u16)
}

#[cfg(test)]
mod tests;
