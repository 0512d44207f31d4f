use super::*;
use crate::assign::{Rate, optimal};
use crate::weight::{LinkWeights, Paths};
use srd_fabric::Rng;
use std::collections::BTreeSet;

const TIMEOUT: Ps = 100;

/// Announces and confirms a flow; both events are answered with `value`, so that the flow runs.
fn started(flow: &mut FlowControl, numbers: &mut Numbers, value: u64) {
    let first = flow.announce(0, numbers);
    assert_eq!(flow.answer(&Control { event: Event::Answer, value, ..first }), Some(value));
    let again = flow.confirm(0, numbers).expect("it was told a rate");
    assert_eq!(flow.answer(&Control { event: Event::Answer, value, ..again }), Some(value));
    assert_eq!(flow.state(), State::Running);
}

#[test]
fn packets_are_sixteen_bytes_and_come_back_as_they_were() {
    for event in [Event::Announce, Event::Probe, Event::Withdraw, Event::Answer] {
        let control = Control {
            event,
            flow: FLOW_MAX - 5,
            number: 0x0102_0304,
            value: 0x0506_0708_090A_0B0C,
        };
        let bytes = control.encode();
        assert_eq!(bytes.len(), 16);
        assert_eq!(Control::decode(&bytes), Ok(control));
    }
    for first in [0, 5, 255] {
        assert_eq!(Control::decode(&[first; 16]), Err(NotControl));
    }
}

#[test]
fn what_is_not_answered_is_repeated_with_its_number_and_ever_more_rarely() {
    let mut numbers = Numbers::default();
    let mut flow = FlowControl::new(7, 64, 4, TIMEOUT);
    assert_eq!(flow.due(), Ps::MAX);
    let first = flow.announce(1_000, &mut numbers);
    let mut gaps = Vec::new();
    let mut now = 1_000;
    for _ in 0..9 {
        gaps.push(flow.due() - now);
        now = flow.due();
        assert_eq!(flow.repeat(now), first, "the same packet");
    }
    assert_eq!(gaps, [100, 200, 400, 800, 1_600, 3_200, 6_400, 6_400, 6_400]);
    let answer = Control { event: Event::Answer, value: 128, ..first };
    assert_eq!(flow.answer(&answer), Some(128));
    assert_eq!(flow.answer(&answer), None, "an answer counts once");
    assert_eq!((flow.state(), flow.due()), (State::Told, Ps::MAX));
    let again = flow.confirm(now, &mut numbers).expect("it was told a rate");
    assert_eq!((again.event, again.value, flow.due()), (Event::Probe, 0, now + 100));
    now = flow.due();
    assert_eq!(flow.repeat(now), again, "the flow waits for it, so it is repeated as well");
    assert_eq!(flow.answer(&answer), None, "not what it asked for");
    assert_eq!(flow.answer(&Control { event: Event::Answer, value: 192, ..again }), Some(192));
    assert_eq!((flow.state(), flow.due()), (State::Running, Ps::MAX));
    assert_eq!(flow.confirm(now, &mut numbers), None, "once");
    let last = flow.withdraw(now, &mut numbers);
    assert!(last.number > first.number && last.value == 64);
    assert_eq!(flow.answer(&Control { event: Event::Answer, value: 0, ..first }), None);
    assert_eq!(flow.state(), State::Withdrawn, "an old answer ends nothing");
    flow.answer(&Control { event: Event::Answer, value: 0, ..last });
    assert_eq!(flow.state(), State::Ended);
    assert_eq!((flow.counters().events, flow.counters().repeated), (3, 10));
}

#[test]
fn the_first_data_packet_probes_and_then_every_nth() {
    let mut numbers = Numbers::default();
    let mut flow = FlowControl::new(0, 1, 4, TIMEOUT);
    assert_eq!(flow.probe(&mut numbers), None, "no rate yet, no data");
    started(&mut flow, &mut numbers, 1);
    let probes: Vec<bool> = (0..9).map(|_| flow.probe(&mut numbers).is_some()).collect();
    assert_eq!(probes, [true, false, false, false, true, false, false, false, true]);
}

#[test]
fn answers_of_probes_that_overtake_each_other_do_not_turn_time_back() {
    let mut numbers = Numbers::default();
    let mut flow = FlowControl::new(0, 1, 1, TIMEOUT);
    started(&mut flow, &mut numbers, 1);
    let a = flow.probe(&mut numbers).expect("every packet probes");
    let b = flow.probe(&mut numbers).expect("every packet probes");
    assert_eq!(flow.answer(&Control { event: Event::Answer, value: 9, ..b }), Some(9));
    assert_eq!(flow.answer(&Control { event: Event::Answer, value: 5, ..a }), None);
}

/// A network of links that count numbers and lose any control packet between any two links.
struct Net {
    weights: LinkWeights,
    counted: Vec<BTreeSet<(usize, u32)>>,
    loss: f64,
    rng: Rng,
}

impl Net {
    /// Sends a control packet; returns the answer if both arrive.
    fn send(&mut self, flow: usize, control: Control, links: &[u32]) -> Option<Control> {
        for link in links {
            if self.rng.chance(self.loss) {
                return None;
            }
            if self.counted[*link as usize].insert((flow, control.number)) {
                match control.event {
                    Event::Announce => self.weights.add(&[*link], control.value),
                    Event::Withdraw => self.weights.remove(&[*link], control.value),
                    Event::Probe | Event::Answer => {}
                }
            }
        }
        let value = self.weights.most_on(links);
        let answer = Control { event: Event::Answer, value, ..control };
        (!self.rng.chance(self.loss)).then_some(answer)
    }
}

/// Sends an event until it is answered; returns the number of transmissions.
fn until_answered(
    net: &mut Net,
    (f, flow): (usize, &mut FlowControl),
    first: Control,
    links: &[u32],
) -> (u32, Option<u64>) {
    let (mut tries, mut control) = (1, first);
    loop {
        if let Some(answer) = net.send(f, control, links) {
            return (tries, flow.answer(&answer));
        }
        tries += 1;
        assert!(tries < 10_000, "one in some hundred arrives");
        control = flow.repeat(flow.due());
    }
}

#[test]
fn distributed_is_optimal_after_one_probe_and_weights_go_back_to_nothing() {
    for seed in 0..400 {
        let mut rng = Rng::stream(seed, 2, 0);
        let loss = [0.0, 0.02, 0.3][rng.below(3) as usize];
        let mut paths = Paths::new();
        for _ in 0..rng.range(1, 30) {
            let mut links: Vec<u32> = (0..20).collect();
            rng.shuffle(&mut links);
            paths.push(rng.range(1, 100), &links[..rng.range(1, 6) as usize]);
        }
        let mut net = Net {
            weights: LinkWeights::new(20),
            counted: vec![BTreeSet::new(); 20],
            loss,
            rng: rng.clone(),
        };
        let n = paths.len();
        let (mut numbers, mut repeated) = (vec![Numbers::default(); n], 0);
        let mut flows: Vec<FlowControl> =
            (0..n).map(|f| FlowControl::new(f as u32, paths.weight(f), 1, TIMEOUT)).collect();
        for f in 0..n {
            let first = flows[f].announce(0, &mut numbers[f]);
            let (tries, rate) = until_answered(&mut net, (f, &mut flows[f]), first, paths.links(f));
            let rate = rate.and_then(|most| Rate::new(paths.weight(f), most));
            assert!(rate.is_some(), "seed {seed}: the first answer gives a rate");
            repeated += u64::from(tries) - 1;
        }
        let optimal = optimal(&paths);
        for f in 0..n {
            let again = flows[f].confirm(0, &mut numbers[f]).expect("it was told a rate");
            let (tries, most) = until_answered(&mut net, (f, &mut flows[f]), again, paths.links(f));
            let rate = most.and_then(|most| Rate::new(paths.weight(f), most));
            assert_eq!(rate, Some(optimal.rates[f]), "seed {seed}, flow {f}, loss {loss}");
            repeated += u64::from(tries) - 1;
        }
        for f in 0..n {
            // A lost probe is not retransmitted: the probe of the next data packet replaces it.
            let most = loop {
                let probe = flows[f].probe(&mut numbers[f]).expect("every packet probes");
                if let Some(answer) = net.send(f, probe, paths.links(f)) {
                    break flows[f].answer(&answer).expect("a later answer counts");
                }
            };
            let rate = Rate::new(paths.weight(f), most);
            assert_eq!(rate, Some(optimal.rates[f]), "seed {seed}, flow {f}, loss {loss}");
        }
        for f in 0..n {
            let last = flows[f].withdraw(0, &mut numbers[f]);
            let (tries, _) = until_answered(&mut net, (f, &mut flows[f]), last, paths.links(f));
            repeated += u64::from(tries) - 1;
            assert_eq!(flows[f].state(), State::Ended);
        }
        assert_eq!(net.weights.largest(), 0, "seed {seed}, loss {loss}");
        let counted = flows.iter().map(|f| f.counters().repeated).sum::<u64>();
        assert_eq!(counted, repeated, "seed {seed}");
        assert!(loss < 0.3 || n < 5 || repeated > 0, "seed {seed}: losses were met");
    }
}
