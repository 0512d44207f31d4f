use super::*;

/// A plan of three members that all require a seal, without threats.
pub(in crate::sealed) fn calm() -> Plan {
    let all = |p: &Plan| p.members == 3 && !p.shared && p.odd == Odd::None;
    let plan = (0..).filter_map(draw).find(all).expect("most worlds have some members");
    Plan {
        policies: vec![Policy::Require; 3],
        threats: Vec::new(),
        rotation: None,
        answers_lost: [0, 0],
        answers_lost_ns: None,
        loss: 0,
        ..plan
    }
}

#[test]
fn who_can_have_a_context_follows_from_policies_and_keys() {
    use Policy::{Never, Prefer, Require};
    let meet = |policies: [Policy; 3], odd: Odd, a, b| {
        let plan = Plan { policies: policies.to_vec(), odd, ..calm() };
        assert_eq!(plan.can_meet(a, b), plan.can_meet(b, a), "both ways: {policies:?} {odd:?}");
        plan.can_meet(a, b)
    };
    assert!(meet([Require; 3], Odd::None, 0, 1) && meet([Prefer, Never, Require], Odd::None, 0, 1));
    assert!(!meet([Require, Never, Prefer], Odd::None, 0, 1), "one must, the other cannot");
    assert!(meet([Never; 3], Odd::None, 0, 1));
    for odd in [Odd::Key, Odd::Number] {
        assert!(!meet([Require; 3], odd, 0, 2), "another key: {odd:?}");
        assert!(meet([Require; 3], odd, 0, 1) && meet([Require; 3], odd, 2, 2));
        assert!(meet([Never, Prefer, Prefer], odd, 0, 2), "nobody needs a key: {odd:?}");
    }
}

#[test]
fn what_must_be_hidden_follows_from_policies_and_threats() {
    use Policy::{Never, Prefer, Require};
    let plan = |policies: [Policy; 3], threats: &[Threat]| Plan {
        policies: policies.to_vec(),
        threats: threats.to_vec(),
        ..calm()
    };
    let strangers = [Threat::Reset];
    let required = plan([Require, Prefer, Never], &strangers);
    assert!(required.hides(0, Some(1)) && required.hides(0, None));
    assert!(!required.hides(1, Some(0)), "who prefers a seal may be told that there is no key");
    assert!(required.is_guarded(0, 1) && required.is_guarded(1, 0) && !required.is_guarded(1, 2));
    let alone = plan([Prefer, Prefer, Never], &[]);
    assert!(alone.hides(0, Some(1)), "nobody is there who could say so");
    assert!(!alone.hides(0, Some(2)) && !alone.hides(2, Some(0)) && !alone.hides(0, None));
    assert!(alone.is_guarded(0, 1));
}

#[test]
fn keys_are_retired_when_contexts_have_rested_or_were_renewed() {
    let changed = Plan { rotation: Some([1_000, 2_000, 3_000]), renews: false, ..calm() };
    let rested = changed.rounds_ns().next().unwrap();
    assert!(!changed.is_retired(1_999, rested - 1) && changed.is_retired(1_999, rested));
    assert!(!changed.is_retired(2_000, u64::MAX), "made with the new key");
    let renewed = Plan { renews: true, ..changed.clone() };
    let soon = 3_000 + 20_000 * 3 + RENEWED_NS;
    assert!(!renewed.is_retired(1_999, soon - 1) && renewed.is_retired(1_999, soon));
    let lossy = Plan { loss: 10, ..renewed };
    let late = lossy.is_retired(1_999, rested - 1);
    assert!(!late && lossy.is_retired(1_999, rested), "with loss only those that rest are renewed");
    assert!(!calm().is_retired(0, u64::MAX), "no key was removed");
}

#[test]
fn rounds_follow_each_other_after_the_attacks() {
    let plan = Plan { restarts: Vec::new(), ..calm() };
    let rounds: Vec<u64> = plan.rounds_ns().collect();
    assert_eq!(rounds.len() as u64, ROUNDS);
    assert!(rounds[0] >= plan.calm_ns() + 2 * SILENCE_NS, "who was given up is forgotten");
    assert!(rounds.windows(2).all(|w| w[1] - w[0] >= SILENCE_NS));
    assert_eq!(plan.last_ns(), rounds[2]);
    assert!(plan.end_ns() > plan.last_ns() + SILENCE_NS, "time for the last answers");
    let restarted = Plan { restarts: vec![(5, 0)], ..plan };
    assert!(restarted.rounds_ns().next().unwrap() >= rounds[0] + limits::DOUBT_EVERY.0);
}

#[test]
fn the_last_two_engines_share_a_host_where_the_plan_says_so() {
    let places = |shared| {
        let plan = Plan { shared, ..calm() };
        (0..3).map(|id| plan.place(id)).collect::<Vec<_>>()
    };
    assert_eq!(places(false), [(0, 0), (1, 0), (2, 0)]);
    assert_eq!(places(true), [(0, 0), (1, 0), (1, 7)]);
}
