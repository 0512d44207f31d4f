//! Names of constants, and the arithmetic of link rates.

use libc::{c_char, c_int};
use std::ffi::CStr;

/// The name with that number, else the last one.
fn pick(names: &[&'static CStr], number: c_int) -> *const c_char {
    let last = names.len() - 1;
    names[usize::try_from(number).map_or(last, |n| n.min(last))].as_ptr()
}

#[unsafe(no_mangle)]
pub extern "C" fn ibv_wc_status_str(status: c_int) -> *const c_char {
    const NAMES: [&CStr; 24] = [
        c"success",
        c"local length error",
        c"local QP operation error",
        c"local EE context operation error",
        c"local protection error",
        c"request flushed",
        c"memory window bind error",
        c"bad response",
        c"local access error",
        c"remote invalid request",
        c"remote access error",
        c"remote operation error",
        c"transport retries exhausted",
        c"RNR retries exhausted",
        c"local RDD violation",
        c"remote invalid read request",
        c"remote abort",
        c"invalid EE context number",
        c"invalid EE context state",
        c"fatal error",
        c"response timeout",
        c"general error",
        c"tag matching error",
        c"unknown status",
    ];
    pick(&NAMES, status)
}

#[unsafe(no_mangle)]
pub extern "C" fn ibv_event_type_str(event: c_int) -> *const c_char {
    const NAMES: [&CStr; 21] = [
        c"completion queue error",
        c"queue pair fatal error",
        c"queue pair request error",
        c"queue pair access error",
        c"communication established",
        c"send queue drained",
        c"path migrated",
        c"path migration failed",
        c"device fatal error",
        c"port active",
        c"port error",
        c"LID changed",
        c"partition keys changed",
        c"subnet manager changed",
        c"shared receive queue error",
        c"shared receive queue limit reached",
        c"last receive of a queue pair reached",
        c"client reregistration",
        c"GIDs changed",
        c"work queue fatal error",
        c"unknown event",
    ];
    pick(&NAMES, event)
}

#[unsafe(no_mangle)]
pub extern "C" fn ibv_node_type_str(node: c_int) -> *const c_char {
    const NAMES: [&CStr; 9] = [
        c"unknown",
        c"InfiniBand channel adapter",
        c"InfiniBand switch",
        c"InfiniBand router",
        c"iWARP NIC",
        c"usNIC",
        c"usNIC UDP",
        c"unspecified",
        c"unknown",
    ];
    pick(&NAMES, node)
}

#[unsafe(no_mangle)]
pub extern "C" fn ibv_port_state_str(state: c_int) -> *const c_char {
    const NAMES: [&CStr; 7] = [
        c"no state change (NOP)",
        c"down",
        c"init",
        c"armed",
        c"active",
        c"active deferred",
        c"invalid state",
    ];
    pick(&NAMES, state)
}

/// `enum ibv_rate`: number, multiple of 2.5 Gb/s (-1 = none), megabits per second.
const RATES: [(c_int, c_int, c_int); 18] = [
    (2, 1, 2_500),
    (3, 4, 10_000),
    (4, 12, 30_000),
    (5, 2, 5_000),
    (6, 8, 20_000),
    (7, 16, 40_000),
    (8, 24, 60_000),
    (9, 32, 80_000),
    (10, 48, 120_000),
    (11, -1, 14_062),
    (12, -1, 56_250),
    (13, -1, 112_500),
    (14, -1, 168_750),
    (15, -1, 25_781),
    (16, -1, 103_125),
    (17, -1, 206_250),
    (18, -1, 309_375),
    (19, 11, 28_125),
];
/// Rate code 0: the port's rate.
const RATE_MAX: c_int = 0;

fn rate(find: impl Fn(&(c_int, c_int, c_int)) -> bool) -> Option<(c_int, c_int, c_int)> {
    RATES.iter().copied().find(find)
}

#[unsafe(no_mangle)]
pub extern "C" fn ibv_rate_to_mult(number: c_int) -> c_int {
    rate(|r| r.0 == number).map_or(-1, |r| r.1)
}

#[unsafe(no_mangle)]
pub extern "C" fn mult_to_ibv_rate(mult: c_int) -> c_int {
    rate(|r| r.1 == mult && mult > 0).map_or(RATE_MAX, |r| r.0)
}

#[unsafe(no_mangle)]
pub extern "C" fn ibv_rate_to_mbps(number: c_int) -> c_int {
    rate(|r| r.0 == number).map_or(-1, |r| r.2)
}

#[unsafe(no_mangle)]
pub extern "C" fn mbps_to_ibv_rate(mbps: c_int) -> c_int {
    rate(|r| r.2 == mbps).map_or(RATE_MAX, |r| r.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(p: *const c_char) -> &'static str {
        // SAFETY: the names above end with zero and live for ever.
        unsafe { CStr::from_ptr(p) }.to_str().unwrap()
    }

    #[test]
    fn names_stand_at_their_numbers_and_nothing_is_out_of_bounds() {
        assert_eq!(text(ibv_wc_status_str(13)), "RNR retries exhausted");
        assert_eq!(text(ibv_wc_status_str(20)), "response timeout");
        assert_eq!(text(ibv_wc_status_str(-1)), "unknown status");
        assert_eq!(text(ibv_wc_status_str(999)), "unknown status");
        assert_eq!(text(ibv_event_type_str(5)), "send queue drained");
        assert_eq!(text(ibv_port_state_str(4)), "active");
    }

    #[test]
    fn rates_go_both_ways() {
        for (number, mult, mbps) in RATES {
            assert_eq!(mbps_to_ibv_rate(ibv_rate_to_mbps(number)), number, "{mbps}");
            if mult > 0 {
                assert_eq!(mult_to_ibv_rate(mult), number);
            }
        }
        assert_eq!((ibv_rate_to_mult(99), mult_to_ibv_rate(-1)), (-1, RATE_MAX));
    }
}
