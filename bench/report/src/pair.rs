//! Runs the two ends of a measurement.

use crate::{
    Result,
    net::{Net, Place},
};
use serde_json::Value;
use std::{
    io::{BufRead, BufReader, Read},
    process::{Child, Command, Stdio},
};

/// Longest lifetime in seconds of a program that does not end with the report.
pub const LIFE_SECONDS: &str = "30";

/// Output of both ends.
#[derive(Clone, Debug)]
pub struct EndOutputs {
    pub near: Value,
    pub far: Value,
}

/// How a serving end shows that it is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ready {
    /// It prints a line of JSON.
    Line,
    /// It prints a line that contains this.
    Text(&'static str),
    /// It prints nothing; it is ready after this many milliseconds.
    Wait(u64),
}

/// A running serving end, ended when dropped.
pub struct Server {
    child: Child,
    out: BufReader<std::process::ChildStdout>,
    /// Its output when it became ready.
    pub said: Value,
}

impl Drop for Server {
    fn drop(&mut self) {
        // Fails if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    /// Starts the end in the far namespace on the second processor.
    pub fn start(net: &Net, words: &[String], ready: Ready) -> Result<Self> {
        let mut command = pinned(net, Place::Far, words);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let out = BufReader::new(child.stdout.take().ok_or("no output")?);
        let mut server = Self { child, out, said: Value::Null };
        match ready {
            Ready::Line => {
                let line = server.line()?;
                server.said = serde_json::from_str(&line).map_err(|_| said_nothing(words))?;
            }
            Ready::Text(text) => while !server.line()?.contains(text) {},
            Ready::Wait(ms) => std::thread::sleep(std::time::Duration::from_millis(ms)),
        }
        Ok(server)
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        if self.out.read_line(&mut line)? == 0 {
            return Err("the serving end ended before it was ready".into());
        }
        Ok(line)
    }

    /// Ends the serving end, and returns its remaining output.
    pub fn finish(mut self) -> Result<String> {
        drop(self.child.stdin.take());
        let mut text = String::new();
        self.out.read_to_string(&mut text)?;
        let status = self.child.wait()?;
        if status.success() { Ok(text) } else { Err(format!("serving end: {status}").into()) }
    }
}

fn said_nothing(words: &[String]) -> String {
    format!("`{}` did not say that it is ready", words.join(" "))
}

/// Raises the priority of the session that it starts. If `sched_autogroup` is on, the priority of a
/// single process counts only within its session.
const RAISE: &str = "echo -15 >/proc/self/autogroup 2>/dev/null; exec nice -n -15 \"$@\"";

/// Whether this process may raise priorities, so that other load on the machine disturbs less.
pub fn may_raise() -> bool {
    let mut nice = Command::new("nice");
    let done = nice.args(["-n", "-15", "true"]).stderr(Stdio::piped()).output();
    done.is_ok_and(|o| o.status.success() && o.stderr.is_empty())
}

/// A command pinned to a processor: the near end to the first, the far end to the second.
fn pinned(net: &Net, place: Place, words: &[String]) -> Command {
    let cpu = if place == Place::Near { "0" } else { "1" };
    let mut all = Vec::new();
    if net.raise {
        all.extend(["setsid", "sh", "-c", RAISE, "sh"].map(String::from));
    }
    all.extend(["taskset", "-c", cpu].map(String::from));
    all.extend_from_slice(words);
    net.command(place, &all)
}

/// Runs the driving end and returns its output.
pub fn drive(net: &Net, words: &[String]) -> Result<String> {
    let out = pinned(net, Place::Near, words).stderr(Stdio::inherit()).output()?;
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    if out.status.success() {
        return Ok(text);
    }
    Err(format!("`{}` ended with {}\n{}", words.join(" "), out.status, text.trim_end()).into())
}

/// Parses the last line of JSON in a text.
pub fn json_of(text: &str) -> Result<Value> {
    let line = text.lines().rev().find(|l| l.starts_with('{')).unwrap_or(text);
    serde_json::from_str(line).map_err(|e| format!("not JSON ({e}): {text}").into())
}
