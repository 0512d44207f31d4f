//! Parallel programs: times that follow from arithmetic, the same program over every transport, and
//! what is refused.

use crate::common::{cases, run_text};
use srd_lab::{Origin, RunResult, json, run, summary_csv};
use std::path::{Path, PathBuf};

/// Hosts on one switch each, far enough from each other that no link is shared.
const NETWORK: &str = "shape = \"leaf-spine\"\nleaves = 1\nspines = 1";

fn text(hosts: u32, app: &str, rest: &str) -> String {
    format!(
        "name = \"test\"\ntitle = \"test\"\n[network]\n{NETWORK}\nhosts_per_leaf = {hosts}\n\
         [workload]\npattern = \"app\"\n[app]\n{app}\n[[cases]]\n{rest}\n"
    )
}

/// Runs a program to its end.
fn ended(text: &str) -> RunResult {
    let r = run_text(text, 1);
    let app = r.app.as_ref().expect("it is a program");
    assert!(app.done && app.undone == 0 && r.unfinished() == 0 && r.failures == 0, "{text}");
    r
}

/// Length of the whole program in us.
fn total_us(r: &RunResult) -> f64 {
    r.app.as_ref().unwrap().total_ps as f64 / 1e6
}

#[test]
fn a_halo_on_an_ideal_network_takes_its_computation_and_its_floor() {
    // Two ranks with one face each: 100 us of computation, then one flow in each direction.
    let app = "pattern = \"halo3d\"\nbytes = 2_000_000\ncompute_us = 200.0\nsteps = 4";
    let r = ended(&text(2, app, "engine.credits = false"));
    let floor_us = r.summary.floor_us;
    let steps = r.app.as_ref().unwrap().steps_us();
    for step in [steps.min, steps.median, steps.max] {
        let over = step / (100.0 + floor_us);
        assert!((0.999..1.02).contains(&over), "{step} us, floor {floor_us} us");
    }
    // 400 us of 4 steps are computed; the rest is waiting.
    let waiting = r.app.as_ref().unwrap().waiting_share();
    assert!((waiting - (1.0 - 400.0 / total_us(&r))).abs() < 1e-9, "{waiting}");
    let efficiency = r.app.as_ref().unwrap().efficiency();
    assert!((efficiency - 800.0 / (2.0 * total_us(&r))).abs() < 1e-9, "{efficiency}");
}

/// The value of a column of a run's summary; `None` if the cell is empty.
fn column(r: &RunResult, name: &str) -> Option<f64> {
    let text = summary_csv(std::slice::from_ref(r));
    let (head, line) = text.split_once('\n').unwrap();
    let at = head.split(',').position(|h| h == name).unwrap_or_else(|| panic!("{name}: {head}"));
    let cell = line.trim_end().split(',').nth(at).unwrap();
    (!cell.is_empty()).then(|| cell.parse().unwrap())
}

#[test]
fn files_have_the_figures_of_programs_and_nothing_where_there_is_none() {
    // 5 % of 200 us are serial: Amdahl's bound of two ranks is 1 / (2 x 0.05 + 0.95).
    let app = "pattern = \"halo3d\"\nbytes = 2_000_000\ncompute_us = 200.0\nsteps = 4\n\
        serial_percent = 5.0";
    let r = ended(&text(2, app, ""));
    let o = r.app.as_ref().unwrap();
    let steps = o.steps_us();
    for (name, want) in [
        ("app_ranks", 2.0),
        ("app_steps", 4.0),
        ("app_step_us_median", steps.median),
        ("app_step_us_p99", steps.p99),
        ("app_step_us_max", steps.max),
        ("app_total_us", total_us(&r)),
        ("app_waiting_share", 1.0 - 4.0 * 105.0 / total_us(&r)),
        ("app_efficiency", 400.0 / total_us(&r)),
        ("app_efficiency_amdahl", 1.0 / 1.05),
        ("app_operations_undone", 0.0),
    ] {
        let got = column(&r, name).unwrap();
        assert!((got - want).abs() < 1e-9, "{name}: {got}, wanted {want}");
        let document = json(std::slice::from_ref(&r), Origin { command: "x", commit: None });
        let own = &document["runs"][0]["app"];
        let value = own[name.trim_start_matches("app_")].as_f64();
        assert!(value.is_some_and(|v| (v - want).abs() < 1e-9), "{name}: {own}");
        assert_eq!(
            (own["done"].as_bool(), &own["bus_gbps"]),
            (Some(true), &serde_json::json!(null))
        );
    }
    assert_eq!(column(&r, "app_bus_gbps"), None, "a halo is no collective operation");
    // Two of four equal ranks of an allreduce send 2 (N - 1) / N of the buffer each.
    let app = "pattern = \"allreduce\"\nbytes = 8_388_608\nsteps = 2";
    let r = ended(&text(4, app, ""));
    let bus = column(&r, "app_bus_gbps").unwrap();
    let want = 2.0 * 1.5 * 8_388_608.0 * 8.0 / (total_us(&r) * 1e3);
    assert!((bus - want).abs() < 1e-9, "{bus}, wanted {want}");
    assert_eq!(column(&r, "app_efficiency"), None, "nothing is computed");
    // A program that does not end has no total.
    let late = text(2, "pattern = \"halo3d\"\nbytes = 2_000_000\ncompute_us = 5_000.0", "")
        .replacen("title", "time_ms_max = 1\ntitle", 1);
    let r = run_text(&late, 1);
    assert_eq!((column(&r, "app_total_us"), column(&r, "app_efficiency")), (None, None));
    assert!(column(&r, "app_operations_undone").unwrap() > 0.0);
    let flows = "name = \"test\"\ntitle = \"test\"\nnetwork.shape = \"back-to-back\"\n\
        workload.pattern = \"permutation\"";
    let r = run_text(flows, 1);
    assert_eq!((column(&r, "app_ranks"), column(&r, "app_total_us")), (None, None));
}

#[test]
fn a_ring_takes_its_bytes_and_its_latencies() {
    // Without pieces: each of 2 (N - 1) steps is one message of 1/N of the buffer, whose last byte
    // is at the next rank one way later.
    for ranks in [2u32, 4, 8] {
        let app = "pattern = \"allreduce\"\nbytes = 8_388_608\nslice_bytes = 100_000_000";
        let r = ended(&text(ranks, app, "engine.credits = false"));
        let steps = f64::from(2 * (ranks - 1));
        // 4,096 bytes of payload in packets of 4,096 + 24 + 32 + 66 bytes, which include headers,
        // immediate data and the gap; 80 ps per byte.
        let packets = 8_388_608.0 / f64::from(ranks) / 4_096.0;
        let serial_us = packets * (4_096.0 + 24.0 + 32.0 + 66.0) * 80e-6;
        // Half of the base round trip, less the acknowledgment's serialisation.
        let one_way_us = r.base_rtt_ps as f64 / 2e6;
        let expected = steps * (serial_us + one_way_us);
        let over = total_us(&r) / expected;
        assert!((0.99..1.02).contains(&over), "{ranks} ranks: {} of {expected} us", total_us(&r));
    }
}

#[test]
fn pieces_hide_the_latency_of_a_ring() {
    let app = "pattern = \"allreduce\"\nbytes = 4_194_304\nslice_bytes = ";
    let whole = total_us(&ended(&text(8, &format!("{app}4_194_304"), "")));
    let cut = total_us(&ended(&text(8, &format!("{app}32_768"), "")));
    // What the line needs for 14 steps of 128 packets; the rest is latency.
    let serial_us = 14.0 * 128.0 * (4_096.0 + 24.0 + 32.0 + 66.0) * 80e-6;
    assert!(cut > serial_us, "{cut} us, at least {serial_us}");
    assert!(cut - serial_us < 0.5 * (whole - serial_us), "{cut} us against {whole} us");
}

#[test]
fn every_transport_of_messages_executes_the_same_program() {
    let app = "pattern = \"spectral\"\nbytes = 6_400_000\ncompute_us = 800.0\nsteps = 3\n\
               exchanges = 2\nreductions = 2";
    let lossless = "network.flow_control = \"pfc\"\nnetwork.buffer_bytes = 2_000_000";
    for (name, more) in [("srd", ""), ("tcp", ""), ("rc", lossless), ("ue", "")] {
        let r = ended(&text(8, app, &format!("transport = \"{name}\"\n{more}")));
        let o = r.app.as_ref().unwrap();
        assert_eq!((o.ranks, o.steps_ps.len()), (8, 3), "{name}");
        // 800 us in 8 parts, three times, on each of 8 ranks.
        assert_eq!(o.computed_ps, 3 * 800_000_000, "{name}");
        assert!(o.efficiency() < 1.0 && o.efficiency() > 0.1, "{name}: {}", o.efficiency());
        assert_eq!(r.hash, ended(&text(8, app, &format!("transport = \"{name}\"\n{more}"))).hash);
    }
}

#[test]
fn ranks_of_one_host_need_no_network() {
    let app = "pattern = \"allreduce\"\nalgorithm = \"doubling\"\nbytes = 1_000_000";
    let spread = ended(&text(8, app, ""));
    let two = "workload.processes_per_host = 4";
    let packed = ended(&text(2, app, two));
    assert_eq!(packed.app.as_ref().unwrap().ranks, 8);
    // Of three steps, only the last one crosses the network, with four flows at once.
    assert_eq!((spread.data_packets, packed.data_packets), (3 * 8 * 245, 8 * 245));
}

/// A folder with one GOAL file.
fn goal(name: &str, text: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("srd-goal-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("a.goal"), text).unwrap();
    folder
}

/// Runs a GOAL file on four hosts.
fn goal_run(name: &str, schedule: &str) -> Result<RunResult, String> {
    let goal_file = "\"goal\"\nfile = \"a.goal\"";
    let spec = text(4, "", "").replace("[app]\n", "").replace("\"app\"", goal_file);
    let folder = goal(name, schedule);
    let result = run(&cases(&spec)[0], &folder, 1);
    std::fs::remove_dir_all(folder).unwrap();
    result
}

#[test]
fn a_goal_file_is_executed() {
    let ping_pong = "num_ranks 2\nrank 0 {\na: calc 50000\nb: send 4096b to 1\nb requires a\n\
                     c: recv 4096b from 1\n}\nrank 1 {\na: recv 4096b from 0\nb: send 4096b to 0\n\
                     b requires a\n}\n";
    let r = goal_run("ping", ping_pong).unwrap();
    let app = r.app.as_ref().unwrap();
    assert!(app.done);
    assert_eq!(app.steps_ps, [app.total_ps], "all of it is one step");
    // 50 us, and two messages of one packet each, one way.
    let floor_us = r.summary.floor_us;
    let us = total_us(&r);
    assert!(us > 50.0 + floor_us && us < 50.0 + 2.0 * floor_us, "{us} us, floor {floor_us} us");
}

#[test]
fn bad_programs_are_refused_with_their_field_or_line() {
    let refused = |app: &str, rest: &str| {
        let spec = &cases(&text(4, app, rest))[0];
        srd_lab::check(spec).and_then(|()| run(spec, Path::new("."), 1).map(|_| ())).unwrap_err()
    };
    let halo = "pattern = \"halo3d\"\nbytes = 8";
    let cases = [
        (refused(&format!("{halo}\nranks = 5"), ""), "app.ranks = 5, but 4 hosts with 1 processes"),
        (refused(&format!("{halo}\nranks = 1"), ""), "sends no message"),
        (refused(halo, "workload.processes_per_host = 0"), "workload.processes_per_host = 0"),
        (refused(halo, "workload.rounds = 2"), "workload.rounds"),
        (refused(halo, "measure.order = true"), "measure.order"),
        (refused(halo, "transport = \"copa\""), "\"srd\", \"tcp\", \"rc\" or \"ue\""),
        (goal_run("five", "num_ranks 5\n").unwrap_err(), "num_ranks = 5, but 4 hosts"),
        (
            goal_run("nobody", "num_ranks 2\nrank 0 {\na: recv 1b from 1\n}\n").unwrap_err(),
            "a.goal: line 3: nobody sends",
        ),
        (
            goal_run("nowhere", "num_ranks 2\nrank 0 {\na: send 1b to 2\n}\n").unwrap_err(),
            "a.goal: line 3: rank 2 does not exist",
        ),
    ];
    for (said, want) in cases {
        assert!(said.contains(want), "{said}\nwanted: {want}");
    }
    let spec =
        &crate::common::cases(&text(4, halo, "").replace("\"app\"", "\"ring\"\npeers = 1"))[0];
    assert!(srd_lab::check(spec).unwrap_err().contains("only workload.pattern = \"app\""));
}
