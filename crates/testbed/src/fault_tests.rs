//! Interprets the packet filter of a fault as the kernel would, and checks the places of faults.

use super::*;

/// Return value of a classic BPF program; `random` is the kernel's random number.
fn run(program: &str, random: u32) -> u32 {
    let mut parts = program.split(',');
    let count: usize = parts.next().unwrap().parse().unwrap();
    let code: Vec<[u32; 4]> = parts
        .map(|p| {
            let words: Vec<u32> = p.split(' ').map(|w| w.parse().unwrap()).collect();
            words.try_into().unwrap()
        })
        .collect();
    assert_eq!(code.len(), count, "{program}");
    let (mut at, mut a) = (0, 0);
    loop {
        let [op, jt, jf, k] = code[at];
        at += 1;
        match op {
            // BPF_LD | BPF_W | BPF_ABS at SKF_AD_OFF + SKF_AD_RANDOM.
            0x20 => {
                assert_eq!(k, (-0x1000_i32 + 56) as u32, "{program}");
                a = random;
            }
            // BPF_JMP | BPF_JGE | BPF_K.
            0x35 => at += if a >= k { jt } else { jf } as usize,
            // BPF_RET | BPF_K.
            0x06 => return k,
            other => panic!("{other:#x} in {program}"),
        }
    }
}

const OK: u32 = 0;
const SHOT: u32 = 2;

#[test]
fn the_filter_drops_the_requested_share() {
    for ppm in [1, 1000, 10_000, 500_000, 999_999] {
        let program = loss_code(ppm);
        let samples = 100_000_u64;
        // Random numbers that are spread perfectly evenly.
        let spread = (0..samples).map(|i| (i * (1 << 32) / samples) as u32);
        let lost = spread.filter(|r| run(&program, *r) == SHOT).count() as f64;
        let share = lost / samples as f64 * 1e6;
        assert!((share - f64::from(ppm)).abs() <= 10.0, "{share} instead of {ppm}");
        assert_eq!(run(&program, 0), SHOT);
        assert_eq!(run(&program, u32::MAX), OK);
    }
}

#[test]
fn shares_of_0_and_1_are_exact() {
    for random in [0, 1, 1 << 31, u32::MAX] {
        assert_eq!(run(&loss_code(0), random), OK, "{random}");
        assert_eq!(run(&loss_code(1_000_000), random), SHOT, "{random}");
        assert_eq!(run(&loss_code(u32::MAX), random), SHOT, "{random}");
    }
}

#[test]
fn each_packet_passes_one_filter() {
    // Through a faulty spine, each packet enters the spine once, from any leaf.
    for leaf in 0..3 {
        let ends = Place::Spine(1).lossy_ends(leaf, 1);
        assert_eq!(ends, [(Node::Spine(1), format!("d{leaf}"))]);
    }
    // Over a faulty link, each packet enters one of the two ends, in either direction.
    let ends = Place::Link { leaf: 2, spine: 1 }.lossy_ends(2, 1);
    assert_eq!(ends, [(Node::Leaf(2), "up1".into()), (Node::Spine(1), "d2".into())]);
}

#[test]
fn cable_ends_belong_to_the_rail() {
    let dev = |rail| cable_ends((1, 3), rail).map(|(node, dev)| format!("{node} {dev}"));
    assert_eq!(dev(0), ["l1 dn3", "h1x3 e0"]);
    assert_eq!(dev(2), ["l1 dn3r2", "h1x3 e2"]);
}

#[test]
fn cable_ends_are_in_the_plan() {
    let spec = crate::spec::FabricSpec { rails: 3, ..Default::default() };
    let cables = plan::cables(&spec);
    for rail in 0..spec.rails {
        for (node, dev) in cable_ends((0, 1), rail) {
            let here = |c: &plan::Cable| {
                [&c.leaf, &c.far].iter().any(|e| e.node == node && e.dev == dev && e.rail == rail)
            };
            assert!(cables.iter().any(here), "{node} {dev}");
        }
    }
    for (node, dev) in ends(1, 3) {
        let here =
            |c: &plan::Cable| [&c.leaf, &c.far].iter().any(|e| e.node == node && e.dev == dev);
        assert!(cables.iter().any(here), "{node} {dev}");
    }
}
