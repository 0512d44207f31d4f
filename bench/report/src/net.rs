//! Two network namespaces connected by a veth pair.
//!
//! The report runs in the first namespace; a process that only reads its standard input keeps the
//! second alive. The namespaces have no names, so they vanish when these processes end for any
//! reason.

use crate::{Result, pair};
use serde_json::Value;
use std::{
    io::{BufRead, BufReader},
    os::unix::process::CommandExt,
    process::{Child, Command, Stdio},
};

/// Address of the driving end.
pub const NEAR_IP: &str = "10.77.0.1";
/// First address of the serving end; further addresses, as many as 1,000 engines need, follow it.
pub const FAR_IP: &str = "10.77.1.1";
/// Number of addresses of the serving end.
const FAR_IPS: u8 = 4;
/// MTU of the link: large enough for 8900 bytes of payload with all headers.
const MTU: &str = "9000";
const NEAR: &str = "srd-near";
const FAR: &str = "srd-far";
/// Variable that is set in the process inside the namespace.
const INSIDE: &str = "SRD_REPORT_INSIDE";

/// Required programs, and the Debian packages that contain them.
const TOOLS: [(&str, &str); 9] = [
    ("ip", "iproute2"),
    ("ethtool", "ethtool"),
    ("iperf3", "iperf3"),
    ("unshare", "util-linux"),
    ("nsenter", "util-linux"),
    ("setsid", "util-linux"),
    ("taskset", "util-linux"),
    ("nice", "coreutils"),
    ("timeout", "coreutils"),
];

/// Reports missing packages of those that all rows need.
pub fn tools_check() -> Result<()> {
    tools_find(&TOOLS)
}

/// Requires these programs, each with the Debian package that contains it.
pub fn tools_find(tools: &[(&str, &str)]) -> Result<()> {
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    let there = |tool: &str| path.split(':').any(|d| std::path::Path::new(d).join(tool).is_file());
    let mut missing: Vec<_> = tools.iter().filter(|t| !there(t.0)).map(|t| t.1).collect();
    missing.dedup();
    if missing.is_empty() {
        return Ok(());
    }
    let all = missing.join(" ");
    Err(format!("missing: {all}. Install with:\n    sudo apt-get install -y {all}").into())
}

/// Continues in a new network namespace by restarting this program in it, unless it runs in one
/// already. Works as root, and where users may create namespaces.
pub fn enter() -> Result<()> {
    if std::env::var_os(INSIDE).is_some() {
        return Ok(());
    }
    let ways: [&[&str]; 2] = [&["--net"], &["--user", "--map-root-user", "--net"]];
    let works = |way: &&&[&str]| {
        let quiet = Command::new("unshare").args(**way).arg("true").stderr(Stdio::null()).status();
        quiet.is_ok_and(|s| s.success())
    };
    let way = ways.iter().find(works).ok_or(
        "cannot create a network namespace: run as root, or allow users to create namespaces \
         (sysctl kernel.unprivileged_userns_clone=1; on Ubuntu also \
         kernel.apparmor_restrict_unprivileged_userns=0)",
    )?;
    let own = std::env::current_exe()?;
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    let mut command = Command::new("unshare");
    command.args(*way).arg("--").arg(own).args(std::env::args_os().skip(1));
    Err(command.env(INSIDE, "1").env("PATH", path).exec().into())
}

/// Namespace in which a program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Near,
    Far,
}

/// The pair of namespaces.
pub struct Net {
    /// Keeps the far namespace alive until its standard input is closed.
    holder: Child,
    /// Whether the ends run at raised priority.
    pub raise: bool,
}

impl Drop for Net {
    fn drop(&mut self) {
        drop(self.holder.stdin.take());
        // Ends the holder; it may have ended already.
        let _ = self.holder.wait();
    }
}

impl Net {
    /// Creates the namespaces. The link's offloads are those of a network card with GRO, but
    /// packets cross the link unmerged; this is verified.
    pub fn build() -> Result<Self> {
        let own = std::env::current_exe()?;
        let mut hold = Command::new("unshare");
        hold.arg("--net").arg("--").arg(own).args(["end", "hold"]);
        let mut holder = hold.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let out = holder.stdout.take().ok_or("no output of the holder")?;
        let mut ready = String::new();
        BufReader::new(out).read_line(&mut ready)?;
        if ready.trim() != "null" {
            return Err("the second namespace could not be created".into());
        }
        let net = Self { holder, raise: pair::may_raise() };
        let pid = net.holder.id().to_string();
        let link = ["ip", "link", "add", NEAR, "mtu", MTU, "type", "veth", "peer", "name", FAR];
        net.run(Place::Near, &[&link[..], &["mtu", MTU, "netns", &pid]].concat())?;
        for (place, device) in [(Place::Near, NEAR), (Place::Far, FAR)] {
            net.run(place, &["ip", "link", "set", "lo", "up"])?;
            let features = "tso off gso off tx-udp-segmentation off gro on";
            let mut words = vec!["ethtool", "-K", device];
            words.extend(features.split(' '));
            net.run(place, &words)?;
            net.run(place, &["ip", "link", "set", device, "up"])?;
        }
        let near = format!("{NEAR_IP}/16");
        net.run(Place::Near, &["ip", "addr", "add", &near, "dev", NEAR])?;
        for last in 1..=FAR_IPS {
            let far = format!("10.77.1.{last}/16");
            net.run(Place::Far, &["ip", "addr", "add", &far, "dev", FAR])?;
        }
        Ok(net)
    }

    /// A command that runs in one of the namespaces.
    pub fn command(&self, place: Place, words: &[impl AsRef<str>]) -> Command {
        let mut command;
        if place == Place::Near {
            command = Command::new(words[0].as_ref());
        } else {
            command = Command::new("nsenter");
            command.arg(format!("--net=/proc/{}/ns/net", self.holder.id()));
            command.arg("--").arg(words[0].as_ref());
        }
        command.args(words[1..].iter().map(AsRef::as_ref));
        command
    }

    fn run(&self, place: Place, words: &[&str]) -> Result<String> {
        let out = self.command(place, words).output()?;
        if out.status.success() {
            return Ok(String::from_utf8_lossy(&out.stdout).into_owned());
        }
        let error = String::from_utf8_lossy(&out.stderr);
        Err(format!("`{}` failed: {}", words.join(" "), error.trim()).into())
    }

    /// Packets sent by the near end of the link.
    pub fn packets_sent(&self) -> Result<u64> {
        let text = self.run(Place::Near, &["ip", "-s", "-j", "link", "show", "dev", NEAR])?;
        let links: Value = serde_json::from_str(&text)?;
        let packets = links[0]["stats64"]["tx"]["packets"].as_u64();
        packets.ok_or_else(|| "`ip -s -j link` shows no packet counter".into())
    }
}
