//! Devices over several networks: addresses of the loopback interface in two networks of 16 bits.

use crate::common::{ALL_ACCESS, PATIENCE, QKEY, THREAD, pattern};
use srd::{Device, DeviceConfig, QpInit, SendWr};
use std::{
    net::Ipv4Addr,
    sync::atomic::{AtomicU8, Ordering},
};

/// A device at an address of its own, over two networks if `joined`.
fn device(joined: bool, shards: u16) -> Device {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let [.., high, low] = std::process::id().to_be_bytes();
    let host = NEXT.fetch_add(1, Ordering::Relaxed);
    // Networks 127.2n.0.0/16 and 127.2n+1.0.0/16, so that processes do not meet.
    let network = 2 * (high & 0x3F) + 2;
    let mut config = DeviceConfig::ip(Ipv4Addr::new(127, network, low, host).into());
    let second = Ipv4Addr::new(127, network + 1, low, host);
    config.rails = joined.then(|| format!("{second}/16"));
    (config.paths, config.mtu, config.key_file, config.seal) = (8, Some(1024), None, None);
    (config.progress, config.shards) = (THREAD, shards);
    Device::open(config).unwrap()
}

/// Writes `bytes` from one device to the other in pieces; every one must arrive.
fn writes(a: &Device, b: &Device, bytes: usize) {
    let (pd_a, pd_b) = (a.pd_create().unwrap(), b.pd_create().unwrap());
    let (cq_a, cq_b) = (a.cq_create(64).unwrap(), b.cq_create(64).unwrap());
    let from = pd_a.qp_create(&QpInit::srd(&cq_a, &cq_a)).unwrap();
    let to = pd_b.qp_create(&QpInit::srd(&cq_b, &cq_b)).unwrap();
    from.activate(QKEY).unwrap();
    to.activate(QKEY).unwrap();
    let (ah, _back) = (pd_a.ah_create(b.ip()).unwrap(), pd_b.ah_create(a.ip()).unwrap());
    let source = pd_a.mr_allocate(bytes, ALL_ACCESS).unwrap();
    let target = pd_b.mr_allocate(bytes, ALL_ACCESS).unwrap();
    let data = pattern(bytes, bytes as u64);
    source.write_at(0, &data).unwrap();
    let piece = bytes / 16;
    for i in 0..16 {
        let write = SendWr::write(i as u64, &ah, to.qpn(), QKEY)
            .remote(target.addr() + (i * piece) as u64, target.rkey());
        from.post_send(&write.sges(&[source.sge(i * piece, piece as u32)])).unwrap();
    }
    for _ in 0..16 {
        cq_a.wait(PATIENCE).unwrap().expect("a completion in time").ok().unwrap();
    }
    assert_eq!(target.to_vec(0, bytes).unwrap(), data);
}

/// For each path, whether a packet of it has come back acknowledged.
fn echoed(a: &Device, b: &Device) -> Vec<bool> {
    let mut paths = a.path_stats(b.ip()).unwrap();
    paths.sort_by_key(|p| p.path);
    paths.iter().map(|p| p.echoed).collect()
}

#[test]
fn paths_of_both_networks_carry_packets_between_the_same_two_addresses() {
    let (a, b) = (device(true, 1), device(true, 1));
    writes(&a, &b, 4 << 20);
    assert_eq!(echoed(&a, &b), [true; 8]);
    writes(&b, &a, 4 << 20);
    // One context: the peer has one address, whichever network its packets come from.
    assert_eq!((a.context_stats().unwrap().len(), b.context_stats().unwrap().len()), (1, 1));
    let stats = &b.context_stats().unwrap()[0];
    assert_eq!(stats.peer.ip, a.ip());
}

/// To a peer with one network, the paths of the other are dead from the beginning.
#[test]
fn a_peer_with_one_network_is_reached_all_the_same() {
    let (a, b) = (device(true, 1), device(false, 1));
    writes(&a, &b, 2 << 20);
    let (to_b, to_a) = (echoed(&a, &b), a.context_stats().unwrap());
    assert!(to_b.iter().step_by(2).all(|&echoed| echoed), "{to_b:?}");
    assert!(to_b.iter().skip(1).step_by(2).all(|&echoed| !echoed), "{to_b:?}");
    assert_eq!(to_a.len(), 1, "nobody else has answered");
    writes(&b, &a, 2 << 20);
}

/// Every shard has its own port in each network.
#[test]
fn devices_of_several_shards_use_both_networks_too() {
    let (a, b) = (device(true, 3), device(true, 2));
    assert_eq!((a.shard_count(), b.shard_count()), (3, 2));
    let ends = [&a, &b].map(|d| (d.pd_create().unwrap(), d.cq_create(4).unwrap()));
    let mut held = Vec::new();
    for _ in 0..6 {
        writes(&a, &b, 1 << 20);
        // New queue pairs go to the shard with the fewest.
        held.extend(ends.iter().map(|(pd, cq)| pd.qp_create(&QpInit::srd(cq, cq)).unwrap()));
    }
    assert_eq!(echoed(&a, &b), [true; 8]);
    let peers = b.context_stats().unwrap();
    assert!(peers.len() > 1 && peers.iter().all(|c| c.peer.ip == a.ip()), "{peers:?}");
}

#[test]
fn rails_that_cannot_be_are_refused_with_a_remedy() {
    let open = |list: &str| {
        let mut config = DeviceConfig::ip(Ipv4Addr::new(127, 199, 0, 1).into());
        config.rails = Some(list.into());
        Device::open(config).map_err(|e| e.to_string())
    };
    for (list, words) in [
        ("127.200.0.1", "rails (SRD_RAILS): `127.200.0.1`: write an interface"),
        ("127.200.0.2/16", "same number behind the first 16 bits"),
        ("127.200.0.1/16,127.200.0.1/16", "each needs its own"),
    ] {
        let error = open(list).unwrap_err();
        assert!(error.contains(words), "{list}: {error}");
    }
    // A device on the loopback interface leaves out networks elsewhere, and every device its own.
    for list in ["203.0.113.1/16", "127.199.0.1/16"] {
        assert_eq!(open(list).map(|device| device.warnings().len()).err(), None, "{list}");
    }
}
