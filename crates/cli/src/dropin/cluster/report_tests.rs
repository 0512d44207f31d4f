use super::*;
use crate::dropin::{
    entropy::Entropy,
    rails::tests::{networks, survey},
};

fn launcher() -> Launcher {
    Launcher::for_tests("ssh")
}

fn host(name: &str, ip: &str) -> Seen {
    Seen {
        name: name.into(),
        version: "0.1.0 (commit a)".into(),
        hello: Hello {
            wire: 1,
            interface: "e0".into(),
            link_mtu: 9000,
            payload: 8928,
            server: format!("{ip}:18700").parse().unwrap(),
            port_base: 18_700,
            networks: Some(networks(&[ip])),
            warnings: Vec::new(),
            libraries: Ok("/usr/lib/srd".into()),
        },
        clock: Some(Clock { ahead_ns: 0, error_ns: 1_000_000 }),
    }
}

fn probe() -> Probe {
    let paths = survey(64, |_| false);
    let ways = Entropy { good: true, ways: 4, hops: 3, what: String::new(), details: Vec::new() };
    Probe { paths: Ok(paths), ways: Ok(ways) }
}

fn failed(findings: &[Finding]) -> Vec<String> {
    let bad = findings.iter().filter(|(verdict, ..)| *verdict != Verdict::Good);
    bad.map(|(verdict, what, advice)| format!("{verdict:?}: {what}: {advice}")).collect()
}

#[test]
fn equal_hosts_have_one_line_each() {
    let hosts = [host("a", "10.0.0.1"), host("b", "10.0.0.2")];
    let usual = Usual::of(&hosts);
    for host in &hosts {
        let said = host_findings(&launcher(), host, &usual);
        assert_eq!((said.len(), said[0].0), (1, Verdict::Good), "{said:?}");
        assert!(said[0].1.contains("srd 0.1.0, wire format 1, interface e0"), "{said:?}");
    }
}

#[test]
fn a_host_that_differs_is_named_with_the_command_that_mends_it() {
    let mut hosts = ["a", "b", "c"].map(|name| host(name, "10.0.0.1"));
    hosts[1].version = "0.0.9 (commit b)".into();
    hosts[1].hello.link_mtu = 1500;
    hosts[1].hello.payload = 1428;
    hosts[1].clock = Some(Clock { ahead_ns: -3_200_000_000, error_ns: 1_000_000 });
    hosts[1].hello.libraries = Ok("/opt/srd".into());
    let usual = Usual::of(&hosts);
    assert!(failed(&host_findings(&launcher(), &hosts[0], &usual)).is_empty());
    let said = failed(&host_findings(&launcher(), &hosts[1], &usual));
    assert_eq!(said.len(), 4, "{said:?}");
    assert!(said.iter().all(|line| line.starts_with("Advice: ")), "{said:?}");
    assert!(said[0].contains("0.0.9 (commit b), other hosts 0.1.0"), "{said:?}");
    assert!(said[0].contains("ssh b 'apt-get install"), "{said:?}");
    assert!(said[1].ends_with("ssh b 'ip link set e0 mtu 9000'"), "{said:?}");
    assert!(said[2].contains("/opt/srd, other hosts in /usr/lib/srd"), "{said:?}");
    assert!(said[3].contains("is 3.2 s behind others"), "{said:?}");
    hosts[1].hello.wire = 2;
    hosts[1].hello.libraries = Err("none".into());
    let said = failed(&host_findings(&launcher(), &hosts[1], &Usual::of(&hosts)));
    let required: Vec<_> = said.iter().filter(|line| line.starts_with("Failed: ")).collect();
    assert_eq!(required.len(), 2, "{said:?}");
    assert!(required[0].contains("wire format 2, other hosts 1"), "{said:?}");
}

#[test]
fn a_clock_within_the_error_of_its_measurement_is_good() {
    let mut hosts = [host("a", "10.0.0.1"), host("b", "10.0.0.2")];
    hosts[1].clock = Some(Clock { ahead_ns: 900_000_000, error_ns: 850_000_000 });
    assert!(failed(&host_findings(&launcher(), &hosts[1], &Usual::of(&hosts))).is_empty());
    hosts[1].clock = Some(Clock { ahead_ns: 900_000_000, error_ns: 50_000_000 });
    assert_eq!(failed(&host_findings(&launcher(), &hosts[1], &Usual::of(&hosts))).len(), 1);
}

#[test]
fn of_two_versions_the_odd_one_is_not_that_of_this_tool() {
    let versions = ["9.9.9".to_owned(), "0.1.0".to_owned()];
    assert_eq!(most(versions.iter().cloned(), &versions[0]).unwrap(), "9.9.9");
    assert_eq!(most(versions.iter().cloned(), &versions[1]).unwrap(), "0.1.0");
    assert_eq!(most(std::iter::empty::<u8>(), &1), None);
}

#[test]
fn good_pairs_of_a_host_share_a_line_and_others_have_their_own() {
    let hosts = [host("a", "10.0.0.1"), host("b", "10.0.0.2"), host("c", "10.0.0.3")];
    let pair = |to: usize, probe| Pair { from: 0, to, probe };
    let good = [pair(1, Ok(probe())), pair(2, Ok(probe()))];
    let said = pairs_findings(&launcher(), &hosts, &good.iter().collect::<Vec<_>>());
    assert_eq!(said.len(), 1);
    assert_eq!(said[0].1, "a -> 2 others: all 64 paths answer, 80 to 90 us, 4 ECMP paths");

    let silent = Probe { paths: Err("nobody answers at 10.0.0.3:18700".into()), ..probe() };
    let one = [pair(1, Ok(probe())), pair(2, Ok(silent))];
    let said = pairs_findings(&launcher(), &hosts, &one.iter().collect::<Vec<_>>());
    assert!(said[0].1.starts_with("a -> b: all 64 paths"), "{said:?}");
    let bad = failed(&said);
    assert_eq!(bad.len(), 1, "{said:?}");
    assert!(bad[0].contains("Failed: a -> c: nobody answers at 10.0.0.3:18700"), "{bad:?}");
    assert!(bad[0].contains("--add-port=18700-18955/udp"), "{bad:?}");
    let lost = Probe { paths: Err("no route to 10.0.0.2: gone".into()), ..probe() };
    let bad = failed(&pairs_findings(&launcher(), &hosts, &[&pair(1, Ok(lost))]));
    assert!(bad[0].ends_with("ssh a 'ip route get 10.0.0.2'"), "{bad:?}");
    let dead = pair(1, Err("it ended".into()));
    assert!(failed(&pairs_findings(&launcher(), &hosts, &[&dead]))[0].contains("not measured"));
}

#[test]
fn advice_about_an_mtu_concerns_the_host_that_has_the_smaller_one() {
    let (from, mut to) = (host("a", "10.0.0.1"), host("b", "10.0.0.2"));
    let narrow = || {
        let mut probe = probe();
        probe.paths.as_mut().unwrap().narrow = Some(1180);
        Ok(probe)
    };
    let (verdict, what, advice) = trouble(&launcher(), &from, &to, &narrow()).unwrap();
    assert_eq!(verdict, Verdict::Failed);
    assert!(what.contains("packets of 1180 bytes arrive, full ones of 8928 do not"), "{what}");
    assert!(advice.contains("switches") && advice.contains("SRD_MTU=1180"), "{advice}");
    to.hello.link_mtu = 1500;
    let (_, _, advice) = trouble(&launcher(), &from, &to, &narrow()).unwrap();
    assert_eq!(advice, "ssh b 'ip link set e0 mtu 9000'");
}

#[test]
fn a_single_ecmp_path_is_reported_once_and_not_at_one_switch() {
    let hosts = [host("a", "10.0.0.1"), host("b", "10.0.0.2")];
    let with = |ways, hops| {
        let mut probe = probe();
        probe.ways = Ok(Entropy { good: false, ways, hops, what: String::new(), details: vec![] });
        probe
    };
    let pairs = |ways, hops| {
        [(0, 1), (1, 0)].map(|(from, to)| Pair { from, to, probe: Ok(with(ways, hops)) })
    };
    assert!(ecmp_findings(&hosts, &pairs(1, 1)).is_empty());
    let said = ecmp_findings(&hosts, &pairs(1, 3));
    assert_eq!(said.len(), 1);
    assert!(said[0].1.starts_with("2 of 2 pairs") && said[0].1.contains("a -> b, b -> a"));
    let uneven = pairs_findings(&launcher(), &hosts, &[&pairs(4, 3)[0]]);
    assert_eq!(uneven[0].0, Verdict::Advice);
}

#[test]
fn a_lost_host_says_why_and_what_to_do() {
    let text = |lost| {
        let (verdict, what, advice) = lost_finding(&launcher(), "c", &lost);
        format!("{verdict:?}: {what}: {advice}")
    };
    let said = text(Lost::Launcher("connection timed out".into()));
    assert!(said.starts_with("Failed: c cannot be reached: connection timed out"), "{said}");
    assert!(said.contains("ssh-copy-id c") && said.ends_with("ssh c true"), "{said}");
    assert!(text(Lost::Program).contains("scp software-srd_*.deb c:/tmp/srd.deb"));
    assert!(text(Lost::Version("0.0.1".into(), "x".into())).contains("c has srd 0.0.1"));
    assert!(text(Lost::Failed("no interface".into())).ends_with("ssh c 'srd doctor'"));
}

#[test]
fn a_silent_network_is_named_with_its_ports_and_a_host_that_lacks_it() {
    let with = |name: &str, ips: &[&str]| {
        let mut host = host(name, ips[0]);
        host.hello.networks = Some(networks(ips));
        host
    };
    let mut hosts = [
        with("a", &["10.0.0.1", "10.1.0.1"]),
        with("b", &["10.0.0.2", "10.1.0.2"]),
        with("c", &["10.0.0.3", "10.1.0.3"]),
    ];
    let said = host_findings(&launcher(), &hosts[0], &Usual::of(&hosts));
    assert_eq!(said[1].0, Verdict::Good);
    assert!(said[1].1.contains("10.1.0.1 at UDP ports 18956 to 19211"), "{said:?}");
    assert!(failed(&said).is_empty(), "{said:?}");
    let pair = |probe| Pair { from: 0, to: 1, probe: Ok(probe) };
    let good = pairs_findings(&launcher(), &hosts, &[&pair(probe())]);
    assert!(good[0].1.ends_with(", 2 networks"), "{good:?}");

    // The firewall of the second network is closed.
    let half = Probe { paths: Ok(survey(64, |path| path % 2 == 1)), ..probe() };
    let bad = failed(&pairs_findings(&launcher(), &hosts, &[&pair(half.clone())]));
    assert_eq!(bad.len(), 1, "{bad:?}");
    assert!(bad[0].contains("Failed: a -> b: none of the 32 paths by the second "), "{bad:?}");
    assert!(bad[0].contains("UDP ports 18956 to 19211 of both hosts, at 10.1.0.1 and 10.1.0.2"));
    assert!(bad[0].contains("ssh b 'firewall-cmd --permanent --add-port=18956-19211/udp"));
    assert!(bad[0].ends_with("ssh a 'ip route get 10.1.0.2 from 10.1.0.1'"), "{bad:?}");
    // Nobody answers at all: the ports of both networks are to be looked at.
    let none = Probe { paths: Err("nobody answers at 10.0.0.2:18700".into()), ..probe() };
    let bad = failed(&pairs_findings(&launcher(), &hosts, &[&pair(none)]));
    assert!(bad[0].contains("UDP ports 18700 to 19211 of both hosts"), "{bad:?}");
    // A few lost paths are no closed port.
    let few = Probe { paths: Ok(survey(64, |path| path == 1)), ..probe() };
    let bad = failed(&pairs_findings(&launcher(), &hosts, &[&pair(few)]));
    assert!(bad[0].contains("Advice: a -> b: 63 of 64 paths answer"), "{bad:?}");

    // The host has no such network: its setting is what is wrong, not a firewall.
    hosts[1].hello.networks = Some(networks(&["10.0.0.2"]));
    let said = failed(&host_findings(&launcher(), &hosts[1], &Usual::of(&hosts)));
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].contains("no SRD_RAILS, SRD_RAILS=10.0.0.1/16,10.1.0.1/16"), "{said:?}");
    assert!(failed(&host_findings(&launcher(), &hosts[0], &Usual::of(&hosts))).is_empty());
    let bad = failed(&pairs_findings(&launcher(), &hosts, &[&pair(half.clone())]));
    assert!(bad[0].ends_with("b has not the same networks: see above"), "{bad:?}");
    // A tool that does not tell its networks.
    hosts[0].hello.networks = None;
    let bad = failed(&pairs_findings(&launcher(), &hosts, &[&pair(half)]));
    assert!(bad[0].contains("Advice: a -> b: 32 of 64 paths answer"), "{bad:?}");
}
