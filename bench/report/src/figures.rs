//! Results computed from the output of the ends, and statistics over runs.

use crate::{Result, pair::EndOutputs, rows::Row};
use serde_json::Value;

/// Results of one run of one row; `NaN` if a row does not have a value.
#[derive(Clone, Copy, Debug)]
pub struct Figures {
    /// Gigabits of payload per second.
    pub gbit: f64,
    /// Gigabits of payload per second of CPU time of both ends.
    pub gbit_per_cpu: f64,
    /// CPU time per packet in ns, of the driving and the serving end.
    pub ns_per_packet: [f64; 2],
    /// Packets per system call of the driving end.
    pub packets_per_call: f64,
    /// Retransmissions per 1000 packets.
    pub retransmitted_permille: f64,
    /// Messages per second.
    pub messages: f64,
    /// Messages per second of CPU time of the driving end.
    pub messages_per_cpu: f64,
    /// Round-trip time in µs, median and 99th percentile.
    pub rtt_us: [f64; 2],
}

impl Figures {
    const NONE: Self = Self {
        gbit: f64::NAN,
        gbit_per_cpu: f64::NAN,
        ns_per_packet: [f64::NAN; 2],
        packets_per_call: f64::NAN,
        retransmitted_permille: f64::NAN,
        messages: f64::NAN,
        messages_per_cpu: f64::NAN,
        rtt_us: [f64::NAN; 2],
    };

    /// Computes the results from the output of the ends of `row`.
    pub fn of(row: Row, told: &EndOutputs) -> Result<Self> {
        let EndOutputs { near, far } = told;
        match row {
            Row::RawStream { size } | Row::RawBurst { size } => raw(near, far, size),
            Row::RawRate | Row::RawSingle => raw(near, far, 64),
            Row::TcpStream { .. } => tcp(near),
            Row::SrdSend { size, .. }
            | Row::SrdWrite { size }
            | Row::SrdSendUnchecked { size }
            | Row::SrdWriteUnchecked { size }
            | Row::SrdWriteSealed { size } => srd(near, far, size),
            Row::TlsStream { size } | Row::QuicStream { size } => secure(near, far, size),
            Row::SrdRate { .. } => rate(near),
            Row::RawPing(_) | Row::SrdPing(_) | Row::SrdPingSealed | Row::TcpPing(_) => ping(near),
        }
    }
}

fn number(value: &Value, path: &str) -> Result<f64> {
    let found = value.pointer(path).and_then(Value::as_f64);
    found.ok_or_else(|| format!("no number at {path} in {value}").into())
}

/// Raw UDP may lose packets, so the CPU time of each end is divided by the packets of that end.
fn raw(near: &Value, far: &Value, size: u32) -> Result<Figures> {
    let sent = number(near, "/packets")?;
    let received = number(far, "/packets")?;
    let ns =
        [number(near, "/cpu_seconds")? * 1e9 / sent, number(far, "/cpu_seconds")? * 1e9 / received];
    Ok(Figures {
        gbit: number(far, "/gbit_per_sec")?,
        gbit_per_cpu: f64::from(size) * 8.0 / (ns[0] + ns[1]),
        ns_per_packet: ns,
        packets_per_call: sent / number(near, "/syscalls")?,
        messages: received / number(far, "/seconds")?,
        messages_per_cpu: 1e9 / ns[0],
        ..Figures::NONE
    })
}

fn srd(near: &Value, far: &Value, size: u32) -> Result<Figures> {
    let bytes = number(near, "/bytes")?;
    let packets = bytes / f64::from(size);
    let cpu = [number(near, "/cpu_seconds")?, number(far, "/cpu_seconds")?];
    Ok(Figures {
        gbit: bytes * 8.0 / 1e9 / number(near, "/seconds")?,
        gbit_per_cpu: bytes * 8.0 / 1e9 / (cpu[0] + cpu[1]),
        ns_per_packet: cpu.map(|s| s * 1e9 / packets),
        packets_per_call: number(near, "/counters/tx_packets")?
            / number(near, "/counters/tx_syscalls")?,
        retransmitted_permille: number(near, "/counters/retrans_pkts")? / packets * 1000.0,
        ..Figures::NONE
    })
}

/// What has arrived, and the CPU time of both ends.
fn secure(near: &Value, far: &Value, size: u32) -> Result<Figures> {
    let bytes = number(far, "/bytes")?;
    let cpu = [number(near, "/cpu_seconds")?, number(far, "/cpu_seconds")?];
    Ok(Figures {
        gbit: bytes * 8.0 / 1e9 / number(near, "/seconds")?,
        gbit_per_cpu: bytes * 8.0 / 1e9 / (cpu[0] + cpu[1]),
        ns_per_packet: cpu.map(|s| s * 1e9 / (bytes / f64::from(size))),
        ..Figures::NONE
    })
}

/// iperf3 reports the CPU load of both ends in percent.
fn tcp(near: &Value) -> Result<Figures> {
    let seconds = number(near, "/end/sum_sent/seconds")?;
    let bytes = number(near, "/end/sum_received/bytes")?;
    let load = number(near, "/end/cpu_utilization_percent/host_total")?
        + number(near, "/end/cpu_utilization_percent/remote_total")?;
    Ok(Figures {
        gbit: bytes * 8.0 / 1e9 / seconds,
        gbit_per_cpu: bytes * 8.0 / 1e9 / (load / 100.0 * seconds),
        ..Figures::NONE
    })
}

fn rate(near: &Value) -> Result<Figures> {
    let completed = number(near, "/completed")?;
    Ok(Figures {
        messages: completed / number(near, "/seconds")?,
        messages_per_cpu: completed / number(near, "/cpu_seconds")?,
        retransmitted_permille: number(near, "/counters/retrans_pkts")? / completed * 1000.0,
        packets_per_call: number(near, "/counters/tx_packets")?
            / number(near, "/counters/tx_syscalls")?,
        ..Figures::NONE
    })
}

fn ping(near: &Value) -> Result<Figures> {
    let us = |path| Ok::<_, Box<dyn std::error::Error>>(number(near, path)? / 1e3);
    Ok(Figures { rtt_us: [us("/rtt_ns/p50")?, us("/rtt_ns/p99")?], ..Figures::NONE })
}

/// Median, smallest and largest value of several runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    pub median: f64,
    pub least: f64,
    pub most: f64,
}

impl Spread {
    /// Of the finite values; `NaN` if there are none.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut all: Vec<f64> = values.into_iter().filter(|v| v.is_finite()).collect();
        all.sort_by(f64::total_cmp);
        let (Some(&least), Some(&most)) = (all.first(), all.last()) else {
            return Self { median: f64::NAN, least: f64::NAN, most: f64::NAN };
        };
        let half = all.len() / 2;
        let median = if all.len() % 2 == 1 { all[half] } else { (all[half - 1] + all[half]) / 2.0 };
        Self { median, least, most }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn medians_and_extremes() {
        assert_eq!(Spread::of([3.0, 1.0, 9.0]), Spread { median: 3.0, least: 1.0, most: 9.0 });
        assert_eq!(Spread::of([4.0, f64::NAN, 2.0]).median, 3.0);
        assert!(Spread::of([]).median.is_nan());
    }

    #[test]
    fn each_end_counts_its_own_packets() {
        let near = json!({"packets": 1000, "cpu_seconds": 1e-3, "syscalls": 125});
        let far = json!({
            "packets": 500, "cpu_seconds": 1e-3, "gbit_per_sec": 4.0, "seconds": 1.0
        });
        let f = Figures::of(Row::RawStream { size: 1400 }, &EndOutputs { near, far }).unwrap();
        assert_eq!(f.ns_per_packet, [1000.0, 2000.0]);
        assert!((f.gbit_per_cpu - 1400.0 * 8.0 / 3000.0).abs() < 1e-9);
        assert_eq!(f.packets_per_call, 8.0);
    }

    #[test]
    fn missing_figures_are_named() {
        let told = EndOutputs { near: json!({}), far: json!({}) };
        let e = Figures::of(Row::TcpStream { size: 1400 }, &told).unwrap_err();
        assert!(e.to_string().contains("/end/sum_sent/seconds"), "{e}");
    }
}
