//! What `srd doctor --hosts` says: a line per host and per pair, and the command that corrects what
//! is wrong.

use super::{
    Hello, Probe,
    launch::{Launcher, Lost, plain},
};
use crate::{
    dropin::{
        doctor::{Findings, Verdict},
        entropy::HASH_ADVICE,
        rails::{Networks, Silent, firewall_command, ordinal},
    },
    failure::Result,
    paths::Survey,
};
use std::collections::BTreeMap;

/// Clocks may differ by this much, in nanoseconds: lines of two logs are still put in order by eye.
const CLOCK_NS_MAX: i64 = 100_000_000;
/// Pairs that one line names at most.
const PAIRS_NAMED_MAX: usize = 3;
/// The version that this program has.
const OWN_VERSION: &str = env!("SRD_VERSION");

/// A clock beside that of this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    /// How far it is ahead, in nanoseconds.
    pub ahead_ns: i64,
    /// Largest error of that, in nanoseconds.
    pub error_ns: u64,
}

/// A host whose member has started.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    /// Its name in the list.
    pub name: String,
    /// Version of the tool, as `srd --version` says it.
    pub version: String,
    /// Its introduction.
    pub hello: Hello,
    /// Its clock.
    pub clock: Option<Clock>,
}

/// The probes of one host by another.
#[derive(Clone, Debug, PartialEq)]
pub struct Pair {
    /// Place of the prober among the hosts.
    pub from: usize,
    /// Place of the probed host.
    pub to: usize,
    /// What it saw, or why there is no answer.
    pub probe: Result<Probe, String>,
}

/// A finding: verdict, text, and advice.
type Finding = (Verdict, String, String);

/// Prints findings.
pub struct Report<'a> {
    launcher: &'a Launcher,
    found: &'a mut Findings,
}

impl<'a> Report<'a> {
    /// Findings are counted in `found`.
    pub fn new(launcher: &'a Launcher, found: &'a mut Findings) -> Self {
        Self { launcher, found }
    }

    fn tell(&mut self, findings: Vec<Finding>) -> Result {
        findings
            .iter()
            .try_for_each(|(verdict, what, advice)| self.found.tell(*verdict, &plain(what), advice))
    }

    /// A host without a member.
    ///
    /// # Errors
    /// The reader of the output has exited.
    pub fn lost(&mut self, name: &str, lost: &Lost) -> Result {
        self.tell(vec![lost_finding(self.launcher, name, lost)])
    }

    /// The hosts themselves.
    ///
    /// # Errors
    /// The reader of the output has exited.
    pub fn hosts(&mut self, seen: &[Seen]) -> Result {
        let usual = Usual::of(seen);
        for host in seen {
            self.tell(host_findings(self.launcher, host, &usual))?;
        }
        Ok(())
    }

    /// The network between them.
    ///
    /// # Errors
    /// The reader of the output has exited.
    pub fn pairs(&mut self, seen: &[Seen], pairs: &[Pair]) -> Result {
        for from in 0..seen.len() {
            let own: Vec<&Pair> = pairs.iter().filter(|pair| pair.from == from).collect();
            self.tell(pairs_findings(self.launcher, seen, &own))?;
        }
        self.tell(ecmp_findings(seen, pairs))
    }
}

/// How to install the tool on a host.
fn install(launcher: &Launcher, name: &str) -> String {
    let install = launcher.shown(name, "apt-get install -y /tmp/srd.deb");
    format!(
        "install the same package there: scp software-srd_*.deb {name}:/tmp/srd.deb && {install}"
    )
}

fn lost_finding(launcher: &Launcher, name: &str, lost: &Lost) -> Finding {
    let (what, advice) = match lost {
        Lost::Launcher(words) => (
            format!("{name} cannot be reached: {words}"),
            format!(
                "this must work without a password (ssh-copy-id {name}): {}",
                launcher.shown(name, "true")
            ),
        ),
        Lost::Program => (
            format!("{name} has no tool `srd` at this path"),
            format!("{}; or name its path there with --program", install(launcher, name)),
        ),
        Lost::Version(version, words) => (
            format!("{name} has srd {version}, which has no such check ({words})"),
            install(launcher, name),
        ),
        Lost::Failed(words) => {
            (format!("{name} takes no part: {words}"), launcher.shown(name, "srd doctor"))
        }
    };
    (Verdict::Failed, what, advice)
}

/// What most hosts have in common.
struct Usual {
    version: String,
    wire: u8,
    /// Largest payload of a full packet, and the MTU of its interface.
    payload: usize,
    link_mtu: u32,
    libraries: Option<String>,
    networks: Option<Networks>,
    /// The middle one of the clocks, in nanoseconds ahead of this host's.
    clock_ns: i64,
}

impl Usual {
    fn of(seen: &[Seen]) -> Self {
        let mut clocks: Vec<i64> = seen.iter().filter_map(|s| Some(s.clock?.ahead_ns)).collect();
        clocks.sort_unstable();
        let widest = seen.iter().max_by_key(|s| s.hello.payload);
        let networks = || seen.iter().filter_map(|s| s.hello.networks.as_ref());
        let folders = seen.iter().filter_map(|s| s.hello.libraries.clone().ok());
        Self {
            version: most(seen.iter().map(|s| s.version.clone()), &OWN_VERSION.to_owned())
                .unwrap_or_default(),
            wire: most(seen.iter().map(|s| s.hello.wire), &srd_wire::VERSION).unwrap_or_default(),
            payload: widest.map_or(0, |s| s.hello.payload),
            link_mtu: widest.map_or(0, |s| s.hello.link_mtu),
            libraries: most(folders, &String::new()),
            // Of equally frequent ones those with more networks: a host without the line is odd.
            networks: networks()
                .rev()
                .max_by_key(|n| (networks().filter(|other| n.alike(other)).count(), n.count()))
                .cloned(),
            clock_ns: clocks.get(clocks.len().saturating_sub(1) / 2).copied().unwrap_or(0),
        }
    }
}

/// The most frequent value; of two equally frequent ones `own`, if it is one of them.
fn most<T: Ord>(values: impl Iterator<Item = T>, own: &T) -> Option<T> {
    let mut counts: BTreeMap<T, usize> = BTreeMap::new();
    for value in values {
        *counts.entry(value).or_insert(0) += 1;
    }
    counts.into_iter().max_by_key(|(value, count)| (*count, value == own)).map(|(value, _)| value)
}

/// A time for people, from nanoseconds.
fn time_text(ns: u64) -> String {
    match ns {
        0..1_000_000_000 => format!("{:.1} ms", ns as f64 / 1e6),
        _ => format!("{:.1} s", ns as f64 / 1e9),
    }
}

fn host_findings(launcher: &Launcher, host: &Seen, usual: &Usual) -> Vec<Finding> {
    let (name, hello) = (&host.name, &host.hello);
    let short = host.version.split(" (").next().unwrap_or_default();
    let off = host.clock.map(|c| (c.ahead_ns.saturating_sub(usual.clock_ns), c.error_ns));
    let clock = off.map_or_else(
        || "clock unknown".to_owned(),
        |(off, error)| {
            // What rounds to nothing has no direction.
            let sign = if off < -50_000 { '-' } else { '+' };
            format!("clock {sign}{} (± {})", time_text(off.unsigned_abs()), time_text(error))
        },
    );
    let mut out = vec![(
        Verdict::Good,
        format!(
            "{name}: srd {short}, wire format {}, interface {} with {}, packets carry {} bytes, \
             {clock}",
            hello.wire,
            hello.interface,
            hello.server.ip(),
            hello.payload
        ),
        String::new(),
    )];
    if hello.wire != usual.wire {
        let what = format!(
            "{name} has wire format {}, other hosts {}: they drop each other's packets",
            hello.wire, usual.wire
        );
        out.push((Verdict::Failed, what, install(launcher, name)));
    } else if host.version != usual.version {
        let what = format!(
            "{name} has srd {}, other hosts {}: use one version within a job",
            host.version, usual.version
        );
        out.push((Verdict::Advice, what, install(launcher, name)));
    }
    if hello.payload < usual.payload {
        let what = format!(
            "packets of {name} carry {} bytes, those of other hosts {}",
            hello.payload, usual.payload
        );
        out.push((Verdict::Advice, what, mtu_command(launcher, host, usual.link_mtu)));
    }
    out.extend(network_findings(name, hello, usual));
    match &hello.libraries {
        Err(why) => {
            let what = format!("{name} has no drop-in libraries: {why}");
            out.push((Verdict::Failed, what, install(launcher, name)));
        }
        Ok(dir) if usual.libraries.as_ref().is_some_and(|usual| usual != dir) => {
            let usual = usual.libraries.as_deref().unwrap_or_default();
            let what = format!("{name} has the drop-in libraries in {dir}, other hosts in {usual}");
            let advice = "`srd run` passes the path on, so it must be the same on all hosts";
            out.push((Verdict::Advice, what, advice.into()));
        }
        Ok(_) => {}
    }
    if let Some((off, error)) = off
        && off.unsigned_abs() > error.saturating_add(CLOCK_NS_MAX as u64)
    {
        let side = if off < 0 { "behind" } else { "ahead of" };
        let what =
            format!("the clock of {name} is {} {side} others", time_text(off.unsigned_abs()));
        let command = launcher.shown(name, "timedatectl set-ntp true");
        let advice = format!("logs and captures of hosts cannot be put in order: {command}");
        out.push((Verdict::Advice, what, advice));
    }
    out.extend(
        hello
            .warnings
            .iter()
            .map(|text| (Verdict::Advice, format!("{name}: {text}"), String::new())),
    );
    out
}

/// The networks of `SRD_RAILS`, and whether the other hosts have the same.
fn network_findings(name: &str, hello: &Hello, usual: &Usual) -> Vec<Finding> {
    let (Some(own), Some(others)) = (&hello.networks, &usual.networks) else { return Vec::new() };
    let mut out = Vec::new();
    if let Some(further) = own.further() {
        let what = format!("{name}: also receives at {further} (SRD_RAILS)");
        out.push((Verdict::Good, what, String::new()));
    }
    if !own.alike(others) {
        let (own, others) = (own.setting(), others.setting());
        let what = format!("the networks of {name} are not those of other hosts: {own}, {others}");
        let advice = "give all hosts the same line SRD_RAILS in /etc/srd.conf; until then they use \
                      the first network alone, after losses";
        out.push((Verdict::Advice, what, advice.into()));
    }
    out
}

fn mtu_command(launcher: &Launcher, host: &Seen, mtu: u32) -> String {
    launcher.shown(&host.name, &format!("ip link set {} mtu {mtu}", host.hello.interface))
}

/// What one host has found out about the others: a line for all that are good, and one for each
/// that is not.
fn pairs_findings(launcher: &Launcher, seen: &[Seen], own: &[&Pair]) -> Vec<Finding> {
    let (mut good, mut bad) = (Vec::new(), Vec::new());
    for pair in own {
        let (from, to) = (&seen[pair.from], &seen[pair.to]);
        match trouble(launcher, from, to, &pair.probe) {
            Some(finding) => bad.push(finding),
            None => good.push(*pair),
        }
    }
    good_finding(seen, &good).into_iter().chain(bad).collect()
}

/// The line about all pairs that are good.
fn good_finding(seen: &[Seen], good: &[&Pair]) -> Option<Finding> {
    let first = good.first()?;
    let probes: Vec<&Probe> = good.iter().filter_map(|pair| pair.probe.as_ref().ok()).collect();
    let surveys: Vec<_> = probes.iter().filter_map(|p| p.paths.as_ref().ok()).collect();
    let low = surveys.iter().map(|s| s.rtt_us_min).fold(f64::INFINITY, f64::min);
    let high = surveys.iter().map(|s| s.rtt_us_max).fold(0.0, f64::max);
    let paths = surveys.iter().map(|s| s.total).min().unwrap_or(0);
    let ways = || probes.iter().filter_map(|p| p.ways.as_ref().ok()).map(|w| w.ways);
    let ways = match (ways().min().unwrap_or(0), ways().max().unwrap_or(0)) {
        (_, 0) => String::new(),
        (1, 1) => ", 1 ECMP path".into(),
        (least, most) if least == most => format!(", {most} ECMP paths"),
        (least, most) => format!(", {least} to {most} ECMP paths"),
    };
    let to = match good.len() {
        1 => seen[first.to].name.clone(),
        n => format!("{n} others"),
    };
    let networks = seen[first.from].hello.networks.as_ref().map_or(1, Networks::count);
    let networks = match networks {
        0 | 1 => String::new(),
        n => format!(", {n} networks"),
    };
    let what = format!(
        "{} -> {to}: all {paths} paths answer, {low:.0} to {high:.0} us{ways}{networks}",
        seen[first.from].name
    );
    Some((Verdict::Good, what, String::new()))
}

/// What is wrong from one host to another.
fn trouble(
    launcher: &Launcher,
    from: &Seen,
    to: &Seen,
    probe: &Result<Probe, String>,
) -> Option<Finding> {
    let way = format!("{} -> {}", from.name, to.name);
    let failed = |what: String, advice: String| Some((Verdict::Failed, what, advice));
    let probe = match probe {
        Ok(probe) => probe,
        Err(why) => return failed(format!("{way}: not measured: {why}"), String::new()),
    };
    let survey = match &probe.paths {
        Ok(survey) => survey,
        Err(why) if why.starts_with("nobody answers") => {
            let (base, server) = (to.hello.port_base, to.hello.server);
            let ports = (base, base.saturating_add(255));
            let (base, last) = to.hello.networks.as_ref().map_or(ports, Networks::ports_all);
            let advice = format!(
                "open UDP ports {base} to {last} of both hosts: {}; or there is no route: {}",
                launcher.shown(&to.name, &firewall_command((base, last))),
                launcher.shown(&from.name, &format!("ip route get {}", server.ip()))
            );
            return failed(format!("{way}: nobody answers at {server}"), advice);
        }
        Err(why) if why.starts_with("no route") => {
            let look = format!("ip route get {}", to.hello.server.ip());
            return failed(format!("{way}: {why}"), launcher.shown(&from.name, &look));
        }
        Err(why) => return failed(format!("{way}: {why}"), String::new()),
    };
    if let Some(bytes) = survey.narrow {
        let what = format!(
            "{way}: packets of {bytes} bytes arrive, full ones of {} do not, so longer messages \
             fail",
            from.hello.payload
        );
        let advice = if to.hello.link_mtu < from.hello.link_mtu {
            mtu_command(launcher, to, from.hello.link_mtu)
        } else {
            format!(
                "give the switches the MTU of the hosts; or use smaller packets: SRD_MTU={bytes}"
            )
        };
        return failed(what, advice);
    }
    if let Some(finding) = silent_finding(launcher, from, to, survey) {
        return Some(finding);
    }
    if survey.answering < survey.total {
        let what = format!("{way}: {} of {} paths answer", survey.answering, survey.total);
        let ip = to.hello.server.ip();
        let advice = format!("`srd serve --ip {ip}` there and `srd paths {ip}` here show which");
        return Some((Verdict::Advice, what, advice));
    }
    match &probe.ways {
        Ok(ways) if !ways.good && ways.ways > 1 => {
            let advice = ways.details.last().cloned().unwrap_or_default();
            Some((Verdict::Advice, format!("{way}: {}", ways.what), advice))
        }
        Err(why) => {
            let what = format!("{way}: ECMP paths cannot be measured: {why}");
            Some((Verdict::Advice, what, String::new()))
        }
        Ok(_) => None,
    }
}

/// A network of `SRD_RAILS` from which nothing comes back, if there is one.
fn silent_finding(launcher: &Launcher, from: &Seen, to: &Seen, survey: &Survey) -> Option<Finding> {
    let own = from.hello.networks.as_ref()?;
    let Silent { rail, paths } = *own.silent(to.hello.server.ip(), survey).first()?;
    let what = format!(
        "{} -> {}: none of the {paths} paths by the {} network of SRD_RAILS answers",
        from.name,
        to.name,
        ordinal(rail)
    );
    let theirs = to.hello.networks.as_ref().filter(|theirs| theirs.alike(own));
    let Some((theirs, source)) = theirs.and_then(|n| n.ip(rail)).zip(own.ip(rail)) else {
        let advice = format!("{} has not the same networks: see above", to.name);
        return Some((Verdict::Advice, what, advice));
    };
    let ports @ (first, last) = own.ports(rail);
    let advice = format!(
        "open UDP ports {first} to {last} of both hosts, at {source} and {theirs}: {}; or there is \
         no route: {}",
        launcher.shown(&to.name, &firewall_command(ports)),
        launcher.shown(&from.name, &format!("ip route get {theirs} from {source}"))
    );
    Some((Verdict::Failed, what, advice))
}

/// Pairs with several routers on their way, but a single ECMP path: routers that do not hash ports
/// concern all pairs, so there is one line for all.
fn ecmp_findings(seen: &[Seen], pairs: &[Pair]) -> Vec<Finding> {
    let single = |pair: &&Pair| {
        let ways = pair.probe.as_ref().ok().and_then(|probe| probe.ways.as_ref().ok());
        // One router is all there is between hosts at the same switch.
        ways.is_some_and(|ways| ways.ways == 1 && ways.hops > 1)
    };
    let single: Vec<&Pair> = pairs.iter().filter(single).collect();
    if single.is_empty() {
        return Vec::new();
    }
    let named = single.iter().take(PAIRS_NAMED_MAX);
    let mut names: Vec<String> =
        named.map(|p| format!("{} -> {}", seen[p.from].name, seen[p.to].name)).collect();
    if single.len() > names.len() {
        names.push("...".into());
    }
    let what = format!(
        "{} of {} pairs have several routers on their way, but take 1 ECMP path ({})",
        single.len(),
        pairs.len(),
        names.join(", ")
    );
    vec![(Verdict::Advice, what, format!("if there are more, {HASH_ADVICE}"))]
}

#[cfg(test)]
#[path = "report_tests.rs"]
mod tests;
