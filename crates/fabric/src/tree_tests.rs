//! The numbers of the tree compared with the network that is built from them.

use super::*;
use crate::topo::FatTree;

const SHAPES: [(u32, u32, u32); 8] =
    [(2, 2, 0), (2, 2, 1), (2, 3, 3), (4, 3, 2), (3, 3, 1), (2, 5, 2), (5, 2, 2), (4, 4, 0)];

fn port() -> Port {
    Port::new(100_000_000_000, 1_000)
}

fn tree(shape: (u32, u32, u32)) -> (KaryNTree, Topology) {
    let tree = KaryNTree::new(shape.0, shape.1, shape.2).expect("sound");
    (tree, tree.build(port(), port(), port()))
}

#[test]
fn the_vertical_part_of_three_levels_is_the_fat_tree() {
    for k in [2, 3, 4, 8] {
        let fat = FatTree { pods: k, ..FatTree::k_ary(2 * k, port(), port()) }.build();
        let (tree, topo) = tree((k, 3, 0));
        assert_eq!(topo.cables(), fat.cables(), "k = {k}");
        assert_eq!((topo.hosts(), topo.switches()), (k * k * k, 3 * k * k));
        let tiers =
            |t: &Topology| (0..t.switches()).map(|s| t.tier(SwitchId(s))).collect::<Vec<_>>();
        assert_eq!(tiers(&topo), tiers(&fat));
        assert_eq!(tree.links(), topo.links());
    }
}

#[test]
fn every_number_agrees_with_the_network_as_built() {
    let built = |tree: KaryNTree| (tree, tree.build(port(), port(), port()));
    let both = |shape| [built(tree(shape).0), built(tree(shape).0.line())];
    for (shape, (tree, topo)) in SHAPES.into_iter().flat_map(|s| both(s).map(|t| (s, t))) {
        topo.validate().expect("sound");
        assert_eq!(topo.links(), tree.links(), "{shape:?}");
        assert_eq!(topo.tree(), Some(&tree));
        for link in (0..tree.links()).map(LinkId) {
            assert_eq!(tree.to(link), topo.to(link), "{shape:?} {link:?}");
        }
        let mut ports = 0;
        for switch in (0..tree.switches()).map(SwitchId) {
            let node = Node::Switch(switch);
            ports += topo.cables_of(node).count();
            assert_eq!(u32::from(topo.tier(switch)), tree.level(switch));
            for port in 0..tree.k() {
                let Some((link, above)) = tree.up(switch, port) else {
                    assert_eq!(tree.level(switch) + 1, tree.levels());
                    continue;
                };
                assert_eq!((topo.from(link), topo.to(link)), (node, Node::Switch(above)));
            }
            let ring: Vec<LinkId> = tree.ring_links(switch).collect();
            match tree.ring_next(switch) {
                None => assert!(ring.is_empty()),
                Some(next) => {
                    assert_eq!(ring.len() as u32, tree.horizontal());
                    for link in ring {
                        assert!(tree.is_ring(link));
                        assert_eq!((topo.from(link), topo.to(link)), (node, Node::Switch(next)));
                    }
                }
            }
        }
        let per_host = ports as f64 / f64::from(tree.hosts());
        assert!((per_host - tree.ports_per_host()).abs() < 1e-9, "{shape:?}");
    }
}

#[test]
fn hosts_below_are_those_that_ways_down_lead_to() {
    for shape in SHAPES {
        let (tree, topo) = tree(shape);
        for switch in (0..tree.switches()).map(SwitchId) {
            // Reference from the network as built: all hosts that downward links reach.
            let mut below = std::collections::BTreeSet::new();
            let mut ahead = vec![switch];
            while let Some(at) = ahead.pop() {
                let down = |c: &CableId| {
                    let cable = &topo.cables()[c.0 as usize];
                    cable.b == Node::Switch(at) && !tree.is_ring(c.up())
                };
                for cable in topo.cables_of(Node::Switch(at)).filter(down) {
                    match topo.cables()[cable.0 as usize].a {
                        Node::Host(h) => _ = below.insert(h),
                        Node::Switch(s) => ahead.push(s),
                    }
                }
            }
            for host in (0..tree.hosts()).map(HostId) {
                assert_eq!(tree.covers(switch, host), below.contains(&host), "{shape:?}");
                if !tree.covers(switch, host) {
                    continue;
                }
                let (mut at, mut hops) = (Node::Switch(switch), 0);
                while let Node::Switch(s) = at {
                    let (link, to) = tree.down(s, host);
                    assert_eq!((topo.from(link), topo.to(link)), (at, to));
                    (at, hops) = (to, hops + 1);
                }
                assert_eq!((at, hops), (Node::Host(host), tree.level(switch) + 1));
            }
        }
    }
}

#[test]
fn a_line_is_a_ring_without_its_seam_and_a_limit_is_one_of_steps() {
    for shape in SHAPES.into_iter().filter(|s| s.2 > 0) {
        let (ring, _) = tree(shape);
        let line = ring.line();
        assert!(ring.has_rings() && !line.has_rings());
        for switch in (ring.switches_per_level()..ring.switches()).map(SwitchId) {
            let next = ring.ring_next(switch).filter(|_| !ring.seam(switch));
            assert_eq!(line.ring_next(switch), next, "{shape:?} {switch:?}");
            let level = ring.level(switch);
            let dst = (0..ring.hosts()).map(HostId).find(|h| ring.covers(switch, *h)).unwrap();
            for (hops, limit) in (0..4).flat_map(|h| (1..4).map(move |l| (h, l))) {
                let limited = ring.ring_hops_limit(limit);
                let steps = limited.ways(switch, dst, hops).alternates().len() > 0;
                assert_eq!(steps, hops < limit && hops + 1 < ring.members(level), "{shape:?}");
                let steps = line.ways(switch, dst, hops).alternates().len() > 0;
                assert_eq!(steps, next.is_some() && hops + 1 < ring.members(level), "{shape:?}");
            }
        }
    }
}

#[test]
fn a_ring_joins_the_members_of_an_ideal_node_and_has_one_seam() {
    for shape in SHAPES.into_iter().filter(|s| s.2 > 0) {
        let (tree, _) = tree(shape);
        for switch in (tree.switches_per_level()..tree.switches()).map(SwitchId) {
            let (mut at, mut length, mut seams) = (switch, 0, 0);
            loop {
                assert_eq!(
                    (tree.level(at), tree.node(at)),
                    (tree.level(switch), tree.node(switch))
                );
                seams += u32::from(tree.seam(at));
                at = tree.ring_next(at).expect("a ring");
                length += 1;
                if at == switch {
                    break;
                }
            }
            assert_eq!((length, seams), (tree.members(tree.level(switch)), 1), "{shape:?}");
        }
    }
}

#[test]
fn every_way_leads_to_the_destination() {
    for shape in SHAPES {
        let (tree, _) = tree(shape);
        let mut rng = crate::rng::Rng::new(u64::from(shape.0 * 100 + shape.1));
        for _ in 0..2_000 {
            let [src, dst] = [0; 2].map(|_| HostId(rng.below(u64::from(tree.hosts())) as u32));
            let (mut at, mut ring_hops, mut hops) = (tree.leaf(src), 0, 0);
            loop {
                let ways = tree.ways(at, dst, ring_hops);
                let all: Vec<LinkId> = ways.alternates().collect();
                assert_eq!(ways.ring, tree.covers(at, dst));
                assert!(ways.ring || all.contains(&ways.default), "the default is a way up");
                // Mostly an alternate, so that rings are used as far as allowed.
                let pick = if all.is_empty() || rng.chance(0.2) {
                    ways.default
                } else {
                    all[rng.below(all.len() as u64) as usize]
                };
                assert_eq!(tree.from(pick), at);
                ring_hops = if tree.is_ring(pick) { ring_hops + 1 } else { 0 };
                assert!(ring_hops < tree.members(tree.level(at)), "a whole turn");
                hops += 1;
                match tree.to(pick) {
                    Node::Host(h) => {
                        assert_eq!(h, dst, "{shape:?}");
                        break;
                    }
                    Node::Switch(s) => at = s,
                }
            }
            let turn = tree.level_common(src, dst);
            assert!(hops > 2 * turn, "{shape:?}");
        }
    }
}

#[test]
fn oblivious_ways_down_carry_one_destination() {
    let (tree, _) = tree((4, 3, 0));
    let mut of_link = vec![None; tree.links() as usize];
    for (src, dst) in (0..64).flat_map(|s| (0..64).map(move |d| (s, HostId(d)))) {
        let mut at = tree.leaf(HostId(src));
        loop {
            let link = tree.ways(at, dst, 0).default;
            if tree.covers(at, dst) {
                assert_eq!(*of_link[link.0 as usize].get_or_insert(dst), dst);
            }
            match tree.to(link) {
                Node::Host(_) => break,
                Node::Switch(s) => at = s,
            }
        }
    }
}

#[test]
fn wrong_numbers_are_refused_by_name() {
    for (k, n, w, name) in
        [(1, 3, 0, "k = 1"), (4, 1, 0, "n = 1"), (2, 17, 0, "hosts"), (16, 3, 65, "horizontal")]
    {
        let error = KaryNTree::new(k, n, w).expect_err("refused").to_string();
        assert!(error.contains(name), "{error}");
    }
    assert_eq!(KaryNTree::new(2, 16, 0).expect("just fits").hosts(), TREE_HOSTS_MAX);
    let w2 = KaryNTree::new(16, 3, 2).expect("sound");
    let w0 = KaryNTree::new(16, 3, 0).expect("sound");
    // The publication's cost of a width of 2: ten percent more ports.
    assert!((w2.ports_per_host() / w0.ports_per_host() - 1.1).abs() < 1e-9);
}
