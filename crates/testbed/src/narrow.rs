//! The check `narrow`: paths whose MTU decreases under traffic, and forged messages about the MTU.
//!
//! Two devices of this process, in the namespaces of two hosts, write to and read from each other.
//! Meanwhile the cable behind the last router gets a smaller MTU, with and without the router's
//! ICMP messages; or such messages and others are forged; or the sender's own interface gets a
//! smaller MTU.

use crate::{
    error::{NetError, Result},
    fabric::Fabric,
    icmp::{self, Claim},
    spec::{FabricSpec, Node},
};
use rustix::net::{
    AddressFamily, SendFlags, SocketAddrAny, SocketFlags, SocketType, ipproto, sendto, socket_with,
};
use srd::{
    Access, AddressHandle, AsyncEvent, CompletionQueue, Device, DeviceConfig, MemoryRegion, QKey,
    QpInit, QueuePair, RecvWr, SendWr, Status, WorkCompletion,
};
use std::{
    fs,
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant},
};

const QKEY: QKey = QKey(0x6E61_7277);
/// Bytes of each write and read: about 10 ms at a host's rate.
const LEN: usize = 256 << 10;
/// Time limit of every wait; the awaited events take a second or two.
const PATIENCE: Duration = Duration::from_secs(20);
/// Paths of each device, as by default.
const PATHS: u16 = 64;
/// Number of paths so small that each path sends to one peer often enough for its socket to be
/// connected.
const PATHS_CONNECTED: u16 = 8;
const HOSTS: [Node; 2] = [Node::Host(0, 0), Node::Host(1, 0)];

/// One end: a device with a queue pair, memory and a completion queue.
struct End {
    // Fields are dropped in this order.
    qp: QueuePair,
    own: MemoryRegion,
    there: MemoryRegion,
    cq: CompletionQueue,
    device: Device,
    /// Payload sizes that the device reported in events, in bytes.
    told: Vec<u16>,
}

impl End {
    fn open(fabric: &Fabric, node: Node, ip: IpAddr, paths: u16) -> Result<Self> {
        let mut config = DeviceConfig::ip(ip);
        config.paths = paths;
        // The device's thread begins in the namespace of the thread that opens it.
        let device = fabric.ns(node)?.inside(|| Ok(Device::open(config)?))?;
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

/// Both ends, and their common state.
struct Ends {
    a: End,
    b: End,
    to_b: AddressHandle,
    /// RDMA is served only to hosts for which there is a handle.
    _to_a: AddressHandle,
    round: u8,
}

impl Ends {
    fn open(fabric: &Fabric, v6: bool, paths: u16) -> Result<(Self, [IpAddr; 2])> {
        let spec = fabric.spec();
        let ips = [0, 1].map(|leaf| if v6 { spec.ip6(leaf, 0) } else { spec.ip(leaf, 0) });
        let a = End::open(fabric, HOSTS[0], ips[0], paths)?;
        let b = End::open(fabric, HOSTS[1], ips[1], paths)?;
        let (to_b, _to_a) = (a.own.pd().ah_create(ips[1])?, b.own.pd().ah_create(ips[0])?);
        let mut ends = Self { a, b, to_b, _to_a, round: 0 };
        for _ in 0..5 {
            ends.exchange()?;
        }
        Ok((ends, ips))
    }

    /// Executes one write and one read, and compares the data.
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
            return Err(NetError::new("the written or read data differs from what was sent"));
        }
        self.a.events_take();
        self.b.events_take();
        Ok(())
    }

    /// Continues until both ends have reported `size`, each as its first. Returns the time in
    /// seconds.
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
            return Err(NetError::new(format!("the ends reported {a:?} and {b:?}, not {size}")));
        }
        Ok(began.elapsed().as_secs_f64())
    }

    /// Sends a message of `len` bytes and returns its final status.
    fn message(&self, len: usize) -> Result<Status> {
        let (a, b) = (&self.a, &self.b);
        b.qp.post_recv(&RecvWr { wr_id: 9, sges: &[b.there.sge(0, len as u32)] })?;
        let send = SendWr::send(3, &self.to_b, b.qp.qpn(), QKEY);
        a.qp.post_send(&send.sges(&[a.own.sge(0, len as u32)]))?;
        Ok(a.done()?.status)
    }

    /// Requires that a message of the device's MTU fails, and one of `size` bytes succeeds.
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

/// Drops ICMP over IPv4 at the host's ingress.
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

/// The link behind the last router gets the MTU `mtu`, which may lie between the sizes that the
/// device probes; `size` is the largest payload that passes. Towards the host, the router sends
/// ICMP messages unless `icmp` is false; in the other direction there are none.
fn router(mtu: u16, size: u16, v6: bool, icmp: bool) -> Result<String> {
    let fabric = fabric()?;
    if !icmp {
        icmp_block(&fabric)?;
    }
    let (mut ends, _) = Ends::open(&fabric, v6, PATHS)?;
    mtu_set(&fabric, Node::Leaf(1), "dn0", mtu)?;
    let seconds = ends.until_told(size)?;
    ends.messages_fit(size)?;
    let (family, icmp) = (if v6 { "IPv6" } else { "IPv4" }, if icmp { "" } else { ", no ICMP" });
    Ok(format!("{family} hop of {mtu}{icmp}: {size} bytes reported after {seconds:.1} s"))
}

/// The MTU of the sender's own interface decreases, so that sends fail with EMSGSIZE.
fn local() -> Result<String> {
    let fabric = fabric()?;
    let (mut ends, _) = Ends::open(&fabric, false, PATHS)?;
    mtu_set(&fabric, HOSTS[0], "e0", 1500)?;
    let seconds = ends.until_told(1400)?;
    ends.messages_fit(1400)?;
    Ok(format!("own interface of 1500: reported at both ends after {seconds:.1} s"))
}

/// Forges ICMP errors of routers and hosts for every socket of the sender, repeatedly: each error
/// that a connected socket would report, in turn, and "too big" as often as all others together.
fn forged(v6: bool) -> Result<String> {
    let fabric = fabric()?;
    let (mut ends, ips) = Ends::open(&fabric, v6, PATHS_CONNECTED)?;
    let (mut sent, mut volley, began) = (0, 0, Instant::now());
    while began.elapsed() < Duration::from_secs(2) || volley < 2 * reported(v6).len() {
        if began.elapsed() > PATIENCE {
            return Err(NetError::new(format!("only {volley} volleys of forged messages")));
        }
        sent += forge(&fabric, ips, volley)?;
        volley += 1;
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
            "{sent} forged messages: the ends reported {a:?} and {b:?}, a full message ended with \
             {full:?}"
        )));
    }
    let c = ends.a.device.counters()?.datapath;
    let lost = c.tx_refused + c.tx_unreachable + c.tx_forbidden + c.tx_too_long + c.tx_other;
    if lost > 0 {
        return Err(NetError::new(format!(
            "{sent} forged messages made the sender drop {lost} packets: {c:?}"
        )));
    }
    let family = if v6 { "ICMPv6" } else { "ICMP" };
    Ok(format!(
        "{sent} forged {family} messages of {} kinds change nothing and lose no packet",
        reported(v6).len()
    ))
}

/// Errors that Linux reports to the next sender on a connected socket, at least one for each errno.
fn reported(v6: bool) -> &'static [Claim] {
    const fn claim(kind: u8, code: u8) -> Claim {
        Claim { kind, code }
    }
    const V4: [Claim; 12] = [
        claim(3, 2),
        claim(3, 3),
        claim(3, 4),
        claim(3, 6),
        claim(3, 7),
        claim(3, 8),
        claim(3, 9),
        claim(3, 10),
        claim(3, 13),
        claim(3, 14),
        claim(3, 15),
        claim(12, 0),
    ];
    const V6: [Claim; 7] =
        [claim(1, 1), claim(1, 4), claim(1, 5), claim(1, 6), claim(1, 7), claim(2, 0), claim(4, 0)];
    if v6 { &V6 } else { &V4 }
}

/// One forged message for each UDP socket of the first host. Returns how many.
fn forge(fabric: &Fabric, [from, to]: [IpAddr; 2], volley: usize) -> Result<u32> {
    let v6 = from.is_ipv6();
    let file = if v6 { "udp6" } else { "udp" };
    let read = || Ok(fs::read_to_string(format!("/proc/thread-self/net/{file}"))?);
    let table = fabric.ns(HOSTS[0])?.inside(read)?;
    let rows = table.lines().skip(1).filter_map(|l| l.split_whitespace().nth(1)?.rsplit_once(':'));
    let ports: Vec<u16> = rows.filter_map(|(_, p)| u16::from_str_radix(p, 16).ok()).collect();
    let too_big = if v6 { Claim { kind: 2, code: 0 } } else { Claim { kind: 3, code: 4 } };
    let claim = match volley % 2 {
        0 => too_big,
        _ => reported(v6)[volley / 2 % reported(v6).len()],
    };
    // Sent by the router next to the host; any other router could send it.
    fabric.ns(Node::Leaf(0))?.inside(|| {
        let (family, proto) = match from {
            IpAddr::V4(_) => (AddressFamily::INET, ipproto::ICMP),
            IpAddr::V6(_) => (AddressFamily::INET6, ipproto::ICMPV6),
        };
        let socket = socket_with(family, SocketType::RAW, SocketFlags::CLOEXEC, Some(proto))?;
        for &port in &ports {
            let there = SocketAddr::new(to, srd::PORT_BASE_DEFAULT);
            let bytes = icmp::error(claim, SocketAddr::new(from, port), there);
            let victim = SocketAddrAny::from(SocketAddr::new(from, 0));
            sendto(&socket, &bytes, SendFlags::empty(), &victim)?;
        }
        Ok(())
    })?;
    Ok(ports.len() as u32)
}

fn fabric() -> Result<Fabric> {
    let spec = FabricSpec { mtu: 9000, hosts: 1, ..FabricSpec::default() };
    Fabric::build(&spec).map(|(fabric, _)| fabric)
}

/// Runs all parts of the check.
///
/// # Errors
/// A request fails, an MTU is not reported or is wrong, or a forged message is believed.
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
