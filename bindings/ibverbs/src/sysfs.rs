//! A folder that imitates the part of sysfs that programs read about a device.
//!
//! libfabric reads the version of the verbs interface, and a PCI address with a driver; hwloc (in
//! MPI libraries) must know that PCI device. Therefore a real one of this host is named if
//! possible: the interface's, else any with a driver. MPICH from 5.0.1 on does not ask hwloc about
//! the address 0000:00:00.0, which is named if the user wants no PCI device (`SRD_PCI=none`).

use std::{
    ffi::OsString,
    fs::{self, File},
    hash::{DefaultHasher, Hash, Hasher},
    io::{self, Write},
    os::unix::{
        ffi::OsStringExt,
        fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink},
    },
    path::{Path, PathBuf},
    sync::OnceLock,
};

/// Version of the interface between verbs and the kernel that the tree reports.
const ABI_VERSION: &str = "6\n";
const PCI_DEVICES: &str = "/sys/bus/pci/devices";
/// PCI address if the host has no PCI device.
const PCI_NONE: &str = "0000:00:00.0";

/// Environment variable that tells verbs programs of another sysfs.
pub const SYSFS_PATH: &str = "SYSFS_PATH";

/// A device to be described in the tree.
pub(crate) struct Entry<'a> {
    pub name: &'a str,
    pub uverbs: &'a str,
    pub interface: &'a str,
    pub node_guid: u64,
    pub gid: [u8; 16],
    pub fw_ver: &'a str,
    /// Whether to name a PCI device of this host, if there is one.
    pub pci: bool,
}

/// Beginning of the trees' names.
const PREFIX: &str = "srd-verbs-";
/// File in a tree that its processes hold a lock on.
const LOCK: &str = ".lock";
/// Attempts to use a tree that another process removes meanwhile.
const TRIES: u32 = 16;

/// Variables that decide which devices there are, and what the tree says about them.
const DEVICE_VARIABLES: [&str; 4] = ["SRD_INTERFACE", "SRD_IP", "SRD_DEVICE_NAME", "SRD_PCI"];

/// Root of the tree. If the variable is already set, its tree is used, unless it is one of these
/// trees: that of a parent process may describe other devices.
pub(crate) fn root() -> &'static Path {
    static ROOT: OnceLock<PathBuf> = OnceLock::new();
    ROOT.get_or_init(|| match std::env::var_os(SYSFS_PATH).map(PathBuf::from) {
        Some(path) if !path.as_os_str().is_empty() && !is_shared(&path) => path,
        _ => own_root(),
    })
}

/// Whether it is a tree that processes with the same devices share.
fn is_shared(path: &Path) -> bool {
    let (base, name) = (base(), shared_name());
    let found = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let rest = found.strip_prefix(&name);
    path.parent() == Some(&base)
        && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

/// Beginning of the folders' names.
fn shared_name() -> String {
    // SAFETY: no memory is passed; the call cannot fail.
    format!("{PREFIX}{}", unsafe { libc::getuid() })
}

/// The name of the tree of this process's network namespace, whose interfaces are its own, and of
/// the variables that decide on devices.
fn own_name() -> String {
    let network = fs::metadata("/proc/self/ns/net").map_or(0, |m| m.ino());
    format!("{}-{network}{}", shared_name(), device_suffix(&DEVICE_VARIABLES.map(srd::setting)))
}

/// Folder of the trees.
fn base() -> PathBuf {
    let shared = Path::new("/dev/shm");
    if shared.is_dir() { shared.to_path_buf() } else { std::env::temp_dir() }
}

/// End of the folder's name, from the values of the variables: all processes find in a tree exactly
/// the devices that they have.
fn device_suffix(values: &[Option<OsString>]) -> String {
    if values.iter().all(|value| value.as_ref().is_none_or(|v| v.is_empty())) {
        return String::new();
    }
    let mut hasher = DefaultHasher::new();
    values.hash(&mut hasher);
    format!("-{:016x}", hasher.finish())
}

/// A folder that only this user can write to. It is shared by all processes of the user with the
/// same devices, so that it is written once; if the name is taken by another user, a folder with a
/// random name.
fn own_root() -> PathBuf {
    static HELD: OnceLock<File> = OnceLock::new();
    let base = base();
    let path = base.join(own_name());
    let is_new = !path.exists();
    let Ok(lock) = hold(&path) else { return fresh(&base).unwrap_or(path) };
    // The kernel gives the lock back when the process ends, however it ends.
    HELD.get_or_init(|| lock);
    if is_new {
        sweep(&base, &shared_name(), &path);
    }
    path
}

/// Creates the folder if necessary, and takes a lock on it that it shares with the other processes
/// that use the folder.
fn hold(path: &Path) -> io::Result<File> {
    for _ in 0..TRIES {
        ready(path)?;
        let at = path.join(LOCK);
        let mut options = File::options();
        options.read(true).write(true).create(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
        let file = match options.open(&at) {
            // The folder was removed meanwhile.
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            other => other?,
        };
        // Whoever has the lock for itself is about to remove the folder.
        file.lock_shared()?;
        let same = |a: fs::Metadata, b: fs::Metadata| (a.dev(), a.ino()) == (b.dev(), b.ino());
        if fs::symlink_metadata(&at).is_ok_and(|m| file.metadata().is_ok_and(|f| same(m, f))) {
            return Ok(file);
        }
    }
    Err(io::ErrorKind::ResourceBusy.into())
}

/// Removes the trees of this user that no process uses any more: of former network namespaces, or
/// of other values of the variables.
fn sweep(base: &Path, shared_name: &str, own: &Path) {
    let Ok(all) = fs::read_dir(base) else { return };
    for entry in all.flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        let rest = name.to_str().and_then(|name| name.strip_prefix(shared_name));
        if path == own || !rest.is_some_and(|rest| rest.starts_with('-')) || ready(&path).is_err() {
            continue;
        }
        let lock = File::options().write(true).custom_flags(libc::O_NOFOLLOW).open(path.join(LOCK));
        if lock.is_ok_and(|lock| lock.try_lock().is_ok()) {
            let _ = fs::remove_dir_all(&path);
        }
    }
}

/// Removes what the tree says about devices other than these, each with its name and that of its
/// file: devices of interfaces that are gone. A tree that somebody else made is not changed.
pub(crate) fn prune(devices: &[(String, String)]) {
    if is_shared(root()) {
        prune_at(root(), devices);
    }
}

fn prune_at(root: &Path, devices: &[(String, String)]) {
    let kept = |name: &str| devices.iter().any(|(device, file)| name == device || name == file);
    for folder in ["class/infiniband", "class/infiniband_verbs", "dev/infiniband"] {
        let Ok(all) = fs::read_dir(root.join(folder)) else { continue };
        for entry in all.flatten() {
            let name = entry.file_name();
            let Some(name) = name.to_str().filter(|name| *name != "abi_version") else { continue };
            if kept(name) || name.starts_with("abi_version.") {
                continue;
            }
            let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            let remove = if is_folder { fs::remove_dir_all } else { fs::remove_file };
            let _ = remove(entry.path());
        }
    }
}

/// Creates a folder with a random name that only this user can enter.
fn fresh(base: &Path) -> Option<PathBuf> {
    let template = base.join(format!("{PREFIX}XXXXXX"));
    let mut name =
        std::ffi::CString::new(template.into_os_string().into_vec()).ok()?.into_bytes_with_nul();
    // SAFETY: the text ends with zero, and the call only changes the letters in front of it.
    let made = unsafe { libc::mkdtemp(name.as_mut_ptr().cast()) };
    name.pop();
    (!made.is_null()).then(|| OsString::from_vec(name).into())
}

/// Creates the folder if necessary, and checks that only this user (or root) can write to it, since
/// files must not be written through another user's links.
fn ready(path: &Path) -> io::Result<()> {
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
        _ => {}
    }
    // The entry itself: a link is refused.
    let found = fs::symlink_metadata(path)?;
    // SAFETY: no memory is passed; the call cannot fail.
    let own = found.uid() == unsafe { libc::getuid() } || found.uid() == 0;
    if found.is_dir() && own && found.permissions().mode() & 0o022 == 0 {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::PermissionDenied,
        "it is no folder, belongs to somebody else, or others may write to it; remove it, or name \
         another one with SYSFS_PATH",
    ))
}

/// Writes the tree; existing files are kept.
pub(crate) fn write(entry: &Entry<'_>) -> io::Result<()> {
    let root = root();
    ready(root)?;
    let class = root.join("class");
    put(&class.join("infiniband_verbs/abi_version"), ABI_VERSION)?;
    let verbs = class.join("infiniband_verbs").join(entry.uverbs);
    put(&verbs.join("ibdev"), &format!("{}\n", entry.name))?;
    put(&verbs.join("abi_version"), "1\n")?;
    let ib = class.join("infiniband").join(entry.name);
    put(&ib.join("node_type"), "7: \n")?;
    put(&ib.join("fw_ver"), &format!("{}\n", entry.fw_ver))?;
    put(&ib.join("node_desc"), &format!("software SRD on {}\n", entry.interface))?;
    put(&ib.join("node_guid"), &format!("{}\n", quads(&entry.node_guid.to_be_bytes())))?;
    let port = ib.join("ports/1");
    put(&port.join("state"), "4: ACTIVE\n")?;
    put(&port.join("link_layer"), "Unspecified\n")?;
    put(&port.join("gids/0"), &format!("{}\n", quads(&entry.gid)))?;
    put(&port.join("pkeys/0"), "0xffff\n")?;
    // Programs that look for the kernel's device file find one, but open devices by verbs.
    let file = root.join("dev/infiniband").join(entry.uverbs);
    fs::create_dir_all(file.parent().unwrap_or(root))?;
    link(Path::new("/dev/null"), &file)?;
    for device in [ib.join("device"), verbs.join("device")] {
        if fs::symlink_metadata(&device).is_ok() {
            continue;
        }
        let real = if entry.pci { pci_of(entry.interface) } else { None };
        let place = real.map_or_else(|| made_up(root), Ok)?;
        link(&place, &device)?;
    }
    Ok(())
}

/// Bytes in sysfs format for GUIDs and GIDs: groups of four digits.
fn quads(bytes: &[u8]) -> String {
    let group = |pair: &[u8]| format!("{:02x}{:02x}", pair[0], pair[1]);
    bytes.chunks_exact(2).map(group).collect::<Vec<_>>().join(":")
}

/// Replaces a file atomically unless it already has this content.
fn put(path: &Path, text: &str) -> io::Result<()> {
    if fs::read_to_string(path).is_ok_and(|old| old == text) {
        return Ok(());
    }
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let mut name = OsString::from(path);
    name.push(format!(".{}", std::process::id()));
    // May exist if a process with this id was killed.
    let _ = fs::remove_file(&name);
    fs::File::options().write(true).create_new(true).open(&name)?.write_all(text.as_bytes())?;
    fs::rename(&name, path)
}

/// Creates a link unless it exists already.
fn link(to: &Path, at: &Path) -> io::Result<()> {
    match symlink(to, at) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

/// The PCI device of the interface, else the first one with a driver.
fn pci_of(interface: &str) -> Option<PathBuf> {
    let of_interface = Path::new("/sys/class/net").join(interface).join("device");
    let real = fs::canonicalize(of_interface).ok().into_iter();
    let parents = real.flat_map(|p| p.ancestors().map(Path::to_path_buf).collect::<Vec<_>>());
    let mut all: Vec<_> = fs::read_dir(PCI_DEVICES)
        .into_iter()
        .flatten()
        .filter_map(|entry| fs::canonicalize(entry.ok()?.path()).ok())
        .collect();
    all.sort();
    parents.chain(all).find(|p| is_pci_address(p) && p.join("driver").exists())
}

/// Whether the last component of the path is a PCI address: dddd:bb:dd.f.
fn is_pci_address(path: &Path) -> bool {
    let Some(name) = path.file_name().and_then(|n| n.to_str()) else { return false };
    let parts: Vec<_> = name.split([':', '.']).map(str::len).collect();
    parts == [4, 2, 2, 1] && name.chars().all(|c| c.is_ascii_hexdigit() || ":.".contains(c))
}

/// A PCI device for a host without one, or for programs that need none.
fn made_up(root: &Path) -> io::Result<PathBuf> {
    let driver = root.join("bus/pci/drivers/srd");
    fs::create_dir_all(&driver)?;
    let device = root.join("devices").join(PCI_NONE);
    fs::create_dir_all(&device)?;
    for (name, text) in [("vendor", "0x0000\n"), ("device", "0x0000\n"), ("numa_node", "-1\n")] {
        put(&device.join(name), text)?;
    }
    link(&driver, &device.join("driver"))?;
    Ok(device)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pci_addresses_are_known_by_their_form() {
        assert!(is_pci_address(Path::new("/sys/devices/pci0000:00/0000:00:1f.3")));
        assert!(!is_pci_address(Path::new("/sys/devices/virtual/net/lo")));
        assert!(!is_pci_address(Path::new("/sys/devices/0000:00:1f")));
    }

    #[test]
    fn a_folder_that_others_could_have_filled_is_not_used() {
        let base = fresh(&std::env::temp_dir()).unwrap();
        let mode = fs::metadata(&base).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        let (open, link, new) = (base.join("open"), base.join("link"), base.join("new"));
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
        symlink(&base, &link).unwrap();
        assert!(ready(&open).is_err() && ready(&link).is_err());
        ready(&new).unwrap();
        ready(&new).unwrap();
        // A file is never written through a link.
        let victim = base.join("victim");
        fs::write(&victim, "whole").unwrap();
        symlink(&victim, new.join(format!("f.{}", std::process::id()))).unwrap();
        put(&new.join("f"), "text").unwrap();
        assert_eq!(fs::read_to_string(&victim).unwrap(), "whole");
        assert_eq!(fs::read_to_string(new.join("f")).unwrap(), "text");
        fs::remove_dir_all(&base).unwrap();
    }

    #[test]
    fn trees_that_nobody_uses_are_removed_and_so_are_devices_that_are_gone() {
        let base = fresh(&std::env::temp_dir()).unwrap();
        let [own, used, left, foreign] =
            ["t-1", "t-2", "t-3", "other-4"].map(|name| base.join(name));
        let (_own, _used) = (hold(&own).unwrap(), hold(&used).unwrap());
        // A second process with the same devices.
        let _also = hold(&used).unwrap();
        for path in [&left, &foreign] {
            drop(hold(path).unwrap());
            fs::create_dir(path.join("class")).unwrap();
        }
        sweep(&base, "t", &own);
        assert!(own.exists() && used.exists() && !left.exists() && foreign.exists());
        for file in
            ["class/infiniband/srd0", "class/infiniband/gone", "class/infiniband_verbs/uverbs1"]
        {
            put(&own.join(file).join("state"), "4\n").unwrap();
        }
        put(&own.join("class/infiniband_verbs/abi_version"), "6\n").unwrap();
        prune_at(&own, &[("srd0".into(), "uverbs0".into())]);
        let at = |name: &str| own.join("class").join(name).exists();
        assert!(at("infiniband/srd0/state") && at("infiniband_verbs/abi_version"));
        assert!(!at("infiniband/gone") && !at("infiniband_verbs/uverbs1"));
        fs::remove_dir_all(&base).unwrap();
    }

    #[test]
    fn processes_share_a_tree_if_they_have_the_same_devices() {
        let suffix = |values: [&str; 4]| {
            device_suffix(&values.map(|v| (!v.is_empty()).then(|| OsString::from(v))))
        };
        assert_eq!(suffix(["", "", "", ""]), "");
        assert_eq!(suffix(["e0", "", "", ""]), suffix(["e0", "", "", ""]));
        assert_ne!(suffix(["e0", "", "", ""]), suffix(["e1", "", "", ""]));
        assert_ne!(suffix(["e0", "", "", ""]), suffix(["", "e0", "", ""]));
        assert_ne!(suffix(["e0", "", "", ""]), suffix(["e0", "", "", "none"]));
        let own = base().join(shared_name() + &suffix(["e0", "", "", ""]));
        assert!(is_shared(&own) && is_shared(&base().join(shared_name())));
        assert!(!is_shared(Path::new("/sys")) && !is_shared(&base().join(shared_name() + "0")));
    }

    #[test]
    fn identifiers_look_as_in_sysfs() {
        assert_eq!(quads(&[0, 1, 0xab, 0xcd]), "0001:abcd");
    }
}
