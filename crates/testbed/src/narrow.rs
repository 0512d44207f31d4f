//! The check `narrow`: ways whose MTU falls under traffic, and messages that only claim so.
//!
//! Two devices of this process, in the namespaces of two hosts, write to and read from each other
//! while the cable behind the last router gets a smaller MTU, with and without the router's ICMP
//! messages; while somebody forges such messages; and while the sender's own interface shrinks.

use crate::{
    error::{NetError, Result},
    fabric::Fabric,
    spec::{FabricSpec, Node},
};
use rustix::net::{
    AddressFamily, SendFlags, SocketAddrAny, SocketFlags, SocketType, ipproto, sendto, socket_with,
};
use srd::{
    Access, AddressHandle, AsyncEvent, CompletionQueue, Device, DeviceConfig, MemoryRegion, QpInit,
    QueuePair, RecvWr, SendWr, Status, WorkCompletion,
};
use std::{
    fs,
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant},
};

const QKEY: u32 = 0x6E61_7277;
/// Bytes of each write and read: some 10 ms at a host's rate.
const LEN: usize = 256 << 10;
/// Until everything must have happened; what is waited for takes a second or two.
const PATIENCE: Duration = Duration::from_secs(20);
const HOSTS: [Node; 2] = [Node::Host(0, 0), Node::Host(1, 0)];

/// A device with one of everything.
struct End {
    // Freed in this order.
    qp: QueuePair,
    own: MemoryRegion,
    there: MemoryRegion,
    cq: CompletionQueue,
    device: Device,
    /// Sizes that were told.
    told: Vec<u16>,
}

impl End {
    fn open(fabric: &Fabric, node: Node, ip: IpAddr) -> Result<Self> {
        // The device's thread begins in the namespace of the thread that opens it.
        let device = fabric.ns(node)?.inside(|| Ok(Device::open(DeviceConfig::ip(ip))?))?;
        let (pd, cq) = (device.pd_create()?, device.cq_create(64)?);
        let qp = pd.qp_create(&QpInit::srd(&cq, &cq))?;
        qp.activate(QKEY)?;
        let rights = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
        let (own, there) = (pd.mr_allocate(LEN, rights)?, pd.mr_allocate(LEN, rights)?);
        Ok(Self { qp, own, there, cq, device, told: Vec::new() })
    }

    fn done(&self) -> Result<WorkCompletion> {
        self.cq.wait(PATIENCE)?.ok_or_else(|| NetError::new("a request does not end"))
    }

    fn events_take(&mut self) {
        while let Some(event) = self.device.event_get() {
            if let AsyncEvent::PathMtu { payload_max, .. } = event {
                self.told.push(payload_max);
            }
        }
    }
}

/// Both ends, and what passes between them.
struct Ends {
    a: End,
    b: End,
    to_b: AddressHandle,
    /// Who serves RDMA knows whom.
    _to_a: AddressHandle,
    round: u8,
}

impl Ends {
    fn open(fabric: &Fabric, v6: bool) -> Result<(Self, [IpAddr; 2])> {
        let spec = fabric.spec();
        let ips = [0, 1].map(|leaf| if v6 { spec.ip6(leaf, 0) } else { spec.ip(leaf, 0) });
        let a = End::open(fabric, HOSTS[0], ips[0])?;
        let b = End::open(fabric, HOSTS[1], ips[1])?;
        let (to_b, _to_a) = (a.own.pd().ah_create(ips[1])?, b.own.pd().ah_create(ips[0])?);
        let mut ends = Self { a, b, to_b, _to_a, round: 0 };
        for _ in 0..5 {
            ends.exchange()?;
        }
        Ok((ends, ips))
    }

    /// One write and one read, whole and unchanged.
    fn exchange(&mut self) -> Result {
        self.round = self.round.wrapping_add(1);
        let (a, b, qpn) = (&self.a, &self.b, self.b.qp.qpn());
        a.own.write_at(0, &vec![self.round; LEN])?;
        let write = SendWr::write(1, &self.to_b, qpn, QKEY).remote(b.there.addr(), b.there.rkey());
        a.qp.post_send(&write.sges(&[a.own.sge(0, LEN as u32)]))?;
        let read = SendWr::read(2, &self.to_b, qpn, QKEY).remote(b.own.addr(), b.own.rkey());
        b.own.write_at(0, &vec![!self.round; LEN])?;
        a.qp.post_send(&read.sges(&[a.there.sge(0, LEN as u32)]))?;
        for _ in 0..2 {
            let wc = a.done()?;
            if wc.status != Status::Ok {
                return Err(NetError::new(format!("a request ended with {:?}", wc.status)));
            }
        }
        let whole =
            |m: &MemoryRegion, byte| m.to_vec(0, LEN).map(|bytes| bytes.iter().all(|&b| b == byte));
        if !whole(&b.there, self.round)? || !whole(&a.there, !self.round)? {
            return Err(NetError::new("what was written or read is not what was sent"));
        }
        self.a.events_take();
        self.b.events_take();
        Ok(())
    }

    /// Goes on until both ends have told that size, each as its first.
    fn until_told(&mut self, size: u16) -> Result<f64> {
        let began = Instant::now();
        while self.a.told.is_empty() || self.b.told.is_empty() {
            if began.elapsed() > PATIENCE {
                return Err(NetError::new("no end reported that only smaller packets pass"));
            }
            self.exchange()?;
        }
        if (self.a.told[0], self.b.told[0]) != (size, size) {
            let (a, b) = (&self.a.told, &self.b.told);
            return Err(NetError::new(format!("told {a:?} and {b:?}, not {size}")));
        }
        Ok(began.elapsed().as_secs_f64())
    }

    /// How a message of `len` bytes ends.
    fn message(&self, len: usize) -> Result<Status> {
        let (a, b) = (&self.a, &self.b);
        b.qp.post_recv(&RecvWr { wr_id: 9, sges: &[b.there.sge(0, len as u32)] })?;
        let send = SendWr::send(3, &self.to_b, b.qp.qpn(), QKEY);
        a.qp.post_send(&send.sges(&[a.own.sge(0, len as u32)]))?;
        Ok(a.done()?.status)
    }

    /// A message of one packet of the device is too long, one that fits what passes is not.
    fn messages_fit(&self, size: u16) -> Result {
        let (long, short) = (self.message(self.a.device.mtu())?, self.message(size.into())?);
        if (long, short) != (Status::LocalBadLength, Status::Ok) {
            return Err(NetError::new(format!(
                "a message of full size ended with {long:?}, one of {size} bytes with {short:?}"
            )));
        }
        Ok(())
    }
}

fn mtu_set(fabric: &Fabric, node: Node, dev: &str, mtu: u16) -> Result {
    let batch = format!("link set dev {dev} mtu {mtu}\n");
    fabric.ns(node)?.run("ip", &["-batch", "-"], &batch).map(|_| ())
}

/// ICMP over IPv4 is lost where it would come in.
fn icmp_block(fabric: &Fabric) -> Result {
    // load byte 23 (the protocol); if it is 1 (ICMP): return TC_ACT_SHOT; else TC_ACT_OK.
    let code = "4,48 0 0 23,21 0 1 1,6 0 0 2,6 0 0 0";
    let batch = format!(
        "qdisc add dev e0 clsact\n\
         filter add dev e0 ingress protocol ip prio 1 bpf da bytecode '{code}'\n"
    );
    for node in HOSTS {
        fabric.ns(node)?.run("tc", &["-batch", "-"], &batch)?;
    }
    Ok(())
}

/// The cable behind the last router shrinks, to a size that may not be in the table of sizes asked
/// for: on the way to the host the router says so, if it may;
/// on the way back nobody does.
fn router(mtu: u16, size: u16, v6: bool, icmp: bool) -> Result<String> {
    let fabric = fabric()?;
    if !icmp {
        icmp_block(&fabric)?;
    }
    let (mut ends, _) = Ends::open(&fabric, v6)?;
    mtu_set(&fabric, Node::Leaf(1), "dn0", mtu)?;
    let seconds = ends.until_told(size)?;
    ends.messages_fit(size)?;
    let (family, icmp) = (if v6 { "IPv6" } else { "IPv4" }, if icmp { "" } else { ", no ICMP" });
    Ok(format!("{family} hop of {mtu}{icmp}: {size} bytes told after {seconds:.1} s"))
}

/// The sender's own interface shrinks (EMSGSIZE).
fn local() -> Result<String> {
    let fabric = fabric()?;
    let (mut ends, _) = Ends::open(&fabric, false)?;
    mtu_set(&fabric, HOSTS[0], "e0", 1500)?;
    let seconds = ends.until_told(1400)?;
    ends.messages_fit(1400)?;
    Ok(format!("own interface of 1500: told at both ends after {seconds:.1} s"))
}

/// Somebody forges what routers say about the MTU, for every socket of the sender, again and again.
fn forged(v6: bool) -> Result<String> {
    let fabric = fabric()?;
    let (mut ends, ips) = Ends::open(&fabric, v6)?;
    let (mut sent, began) = (0, Instant::now());
    while began.elapsed() < Duration::from_secs(2) {
        sent += forge(&fabric, ips)?;
        ends.exchange()?;
    }
    let route = fabric.ns(HOSTS[0])?.run("ip", &["route", "get", &ips[1].to_string()], "")?;
    if !route.contains(" mtu ") {
        return Err(NetError::new(format!(
            "the kernel believed none of {sent} forgeries: {route}"
        )));
    }
    let full = ends.message(ends.a.device.mtu())?;
    let (a, b) = (&ends.a.told, &ends.b.told);
    if full != Status::Ok || !a.is_empty() || !b.is_empty() {
        return Err(NetError::new(format!(
            "{sent} forged messages: told {a:?} and {b:?}, a full message ended with {full:?}"
        )));
    }
    let family = if v6 { "ICMPv6" } else { "ICMP" };
    Ok(format!("{sent} forged {family} messages change nothing"))
}

/// One forged message for each UDP socket of the first host. Returns how many.
fn forge(fabric: &Fabric, [from, to]: [IpAddr; 2]) -> Result<u32> {
    let file = if from.is_ipv6() { "udp6" } else { "udp" };
    let read = || Ok(fs::read_to_string(format!("/proc/thread-self/net/{file}"))?);
    let table = fabric.ns(HOSTS[0])?.inside(read)?;
    let rows = table.lines().skip(1).filter_map(|l| l.split_whitespace().nth(1)?.rsplit_once(':'));
    let ports: Vec<u16> = rows.filter_map(|(_, p)| u16::from_str_radix(p, 16).ok()).collect();
    // The router next to the host says it, as any other could.
    fabric.ns(Node::Leaf(0))?.inside(|| {
        let (family, proto) = match from {
            IpAddr::V4(_) => (AddressFamily::INET, ipproto::ICMP),
            IpAddr::V6(_) => (AddressFamily::INET6, ipproto::ICMPV6),
        };
        let socket = socket_with(family, SocketType::RAW, SocketFlags::CLOEXEC, Some(proto))?;
        for &port in &ports {
            let bytes = too_big([from, to], [port, srd::PORT_BASE_DEFAULT]);
            let victim = SocketAddrAny::from(SocketAddr::new(from, 0));
            sendto(&socket, &bytes, SendFlags::empty(), &victim)?;
        }
        Ok(())
    })?;
    Ok(ports.len() as u32)
}

/// "Fragmentation needed" (RFC 792, 1191) or "packet too big" (RFC 4443) about a datagram.
fn too_big([from, to]: [IpAddr; 2], ports: [u16; 2]) -> Vec<u8> {
    const LEN: u16 = 8980;
    let mut bytes = Vec::new();
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            // Type, code, checksum, unused, MTU; then the IPv4 header of what was too big.
            bytes.extend([3, 4, 0, 0, 0, 0]);
            bytes.extend(600u16.to_be_bytes());
            bytes.extend([0x45, 0]);
            bytes.extend(LEN.to_be_bytes());
            bytes.extend([0, 1, 0x40, 0, 64, 17, 0, 0]);
            bytes.extend(from.octets());
            bytes.extend(to.octets());
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            // Its checksum is the kernel's work.
            bytes.extend([2, 0, 0, 0]);
            bytes.extend(1280u32.to_be_bytes());
            bytes.extend([0x60, 0, 0, 0]);
            bytes.extend(LEN.to_be_bytes());
            bytes.extend([17, 64]);
            bytes.extend(from.octets());
            bytes.extend(to.octets());
        }
        _ => unreachable!("both addresses are of one family"),
    }
    bytes.extend(ports.iter().flat_map(|p| p.to_be_bytes()));
    bytes.extend((LEN - 40).to_be_bytes());
    bytes.extend([0, 0]);
    if from.is_ipv4() {
        let words = bytes.chunks_exact(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])));
        let sum = words.sum::<u32>();
        let folded = (sum & 0xFFFF) + (sum >> 16);
        let sum = !((folded & 0xFFFF) + (folded >> 16)) as u16;
        bytes[2..4].copy_from_slice(&sum.to_be_bytes());
    }
    bytes
}

fn fabric() -> Result<Fabric> {
    let spec = FabricSpec { mtu: 9000, hosts: 1, ..FabricSpec::default() };
    Fabric::build(&spec).map(|(fabric, _)| fabric)
}

/// Runs all of them.
///
/// # Errors
/// A request fails, a size is not told or told wrongly, or a forged message is believed.
pub fn check() -> Result<String> {
    let text = [
        router(1400, 1180, false, true)?,
        router(1400, 1180, false, false)?,
        router(1280, 1160, true, true)?,
        local()?,
        forged(false)?,
        forged(true)?,
    ];
    Ok(text.join("; "))
}
