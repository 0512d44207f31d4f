//! `srd paths deny`, `allow`, `denied` and `watch`: an operator's orders to the devices of this
//! host, and what becomes of the paths.

use crate::{
    failure::{Failure, Result},
    host, output, path_probe, path_users,
    signals::Stop,
    units,
};
use serde::Serialize;
use srd_share::{
    PathControl, PathMask, PathOrder, path_tables, standing_change, standing_orders,
    status::{PathState, StatusRow, StatusScope, status_list},
};
use std::{
    collections::BTreeMap,
    net::{IpAddr, UdpSocket},
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

/// Paths of a device by default, where no process is running that could tell.
const PATHS_DEFAULT: u16 = 64;
/// How often a watch looks whether it is to end.
const LOOK: Duration = Duration::from_millis(20);

/// Paths in the words of a command: `all`, or numbers and ranges as `0-15,20`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathList(PathMask);

impl PathList {
    fn parse(text: &str) -> Result<Self, String> {
        let mut mask = PathMask::NONE;
        if text == "all" {
            (0..=u8::MAX).for_each(|path| mask.put(path, true));
            return Ok(Self(mask));
        }
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let number = |text: &str| -> Result<u8, String> {
                let wrong = || format!("`{text}` is no path: write 0 to 255, as in 0-15,20");
                text.parse().map_err(|_| wrong())
            };
            let (first, last) = (number(first)?, number(last)?);
            if first > last {
                return Err(format!("`{part}` ends before it begins: write {last}-{first}"));
            }
            (first..=last).for_each(|path| mask.put(path, true));
        }
        Ok(Self(mask))
    }
}

/// A mask as text: numbers and ranges.
fn text_of(mask: &PathMask) -> String {
    let mut ranges: Vec<(u8, u8)> = Vec::new();
    for path in (0..=u8::MAX).filter(|&path| mask.has(path)) {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == path => *last = path,
            _ => ranges.push((path, path)),
        }
    }
    let text = |&(first, last): &(u8, u8)| {
        if first == last { first.to_string() } else { format!("{first}-{last}") }
    };
    ranges.iter().map(text).collect::<Vec<_>>().join(",")
}

/// What to do.
#[derive(clap::Subcommand, Debug)]
pub enum PathOrders {
    /// Take paths to a host out of use, for all processes of this user in this network namespace,
    /// also for those that start later, until they are allowed again
    Deny(DenyArgs),
    /// Take paths to a host into use again
    Allow(AllowArgs),
    /// List the denied paths
    Denied,
    /// Write each change of a path's state, of all running processes, until Ctrl-C
    Watch(WatchArgs),
    /// Have all running processes probe their paths now, and show what came back
    Probe(ProbeArgs),
}

/// Arguments of `srd paths deny`.
#[derive(clap::Args, Debug)]
pub struct DenyArgs {
    /// Paths: numbers and ranges as 0-15,20. They are denied in addition to those that are already
    #[arg(value_name = "PATHS", value_parser = PathList::parse)]
    paths: PathList,
    /// Address of the remote host
    #[arg(long, value_name = "IP", value_parser = host::ip)]
    peer: IpAddr,
    /// Paths that must remain in use; an order that leaves fewer is refused
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u16).range(1..=256))]
    min_active: u16,
    /// As root: for the processes of each user, also of those who open their first device later
    #[arg(long)]
    all_users: bool,
}

/// Arguments of `srd paths allow`.
#[derive(clap::Args, Debug)]
pub struct AllowArgs {
    /// Paths: numbers and ranges as 0-15,20, or `all`
    #[arg(value_name = "PATHS", default_value = "all", value_parser = PathList::parse)]
    paths: PathList,
    /// Address of the remote host
    #[arg(long, value_name = "IP", value_parser = host::ip)]
    peer: IpAddr,
    /// As root: for the processes of each user, also of those who open their first device later
    #[arg(long)]
    all_users: bool,
}

/// Arguments of `srd paths watch`.
#[derive(clap::Args, Debug)]
pub struct WatchArgs {
    /// Only paths to this address
    #[arg(long, value_name = "IP", value_parser = host::ip)]
    peer: Option<IpAddr>,
    /// Time between two looks, as 1s or 200ms; processes show their paths every 100 ms at most
    #[arg(long, value_name = "TIME", default_value = "200ms", value_parser = units::duration)]
    interval: Duration,
    /// End after this time [default: never]
    #[arg(long = "for", value_name = "TIME", value_parser = units::duration)]
    duration: Option<Duration>,
    /// Write each change as one line of JSON
    #[arg(long)]
    json: bool,
}

/// Arguments of `srd paths probe`.
#[derive(clap::Args, Debug)]
pub struct ProbeArgs {
    /// Paths: numbers and ranges as 0-15,20, or `all`
    #[arg(value_name = "PATHS", default_value = "all", value_parser = PathList::parse)]
    pub paths: PathList,
    /// Only paths to this address [default: to the addresses that the processes show, 8 at most]
    #[arg(long, value_name = "IP", value_parser = host::ip)]
    pub peer: Option<IpAddr>,
    /// How long to wait for the answers
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = units::duration)]
    pub wait: Duration,
    /// Write all paths as one line of JSON
    #[arg(long)]
    pub json: bool,
}

/// Executes an order.
///
/// # Errors
/// Too few paths would remain in use, or the control file cannot be used.
pub fn run(order: &PathOrders, stop: &Stop) -> Result {
    match order {
        PathOrders::Deny(args) if args.all_users => {
            let (paths, peer) = (text_of(&args.paths.0), args.peer.to_string());
            let least = args.min_active.to_string();
            let words = ["deny", &paths, "--peer", &peer, "--min-active", &least];
            path_users::is_root()?;
            standing(args.peer, args.min_active, |mask| with(mask, &args.paths.0, true))?;
            path_users::order(&words.map(str::to_owned))
        }
        PathOrders::Allow(args) if args.all_users => {
            let (paths, peer) = (text_of(&args.paths.0), args.peer.to_string());
            path_users::is_root()?;
            standing(args.peer, 1, |mask| with(mask, &args.paths.0, false))?;
            path_users::order(&["allow", &paths, "--peer", &peer].map(str::to_owned))
        }
        PathOrders::Deny(args) => {
            let paths = args.paths.0;
            change(args.peer, args.min_active, |mask| with(mask, &paths, true))
        }
        PathOrders::Allow(args) => {
            let paths = args.paths.0;
            change(args.peer, 1, |mask| with(mask, &paths, false))
        }
        PathOrders::Denied => denied(),
        PathOrders::Watch(args) => watch(args, stop),
        PathOrders::Probe(args) => path_probe::run(args.paths.0, args, stop),
    }
}

/// Gives root's order for users who have no table yet: before the others get theirs, so that nobody
/// who comes meanwhile is left out.
fn standing(ip: IpAddr, least: u16, change: impl FnOnce(PathMask) -> PathMask) -> Result {
    let fail = |e| Failure::new(format!("nothing was changed: {e}"));
    let mask = standing_change(&control()?, ip, PATHS_DEFAULT, least, change).map_err(fail)?;
    let what = if mask.is_empty() { "none".to_owned() } else { text_of(&mask) };
    output::line(&format!("users who open their first device later: denied to {ip}: {what}"))
}

fn with(mut mask: PathMask, paths: &PathMask, on: bool) -> PathMask {
    (0..=u8::MAX).filter(|&path| paths.has(path)).for_each(|path| mask.put(path, on));
    mask
}

/// The control file of this user in this network namespace.
///
/// # Errors
/// It cannot be used.
pub fn control() -> Result<PathControl> {
    PathControl::open()
        .map_err(|e| Failure::new(format!("the control of paths cannot be used: {e}")))
}

/// The running devices that obey: those of this user in this network namespace.
///
/// # Errors
/// There is no `/dev/shm`.
pub fn devices() -> Result<Vec<StatusRow>> {
    let user = user();
    Ok(shown()?.into_iter().filter(|row| row.uid == user).collect())
}

/// The running devices in this network namespace whose status can be read: root sees those of all
/// users.
fn shown() -> Result<Vec<StatusRow>> {
    let list = status_list(StatusScope::Network)
        .map_err(|e| Failure::new(format!("cannot read /dev/shm: {e}; mount it (tmpfs)")))?;
    Ok(list.rows)
}

fn change(ip: IpAddr, least: u16, change: impl FnOnce(PathMask) -> PathMask) -> Result {
    let control = control()?;
    let devices = devices()?;
    // With the fewest paths of any device: each must have enough of them left.
    let paths = devices.iter().map(|row| row.status.paths).min().unwrap_or(PATHS_DEFAULT);
    let mask = control
        .change(ip, paths, least, change)
        .map_err(|e| Failure::new(format!("nothing was changed: {e}")))?;
    wake(&devices);
    let what = match mask.len() {
        0 => format!("all paths to {ip} are allowed"),
        n => format!("{n} paths to {ip} are denied: {}", text_of(&mask)),
    };
    let who = match devices.len() {
        1 => "the open device of this user obeys".to_owned(),
        n => format!("{n} devices of this user are open and obey"),
    };
    output::line(&format!("{what}; {who}"))
}

/// Wakes devices at rest, so that they look at their orders: an empty datagram from their own host.
/// One that is lost only delays that until the device has something else to do.
pub fn wake(devices: &[StatusRow]) {
    for row in devices {
        let (local, port) = (row.status.local, row.status.port);
        if let Ok(socket) = UdpSocket::bind((local, 0)) {
            let _ = socket.send_to(&[], (local, port));
        }
    }
}

fn denied() -> Result {
    let fail = |e| Failure::new(format!("cannot read /dev/shm: {e}; mount it (tmpfs)"));
    let (me, mut none) = (user(), true);
    for (uid, table) in path_tables().map_err(fail)? {
        let of = if uid == me { String::new() } else { format!(" by user {uid}") };
        let Some(mut table) = table else {
            let text = "is damaged, and no device obeys it: the next `srd paths allow` or `deny` \
                        of that user makes a new one";
            if uid == me {
                return Err(Failure::new(format!("the table of denied paths {text}")));
            }
            output::note(&format!("the table of user {uid} {text}"));
            continue;
        };
        table.orders.sort_by_key(|order| order.ip);
        for PathOrder { ip, least, mask } in &table.orders {
            none = false;
            output::line(&format!("{ip} denied {}{of} (at least {least} remain)", text_of(mask)))?;
        }
    }
    for PathOrder { ip, least, mask } in standing_orders().unwrap_or_default().orders {
        none = false;
        let whose = "for users who open their first device later";
        output::line(&format!("{ip} denied {} {whose} (at least {least} remain)", text_of(&mask)))?;
    }
    if none {
        output::note("no paths are denied");
    }
    Ok(())
}

/// The effective user.
pub fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// A state in the words of MRC's path control.
pub const fn word(state: PathState) -> &'static str {
    match state {
        PathState::Live | PathState::Penalised => "GOOD",
        PathState::Retired | PathState::Probing => "ASSUMED_BAD",
        PathState::Denied => "DENIED",
    }
}

/// A change of a path's state.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Change {
    /// Seconds since 1970.
    time: f64,
    pid: u32,
    peer: IpAddr,
    path: u8,
    from: &'static str,
    to: &'static str,
}

/// State of each path that is shown: process, port of the device, address, path.
type States = BTreeMap<(u32, u16, IpAddr, u8), &'static str>;

/// The states in these rows: bounded by what each device shows, and by the number of devices.
fn states(rows: &[StatusRow], peer: Option<IpAddr>) -> States {
    let mut states = States::new();
    for row in rows {
        let shown = row.status.peers.iter().filter(|p| peer.is_none_or(|ip| ip == p.ip));
        for p in shown {
            for path in &p.paths {
                states.insert((row.pid, row.status.port, p.ip, path.path), word(path.state));
            }
        }
    }
    states
}

/// Paths whose state differs; a path that was not shown before counts as good.
fn changes(before: &States, now: &States, time: f64) -> Vec<Change> {
    let change = |(key, &to): (&(u32, u16, IpAddr, u8), &&'static str)| {
        let from = before.get(key).copied().unwrap_or("GOOD");
        let &(pid, _, peer, path) = key;
        (from != to).then_some(Change { time, pid, peer, path, from, to })
    };
    now.iter().filter_map(change).collect()
}

fn watch(args: &WatchArgs, stop: &Stop) -> Result {
    let begin = Instant::now();
    let mut before = States::new();
    loop {
        let now = states(&shown()?, args.peer);
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        for change in changes(&before, &now, time.as_secs_f64()) {
            if args.json {
                let fail = |e| Failure::new(format!("cannot write the change as JSON: {e}"));
                output::line(&serde_json::to_string(&change).map_err(fail)?)?;
            } else {
                let Change { time, pid, peer, path, from, to } = change;
                output::line(&format!("{time:.3} {pid} {peer} path {path}: {from} -> {to}"))?;
            }
        }
        before = now;
        let next = Instant::now() + args.interval;
        while Instant::now() < next {
            if stop.asked() || args.duration.is_some_and(|time| begin.elapsed() >= time) {
                return Ok(());
            }
            thread::sleep(LOOK.min(args.interval));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_paths_are_read_and_written() {
        for (text, shown) in [
            ("3", "3"),
            ("0-15,20", "0-15,20"),
            ("20,1,0,2", "0-2,20"),
            ("250-255", "250-255"),
            ("all", "0-255"),
        ] {
            assert_eq!(text_of(&PathList::parse(text).unwrap().0), shown);
        }
        for (text, part) in
            [("", "is no path"), ("256", "is no path"), ("5-2", "write 2-5"), ("1-", "is no path")]
        {
            let told = PathList::parse(text).unwrap_err();
            assert!(told.contains(part), "{text}: {told}");
        }
    }

    #[test]
    fn only_what_differs_is_a_change() {
        let ip = |n: u8| IpAddr::from([10, 0, 0, n]);
        let of = |list: &[(u8, u8, &'static str)]| -> States {
            list.iter().map(|&(host, path, word)| ((1, 2, ip(host), path), word)).collect()
        };
        let before = of(&[(1, 0, "GOOD"), (1, 1, "ASSUMED_BAD"), (2, 0, "DENIED")]);
        let now = of(&[(1, 0, "DENIED"), (1, 1, "ASSUMED_BAD"), (2, 0, "GOOD"), (3, 0, "GOOD")]);
        let told: Vec<_> =
            changes(&before, &now, 1.5).iter().map(|c| (c.peer, c.path, c.from, c.to)).collect();
        assert_eq!(told, [(ip(1), 0, "GOOD", "DENIED"), (ip(2), 0, "DENIED", "GOOD")]);
    }
}
