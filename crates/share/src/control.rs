//! Orders of an operator to the devices of this host: which paths to which addresses are denied.
//!
//! One file of `/dev/shm` per user and network namespace. It exists while a device is open or an
//! order is in force. It has two copies of the table and the number of the one that holds: a
//! command fills the other copy and then stores its number, so that it may be killed at any
//! instruction and the devices see the table before or after it, never a mixture. A device compares
//! that number with the one it saw last: one atomic read per turn. Commands exclude each other by a
//! lock that the kernel takes from a process that ends.
//!
//! No word is trusted: a table without its checksum is not used.

use crate::map::{
    Map, file_link, file_lock, file_reserve, file_unlock, file_unnamed, network_cookie, user,
};
use crate::segment::{FOLDER, namespaces};
use crate::standing::standing_orders;
use srd_core::limits::DENIALS_MAX;
use srd_core::{DenyError, PathMask};
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv6Addr};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU64, fence};
use std::thread;
use std::time::Duration;

/// Beginning of the files' names. It ends with the version of the layout.
const PREFIX: &str = "srd-paths-v2-";
/// First word of the file: "SRDPATH" and the version.
const MAGIC: u64 = u64::from_be_bytes(*b"SRDPATH\x02");
/// Words in front of the copies: the magic number, the number of the copy that holds.
const HEAD_WORDS: usize = 2;
/// Words in front of the entries of a copy: its number, the checksum, its orders, its probes, the
/// number of the table that ordered these.
const COPY_HEAD_WORDS: usize = 5;
/// Words of an entry: address (2), least number of paths, mask (4).
const ENTRY_WORDS: usize = 7;
/// Most addresses that one command probes: as many as a device shows paths of.
pub const PATH_PROBES_MAX: usize = crate::status::STATUS_PATHED_MAX;
const COPY_WORDS: usize = COPY_HEAD_WORDS + (DENIALS_MAX + PATH_PROBES_MAX) * ENTRY_WORDS;
pub(crate) const TABLE_WORDS: usize = HEAD_WORDS + 2 * COPY_WORDS;
/// Attempts to open, or to read, what others change meanwhile.
const TRIES: u32 = 16;
/// Attempts to get the lock of another command, one each millisecond.
const LOCK_TRIES: u32 = 2_000;
/// Most files that are looked at to remove those that nobody needs.
const SWEPT_MAX: usize = 256;

/// Denied paths to one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathOrder {
    /// The remote address.
    pub ip: IpAddr,
    /// Paths that must remain in use, at least 1.
    pub least: u16,
    /// The denied paths.
    pub mask: PathMask,
}

/// What the file says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathTable {
    /// Number of the table.
    pub number: u64,
    /// The orders in force.
    pub orders: Vec<PathOrder>,
    /// Number of the table that ordered `probes`: a device probes once for each new number.
    pub probes_number: u64,
    /// Paths to be probed once, by address; at most [`PATH_PROBES_MAX`] addresses.
    pub probes: Vec<(IpAddr, PathMask)>,
}

/// The control file of a user in a network namespace.
#[derive(Debug)]
pub struct PathControl {
    map: Map,
    /// Holds a shared lock for as long as the file is needed.
    file: File,
    path: PathBuf,
}

/// Path of the file of this process's network namespace for user `uid`. The number of a namespace
/// is the kernel's cookie, which is never used again; an inode number, which serves with kernels
/// before 5.14, is.
fn path_of(uid: u32) -> PathBuf {
    path_for(&uid.to_string())
}

pub(crate) fn path_for(user: &str) -> PathBuf {
    let network = match network_cookie() {
        Some(cookie) => format!("{cookie:x}"),
        None => format!("i{}", namespaces().0),
    };
    Path::new(FOLDER).join(format!("{PREFIX}{user}-{network}"))
}

impl PathControl {
    /// Opens the file of this process's user and network namespace, or makes it. A new one begins
    /// with root's standing orders ([`standing_orders`](crate::standing_orders)).
    ///
    /// # Errors
    /// There is no `/dev/shm` or no memory left there, or the file is not this user's alone.
    pub fn open() -> io::Result<Self> {
        sweep(Path::new(FOLDER));
        Self::open_at(&path_of(user()), standing_orders)
    }

    pub(crate) fn open_at(
        path: &Path,
        begins_with: impl Fn() -> Option<PathTable>,
    ) -> io::Result<Self> {
        for _ in 0..TRIES {
            match Self::open_existing(path) {
                Err(e) if e.kind() == ErrorKind::NotFound => {}
                Ok(None) => continue,
                Ok(Some(control)) => return Ok(control),
                Err(e) => return Err(e),
            }
            match make(path, &begins_with().unwrap_or_default()) {
                Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
                made => made?,
            }
        }
        Err(io::Error::other(format!("{} is made and removed all the time", path.display())))
    }

    /// `None`: the file was removed meanwhile.
    fn open_existing(path: &Path) -> io::Result<Option<Self>> {
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(path)?;
        let meta = file.metadata()?;
        let wrong = |what: &str| {
            let text = format!("{} is not used, since {what}: remove it", path.display());
            Err(io::Error::new(ErrorKind::PermissionDenied, text))
        };
        if !meta.is_file() || meta.uid() != user() || meta.mode() & 0o077 != 0 {
            return wrong("it is not a file of this user alone");
        }
        if meta.len() != 8 * TABLE_WORDS as u64 {
            return wrong("it has another length");
        }
        file.lock_shared()?;
        let map = Map::new(&file, TABLE_WORDS)?;
        if map.words()[0].load(Relaxed) != MAGIC {
            return wrong("it has another layout");
        }
        let control = Self { map, file, path: path.to_owned() };
        Ok(control.is_named().then_some(control))
    }

    fn is_named(&self) -> bool {
        let named = fs::symlink_metadata(&self.path).map(|m| (m.dev(), m.ino()));
        let held = self.file.metadata().map(|m| (m.dev(), m.ino()));
        matches!((named, held), (Ok(a), Ok(b)) if a == b)
    }

    /// Number of the table that holds: it changes with each order. One atomic read.
    #[inline]
    pub fn number(&self) -> u64 {
        self.map.words()[1].load(Acquire)
    }

    /// The table. `None`: it is damaged, or changed all the time; the next call may succeed.
    pub fn table(&self) -> Option<PathTable> {
        (0..TRIES).find_map(|_| {
            let number = self.number();
            let copy: Vec<u64> = self.copy(number).iter().map(|word| word.load(Relaxed)).collect();
            fence(Acquire);
            // A command has begun to write over the copy only after it stored another number.
            let same = self.copy(number)[0].load(Relaxed) == copy[0] && self.number() == number;
            same.then(|| table_of(number, &copy))?
        })
    }

    /// The orders in force, and the number of their table; see [`Self::table`].
    pub fn orders(&self) -> Option<(u64, Vec<PathOrder>)> {
        self.table().map(|table| (table.number, table.orders))
    }

    fn copy(&self, number: u64) -> &[AtomicU64] {
        &self.map.words()[copy_range(number)]
    }

    /// Changes the denied paths to `ip`: `change` gets those that are denied now, and returns those
    /// to be denied. `paths`: paths of the devices, of which `least` (at least one) must remain if
    /// paths are denied that were not; a change that only allows paths is never refused, and
    /// leaves the earlier `least` in force. Returns what is denied now.
    ///
    /// # Errors
    /// Too few paths would remain, the table is full, or another command holds the lock.
    pub fn change(
        &self,
        ip: IpAddr,
        paths: u16,
        least: u16,
        change: impl FnOnce(PathMask) -> PathMask,
    ) -> io::Result<PathMask> {
        self.locked(|| self.change_locked(ip, paths, least.max(1), change))
    }

    /// Has every device probe these paths once, those of at most [`PATH_PROBES_MAX`] addresses. A
    /// device that meets the next such order first probes only what that says.
    ///
    /// # Errors
    /// Too many addresses, or another command holds the lock.
    pub fn probe(&self, probes: &[(IpAddr, PathMask)]) -> io::Result<()> {
        if probes.len() > PATH_PROBES_MAX {
            let text = format!("at most {PATH_PROBES_MAX} addresses can be probed at once");
            return Err(io::Error::new(ErrorKind::InvalidInput, text));
        }
        self.locked(|| {
            let mut table = self.table().unwrap_or_default();
            table.probes = probes.iter().map(|(ip, mask)| (ip.to_canonical(), *mask)).collect();
            table.probes_number = self.number() + 1;
            self.write(&table);
            Ok(())
        })
    }

    /// Has every device look for what tools ask of it beside orders about paths: the table stays as
    /// it is, and gets a new number.
    ///
    /// # Errors
    /// Another command holds the lock.
    pub fn nudge(&self) -> io::Result<()> {
        self.locked(|| {
            self.write(&self.table().unwrap_or_default());
            Ok(())
        })
    }

    /// Does `work` while no other command does.
    pub(crate) fn locked<T>(&self, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let locked = (0..LOCK_TRIES).any(|attempt| {
            if attempt > 0 {
                thread::sleep(Duration::from_millis(1));
            }
            file_lock(&self.file).is_ok()
        });
        if !locked {
            let text = "another command holds the lock of the control file: end it, and try again";
            return Err(io::Error::new(ErrorKind::TimedOut, text));
        }
        let done = work();
        file_unlock(&self.file)?;
        done
    }

    fn change_locked(
        &self,
        ip: IpAddr,
        paths: u16,
        least: u16,
        change: impl FnOnce(PathMask) -> PathMask,
    ) -> io::Result<PathMask> {
        // A table that is damaged ends with the next order.
        let mut table = self.table().unwrap_or_default();
        let mask = change_in(&mut table, ip, paths, least, change)?;
        self.write(&table);
        Ok(mask)
    }

    /// Writes a table over the copy that does not hold, and makes it hold.
    fn write(&self, table: &PathTable) {
        table_write(self.map.words(), self.number().wrapping_add(1).max(1), table);
    }
}

/// Changes the order about one address; see [`PathControl::change`].
pub(crate) fn change_in(
    table: &mut PathTable,
    ip: IpAddr,
    paths: u16,
    least: u16,
    change: impl FnOnce(PathMask) -> PathMask,
) -> io::Result<PathMask> {
    let orders = &mut table.orders;
    let ip = ip.to_canonical();
    let at = orders.iter().position(|order| order.ip == ip);
    let before = at.map(|at| orders.remove(at));
    let denied = before.map_or(PathMask::NONE, |order| order.mask);
    let mask = change(denied);
    let denies = mask.0.iter().zip(denied.0).any(|(now, before)| now & !before != 0);
    let left = paths.saturating_sub(mask.below(paths).len());
    if denies && left < least {
        return Err(io::Error::other(DenyError::TooFewLeft { left, least }));
    }
    let least = before.filter(|_| !denies).map_or(least, |order| order.least);
    if !mask.is_empty() {
        if orders.len() >= DENIALS_MAX {
            return Err(io::Error::other(DenyError::TableFull));
        }
        orders.push(PathOrder { ip, least, mask });
    }
    Ok(mask)
}

/// Writes a table with its number into the words of a file, over the copy that does not hold, and
/// makes it hold.
pub(crate) fn table_write(file: &[AtomicU64], number: u64, table: &PathTable) {
    let copy = &file[copy_range(number)];
    let PathTable { orders, probes, probes_number, .. } = table;
    let mut words = vec![orders.len() as u64, probes.len() as u64, *probes_number];
    orders.iter().for_each(|order| words.extend(words_of(order)));
    for &(ip, mask) in probes {
        words.extend(words_of(&PathOrder { ip, least: 1, mask }));
    }
    copy[0].store(0, Relaxed);
    fence(Release);
    copy[1].store(check(number, &words), Relaxed);
    for (at, &word) in copy[2..].iter().zip(&words) {
        at.store(word, Relaxed);
    }
    copy[0].store(number, Release);
    file[0].store(MAGIC, Relaxed);
    file[1].store(number, Release);
}

/// The table of each user in this network namespace, by user ID; `None` if it is damaged. A process
/// sees those that it may read: its own, and as root all. The words are those of their users: they
/// are read, not mapped, so that nobody who cuts his file off ends the reader.
///
/// # Errors
/// The folder `/dev/shm` cannot be read.
pub fn path_tables() -> io::Result<Vec<(u32, Option<PathTable>)>> {
    tables_in(Path::new(FOLDER), &path_of)
}

fn tables_in(
    folder: &Path,
    path_of: &dyn Fn(u32) -> PathBuf,
) -> io::Result<Vec<(u32, Option<PathTable>)>> {
    let uid_of = |entry: fs::DirEntry| {
        let name = entry.file_name();
        let (uid, _) = name.to_str()?.strip_prefix(PREFIX)?.split_once('-')?;
        let uid = uid.parse().ok()?;
        // Not a number that is written in another way, and not another network namespace.
        (path_of(uid) == entry.path()).then_some(uid)
    };
    let mut uids: Vec<u32> = fs::read_dir(folder)?.flatten().filter_map(uid_of).collect();
    uids.sort_unstable();
    let tables = uids.into_iter().filter_map(|uid| Some((uid, table_read(&path_of(uid), uid)?)));
    Ok(tables.collect())
}

/// The table in a file of user `uid`; the outer `None`: the file is no table of that user, or may
/// not be read.
pub(crate) fn table_read(path: &Path, uid: u32) -> Option<Option<PathTable>> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
    let meta = file.metadata().ok()?;
    if !meta.is_file()
        || meta.uid() != uid
        || meta.mode() & 0o022 != 0
        || meta.len() != 8 * TABLE_WORDS as u64
    {
        return None;
    }
    let table = (0..TRIES).find_map(|_| {
        let mut bytes = vec![0; 8 * TABLE_WORDS];
        file.read_exact_at(&mut bytes, 0).ok()?;
        let words: Vec<u64> =
            bytes.as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word)).collect();
        let [MAGIC, number, ..] = words[..] else { return None };
        table_of(number, &words[copy_range(number)])
    });
    Some(table)
}

impl Drop for PathControl {
    fn drop(&mut self) {
        remove_unneeded(self);
    }
}

/// Removes the file if no order is in force and no other process has it open.
fn remove_unneeded(control: &PathControl) {
    let is_empty = || control.orders().is_some_and(|(_, orders)| orders.is_empty());
    // The lock of this process becomes an exclusive one, if nobody else has a shared one. An order
    // may have been written until then.
    let alone = is_empty() && control.file.try_lock().is_ok();
    if alone && is_empty() && control.is_named() {
        let _ = fs::remove_file(&control.path);
    }
}

/// Removes files of this user that nobody needs: those of namespaces whose last process was killed.
fn sweep(folder: &Path) {
    let Ok(list) = fs::read_dir(folder) else { return };
    let mine = format!("{PREFIX}{}-", user());
    let named = |entry: &fs::DirEntry| {
        entry.file_name().to_str().is_some_and(|name| name.starts_with(&mine))
    };
    for entry in list.flatten().filter(named).take(SWEPT_MAX) {
        // Closing it removes it, if it may be.
        let _ = PathControl::open_existing(&entry.path());
    }
}

/// Makes a complete file without a name, with these orders, and then names it.
fn make(path: &Path, begins_with: &PathTable) -> io::Result<()> {
    let file = file_unnamed(path)?;
    file_reserve(&file, 8 * TABLE_WORDS)?;
    let map = Map::new(&file, TABLE_WORDS)?;
    map.words()[0].store(MAGIC, Relaxed);
    if !begins_with.orders.is_empty() {
        let orders = begins_with.orders.clone();
        table_write(map.words(), 1, &PathTable { orders, ..PathTable::default() });
    }
    file_link(&file, path)
}

/// Which words of the file hold the table with this number.
fn copy_range(number: u64) -> std::ops::Range<usize> {
    let from = HEAD_WORDS + (number % 2) as usize * COPY_WORDS;
    from..from + COPY_WORDS
}

/// The table in a copy, whatever its words are; `None`: it is not the whole table `number`.
fn table_of(number: u64, copy: &[u64]) -> Option<PathTable> {
    if number == 0 {
        return Some(PathTable::default());
    }
    let [own, sum, words @ ..] = copy else { return None };
    let [orders, probes, probes_number, ..] = *words else { return None };
    let most = |count: u64, max: usize| usize::try_from(count).ok().filter(|n| *n <= max);
    let (orders, probes) = (most(orders, DENIALS_MAX)?, most(probes, PATH_PROBES_MAX)?);
    let words = words.get(..COPY_HEAD_WORDS - 2 + (orders + probes) * ENTRY_WORDS)?;
    let entries = words.get(COPY_HEAD_WORDS - 2..)?.as_chunks().0;
    (*own == number && *sum == check(number, words)).then(|| PathTable {
        number,
        orders: entries[..orders].iter().map(order_of).collect(),
        probes_number,
        probes: entries[orders..].iter().map(order_of).map(|o| (o.ip, o.mask)).collect(),
    })
}

fn words_of(order: &PathOrder) -> [u64; ENTRY_WORDS] {
    let ip = match order.ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    let ip = ip.to_bits();
    let [a, b, c, d] = order.mask.0;
    [(ip >> 64) as u64, ip as u64, order.least.into(), a, b, c, d]
}

fn order_of(words: &[u64; ENTRY_WORDS]) -> PathOrder {
    let [high, low, least, a, b, c, d] = *words;
    let ip = Ipv6Addr::from_bits(u128::from(high) << 64 | u128::from(low));
    let least = u16::try_from(least).unwrap_or(u16::MAX).max(1);
    PathOrder { ip: IpAddr::V6(ip).to_canonical(), least, mask: PathMask([a, b, c, d]) }
}

/// Checksum of a table: nobody's secret, only proof that the words belong together.
fn check(number: u64, words: &[u64]) -> u64 {
    words.iter().fold(number ^ MAGIC, |sum, word| {
        (sum ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29)
    })
}

#[cfg(test)]
#[path = "control_tests.rs"]
mod tests;
