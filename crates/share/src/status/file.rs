//! The files of the devices' statuses: making, writing, listing.

use super::{Status, fields};
use crate::map::{Map, file_link, file_reserve, file_unnamed, user};
use crate::process::Owner;
use crate::segment::{FOLDER, namespaces};
use std::collections::BTreeMap;
use std::collections::hash_map::RandomState;
use std::fs::{self, File, OpenOptions};
use std::hash::BuildHasher;
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// Beginning of the files' names. It ends with the version of the layout.
const PREFIX: &str = "srd-status-v2-";
/// First word of the file: "SRDSTATS" with the version in place of the last letter.
const MAGIC: u64 = u64::from_be_bytes(*b"SRDSTAT\x02");
/// Words in front of the copies: the magic number, the words of a copy, the owner.
const HEAD_WORDS: usize = 3;
/// Words in front of the content of a copy: its number, its words, their checksum.
const COPY_HEAD_WORDS: usize = 3;
/// Most paths of a device, which decides on the largest file.
const PATHS_MAX: u16 = 256;
/// Most files of one user that a reader looks at.
const FILES_MAX: usize = 4096;
/// Most files that a device looks at when it is opened, to remove those of killed processes.
const SWEPT_MAX: usize = 32;
/// Attempts to read a file whose copies change meanwhile.
const TRIES: u32 = 8;

/// Number of the next file of this process.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// Which processes are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusScope {
    /// Those in the network namespace of this process.
    Network,
    /// Those in every network namespace.
    Host,
}

/// A device that is open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusRow {
    /// Number of the process, in its PID namespace.
    pub pid: u32,
    /// User that the process belongs to.
    pub uid: u32,
    /// Inode of the network namespace of the process, which tells one from another.
    pub network: u64,
    /// What the device shows.
    pub status: Status,
    /// What it showed the time before, for rates; `None` if it has shown nothing else yet.
    pub before: Option<Status>,
}

/// Devices that are open on this host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatusList {
    /// Devices, in the order of process and port.
    pub rows: Vec<StatusRow>,
    /// Devices of other users, which only root may read.
    pub foreign: usize,
    /// Files that hold no status, or one that kept changing while it was read.
    pub unread: usize,
}

/// What the name of a file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Name {
    uid: u32,
    network: u64,
    pids: u64,
    pid: u32,
}

impl Name {
    fn of(name: &str) -> Option<Self> {
        let mut parts = name.strip_prefix(PREFIX)?.split('-');
        let (uid, network) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        let (pids, pid) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        parts.next()?.parse::<u32>().ok()?;
        parts.next().is_none().then_some(Self { uid, network, pids, pid })
    }
}

/// The file of a device. It is removed when this value is dropped.
#[derive(Debug)]
pub struct StatusFile {
    map: Map,
    /// Holds the lock that says that the process is alive.
    _file: File,
    path: PathBuf,
    copy_words: usize,
    /// Number of the newest copy.
    number: u64,
    words: Vec<u64>,
}

impl StatusFile {
    /// Makes a file for a device of this process that has so many paths per address.
    ///
    /// # Errors
    /// There is no `/dev/shm`, or no memory is left there.
    pub fn create(paths: u16) -> io::Result<Self> {
        let (network, pids) = namespaces();
        let (uid, pid) = (user(), std::process::id());
        let at = |number: u32| {
            let name = format!("{PREFIX}{uid}-{network}-{pids}-{pid}-{number}");
            Self::create_at(&Path::new(FOLDER).join(name), paths)
        };
        sweep(Path::new(FOLDER));
        match at(NEXT.fetch_add(1, Ordering::Relaxed)) {
            // Somebody else has made a file with that name. Nobody can guess the other one.
            Err(e) if e.kind() == ErrorKind::PermissionDenied => {
                at(RandomState::new().hash_one(pid) as u32)
            }
            other => other,
        }
    }

    fn create_at(path: &Path, paths: u16) -> io::Result<Self> {
        let copy_words = COPY_HEAD_WORDS + fields::words_max(paths.min(PATHS_MAX));
        let words = HEAD_WORDS + 2 * copy_words;
        // Without a name until it is complete and locked: readers see no file that is half made.
        let file = file_unnamed(path)?;
        file_reserve(&file, 8 * words)?;
        let map = Map::new(&file, words)?;
        let head = [MAGIC, copy_words as u64, Owner::current().word()];
        for (at, word) in map.words().iter().zip(head) {
            at.store(word, Ordering::Relaxed);
        }
        file.try_lock().map_err(io::Error::from)?;
        match file_link(&file, path) {
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {
                // The number of this process: the file is that of one that was killed, or of a
                // program that this process ran before. If it belongs to somebody else, the caller
                // takes another name.
                fs::remove_file(path)?;
                file_link(&file, path)?;
            }
            other => other?,
        }
        let (path, number) = (path.to_owned(), 0);
        Ok(Self { map, _file: file, path, copy_words, number, words: Vec::new() })
    }

    /// Writes a status, over the older copy. Lists longer than their bounds are cut off.
    pub fn write(&mut self, status: &mut Status) {
        self.words.clear();
        fields::put(status, &mut self.words);
        let room = self.copy_words - COPY_HEAD_WORDS;
        debug_assert!(self.words.len() <= room, "the layout bounds its words");
        self.words.truncate(room);
        self.number += 1;
        let from = HEAD_WORDS + (self.number % 2) as usize * self.copy_words;
        let copy = &self.map.words()[from..from + self.copy_words];
        let head = [self.number, self.words.len() as u64, check(self.number, &self.words)];
        for (at, &word) in copy.iter().zip(head.iter().chain(&self.words)) {
            at.store(word, Ordering::Relaxed);
        }
    }
}

impl Drop for StatusFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Checksum of a copy: nobody's secret, only proof that the words belong together.
fn check(number: u64, words: &[u64]) -> u64 {
    words.iter().fold(number ^ MAGIC, |sum, word| {
        (sum ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29)
    })
}

/// Lists the devices that are open, and removes the files of processes that were killed.
///
/// # Errors
/// The folder `/dev/shm` cannot be read.
pub fn status_list(scope: StatusScope) -> io::Result<StatusList> {
    list_in(Path::new(FOLDER), scope)
}

fn list_in(folder: &Path, scope: StatusScope) -> io::Result<StatusList> {
    let (network, pids) = namespaces();
    let mut list = StatusList::default();
    let mut looked_at: BTreeMap<u32, usize> = BTreeMap::new();
    for (path, name) in files(folder)? {
        if scope == StatusScope::Network && name.network != network {
            continue;
        }
        // Anybody can make files with any name here: what belongs to somebody else than the name
        // says is no status, and nobody's files hide those of others.
        if fs::symlink_metadata(&path).is_ok_and(|meta| meta.uid() != name.uid) {
            continue;
        }
        let files = looked_at.entry(name.uid).or_default();
        *files += 1;
        if *files > FILES_MAX {
            continue;
        }
        match read(&path, &name, name.pids == pids) {
            Ok(Found::Copies(copies)) => {
                let (Name { pid, uid, network, .. }, Copies { status, before }) = (name, *copies);
                list.rows.push(StatusRow { pid, uid, network, status, before });
            }
            Ok(Found::Nothing) => list.unread += 1,
            Ok(Found::Ended) => {}
            Err(e) if e.kind() == ErrorKind::PermissionDenied => list.foreign += 1,
            Err(_) => {}
        }
    }
    list.rows.sort_by_key(|row| (row.network, row.pid, row.status.port, row.status.opened_ns));
    Ok(list)
}

/// The files of statuses in a folder, by name.
fn files(folder: &Path) -> io::Result<Vec<(PathBuf, Name)>> {
    let mut found: Vec<_> = fs::read_dir(folder)?
        .filter_map(|entry| {
            let entry = entry.ok()?;
            Some((entry.path(), Name::of(entry.file_name().to_str()?)?))
        })
        .collect();
    found.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(found)
}

/// What a file is.
enum Found {
    Copies(Box<Copies>),
    /// Its process has ended: it has been removed.
    Ended,
    /// It holds no status.
    Nothing,
}

/// Reads a file. `same_pids`: its process is of this PID namespace.
fn read(path: &Path, name: &Name, same_pids: bool) -> io::Result<Found> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let mut file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let meta = file.metadata()?;
    let bytes_max = 8 * (HEAD_WORDS + 2 * (COPY_HEAD_WORDS + fields::words_max(PATHS_MAX))) as u64;
    if !meta.is_file() || meta.uid() != name.uid || meta.len() > bytes_max {
        return Ok(Found::Nothing);
    }
    if file.try_lock().is_ok() {
        // The kernel took the lock from a process that ended without closing its device.
        let named = fs::symlink_metadata(path)?;
        if (named.dev(), named.ino()) == (meta.dev(), meta.ino()) {
            let _ = fs::remove_file(path);
        }
        return Ok(Found::Ended);
    }
    let mut bytes = Vec::new();
    for attempt in 0..TRIES {
        bytes.clear();
        io::Seek::rewind(&mut file)?;
        (&mut file).take(bytes_max).read_to_end(&mut bytes)?;
        let words: Vec<u64> =
            bytes.as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word)).collect();
        match content(&words) {
            Content::Copies(owner, copies) => {
                // A child of the ended process, made by fork, may still hold the lock.
                let ended = same_pids && !owner.is_alive();
                // The word of another user, who may name a process that is not his.
                let lies = meta.uid() != user()
                    && (owner.pid() != name.pid || same_pids && !is_of(name.pid, meta.uid()));
                return Ok(match (ended, lies) {
                    (true, _) => Found::Ended,
                    (_, true) => Found::Nothing,
                    _ => Found::Copies(copies),
                });
            }
            Content::Empty if attempt > 0 => return Ok(Found::Nothing),
            Content::Foreign => return Ok(Found::Nothing),
            Content::Empty | Content::Changing => std::thread::yield_now(),
        }
    }
    Ok(Found::Nothing)
}

/// Whether user `uid` is one of those that process `pid` acts for.
fn is_of(pid: u32, uid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let uids = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap_or_default();
    uids.split_whitespace().any(|word| word.parse() == Ok(uid))
}

/// The complete copies of a file.
struct Copies {
    status: Status,
    before: Option<Status>,
}

/// What the words of a file say.
enum Content {
    Copies(Owner, Box<Copies>),
    /// Another layout, or no status at all.
    Foreign,
    /// Nothing has been written yet.
    Empty,
    /// Both copies changed while they were read.
    Changing,
}

/// The copies that are complete.
fn content(words: &[u64]) -> Content {
    let [MAGIC, copy_words, owner, copies @ ..] = words else { return Content::Foreign };
    let Some(owner) = Owner::from_word(*owner) else { return Content::Foreign };
    if *copy_words <= COPY_HEAD_WORDS as u64 || 2 * *copy_words != copies.len() as u64 {
        return Content::Foreign;
    }
    let mut copies: Vec<&[u64]> = copies.chunks_exact(*copy_words as usize).collect();
    copies.sort_by_key(|copy| std::cmp::Reverse(copy[0]));
    if copies.iter().all(|copy| copy[0] == 0) {
        return Content::Empty;
    }
    let mut complete = copies.into_iter().filter_map(|copy| {
        let [number, len, sum, content @ ..] = copy else { return None };
        let content = content.get(..usize::try_from(*len).ok()?)?;
        (*number > 0 && check(*number, content) == *sum).then(|| fields::take(content))
    });
    let Some(status) = complete.next() else { return Content::Changing };
    Content::Copies(owner, Box::new(Copies { status, before: complete.next() }))
}

/// Removes files of this user whose processes were killed. It looks at a few, beginning at another
/// place in each process, so that many processes that start at once look at all.
fn sweep(folder: &Path) {
    let Ok(files) = files(folder) else { return };
    let (uid, (_, pids)) = (user(), namespaces());
    let own: Vec<_> = files.iter().filter(|(_, name)| name.uid == uid).collect();
    let first = std::process::id() as usize % own.len().max(1);
    for (path, name) in own.iter().cycle().skip(first).take(SWEPT_MAX.min(own.len())) {
        let _ = read(path, name, name.pids == pids);
    }
}

#[cfg(test)]
pub(super) mod testing {
    use super::*;

    pub(in super::super) fn create_at(path: &Path, paths: u16) -> io::Result<StatusFile> {
        StatusFile::create_at(path, paths)
    }

    pub(in super::super) fn list_in(folder: &Path, scope: StatusScope) -> io::Result<StatusList> {
        super::list_in(folder, scope)
    }

    /// The name of a file of this process in its namespaces, and of one in another network.
    pub(in super::super) fn names(pid: u32) -> [String; 2] {
        let (network, pids) = namespaces();
        [network, network + 1].map(|net| format!("{PREFIX}{}-{net}-{pids}-{pid}-0", user()))
    }

    /// The status in the words of a file, if there is one.
    pub(in super::super) fn status_of(words: &[u64]) -> Option<Status> {
        match content(words) {
            Content::Copies(_, copies) => Some(copies.status),
            _ => None,
        }
    }
}
