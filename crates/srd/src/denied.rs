//! Which refused peers the user is told of: anybody can cause a refusal, as often as he likes.

use srd_core::{CloseCode, Span, Time};
use std::{collections::VecDeque, net::IpAddr};

/// Least time between two that are told.
const EVERY: Span = Span::from_secs(1);
/// Least time until the same is told again of an address, so that one that goes on does not hide
/// others.
const AGAIN: Span = Span::from_secs(60);

/// The refusals told lately, the oldest first: no more than one for each [`EVERY`] in [`AGAIN`].
#[derive(Debug, Default)]
pub(crate) struct Denied(VecDeque<((IpAddr, CloseCode), Time)>);

impl Denied {
    /// Whether the user is to be told that `ip` is refused now for the reason `code`.
    pub(crate) fn tell(&mut self, now: Time, ip: IpAddr, code: CloseCode) -> bool {
        if self.0.back().is_some_and(|&(_, at)| now.since(at) < EVERY) {
            return false;
        }
        while self.0.front().is_some_and(|&(_, at)| now.since(at) >= AGAIN) {
            self.0.pop_front();
        }
        let told = self.0.iter().any(|&(known, _)| known == (ip, code));
        if !told {
            self.0.push_back(((ip, code), now));
        }
        !told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: CloseCode = CloseCode::KeyUnknown;

    #[test]
    fn an_address_is_told_once_for_each_reason() {
        let (mut denied, ip) = (Denied::default(), IpAddr::from([10, 0, 0, 1]));
        let codes = [KEY, CloseCode::SealRequired, KEY, CloseCode::SealRequired];
        let told = (0..4).map(|i| denied.tell(Time(0) + Span::from_secs(i), ip, codes[i as usize]));
        assert_eq!(told.collect::<Vec<_>>(), [true, true, false, false]);
    }

    #[test]
    fn one_that_goes_on_is_told_rarely_and_hides_nobody() {
        let (flooder, other) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let mut denied = Denied::default();
        let mut told = Vec::new();
        for ms in 0..100_000 {
            let now = Time(0) + Span::from_ms(ms);
            if denied.tell(now, flooder, KEY) {
                told.push((ms, 1));
            }
            if ms >= 500 && ms % 700 == 0 && denied.tell(now, other, KEY) {
                told.push((ms, 2));
            }
        }
        assert_eq!(told, [(0, 1), (1400, 2), (60_000, 1), (61_600, 2)]);
    }

    #[test]
    fn many_are_told_one_each_second_and_few_are_remembered() {
        let mut denied = Denied::default();
        let tells = (0..1_000_000u32).filter(|&i| {
            let now = Time(0) + Span::from_ms(u64::from(i));
            denied.tell(now, IpAddr::from(i.to_be_bytes()), KEY)
        });
        assert_eq!(tells.count(), 1000);
        assert_eq!(denied.0.len(), 60);
    }
}
