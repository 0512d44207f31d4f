//! The output of the measuring program, and the results derived from it.

use crate::{
    bench::{fct::ideal_ms, kernel::KernelCounts, table},
    error::{NetError, Result},
};
use std::{collections::BTreeMap, fmt::Write as _};

/// One message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowTime {
    /// Bytes of the message.
    pub bytes: u64,
    /// Round of the job; 0 opens connections and is not counted.
    pub round: u32,
    /// Number of the sender.
    pub sender: u32,
    /// When the sender called `MPI_Send`, in ns of the monotonic clock.
    pub start_ns: u64,
    /// When the receiver had the whole message, in ns of the monotonic clock.
    pub end_ns: u64,
}

impl FlowTime {
    /// Completion time in ms.
    pub fn ms(&self) -> f64 {
        self.end_ns.saturating_sub(self.start_ns) as f64 / 1e6
    }

    fn parse(line: &str) -> Option<Self> {
        let mut words = line.strip_prefix("flow ")?.split(' ');
        let mut word = || words.next()?.parse::<u64>().ok();
        let flow = Self {
            bytes: word()?,
            round: u32::try_from(word()?).ok()?,
            sender: u32::try_from(word()?).ok()?,
            start_ns: word()?,
            end_ns: word()?,
        };
        (flow.end_ns > flow.start_ns && flow.start_ns > 0).then_some(flow)
    }
}

/// The messages of all rounds that a job completed before it failed.
pub fn parse_partial(text: &str, senders: u32) -> Vec<FlowTime> {
    let mut of: BTreeMap<(u64, u32), Vec<FlowTime>> = BTreeMap::new();
    for flow in text.lines().filter_map(FlowTime::parse) {
        of.entry((flow.bytes, flow.round)).or_default().push(flow);
    }
    of.into_values().filter(|flows| flows.len() == senders as usize).flatten().collect()
}

/// Parses the output of a job that succeeded.
///
/// # Errors
/// A message was damaged, or a line is missing.
pub fn parse(text: &str, sizes: &[u64], rounds: u32, senders: u32) -> Result<Vec<FlowTime>> {
    let damaged = text.lines().find_map(|l| l.strip_prefix("damaged ")?.parse::<u64>().ok());
    match damaged {
        Some(0) => {}
        Some(n) => return Err(NetError::new(format!("{n} messages arrived damaged"))),
        None => return Err(NetError::new("the MPI program did not print its last line")),
    }
    let flows: Vec<FlowTime> = text.lines().filter_map(FlowTime::parse).collect();
    let expected = sizes.len() * (rounds as usize + 1) * senders as usize;
    if flows.len() != expected {
        return Err(NetError::new(format!(
            "the MPI program printed the times of {} messages, not of {expected}",
            flows.len()
        )));
    }
    Ok(flows)
}

/// Packets and retransmitted packets, from the summary that `srd run` prints.
pub fn srd_packets(text: &str) -> Option<(u64, u64)> {
    let line = text.lines().find(|l| l.starts_with("srd: ") && l.ends_with(" sent again"))?;
    let words: Vec<&str> = line.split_whitespace().collect();
    let before = |word: &str| {
        let at = words.iter().position(|w| w.trim_end_matches(['s', ',']) == word)?;
        words.get(at.checked_sub(1)?)?.parse::<u64>().ok()
    };
    Some((before("packet")?, words.get(words.len().checked_sub(3)?)?.parse().ok()?))
}

/// One round of one size.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Round {
    /// Longest completion time of a message in ms.
    pub worst_ms: f64,
    /// Time from the first start to the last end in ms.
    pub whole_ms: f64,
    /// Time from the first start to the last one in ms: how well the barrier aligns the ranks.
    pub starts_ms: f64,
}

impl Round {
    fn of(flows: &[&FlowTime]) -> Self {
        let first = flows.iter().map(|f| f.start_ns).min().unwrap_or(0);
        let last_start = flows.iter().map(|f| f.start_ns).max().unwrap_or(0);
        let end = flows.iter().map(|f| f.end_ns).max().unwrap_or(0);
        Self {
            worst_ms: flows.iter().map(|f| f.ms()).fold(0.0, f64::max),
            whole_ms: end.saturating_sub(first) as f64 / 1e6,
            starts_ms: last_start.saturating_sub(first) as f64 / 1e6,
        }
    }
}

/// All results of a contender.
#[derive(Debug, Default)]
pub struct Record {
    /// Messages of each job, with the job's number.
    pub flows: Vec<(u32, FlowTime)>,
    /// Counters of the kernels.
    pub kernel: KernelCounts,
    /// Packets and retransmitted packets of SRD.
    pub packets: (u64, u64),
    /// Why jobs failed, one text per failed job.
    pub gave_up: Vec<String>,
}

impl Record {
    /// Completion times in ms of all messages of this size, without the rounds numbered 0.
    pub fn times(&self, bytes: u64) -> Vec<f64> {
        self.counted(bytes).map(|(_, f)| f.ms()).collect()
    }

    /// All rounds of this size, without those numbered 0.
    pub fn rounds(&self, bytes: u64) -> Vec<Round> {
        let mut of: BTreeMap<(u32, u32), Vec<&FlowTime>> = BTreeMap::new();
        for (job, flow) in self.counted(bytes) {
            of.entry((*job, flow.round)).or_default().push(flow);
        }
        of.values().map(|flows| Round::of(flows)).collect()
    }

    fn counted(&self, bytes: u64) -> impl Iterator<Item = &(u32, FlowTime)> {
        self.flows.iter().filter(move |(_, f)| f.bytes == bytes && f.round > 0)
    }

    /// Share of retransmitted packets in percent, over whole jobs. `None` if SRD's processes
    /// printed no summary, because no job ended.
    pub fn again_percent(&self, is_srd: bool) -> Option<f64> {
        match self.packets {
            _ if !is_srd => Some(self.kernel.tcp_again_percent()),
            (0, _) => None,
            (all, again) => Some(again as f64 * 100.0 / all as f64),
        }
    }
}

/// A message size as text: `64 KiB`.
pub fn size_text(bytes: u64) -> String {
    match bytes {
        b if b >= 1 << 20 && b.is_multiple_of(1 << 20) => format!("{} MiB", b >> 20),
        b if b >= 1 << 10 && b.is_multiple_of(1 << 10) => format!("{} KiB", b >> 10),
        b if b >= 1_000_000 => format!("{} MB", b as f64 / 1e6),
        b if b >= 1_000 => format!("{} kB", b as f64 / 1e3),
        b => format!("{b} B"),
    }
}

/// The table's columns.
pub const HEAD: [&str; 10] = [
    "",
    "ideal ms",
    "p50 ms",
    "max ms",
    "quartiles max/ideal",
    "mean max/ideal",
    "max/ideal",
    "quartiles whole/ideal",
    "starts within ms",
    "rounds",
];

/// The table's row of a contender and size; `None` without results.
pub fn row(name: &str, record: &Record, bytes: u64, ideal: f64) -> Option<Vec<String>> {
    let (mut times, rounds) = (record.times(bytes), record.rounds(bytes));
    if rounds.is_empty() {
        return None;
    }
    let over = |of: fn(&Round) -> f64| rounds.iter().map(|r| of(r) / ideal).collect::<Vec<_>>();
    let (worst, whole) = (over(|r| r.worst_ms), over(|r| r.whole_ms));
    let mut starts: Vec<f64> = rounds.iter().map(|r| r.starts_ms).collect();
    Some(vec![
        format!("{} {name}", size_text(bytes)),
        format!("{ideal:.1}"),
        format!("{:.1}", table::percentile(&mut times, 0.5)),
        format!("{:.1}", table::max(&times)),
        table::quartiles(&worst),
        format!("{:.2}", table::mean(&worst)),
        format!("{:.2}", table::max(&worst)),
        table::quartiles(&whole),
        format!("{:.1}", table::percentile(&mut starts, 0.5)),
        rounds.len().to_string(),
    ])
}

/// All messages as CSV, those of the rounds that open connections included.
pub fn csv(all: &[(&str, &Record)], senders: u32, bits_per_sec: u64) -> String {
    let mut out = "contender,job,bytes,round,sender,start_ns,end_ns,ms,ideal_ms\n".to_owned();
    for (name, record) in all {
        for (job, f) in &record.flows {
            let ideal = ideal_ms(senders, f.bytes, bits_per_sec);
            // Writing to a string does not fail.
            let _ = writeln!(
                out,
                "{name},{job},{},{},{},{},{},{:.3},{ideal:.3}",
                f.bytes,
                f.round,
                f.sender,
                f.start_ns,
                f.end_ns,
                f.ms()
            );
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(lines: &[&str]) -> String {
        lines.join("\n")
    }

    #[test]
    fn a_job_is_accepted_only_if_complete_and_undamaged() {
        let flows = ["flow 8 0 0 5 9", "flow 8 0 1 5 9", "noise", "flow 8 1 0 6 10"];
        let all = [&flows[..], &["flow 8 1 1 5 8000005", "damaged 0"]].concat();
        let got = parse(&text(&all), &[8], 1, 2).unwrap();
        assert_eq!((got.len(), got[3].sender), (4, 1));
        assert!((got[3].ms() - 8.0).abs() < 1e-9);
        let bad = |lines: &[&str], word: &str| {
            let why = parse(&text(lines), &[8], 1, 2).unwrap_err().to_string();
            assert!(why.contains(word), "{why}");
        };
        bad(&[&flows[..], &["flow 8 1 1 5 6", "damaged 3"]].concat(), "3 messages");
        bad(&[&flows[..], &["flow 8 1 1 5 6"]].concat(), "last line");
        bad(&[&flows[..], &["damaged 0"]].concat(), "of 3 messages, not of 4");
        // A time of 0 means that no rank reported it.
        bad(&[&flows[..], &["flow 8 1 1 0 6", "damaged 0"]].concat(), "of 3 messages");
        bad(&[&flows[..], &["flow 8 1 1 7 0", "damaged 0"]].concat(), "of 3 messages");
    }

    #[test]
    fn complete_rounds_of_a_job_that_failed_are_kept() {
        let lines = ["flow 8 0 0 5 9", "flow 8 0 1 5 9", "flow 8 1 0 6 10", "flow 8 1 1 7"];
        let got = parse_partial(&text(&lines), 2);
        assert_eq!(got.iter().map(|f| (f.round, f.sender)).collect::<Vec<_>>(), [(0, 0), (0, 1)]);
    }

    #[test]
    fn rounds_are_measured_from_their_first_start() {
        let flow = |round, sender, start_ns, end_ns| {
            (0, FlowTime { bytes: 8, round, sender, start_ns, end_ns })
        };
        let ms = 1_000_000;
        let record = Record {
            flows: vec![
                flow(0, 0, ms, 900 * ms),
                flow(1, 0, 10 * ms, 14 * ms),
                flow(1, 1, 12 * ms, 18 * ms),
                (1, FlowTime { bytes: 8, round: 1, sender: 0, start_ns: ms, end_ns: 2 * ms }),
                (1, FlowTime { bytes: 9, round: 1, sender: 0, start_ns: ms, end_ns: 99 * ms }),
            ],
            ..Record::default()
        };
        let rounds = record.rounds(8);
        let want = Round { worst_ms: 6.0, whole_ms: 8.0, starts_ms: 2.0 };
        assert_eq!(rounds, [want, Round { worst_ms: 1.0, whole_ms: 1.0, starts_ms: 0.0 }]);
        assert_eq!(record.times(8), [4.0, 6.0, 1.0]);
        let row = row("srd", &record, 8, 2.0).unwrap();
        assert_eq!((row[0].as_str(), row[3].as_str(), row[6].as_str()), ("8 B srd", "6.0", "3.00"));
        assert!(super::row("srd", &record, 10, 2.0).is_none());
        let csv = csv(&[("srd", &record)], 2, 1_000_000_000);
        assert_eq!(csv.lines().count(), 6);
        assert_eq!(csv.lines().next().unwrap().split(',').count(), 9);
        assert!(csv.lines().skip(1).all(|l| l.split(',').count() == 9));
    }

    #[test]
    fn the_summary_of_srd_run_is_read() {
        let line = "warning\nsrd: 60 processes, 5 messages, 1.5 MB through SRD in 2000 packets on \
                    64 paths, 30 sent again\n";
        assert_eq!(srd_packets(line), Some((2000, 30)));
        let one =
            "srd: 1 process, 1 message, 0.0 MB through SRD in 1 packet on 1 path, 0 sent again";
        assert_eq!(srd_packets(one), Some((1, 0)));
        assert_eq!(srd_packets("srd: nothing"), None);
        let record = Record { packets: (2000, 30), ..Record::default() };
        assert!(record.again_percent(true).is_some_and(|p| (p - 1.5).abs() < 1e-9));
        assert_eq!(Record::default().again_percent(true), None);
        assert_eq!(Record::default().again_percent(false), Some(0.0));
    }

    #[test]
    fn sizes_are_short() {
        let all = [8 << 10, 8 << 20, 200_000, 1_500_000, 999].map(size_text);
        assert_eq!(all, ["8 KiB", "8 MiB", "200 kB", "1.5 MB", "999 B"]);
    }
}
