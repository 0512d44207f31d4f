use super::*;

#[test]
fn a_share_of_the_seeds_is_sealed_and_each_kind_of_world_comes() {
    let plans: Vec<Plan> = (0..20_000).filter_map(draw).collect();
    let share = plans.len() as u64 * SEALED_EACH;
    assert!((16_000..24_000).contains(&share), "{} of 20,000", plans.len());
    let count = |f: &dyn Fn(&Plan) -> bool| plans.iter().filter(|p| f(p)).count();
    assert!(count(&|p| p.rotation.is_some()) > 20);
    assert!(count(&|p| !p.restarts.is_empty()) > 20);
    assert!(count(&|p| p.liar) > 10 && count(&|p| p.odd != Odd::None) > 10);
    assert!(count(&|p| p.policies.contains(&Policy::Never)) > 10);
    for answers in [[1, 0], [3, 0], [3, 2]] {
        assert!(count(&|p| p.answers_lost == answers) > 3, "{answers:?}");
    }
    assert!(count(&|p| p.rotation.is_some() && p.answers_lost[0] > 0) > 3);
    for threat in Threat::ALL {
        assert!(count(&|p| p.threats.contains(&threat)) > 50, "{threat:?}");
    }
}

#[test]
fn no_seed_of_the_corpus_has_become_another_world() {
    let all = crate::corpus::parse(crate::corpus::BUILT_IN).unwrap();
    let named = |e: &crate::corpus::Entry| e.story.starts_with("Sealed");
    let moved = all.iter().filter(|e| draw(e.seed).is_some() && !named(e)).count();
    assert_eq!(moved, 0);
}

/// What the oracles look for is there, and they see it.
#[test]
fn a_nonce_that_comes_twice_and_payload_that_shows_are_seen() {
    use super::member::{Left, content, salt_of};
    use super::network::Network;
    let plan = (0..).filter_map(draw).find(|p| p.policies == vec![Policy::Require; p.members]);
    let plan = plan.expect("most worlds are like that");
    let dst = super::member::Member::new(&plan, 1, 1, 0, 1_000).at;
    let text: Vec<u8> = (0..64).map(|at| content(salt_of(3), at)).collect();
    let sealed: Vec<u8> = text.iter().map(|b| b ^ 0x5a).collect();
    let left = |number: u8, sealed: &[u8]| {
        let mut bytes = sealed.to_vec();
        (bytes[0], bytes[1]) = (0x2f, srd_core::wire::Flags::SEALED);
        bytes[4..12].copy_from_slice(&[9, 9, 9, 9, 0, 0, 0, number]);
        Left { dst, bytes, job: None, text: Some(text.clone()), slot: None }
    };
    let wrong = |all: &[Left]| {
        let mut network = Network::default();
        all.iter().for_each(|l| network.leave(&plan, (0, 0), Some(1), l, 1_000));
        network.wrong.map(|w| w.0)
    };
    assert_eq!(wrong(&[left(1, &sealed)]), None);
    assert_eq!(wrong(&[left(1, &sealed), left(2, &sealed)]), Some(Oracle::Nonce));
    assert_eq!(wrong(&[left(1, &text)]), Some(Oracle::Secrecy));
    let mut bare = left(1, &sealed);
    bare.bytes[1] = 0;
    assert_eq!(wrong(&[bare]), Some(Oracle::Secrecy));
}
