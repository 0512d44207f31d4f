//! What opens the sealed packets of a capture: the secrets of its contexts as lines of text, which
//! are written only on request.

use crate::handshake::End;
use crate::packet::{Limits, NUMBER_END, Receiver, Session};
use crate::secret::{SECRET_BYTES, Secret};
use crate::suite::Suite;
use core::fmt;
use core::str::FromStr;
use zeroize::Zeroizing;

/// The first word of a line; another layout needs another word.
const WORD: &str = "SRD1";
/// The first word of a line whose secret is that of a later epoch than the first.
const WORD_LATER: &str = "SRD2";

/// The secret of one direction of one context, from an epoch on: the first, unless the context was
/// open when the capture began.
#[derive(Debug)]
pub struct CaptureSecret {
    /// Where the packets are received.
    pub to: End,
    /// The tag in their headers.
    pub tag: u32,
    suite: Suite,
    epoch_bits: u32,
    start: u64,
    /// Whose secret it is.
    epoch: u64,
    secret: Secret,
}

/// Why a line is not a [`CaptureSecret`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CaptureSecretError;

impl fmt::Display for CaptureSecretError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "expected `SRD1`, then the receiver's address and UDP port, the tag, the cipher, the \
             bits of an epoch, the first transmission number and 64 hexadecimal digits of a \
             secret; or `SRD2`, and the epoch of the secret behind these",
        )
    }
}

impl core::error::Error for CaptureSecretError {}

/// The line as it stands in a capture. It shows the secret: nothing else prints one.
impl CaptureSecret {
    /// One line, without its end.
    pub fn line(&self) -> Zeroizing<String> {
        use fmt::Write as _;
        // Room for all of it at once: a text that grows would leave copies behind.
        let mut line = Zeroizing::new(String::with_capacity(192));
        let word = if self.epoch == 0 { WORD } else { WORD_LATER };
        let (to, start) = (self.to, self.start);
        let (suite, bits) = (self.suite as u8, self.epoch_bits);
        let done = write!(
            *line,
            "{word} {} {} {:08x} {suite} {bits} {start:016x} ",
            to.ip, to.port, self.tag
        );
        done.expect("a text takes all");
        for byte in self.secret.bytes() {
            for digit in [byte >> 4, byte & 15] {
                line.push(char::from(b"0123456789abcdef"[usize::from(digit)]));
            }
        }
        if self.epoch > 0 {
            write!(*line, " {:x}", self.epoch).expect("a text takes all");
        }
        line
    }

    /// Both directions of a context, from now on: of packets to the peer, and to this end.
    pub(crate) fn of(session: &Session, peer: (End, u32), own: (End, u32)) -> [Self; 2] {
        let made = |(to, tag): (End, u32), present: (Suite, Limits, u64, u64, &Secret)| {
            let (suite, limits, start, epoch, secret) = present;
            Self {
                to,
                tag,
                suite,
                epoch_bits: limits.epoch_bits,
                start,
                epoch,
                secret: secret.duplicate(),
            }
        };
        [made(peer, session.sender.present()), made(own, session.receiver.present())]
    }

    /// Opens the packets of this direction, from the first one of the epoch on.
    pub fn receiver(&self) -> Receiver {
        let limits = Limits { epoch_bits: self.epoch_bits, ..Limits::default() };
        Receiver::new_at(self.suite, self.secret.duplicate(), self.start, limits, self.epoch)
    }
}

impl FromStr for CaptureSecret {
    type Err = CaptureSecretError;

    fn from_str(line: &str) -> Result<Self, Self::Err> {
        let words: Vec<&str> = line.split(' ').collect();
        let (epoch, words) = match &words[..] {
            [WORD, words @ ..] => (Ok(0), words),
            [WORD_LATER, words @ .., epoch] => (u64::from_str_radix(epoch, 16), words),
            _ => return Err(CaptureSecretError),
        };
        let &[ip, port, tag, suite, epoch_bits, start, secret] = words else {
            return Err(CaptureSecretError);
        };
        let read = || {
            let mut bytes = Zeroizing::new([0; SECRET_BYTES]);
            for (at, byte) in bytes.iter_mut().enumerate() {
                *byte = u8::from_str_radix(secret.get(2 * at..2 * at + 2)?, 16).ok()?;
            }
            let made = Self {
                to: End { ip: ip.parse().ok()?, port: port.parse().ok()? },
                tag: u32::from_str_radix(tag, 16).ok()?,
                suite: Suite::from_number(suite.parse().ok()?)?,
                epoch_bits: epoch_bits.parse().ok()?,
                start: u64::from_str_radix(start, 16).ok()?,
                epoch: epoch.ok()?,
                secret: Secret::take(&mut bytes),
            };
            let limits = Limits { epoch_bits: made.epoch_bits, ..Limits::default() };
            let newest = made.epoch.checked_mul(1 << (made.epoch_bits & 31));
            let newest = newest.and_then(|numbers| numbers.checked_add(made.start));
            let numbers = newest.is_some_and(|newest| newest < NUMBER_END);
            (secret.len() == 64 && limits.valid() && numbers).then_some(made)
        };
        read().ok_or(CaptureSecretError)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::{IpAddr, Ipv4Addr};

    #[test]
    fn a_line_is_read_as_it_was_written_and_opens_packets() {
        let limits = Limits { epoch_bits: 2, ..Limits::default() };
        let mut session =
            Session::with_itself(Suite::Aes256Gcm, limits, &mut [9; SECRET_BYTES], 5).unwrap();
        let end = |host| End { ip: IpAddr::V4(Ipv4Addr::new(192, 0, 2, host)), port: 18_703 };
        let [out, _] = CaptureSecret::of(&session, (end(1), 0xd57a_6001), (end(2), 7));
        let line = out.line();
        assert!(
            line.starts_with("SRD1 192.0.2.1 18703 d57a6001 1 2 0000000000000005 "),
            "{line:?}"
        );
        let read: CaptureSecret = line.parse().unwrap();
        assert_eq!(read.line(), line);
        let mut receiver = read.receiver();
        for number in 5..44_u64 {
            let mut packet = vec![0; 60];
            packet[0] = srd_wire::VERSION << 5;
            packet[8..12].copy_from_slice(&(number as u32).to_be_bytes());
            session.sender.seal(number, &mut packet).unwrap();
            assert_eq!(receiver.open(&mut packet).unwrap().number, number, "across epochs");
        }
        // The context is in an epoch with an odd number now.
        let [later, _] = CaptureSecret::of(&session, (end(1), 0xd57a_6001), (end(2), 7));
        let line_later = later.line();
        assert!(line_later.starts_with("SRD2 ") && line_later.ends_with(" 9"), "{line_later:?}");
        let read: CaptureSecret = line_later.parse().unwrap();
        assert_eq!(read.line(), line_later);
        let mut receiver = read.receiver();
        for number in 44..64_u64 {
            let mut packet = vec![0; 60];
            packet[0] = srd_wire::VERSION << 5;
            packet[8..12].copy_from_slice(&(number as u32).to_be_bytes());
            session.sender.seal(number, &mut packet).unwrap();
            assert_eq!(receiver.open(&mut packet).unwrap().number, number, "from there on");
        }
        for bad in [
            line.replace("SRD1", "SRD2"),
            line.replace(" 1 2 ", " 9 2 "),
            line.replace(" 1 2 ", " 1 31 "),
            line.replace("0000000000000005", "8000000000000000"),
            line[..line.len() - 1].to_owned(),
            format!("{}0", *line),
            format!("{} 1", *line),
            line_later.replace("SRD2", "SRD1"),
            line_later.replace("SRD2 ", "SRD2 x "),
            format!("{}g", *line_later),
            format!("{}fffffffffffffff", *line_later),
        ] {
            assert!(bad.parse::<CaptureSecret>().is_err(), "{bad}");
        }
    }
}
