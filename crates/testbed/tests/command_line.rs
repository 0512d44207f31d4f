//! The command line of `srd net`: accepted and refused arguments.

use clap::Parser;
use srd_testbed::NetArgs;
use srd_testbed::args::{FailPlace, NetCommand, UpArgs};
use srd_testbed::bench::{BenchArgs, Scenario};
use srd_testbed::check::CheckArgs;
use srd_testbed::fault::{Fault, Place};
use srd_testbed::spec::FabricSpec;
use std::time::Duration;

/// The tool with only this command.
#[derive(Debug, Parser)]
struct Tool {
    #[command(flatten)]
    net: NetArgs,
}

fn parse(line: &str) -> Result<NetCommand, String> {
    let words = std::iter::once("net").chain(line.split_whitespace());
    Tool::try_parse_from(words).map(|t| t.net.command).map_err(|e| e.to_string())
}

fn up(line: &str) -> UpArgs {
    match parse(line) {
        Ok(NetCommand::Up(args)) => args,
        other => panic!("{line}: {other:?}"),
    }
}

#[test]
fn a_fabric_without_options_is_the_default() {
    let args = up("up");
    assert_eq!(args.fabric.spec(), FabricSpec::default());
    assert_eq!((args.name.name.as_str(), args.until_pid), ("net", None));
}

#[test]
fn every_option_of_a_fabric_is_parsed() {
    let line = "up --name mine --spines 8 --leaves 3 --hosts 5 --host-rate 1G --uplink-rate 400M \
        --queue 100k --nic-queue 2MiB --mtu 1500 --seed 9 --linkdown-aware --extra 7 --rails 2 \
        --until-pid 42";
    let args = up(line);
    let want = FabricSpec {
        spines: 8,
        leaves: 3,
        hosts: 5,
        host_bits_per_sec: 1_000_000_000,
        uplink_bits_per_sec: 400_000_000,
        queue_bytes: 100_000,
        nic_queue_bytes: 2 << 20,
        mtu: 1500,
        seed: 9,
        linkdown_aware: true,
        extra: 7,
        rails: 2,
    };
    assert_eq!(args.fabric.spec(), want);
    assert_eq!((args.name.name.as_str(), args.until_pid), ("mine", Some(42)));
}

fn fail(line: &str) -> Result<(Place, Fault, Option<Duration>), String> {
    match parse(line)? {
        NetCommand::Fail { place, .. } => {
            let (place, how) = FailPlace::parts(&place);
            Ok((place, how.fault(), how.lasting))
        }
        other => panic!("{line}: {other:?}"),
    }
}

#[test]
fn a_fault_has_one_kind_and_one_place() {
    let spine = Place::Spine(2);
    let link = Place::Link { leaf: 1, spine: 3 };
    assert_eq!(fail("fail spine 2 --blackhole"), Ok((spine, Fault::Blackhole, None)));
    assert_eq!(fail("fail spine 2 --link-down"), Ok((spine, Fault::LinkDown, None)));
    assert_eq!(fail("fail link 1 3 --loss 1%"), Ok((link, Fault::Loss(10_000), None)));
    let slow = fail("fail link 1 3 --rate 25M --for 500ms");
    let half = Some(Duration::from_millis(500));
    assert_eq!(slow, Ok((link, Fault::Rate(25_000_000), half)));
    for line in [
        "fail spine 2",
        "fail spine --blackhole",
        "fail spine 2 --blackhole --link-down",
        "fail link 1 3 --loss 1% --rate 25M",
        "fail link 1 --blackhole",
        "fail spine 2 --loss 150%",
        "fail spine 2 --loss",
        "fail spine 256 --blackhole",
        "fail --blackhole",
    ] {
        assert!(fail(line).is_err(), "{line}");
    }
}

#[test]
fn commands_follow_two_dashes() {
    let Ok(NetCommand::Exec { name, node, command }) = parse("exec --name a h0x1 -- ip -s link")
    else {
        panic!("not read");
    };
    assert_eq!((name.name.as_str(), node.as_str()), ("a", "h0x1"));
    assert_eq!(command, ["ip", "-s", "link"]);
    assert!(parse("exec h0x1").is_err(), "a command is needed");
    assert!(parse("exec h0x1 ip").is_err(), "the program's options would be taken for srd's");
}

#[test]
fn down_takes_one_name_or_all() {
    let all = |line: &str| match parse(line) {
        Ok(NetCommand::Down { name, all }) => Ok((name.name, all)),
        Ok(other) => panic!("{line}: {other:?}"),
        Err(e) => Err(e),
    };
    assert_eq!(all("down"), Ok(("net".into(), false)));
    assert_eq!(all("down --name x"), Ok(("x".into(), false)));
    assert_eq!(all("down --all"), Ok(("net".into(), true)));
    assert!(all("down --all --name x").is_err());
}

#[test]
fn paths_need_two_hosts() {
    let Ok(NetCommand::Paths { from, to, port, count, dst_port, .. }) = parse("paths h0x0 h1x0")
    else {
        panic!("not read");
    };
    assert_eq!((from.as_str(), to.as_str()), ("h0x0", "h1x0"));
    assert_eq!((port, count, dst_port), (40_000, 64, 18_700), "as docs/net.md says");
    assert!(parse("paths h0x0").is_err());
    assert!(parse("paths h0x0 h1x0 --port 70000").is_err());
}

fn bench(line: &str) -> BenchArgs {
    match parse(line) {
        Ok(NetCommand::Bench(args)) => args,
        other => panic!("{line}: {other:?}"),
    }
}

#[test]
fn measurements_have_few_draws_when_quick() {
    let usual = bench("bench incast");
    assert_eq!(usual.scenario, Scenario::Incast);
    assert_eq!((usual.draws(), usual.rounds()), (10, 5));
    let quick = bench("bench fig6 --quick");
    assert_eq!((quick.draws(), quick.rounds()), (2, 2));
    let own = bench("bench fig6 --quick --draws 7 --rounds 3");
    assert_eq!((own.draws(), own.rounds()), (7, 3), "explicit options win");
    for line in ["bench", "bench x", "bench loss --draws 0", "bench loss --draws 1001"] {
        assert!(parse(line).is_err(), "{line}");
    }
}

#[test]
fn options_of_other_scenarios_are_refused() {
    let mpi = bench("bench mpi-incast --ranks 16 --sizes 8Ki,2Mi --rate 100M --busy --out x");
    assert_eq!((mpi.ranks, mpi.sizes.as_slice()), (Some(16), &[8192, 2 << 20][..]));
    assert_eq!((mpi.rate, mpi.busy), (Some(100_000_000), true));
    let all = ["bench incast --rate 1G --bytes 9k", "bench fig6 --rate 1G --busy", "bench loss"];
    for args in all.map(bench).iter().chain([&mpi]) {
        assert_eq!(args.validate(), Ok(()), "{args:?}");
    }
    for (line, scenario) in [
        ("bench loss --rate 1G", "incast, mpi-incast, fig6, slowhost"),
        ("bench shares --bytes 9k", "incast, fig6"),
        ("bench incast --ranks 8", "mpi-incast"),
        ("bench fig6 --sizes 8Ki", "mpi-incast"),
        ("bench incast --out x", "mpi-incast"),
        ("bench incast --drain 200M", "slowhost"),
        ("bench fig6 --senders 4", "slowhost"),
    ] {
        let error = bench(line).validate().unwrap_err();
        let names = |name: &str| error.to_string().contains(name);
        assert!(error.is_usage() && scenario.split(", ").all(names), "{line}: {error}");
    }
    for line in ["bench mpi-incast --ranks 3", "bench mpi-incast --sizes many"] {
        assert!(parse(line).is_err(), "{line}");
    }
}

#[test]
fn contenders_are_given_or_default() {
    let names = |args: &BenchArgs| -> Vec<String> {
        let list = args.contenders(&["srd", "cubic"]).unwrap();
        list.iter().map(|c| c.name().to_owned()).collect()
    };
    assert_eq!(names(&bench("bench loss")), ["srd", "cubic"]);
    assert_eq!(names(&bench("bench loss --with bbr,srd-no-credits")), ["bbr", "srd-no-credits"]);
    let error = bench("bench loss --with nobody").contenders(&["srd"]).unwrap_err();
    assert!(error.to_string().contains("`nobody`"), "{error}");
}

#[test]
fn checks_can_be_chosen() {
    let check = |line: &str| -> Result<CheckArgs, String> {
        match parse(line)? {
            NetCommand::Check(args) => Ok(args),
            other => panic!("{line}: {other:?}"),
        }
    };
    let all = check("check").unwrap();
    assert!(all.which.is_empty());
    assert_eq!((all.peers, all.seed), (10_000, 1));
    assert_eq!(check("check kill rails dead-readers").unwrap().which.len(), 3);
    assert_eq!(check("check liar --seed 7").unwrap().seed, 7);
    for line in ["check nothing", "check peers --peers 0", "check peers --peers 12801"] {
        assert!(check(line).is_err(), "{line}");
    }
}

#[test]
fn long_runs_have_a_time_and_a_rate() {
    let Ok(NetCommand::Soak(args)) = parse("soak") else { panic!("not read") };
    assert_eq!(args.time, Duration::from_secs(30 * 60));
    assert_eq!((args.seed, args.rate), (1, 60_000_000));
    let Ok(NetCommand::Soak(args)) = parse("soak --for 90s --rate 10M --seed 3") else {
        panic!("not read");
    };
    assert_eq!((args.time, args.seed, args.rate), (Duration::from_secs(90), 3, 10_000_000));
    let Ok(NetCommand::Demo(demo)) = parse("demo --for 500ms --with srd,mptcp") else {
        panic!("not read");
    };
    assert_eq!(demo.dead, Duration::from_millis(500));
    assert_eq!(demo.with, ["srd", "mptcp"]);
}

#[test]
fn invalid_numbers_are_refused() {
    for line in [
        "up --host-rate fast",
        "up --queue many",
        "up --mtu 70000",
        "up --spines -1",
        "fail spine 0 --loss most",
        "soak --for ever",
        "soak --rate 10",
    ] {
        assert!(parse(line).is_err(), "{line}");
    }
}

#[test]
fn internal_commands_are_hidden() {
    use clap::CommandFactory as _;
    let tool = Tool::command();
    let of = |hidden| -> Vec<&str> {
        let list = tool.get_subcommands().filter(|c| c.is_hide_set() == hidden);
        list.map(clap::Command::get_name).collect()
    };
    assert_eq!(of(true), ["crowd", "reader", "worker", "other-work", "hold"]);
    for shown in ["up", "down", "status", "exec", "paths", "fail", "heal", "bench", "demo"] {
        assert!(of(false).contains(&shown), "{shown}");
    }
    // Every command has a description.
    assert!(tool.get_subcommands().all(|c| c.get_about().is_some()));
}
