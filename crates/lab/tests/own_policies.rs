//! Policies of one's own, as a program outside of this repository adds them.

use crate::common::{cases, run_text, spec};
use srd_core::policy::{Acked, Echo, LinkView, Lost, PathLaw, PathTable, RateLaw};
use srd_core::{Rng, Time};
use srd_lab::{RunResult, check, path_policy_add, rate_policy_add};
use std::sync::Mutex;
use std::sync::Once;

#[path = "../examples/swift.rs"]
#[allow(dead_code, reason = "its main function is not used here")]
mod swift;

const NETWORK: &str = "shape = \"fat-tree\"\nk = 4";
const INCAST: &str = "pattern = \"incast\"\nsenders = 8\nbytes = 400_000";

/// Line rate and a constant window, as the engine's "fixed" has them.
#[derive(Debug)]
struct Window {
    bytes: u64,
    line: u64,
}

impl RateLaw for Window {
    fn rate_bytes_per_sec(&self) -> u64 {
        self.line
    }
    fn inflight_bytes_max(&self, _: &LinkView) -> u64 {
        self.bytes
    }
}

/// What a law was told, over all addresses.
#[derive(Clone, Copy, Debug, Default)]
struct Told {
    echoes: u64,
    marked: u64,
    acked_bytes: u64,
    lost: u64,
    rounds: u64,
    rtt_ns_min: u64,
    path_max: u8,
}

static TOLD: Mutex<Option<Told>> = Mutex::new(None);

#[derive(Debug)]
struct Listener(Window);

impl Listener {
    fn note(note: impl FnOnce(&mut Told)) {
        note(TOLD.lock().unwrap().get_or_insert_default());
    }
}

impl RateLaw for Listener {
    fn rate_bytes_per_sec(&self) -> u64 {
        // More than the line: the engine bounds it.
        u64::MAX
    }
    fn inflight_bytes_max(&self, link: &LinkView) -> u64 {
        self.0.inflight_bytes_max(link)
    }
    fn on_echo(&mut self, link: &LinkView, echo: &Echo) {
        assert!(echo.rtt_ns > 0 && link.rtt_ns_smoothed >= link.rtt_ns_min);
        assert!(link.rtt_known && link.now > Time(0));
        Self::note(|t| {
            t.echoes += 1;
            t.marked += u64::from(echo.marked);
            t.path_max = t.path_max.max(echo.path);
            t.rtt_ns_min = link.rtt_ns_min;
        });
    }
    fn on_acked(&mut self, _: &LinkView, acked: &Acked) {
        Self::note(|t| t.acked_bytes += acked.bytes);
    }
    fn on_lost(&mut self, _: &LinkView, lost: &Lost) {
        assert!(lost.bytes > 0);
        Self::note(|t| t.lost += 1);
    }
    fn on_round(&mut self, _: &LinkView, _: &srd_core::policy::RoundView) {
        Self::note(|t| t.rounds += 1);
    }
}

/// Always the same path.
#[derive(Debug)]
struct OnePath(u8);

impl PathLaw for OnePath {
    fn choose(&mut self, _: Time, paths: &dyn PathTable, _: Option<u8>, _: &mut Rng) -> u8 {
        assert!(usize::from(self.0) < paths.paths());
        self.0
    }
}

fn add() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let window = |keys: &mut srd_lab::Parameters<'_>, link: &LinkView| Window {
            bytes: keys.number("bytes", 150_000.0, 4_096.0..=1e9) as u64,
            line: link.line_bytes_per_sec,
        };
        rate_policy_add("window", window);
        rate_policy_add("listener", move |keys, link| Listener(window(keys, link)));
        rate_policy_add("swift", swift::Swift::new);
        path_policy_add("one", |keys, _| OnePath(keys.number("path", 0.0, 0.0..=255.0) as u8));
    });
}

fn run(engine: &str) -> RunResult {
    add();
    run_text(&spec(NETWORK, INCAST, &format!("engine = {{ credits = false, {engine} }}")), 1)
}

#[test]
fn a_law_of_ones_own_sends_what_the_same_law_of_the_engine_sends() {
    let line = 100.0;
    let own = run("rate_policy = \"window\", rate_parameters = { bytes = 60_000 }");
    let fixed = format!("rate_policy = \"fixed\", fixed_gbps = {line:.1}, ");
    let same = run(&(fixed.clone() + "fixed_inflight_bytes = 60_000"));
    assert_eq!((own.hash, own.unfinished()), (same.hash, 0), "the same packets");
    assert_ne!(own.hash, run(&(fixed + "fixed_inflight_bytes = 90_000")).hash);
    assert_ne!(own.hash, run("rate_policy = \"srd\"").hash);
}

#[test]
fn a_law_is_told_of_round_trips_marks_acknowledgments_and_losses() {
    let r = run("rate_policy = \"listener\", rate_parameters = { bytes = 200_000 }");
    let told = TOLD.lock().unwrap().unwrap();
    assert_eq!(r.unfinished(), 0);
    // 8 windows of 200 KB meet at a port with 680 KB: marks and losses.
    // Each loss is followed by a repetition; probes repeat packets as well.
    let again = r.tally.retransmitted;
    assert!(r.drops.total() > 0 && told.lost <= again + 8, "{told:?}, {again}");
    assert!(told.lost >= again / 2, "{told:?}, {again}");
    assert!(told.marked > 0 && told.marked < told.echoes, "{told:?}");
    assert!(told.rounds > 8 && told.path_max > 0, "{told:?}");
    let payload = 8 * 400_000;
    assert!(told.acked_bytes >= payload && told.acked_bytes < payload * 5 / 4, "{told:?}");
    let base_ns = r.base_rtt_ps / 1000;
    // That of small packets, which take less time on each link.
    assert!((base_ns / 2..=base_ns).contains(&told.rtt_ns_min), "{told:?}, {base_ns}");
}

#[test]
fn a_path_law_decides_where_packets_go() {
    add();
    let top = "measure.observe = true\n[engine]\npath_policy = \"one\"\nrate_policy = \"srd\"\n\
               [engine.path_parameters]\npath = 5";
    let pair = "pattern = \"pairs\"\npairs = 1\nbytes = 4_000_000";
    let r = run_text(&spec(NETWORK, pair, top), 1);
    assert_eq!((r.unfinished(), r.drops.total()), (0, 0));
    let paths = &r.observation.as_ref().unwrap().paths;
    let others = paths.iter().sum::<u64>() - paths[5];
    assert!(paths[5] >= r.data_packets, "{paths:?}");
    // Acknowledgments and openings choose their own.
    assert!(others < paths[5], "{paths:?}");
}

#[test]
fn swift_shrinks_where_a_constant_window_overflows() {
    add();
    let long = "pattern = \"incast\"\nsenders = 8\nbytes = 2_000_000";
    let run = |engine: &str| {
        let r =
            run_text(&spec(NETWORK, long, &format!("engine = {{ credits = false, {engine} }}")), 1);
        assert_eq!(r.unfinished(), 0, "{engine}");
        r
    };
    let swift = |us: f64| {
        let keys = format!("rate_parameters = {{ queue_us = {us:.1} }}");
        run(&format!("rate_policy = \"swift\", {keys}"))
    };
    let window = run("rate_policy = \"window\", rate_parameters = { bytes = 170_000 }");
    let (short, long) = (swift(5.0), swift(200.0));
    assert!(short.drops.total() * 4 < window.drops.total(), "{:?}", short.drops);
    // A longer queue is tolerated if the spec says so.
    assert_ne!(short.hash, long.hash);
    assert!(short.marked < long.marked, "{} {}", short.marked, long.marked);
    // 16 MB over one link, and not much more.
    assert!(short.summary.over_floor.max < 1.5, "{:?}", short.summary);
}

#[test]
fn what_makes_no_sense_is_refused_by_name() {
    add();
    for (engine, words) in [
        ("rate_policy = \"swft\"", ["\"swft\" is not one of srd, fixed", "swift"]),
        ("path_policy = \"two\"", ["srd, oblivious, ecmp, rtt-p2c", "one"]),
        (
            "rate_policy = \"window\", rate_parameters = { byte = 3 }",
            ["byte is no parameter", "bytes"],
        ),
        (
            "rate_policy = \"window\", rate_parameters = { bytes = 3 }",
            ["bytes = 3: give a number", "4096"],
        ),
        ("rate_parameters = { bytes = 3 }", ["engine.rate_parameters.bytes", "leave the table"]),
    ] {
        let text = spec(NETWORK, INCAST, &format!("engine = {{ {engine} }}"));
        let e = check(&cases(&text)[0]).unwrap_err();
        assert!(words.iter().all(|w| e.contains(w)), "{engine}: {e}");
    }
}
