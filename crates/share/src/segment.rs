//! The table as a file of `/dev/shm`: one per user, network namespace and PID namespace.

use crate::layout::{MEMBERS, MemberWord, WORDS, member_at};
use crate::map::{Map, file_link, file_reserve, file_unnamed, user};
use crate::process::Owner;
use crate::table::{Member, Table};
use std::fs::{self, File, Metadata, OpenOptions};
use std::net::IpAddr;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fmt, io};

/// Folder of the files.
pub(crate) const FOLDER: &str = "/dev/shm";
/// Version of the layout, part of the name: processes of another version use another file.
const VERSION: u32 = 1;
/// Attempts to open or create the file while other processes create and remove it.
const TRIES: u32 = 16;

/// Why no table can be shared; the text says what to do.
#[derive(Debug)]
pub struct OpenError {
    path: PathBuf,
    why: Why,
}

#[derive(Debug)]
enum Why {
    Io(&'static str, io::Error),
    /// The file belongs to another user, other users may open it, or it is no regular file.
    Foreign(String),
    Full,
    Busy,
    Blind,
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match &self.why {
            Why::Io(what, e) => write!(f, "{path} cannot be {what}: {e}"),
            Why::Foreign(what) => {
                write!(f, "{path} is not used, since {what}; remove it, or ask its owner to")
            }
            Why::Full => {
                write!(f, "{path} has no room: {MEMBERS} devices of this user are open already")
            }
            Why::Blind => {
                write!(f, "{path} is not used: /proc does not show which processes run; mount it")
            }
            Why::Busy => write!(f, "{path} is made and removed by others all the time"),
        }
    }
}

impl std::error::Error for OpenError {}

/// A table that other processes of this user share.
#[derive(Debug)]
pub struct Segment {
    table: Arc<Table>,
    file: File,
    path: PathBuf,
}

/// Path of the file that this process uses. The name contains the user, the network namespace (each
/// one is a host of its own) and the PID namespace (whether a process of another one is alive
/// cannot be determined).
pub fn segment_path() -> PathBuf {
    let (net, pid) = namespaces();
    Path::new(FOLDER).join(format!("srd-share-v{VERSION}-{}-{net}-{pid}", user()))
}

/// Numbers of the network namespace and the PID namespace of this process; 0 = not known.
pub(crate) fn namespaces() -> (u64, u64) {
    let inode = |kind| fs::metadata(format!("/proc/self/ns/{kind}")).map_or(0, |m| m.ino());
    (inode("net"), inode("pid"))
}

impl Segment {
    /// Opens the file, or creates it.
    ///
    /// # Errors
    /// There is no `/dev/shm`, or the file there does not belong to this user.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        let fail = |why| OpenError { path: path.to_owned(), why };
        for _ in 0..TRIES {
            match Self::open_existing(path) {
                Ok(Some(segment)) => return Ok(segment),
                Ok(None) => {
                    // The file has another layout, or is damaged: no process can use it.
                    let _ = fs::remove_file(path);
                }
                Err(Why::Io(_, e)) if e.kind() == io::ErrorKind::NotFound => {}
                Err(why) => return Err(fail(why)),
            }
            sweep(path);
            match make(path) {
                Ok(()) => {}
                Err(Why::Io(_, e)) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(why) => return Err(fail(why)),
            }
        }
        Err(fail(Why::Busy))
    }

    /// Like [`Segment::open`], but never creates the file: `None` if there is none. For tools that
    /// only read.
    ///
    /// # Errors
    /// As [`Segment::open`].
    pub fn look(path: &Path) -> Result<Option<Self>, OpenError> {
        match Self::open_existing(path) {
            Ok(segment) => Ok(segment),
            Err(Why::Io(_, e)) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(why) => Err(OpenError { path: path.to_owned(), why }),
        }
    }

    /// Opens the file if it exists. `None`: the file is this user's, but holds no table of this
    /// layout.
    fn open_existing(path: &Path) -> Result<Option<Self>, Why> {
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(path);
        let file = file.map_err(|e| match e.raw_os_error() {
            Some(libc::ELOOP) => Why::Foreign("it is a symbolic link".into()),
            Some(libc::EACCES) => Why::Foreign("it belongs to another user".into()),
            _ => Why::Io("opened", e),
        })?;
        let meta = file.metadata().map_err(|e| Why::Io("read", e))?;
        check(&meta)?;
        if meta.len() != 8 * WORDS as u64 {
            return Ok(None);
        }
        let map = Map::new(&file, WORDS).map_err(|e| Why::Io("mapped", e))?;
        let table = Table::mapped(map);
        if table.is_labelled() != Some(true) {
            return Ok(None);
        }
        Ok(Some(Self { table: Arc::new(table), file, path: path.to_owned() }))
    }

    /// The table.
    pub fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// Takes a slot in the file's table for an engine of this process at `local`.
    ///
    /// # Errors
    /// Like [`Segment::open`]; also when all slots are taken.
    pub fn join(path: &Path, local: IpAddr) -> Result<(Self, Member), OpenError> {
        let fail = |why| OpenError { path: path.to_owned(), why };
        let me = Owner::current();
        if !me.is_alive() {
            return Err(fail(Why::Blind));
        }
        for _ in 0..TRIES {
            let segment = Self::open(path)?;
            let member = segment.table.join(me, local, Owner::is_alive);
            let member = member.ok_or_else(|| fail(Why::Full))?;
            // The last process that used the file may have removed it after this one opened it.
            if segment.file.metadata().is_ok_and(|m| m.nlink() > 0) {
                return Ok((segment, member));
            }
        }
        Err(fail(Why::Busy))
    }

    /// Removes the file if no process uses it. Call it after this process has given back its slot.
    pub fn leave(self) {
        if is_used(&self.table) || !self.is_the_one() {
            return;
        }
        let _ = fs::remove_file(&self.path);
        if is_used(&self.table) {
            // A process joined between the check and the removal. It may have checked the link
            // count before the removal and would not notice it, so the file gets its name back.
            let _ = file_link(&self.file, &self.path);
        }
    }

    /// Whether the path still names this file.
    fn is_the_one(&self) -> bool {
        let named = fs::symlink_metadata(&self.path).map(|m| (m.dev(), m.ino()));
        let held = self.file.metadata().map(|m| (m.dev(), m.ino()));
        matches!((named, held), (Ok(a), Ok(b)) if a == b)
    }
}

/// Whether a process that is alive has a slot.
fn is_used(table: &Table) -> bool {
    (0..table.top()).any(|m| {
        let owner = table.load(member_at(m, MemberWord::Owner));
        Owner::from_word(owner).is_some_and(Owner::is_alive)
    })
}

/// Checks the owner of the file and who may open it.
fn check(meta: &Metadata) -> Result<(), Why> {
    let foreign = |what: &str| Err(Why::Foreign(what.into()));
    if !meta.is_file() {
        return foreign("it is no regular file");
    }
    if meta.uid() != user() {
        return foreign("it belongs to another user");
    }
    if meta.mode() & 0o077 != 0 {
        return foreign("other users may open it");
    }
    Ok(())
}

/// Fills a complete table into a file without a name, then names the file: no process ever sees an
/// incomplete table, and a process that is killed meanwhile leaves no file.
fn make(path: &Path) -> Result<(), Why> {
    let file = file_unnamed(path).map_err(|e| Why::Io("made", e))?;
    file_reserve(&file, 8 * WORDS).map_err(|e| Why::Io("given memory", e))?;
    let map = Map::new(&file, WORDS).map_err(|e| Why::Io("mapped", e))?;
    Table::mapped(map).label();
    file_link(&file, path).map_err(|e| Why::Io("named", e))
}

/// Removes files of this user that no process uses any more: those of former network namespaces
/// whose last process was killed. Considers only files of this PID namespace.
fn sweep(path: &Path) {
    let Some((folder, name)) = path.parent().zip(path.file_name().and_then(|n| n.to_str())) else {
        return;
    };
    let parts: Vec<&str> = name.split('-').collect();
    let [.., user, _, pid] = parts[..] else { return };
    let Ok(list) = fs::read_dir(folder) else { return };
    for entry in list.flatten().take(4096) {
        let other = entry.file_name();
        let Some(other) = other.to_str().filter(|o| *o != name) else { continue };
        let mine = other.starts_with(&format!("srd-share-v{VERSION}-{user}-"))
            && other.ends_with(&format!("-{pid}"));
        if mine && let Ok(Some(segment)) = Segment::open_existing(&entry.path()) {
            segment.leave();
        }
    }
}
