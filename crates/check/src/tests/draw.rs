//! Choices from a seed or from bytes, and the addresses of hosts.

use crate::draw::Draw;
use crate::packet::{endpoint_of, host_of, ip_of};

#[test]
fn bytes_choose_first_and_a_seed_goes_on() {
    let mut d = Draw::with_bytes(7, 1, 2, &[5, 0, 0, 1, 9]);
    assert_eq!((d.below(100), d.below(1000)), (5, 256), "two bytes for each choice");
    // The odd byte chooses nothing: from here on it is the stream of the seed.
    let mut seed = Draw::new(7, 1, 2);
    for _ in 0..50 {
        assert_eq!(d.below(1 << 30), seed.below(1 << 30));
    }
    assert_eq!(Draw::with_bytes(7, 1, 2, &[5, 0]).below(0), 0, "of none, the first");
}

#[test]
fn streams_differ_by_seed_kind_and_number() {
    let first = |seed, kind, id| Draw::new(seed, kind, id).bits();
    let all = [first(1, 1, 1), first(2, 1, 1), first(1, 2, 1), first(1, 1, 2)];
    for (i, a) in all.iter().enumerate() {
        assert!(all[i + 1..].iter().all(|b| a != b), "{all:?}");
    }
    assert_eq!(first(3, 4, 5), first(3, 4, 5), "a seed replays its choices");
}

#[test]
fn choices_keep_to_their_bounds_and_reach_them() {
    let mut d = Draw::new(1, 2, 3);
    let (mut least, mut most) = (u64::MAX, 0);
    for _ in 0..1000 {
        let n = d.range(10, 13);
        (least, most) = (least.min(n), most.max(n));
    }
    assert_eq!((least, most), (10, 13));
    assert_eq!(d.range(7, 7), 7);
    assert!(!(0..100).any(|_| d.percent(0)) && (0..100).all(|_| d.percent(100)));
    let picked: Vec<char> = (0..200).map(|_| d.pick(&['a', 'b'])).collect();
    assert!(picked.contains(&'a') && picked.contains(&'b'));
}

#[test]
fn weights_decide_how_often() {
    let mut d = Draw::new(4, 5, 6);
    let mut counts = [0; 4];
    (0..4000).for_each(|_| counts[d.weighted(&[1, 0, 3, 0])] += 1);
    assert_eq!((counts[1], counts[3]), (0, 0), "what weighs nothing is never chosen");
    assert!((800..1200).contains(&counts[0]), "a quarter: {counts:?}");
    assert_eq!(d.weighted(&[0, 0]), 0);
    // From bytes: the first of weight 2 are 0 and 1, then comes the other.
    let of = |byte| Draw::with_bytes(0, 0, 0, &[byte, 0]).weighted(&[2, 5]);
    assert_eq!([of(0), of(1), of(2), of(6), of(7)], [0, 0, 1, 1, 0]);
}

#[test]
fn hosts_have_addresses_of_their_own_and_are_found_by_them() {
    for host in [0, 1, 100, 254] {
        assert_eq!(host_of(ip_of(host), 255), Some(host));
        assert_eq!(host_of(ip_of(host), host), None, "there is no such host");
    }
    assert!((0..254).all(|h| ip_of(h) != ip_of(h + 1)));
    for other in ["10.1.0.1", "11.0.0.1", "10.0.0.0", "::1"] {
        assert_eq!(host_of(other.parse().unwrap(), 255), None, "{other}");
    }
    let (a, b) = (endpoint_of(3, 0), endpoint_of(3, 2));
    assert_eq!((a.ip, b.port - a.port), (b.ip, 2), "engines of a host differ by their ports");
}
