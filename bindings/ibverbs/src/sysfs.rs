//! A folder that looks like the part of sysfs which programs read about a device.
//!
//! libfabric wants the version of the verbs interface, and a PCI address with a driver; hwloc (in
//! MPI libraries) must know that PCI device, so a real one of this host is named where there is
//! one: that of the interface, else any with a driver.

use std::{
    ffi::OsString,
    fs, io,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::{Path, PathBuf},
    sync::OnceLock,
};

/// Version of the interface between verbs and the kernel that the tree names.
const ABI_VERSION: &str = "6\n";
const PCI_DEVICES: &str = "/sys/bus/pci/devices";
/// Name of the PCI device where the host shows none.
const PCI_NONE: &str = "0000:00:00.0";

/// Environment variable by which verbs programs are told of another sysfs.
pub const SYSFS_PATH: &str = "SYSFS_PATH";

/// A device as the tree shows it.
pub(crate) struct Entry<'a> {
    pub name: &'a str,
    pub uverbs: &'a str,
    pub interface: &'a str,
    pub node_guid: u64,
    pub gid: [u8; 16],
    pub fw_ver: &'a str,
}

/// Root of the tree. A variable that is set already is respected: the caller has a tree.
pub(crate) fn root() -> &'static Path {
    static ROOT: OnceLock<PathBuf> = OnceLock::new();
    ROOT.get_or_init(|| match std::env::var_os(SYSFS_PATH) {
        Some(path) if !path.is_empty() => PathBuf::from(path),
        _ => own_root(),
    })
}

/// A folder of this user's that nobody else can write to.
fn own_root() -> PathBuf {
    // SAFETY: no memory is passed; the call cannot fail.
    let uid = unsafe { libc::getuid() };
    let shared = Path::new("/dev/shm");
    let base = if shared.is_dir() { shared.to_path_buf() } else { std::env::temp_dir() };
    let path = base.join(format!("srd-verbs-{uid}"));
    let _ = fs::create_dir(&path);
    let mine = fs::symlink_metadata(&path)
        .is_ok_and(|m| m.is_dir() && m.uid() == uid && m.permissions().mode() & 0o022 == 0);
    if mine { path } else { base.join(format!("srd-verbs-{uid}-{}", std::process::id())) }
}

/// Writes the tree. What is there already is left as it is.
pub(crate) fn write(entry: &Entry<'_>) -> io::Result<()> {
    let root = root();
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
    for device in [ib.join("device"), verbs.join("device")] {
        if fs::symlink_metadata(&device).is_ok() {
            continue;
        }
        match pci_of(entry.interface) {
            Some(real) => link(&real, &device)?,
            None => link(&made_up(root)?, &device)?,
        }
    }
    Ok(())
}

/// Bytes as sysfs shows GUIDs and GIDs: groups of four digits.
fn quads(bytes: &[u8]) -> String {
    let group = |pair: &[u8]| format!("{:02x}{:02x}", pair[0], pair[1]);
    bytes.chunks_exact(2).map(group).collect::<Vec<_>>().join(":")
}

/// Writes a file unless it holds that already; readers see the old or the new one, whole.
fn put(path: &Path, text: &str) -> io::Result<()> {
    if fs::read_to_string(path).is_ok_and(|old| old == text) {
        return Ok(());
    }
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let mut name = OsString::from(path);
    name.push(format!(".{}", std::process::id()));
    fs::write(&name, text)?;
    fs::rename(&name, path)
}

/// Links, unless another process was quicker.
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

/// Whether the last part of the path is a PCI address: dddd:bb:dd.f.
fn is_pci_address(path: &Path) -> bool {
    let Some(name) = path.file_name().and_then(|n| n.to_str()) else { return false };
    let parts: Vec<_> = name.split([':', '.']).map(str::len).collect();
    parts == [4, 2, 2, 1] && name.chars().all(|c| c.is_ascii_hexdigit() || ":.".contains(c))
}

/// A PCI device for a host that shows none.
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
    fn identifiers_look_as_in_sysfs() {
        assert_eq!(quads(&[0, 1, 0xab, 0xcd]), "0001:abcd");
    }
}
