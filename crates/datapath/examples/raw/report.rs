//! What a run measures, and its line of JSON.

use crate::Args;
use srd_datapath::{clock::now_ns, process_cpu_ns};

/// Time without packets after which the figures so far are kept.
const PAUSE_NS: u64 = 1_000_000;

/// Packets, time and processor time.
#[derive(Default)]
pub struct Report {
    pub packets: u64,
    pub bytes: u64,
    pub syscalls: u64,
    pub lost: u64,
    pub seconds_ns: u64,
    pub cpu_ns: u64,
    pub rtt_ns: Vec<u64>,
}

/// Measures from the first packet to the last: time spent waiting for either does not count.
#[derive(Default)]
pub struct Meter {
    begun: Option<(u64, u64)>,
    last_ns: u64,
    paused: bool,
    kept: (u64, u64),
}

impl Meter {
    /// Starts now.
    pub fn start(&mut self) {
        self.last_ns = now_ns();
        self.begun.get_or_insert_with(|| (now_ns(), process_cpu_ns()));
        self.paused = false;
    }

    /// Nothing came. Tells for how many nanoseconds that has been so; 0 before the first packet.
    pub fn pause(&mut self) -> u64 {
        if self.begun.is_none() {
            return 0;
        }
        let pause_ns = now_ns() - self.last_ns;
        if pause_ns >= PAUSE_NS && !self.paused {
            self.paused = true;
            self.kept = (self.last_ns, process_cpu_ns());
        }
        pause_ns
    }

    /// Ends now.
    pub fn stop(&mut self) {
        self.kept = (now_ns(), process_cpu_ns());
    }

    /// Time and processor time between start and end.
    pub fn read(&self, report: &mut Report) {
        let (wall, cpu) = self.begun.unwrap_or(self.kept);
        report.seconds_ns = self.kept.0.saturating_sub(wall);
        report.cpu_ns = self.kept.1.saturating_sub(cpu);
    }
}

impl Report {
    /// One line.
    pub fn json(mut self, args: &Args) -> String {
        let per = |a: u64, b: u64| if b == 0 { 0.0 } else { a as f64 / b as f64 };
        let bits = self.bytes * 8;
        let mut out = format!(
            "{{\"mode\":\"{}\",\"via\":\"{}\",\"segment\":\"{}\",\"wait\":\"{}\",\"size\":{},\
             \"paths\":{},\"batch\":{},\"packets\":{},\"bytes\":{},\"lost\":{},\"syscalls\":{},\
             \"seconds\":{:.6},\"cpu_seconds\":{:.6},\"cpu_ns_per_packet\":{:.1},\
             \"gbit_per_sec\":{:.4},\"gbit_per_cpu_sec\":{:.4}",
            args.mode,
            if args.datapath { "datapath" } else { "libc" },
            if args.gso { "gso" } else { "mmsg" },
            if args.spin { "spin" } else { "block" },
            args.size,
            args.paths,
            args.batch,
            self.packets,
            self.bytes,
            self.lost,
            self.syscalls,
            self.seconds_ns as f64 / 1e9,
            self.cpu_ns as f64 / 1e9,
            per(self.cpu_ns, self.packets),
            per(bits, self.seconds_ns),
            per(bits, self.cpu_ns),
        );
        if !self.rtt_ns.is_empty() {
            self.rtt_ns.sort_unstable();
            let at = |per_mille: usize| self.rtt_ns[(self.rtt_ns.len() - 1) * per_mille / 1000];
            out += &format!(
                ",\"rtt_ns\":{{\"min\":{},\"p50\":{},\"p90\":{},\"p99\":{},\"p999\":{},\
                 \"max\":{}}}",
                at(0),
                at(500),
                at(900),
                at(990),
                at(999),
                at(1000)
            );
        }
        out + "}"
    }
}
