//! `srd net` as users run it. If the kernel refuses network namespaces or iproute2 is missing, each
//! test prints that it was skipped.

use std::{
    fs::{self, DirBuilder},
    io::{BufRead as _, BufReader},
    os::unix::fs::DirBuilderExt as _,
    path::PathBuf,
    process::{Command, Output, Stdio},
    sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
    time::{Duration, Instant},
};

/// Tests that measure times on real processors run alone, the others beside each other.
static ALONE: RwLock<()> = RwLock::new(());

/// The claim that a test has on the processors while it runs.
#[expect(dead_code, reason = "guards are held, not used")]
enum Claim {
    Alone(RwLockWriteGuard<'static, ()>),
    Shared(RwLockReadGuard<'static, ()>),
}

/// A folder for the fabrics of a test; they are taken down when it is dropped.
struct Net {
    folder: PathBuf,
    _claim: Claim,
}

impl Net {
    /// For a test that measures times. Returns `None` if namespaces are not available.
    fn alone(name: &str) -> Option<Self> {
        Self::claimed(name, Claim::Alone(ALONE.write().unwrap_or_else(PoisonError::into_inner)))
    }

    /// For a test that may run beside others. Returns `None` if namespaces are not available.
    fn open(name: &str) -> Option<Self> {
        Self::claimed(name, Claim::Shared(ALONE.read().unwrap_or_else(PoisonError::into_inner)))
    }

    fn claimed(name: &str, claim: Claim) -> Option<Self> {
        let folder = std::env::temp_dir().join(format!("srd-net-{name}-{}", std::process::id()));
        DirBuilder::new().mode(0o700).create(&folder).unwrap();
        let net = Self { folder, _claim: claim };
        let up = net.run(&["up", "--name", "probe", "--spines", "1", "--hosts", "1"]);
        if up.status.success() {
            assert!(net.run(&["down", "--name", "probe"]).status.success());
            return Some(net);
        }
        let why = text(&up);
        let known = why.contains("refuses network namespaces") || why.contains("not installed");
        assert!(known, "`srd net up` failed for an unexpected reason: {why}");
        eprintln!("SKIPPED {name}: {why}");
        None
    }

    fn run(&self, args: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_srd"));
        command.arg("net").args(args).env("XDG_RUNTIME_DIR", &self.folder);
        command.output().unwrap()
    }

    /// Runs a command that must succeed, and returns its output.
    fn ok(&self, args: &[&str]) -> String {
        let out = self.run(args);
        assert!(out.status.success(), "srd net {args:?}: {}", text(&out));
        text(&out)
    }

    /// Runs a command that must fail, and returns its output.
    fn fails(&self, args: &[&str]) -> String {
        let out = self.run(args);
        assert!(!out.status.success(), "srd net {args:?} must fail: {}", text(&out));
        text(&out)
    }

    fn holder(&self, name: &str) -> i32 {
        let file = self.folder.join("srd-net").join(format!("{name}.json"));
        let state: serde_json::Value =
            serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
        i32::try_from(state["pid"].as_i64().unwrap()).unwrap()
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        self.run(&["down", "--all"]);
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn text(out: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr))
}

fn kill(pid: i32) {
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

#[test]
fn a_fabric_comes_up_and_goes_down() {
    let Some(net) = Net::open("updown") else { return };
    assert!(net.fails(&["exec", "h0x0", "--", "true"]).contains("srd net up"));
    net.ok(&["up", "--spines", "3", "--hosts", "2", "--seed", "7"]);
    assert!(net.fails(&["up"]).contains("is up already"));
    assert!(net.ok(&["status"]).contains("3 spines"));
    assert!(net.ok(&["exec", "h1x1", "--", "ip", "-4", "addr"]).contains("10.1.1.11/32"));
    assert_eq!(net.run(&["exec", "h0x0", "--", "sh", "-c", "exit 7"]).status.code(), Some(7));
    assert!(net.fails(&["exec", "h9x9", "--", "true"]).contains("there is no node"));
    assert!(net.fails(&["exec", "h0x0", "--", "no-such-program"]).contains("no-such-program"));
    assert!(net.ok(&["down"]).contains("is down"));
    assert!(net.ok(&["status"]).contains("no fabric"));
}

#[test]
fn nothing_is_left_after_a_crash() {
    let Some(net) = Net::open("crash") else { return };
    net.ok(&["up", "--name", "a"]);
    net.ok(&["up", "--name", "b"]);
    kill(net.holder("a"));
    let until = Instant::now() + Duration::from_secs(5);
    while net.ok(&["status"]).contains("a (process") && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(50));
    }
    let status = net.ok(&["status"]);
    assert!(!status.contains("a (process") && status.contains("b (process"), "{status}");
    assert!(net.ok(&["status", "--name", "b"]).contains("b (process"));
    assert!(net.fails(&["status", "--name", "a"]).contains("there is no fabric `a`"));
    net.ok(&["up", "--name", "a"]);
    let said = net.ok(&["down", "--all"]);
    assert!(said.contains("a is down") && said.contains("b is down"), "{said}");
}

#[test]
fn a_fabric_ends_with_the_until_pid_process() {
    let Some(net) = Net::open("until") else { return };
    let mut sleeper = Command::new("sleep").arg("60").spawn().unwrap();
    net.ok(&["up", "--until-pid", &sleeper.id().to_string()]);
    assert!(net.ok(&["status"]).contains("net (process"));
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    let until = Instant::now() + Duration::from_secs(5);
    while net.ok(&["status"]).contains("net (process") {
        assert!(Instant::now() < until, "the holder outlives the process it was tied to");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn ports_take_the_predicted_spines() {
    let Some(net) = Net::open("paths") else { return };
    net.ok(&["up", "--spines", "4", "--hosts", "1"]);
    let said = net.ok(&["paths", "h0x0", "h1x0", "--count", "32"]);
    assert!(said.contains("32 of 32 ports as predicted"), "{said}");
    assert!(net.fails(&["paths", "h0x0", "h0x0"]).contains("no spine is between them"));
    assert!(net.fails(&["paths", "s0", "h0x0"]).contains("is not a host"));
}

#[test]
fn faults_drop_packets_until_they_are_removed() {
    let Some(net) = Net::open("faults") else { return };
    net.ok(&["up", "--spines", "1", "--hosts", "1"]);
    // Connects to a closed port: the connection is refused if packets pass in both directions.
    let reach = || {
        let script = "exec 3<>/dev/tcp/10.1.1.10/9";
        let out = net.run(&["exec", "h0x0", "--", "timeout", "0.5", "bash", "-c", script]);
        text(&out).contains("refused")
    };
    // A busy machine may take longer for it; where packets are dropped, time changes nothing.
    let reached = || (0..20).any(|_| reach());
    assert!(reached());
    for fault in [&["--blackhole"][..], &["--link-down"], &["--loss", "100%"]] {
        net.ok(&[&["fail", "spine", "0"], fault].concat());
        assert!(!reach(), "{fault:?}");
        net.ok(&["heal"]);
        assert!(reached(), "after {fault:?}");
        net.ok(&[&["fail", "link", "0", "0"], fault, &["--for", "100ms"]].concat());
        assert!(reached(), "after {fault:?} of a link");
    }
    net.ok(&["fail", "link", "1", "0", "--rate", "50M"]);
    assert!(net.ok(&["exec", "l1", "--", "tc", "qdisc"]).contains("rate 50Mbit"));
    net.ok(&["heal"]);
    assert!(!net.ok(&["exec", "l1", "--", "tc", "qdisc"]).contains("rate 50Mbit"));
    assert!(net.fails(&["fail", "spine", "3", "--blackhole"]).contains("there is no node"));
}

#[test]
fn a_spine_is_drained_under_traffic() {
    let Some(net) = Net::alone("deny") else { return };
    let said = net.ok(&["check", "deny"]);
    eprintln!("{said}");
    assert!(said.contains("of 64 paths across s") && said.contains("passed"), "{said}");
}

#[test]
fn measurements_run_and_lose_nothing() {
    let Some(net) = Net::alone("bench") else { return };
    for scenario in ["incast", "blackhole", "slowpath"] {
        let said = net.ok(&["bench", scenario, "--quick", "--draws", "1", "--with", "srd,reno"]);
        let row = said.lines().find(|l| l.starts_with("srd ")).unwrap_or_else(|| panic!("{said}"));
        assert!(row.contains("0/0/0/0"), "{scenario}: {said}");
    }
    assert!(net.fails(&["bench", "incast", "--with", "nobody"]).contains("is not a contender"));
}

#[test]
fn a_slow_host_is_measured_with_every_policy_and_loses_nothing() {
    let Some(net) = Net::alone("slowhost") else { return };
    let said = net.ok(&[
        "bench",
        "slowhost",
        "--quick",
        "--draws",
        "1",
        "--rounds",
        "1",
        "--senders",
        "3",
        "--rate",
        "200M",
        "--drain",
        "40M",
    ]);
    for name in ["srd ", "srd-off ", "srd-stop-go ", "srd-budget ", "cubic "] {
        let row = said.lines().find(|l| l.starts_with(name)).unwrap_or_else(|| panic!("{said}"));
        let cells: Vec<&str> = row.split_whitespace().collect();
        assert_eq!(cells[10..], ["1", "0/0/0/0"], "{name}: {said}");
        assert!(cells[6..10].iter().all(|c| c.parse::<f64>().is_ok()), "times: {said}");
        if ["srd ", "srd-budget "].contains(&name) {
            assert_eq!(cells[1], "0", "lost in sockets: {said}");
        }
    }
    for drain in ["200", "0", "0M", "2G", "1M", "fast", "-1M"] {
        let out = net.run(&["bench", "slowhost", &format!("--drain={drain}")]);
        let said = text(&out);
        assert_eq!(out.status.code(), Some(2), "{drain}: {said}");
        assert!(said.contains("--drain") && !said.contains("fabric:"), "{drain}: {said}");
        assert!(said.contains("as 200M or 1G") || said.contains("as --drain 200M"), "{said}");
    }
}

/// Processes of other work (`--busy`) of this measuring process.
fn other_work_of(parent: u32) -> usize {
    let wanted = format!("net\0other-work\0--parent\0{parent}\0");
    let ours = |e: fs::DirEntry| {
        let line = fs::read(e.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(&wanted)
    };
    fs::read_dir("/proc").unwrap().flatten().map(ours).filter(|is| *is).count()
}

#[test]
fn other_work_ends_with_its_measurement_even_if_that_is_killed() {
    let Some(net) = Net::alone("busy") else { return };
    let said = net.ok(&[
        "bench", "incast", "--quick", "--draws", "1", "--rounds", "1", "--with", "cubic",
        "--bytes", "9k", "--busy",
    ]);
    let line = said.lines().find(|l| l.starts_with("other work: "));
    assert!(line.is_some_and(|l| !l.contains(" took 0 %")), "{said}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_srd"));
    command.args(["net", "bench", "incast", "--busy", "--with", "cubic"]);
    let mut bench = command.stdout(Stdio::null()).spawn().unwrap();
    let wait_for = |what: &str, done: &dyn Fn(usize) -> bool| {
        let until = Instant::now() + Duration::from_secs(20);
        while !done(other_work_of(bench.id())) {
            assert!(Instant::now() < until, "other work {what}");
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    wait_for("did not start", &|n| n > 0);
    kill(i32::try_from(bench.id()).unwrap());
    // Not waited for yet: the dead process keeps its number, which no other one can get.
    wait_for("outlives its measurement", &|n| n == 0);
    bench.wait().unwrap();
}

#[test]
fn an_mpi_program_is_measured_over_tcp() {
    let Some(net) = Net::open("mpi") else { return };
    let folder = net.folder.join("out").display().to_string();
    let out = net.run(&[
        "bench",
        "mpi-incast",
        "--quick",
        "--ranks",
        "4",
        "--sizes",
        "9000,1",
        "--rounds",
        "1",
        "--rate",
        "100M",
        "--with",
        "reno",
        "--out",
        &folder,
    ]);
    let said = text(&out);
    if said.contains("is not installed") || said.contains("is not Open MPI's") {
        eprintln!("SKIPPED mpi: {said}");
        return;
    }
    assert!(out.status.success(), "{said}");
    assert!(["9 kB reno ", "1 B reno "].iter().all(|r| said.contains(r)), "{said}");
    let csv = fs::read_to_string(net.folder.join("out/mpi-incast.csv")).unwrap();
    // Two sizes, two rounds, four senders, and the head.
    assert_eq!(csv.lines().count(), 17, "{csv}");
    assert!(fs::read_to_string(net.folder.join("out/mpi-incast.svg")).unwrap().contains("ideal"));
    let error = net.fails(&["bench", "mpi-incast", "--with", "mptcp"]);
    assert!(error.contains("no contender of mpi-incast"), "{error}");
}

#[test]
fn checks_with_killed_stopped_and_many_processes_pass() {
    let Some(net) = Net::open("check") else { return };
    let said = net.ok(&[
        "check",
        "kill",
        "restart",
        "stop",
        "processes",
        "buffers",
        "mtu",
        "narrow",
        "peers",
        "--peers",
        "1000",
    ]);
    assert_eq!(said.matches(" passed ").count(), 8, "{said}");
}

#[test]
fn a_cut_rail_does_not_affect_the_other() {
    let Some(net) = Net::alone("rails") else { return };
    let said = net.ok(&["check", "rails"]);
    assert_eq!(said.matches(" passed ").count(), 1, "{said}");
}

#[test]
fn a_device_over_two_rails_loses_nothing_with_one_of_them() {
    let Some(net) = Net::alone("joined-rails") else { return };
    let said = net.ok(&["check", "joined-rails"]);
    assert_eq!(said.matches(" passed ").count(), 1, "{said}");
}

/// All checks except those of speed, because other programs may use the processors.
#[test]
fn floods_liars_and_dead_readers_do_not_stop_transfers() {
    let Some(net) = Net::open("hostile") else { return };
    let said = net.ok(&["check", "flood", "liar", "dead-readers", "--kept", "1", "--junk", "1"]);
    assert_eq!(said.matches(" passed ").count(), 3, "{said}");
}

#[test]
fn a_short_soak_loses_nothing() {
    let Some(net) = Net::open("soak") else { return };
    let said = net.ok(&["soak", "--for", "10s"]);
    assert!(said.contains(": 0 lost, 0 twice, 0 damaged, 0 failed"), "{said}");
}

#[test]
fn doctor_counts_ecmp_paths() {
    let Some(net) = Net::open("doctor") else { return };
    let doctor_of = |peer: &str| {
        let srd = env!("CARGO_BIN_EXE_srd");
        text(&net.run(&["exec", "h0x0", "--", srd, "doctor", peer]))
    };
    let doctor = || doctor_of("10.1.1.10");
    let policy = |n: &str| {
        let set = format!("echo {n} > /proc/sys/net/ipv4/fib_multipath_hash_policy");
        net.ok(&["exec", "l0", "--", "sh", "-c", &set]);
    };
    net.ok(&["up", "--spines", "4", "--hosts", "1"]);
    let said = doctor();
    assert!(said.contains("64 source ports take 4 ECMP paths, told apart at hop 2"), "{said}");
    assert!(said.contains("hop 2: 4 addresses for 64 of 64 ports"), "{said}");
    if std::path::Path::new("/proc/sys/net/ipv6").exists() {
        let said = doctor_of("fd00:1:1::a");
        assert!(said.contains("64 source ports take 4 ECMP paths"), "{said}");
    }
    // A leaf that hashes only addresses has four spines and uses one.
    policy("0");
    let said = doctor();
    assert!(said.contains("64 source ports take 1 ECMP path,"), "{said}");
    assert!(said.contains("fib_multipath_hash_policy=3"), "{said}");
    // The advice, as it is written: fields and policy.
    let advice = said.split('`').find(|part| part.starts_with("sysctl -w ")).unwrap().to_owned();
    for word in advice.split_whitespace().skip(2) {
        let (name, value) = word.split_once('=').unwrap();
        let set = format!("echo {value} > /proc/sys/{}", name.replace('.', "/"));
        net.ok(&["exec", "l0", "--", "sh", "-c", &set]);
    }
    let said = doctor();
    assert!(said.contains("64 source ports take 4 ECMP paths"), "{said}");
    net.ok(&["down"]);
    net.ok(&["up", "--spines", "1", "--hosts", "1"]);
    assert!(doctor().contains("64 source ports take 1 ECMP path,"));
}

/// A server process, killed when dropped.
struct Served(std::process::Child);

impl Served {
    /// Starts `srd serve` at host h1x0 and waits until it listens.
    fn start(net: &Net) -> Self {
        let srd = env!("CARGO_BIN_EXE_srd");
        let mut command = Command::new(srd);
        command.args(["net", "exec", "h1x0", "--", srd, "serve", "--ip", "10.1.1.10", "--dir"]);
        command.arg(&net.folder).env("XDG_RUNTIME_DIR", &net.folder).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.contains("listening on 10.1.1.10:18700"), "{line}");
        Self(child)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn doctor_distinguishes_a_small_mtu_from_a_firewall() {
    let Some(net) = Net::open("doctor-mtu") else { return };
    net.ok(&["up", "--spines", "1", "--hosts", "1"]);
    let _server = Served::start(&net);
    let doctor = || {
        let out =
            net.run(&["exec", "h0x0", "--", env!("CARGO_BIN_EXE_srd"), "doctor", "10.1.1.10"]);
        let said = text(&out);
        let way = said.lines().find(|l| l.contains("10.1.1.10:18700")).map(str::to_owned);
        (way.unwrap_or_else(|| panic!("nothing about the server: {said}")), said)
    };
    let (way, said) = doctor();
    assert!(way.starts_with("ok ") && way.contains("answers on 64 of 64 paths"), "{said}");
    // The link of the last router carries packets of 1400 bytes. What passes is the payload of
    // packets of 1280 bytes, the next smaller size of the table.
    net.ok(&["exec", "l1", "--", "ip", "link", "set", "dn0", "mtu", "1400"]);
    let (way, said) = doctor();
    assert!(way.starts_with("FAILED ") && way.contains("answers packets of 1180 bytes"), "{said}");
    assert!(said.contains("the same MTU") && said.contains("SRD_MTU=1180"), "{said}");
    assert!(!said.contains("open UDP ports"), "{said}");
    net.ok(&["exec", "l1", "--", "ip", "link", "set", "dn0", "mtu", "9000"]);
    // A black hole drops packets of every size.
    net.ok(&["fail", "spine", "0", "--blackhole"]);
    let (way, said) = doctor();
    assert!(way.starts_with("FAILED ") && way.contains("nobody answers at"), "{said}");
    assert!(said.contains("open UDP ports 18700 to 18955 of both hosts"), "{said}");
    assert!(!said.contains("SRD_MTU"), "{said}");
}

/// A launcher that enters the namespace of the host that it is called with, as ssh would log in
/// there. `bin` in the fabric's folder has the tool of all hosts, `bin-HOST` that of one host.
struct Cluster<'a> {
    net: &'a Net,
    launcher: PathBuf,
}

impl<'a> Cluster<'a> {
    fn new(net: &'a Net) -> Self {
        let (folder, srd) = (&net.folder, env!("CARGO_BIN_EXE_srd"));
        for name in ["bin", "libraries"] {
            fs::create_dir(folder.join(name)).unwrap();
        }
        std::os::unix::fs::symlink(srd, folder.join("bin/srd")).unwrap();
        // The check asks whether they are there, and loads none.
        for name in ["libibverbs.so.1", "libefa.so.1", "libsrd_places.so.1"] {
            fs::write(folder.join("libraries").join(name), "").unwrap();
        }
        let launcher = folder.join("launcher");
        let text = format!(
            "#!/bin/sh\n\
             case $1 in\n\
             10.1.?.1?) node=h$(echo \"$1\" | awk -F. '{{ print $3 \"x\" $4 - 10 }}') ;;\n\
             *) echo \"connect to host $1: No route to host\" >&2; exit 255 ;;\n\
             esac\n\
             PATH={0}/bin-$1:{0}/bin:$PATH; export PATH; shift\n\
             exec {srd} net exec \"$node\" -- sh -c \"$*\"\n",
            folder.display()
        );
        program_write(&launcher, &text);
        Self { net, launcher }
    }

    /// The tool of one host becomes a script, in which `SRD` stands for the real one.
    fn shim(&self, host: &str, script: &str) {
        let folder = self.net.folder.join(format!("bin-{host}"));
        fs::create_dir_all(&folder).unwrap();
        let script = script.replace("SRD", env!("CARGO_BIN_EXE_srd"));
        program_write(&folder.join("srd"), &format!("#!/bin/sh\n{script}\n"));
    }

    fn unshim(&self, host: &str) {
        fs::remove_dir_all(self.net.folder.join(format!("bin-{host}"))).unwrap();
    }

    /// Exit code and output of the check of these hosts.
    fn check(&self, hosts: &str) -> (i32, String) {
        self.check_with(hosts, &[])
    }

    /// The same with variables, which the check passes on to the hosts.
    fn check_with(&self, hosts: &str, variables: &[(&str, &str)]) -> (i32, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_srd"));
        command.args(["doctor", "--hosts", hosts, "--program", "srd", "--launcher"]);
        command.arg(&self.launcher).env("XDG_RUNTIME_DIR", &self.net.folder);
        command.env("SRD_VERBS_DIR", self.net.folder.join("libraries"));
        command.envs(variables.iter().copied());
        let out = command.output().unwrap();
        (out.status.code().unwrap(), text(&out))
    }
}

fn program_write(path: &std::path::Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
}

#[test]
fn doctor_checks_all_pairs_of_hosts() {
    let Some(net) = Net::open("doctor-hosts") else { return };
    net.ok(&["up", "--spines", "4", "--hosts", "2"]);
    let cluster = Cluster::new(&net);
    let (code, said) = cluster.check("10.1.0.10:2,10.1.0.11,10.1.1.10");
    assert_eq!(code, 0, "{said}");
    let line = |begin: &str| said.lines().find(|l| l.starts_with(begin)).unwrap_or_default();
    assert!(line("ok      10.1.0.11: srd ").contains("interface e0 with 10.1.0.11"), "{said}");
    // One router is between hosts of a leaf, and four spines are between leaves.
    let way = line("ok      10.1.0.10 -> 2 others: all 64 paths answer");
    assert!(way.ends_with("1 to 4 ECMP paths"), "{said}");
    assert!(line("ok      10.1.1.10 -> 2 others: all").ends_with(", 4 ECMP paths"), "{said}");

    let (code, said) = cluster.check("10.1.0.10,10.1.1.10,10.9.9.9");
    assert_eq!(code, 1, "{said}");
    let lost = "FAILED  10.9.9.9 cannot be reached: connect to host 10.9.9.9: No route to host";
    assert!(said.contains(lost) && said.contains("ssh-copy-id 10.9.9.9"), "{said}");
    assert!(said.contains("ok      10.1.0.10 -> 10.1.1.10: all"), "the others go on: {said}");

    // Packets of the other host vanish in both directions: what arrives is never acknowledged.
    net.ok(&["exec", "h0x0", "--", "ip", "route", "add", "blackhole", "10.1.1.10/32"]);
    let (code, said) = cluster.check("10.1.0.10,10.1.0.11,10.1.1.10");
    assert_eq!(code, 2, "{said}");
    for way in ["10.1.0.10 -> 10.1.1.10: ", "10.1.1.10 -> 10.1.0.10: "] {
        assert!(said.contains(&format!("FAILED  {way}")), "{said}");
    }
    assert!(said.contains("ok      10.1.0.10 -> 10.1.0.11: all"), "{said}");
    net.ok(&["exec", "h0x0", "--", "ip", "route", "del", "blackhole", "10.1.1.10/32"]);

    net.ok(&["exec", "h1x0", "--", "ip", "link", "set", "e0", "mtu", "1500"]);
    let (code, said) = cluster.check("10.1.0.10,10.1.1.10");
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("FAILED  10.1.0.10 -> 10.1.1.10: packets of "), "{said}");
    assert!(said.contains("10.1.1.10 'ip link set e0 mtu 9000'"), "{said}");
    assert!(said.contains("ok      10.1.1.10 -> 10.1.0.10: all"), "{said}");
}

#[test]
fn doctor_names_the_ports_of_rails() {
    let Some(net) = Net::open("doctor-rails") else { return };
    net.ok(&["up", "--spines", "2", "--hosts", "1", "--rails", "2"]);
    let cluster = Cluster::new(&net);
    let hosts = "10.1.0.10,10.1.1.10";
    let check = || cluster.check_with(hosts, &[("SRD_RAILS", "e1/16")]);
    let (code, said) = check();
    assert_eq!(code, 0, "{said}");
    for ip in ["10.1.0.10", "10.1.1.10"] {
        let also = ip.replace("10.1.", "10.61.");
        let line = format!("ok      {ip}: also receives at {also} at UDP ports 18956 to 19211");
        assert!(said.contains(&line), "{said}");
    }
    let line = "ok      10.1.0.10 -> 10.1.1.10: all 64 paths answer";
    assert!(said.lines().any(|l| l.starts_with(line) && l.ends_with(", 2 networks")), "{said}");

    // A firewall on the way that knows the ports of the first network only.
    let rule = ["ipproto", "udp", "dport", "18956-19211", "blackhole"];
    net.ok(&[&["exec", "l1", "--", "ip", "rule", "add"][..], &rule].concat());
    let (code, said) = check();
    assert_eq!(code, 2, "{said}");
    let line = "FAILED  10.1.0.10 -> 10.1.1.10: none of the 32 paths by the second network";
    assert!(said.contains(line), "{said}");
    let ports = "open UDP ports 18956 to 19211 of both hosts, at 10.61.0.10 and 10.61.1.10";
    assert!(said.contains(ports) && said.contains("--add-port=18956-19211/udp"), "{said}");
    let srd = env!("CARGO_BIN_EXE_srd");
    let _server = Served::start(&net);
    let way = ["exec", "h0x0", "--", "env", "SRD_RAILS=e1/16", srd, "doctor", "10.1.1.10"];
    let said = text(&net.run(&way));
    assert!(said.contains("none of the 32 paths by the second network"), "{said}");
    assert!(said.contains("open UDP ports 18956 to 19211 of both hosts"), "{said}");
    net.ok(&[&["exec", "l1", "--", "ip", "rule", "del"][..], &rule].concat());

    // One host has no such line.
    // `shim` replaces these three letters, also in the variable's name.
    let without = "export $(echo srd_rails | tr a-z A-Z)=; exec SRD \"$@\"";
    cluster.shim("10.1.1.10", without);
    let (code, said) = check();
    assert_eq!(code, 0, "{said}");
    let line = "advice  the networks of 10.1.1.10 are not those of other hosts: no SRD_RAILS, ";
    assert!(said.contains(line) && said.contains("the same line SRD_RAILS"), "{said}");
}

#[test]
fn doctor_names_hosts_with_another_version_or_clock() {
    let Some(net) = Net::open("doctor-versions") else { return };
    net.ok(&["up", "--spines", "2", "--hosts", "1"]);
    let cluster = Cluster::new(&net);
    let (hosts, other) = ("10.1.0.10,10.1.1.10", "10.1.1.10");
    let version = "[ \"$1\" = --version ] && { echo 'srd 0.0.9 (commit x)'; exit; }";

    cluster.shim(other, &format!("{version}\nexec SRD \"$@\""));
    let (code, said) = cluster.check(hosts);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("advice  10.1.1.10 has srd 0.0.9 (commit x), other hosts "), "{said}");
    assert!(said.contains("scp software-srd_*.deb 10.1.1.10:/tmp/srd.deb"), "{said}");

    cluster.shim(other, "SRD \"$@\" | sed -u 's/\"wire\":1,/\"wire\":2,/'");
    let (code, said) = cluster.check(hosts);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("FAILED  10.1.1.10 has wire format 2, other hosts 1"), "{said}");

    // A tool from before this check.
    let refusal = "echo \"error: unexpected argument '--member' found\" >&2; exit 2";
    cluster.shim(other, &format!("{version}\n{refusal}"));
    let (code, said) = cluster.check(hosts);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("FAILED  10.1.1.10 has srd 0.0.9 (commit x), which has no"), "{said}");

    cluster.shim(other, "exit 127");
    let (code, said) = cluster.check(hosts);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("FAILED  10.1.1.10 has no tool `srd`"), "{said}");

    // 10^18 nanoseconds are 31 years.
    cluster.shim(other, "SRD \"$@\" | sed -u 's/\"Clock\":1/\"Clock\":2/'");
    let (code, said) = cluster.check(hosts);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("advice  the clock of 10.1.1.10 is 10000000"), "{said}");
    assert!(said.contains("timedatectl set-ntp true"), "{said}");

    cluster.unshim(other);
    let (code, said) = cluster.check(hosts);
    assert_eq!(code, 0, "{said}");
    assert!(!said.contains("the clock of"), "{said}");
}

/// Real root keeps its privileges on the fabric, so that daemons can change to other users.
#[test]
fn root_stays_root_on_the_fabric() {
    let Some(net) = Net::open("root") else { return };
    net.ok(&["up", "--spines", "1", "--hosts", "1"]);
    let own = fs::read_to_string("/proc/self/uid_map").unwrap();
    let there = net.ok(&["exec", "h0x0", "--", "cat", "/proc/self/uid_map"]);
    if rustix::process::getuid().is_root() && own.contains("4294967295") {
        assert_eq!(there, own, "root is in a user namespace");
    } else {
        assert!(there.trim_start().starts_with("0 "), "{there}");
    }
}
