//! The key file: who may read it, when it is read again, and how new keys come into it.

use crate::key_ring::{KeyRing, KeyRingError, id_parse, line_words};
use crate::secret::SECRET_BYTES;
use core::fmt;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use zeroize::Zeroizing;

/// Most bytes of a key file: sixteen keys, and comments.
const FILE_BYTES_MAX: usize = 64 * 1024;
/// Access that nobody but the owner may have.
const MODE_OTHERS: u32 = 0o077;

/// Why a key file is not used.
#[derive(Debug)]
pub enum KeyFileError {
    /// The system refuses access.
    Io(PathBuf, io::Error),
    /// Not a regular file.
    Kind(PathBuf),
    /// Others than its owner may read or write it; its mode.
    Mode(PathBuf, u32),
    /// It belongs to another user than the one that runs this process; both.
    Owner(PathBuf, u32, u32),
    /// Longer than 64 KiB.
    Long(PathBuf),
    /// Its text is wrong.
    Text(PathBuf, KeyRingError),
    /// There is a file with this name already.
    Exists(PathBuf),
    /// The folder of a new file does not exist.
    Folder(PathBuf),
    /// The file that a change is written to is there already: another change is under way, or was
    /// cut off.
    Busy(PathBuf),
    /// No number is left above the highest one.
    Ids(PathBuf),
    /// The system gives no random bytes.
    Random,
}

/// The path as a word of a shell command.
fn quoted(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', r"'\''"))
}

impl fmt::Display for KeyFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(path, error) if error.kind() == io::ErrorKind::NotFound => write!(
                f,
                "key file {}: No such file; copy it from another host (scp -p), or make the first \
                 one: srd key new {}",
                path.display(),
                quoted(path)
            ),
            Self::Io(path, error) => write!(f, "key file {}: {error}", path.display()),
            Self::Kind(path) => {
                write!(f, "key file {}: not a regular file; name the file itself", path.display())
            }
            Self::Mode(path, mode) => write!(
                f,
                "key file {}: others may read or change it (mode {mode:04o}); run: chmod 600 {}",
                path.display(),
                quoted(path)
            ),
            Self::Owner(path, owner, user) => write!(
                f,
                "key file {}: it belongs to user {owner}, and this process runs as user {user}; \
                 run: sudo chown {user} {}",
                path.display(),
                quoted(path)
            ),
            Self::Long(path) => write!(
                f,
                "key file {}: longer than {} KiB; it holds at most {} lines with keys",
                path.display(),
                FILE_BYTES_MAX / 1024,
                crate::RING_KEYS_MAX
            ),
            Self::Text(path, error) => write!(f, "key file {}: {error}", path.display()),
            Self::Exists(path) => write!(
                f,
                "key file {}: it exists already and is kept; to change its keys, rotate them",
                path.display()
            ),
            Self::Folder(path) => {
                write!(f, "key file {}: its folder does not exist; make it first", path.display())
            }
            Self::Busy(path) => write!(
                f,
                "another change of the key file is under way or was cut off; if the latter, run: \
                 rm {}",
                quoted(path)
            ),
            Self::Ids(path) => write!(
                f,
                "key file {}: a key has the highest number; give it a lower one on all hosts",
                path.display()
            ),
            Self::Random => f.write_str("the operating system gives no random bytes"),
        }
    }
}

impl core::error::Error for KeyFileError {}

/// What tells that a file has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    fn of(meta: &Metadata) -> Self {
        Self {
            device: meta.dev(),
            inode: meta.ino(),
            size: meta.size(),
            modified: (meta.mtime(), meta.mtime_nsec()),
            changed: (meta.ctime(), meta.ctime_nsec()),
        }
    }
}

/// A key file in use.
#[derive(Debug)]
pub struct KeyFile {
    path: PathBuf,
    /// Of the version that was looked at last; `None` if it could not be read.
    stamp: Option<Stamp>,
    /// Whether that version was read a second time. Time stamps move in ticks of milliseconds: what
    /// is written within the tick of the first reading has the same stamp.
    settled: bool,
    ring: Arc<KeyRing>,
}

/// What a new version of a key file changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RingChange {
    /// Numbers of the keys that are new, or are other keys than before.
    pub added: Vec<u32>,
    /// Numbers of the keys that are gone, or are other keys now. Contexts that were opened with
    /// them should end.
    pub removed: Vec<u32>,
    /// Number of the key that is used for sending now, if another was before.
    pub sending: Option<u32>,
}

impl KeyFile {
    /// Reads a key file. Its owner must be the user of this process, and nobody else may have any
    /// access (mode 0600 or 0400). A symbolic link is followed, and the file behind it is checked.
    ///
    /// # Errors
    /// A [`KeyFileError`], which says how to mend it.
    pub fn open(path: &Path) -> Result<Self, KeyFileError> {
        let (ring, _, stamp) = read(path)?;
        Ok(Self { path: path.to_owned(), stamp: Some(stamp), settled: false, ring: Arc::new(ring) })
    }

    /// The keys of the last version that was good.
    pub fn ring(&self) -> &KeyRing {
        &self.ring
    }

    /// The same, to be kept: it stays as it is when the file changes.
    pub fn ring_shared(&self) -> Arc<KeyRing> {
        Arc::clone(&self.ring)
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the file again if it has changed since it was looked at last; this costs one system
    /// call if it has not. A new version is read at two calls, because its stamp does not tell all.
    /// Call it each second or so, and on SIGHUP.
    ///
    /// # Errors
    /// A [`KeyFileError`]: the keys are still those of the last good version, and the same bad
    /// version gives its error once.
    pub fn refresh(&mut self) -> Result<Option<RingChange>, KeyFileError> {
        let seen = match fs::metadata(&self.path) {
            Ok(meta) => Stamp::of(&meta),
            // A file that is not there is told once, like one that is wrong.
            Err(error) => {
                let known = self.stamp.take().is_none();
                let error = KeyFileError::Io(self.path.clone(), error);
                return if known { Ok(None) } else { Err(error) };
            }
        };
        let known = self.stamp == Some(seen);
        if known && self.settled {
            return Ok(None);
        }
        (self.stamp, self.settled) = (Some(seen), known);
        let (ring, _, stamp) = match read(&self.path) {
            Err(_) if known => return Ok(None),
            other => other?,
        };
        (self.stamp, self.settled) = (Some(stamp), known && stamp == seen);
        let change = change_of(&self.ring, &ring);
        self.ring = Arc::new(ring);
        Ok((change != RingChange::default()).then_some(change))
    }
}

fn change_of(old: &KeyRing, new: &KeyRing) -> RingChange {
    let not_in = |ring: &KeyRing, other: &KeyRing| {
        let gone = ring.keys().iter().filter(|key| !other.holds(key));
        gone.map(|key| key.id()).collect()
    };
    let same = new.sending().id() == old.sending().id() && old.holds(new.sending());
    RingChange {
        added: not_in(new, old),
        removed: not_in(old, new),
        sending: (!same).then(|| new.sending().id()),
    }
}

/// What must be so before a file is read, from what the system says of it.
fn access_check(
    path: &Path,
    regular: bool,
    mode: u32,
    owner: u32,
    user: u32,
) -> Result<(), KeyFileError> {
    if !regular {
        return Err(KeyFileError::Kind(path.to_owned()));
    }
    if owner != user {
        return Err(KeyFileError::Owner(path.to_owned(), owner, user));
    }
    if mode & MODE_OTHERS != 0 {
        return Err(KeyFileError::Mode(path.to_owned(), mode & 0o7777));
    }
    Ok(())
}

type Text = Zeroizing<Vec<u8>>;

/// Reads and checks a file. What is checked is the open file, so nobody can exchange it in between.
fn read(path: &Path) -> Result<(KeyRing, Text, Stamp), KeyFileError> {
    let io = |error| KeyFileError::Io(path.to_owned(), error);
    // A named pipe would wait for its writer.
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path);
    let file = file.map_err(io)?;
    let meta = file.metadata().map_err(io)?;
    let user = rustix::process::geteuid().as_raw();
    access_check(path, meta.is_file(), meta.mode(), meta.uid(), user)?;
    // Room for all of it at once: a buffer that grows would leave copies behind.
    let mut text = Zeroizing::new(vec![0; FILE_BYTES_MAX + 1]);
    let length = read_up_to(&file, &mut text).map_err(io)?;
    if length > FILE_BYTES_MAX {
        return Err(KeyFileError::Long(path.to_owned()));
    }
    text.truncate(length);
    let ring = KeyRing::parse(&text).map_err(|error| KeyFileError::Text(path.to_owned(), error))?;
    Ok((ring, text, Stamp::of(&meta)))
}

fn read_up_to(mut file: &File, room: &mut [u8]) -> io::Result<usize> {
    let mut length = 0;
    while length < room.len() {
        match file.read(&mut room[length..]) {
            Ok(0) => break,
            Ok(more) => length += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(length)
}

/// Appends a line with a new random key.
fn line_append(text: &mut Text, id: u32) -> Result<(), KeyFileError> {
    let mut key = Zeroizing::new([0; SECRET_BYTES]);
    aws_lc_rs::rand::fill(&mut key[..]).map_err(|_| KeyFileError::Random)?;
    text.extend_from_slice(format!("{id} ").as_bytes());
    for byte in key.iter() {
        for digit in [byte >> 4, byte & 15] {
            text.push(b"0123456789abcdef"[usize::from(digit)]);
        }
    }
    text.push(b'\n');
    Ok(())
}

/// What a new file says of itself.
const HEAD: &str = "\
# Keys of software SRD. Each line is a number and a secret key. The first key is used for handshakes
# that this host begins; all keys are accepted from peers. Whoever reads this file reads the traffic
# and can pose as any host: copy it over secure ways only.
";

/// Makes a new key file with one random key, number 1, readable by its owner alone.
///
/// # Errors
/// A [`KeyFileError`]; an existing file is never touched.
pub fn key_file_new(path: &Path) -> Result<(), KeyFileError> {
    let mut text = Zeroizing::new(Vec::with_capacity(FILE_BYTES_MAX));
    text.extend_from_slice(HEAD.as_bytes());
    line_append(&mut text, 1)?;
    let io = |error| KeyFileError::Io(path.to_owned(), error);
    let file = match file_create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            return Err(KeyFileError::Exists(path.to_owned()));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(KeyFileError::Folder(path.to_owned()));
        }
        other => other.map_err(io)?,
    };
    file_fill(file, &text).map_err(|error| {
        let _ = fs::remove_file(path);
        io(error)
    })
}

/// What one call of [`key_file_rotate`] has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rotation {
    /// A new key, with this number, is accepted now. Copy the file to all hosts, then rotate again.
    Added(u32),
    /// The new key, with this number, is used for sending now; the old ones are still accepted.
    /// Copy the file to all hosts, then rotate again.
    Promoted(u32),
    /// Only this key is left. Copy the file to all hosts: contexts of the old keys end there.
    Retired(u32),
}

/// Does the next of the three steps by which all hosts change to a new key without a stop: accept
/// it, send with it, drop the old ones. Between two steps the file has to reach all hosts. Which
/// step is next follows from the file: the key with the highest number is the newest.
///
/// The file is replaced in one move, so readers see the old or the new text; comments stay.
///
/// # Errors
/// A [`KeyFileError`]; the file is as it was.
pub fn key_file_rotate(path: &Path) -> Result<Rotation, KeyFileError> {
    // A link must stay one: the file behind it is replaced.
    let path = &fs::canonicalize(path).map_err(|error| KeyFileError::Io(path.to_owned(), error))?;
    let beside = beside(path);
    let io = |error| KeyFileError::Io(beside.clone(), error);
    // This file is also the lock: a second rotation cannot make it.
    let file = match file_create(&beside) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            return Err(KeyFileError::Busy(beside));
        }
        other => other.map_err(io)?,
    };
    let outcome = rotated(path).and_then(|(text, step)| {
        file_fill(file, &text).and_then(|()| fs::rename(&beside, path)).map_err(io)?;
        Ok(step)
    });
    if outcome.is_err() {
        let _ = fs::remove_file(&beside);
    }
    outcome
}

/// The text after the next step.
fn rotated(path: &Path) -> Result<(Text, Rotation), KeyFileError> {
    let (ring, text, _) = read(path)?;
    let newest = ring.ids().max().expect("a ring has a key");
    let sending = ring.sending().id();
    let mut new = Zeroizing::new(Vec::with_capacity(2 * FILE_BYTES_MAX));
    if sending != newest {
        // The line of the newest key comes before the first key.
        let of_newest = lines(&text).find(|line| line_id(line) == Some(newest));
        let mut moved = of_newest;
        for line in lines(&text).filter(|line| line_id(line) != Some(newest)) {
            if line_id(line).is_some()
                && let Some(newest) = moved.take()
            {
                line_push(&mut new, newest);
            }
            line_push(&mut new, line);
        }
        return Ok((new, Rotation::Promoted(newest)));
    }
    if ring.ids().count() > 1 {
        for line in lines(&text).filter(|line| line_id(line).is_none_or(|id| id == newest)) {
            line_push(&mut new, line);
        }
        return Ok((new, Rotation::Retired(newest)));
    }
    let id = newest.checked_add(1).ok_or_else(|| KeyFileError::Ids(path.to_owned()))?;
    for line in lines(&text) {
        line_push(&mut new, line);
    }
    line_append(&mut new, id)?;
    if new.len() > FILE_BYTES_MAX {
        return Err(KeyFileError::Long(path.to_owned()));
    }
    Ok((new, Rotation::Added(id)))
}

fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.strip_suffix(b"\n").unwrap_or(text).split(|&byte| byte == b'\n')
}

fn line_push(text: &mut Text, line: &[u8]) {
    text.extend_from_slice(line);
    text.push(b'\n');
}

fn line_id(line: &[u8]) -> Option<u32> {
    line_words(line).ok().flatten().and_then(|(id, _)| id_parse(id))
}

/// Where the new text is written before it takes the place of the old one.
fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    PathBuf::from(name)
}

fn file_create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

fn file_fill(mut file: File, text: &[u8]) -> io::Result<()> {
    file.write_all(text)?;
    file.sync_all()
}

#[cfg(test)]
#[path = "key_file_tests.rs"]
mod tests;
