use super::cubic::{Cubic, cube_root};
use super::*;
use srd_fabric::{MS, SEC, US};

fn ack(now: Ps, una: u64, next: u64, acked: u32, rtt: Ps) -> AckInfo {
    AckInfo {
        now,
        una,
        next,
        acked,
        rtt: Some(rtt),
        srtt: rtt,
        burst_ps: 0,
        ece: false,
        growth: 0.0,
    }
}

#[test]
fn the_cube_root_is_one() {
    for x in [1e-12, 0.001, 0.5, 1.0, 2.0, 27.0, 1e6, 123_456.789, 3e12] {
        let y = cube_root(x);
        assert!((y * y * y / x - 1.0).abs() < 1e-14, "{x}: {y}");
    }
    assert_eq!((cube_root(0.0), cube_root(-1.0)), (0.0, 0.0));
}

#[test]
fn after_a_loss_the_window_is_the_cubic_of_time() {
    // W(t) = 0.4 (t - K)^3 + 1000 with K = (1000 * 0.3 / 0.4)^(1/3) = 9.086 s; a round trip of 500
    // ms keeps W_est below it.
    let rtt = 500 * MS;
    let mut cubic = Cubic::default();
    let mut window = Window { size: 1000, threshold: INFINITE, count: 0 };
    window.size = cubic.reduce(1000);
    window.threshold = window.size;
    assert_eq!(window.size, 700);
    let k = (1000.0 * 0.3 / 0.4f64).cbrt();
    let mut now = 0;
    while now < 14 * SEC {
        // The acks of one round, evenly spread over it.
        for i in 0..window.size {
            let at = now + rtt * Ps::from(i) / Ps::from(window.size);
            let every = cubic.every(at, rtt, window.size, 1);
            window.add(every, 1);
        }
        now += rtt;
        let t = now as f64 / SEC as f64;
        let model = 0.4 * (t - k).powi(3) + 1000.0;
        let error = f64::from(window.size) / model - 1.0;
        assert!(error.abs() < 0.02, "t {t}: {} model {model}", window.size);
    }
    assert!(window.size > 1040, "past the plateau it grows again: {}", window.size);
}

#[test]
fn a_window_that_did_not_recover_makes_room() {
    let mut cubic = Cubic::default();
    assert_eq!(cubic.reduce(1000), 700);
    assert_eq!(cubic.reduce(800), 560);
    // The plateau is now 0.85 * 800 = 680, reached after K = (120 / 0.4)^(1/3) = 6.69 s.
    let at = |s: f64| (s * SEC as f64) as Ps;
    cubic.every(0, MS, 560, 1);
    let every = cubic.every(at(6.69), MS, 680, 1);
    assert!(every > 600, "flat at the plateau: {every}");
}

#[test]
fn before_the_first_loss_cubic_gains_a_twentieth() {
    let mut cubic = Cubic::default();
    assert_eq!(cubic.every(0, 100 * US, 100, 1), 20);
    // After it, at a short round trip, W_est is larger: 3 * 0.3 / 1.7 segments per round.
    cubic.reduce(100);
    let mut window = Window { size: 70, threshold: 70, count: 0 };
    let mut now = 0;
    for _ in 0..20 {
        for _ in 0..window.size {
            now += 1_000_000;
            let every = cubic.every(now, 100 * US, window.size, 1);
            window.add(every, 1);
        }
    }
    let gain = f64::from(window.size - 70) / 20.0;
    assert!((gain - 0.9 / 1.7).abs() < 0.1, "{gain}");
}

#[test]
fn hystart_ends_slow_start_by_a_train_or_by_delay() {
    let config = TcpConfig::default();
    let start = || (Control::new(&config, 0), Window { size: 20, threshold: INFINITE, count: 0 });
    // Acks 1 µs apart in a round trip of 100 µs: the train is detected after more than 50 µs.
    let (mut control, mut window) = start();
    for i in 0..100 {
        control.on_ack(&ack(i * US, 1, 1000, 1, 100 * US), &mut window);
        let found = window.threshold != INFINITE;
        assert_eq!(found, i > 50, "{i}");
    }
    assert_eq!(window.threshold, 20);
    // Acks too far apart for a train: only a delay of at least 4 ms counts, after eight samples.
    let (mut control, mut window) = start();
    control.on_ack(&ack(0, 1, 10, 1, 10 * MS), &mut window);
    for i in 1..30 {
        let info = ack(i * 3 * MS, 11, 1000, 1, 15 * MS);
        control.on_ack(&info, &mut window);
        assert_eq!(window.threshold != INFINITE, i > 8, "{i}");
    }
    // Below 16 segments HyStart never ends slow start.
    let (mut control, mut window) = start();
    window.size = 15;
    for i in 0..100 {
        control.on_ack(&ack(i * US, 1, 1000, 1, 100 * US), &mut window);
    }
    assert_eq!(window.threshold, INFINITE);
}

#[test]
fn hystart_plus_plus_slows_down_and_confirms() {
    let config = TcpConfig { slow_start: SlowStart::HyStartPlusPlus, ..TcpConfig::default() };
    let mut control = Control::new(&config, 0);
    let mut window = Window { size: 100, threshold: INFINITE, count: 0 };
    let mut round = |delay: Ps, window: &mut Window, no: u64| {
        let before = window.size;
        for i in 0..20 {
            let info = ack((no * 20 + i) * MS, no * 100 + 1, no * 100 + 100, 1, delay);
            control.on_ack(&info, window);
            control.grow(&info, window);
        }
        window.size - before
    };
    assert_eq!(round(20 * MS, &mut window, 1), 20);
    assert_eq!(round(20 * MS, &mut window, 2), 20);
    // 4 ms above the round before: a quarter of the growth from the eighth sample on.
    let grown = round(25 * MS, &mut window, 3);
    assert!((9..12).contains(&grown), "{grown}");
    for no in 4..8 {
        assert_eq!(round(25 * MS, &mut window, no), 5, "{no}");
    }
    assert_eq!(window.threshold, INFINITE);
    round(25 * MS, &mut window, 8);
    assert!(!window.slow(), "five rounds confirm it");
    // A delay that falls again was not caused by the queue.
    let mut control = Control::new(&config, 0);
    let mut window = Window { size: 100, threshold: INFINITE, count: 0 };
    for (no, delay) in [(1, 20), (2, 20), (3, 25), (4, 20), (5, 20)] {
        let before = window.size;
        for i in 0..20 {
            let info = ack((no * 20 + i) * MS, no * 100 + 1, no * 100 + 100, 1, delay * MS);
            control.on_ack(&info, &mut window);
            control.grow(&info, &mut window);
        }
        if no == 5 {
            assert_eq!(window.size - before, 20);
        }
    }
}

#[test]
fn dctcp_shrinks_by_half_the_marked_share() {
    let config = TcpConfig::default().algorithm(crate::tcp::Algorithm::Dctcp);
    let mut control = Control::new(&config, 0);
    let mut window = Window { size: 1000, threshold: 1000, count: 0 };
    assert_eq!(control.reduce(&window, true), 500, "at first all may be marked");
    for no in 1..400 {
        for i in 0..10 {
            let mut info = ack(no * MS, no * 100 + 1, no * 100 + 100, 1, MS);
            info.ece = i < 2;
            control.on_ack(&info, &mut window);
        }
    }
    assert!(control.reduce(&window, true).abs_diff(900) <= 2);
    assert_eq!(control.reduce(&window, false), 500, "a loss halves");
}

#[test]
fn a_pause_is_no_time_for_cubic() {
    let every = |shift: bool| {
        let mut cubic = Cubic::default();
        cubic.reduce(1000);
        cubic.every(0, MS, 700, 1);
        if shift {
            cubic.shift(SEC, 9 * SEC);
        }
        cubic.every(9 * SEC, MS, 700, 1)
    };
    // One second after the loss growth is slower than nine seconds after it.
    assert!(every(true) > 2 * every(false), "{} {}", every(true), every(false));
}
