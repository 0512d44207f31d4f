//! Probes of paths that are out of use: they must not take the room that data needs.

use crate::common::*;
use srd_core::*;

fn pair(seed: u64) -> Pair {
    let mut c = [config(0), config(1)];
    c.iter_mut().for_each(|c| {
        (c.mtu, c.open_padded_len) = (8000, 8072);
        c.mtu_search = true;
        c.path.paths = 64;
        c.loss.unresponsive_after = Span::from_secs(5);
    });
    Pair::with(seed, c.to_vec())
}

/// Most paths lose what is large, and a few messages leave now and then. Each of these paths
/// was probed with packets of full size, some hundreds a second: as many bytes as all data. When
/// they carry large packets again, all of them return: the room for probes is shared in turn.
#[test]
fn probes_of_many_paths_are_a_small_part_of_what_arrives() {
    for seed in 1..=3 {
        let mut p = pair(seed);
        let mut id = 0;
        let mut send = |p: &mut Pair, span: Span| {
            let end = p.net.now + span;
            while p.net.now < end {
                for _ in 0..16 {
                    id += 1;
                    p.net.hosts[1].recv(p.qp[1], id, 8000);
                    p.send(0, id, vec![1; 8000]).unwrap();
                }
                p.net.run(Span::from_ms(20));
            }
        };
        send(&mut p, Span::from_ms(10));
        p.net.faults.longer_lost_on = Some(((0..58).collect(), 600));
        send(&mut p, Span::from_secs(2));
        let retired = p.net.hosts[0].engine.counters().paths_retired;
        assert!(retired > 30, "seed {seed}: {retired} paths were found");
        let before = p.net.probe_bytes[&ip(0)];
        let sent = p.net.hosts[0].sends_done() as u64;
        send(&mut p, Span::from_secs(2));
        let probes = p.net.probe_bytes[&ip(0)] - before;
        let data = 8000 * (p.net.hosts[0].sends_done() as u64 - sent);
        // A 64th of what arrives, another for the least rate of any sender, and what is asked
        // beside: probes of paths in use, and of the size that passes.
        assert!(probes * 16 < data, "seed {seed}: {probes} bytes of probes, {data} of data");
        p.net.faults.longer_lost_on = None;
        send(&mut p, Span::from_secs(8));
        let stats = p.net.hosts[0].engine.path_stats(ip(1));
        let out = stats.iter().filter(|s| s.state == "retired" || s.state == "probing").count();
        assert_eq!(out, 0, "seed {seed}: paths that carry everything are out of use");
    }
}
