//! `sanitize`: runs unsafe and concurrent code under tools that detect what tests cannot.
//!
//! Models run the lock-free parts in other interleavings. Miri finds undefined behaviour and data
//! races in those crates with `unsafe` that it can run. ThreadSanitizer finds data races in a
//! running device with threads that drive, post and poll. All this takes minutes and a nightly
//! toolchain, so it is not part of the gate: the last result of each part is committed.

use crate::{
    Result,
    args::Args,
    process::{self, command, watch},
    steps::{self, Sum},
    tools,
};
use std::{fmt::Write as _, fs, process::Command, time::Instant};

/// File with the last results.
const RESULT: &str = "docs/results/sanitize.txt";

/// One run of a tool.
struct Part {
    name: &'static str,
    /// Description of the tested code.
    what: &'static str,
    tool: Tool,
    args: &'static [&'static str],
}

enum Tool {
    Models,
    /// Miri with these flags.
    Miri(&'static str),
    ThreadSanitizer,
}

/// Races that ThreadSanitizer must not report, each with the reason.
const SUPPRESSIONS: &str = "xtask/tsan-suppressions.txt";
/// Uses the host's clock and random numbers.
const HOST: &str = "-Zmiri-disable-isolation";

const PARTS: &[Part] = &[
    Part {
        name: "models",
        what: "dirty set, counted slots, sleep, waker and shared progress under loom and shuttle",
        tool: Tool::Models,
        args: &[],
    },
    Part {
        name: "miri-units",
        what: "the device's modules: registered memory, copies, channels, slots, events",
        tool: Tool::Miri(HOST),
        args: &[
            "-p",
            "srd",
            "--lib",
            "--",
            "--skip",
            "interface::",
            "--skip",
            "events_come_in_order_and_purge_takes_the_readiness_along",
            "--skip",
            "the_descriptor_is_readable_while_events_wait",
        ],
    },
    Part {
        name: "miri-datapath",
        what: "payload by address, on the network in memory and through a capture",
        tool: Tool::Miri(HOST),
        args: &["-p", "srd-datapath", "--lib", "--", "mem::", "capture::", "pcapng::"],
    },
    Part {
        name: "miri-rings",
        what: "the rings between threads, each run with other choices of threads and stale values",
        tool: Tool::Miri("-Zmiri-disable-isolation -Zmiri-many-seeds=0..16"),
        args: &["-p", "srd", "--lib", "--", "queue::"],
    },
    Part {
        name: "miri-device",
        what: "two devices on a network in memory, writes of registered memory, in virtual time",
        tool: Tool::Miri(""),
        args: &["-p", "srd", "--test", "main", "--", "rdma::unsolicited_writes"],
    },
    Part {
        name: "tsan-device",
        what: "the device's tests with threads that drive, post, poll, arm, cancel and close",
        tool: Tool::ThreadSanitizer,
        args: &["-p", "srd", "--lib", "--tests"],
    },
    Part {
        name: "tsan-datapath",
        what: "the datapath's tests: wakes, faults and captures between threads",
        tool: Tool::ThreadSanitizer,
        args: &["-p", "srd-datapath", "--lib", "--tests"],
    },
    Part {
        name: "tsan-share",
        what: "the table that processes share, whose words are all atomic, with several processes",
        tool: Tool::ThreadSanitizer,
        args: &[
            "-p",
            "srd-share",
            "--lib",
            "--tests",
            "--",
            "--skip",
            "damage_is_noticed_and_no_bytes_cause_a_panic",
        ],
    },
];

/// Code that the tools cannot run, with the reasons.
const LEFT_OUT: &[&str] = &[
    "miri: tests with UDP sockets, interfaces and namespaces (crates/datapath/src/udp, \
     crates/srd/src/interface.rs, crates/testbed): Miri has no such system calls.",
    "miri: the wrapper that makes faults: it has no unsafe code, and its tests take long.",
    "miri: descriptors of channels and events: it knows neither EFD_SEMAPHORE nor poll, so one \
     test of each is skipped.",
    "miri: ppoll is answered as by a signal, and copies of registered memory are the portable \
     ones: it runs neither that call nor written-out instructions.",
    "miri: the bindings (bindings/c, bindings/ibverbs): their tests load built libraries or open \
     devices on sockets.",
    "tsan: copies of registered memory: written-out instructions it does not see, and the others \
     are named in xtask/tsan-suppressions.txt; their races are the ones that RDMA permits.",
    "tsan: a test of every byte of a status takes minutes, in one thread (--skip).",
    "tsan: what two processes, or two mappings in one, do to the same shared memory: it watches \
     each address of one process by itself.",
    "loom: the rings themselves (the crate rtrb has no hook for it); Miri runs them instead.",
];

/// `sanitize [--only PART]...`.
pub fn run_command(args: &mut Args) -> Result {
    let only = args.values("--only")?;
    args.end()?;
    if let Some(name) = only.iter().find(|n| PARTS.iter().all(|p| p.name != n.as_str())) {
        let names: Vec<_> = PARTS.iter().map(|p| p.name).collect();
        return Err(format!("--only {name}: there are {}", names.join(", ")));
    }
    let nightly = nightly()?;
    let host = tools::host()?;
    let path = process::root().join(RESULT);
    let mut text = fs::read_to_string(&path).unwrap_or_default();
    let wanted = |p: &&Part| only.is_empty() || only.iter().any(|n| n == p.name);
    for part in PARTS.iter().filter(wanted) {
        let began = Instant::now();
        let what = part.run(&host)?;
        let seconds = began.elapsed().as_secs();
        let block = format!(
            "{}: {}\n  $ {}\n  {what}, nothing found; {seconds} s with building; {nightly}\n",
            part.name,
            part.what,
            part.shown()
        );
        println!("\n{block}");
        text = merge(&text, part.name, &block);
        fs::write(&path, &text).map_err(|e| format!("cannot write {RESULT}: {e}"))?;
    }
    println!("wrote {RESULT}");
    Ok(())
}

/// The results with one part replaced; the other parts are unchanged.
fn merge(old: &str, name: &str, block: &str) -> String {
    let mut text = String::from("$ cargo xtask sanitize\n");
    for part in PARTS {
        let head = format!("{}: ", part.name);
        let kept = old.split("\n\n").find(|b| b.starts_with(&head));
        let now = if part.name == name { Some(block) } else { kept };
        if let Some(block) = now {
            let _ = writeln!(text, "\n{}", block.trim_end());
        }
    }
    text.push_str("\nleft out\n");
    for line in LEFT_OUT {
        let _ = writeln!(text, "  {line}");
    }
    text
}

impl Part {
    /// Runs the part; returns the number of tests. Fails if the tool finds an error.
    fn run(&self, host: &str) -> Result<String> {
        println!("\n{}: {}", self.name, self.what);
        let target = process::target_dir();
        let mut c = match self.tool {
            Tool::Models => return models(),
            Tool::Miri(flags) => {
                let mut c = command("cargo", &["+nightly", "miri", "test"]);
                c.env("MIRIFLAGS", flags);
                c.arg("--target-dir").arg(target.join("miri"));
                c
            }
            Tool::ThreadSanitizer => {
                let mut c = command("cargo", &["+nightly", "test", "-Zbuild-std"]);
                let known = process::root().join(SUPPRESSIONS);
                let options = format!("halt_on_error=1 suppressions={}", known.display());
                c.env("RUSTFLAGS", "-Zsanitizer=thread").env("TSAN_OPTIONS", options);
                c.args(["--target", host, "--target-dir"]).arg(target.join("tsan"));
                c
            }
        };
        tests(c.args(self.args))
    }

    /// The command line as a user would type it.
    fn shown(&self) -> String {
        let (before, tool) = match self.tool {
            Tool::Models => return "cargo xtask models".into(),
            Tool::Miri(flags) => (format!("MIRIFLAGS='{flags}'"), "miri test"),
            Tool::ThreadSanitizer => {
                ("RUSTFLAGS=-Zsanitizer=thread".into(), "test -Zbuild-std --target HOST")
            }
        };
        format!("{before} cargo +nightly {tool} {}", self.args.join(" "))
    }
}

fn models() -> Result<String> {
    let mut last = String::new();
    watch(&mut steps::models_command(), |line| line.clone_into(&mut last))?;
    Ok(last.split_whitespace().collect::<Vec<_>>().join(" ").replace(", none failed", ""))
}

fn tests(c: &mut Command) -> Result<String> {
    let mut sum = Sum::default();
    watch(c, |line| sum.add(line))?;
    if sum.passed == 0 {
        return Err("no test was run".into());
    }
    Ok(format!("{} tests passed", sum.passed))
}

/// The name of the nightly toolchain, after installing the required components.
fn nightly() -> Result<String> {
    let need = "`sanitize` needs a nightly toolchain with Miri and the sources of std: \
                `rustup toolchain install nightly --profile minimal --component miri,rust-src`";
    let version = process::output(&mut command("rustc", &["+nightly", "--version"]));
    let version = version.map_err(|e| format!("{need}\n{e}"))?;
    let added = ["+nightly", "component", "add", "miri", "rust-src"];
    process::output(&mut command("rustup", &added)).map_err(|e| format!("{need}\n{e}"))?;
    Ok(version.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_lines_can_be_typed() {
        let rings = PARTS.iter().find(|p| p.name == "miri-rings").unwrap();
        assert_eq!(
            rings.shown(),
            "MIRIFLAGS='-Zmiri-disable-isolation -Zmiri-many-seeds=0..16' \
             cargo +nightly miri test -p srd --lib -- queue::"
        );
    }

    #[test]
    fn a_repeated_part_replaces_only_its_result() {
        let one = merge("", "tsan-device", "tsan-device: a\n  1 s\n");
        let two = merge(&one, "models", "models: b\n  2 s\n");
        let three = merge(&two, "tsan-device", "tsan-device: a\n  3 s\n");
        assert!(
            three.starts_with("$ cargo xtask sanitize\n\nmodels: b\n  2 s\n\ntsan-device: a\n  3")
        );
        assert_eq!(three.matches("left out\n").count(), 1);
        assert!(!three.contains("1 s"));
    }

    #[test]
    fn unknown_parts_are_named() {
        let mut args = Args::new(["--only", "nothing"].map(String::from).into_iter());
        assert!(run_command(&mut args).unwrap_err().contains("tsan-device"));
    }
}
