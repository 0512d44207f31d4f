//! `srd paths`: orders of root for all users, and probes of processes at rest.

use crate::common::{Running, run, srd, until};
use serde_json::Value;
use srd::{Bind, Device, DeviceConfig, Progress, QKey, QpInit, RecvWr, SendWr, Status};
use std::{net::IpAddr, os::unix::process::CommandExt as _, thread::sleep, time::Duration};

/// A user without rights.
const NOBODY: u32 = 65_534;
/// Addresses of this test alone, because all devices of a user obey.
const HERE: &str = "127.0.80.1";
const PEER: &str = "127.0.80.9";

#[test]
fn root_gives_an_order_for_all_users() {
    if !rustix::process::geteuid().is_root() {
        run(&["paths", "deny", "0", "--peer", PEER, "--all-users"]).fails(2, "is root's");
        return;
    }
    let serve = || {
        let mut command = srd(&["serve", "--ip", HERE, "--port-base", "21900", "--paths", "16"]);
        command.uid(NOBODY).gid(NOBODY).current_dir("/").env_clear();
        let device = Running::start(command);
        until("the device is open", || device.stdout().contains("listening on"));
        device
    };
    // A user namespace may not have this user, and he may not be able to start the program.
    let mut probe = srd(&["--version"]);
    if !probe.uid(NOBODY).gid(NOBODY).current_dir("/").status().is_ok_and(|s| s.success()) {
        println!("SKIPPED: no program can be started as user {NOBODY}");
        return;
    }
    let device = serve();
    let of = format!("user {NOBODY}: ");
    let said = run(&["paths", "deny", "0-3", "--peer", PEER, "--all-users"]).ok().stdout;
    let line = said.lines().find(|l| l.starts_with(&of)).unwrap_or_else(|| panic!("{said}"));
    let obeys = "the open device of this user obeys";
    assert!(line.contains(&format!("4 paths to {PEER} are denied: 0-3; {obeys}")), "{line}");
    let denied = || {
        let all = run(&["paths", "denied"]).ok().stdout;
        let text = format!("{PEER} denied 0-3 by user {NOBODY} ");
        all.lines().filter(|l| l.starts_with(&text)).count()
    };
    assert_eq!(denied(), 1);
    // An order that one user's devices refuse fails.
    let all = ["paths", "deny", "0-15", "--peer", PEER, "--all-users"];
    run(&all).fails(1, &format!("user {NOBODY}: nothing was changed"));
    assert_eq!(denied(), 1);
    run(&["paths", "allow", "--peer", PEER, "--all-users"]).ok();
    assert_eq!(denied(), 0);
    run(&["paths", "deny", "0-3", "--peer", PEER, "--all-users"]).ok();
    drop(device);
    // He has orders in force, but no device any more.
    run(&["paths", "allow", "--peer", PEER, "--all-users"]).ok();
    assert_eq!(denied(), 0);
    // He has neither when the order is given, and opens a device later.
    run(&["paths", "deny", "0-3", "--peer", PEER, "--all-users"]).ok();
    let told = run(&["paths", "denied"]).ok().stdout;
    assert!(told.contains(&format!("{PEER} denied 0-3 for users who open")), "{told}");
    assert_eq!(denied(), 0, "{told}");
    let device = serve();
    until("the order holds for him", || denied() == 1);
    drop(device);
    run(&["paths", "allow", "--peer", PEER, "--all-users"]).ok();
    assert_eq!(denied(), 0);
    assert!(!run(&["paths", "denied"]).ok().stdout.contains(PEER));
}

/// All paths of a process that has rested for longer than its engine keeps the state of paths
/// answer, though one acknowledgment tells of few of them.
#[test]
fn all_paths_of_a_process_at_rest_answer() {
    let open = |host: u8| {
        let mut config = DeviceConfig::loopback();
        config.bind = Bind::Ip(IpAddr::from([127, 0, 82, host]));
        config.progress = Progress::Thread { spin: Duration::ZERO };
        (config.port_base, config.paths) = (22_200, 64);
        let device = Device::open(config).unwrap();
        let pd = device.pd_create().unwrap();
        let cq = device.cq_create(16).unwrap();
        let qp = pd.qp_create(&QpInit::srd(&cq, &cq)).unwrap();
        qp.activate(QKey(1)).unwrap();
        (device, pd, cq, qp)
    };
    let (a, b) = (open(1), open(2));
    let to = a.1.ah_create(b.0.ip()).unwrap();
    b.3.post_recv(&RecvWr { wr_id: 0, sges: &[] }).unwrap();
    a.3.post_send(&SendWr::send(1, &to, b.3.qpn(), QKey(1))).unwrap();
    for end in [&a, &b] {
        assert_eq!(end.2.wait(Duration::from_secs(60)).unwrap().unwrap().status, Status::Ok);
    }
    let (peer, pid) = (b.0.ip().to_string(), std::process::id().to_string());
    until("the device shows its peer", || {
        run(&["stat", "--json", &pid]).stdout.contains(&format!("\"peer\":\"{peer}\""))
    });
    for rest_ms in [700, 1_500] {
        sleep(Duration::from_millis(rest_ms));
        let done = run(&["paths", "probe", "--peer", &peer, "--json", "--wait", "20s"]).ok();
        let rows: Vec<Value> = serde_json::from_str(done.stdout.lines().next().unwrap()).unwrap();
        let answered = rows.iter().filter(|row| row["answered"] == true).count();
        assert_eq!((rows.len(), answered), (64, 64), "after {rest_ms} ms: {rows:?}");
    }
}
