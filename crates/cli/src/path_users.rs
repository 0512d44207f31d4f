//! `srd paths deny --all-users`: root's order for the processes of all users.
//!
//! A table that belongs to a user is in his hands, so root does not touch it: this program is
//! started once for each user, with his rights and without root's environment, and gives the order
//! as he would. What it says is read as what he may have made it say, and it has a time limit.

use crate::{
    failure::{Failure, Result},
    observe::printable,
    output,
};
use srd_share::{
    path_tables,
    status::{StatusScope, status_list},
};
use std::{
    collections::BTreeMap,
    fs,
    io::{self, Read as _},
    os::unix::{fs::MetadataExt as _, process::CommandExt as _},
    process::{Command, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

/// This program, also where a user may not open the folder that it is in.
const PROGRAM: &str = "/proc/self/exe";
/// Group for a user of whom no process runs: nobody's.
const NOBODY: u32 = 65_534;
/// Most bytes that are read of what a user's order says.
const SAID_MAX: u64 = 4096;
/// Time limit of the order of one user.
const LIMIT: Duration = Duration::from_secs(5);
/// How often it is looked whether an order is done.
const LOOK: Duration = Duration::from_millis(2);
/// Most users at once.
const USERS_MAX: usize = 256;

/// Gives an order (the words after `srd paths`) for each user who has a device in this network
/// namespace, or orders in force.
///
/// # Errors
/// The caller is not root, or the order of some user failed.
pub fn order(words: &[String]) -> Result {
    is_root()?;
    let users = users()?;
    if users.is_empty() {
        output::note("no user has an open device or denied paths in this network namespace");
    }
    if users.len() > USERS_MAX {
        output::note(&format!("of {} users only the first {USERS_MAX} are served", users.len()));
    }
    let mut failed = 0;
    for (uid, gid) in users.into_iter().take(USERS_MAX) {
        match as_user(uid, gid, words) {
            Ok(said) => output::line(&format!("user {uid}: {said}"))?,
            Err(why) => {
                failed += 1;
                output::note(&format!("user {uid}: {why}"));
            }
        }
    }
    match failed {
        0 => Ok(()),
        n => Err(Failure::new(format!("the order failed for {n} users"))),
    }
}

/// # Errors
/// The caller is not root.
pub fn is_root() -> Result {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    Err(Failure::usage("--all-users is root's: leave it out for your own processes, or use sudo"))
}

/// Users, each with a group of his.
fn users() -> Result<BTreeMap<u32, u32>> {
    let fail = |e| Failure::new(format!("cannot read /dev/shm: {e}; mount it (tmpfs)"));
    let mut users: BTreeMap<u32, u32> = BTreeMap::new();
    for (uid, _) in path_tables().map_err(fail)? {
        users.insert(uid, NOBODY);
    }
    for row in status_list(StatusScope::Network).map_err(fail)?.rows {
        let process = fs::metadata(format!("/proc/{}", row.pid)).ok();
        let own = process.filter(|process| process.uid() == row.uid);
        users.insert(row.uid, own.map_or(NOBODY, |process| process.gid()));
    }
    Ok(users)
}

/// Runs the order with the rights of a user. Returns what it says.
fn as_user(uid: u32, gid: u32, words: &[String]) -> Result<String, String> {
    let mut command = Command::new(PROGRAM);
    // No settings of root's, and no terminal that a user's process could write to.
    command.arg("paths").args(words).env_clear().uid(uid).gid(gid).current_dir("/");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|e| format!("cannot be served: {e}"))?;
    let streams = (child.stdout.take(), child.stderr.take());
    // Whoever inherits a stream may keep it open: nobody waits for that.
    let (out_to, out) = mpsc::channel();
    let (err_to, err) = mpsc::channel();
    thread::spawn(move || out_to.send(read(streams.0)));
    thread::spawn(move || err_to.send(read(streams.1)));
    let until = Instant::now() + LIMIT;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if Instant::now() < until => thread::sleep(LOOK),
            other => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(other.map_or_else(
                    |e| e.to_string(),
                    |_| format!("the order took more than {} s", LIMIT.as_secs()),
                ));
            }
        }
    };
    let text = |said: &mpsc::Receiver<String>| said.recv_timeout(LIMIT).unwrap_or_default();
    if status.success() { Ok(text(&out)) } else { Err(text(&err)) }
}

/// The first line, without anything that controls a terminal.
fn read(from: Option<impl io::Read>) -> String {
    let mut bytes = Vec::new();
    if let Some(from) = from {
        // What was read until an error is shown.
        let _ = from.take(SAID_MAX).read_to_end(&mut bytes);
    }
    let text = String::from_utf8_lossy(&bytes);
    printable(text.lines().next().unwrap_or_default().trim_start_matches("srd: "))
}
