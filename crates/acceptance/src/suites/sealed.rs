//! Sealed runs: the programs get a key file, and the spines are listened to. What they forward must
//! be sealed, and a file that is copied must not be found in it.

use super::{
    cases::{Case, expect_end},
    fabric::Fabric,
};
use crate::Result;
use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
};

/// What the names of sealed cases end with in the table.
const NAMED: &str = ", sealed";
/// Sealed cases of the short set: by libfabric and by MPI.
const SHORT: [&str; 2] =
    ["fi_pingpong rdm, 0 B to 6 MB, data checked", "Open MPI, 4 ranks on 2 hosts, up to 64 KiB"];
/// Bytes of packets that a capture keeps; it counts all.
const CAPTURE_BYTES: &str = "32M";
/// Sealed packets that the spines must have forwarded together, at least.
const SEALED_MIN: u64 = 100;
/// What the copied file consists of: each packet holds it many times.
const MARK: &str = "the payload of this packet is readable by everybody who sees it;";
/// Exit code of `timeout` for a program that had to be ended, and did end then.
const TIMED_OUT: i32 = 124;
/// How often the file repeats it: 4 MiB.
const MARKS: usize = 65_536;

/// The name of a case in the table.
pub fn name(fabric: &Fabric, name: &str) -> String {
    if fabric.is_sealed() { format!("{name}{NAMED}") } else { name.to_owned() }
}

/// The cases that the short set also runs sealed.
pub fn short<'a>(cases: &[&'a Case]) -> Vec<&'a Case> {
    cases.iter().copied().filter(|case| SHORT.contains(&case.name)).collect()
}

/// A capture at a spine, under way.
pub struct Ear {
    child: Child,
    out: BufReader<ChildStdout>,
    file: PathBuf,
}

/// What a spine has forwarded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Heard {
    sealed: u64,
    handshake: u64,
    resets: u64,
    open: u64,
}

impl Heard {
    /// From the last line of `srd net capture`.
    fn of(line: &str) -> Option<Self> {
        let numbers: Vec<u64> =
            line.split_once(": ")?.1.split(' ').filter_map(|w| w.parse().ok()).collect();
        let &[sealed, handshake, resets, open] = &numbers[..] else { return None };
        Some(Self { sealed, handshake, resets, open })
    }

    fn plus(self, other: Self) -> Self {
        Self {
            sealed: self.sealed + other.sealed,
            handshake: self.handshake + other.handshake,
            resets: self.resets + other.resets,
            open: self.open + other.open,
        }
    }
}

impl Ear {
    /// Starts a capture, and waits until it listens.
    pub fn open(srd: &Path, fabric: &str, spine: usize, folder: &Path) -> Result<Self> {
        let file = folder.join(format!("spine-{spine}.pcapng"));
        let mut c = Command::new(srd);
        c.args(["net", "capture", "--name", fabric, "--bytes-max", CAPTURE_BYTES]);
        c.arg(format!("s{spine}")).arg(&file);
        c.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = c.spawn().map_err(|e| format!("cannot start a capture: {e}"))?;
        let out = child.stdout.take().ok_or("a capture without output")?;
        let mut ear = Self { child, out: BufReader::new(out), file };
        let mut line = String::new();
        ear.out.read_line(&mut line).map_err(|e| format!("a capture: {e}"))?;
        if line.starts_with("recording") { Ok(ear) } else { Err("a capture ended early".into()) }
    }

    /// Ends the capture.
    fn ask(mut self) -> Result<(Heard, PathBuf)> {
        drop(self.child.stdin.take());
        let mut text = String::new();
        self.out.read_to_string(&mut text).map_err(|e| format!("a capture: {e}"))?;
        let ended = self.child.wait().map_err(|e| format!("a capture: {e}"))?;
        let heard = text.lines().last().and_then(Heard::of);
        match heard {
            Some(heard) if ended.success() => Ok((heard, self.file.clone())),
            _ => Err(format!("a capture ended with {ended}: {}", text.trim())),
        }
    }
}

impl Drop for Ear {
    fn drop(&mut self) {
        // It has ended already if it was asked.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a sealed case while the spines are listened to. No packet without a seal may pass them but
/// handshakes and the Resets of engines that have ended.
pub fn watched(fabric: &Fabric, run: impl FnOnce() -> Result<String>) -> Result<String> {
    let ears = fabric.listen()?;
    let remark = run()?;
    let mut all = Heard::default();
    for ear in ears {
        all = all.plus(ear.ask()?.0);
    }
    if all.open > 0 || all.sealed < SEALED_MIN || all.handshake == 0 {
        return Err(format!("the spines forwarded other packets than sealed ones: {all:?}"));
    }
    let join = if remark.is_empty() { "" } else { "; " };
    Ok(format!("{remark}{join}{} sealed packets at the spines, 0 others", all.sealed))
}

/// Copies a file once, and returns how often its text is in what the spines forwarded, and how many
/// bytes of that were searched.
fn copy_searched(fabric: &Fabric, key: &str) -> Result<(usize, usize)> {
    let folder = fabric.folder();
    let (original, into) = (folder.join("copied"), folder.join("copies"));
    fs::create_dir_all(&into).map_err(|e| format!("{}: {e}", into.display()))?;
    fs::write(&original, MARK.repeat(MARKS)).map_err(|e| format!("{}: {e}", original.display()))?;
    let copy = into.join("copy");
    let _ = fs::remove_file(&copy);
    let ears = fabric.listen()?;
    let serve = format!(
        "timeout 10 {} --ip 10.1.0.10 --dir {} {key}",
        fabric.tool("serve"),
        into.display()
    );
    let client = format!("{} {key} {} 10.1.0.10:copy", fabric.tool("cp"), original.display());
    // The server ends with the time limit, which is no failure here.
    let [server, client] = fabric.plain_pair(["h0x0", "h1x0"], 60, [&serve, &client])?;
    expect_end(&client).map_err(|e| format!("{e}\n{}", server.tail()))?;
    let same = fs::read(&copy).is_ok_and(|bytes| fs::read(&original).is_ok_and(|b| b == bytes));
    if !same {
        return Err("the copy differs from the original".into());
    }
    let (mut found, mut searched) = (0, 0);
    for ear in ears {
        let (_, file) = ear.ask()?;
        let bytes = fs::read(&file).map_err(|e| format!("{}: {e}", file.display()))?;
        found += bytes.windows(MARK.len()).filter(|w| *w == MARK.as_bytes()).count();
        searched += bytes.len();
    }
    Ok((found, searched))
}

/// A file is copied without a key and with one, and searched for in what the spines forwarded.
pub fn searched(fabric: &Fabric) -> Result<String> {
    let (open, _) = copy_searched(fabric, "")?;
    let (sealed, bytes) = copy_searched(fabric, &format!("--key {}", fabric.key().display()))?;
    if open < MARKS / 2 || sealed > 0 || bytes < MARK.len() * MARKS {
        return Err(format!(
            "found {open} times without a key, {sealed} times with one in {bytes} bytes"
        ));
    }
    Ok(format!(
        "its text is found {open} times without a key, and not once with one ({bytes} bytes \
         searched)"
    ))
}

/// One side has another key, or none: both are told, and the client ends.
pub fn refused(fabric: &Fabric) -> Result<String> {
    let other = fabric.folder().join("others");
    let _ = fs::remove_file(&other);
    fabric.srd(&["key", "new", &other.display().to_string()])?;
    // The server waits for clients as long as it may; the client has to end by itself.
    let line = |limit_s| format!("timeout -k 2 {limit_s} fi_pingpong -p efa -e rdm -I 5");
    let server = fabric.sealed(|| fabric.under("", &line(15)));
    let mut remark = Vec::new();
    for (options, told) in [
        (format!("--key {}", other.display()), "have different keys"),
        (String::new(), "it accepts sealed contexts only"),
    ] {
        let client = format!("{} 10.1.0.10", fabric.under(&options, &line(50)));
        let [server, client] = fabric.plain_pair(["h0x0", "h1x0"], 60, [&server, &client])?;
        for (who, said, words) in
            [("client", &client, told), ("server", &server, "was refused: it")]
        {
            if !said.text.contains(words) || said.code == 0 {
                return Err(format!("the {who} does not say `{words}`, {}", said.tail()));
            }
        }
        if client.code == TIMED_OUT || !client.text.contains("no peer accepts this process") {
            return Err(format!("the client did not end by itself, {}", client.tail()));
        }
        if server.code != TIMED_OUT {
            return Err(format!("the server did not end when it was told to, {}", server.tail()));
        }
        remark.push(format!("exit code {}", client.code));
    }
    Ok(format!("both sides say why; clients end with {}", remark.join(" and ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_of_a_capture_is_read() {
        let line = "s0: 12 sealed, 2 of handshakes, 1 resets and 0 others without a seal";
        let heard = Heard::of(line).unwrap();
        assert_eq!(heard, Heard { sealed: 12, handshake: 2, resets: 1, open: 0 });
        assert_eq!(heard.plus(heard).sealed, 24);
        assert_eq!(Heard::of("s0: nothing"), None);
    }

    #[test]
    fn the_short_set_has_sealed_cases() {
        let all: Vec<&Case> = super::super::cases::CASES.iter().collect();
        let chosen = short(&all);
        assert_eq!(chosen.len(), SHORT.len());
        assert!(chosen.iter().all(|case| case.short && case.travels));
    }
}
