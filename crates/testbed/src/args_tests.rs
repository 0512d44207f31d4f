use super::*;
use clap::Parser;

#[derive(Parser)]
struct Tool {
    #[command(flatten)]
    net: NetArgs,
}

fn parse(line: &str) -> Result<NetCommand, String> {
    let words = ["net"].into_iter().chain(line.split_whitespace());
    Tool::try_parse_from(words).map(|t| t.net.command).map_err(|e| e.to_string())
}

fn failed(line: &str) -> (Place, Fault, Option<Duration>) {
    match parse(line) {
        Ok(NetCommand::Fail { place, .. }) => {
            let (place, how) = place.parts();
            (place, how.fault(), how.lasting)
        }
        other => panic!("{line}: {other:?}"),
    }
}

#[test]
fn faults_are_read_from_the_command_line() {
    let second = Some(Duration::from_secs(1));
    let spine = Place::Spine(2);
    assert_eq!(failed("fail spine 2 --blackhole --for 1s"), (spine, Fault::Blackhole, second));
    assert_eq!(failed("fail spine 2 --loss 2%"), (spine, Fault::Loss(20_000), None));
    let link = Place::Link { leaf: 1, spine: 3 };
    assert_eq!(failed("fail link 1 3 --link-down"), (link, Fault::LinkDown, None));
    assert_eq!(failed("fail link 1 3 --rate 10M"), (link, Fault::Rate(10_000_000), None));
}

#[test]
fn a_fault_is_one_of_four_kinds() {
    let none = parse("fail spine 0").unwrap_err();
    assert!(none.contains("--blackhole") && none.contains("--rate"), "{none}");
    let two = parse("fail spine 0 --blackhole --link-down").unwrap_err();
    assert!(two.contains("cannot be used with"), "{two}");
    assert!(parse("fail spine 0 --loss 101%").is_err());
    assert!(parse("fail spine 0 --rate fast").is_err());
    assert!(parse("down --all --name net").is_err(), "all fabrics, or one");
}

#[test]
fn what_cannot_be_measured_is_refused_before_anything_is_built() {
    let Ok(NetCommand::Bench(bench)) = parse("bench shares --with srd,nope") else { panic!() };
    let why = bench.validate().unwrap_err().to_string();
    assert!(why.contains("`nope` is not a contender; the contenders are srd, "), "{why}");
    for (time, is_long) in
        [("0", false), ("49ms", false), ("50ms", true), ("10s", true), ("11s", false)]
    {
        let Ok(NetCommand::Demo(demo)) = parse(&format!("demo --for {time}")) else { panic!() };
        assert_eq!(demo.validate().is_ok(), is_long, "{time}");
    }
}

#[test]
fn a_fabric_is_built_as_the_options_say() {
    let line = "up --spines 8 --leaves 3 --hosts 5 --host-rate 1G --uplink-rate 500M --queue 64k \
                --nic-queue 1M --mtu 1500 --seed 9 --linkdown-aware --extra 2 --rails 2";
    let Ok(NetCommand::Up(up)) = parse(line) else { panic!("refused") };
    let spec = up.fabric.spec();
    assert_eq!((spec.spines, spec.leaves, spec.hosts), (8, 3, 5));
    assert_eq!(spec.host_bits_per_sec, 1_000_000_000);
    assert_eq!(spec.uplink_bits_per_sec, 500_000_000);
    assert_eq!((spec.queue_bytes, spec.nic_queue_bytes), (64_000, 1_000_000));
    assert_eq!((spec.mtu, spec.seed, spec.extra, spec.rails), (1500, 9, 2, 2));
    assert!(spec.linkdown_aware);
    assert_eq!(up.name.name, "net");
}
