use super::*;
use crate::crowd::draw;

/// The first plan of this kind.
fn plan(fits: impl Fn(&Plan) -> bool) -> Plan {
    let mut plans = (0..).filter_map(|seed| draw(seed, u64::MAX));
    plans.find(fits).expect("plans of every kind are drawn")
}

/// What was measured of a plan whose senders have equal parts of `percent` of `rate`.
fn equal(plan: &Plan, rate: u64, percent: u64) -> Measured {
    let (n, ns) = (plan.senders() as u64, 1_000_000_000);
    let packet = plan.mtu() + wire::OVERHEAD_BYTES as u64;
    let payload = rate / 100 * percent / packet * plan.mtu();
    Measured { ns, delivered: vec![payload / n; n as usize], offered: 1_000_000, dropped: 0 }
}

fn oracle(plan: &Plan, measured: &[Measured]) -> Option<Oracle> {
    check(plan, measured).map(|v| v.0)
}

#[test]
fn losses_that_go_on_are_noticed() {
    for limit in [false, true] {
        let fits = |p: &Plan| {
            matches!(p.kind, Kind::Buffer { .. } | Kind::Policer { .. }) && p.is_limit() == limit
        };
        let plan = plan(fits);
        let usual = equal(&plan, plan.rate, 95);
        assert_eq!(oracle(&plan, core::slice::from_ref(&usual)), None);
        let most = if limit { LOST_LIMIT_PERMILLE } else { LOST_BUFFER_PERMILLE };
        let lost = |permille: u64| Measured { dropped: 1000 * permille, ..usual.clone() };
        assert_eq!(oracle(&plan, &[lost(most)]), None);
        assert_eq!(oracle(&plan, &[lost(most + 1)]), Some(Oracle::Loss));
    }
}

#[test]
fn who_starves_and_what_lies_idle_is_noticed() {
    let long = |p: &Plan| matches!(p.kind, Kind::Buffer { .. }) && !p.is_limit();
    let plan = plan(|p| long(p) && !p.is_unequal() && (8..40).contains(&p.senders()));
    let usual = equal(&plan, plan.rate, 95);
    let mut starved = usual.clone();
    starved.delivered[3] /= 20;
    assert_eq!(oracle(&plan, &[starved]), Some(Oracle::Fair));
    let mut unequal = usual.clone();
    let n = unequal.delivered.len();
    unequal.delivered[..n / 4].iter_mut().for_each(|d| *d *= 5);
    assert!(unequal.least_percent() > plan.least_percent(), "nobody starves");
    assert_eq!(oracle(&plan, &[unequal]), Some(Oracle::Fair));
    let idle = equal(&plan, plan.rate, USED_BUFFER_PERCENT - 2);
    assert_eq!(oracle(&plan, &[idle]), Some(Oracle::Used));
    assert_eq!(oracle(&plan, &[]), Some(Oracle::Counters));
}

#[test]
fn marks_that_slow_nobody_and_rates_that_stay_low_are_noticed() {
    let plan = plan(|p| p.kind == Kind::Marks);
    let after = equal(&plan, plan.rate, 90);
    let burst =
        u64::from(plan.config.rate.burst_bytes) * 1_000_000_000 / plan.trip_ns(plan.senders() - 1);
    let slow = equal(&plan, burst, 100);
    assert_eq!(oracle(&plan, &[slow.clone(), after.clone()]), None);
    assert_eq!(oracle(&plan, &[after.clone(), after]), Some(Oracle::Marks));
    assert_eq!(oracle(&plan, &[slow.clone(), slow.clone()]), Some(Oracle::Used));
    assert_eq!(oracle(&plan, &[slow]), Some(Oracle::Counters));
}

#[test]
fn a_limit_that_is_gone_and_a_bad_link_have_to_be_used() {
    let lifted = plan(|p| matches!(p.kind, Kind::Lifted { .. }));
    let before = equal(&lifted, lifted.rate, 95);
    let after = |percent| equal(&lifted, 4 * lifted.rate, percent);
    assert_eq!(oracle(&lifted, &[before.clone(), after(90)]), None);
    assert_eq!(oracle(&lifted, &[before, after(25)]), Some(Oracle::Used));
    let bad = plan(|p| matches!(p.kind, Kind::BadLink { permille: 150 }));
    assert_eq!(oracle(&bad, &[equal(&bad, bad.rate, 80)]), None);
    assert_eq!(oracle(&bad, &[equal(&bad, bad.rate, 30)]), Some(Oracle::Used));
}
