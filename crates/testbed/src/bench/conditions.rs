//! The conditions of a measurement, printed with its tables: whatever makes results differ between
//! machines, and between two states of one machine.

use super::other_work::OtherWork;
use crate::{fabric::Fabric, spec::Node, units::rate_text};
use std::fs;

/// Sysctls of hosts that are printed: those that the fabric sets, and limits that no namespace can
/// change.
const SYSCTLS: [&str; 6] = [
    "core/rmem_max",
    "core/wmem_max",
    "ipv4/tcp_rmem",
    "ipv4/tcp_wmem",
    "ipv4/tcp_no_metrics_save",
    "ipv4/tcp_slow_start_after_idle",
];
/// Receive buffer in bytes below which a socket of SRD loses packets while its process waits for a
/// processor: 48 windows of two packets of 9000 bytes, each counted with its overhead.
const RMEM_SUFFICIENT: u64 = 2_000_000;
/// Offloads that can merge or split packets.
const OFFLOADS: [&str; 4] = [
    "tcp-segmentation-offload",
    "generic-segmentation-offload",
    "tx-udp-segmentation",
    "generic-receive-offload",
];

/// The conditions that do not change during a measurement, in lines.
pub fn fixed(fabric: &Fabric) -> Vec<String> {
    let kernel = read("/proc/sys/kernel/osrelease");
    let (cpus, spec) = (cpus(), fabric.spec());
    let mut out = vec![format!(
        "machine: Linux {kernel}, {cpus} processors ({}), groups of sessions share them evenly: {}",
        model(&fs::read_to_string("/proc/cpuinfo").unwrap_or_default()),
        if read("/proc/sys/kernel/sched_autogroup_enabled") == "1" { "yes" } else { "no" },
    )];
    let Ok(ns) = fabric.ns(Node::Host(0, 0)) else { return out };
    let value = |path: &&str| {
        let name = path.rsplit('/').next().unwrap_or(path);
        ns.sysctl(path).map(|v| format!("{name} {v}"))
    };
    out.push(format!("hosts: {}", SYSCTLS.iter().filter_map(value).collect::<Vec<_>>().join(", ")));
    let most = ns.sysctl("core/rmem_max").and_then(|v| v.parse::<u64>().ok());
    if let Some(most) = most.filter(|m| *m < RMEM_SUFFICIENT) {
        out.push(format!(
            "hosts: receive buffers of {most} bytes hold few packets, so that sockets may drop \
             some: `sysctl -w net.core.rmem_max=4194304` as root, then measure again"
        ));
    }
    // Interfaces carry one segment at a time, which makes offloads ineffective in the fabric.
    let offloads = ns.run("ethtool", &["-k", "e0"], "").map_or_else(
        |_| "offloads unknown (ethtool is not installed)".to_owned(),
        |text| format!("offloads {}", offloads(&text)),
    );
    out.push(format!(
        "ports: {} at hosts, {} at uplinks, token buckets of two packets; gso_max_segs 1, \
         {offloads}",
        rate_text(spec.host_bits_per_sec),
        rate_text(spec.uplink_bits_per_sec),
    ));
    out
}

/// Parses the output of `ethtool -k`.
fn offloads(text: &str) -> String {
    let state = |name: &&str| {
        let of = |l: &str| l.trim().strip_prefix(*name)?.strip_prefix(':').map(str::to_owned);
        let state = text.lines().find_map(of);
        let short = name.replace("-segmentation", "").replace("-offload", "");
        state.map(|s| format!("{short} {}", s.split_whitespace().next().unwrap_or("?")))
    };
    OFFLOADS.iter().filter_map(state).collect::<Vec<_>>().join(", ")
}

/// Name of the processor in `/proc/cpuinfo`, with its clock rate.
fn model(cpuinfo: &str) -> String {
    let value = |name: &str| {
        let of = |l: &str| {
            let (key, value) = l.split_once(':')?;
            (key.trim() == name).then(|| value.trim().to_owned())
        };
        cpuinfo.lines().find_map(of)
    };
    let name = value("model name").or_else(|| value("CPU implementer"));
    let mhz = value("cpu MHz").and_then(|m| m.parse::<f64>().ok());
    let mhz = mhz.map_or_else(String::new, |m| format!(", {m:.0} MHz"));
    format!("{}{mhz}", name.unwrap_or_else(|| "unknown".into()))
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The machine's load average of the last minute.
fn load() -> String {
    read("/proc/loadavg").split(' ').next().unwrap_or("?").to_owned()
}

/// Processor time of the machine since boot, in clock ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Ticks {
    idle: u64,
    /// Time that the hypervisor gave to other machines.
    stolen: u64,
    all: u64,
}

impl Ticks {
    fn now() -> Self {
        Self::parse(&fs::read_to_string("/proc/stat").unwrap_or_default())
    }

    /// Parses `/proc/stat`.
    fn parse(text: &str) -> Self {
        let line = text.lines().next().unwrap_or("");
        let n: Vec<u64> = line.split_whitespace().skip(1).filter_map(|w| w.parse().ok()).collect();
        let at = |i: usize| n.get(i).copied().unwrap_or(0);
        // Idle and iowait; the first eight columns do not overlap.
        Self { idle: at(3) + at(4), stolen: at(7), all: n.iter().take(8).sum() }
    }

    fn since(self, before: Self) -> Self {
        Self {
            idle: self.idle.saturating_sub(before.idle),
            stolen: self.stolen.saturating_sub(before.stolen),
            all: self.all.saturating_sub(before.all).max(1),
        }
    }
}

/// Measures how busy the machine is: results of a busy machine are doubtful.
#[derive(Debug)]
pub struct Busy {
    began: Ticks,
    load: String,
}

impl Busy {
    /// Starts measuring.
    pub fn start() -> Self {
        Self { began: Ticks::now(), load: load() }
    }

    /// Share of processor time used since the start, 0 to 1.
    pub fn share(&self) -> f64 {
        let t = Ticks::now().since(self.began);
        1.0 - t.idle as f64 / t.all as f64
    }

    /// Summary below a table.
    pub fn text(&self) -> String {
        let t = Ticks::now().since(self.began);
        let percent = |ticks: u64| ticks as f64 * 100.0 / t.all as f64;
        let stolen = match t.stolen {
            0 => String::new(),
            ticks => format!("; {:.0} % taken by other machines", percent(ticks)),
        };
        format!(
            "processors {:.0} % busy ({} of them, everything on the machine), load {} before, {} \
             at the end{stolen}",
            100.0 - percent(t.idle),
            cpus(),
            self.load,
            load(),
        )
    }

    /// Processor time that other work took since the start. The processes of `other` must have
    /// started after this measurement began.
    pub fn other_text(&self, other: &OtherWork) -> String {
        let t = Ticks::now().since(self.began);
        format!(
            "other work: {} processes at the priority of the measurement took {:.0} % of the \
             processors",
            other.count(),
            other.ticks() as f64 * 100.0 / t.all as f64
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_split_into_idle_stolen_and_all() {
        let before = Ticks::parse("cpu  10 0 10 100 5 1 2 3 50 60\ncpu0 1 2 3\n");
        assert_eq!(before, Ticks { idle: 105, stolen: 3, all: 131 });
        let after = Ticks::parse("cpu  40 0 10 140 5 1 2 33 50 60\n");
        assert_eq!(after.since(before), Ticks { idle: 40, stolen: 30, all: 100 });
        assert_eq!(Ticks::parse(""), Ticks::default());
    }

    #[test]
    fn offloads_and_processors_are_named() {
        let text = "Features for e0:\ntcp-segmentation-offload: on\n\ttx-tcp-segmentation: on\n\
            generic-segmentation-offload: off [fixed]\n\ttx-udp-segmentation: on\n\
            generic-receive-offload: off\n";
        assert_eq!(offloads(text), "tcp on, generic off, tx-udp on, generic-receive off");
        let text = "processor : 0\nmodel name\t: A Chip\ncpu MHz\t\t: 2100.004\nmodel name: B\n";
        assert_eq!(model(text), "A Chip, 2100 MHz");
        assert_eq!(model(""), "unknown");
    }
}
