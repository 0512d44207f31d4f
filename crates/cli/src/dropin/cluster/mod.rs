//! `srd doctor --hosts`: checks a cluster from one of its hosts, or from outside. On each host it
//! starts a member by a launcher such as ssh, and asks the members to probe each other.

mod launch;
pub mod member;
mod report;

use super::doctor::{DoctorArgs, Findings};
use crate::{
    dropin::{entropy::Entropy, rails::Networks},
    failure::{Failure, Result},
    paths::Survey,
    signals::Stop,
};
use launch::{Launcher, Remote};
use report::{Clock, Pair, Report, Seen};
use serde::{Deserialize, Serialize};
use std::{
    net::{IpAddr, SocketAddr},
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// Most hosts of one check: each one costs this process a child and two threads.
const HOSTS_MAX: usize = 1024;
/// Longest time for a member to start and introduce itself: a login may be slow.
const START_MAX: Duration = Duration::from_secs(30);
/// Longest time for the answer to a question about the clock.
const CLOCK_MAX: Duration = Duration::from_secs(10);
/// Questions about the clock per host; the quickest answer counts.
const CLOCK_ROUNDS: usize = 5;
/// Longest time for probes of one host: one that does not answer is given up after some seconds.
const PROBE_MAX: Duration = Duration::from_secs(60);

/// A question to a member, one line of JSON on its standard input.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Question {
    /// What does your clock show?
    Clock,
    /// How are the paths to this server?
    Probe(SocketAddr),
}

/// A line of JSON on a member's standard output: its introduction, or the answer to a question.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Answer {
    /// The member is ready.
    Hello(Hello),
    /// Nanoseconds since 1970 by the member's clock.
    Clock(u64),
    /// What the probes showed.
    Probe(Probe),
}

/// A member's introduction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Hello {
    /// Version of the wire format.
    wire: u8,
    /// Name of the network interface.
    interface: String,
    /// MTU of the interface in bytes.
    link_mtu: u32,
    /// Payload of a full packet in bytes.
    payload: usize,
    /// Address and port of the member's server.
    server: SocketAddr,
    /// First of the UDP ports that devices use.
    port_base: u16,
    /// The device's networks; `None` from a tool that does not tell them.
    #[serde(default)]
    networks: Option<Networks>,
    /// Warnings of the device.
    warnings: Vec<String>,
    /// Folder of the drop-in libraries, or why there is none.
    libraries: Result<String, String>,
}

/// What the probes of one server showed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Probe {
    /// The paths, or why nothing arrived.
    paths: Result<Survey, String>,
    /// ECMP paths as routers show them, or why they cannot be measured.
    ways: Result<Entropy, String>,
}

/// Nanoseconds since 1970.
fn now_ns() -> u64 {
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Checks the hosts and all pairs of them.
///
/// # Errors
/// The list of hosts is malformed, the output cannot be written, or the user requested a stop.
pub fn run(args: &DoctorArgs, hosts: &str, stop: &Stop, found: &mut Findings) -> Result {
    let names = names_of(hosts)?;
    let launcher = Launcher::new(args)?;
    let mut report = Report::new(&launcher, found);
    let started = each(&names, |name| launcher.start(name, stop));
    stop.check()?;
    let mut members: Vec<(Remote, Seen)> = Vec::new();
    for (name, start) in names.iter().zip(started) {
        match start {
            Ok((remote, version, hello)) => {
                let seen = Seen { name: name.clone(), version, hello, clock: None };
                members.push((remote, seen));
            }
            Err(lost) => report.lost(name, &lost)?,
        }
    }
    each(&mut members, |(remote, seen)| seen.clock = clock(remote, stop));
    stop.check()?;
    let seen: Vec<Seen> = members.iter().map(|(_, seen)| seen.clone()).collect();
    report.hosts(&seen)?;
    let mut remotes: Vec<Remote> = members.into_iter().map(|(remote, _)| remote).collect();
    let pairs = pairs(&mut remotes, &seen, stop);
    stop.check()?;
    report.pairs(&seen, &pairs)
}

/// The names in a list as `a,b` or `a:2,b:2`, each once.
fn names_of(hosts: &str) -> Result<Vec<String>> {
    let mut names: Vec<String> = Vec::new();
    for host in hosts.split(',') {
        let (name, ranks) = host.split_once(':').unwrap_or((host, "1"));
        // A name that begins with a dash would be an option of the launcher.
        if name.is_empty() || name.starts_with('-') || ranks.parse::<u32>().is_err() {
            return Err(Failure::usage(format!("--hosts {hosts}: write hosts as a,b or a:2,b:2")));
        }
        if !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    }
    match names.len() {
        0 | 1 => Err(Failure::usage(format!(
            "--hosts {hosts}: name two hosts at least; `srd doctor` on a host checks it alone"
        ))),
        2..=HOSTS_MAX => Ok(names),
        n => Err(Failure::usage(format!("--hosts: {n} hosts are too many, at most {HOSTS_MAX}"))),
    }
}

/// Does the work for each item at the same time.
fn each<I, T>(items: I, work: impl Fn(I::Item) -> T + Sync) -> Vec<T>
where
    I: IntoIterator<Item: Send>,
    T: Send,
{
    let work = &work;
    thread::scope(|s| {
        let threads: Vec<_> = items.into_iter().map(|item| s.spawn(move || work(item))).collect();
        let joined = threads.into_iter().map(thread::ScopedJoinHandle::join);
        joined.map(|done| done.unwrap_or_else(|e| std::panic::resume_unwind(e))).collect()
    })
}

/// How far a member's clock is ahead of this host's, by the quickest of some answers.
fn clock(remote: &mut Remote, stop: &Stop) -> Option<Clock> {
    let mut best: Option<Clock> = None;
    for _ in 0..CLOCK_ROUNDS {
        let before = now_ns();
        let Ok(Answer::Clock(theirs)) = remote.ask(&Question::Clock, CLOCK_MAX, stop) else {
            break;
        };
        let after = now_ns();
        let took = after.saturating_sub(before);
        let middle = i128::from(before) + i128::from(took / 2);
        let ahead_ns = i64::try_from(i128::from(theirs) - middle).unwrap_or(i64::MAX);
        let this = Clock { ahead_ns, error_ns: took / 2 };
        best = best.filter(|b| b.error_ns <= this.error_ns).or(Some(this));
    }
    best
}

/// Lets each member probe all others, in rounds: in round k, each probes the member k places
/// behind it, so that every server has one client at a time.
fn pairs(remotes: &mut [Remote], seen: &[Seen], stop: &Stop) -> Vec<Pair> {
    let n = remotes.len();
    let mut pairs = Vec::new();
    for round in 1..n {
        if stop.asked() {
            break;
        }
        let work = |(from, remote): (usize, &mut Remote)| {
            let to = (from + round) % n;
            let server = seen[to].hello.server;
            let probe = match remote.ask(&Question::Probe(server), PROBE_MAX, stop) {
                Ok(Answer::Probe(probe)) => Ok(probe),
                Ok(_) => Err("another answer than asked for".to_owned()),
                Err(why) => Err(why),
            };
            Pair { from, to, probe }
        };
        pairs.extend(each(remotes.iter_mut().enumerate(), work));
    }
    pairs.sort_by_key(|pair| (pair.from, pair.to));
    pairs
}

/// The address that a host's name says, if it is one.
fn address_in(name: &str) -> Option<IpAddr> {
    name.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_named_as_for_run_and_each_is_checked_once() {
        assert_eq!(names_of("a,b:2,a:4").unwrap(), ["a", "b"]);
        for wrong in ["", "a", "a,a", "a,,b", "a:x,b", "-oProxyCommand=x,b"] {
            assert!(names_of(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn lines_of_members_are_read_as_written() {
        let probe = Probe { paths: Err("nobody".into()), ways: Err("no route".into()) };
        for answer in [Answer::Clock(7), Answer::Probe(probe)] {
            let line = serde_json::to_string(&answer).unwrap();
            assert_eq!(serde_json::from_str::<Answer>(&line).unwrap(), answer);
        }
    }
}
