//! The pre-shared keys of one host: the text of a key file, and what it means.

use crate::secret::{SECRET_BYTES, Secret};
use core::fmt;
use zeroize::Zeroizing;

/// Most keys of one file. Two are enough to change keys without a stop.
pub const RING_KEYS_MAX: usize = 16;

/// A pre-shared key. What is kept is derived from it; all of it is erased when it is dropped.
#[derive(Debug)]
pub struct Key {
    id: u32,
    /// For the handshake.
    psk: Secret,
    /// For the keyed hashes of handshake packets.
    mac_key: Secret,
}

impl Key {
    /// Takes the bytes of a key; the caller's copy is erased.
    pub fn take(id: u32, bytes: &mut [u8; SECRET_BYTES]) -> Self {
        let key = Secret::take(bytes);
        Self { id, psk: key.expand("psk", 0), mac_key: key.expand("mac", 0) }
    }

    /// Its number, which travels readable in handshakes.
    pub const fn id(&self) -> u32 {
        self.id
    }

    /// Four bytes by which people compare keys. They say nothing of the key.
    pub fn fingerprint(&self) -> [u8; 4] {
        *self.mac_key.mac(&[b"fingerprint"]).first_chunk().expect("a keyed hash has 16 bytes")
    }

    pub(crate) const fn psk(&self) -> &Secret {
        &self.psk
    }

    pub(crate) const fn mac_key(&self) -> &Secret {
        &self.mac_key
    }

    fn same_as(&self, other: &Self) -> bool {
        self.mac_key.mac(&[]) == other.mac_key.mac(&[])
    }
}

/// The keys of a key file. The first is used for handshakes that this host begins; all are accepted
/// in handshakes that peers begin.
#[derive(Debug)]
pub struct KeyRing {
    /// At least one, at most [`RING_KEYS_MAX`]; no number and no key twice.
    keys: Vec<Key>,
}

/// What is wrong with the text of a key file, and where. It never holds a part of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyRingError {
    /// Number of the line, from 1; 0 for the file as a whole.
    pub line: usize,
    /// What is wrong.
    pub fault: KeyRingFault,
}

/// What is wrong with a key file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyRingFault {
    /// No key in it.
    Empty,
    /// More than [`RING_KEYS_MAX`] keys.
    Many,
    /// Not two words.
    Words,
    /// The first word is not a number from 1 to 4294967295.
    Id,
    /// The second word has this many characters instead of 64.
    Length(usize),
    /// This character of the second word, counted from 1, is not a hexadecimal digit.
    Digit(usize),
    /// All bytes of the key are the same: nobody chose it at random.
    Weak,
    /// The number was given in this line before.
    IdTwice(usize),
    /// The key was given in this line before.
    KeyTwice(usize),
    /// Bytes that are not text.
    Text,
}

impl fmt::Display for KeyRingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line > 0 {
            write!(f, "line {}: ", self.line)?;
        }
        match self.fault {
            KeyRingFault::Empty => {
                f.write_str("no key; a line is a number and a key of 64 hexadecimal digits")
            }
            KeyRingFault::Many => {
                write!(f, "more than {RING_KEYS_MAX} keys; remove those no host uses any more")
            }
            KeyRingFault::Words => f.write_str(
                "expected two words, a number and a key of 64 hexadecimal digits; a comment starts \
                 with # and has a line of its own",
            ),
            KeyRingFault::Id => {
                f.write_str("the first word must be the number of the key, 1 to 4294967295")
            }
            KeyRingFault::Length(length) => write!(
                f,
                "the key has {length} characters; it must be 64 hexadecimal digits (256 random \
                 bits), not a password"
            ),
            KeyRingFault::Digit(at) => {
                write!(f, "character {at} of the key is not a hexadecimal digit")
            }
            KeyRingFault::Weak => {
                f.write_str("all bytes of the key are equal; a key must be random")
            }
            KeyRingFault::IdTwice(line) => {
                write!(f, "the same number as in line {line}; give each key its own")
            }
            KeyRingFault::KeyTwice(line) => {
                write!(f, "the same key as in line {line}; remove one of the lines")
            }
            KeyRingFault::Text => f.write_str("the file is not text"),
        }
    }
}

impl core::error::Error for KeyRingError {}

impl KeyRing {
    /// Reads the text of a key file: in each line a number and a key of 64 hexadecimal digits,
    /// separated by blanks. Empty lines and those that start with `#` are skipped.
    ///
    /// # Errors
    /// The first [`KeyRingError`].
    pub fn parse(text: &[u8]) -> Result<Self, KeyRingError> {
        let mut keys: Vec<Key> = Vec::with_capacity(RING_KEYS_MAX);
        let mut lines: Vec<usize> = Vec::with_capacity(RING_KEYS_MAX);
        for (at, line) in text.split(|&byte| byte == b'\n').enumerate() {
            let number = at + 1;
            let error = |fault| KeyRingError { line: number, fault };
            let Some((id, key)) = line_words(line).map_err(error)? else { continue };
            let id = id_parse(id).ok_or(error(KeyRingFault::Id))?;
            let mut bytes = key_parse(key).map_err(error)?;
            if let Some(at) = keys.iter().position(|key| key.id == id) {
                return Err(error(KeyRingFault::IdTwice(lines[at])));
            }
            let key = Key::take(id, &mut bytes);
            if let Some(at) = keys.iter().position(|other| other.same_as(&key)) {
                return Err(error(KeyRingFault::KeyTwice(lines[at])));
            }
            if keys.len() == RING_KEYS_MAX {
                return Err(error(KeyRingFault::Many));
            }
            keys.push(key);
            lines.push(number);
        }
        if keys.is_empty() {
            return Err(KeyRingError { line: 0, fault: KeyRingFault::Empty });
        }
        Ok(Self { keys })
    }

    /// The key for handshakes that this host begins: the first.
    pub fn sending(&self) -> &Key {
        &self.keys[0]
    }

    /// The key with this number, if peers may use it.
    pub fn accepted(&self, id: u32) -> Option<&Key> {
        self.keys.iter().find(|key| key.id == id)
    }

    /// The numbers of all keys, in the order of the file.
    pub fn ids(&self) -> impl Iterator<Item = u32> + '_ {
        self.keys.iter().map(Key::id)
    }

    /// Whether this ring has the same key under the same number as `key`.
    pub(crate) fn holds(&self, key: &Key) -> bool {
        self.accepted(key.id).is_some_and(|own| own.same_as(key))
    }

    pub(crate) fn keys(&self) -> &[Key] {
        &self.keys
    }
}

/// The number and the key of a line, as they are written.
type Words<'a> = (&'a [u8], &'a [u8]);

/// The two words of a line, or `None` if it holds no key.
pub(crate) fn line_words(line: &[u8]) -> Result<Option<Words<'_>>, KeyRingFault> {
    let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let Some(first) = words.next() else { return Ok(None) };
    if first.starts_with(b"#") {
        return Ok(None);
    }
    if line.contains(&0) {
        return Err(KeyRingFault::Text);
    }
    match (words.next(), words.next()) {
        (Some(second), None) => Ok(Some((first, second))),
        _ => Err(KeyRingFault::Words),
    }
}

pub(crate) fn id_parse(word: &[u8]) -> Option<u32> {
    let digits = word.iter().all(u8::is_ascii_digit);
    let id = core::str::from_utf8(word).ok().filter(|_| digits)?.parse().ok()?;
    (id != 0).then_some(id)
}

fn key_parse(word: &[u8]) -> Result<Zeroizing<[u8; SECRET_BYTES]>, KeyRingFault> {
    if word.len() != 2 * SECRET_BYTES {
        return Err(KeyRingFault::Length(word.len()));
    }
    let mut bytes = Zeroizing::new([0; SECRET_BYTES]);
    for (at, &character) in word.iter().enumerate() {
        let digit = (character as char).to_digit(16).ok_or(KeyRingFault::Digit(at + 1))?;
        bytes[at / 2] = bytes[at / 2] << 4 | digit as u8;
    }
    if bytes.iter().all(|&byte| byte == bytes[0]) {
        return Err(KeyRingFault::Weak);
    }
    Ok(bytes)
}
