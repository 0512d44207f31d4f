//! Devices, protection domains, address handles, events.

use crate::{
    fail::{Fail, run},
    handle::{at, give, put, take, text},
};
use srd::{AsyncEvent, Bind, DeviceConfig, PathPolicy, Progress, RatePolicy};
use std::{
    ffi::{c_char, c_int},
    net::IpAddr,
    os::fd::AsRawFd,
    time::Duration,
};

/// A device: one engine with its UDP sockets.
pub struct srd_device(pub(crate) srd::Device);

/// A protection domain.
pub struct srd_pd(pub(crate) srd::ProtectionDomain);

/// An address handle: one remote host.
pub struct srd_ah(pub(crate) srd::AddressHandle);

/// How a path is chosen for each packet or burst.
#[repr(C)]
pub enum srd_path_policy {
    /// Paths that came back clean first, then by penalties.
    Srd = 0,
    /// Round robin.
    Oblivious = 1,
    /// One path per peer.
    Ecmp = 2,
    /// The better of two drawn at random.
    RttP2c = 3,
}

/// How the rate is set.
#[repr(C)]
pub enum srd_rate_policy {
    /// By delivery rate and delay.
    Srd = 0,
    /// Constant.
    Fixed = 1,
}

/// Who drives the device.
#[repr(C)]
pub enum srd_progress {
    /// The caller: by polls, waits and srd_device_progress.
    Caller = 0,
    /// A thread of the device.
    Thread = 1,
}

/// How to open a device; srd_device_config_init fills in the defaults.
#[repr(C)]
pub struct srd_device_config {
    /// Local IP address or name of a network interface; NULL = 127.0.0.1.
    pub bind: *const c_char,
    /// Engine slot 0 to 255, or -1 = the first that is free.
    pub slot: i32,
    /// First of 256 UDP ports, the same on all hosts; 0 = the default.
    pub port_base: u16,
    /// Largest message in bytes; 0 = what the link carries.
    pub mtu: u16,
    /// Paths per peer: a power of two up to 256; 0 = 64.
    pub paths: u16,
    /// A srd_path_policy.
    pub path_policy: u8,
    /// A srd_rate_policy.
    pub rate_policy: u8,
    /// A srd_progress.
    pub progress: u8,
    /// With a thread: microseconds that it looks for work before it sleeps.
    pub spin_us: u32,
}

/// What a device is and can do; names are EFA's.
#[repr(C)]
pub struct srd_device_attr {
    /// Deepest send queue.
    pub max_sq_wr: u32,
    /// Deepest receive queue.
    pub max_rq_wr: u32,
    /// Scatter/gather entries of a send request.
    pub max_sq_sge: u32,
    /// Scatter/gather entries of a receive.
    pub max_rq_sge: u32,
    /// Most inline bytes.
    pub inline_buf_size_ex: u32,
    /// Largest RDMA operation in bytes.
    pub max_rdma_size: u32,
    /// Abilities, bits as in efadv.
    pub device_caps: u32,
    /// Queue pairs.
    pub max_qp: u32,
    /// Completion queues.
    pub max_cq: u32,
    /// Slots of a completion queue.
    pub max_cqe: u32,
    /// Largest message in bytes.
    pub max_msg_sz: u32,
    /// UDP port.
    pub udp_port: u16,
    /// Paths per peer.
    pub paths: u16,
    /// Local address as a GID: IPv6, or IPv4 mapped.
    pub gid: [u8; 16],
}

/// Kinds of asynchronous events.
#[repr(C)]
pub enum srd_event_type {
    /// The peer answered before and is silent now.
    PeerUnresponsive = 1,
    /// The peer never answered.
    PeerUnreachable = 2,
    /// The peer lost its state.
    PeerReset = 3,
    /// A path was taken out of use.
    PathRetired = 4,
    /// A path is in use again.
    PathReturned = 5,
    /// A queue pair went to the error state by itself.
    QpFatal = 6,
    /// A queue pair in SQD has no request left.
    SqDrained = 7,
    /// The sockets are broken.
    DatapathError = 8,
    /// A defect of the library: all requests ended with an error, and nothing works any more.
    DeviceFatal = 9,
    /// A request to the device's own address was refused by the device itself: who meant another
    /// process has the address of one that has gone.
    PeerIsSelf = 10,
    /// Packets to an address have another size from now on: the way there, or the local link,
    /// carries only smaller ones, or larger ones again. RDMA requests go on with packets of that
    /// size; longer messages end with status 6.
    PathMtu = 11,
    /// The peer answered that the two sides do not agree on sealing; `error` is its code (5: it
    /// accepts sealed contexts only, 6: it has no key file, 7: the keys differ). Anybody can send
    /// such an answer.
    SealRefused = 12,
    /// This device refused a peer for that reason; `error` is the code that the peer was told.
    SealDenied = 13,
    /// The key file has changed and cannot be used; the keys of its last good version stay.
    KeyFileRefused = 14,
    /// The context to this peer was ended because its key left the key file and requests that had
    /// begun did not end within 10 seconds; outstanding requests ended with status 8.
    KeyRemoved = 15,
}

/// An asynchronous event.
#[repr(C)]
pub struct srd_event {
    /// A srd_event_type.
    pub event_type: u32,
    /// Peer, path or path MTU: the address as a GID.
    pub gid: [u8; 16],
    /// Peer: its UDP port.
    pub port: u16,
    /// Queue pair events: its number.
    pub qpn: u16,
    /// Path events: the path.
    pub path: u8,
    /// Path MTU: bytes of payload of one packet to the address at most.
    pub payload_max: u16,
    /// Datapath error: the errno. Seal refused or denied: the code.
    pub error: i32,
}

/// The most used counters; names are EFA's port statistics.
#[repr(C)]
#[derive(Default)]
#[allow(missing_docs, reason = "the names are EFA's")]
pub struct srd_counters {
    pub tx_bytes: u64,
    pub tx_pkts: u64,
    pub rx_bytes: u64,
    pub rx_pkts: u64,
    pub rx_drops: u64,
    pub send_bytes: u64,
    pub send_wrs: u64,
    pub recv_bytes: u64,
    pub recv_wrs: u64,
    pub rdma_read_wrs: u64,
    pub rdma_read_bytes: u64,
    pub rdma_read_wr_err: u64,
    pub rdma_read_resp_bytes: u64,
    pub rdma_write_wrs: u64,
    pub rdma_write_bytes: u64,
    pub rdma_write_wr_err: u64,
    pub rdma_write_recv_bytes: u64,
    pub retrans_bytes: u64,
    pub retrans_pkts: u64,
    pub retrans_timeout_events: u64,
    pub unresponsive_remote_events: u64,
    pub impaired_remote_conn_events: u64,
    pub qkey_viol: u64,
    pub rnr_events: u64,
    pub dup_pkts: u64,
    pub paths_retired: u64,
    /// Datagrams that were no packets.
    pub malformed_pkts: u64,
}

/// Fills in the defaults: 127.0.0.1, first free slot, 64 paths, driven by a thread that sleeps when
/// idle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srd_device_config_init(config: *mut srd_device_config) -> c_int {
    run(|| {
        let defaults = srd_device_config {
            bind: std::ptr::null(),
            slot: -1,
            port_base: 0,
            mtu: 0,
            paths: 0,
            path_policy: srd_path_policy::Srd as u8,
            rate_policy: srd_rate_policy::Srd as u8,
            progress: srd_progress::Thread as u8,
            spin_us: 0,
        };
        // SAFETY: the contract of the header.
        unsafe { put(config, defaults) }?;
        Ok(0)
    })
}

/// # Safety
/// `c.bind` is null or a string.
unsafe fn config_from(c: &srd_device_config) -> Result<DeviceConfig, Fail> {
    let mut config = DeviceConfig::loopback();
    // SAFETY: promised by the caller.
    if let Some(bind) = unsafe { text(c.bind) }? {
        config.bind = match bind.parse::<IpAddr>() {
            Ok(ip) => Bind::Ip(ip),
            Err(_) => Bind::Interface(bind.to_owned()),
        };
    }
    config.slot = match c.slot {
        -1 => None,
        slot => Some(u8::try_from(slot).map_err(|_| Fail::invalid("slot must be -1 to 255"))?),
    };
    if c.port_base != 0 {
        config.port_base = c.port_base;
    }
    if c.paths != 0 {
        config.paths = c.paths;
    }
    config.mtu = (c.mtu != 0).then_some(c.mtu);
    config.path_policy = match c.path_policy {
        0 => PathPolicy::Srd,
        1 => PathPolicy::Oblivious,
        2 => PathPolicy::Ecmp,
        3 => PathPolicy::RttP2c,
        _ => return Err(Fail::invalid("unknown path_policy")),
    };
    config.rate_policy = match c.rate_policy {
        0 => RatePolicy::Srd,
        1 => RatePolicy::Fixed,
        _ => return Err(Fail::invalid("unknown rate_policy")),
    };
    config.progress = match c.progress {
        0 => Progress::Caller,
        1 => Progress::Thread { spin: Duration::from_micros(c.spin_us.into()) },
        _ => return Err(Fail::invalid("unknown progress mode")),
    };
    Ok(config)
}

/// Opens a device. `config` may be NULL for the defaults.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srd_device_open(
    config: *const srd_device_config,
    device: *mut *mut srd_device,
) -> c_int {
    run(|| {
        // SAFETY: the contract of the header.
        let config = match unsafe { config.as_ref() } {
            None => DeviceConfig::loopback(),
            // SAFETY: as above.
            Some(c) => unsafe { config_from(c) }?,
        };
        srd::log_from_env().map_err(|text| Fail::invalid(&text))?;
        let open = srd::Device::open(config)?;
        // SAFETY: as above.
        unsafe { give(device, srd_device(open)) }?;
        Ok(0)
    })
}

/// Closes a device; its peers are told. -EBUSY while objects of it exist.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srd_device_close(device: *mut srd_device) -> c_int {
    run(|| {
        // SAFETY: the contract of the header.
        drop(unsafe { take(device, "the device", |d| d.0.in_use()) }?);
        Ok(0)
    })
}

/// What the device is and can do.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srd_device_query(
    device: *const srd_device,
    attr: *mut srd_device_attr,
) -> c_int {
    run(|| {
        // SAFETY: the contract of the header.
        let device = &unsafe { at(device, "the device") }?.0;
        let (a, p) = (device.attr(), device.port());
        let value = srd_device_attr {
            max_sq_wr: a.max_sq_wr,
            max_rq_wr: a.max_rq_wr,
            max_sq_sge: a.max_sq_sge,
            max_rq_sge: a.max_rq_sge,
            inline_buf_size_ex: a.inline_buf_size_ex,
            max_rdma_size: a.max_rdma_size,
            device_caps: a.device_caps,
            max_qp: a.max_qp,
            max_cq: a.max_cq,
            max_cqe: a.max_cqe,
            max_msg_sz: p.max_msg_sz,
            udp_port: p.udp_port,
            paths: p.paths,
            gid: p.gid,
        };
        // SAFETY: as above.
        unsafe { put(attr, value) }?;
        Ok(0)
    })
}

/// Copies the warning number `index` about this host into `buffer`, cut to `len` bytes with the
/// nul. Returns its whole length, or -ENOENT when there is no such warning.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srd_device_warning(
    device: *const srd_device,
    index: u32,
    buffer: *mut c_char,
    len: usize,
) -> c_int {
    run(|| {
        // SAFETY: the contract of the header.
        let device = &unsafe { at(device, "the device") }?.0;
        let none = || Fail::new(libc::ENOENT, "there are not that many warnings");
        let warning = device.warnings().get(index as usize).ok_or_else(none)?;
        if !buffer.is_null() && len > 0 {
            let n = warning.len().min(len - 1);
            // SAFETY: the buffer has `len` bytes, of which n + 1 are written.
            unsafe {
                buffer.cast::<u8>().copy_from_nonoverlapping(warning.as_ptr(), n);
                buffer.add(n).write(0);
            }
        }
        Ok(warning.len() as c_int)
    })
}

/// One turn of the engine. Returns 1 if anything was done, else 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srd_device_progress(device: *const srd_device) -> c_int {
    // SAFETY: the contract of the header.
    run(|| Ok(c_int::from(unsafe { at(device, "the device") }?.0.progress()?)))
}

/// Sleeps until there may be something to do, `timeout_us` microseconds at most (negative = no
/// limit), then takes a turn. Returns 1 if anything was done, else 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srd_device_wait(device: *const srd_device, timeout_us: i64) -> c_int {
    run(|| {
        let timeout = u64::try_from(timeout_us).ok().map(Duration::from_micros);
        // SAFETY: the contract of the header.
        Ok(c_int::from(unsafe { at(device, "the device") }?.0.wait(timeout)?))
    })
}

/// Reads the counters.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srd_device_counters(
    device: *const srd_device,
    counters: *mut srd_counters,
) -> c_int {
    run(|| {
        // SAFETY: the contract of the header.
        let all = unsafe { at(device, "the device") }?.0.counters()?;
        let c = &all.engine;
        let value = srd_counters {
            tx_bytes: c.tx_bytes,
            tx_pkts: c.tx_pkts,
            rx_bytes: c.rx_bytes,
            rx_pkts: c.rx_pkts,
            rx_drops: c.rx_drops,
            send_bytes: c.send_bytes,
            send_wrs: c.send_wrs,
            recv_bytes: c.recv_bytes,
            recv_wrs: c.recv_wrs,
            rdma_read_wrs: c.rdma_read_wrs,
            rdma_read_bytes: c.rdma_read_bytes,
            rdma_read_wr_err: c.rdma_read_wr_err,
            rdma_read_resp_bytes: c.rdma_read_resp_bytes,
            rdma_write_wrs: c.rdma_write_wrs,
            rdma_write_bytes: c.rdma_write_bytes,
            rdma_write_wr_err: c.rdma_write_wr_err,
            rdma_write_recv_bytes: c.rdma_write_recv_bytes,
            retrans_bytes: c.retrans_bytes,
            retrans_pkts: c.retrans_pkts,
            retrans_timeout_events: c.retrans_timeout_events,
            unresponsive_remote_events: c.unresponsive_remote_events,
            impaired_remote_conn_events: c.impaired_remote_conn_events,
            qkey_viol: c.qkey_viol,
            rnr_events: c.rnr_events,
            dup_pkts: c.dup_pkts,
            paths_retired: c.paths_retired,
            malformed_pkts: all.parse_errors.iter().sum(),
        };
        // SAFETY: as above.
        unsafe { put(counters, value) }?;
        Ok(0)
    })
}

/// A descriptor that is readable while asynchronous events wait. It belongs to the device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srd_event_fd(device: *const srd_device) -> c_int {
    // SAFETY: the contract of the header.
    run(|| Ok(unsafe { at(device, "the device") }?.0.event_fd().as_raw_fd()))
}

/// Takes the oldest asynchronous event. Returns 1, or 0 when there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srd_event_get(device: *const srd_device, event: *mut srd_event) -> c_int {
    run(|| {
        // SAFETY: the contract of the header.
        let device = &unsafe { at(device, "the device") }?.0;
        if event.is_null() {
            return Err(Fail::invalid("the place for the event is NULL"));
        }
        let Some(e) = device.event_get() else { return Ok(0) };
        // SAFETY: as above.
        unsafe { put(event, event_to_c(&e)) }?;
        Ok(1)
    })
}

fn event_to_c(e: &AsyncEvent) -> srd_event {
    let none = srd_event {
        event_type: 0,
        gid: [0; 16],
        port: 0,
        qpn: 0,
        path: 0,
        payload_max: 0,
        error: 0,
    };
    let peer = |kind: srd_event_type, p: &srd::Endpoint| srd_event {
        event_type: kind as u32,
        gid: srd::gid_from_ip(p.ip),
        port: p.port,
        ..none
    };
    let qp = |kind: srd_event_type, q: &srd::Qpn| srd_event {
        event_type: kind as u32,
        qpn: q.0,
        ..none
    };
    match e {
        AsyncEvent::PeerUnresponsive(p) => peer(srd_event_type::PeerUnresponsive, p),
        AsyncEvent::PeerUnreachable(p) => peer(srd_event_type::PeerUnreachable, p),
        AsyncEvent::PeerReset(p) => peer(srd_event_type::PeerReset, p),
        AsyncEvent::PeerIsSelf(p) => peer(srd_event_type::PeerIsSelf, p),
        AsyncEvent::SealRefused { peer: p, code } => {
            srd_event { error: *code as i32, ..peer(srd_event_type::SealRefused, p) }
        }
        AsyncEvent::SealDenied { peer: p, code } => {
            srd_event { error: *code as i32, ..peer(srd_event_type::SealDenied, p) }
        }
        AsyncEvent::KeyRemoved(p) => peer(srd_event_type::KeyRemoved, p),
        AsyncEvent::KeyFileRefused => {
            srd_event { event_type: srd_event_type::KeyFileRefused as u32, ..none }
        }
        AsyncEvent::PathChanged { ip, path, retired } => {
            let kind =
                if *retired { srd_event_type::PathRetired } else { srd_event_type::PathReturned };
            let gid = srd::gid_from_ip(*ip);
            srd_event { event_type: kind as u32, gid, path: *path, ..none }
        }
        AsyncEvent::PathMtu { ip, payload_max } => srd_event {
            event_type: srd_event_type::PathMtu as u32,
            gid: srd::gid_from_ip(*ip),
            payload_max: *payload_max,
            ..none
        },
        AsyncEvent::QpFatal(q) => qp(srd_event_type::QpFatal, q),
        AsyncEvent::SqDrained(q) => qp(srd_event_type::SqDrained, q),
        AsyncEvent::DeviceFatal => {
            srd_event { event_type: srd_event_type::DeviceFatal as u32, ..none }
        }
        AsyncEvent::DatapathError(error) => {
            srd_event { event_type: srd_event_type::DatapathError as u32, error: *error, ..none }
        }
        _ => none,
    }
}

/// Makes a protection domain.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srd_pd_create(device: *const srd_device, pd: *mut *mut srd_pd) -> c_int {
    run(|| {
        // SAFETY: the contract of the header.
        let new = unsafe { at(device, "the device") }?.0.pd_create()?;
        // SAFETY: as above.
        unsafe { give(pd, srd_pd(new)) }?;
        Ok(0)
    })
}

/// Takes a protection domain apart. -EBUSY while something made from it exists.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srd_pd_destroy(pd: *mut srd_pd) -> c_int {
    run(|| {
        // SAFETY: the contract of the header.
        drop(unsafe { take(pd, "the protection domain", |p| p.0.in_use()) }?);
        Ok(0)
    })
}

/// Makes an address handle for the host with this IP address (text).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srd_ah_create(
    pd: *const srd_pd,
    address: *const c_char,
    ah: *mut *mut srd_ah,
) -> c_int {
    run(|| {
        // SAFETY: the contract of the header.
        let (pd, address) = unsafe { (at(pd, "the protection domain")?, text(address)?) };
        let bad = || Fail::invalid("the address must be the text of an IPv4 or IPv6 address");
        let ip = address.and_then(|a| a.parse().ok()).ok_or_else(bad)?;
        // SAFETY: as above.
        unsafe { give(ah, srd_ah(pd.0.ah_create(ip)?)) }?;
        Ok(0)
    })
}

/// Makes an address handle for the host with this GID (16 bytes).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srd_ah_create_gid(
    pd: *const srd_pd,
    gid: *const u8,
    ah: *mut *mut srd_ah,
) -> c_int {
    run(|| {
        // SAFETY: the contract of the header.
        let pd = unsafe { at(pd, "the protection domain") }?;
        if gid.is_null() {
            return Err(Fail::invalid("the GID is NULL"));
        }
        // SAFETY: a GID has 16 bytes.
        let gid = unsafe { gid.cast::<[u8; 16]>().read_unaligned() };
        let new = pd.0.ah_create(srd::ip_from_gid(gid))?;
        // SAFETY: as above.
        unsafe { give(ah, srd_ah(new)) }?;
        Ok(0)
    })
}

/// Number of an address handle, as completions name senders.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srd_ah_number(ah: *const srd_ah) -> c_int {
    // SAFETY: the contract of the header.
    run(|| Ok(c_int::from(unsafe { at(ah, "the address handle") }?.0.id().0)))
}

/// Takes an address handle apart. Outstanding requests through it end with status 4.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srd_ah_destroy(ah: *mut srd_ah) -> c_int {
    run(|| {
        // SAFETY: the contract of the header.
        drop(unsafe { take(ah, "the address handle", |_| false) }?);
        Ok(0)
    })
}
