//! The fault checker's worlds, with the choices of a byte string: hosts, knobs, faults, work.
//! Whatever they are, every promise is kept.
#![no_main]

use libfuzzer_sys::fuzz_target;
use srd_check::{Options, Scenario, run};

fuzz_target!(|bytes: &[u8]| {
    let outcome = run(&Scenario::from_bytes(bytes), Options::default());
    assert_eq!(outcome.violation, None);
});
