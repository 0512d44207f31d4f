//! The devices that a program sees: one per network interface in use.

use crate::{
    abi::ibv_device,
    errno,
    num::{IBV_NODE_UNSPECIFIED, IBV_TRANSPORT_UNSPECIFIED, int},
    opened::Opened,
    settings::{settings, warn},
    sysfs,
};
use libc::{c_char, c_int};
use srd::{Device, InterfaceAddress, interface_addresses};
use srd_guard::guarded;
use std::{
    ffi::CStr,
    net::{IpAddr, UdpSocket},
    ptr,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

/// The firmware version that the device reports.
pub(crate) const FW_VER: &str = concat!("software-srd-", env!("CARGO_PKG_VERSION"));

/// A device as programs see it. It is never freed, since programs keep pointers to it.
#[repr(C)]
pub(crate) struct Entry {
    base: ibv_device,
    pub ip: IpAddr,
    pub interface: String,
    /// The open device and the number of contexts that share it.
    open: Mutex<Option<(Arc<Opened>, usize)>>,
}

// SAFETY: `base` is written before the entry is shared and only read afterwards.
unsafe impl Send for Entry {}
// SAFETY: as above.
unsafe impl Sync for Entry {}

impl Entry {
    /// The entry behind a program's pointer.
    ///
    /// # Safety
    /// `device` came from `ibv_get_device_list`.
    pub(crate) unsafe fn of<'a>(device: *mut ibv_device) -> &'a Self {
        // SAFETY: such pointers are to `base`, the first field of an entry that is never freed.
        unsafe { &*device.cast::<Self>() }
    }

    fn new(index: usize, ip: IpAddr, interface: String) -> Self {
        let (name, uverbs) = (device_name(index), uverbs_name(index));
        let class = sysfs::root().join("class");
        let path = |kind: &str, of: &str| class.join(kind).join(of).display().to_string();
        let base = ibv_device {
            reserved: [0; 2],
            node_type: int(IBV_NODE_UNSPECIFIED),
            transport_type: int(IBV_TRANSPORT_UNSPECIFIED),
            name: chars(&name),
            dev_name: chars(&uverbs),
            dev_path: chars(&path("infiniband_verbs", &uverbs)),
            ibdev_path: chars(&path("infiniband", &name)),
        };
        let entry = Self { base, ip, interface, open: Mutex::new(None) };
        let shown = sysfs::Entry {
            name: &name,
            uverbs: &uverbs,
            interface: &entry.interface,
            node_guid: entry.guid(),
            gid: srd::gid_from_ip(ip),
            fw_ver: FW_VER,
            pci: settings().pci,
        };
        if let Err(e) = sysfs::write(&shown) {
            let root = sysfs::root().display();
            warn(&format!(
                "cannot write the device's description under {root}: {e}; libfabric needs it"
            ));
        }
        entry
    }

    /// A device for tests, at an address of this host.
    #[cfg(test)]
    pub(crate) fn leaked(ip: IpAddr, interface: &str) -> *mut ibv_device {
        let entry = Box::leak(Box::new(Self::new(0, ip, interface.to_owned())));
        (&raw const entry.base).cast_mut()
    }

    /// The name of the device.
    fn name(&self) -> String {
        self.base.name.iter().take_while(|&&c| c != 0).map(|&c| char::from(c as u8)).collect()
    }

    /// The node GUID: derived from the address and marked as locally administered.
    pub(crate) fn guid(&self) -> u64 {
        const LOCAL: u64 = 0x0200_0000_0000_0000;
        let gid = srd::gid_from_ip(self.ip);
        let low = gid[8..].iter().fold(0, |sum, &byte| sum << 8 | u64::from(byte));
        low & !(0xff << 56) | LOCAL
    }

    /// The device, opened if necessary. Every call must be matched by an [`Entry::release`].
    pub(crate) fn acquire(&self) -> Result<Arc<Opened>, i32> {
        let mut open = self.locked();
        if let Some((opened, count)) = open.as_mut()
            && !opened.device.is_left()
        {
            *count += 1;
            return Ok(Arc::clone(opened));
        }
        let mut config = settings().device_config(self.ip);
        config.name = Some(self.name());
        let device = Device::open(config).map_err(|e| {
            warn(&format!("cannot open the device at {}: {e}", self.ip));
            e.errno()
        })?;
        crate::exit::install();
        let opened = Opened::new(device);
        *open = Some((Arc::clone(&opened), 1));
        Ok(opened)
    }

    /// Releases the device for one context.
    pub(crate) fn release(&self, opened: &Arc<Opened>) {
        let mut open = self.locked();
        let last = match open.as_mut() {
            Some((current, count)) if Arc::ptr_eq(current, opened) => {
                *count -= 1;
                *count == 0
            }
            _ => false,
        };
        if last {
            crate::exit::account(&opened.device);
            *open = None;
        }
    }

    /// The device, if it is open in this process.
    pub(crate) fn opened(&self) -> Option<Device> {
        let open = self.locked();
        open.as_ref().map(|(opened, _)| opened.device.clone()).filter(|d| !d.is_left())
    }

    fn locked(&self) -> MutexGuard<'_, Option<(Arc<Opened>, usize)>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All devices of this process.
pub(crate) fn entries() -> &'static [Entry] {
    static ENTRIES: OnceLock<Vec<Entry>> = OnceLock::new();
    ENTRIES.get_or_init(|| {
        let found = found().into_iter().enumerate();
        let entries: Vec<_> = found.map(|(i, (ip, name))| Entry::new(i, ip, name)).collect();
        let names = entries.iter().enumerate().map(|(i, e)| (e.name(), uverbs_name(i)));
        sysfs::prune(&names.collect::<Vec<_>>());
        entries
    })
}

/// The name of a device's file.
fn uverbs_name(index: usize) -> String {
    format!("uverbs{index}")
}

/// The name of a device: the setting's, else one by its number.
fn device_name(index: usize) -> String {
    let names = &settings().device_names;
    let by_number = || format!("srd{index}");
    let name = names.get(index).cloned().unwrap_or_else(by_number);
    // Two devices with one name could not be told apart.
    let before = names.iter().take(index).any(|other| *other == name);
    if before { by_number() } else { name }
}

/// Addresses to use, and the names of their interfaces.
fn found() -> Vec<(IpAddr, String)> {
    let all = interface_addresses().unwrap_or_else(|e| {
        warn(&format!("cannot list the network interfaces: {e}"));
        Vec::new()
    });
    let settings = settings();
    if settings.interfaces.is_empty() && settings.ips.is_empty() {
        return chosen(&all, default_source()).into_iter().collect();
    }
    let mut found = Vec::new();
    for name in &settings.interfaces {
        match all.iter().filter(|a| a.name == *name).min_by_key(|a| rank(a)) {
            Some(a) => found.push((a.ip, a.name.clone())),
            None => warn(&format!(
                "SRD_INTERFACE: {name} does not exist or has no address; `ip -br addr` lists them"
            )),
        }
    }
    for &ip in &settings.ips {
        match all.iter().find(|a| a.ip == ip) {
            Some(a) => found.push((ip, a.name.clone())),
            None => warn(&format!("SRD_IP: {ip} is not an address of this host")),
        }
    }
    found
}

/// IPv4 first, link-local IPv6 last.
fn rank(a: &InterfaceAddress) -> u8 {
    match a.ip {
        IpAddr::V4(_) => 0,
        IpAddr::V6(ip) if !ip.is_unicast_link_local() => 1,
        IpAddr::V6(_) => 2,
    }
}

/// The default: the interface of the default route, else the first interface that is up, else the
/// loopback interface.
fn chosen(all: &[InterfaceAddress], source: Option<IpAddr>) -> Option<(IpAddr, String)> {
    let by_route = all.iter().find(|a| Some(a.ip) == source);
    let up = all.iter().filter(|a| a.up && !a.loopback).min_by_key(|a| rank(a));
    let any = all.iter().filter(|a| a.up).min_by_key(|a| rank(a));
    by_route.or(up).or(any).map(|a| (a.ip, a.name.clone()))
}

/// The source address of packets to the default route. Sends nothing.
fn default_source() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    // An address reserved for documentation, reached by the default route.
    socket.connect("192.0.2.1:9").ok()?;
    socket.local_addr().ok().map(|a| a.ip())
}

/// Text in a field of fixed size, terminated by zero.
pub(crate) fn chars<const N: usize>(text: &str) -> [c_char; N] {
    let mut field = [0; N];
    for (to, from) in field.iter_mut().take(N - 1).zip(text.bytes()) {
        *to = from as c_char;
    }
    field
}

/// Lists the devices.
///
/// # Safety
/// As the verbs manual page requires: `count` is null or a place for the number.
#[unsafe(no_mangle)]
#[guarded]
pub unsafe extern "C" fn ibv_get_device_list(count: *mut c_int) -> *mut *mut ibv_device {
    let entries = entries();
    if !count.is_null() {
        // SAFETY: a place for the number.
        unsafe { *count = entries.len() as c_int };
    }
    let pointers = entries.iter().map(|e| (&raw const e.base).cast_mut());
    // `ibv_free_device_list` gets no length, but the C allocator knows it.
    let bytes = (entries.len() + 1) * size_of::<*mut ibv_device>();
    // SAFETY: plain allocation.
    let list = unsafe { libc::malloc(bytes) }.cast::<*mut ibv_device>();
    if list.is_null() {
        return errno::null(libc::ENOMEM);
    }
    for (i, pointer) in pointers.chain([ptr::null_mut()]).enumerate() {
        // SAFETY: the allocation has one place per entry and one for the end.
        unsafe { list.add(i).write(pointer) };
    }
    list
}

/// Frees the list, not the devices.
///
/// # Safety
/// As the verbs manual page requires: `list` came from [`ibv_get_device_list`].
#[unsafe(no_mangle)]
#[guarded]
pub unsafe extern "C" fn ibv_free_device_list(list: *mut *mut ibv_device) {
    // SAFETY: it came from malloc.
    unsafe { libc::free(list.cast()) };
}

/// # Safety
/// As the verbs manual page requires: `device` came from the list.
#[unsafe(no_mangle)]
#[guarded]
pub unsafe extern "C" fn ibv_get_device_name(device: *mut ibv_device) -> *const c_char {
    // SAFETY: the entry is never freed.
    unsafe { (*device).name.as_ptr() }
}

/// Network byte order.
///
/// # Safety
/// As the verbs manual page requires: `device` came from the list.
#[unsafe(no_mangle)]
#[guarded]
pub unsafe extern "C" fn ibv_get_device_guid(device: *mut ibv_device) -> u64 {
    // SAFETY: it came from the list.
    unsafe { Entry::of(device) }.guid().to_be()
}

/// # Safety
/// As the verbs manual page requires: `device` came from the list.
#[unsafe(no_mangle)]
#[guarded]
pub unsafe extern "C" fn ibv_get_device_index(device: *mut ibv_device) -> c_int {
    let index = entries().iter().position(|e| ptr::eq(&raw const e.base, device));
    index.map_or(-1, |i| i as c_int)
}

/// Contents of a file of the tree, without the final newline.
///
/// # Safety
/// As the verbs manual page requires: texts end with zero, `buf` has `size` bytes.
#[unsafe(no_mangle)]
#[guarded(-1)]
pub unsafe extern "C" fn ibv_read_sysfs_file(
    dir: *const c_char,
    file: *const c_char,
    buf: *mut c_char,
    size: usize,
) -> c_int {
    // SAFETY: both end with zero.
    let (dir, file) = unsafe { (CStr::from_ptr(dir), CStr::from_ptr(file)) };
    let path = std::path::Path::new(&*dir.to_string_lossy()).join(&*file.to_string_lossy());
    let Ok(text) = std::fs::read(path) else { return -1 };
    let text = text.strip_suffix(b"\n").unwrap_or(&text);
    let n = text.len().min(size.saturating_sub(1));
    if size > 0 {
        // SAFETY: n + 1 bytes fit.
        unsafe {
            ptr::copy_nonoverlapping(text.as_ptr(), buf.cast(), n);
            buf.add(n).write(0);
        }
    }
    n as c_int
}

/// Root of the tree that describes the devices.
#[unsafe(no_mangle)]
#[guarded]
pub extern "C" fn ibv_get_sysfs_path() -> *const c_char {
    static PATH: OnceLock<std::ffi::CString> = OnceLock::new();
    let text = || std::ffi::CString::new(sysfs::root().display().to_string()).unwrap_or_default();
    PATH.get_or_init(text).as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(name: &str, ip: &str, up: bool, loopback: bool) -> InterfaceAddress {
        let mut a = interface_addresses().unwrap().swap_remove(0);
        (a.name, a.ip, a.up, a.loopback) = (name.into(), ip.parse().unwrap(), up, loopback);
        a
    }

    #[test]
    fn the_route_decides_then_what_is_up() {
        let all = [
            at("lo", "127.0.0.1", true, true),
            at("eth0", "fe80::1", true, false),
            at("eth1", "10.0.0.1", true, false),
            at("eth2", "10.0.1.1", false, false),
        ];
        let name = |all: &[InterfaceAddress], route: Option<&str>| {
            chosen(all, route.map(|r| r.parse().unwrap())).map(|(_, n)| n)
        };
        assert_eq!(name(&all, Some("fe80::1")).as_deref(), Some("eth0"));
        assert_eq!(name(&all, None).as_deref(), Some("eth1"));
        assert_eq!(name(&all[..1], None).as_deref(), Some("lo"));
        assert_eq!(name(&[], None), None);
    }

    #[test]
    fn fixed_fields_end_with_zero() {
        assert_eq!(chars::<4>("abcdef"), [b'a', b'b', b'c', 0].map(|b| b as c_char));
        assert_eq!(chars::<4>("a"), [b'a' as c_char, 0, 0, 0]);
    }
}
