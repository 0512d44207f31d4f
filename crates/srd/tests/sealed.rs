//! Devices with key files: what leaves is sealed, and whoever has no key or another one is refused
//! with a reason on both sides.

use crate::common::{BAD_NETWORK, MemWorld, Node, PATIENCE, QKEY, THREAD, pattern};
use srd::{
    AsyncEvent, CloseCode, CompletionOp, Device, DeviceConfig, Progress, RecvWr, SendWr, Status,
    datapath::{fault::Fault, watch::Watch},
    seal::{Rotation, key_file_new, key_file_rotate},
};
use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

/// A folder for the key files of one test.
pub(super) struct Folder(pub PathBuf);

impl Folder {
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name =
            format!("srd-sealed-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    pub fn key(&self, name: &str) -> PathBuf {
        let path = self.0.join(name);
        key_file_new(&path).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A configuration with this key file and policy, whatever the environment says, and with peers
/// that are given up soon.
pub(super) fn sealed(
    mut config: DeviceConfig,
    key: Option<&Path>,
    policy: Option<&str>,
) -> DeviceConfig {
    config.progress = Progress::Caller;
    config.key_file = key.map(Path::to_owned);
    config.seal = policy.map(str::to_owned);
    config.tune = Some(Box::new(|engine| {
        engine.loss.unreachable_after = srd::Span::from_ms(700);
    }));
    config
}

/// A device that is sealed with this key file, at `host` of the network in memory.
pub(super) fn node(world: &MemWorld, host: u8, key: &Path) -> Node {
    Node::new(Device::open(sealed(world.config(host), Some(key), None)).unwrap())
}

/// One message from `a` to `b` whose bytes arrive.
fn exchange(a: &Node, b: &Node, len: usize, seed: u64) {
    let ah = a.ah_to(b);
    let (from, to) = (a.memory(len.max(1)), b.memory(len.max(1)));
    let bytes = pattern(len, seed);
    from.write_at(0, &bytes).unwrap();
    b.qp.post_recv(&RecvWr { wr_id: 1, sges: &[to.sge(0, len as u32)] }).unwrap();
    let sges = [from.sge(0, len as u32)];
    a.qp.post_send(&SendWr::send(2, &ah, b.qp.qpn(), QKEY).sges(&sges)).unwrap();
    let sent = a.next(b);
    assert_eq!((sent.wr_id, sent.status, sent.op), (2, Status::Ok, CompletionOp::Send));
    let got = b.next(a);
    assert_eq!((got.wr_id, got.status, got.op), (1, Status::Ok, CompletionOp::Recv));
    assert_eq!(to.to_vec(0, len).unwrap(), bytes, "{len} bytes");
}

/// The status with which an empty message from `a` to `b` ends.
fn fate(a: &Node, b: &Node) -> Status {
    let ah = a.ah_to(b);
    a.qp.post_send(&SendWr::send(2, &ah, b.qp.qpn(), QKEY)).unwrap();
    a.next(b).status
}

pub(super) fn events(device: &Device) -> Vec<AsyncEvent> {
    std::iter::from_fn(|| device.event_get()).collect()
}

#[test]
fn nothing_readable_leaves_and_all_arrives() {
    let folder = Folder::new();
    let key = folder.key("keys");
    let seen = Arc::new(Mutex::new(Vec::<Vec<u8>>::new()));
    for mtu in [300, 1400, 8900] {
        let world = MemWorld::new(mtu);
        let open = |host| {
            let mut config = sealed(world.config(host), Some(&key), None);
            let seen = Arc::clone(&seen);
            config.wrap = Some(Box::new(move |inner| {
                Box::new(Watch::new(inner, move |d: &srd::datapath::RxDatagram<'_>| {
                    seen.lock().unwrap().push(d.bytes.to_vec());
                }))
            }));
            Node::new(Device::open(config).unwrap())
        };
        let (a, b) = (open(1), open(2));
        for _ in 0..4 {
            for len in [0, 1, 64, 255, usize::from(mtu)] {
                exchange(&a, &b, len, 7);
                exchange(&b, &a, len, 7);
            }
        }
        let status = a.device.seal().unwrap().unwrap();
        assert_eq!((status.contexts, status.counters.handshakes), (1, 1));
        assert_eq!(status.counters.not_opened.iter().sum::<u64>(), 0);
        assert!(status.counters.opened >= 10 && status.counters.withheld == 0);
    }
    let seen = seen.lock().unwrap();
    let secret = pattern(64, 7);
    assert!(seen.len() > 100);
    for datagram in seen.iter() {
        // Only a Reset, here the goodbye of a device, says what everybody may know.
        let reset = datagram[0] & 31 == 6 && datagram.len() == 44;
        assert!(datagram[1] & 4 != 0 || reset, "a packet without a seal: {datagram:02x?}");
        assert!(!datagram.windows(16).any(|w| w == &secret[..16]), "readable payload");
        assert!(datagram.len() <= 8900 + srd_wire::OVERHEAD_BYTES);
    }
    // The transmission number of each sender's direction never comes twice with other bytes.
    let mut numbers = std::collections::BTreeMap::new();
    for datagram in seen.iter().filter(|d| d[1] & 4 != 0 && !(9..=13).contains(&(d[0] & 31))) {
        let number = (datagram[4..8].to_vec(), datagram[8..12].to_vec());
        assert_eq!(numbers.insert(number, datagram).map(|_| ()), None, "a nonce twice");
    }
}

#[test]
fn rdma_and_bad_networks_and_damage() {
    let folder = Folder::new();
    let key = folder.key("keys");
    let mut rates = BAD_NETWORK;
    rates.corrupt_ppm = 20_000;
    for progress in [Progress::Caller, THREAD] {
        let world = MemWorld::new(1000);
        let open = |host: u8| {
            let mut config = sealed(world.config(host), Some(&key), None);
            config.progress = progress;
            config.tune = None;
            config.wrap = Some(Box::new(move |inner| {
                Box::new(Fault::new(inner, u64::from(host), rates, rates))
            }));
            Node::new(Device::open(config).unwrap())
        };
        let (a, b) = (open(1), open(2));
        let (len, ah, _back) = (300_000, a.ah_to(&b), b.ah_to(&a));
        let (from, to) = (a.memory(len), b.memory(len));
        let bytes = pattern(len, 3);
        from.write_at(0, &bytes).unwrap();
        let remote = (to.addr(), to.rkey());
        let sges = [from.sge(0, len as u32)];
        let wr = SendWr::write(1, &ah, b.qp.qpn(), QKEY).remote(remote.0, remote.1).sges(&sges);
        a.qp.post_send(&wr).unwrap();
        assert_eq!(a.next(&b).status, Status::Ok);
        assert_eq!(to.to_vec(0, len).unwrap(), bytes);
        let back = a.memory(len);
        let sges = [back.sge(0, len as u32)];
        let wr = SendWr::read(2, &ah, b.qp.qpn(), QKEY).remote(remote.0, remote.1).sges(&sges);
        a.qp.post_send(&wr).unwrap();
        assert_eq!(a.next(&b).status, Status::Ok);
        assert_eq!(back.to_vec(0, len).unwrap(), bytes);
        (0..50).for_each(|i| exchange(&a, &b, 1000, i));
        let status = b.device.seal().unwrap().unwrap();
        assert!(status.counters.not_opened.iter().sum::<u64>() > 0, "damage was met");
    }
}

/// What ends a message from a device with the first key and policy to one with the second, and the
/// code that both sides report.
fn refused(
    from: (Option<&Path>, Option<&str>),
    to: (Option<&Path>, Option<&str>),
) -> (Status, Option<CloseCode>, Option<CloseCode>) {
    let world = MemWorld::new(1000);
    let a = Node::new(Device::open(sealed(world.config(1), from.0, from.1)).unwrap());
    let b = Node::new(Device::open(sealed(world.config(2), to.0, to.1)).unwrap());
    let began = Instant::now();
    b.qp.post_recv(&RecvWr { wr_id: 1, sges: &[] }).unwrap();
    let status = fate(&a, &b);
    assert!(began.elapsed() < PATIENCE, "nothing hangs");
    let told = events(&a.device).iter().find_map(|e| match e {
        AsyncEvent::SealRefused { code, .. } => Some(*code),
        _ => None,
    });
    let denied = events(&b.device).iter().find_map(|e| match e {
        AsyncEvent::SealDenied { code, .. } => Some(*code),
        _ => None,
    });
    (status, told, denied)
}

#[test]
fn who_has_no_key_or_another_is_refused_and_both_sides_are_told() {
    let folder = Folder::new();
    let (key, other) = (folder.key("keys"), folder.key("others"));
    let (key, other) = (Some(key.as_path()), Some(other.as_path()));
    let gone = Status::LocalUnreachRemote;
    let wrong = Some(CloseCode::KeyUnknown);
    assert_eq!(refused((other, None), (key, None)), (gone, wrong, wrong));
    let open = Some(CloseCode::SealRequired);
    assert_eq!(refused((None, None), (key, None)), (gone, open, open));
    let without = Some(CloseCode::SealUnknown);
    assert_eq!(refused((key, None), (None, None)), (gone, without, None));
    assert_eq!(refused((key, None), (key, Some("never"))), (gone, without, None));
    // Who prefers a seal does without one, in both directions, but not with a wrong key.
    let prefer = Some("prefer");
    assert_eq!(refused((key, prefer), (None, None)), (Status::Ok, without, None));
    assert_eq!(refused((None, None), (key, prefer)), (Status::Ok, None, None));
    assert_eq!(refused((key, prefer), (key, None)), (Status::Ok, None, None));
    assert_eq!(refused((key, None), (key, prefer)), (Status::Ok, None, None));
    assert_eq!(refused((other, prefer), (key, prefer)), (gone, wrong, wrong));
}

#[test]
fn a_configuration_that_cannot_seal_opens_no_device() {
    let folder = Folder::new();
    let key = folder.key("keys");
    let error = |key: Option<&Path>, policy| {
        let world = MemWorld::new(1000);
        Device::open(sealed(world.config(1), key, policy)).map(drop).unwrap_err().to_string()
    };
    assert!(error(None, Some("require")).contains("srd key new"));
    assert!(error(None, Some("prefer")).contains("srd key new"));
    assert!(error(Some(&key), Some("yes")).contains("never, prefer or require"));
    assert!(error(Some(&folder.0.join("none")), None).contains("none"));
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    assert!(error(Some(&key), None).contains("chmod 600"));
    // A file that is not used is not looked at.
    let world = MemWorld::new(1000);
    Device::open(sealed(world.config(1), Some(&key), Some("never"))).unwrap();
}

#[test]
fn a_restarted_peer_is_believed_and_its_old_life_ends() {
    let folder = Folder::new();
    let key = folder.key("keys");
    let world = MemWorld::new(1000);
    let open = |host| node(&world, host, &key);
    let a = open(1);
    for life in 0..3 {
        // The device is dropped without a goodbye of its process: `fail` sends nothing.
        let b = open(2);
        if life > 0 {
            // A learns from the new life that the old one is gone.
            b.qp.post_recv(&RecvWr { wr_id: 3, sges: &[] }).unwrap();
            assert_eq!(fate(&a, &b), Status::RemoteAbort);
            assert_eq!(fate(&a, &b), Status::Ok);
            assert_eq!(b.next(&a).wr_id, 3);
        }
        exchange(&b, &a, 500, life);
        exchange(&a, &b, 500, life);
        b.device.fail();
    }
}

#[test]
fn a_restarted_peer_that_speaks_first_is_believed() {
    let folder = Folder::new();
    let key = folder.key("keys");
    let world = MemWorld::new(1000);
    let open = |host| node(&world, host, &key);
    let a = open(1);
    for life in 0..3 {
        let b = open(2);
        exchange(&b, &a, 500, life);
        exchange(&a, &b, 500, life);
        b.device.fail();
    }
}

#[test]
fn both_may_open_at_once() {
    let folder = Folder::new();
    let key = folder.key("keys");
    for _ in 0..20 {
        let world = MemWorld::new(1000);
        let open = |host| node(&world, host, &key);
        let (a, b) = (open(1), open(2));
        let to = [a.memory(8), b.memory(8)];
        a.qp.post_recv(&RecvWr { wr_id: 1, sges: &[to[0].sge(0, 8)] }).unwrap();
        b.qp.post_recv(&RecvWr { wr_id: 1, sges: &[to[1].sge(0, 8)] }).unwrap();
        let (ah_b, ah_a) = (a.ah_to(&b), b.ah_to(&a));
        a.qp.post_send(&SendWr::send(2, &ah_b, b.qp.qpn(), QKEY)).unwrap();
        b.qp.post_send(&SendWr::send(2, &ah_a, a.qp.qpn(), QKEY)).unwrap();
        for (x, y) in [(&a, &b), (&b, &a)] {
            assert!(x.next_n(y, 2).iter().all(|wc| wc.status == Status::Ok));
        }
        exchange(&a, &b, 900, 1);
    }
}

#[test]
fn keys_change_without_a_stop() {
    let folder = Folder::new();
    let (at_a, at_b) = (folder.key("a"), folder.0.join("b"));
    fs::copy(&at_a, &at_b).unwrap();
    let world = MemWorld::new(1000);
    let (a, b) = (node(&world, 1, &at_a), node(&world, 2, &at_b));
    exchange(&a, &b, 100, 1);
    let keys = |node: &Node| node.device.seal().unwrap().unwrap().keys;
    let steps = [
        (Rotation::Added(2), vec![1, 2]),
        (Rotation::Promoted(2), vec![2, 1]),
        (Rotation::Retired(2), vec![2]),
    ];
    for (step, wanted) in steps {
        assert_eq!(key_file_rotate(&at_a).unwrap(), step);
        // One host is a step behind for a while.
        let until = Instant::now() + Duration::from_millis(1200);
        let mut seed = 0;
        while Instant::now() < until || keys(&a) != wanted {
            exchange(&a, &b, 100, seed);
            seed += 1;
        }
        let new = folder.0.join("new");
        fs::copy(&at_a, &new).unwrap();
        fs::rename(&new, &at_b).unwrap();
        while keys(&b) != wanted {
            exchange(&b, &a, 100, seed);
            seed += 1;
        }
    }
    // A version that others may read is not used, and the user is told.
    fs::set_permissions(&at_a, fs::Permissions::from_mode(0o640)).unwrap();
    let until = Instant::now() + PATIENCE;
    while !events(&a.device).contains(&AsyncEvent::KeyFileRefused) {
        assert!(Instant::now() < until);
        exchange(&a, &b, 100, 5);
    }
    let status = a.device.seal().unwrap().unwrap();
    assert!(status.problem.unwrap().contains("chmod 600") && status.keys == [2]);
}

#[test]
fn a_key_replaced_under_its_number_ends_idle_contexts() {
    let folder = Folder::new();
    let (key, new) = (folder.key("keys"), folder.key("new"));
    let world = MemWorld::new(1000);
    let open = |host| node(&world, host, &key);
    let (a, b) = (open(1), open(2));
    exchange(&a, &b, 100, 1);
    fs::rename(&new, &key).unwrap();
    let status = |node: &Node| node.device.seal().unwrap().unwrap();
    let until = Instant::now() + PATIENCE;
    while status(&a).contexts + status(&b).contexts > 0 {
        assert!(Instant::now() < until, "contexts of a key that is gone");
        a.assert_quiet(&b);
        b.assert_quiet(&a);
    }
    exchange(&a, &b, 100, 2);
    assert!([&a, &b].iter().all(|node| status(node).counters.handshakes == 2));
}

/// A request that never gets its receive keeps both contexts busy.
#[test]
fn a_key_that_is_gone_ends_contexts_that_are_never_idle() {
    let folder = Folder::new();
    let (key, new) = (folder.key("keys"), folder.key("new"));
    let world = MemWorld::new(1000);
    let open = |host| node(&world, host, &key);
    let (a, b) = (open(1), open(2));
    exchange(&a, &b, 100, 1);
    let (ah_b, ah_a) = (a.ah_to(&b), b.ah_to(&a));
    a.qp.post_send(&SendWr::send(7, &ah_b, b.qp.qpn(), QKEY)).unwrap();
    b.qp.post_send(&SendWr::send(7, &ah_a, a.qp.qpn(), QKEY)).unwrap();
    fs::rename(&new, &key).unwrap();
    for (x, y) in [(&a, &b), (&b, &a)] {
        let ended = x.next(y);
        assert_eq!((ended.wr_id, ended.status), (7, Status::RemoteAbort));
    }
    let removed = |node: &Node| {
        events(&node.device).iter().any(|event| matches!(event, AsyncEvent::KeyRemoved(_)))
    };
    // The peer of who was first may hear of it before its own time is over.
    let (by_a, by_b) = (removed(&a), removed(&b));
    assert!(by_a || by_b);
    exchange(&a, &b, 100, 2);
    assert_eq!(a.device.seal().unwrap().unwrap().counters.handshakes, 2);
}

#[test]
fn a_device_talks_to_itself() {
    let folder = Folder::new();
    let key = folder.key("keys");
    let world = MemWorld::new(1000);
    let a = Node::new(Device::open(sealed(world.config(1), Some(&key), None)).unwrap());
    for seed in 0..5 {
        let ah = a.pd.ah_create(a.device.ip()).unwrap();
        let (from, to) = (a.memory(900), a.memory(900));
        from.write_at(0, &pattern(900, seed)).unwrap();
        a.qp.post_recv(&RecvWr { wr_id: 1, sges: &[to.sge(0, 900)] }).unwrap();
        let sges = [from.sge(0, 900)];
        a.qp.post_send(&SendWr::send(2, &ah, a.qp.qpn(), QKEY).sges(&sges)).unwrap();
        let done = a.next_n(&a, 2);
        assert!(done.iter().all(|wc| wc.status == Status::Ok), "{done:?}");
        assert_eq!(to.to_vec(0, 900).unwrap(), pattern(900, seed));
    }
    let status = a.device.seal().unwrap().unwrap();
    assert!(status.counters.opened > 0 && status.counters.unsealed == 0);
}
