//! `srd net record-noise`: records the delays that this host's kernel and processors add to network
//! times, with two sockets on the loopback interface, and writes them as quantiles from which `srd
//! lab` draws (`host = "FILE"`).
//!
//! Nothing leaves this host. On the loopback interface a send call also does the kernel's receive
//! work, so `send_ns` and `stamp_ns` are upper bounds. Calls are timed by the CPU time of their
//! thread; time that other threads take appears only in `stolen_ns`.

use crate::{
    error::{NetError, Result},
    say, units,
};
use clap::Args;
use srd::datapath::{Datapath as _, TxPacket, UdpConfig, UdpDatapath, clock};
use std::{
    fmt::Write as _,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// Bytes of a datagram: a full packet with 4,096 bytes of payload.
const DATAGRAM_BYTES: usize = 4_160;
/// Numbers of datagrams in the timed segmented sends; the last is the datapath's default maximum.
const BURSTS: [usize; 4] = [1, 2, 4, 8];
/// Shortest jump of the clock, in ns, that a spinning thread counts as an interruption.
const GAP_NS_MIN: u64 = 2_000;
/// Most samples kept of each kind.
const SAMPLES_MAX: usize = 1_000_000;
/// Percentages of the written quantiles.
const PERCENTS: [f64; 14] =
    [0.0, 1.0, 5.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.99, 100.0];
/// Longest sleep of a receiver, so that it notices the end.
const SLEEP_MAX: Duration = Duration::from_millis(20);

/// Options of `record-noise`.
#[derive(Clone, Debug, Args)]
pub struct NoiseArgs {
    /// Write to this file [default: standard output]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Total recording time in seconds
    #[arg(long, value_name = "N", default_value = "10", value_parser = seconds)]
    pub seconds: Duration,
    /// Keep all processors busy meanwhile, with one spinning thread each
    #[arg(long)]
    pub busy: bool,
}

fn seconds(text: &str) -> std::result::Result<Duration, String> {
    let bounds = Duration::from_secs(1)..=Duration::from_secs(3_600);
    let time = units::duration(text).ok().filter(|time| bounds.contains(time));
    time.ok_or_else(|| format!("`{text}` is out of range; give seconds from 1 to 3600"))
}

/// Samples of one kind, in ns or counts.
#[derive(Debug, Default)]
struct Samples(Vec<u64>);

impl Samples {
    fn push(&mut self, value: u64) {
        if self.0.len() < SAMPLES_MAX {
            self.0.push(value);
        }
    }

    /// A line of the file; runs of equal quantiles are written once.
    fn line(mut self, name: &str) -> Result<String> {
        self.0.sort_unstable();
        let Some(last) = self.0.len().checked_sub(1) else {
            return Err(NetError::new(format!(
                "nothing was recorded for {name}: use more --seconds"
            )));
        };
        let mut line = name.to_owned();
        for percent in PERCENTS {
            let at = (percent / 100.0 * last as f64).round() as usize;
            let _ = write!(line, " {percent}={}", self.0[at]);
        }
        Ok(format!("{line}   # {} samples\n", last + 1))
    }
}

/// Records the delays and writes the file.
///
/// # Errors
/// The sockets cannot be opened, or the file cannot be written.
pub fn run(args: &NoiseArgs) -> Result {
    let stop = AtomicBool::new(false);
    let text = thread::scope(|s| {
        if args.busy {
            for _ in 0..processors() {
                s.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
        }
        let text = record(args);
        stop.store(true, Ordering::Relaxed);
        text
    })?;
    match &args.out {
        None => say(text.trim_end()),
        Some(path) => {
            let fail = |e| NetError::system(&format!("cannot write {}", path.display()), e);
            std::fs::write(path, &text).map_err(fail)?;
            say(&format!("written to {}: use it as host = \"{}\"", path.display(), path.display()))
        }
    }
}

fn processors() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

fn record(args: &NoiseArgs) -> Result<String> {
    let part = args.seconds / 4;
    let busy = if args.busy { ", all of them busy with other work" } else { "" };
    let mut text = format!(
        "# Noise of a host for `host = FILE` of `srd lab`: percentages, and the values below which \
         so many lie.\n# srd net record-noise --seconds {}{}: {} processors{busy}, loopback, \
         datagrams of {DATAGRAM_BYTES} bytes.\n",
        args.seconds.as_secs_f64(),
        if args.busy { " --busy" } else { "" },
        processors(),
    );
    let (receiver, sender) = (open()?, open()?);
    let socket_bytes = receiver.rcvbuf_bytes();
    let (receiver, sender, woken) = wakes(receiver, sender, part)?;
    text += &woken;
    let (receiver, mut sender, batches) = batches(receiver, sender, part)?;
    text += &batches;
    drop(receiver);
    text += &sends(&mut sender, part)?;
    text += &stolen(part)?;
    let step = rustix::time::clock_getres(rustix::time::ClockId::Realtime);
    let step = step.tv_sec as u64 * 1_000_000_000 + step.tv_nsec as u64;
    let _ = writeln!(text, "stamp_step_ns 50={step}\nsocket_bytes 50={socket_bytes}");
    Ok(text)
}

fn open() -> Result<UdpDatapath> {
    let mut config = UdpConfig::new(IpAddr::V4(Ipv4Addr::LOCALHOST));
    config.paths = 1;
    // Segmented sends as on a network with jumbo frames.
    config.link_mtu = Some(9_000);
    config.sndbuf_bytes_per_path = 1 << 20;
    Ok(UdpDatapath::open(config)?)
}

/// CPU time of this thread in ns, which excludes time that other threads took.
fn ran_ns() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

fn realtime_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |t| t.as_nanos() as u64)
}

/// Sends `packets` datagrams in one segmented call; returns the CPU time of the call in ns.
fn burst(sender: &mut UdpDatapath, to: SocketAddr, packets: usize) -> Result<u64> {
    let mut bytes = [0; DATAGRAM_BYTES];
    bytes[..8].copy_from_slice(&realtime_ns().to_le_bytes());
    let packet =
        TxPacket { dst: to, path: 0, headers: &bytes, payload: &[], padded_len: 0, finish: None };
    for _ in 0..packets {
        let pushed = sender.tx_push(&packet);
        pushed.map_err(|e| NetError::new(format!("cannot send on the loopback: {e}")))?;
    }
    let before = ran_ns();
    sender.tx_flush()?;
    Ok(ran_ns() - before)
}

/// Receives until `stop`; calls `told` after each call with its CPU time in ns.
fn receive(
    receiver: &mut UdpDatapath,
    stop: &AtomicBool,
    mut told: impl FnMut(usize, bool, u64, &[(u64, u64)]),
) -> Result {
    let mut seen = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        receiver.wait(Some(SLEEP_MAX))?;
        loop {
            seen.clear();
            let before = ran_ns();
            let report = receiver.rx(&mut |d| {
                let sent = d.bytes.first_chunk::<8>().map_or(0, |b| u64::from_le_bytes(*b));
                let stamp = realtime_ns().saturating_sub(d.waited_ns);
                seen.push((d.waited_ns, stamp.saturating_sub(sent)));
            })?;
            told(report.datagrams, report.more, ran_ns() - before, &seen);
            if report.datagrams == 0 {
                break;
            }
        }
    }
    Ok(())
}

/// Runs a receiver's and a sender's loop in parallel for a time.
fn beside(
    mut receiver: UdpDatapath,
    mut sender: UdpDatapath,
    time: Duration,
    told: impl FnMut(usize, bool, u64, &[(u64, u64)]) + Send,
    mut send: impl FnMut(&mut UdpDatapath, SocketAddr) -> Result,
) -> Result<(UdpDatapath, UdpDatapath)> {
    let stop = AtomicBool::new(false);
    let to = SocketAddr::new(receiver.local_ip(), receiver.port());
    let (heard, sent) = thread::scope(|s| {
        let heard = s.spawn(|| receive(&mut receiver, &stop, told));
        let end = clock::now_ns() + time.as_nanos() as u64;
        let mut sent = Ok(());
        while sent.is_ok() && clock::now_ns() < end {
            sent = send(&mut sender, to);
        }
        stop.store(true, Ordering::Relaxed);
        (heard.join(), sent)
    });
    sent?;
    heard.map_err(|_| NetError::new("the receiving thread ended early"))??;
    Ok((receiver, sender))
}

/// Single datagrams for a receiver that sleeps in between.
fn wakes(
    receiver: UdpDatapath,
    sender: UdpDatapath,
    time: Duration,
) -> Result<(UdpDatapath, UdpDatapath, String)> {
    let (mut wake, mut stamp, mut call) =
        (Samples::default(), Samples::default(), Samples::default());
    let mut pause = 0u64;
    let (receiver, sender) = beside(
        receiver,
        sender,
        time,
        |datagrams, _, took_ns, seen| {
            if let (1, [(waited_ns, stamped_ns)]) = (datagrams, seen) {
                wake.push(*waited_ns);
                stamp.push(*stamped_ns);
                call.push(took_ns);
            }
        },
        |sender, to| {
            // Pauses vary, so that they do not synchronise with a kernel timer.
            pause = (pause + 137) % 900;
            thread::sleep(Duration::from_micros(100 + pause));
            burst(sender, to, 1).map(|_| ())
        },
    )?;
    let text = wake.line("wake_ns")? + &stamp.line("stamp_ns")? + &call.line("recv_ns")?;
    Ok((receiver, sender, text))
}

/// More datagrams than one receive call returns.
fn batches(
    receiver: UdpDatapath,
    sender: UdpDatapath,
    time: Duration,
) -> Result<(UdpDatapath, UdpDatapath, String)> {
    let (mut full, mut any, mut each) =
        (Samples::default(), Samples::default(), Samples::default());
    let (receiver, sender) = beside(
        receiver,
        sender,
        time,
        |datagrams, more, took_ns, _| {
            if datagrams < 2 {
                return;
            }
            any.push(datagrams as u64);
            each.push(took_ns / datagrams as u64);
            if more {
                full.push(datagrams as u64);
            }
        },
        |sender, to| {
            for _ in 0..16 {
                burst(sender, to, BURSTS[3])?;
            }
            thread::yield_now();
            Ok(())
        },
    )?;
    let batch = if full.0.is_empty() { any } else { full };
    let text = batch.line("batch_packets")? + &each.line("recv_packet_ns")?;
    Ok((receiver, sender, text))
}

/// CPU time of send calls, by the number of datagrams.
fn sends(sender: &mut UdpDatapath, time: Duration) -> Result<String> {
    let mut sink = open()?;
    let to = SocketAddr::new(sink.local_ip(), sink.port());
    let mut samples: [Samples; BURSTS.len()] = Default::default();
    let end = clock::now_ns() + time.as_nanos() as u64;
    while clock::now_ns() < end {
        for (packets, samples) in BURSTS.iter().zip(&mut samples) {
            samples.push(burst(sender, to, *packets)?);
            while sink.rx(&mut |_| ())?.datagrams > 0 {}
        }
    }
    let mut text = String::new();
    for (packets, samples) in BURSTS.iter().zip(samples) {
        text += &samples.line(&format!("send_ns/{packets}"))?;
    }
    Ok(text)
}

/// Measures interruptions of a thread that always wants to run.
fn stolen(time: Duration) -> Result<String> {
    let (mut gaps, mut lengths) = (Samples::default(), Samples::default());
    let begin = clock::now_ns();
    let end = begin + time.as_nanos() as u64;
    let (mut last, mut ran_from) = (begin, begin);
    while last < end {
        let now = clock::now_ns();
        if now - last >= GAP_NS_MIN {
            gaps.push(last - ran_from);
            lengths.push(now - last);
            ran_from = now;
        }
        last = now;
    }
    if gaps.0.is_empty() {
        // There was no interruption in all this time.
        gaps.push(last - begin);
        lengths.push(0);
    }
    Ok(gaps.line("stolen_gap_ns")? + &lengths.line("stolen_ns")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_holds_quantiles_that_occurred() {
        let line = Samples((1..=101).rev().collect()).line("wake_ns").unwrap();
        assert!(line.starts_with("wake_ns 0=1 1=2 5=6 10=11 25=26 50=51 "), "{line}");
        assert!(line.ends_with("100=101   # 101 samples\n"), "{line}");
        let e = Samples::default().line("wake_ns").unwrap_err();
        assert!(e.to_string().contains("more --seconds"), "{e}");
    }

    #[test]
    fn times_are_seconds_within_bounds() {
        assert_eq!(seconds("2.5"), Ok(Duration::from_millis(2_500)));
        assert_eq!(seconds("2m").ok(), units::duration("2m").ok());
        for text in ["0", "0.5", "-1", "nan", "4000", "soon"] {
            let e = seconds(text).unwrap_err();
            assert!(e.contains("give seconds from 1 to 3600"), "{text}: {e}");
        }
    }

    /// Independent of the machine's load: every name is present, with ascending values.
    #[test]
    fn every_kind_is_recorded_on_the_loopback() {
        let args = NoiseArgs { out: None, seconds: Duration::from_secs(1), busy: false };
        let text = record(&args).unwrap();
        let names: Vec<&str> = text
            .lines()
            .filter(|l| !l.starts_with('#'))
            .filter_map(|l| l.split_whitespace().next())
            .collect();
        let want = [
            "wake_ns",
            "stamp_ns",
            "recv_ns",
            "batch_packets",
            "recv_packet_ns",
            "send_ns/1",
            "send_ns/2",
            "send_ns/4",
            "send_ns/8",
            "stolen_gap_ns",
            "stolen_ns",
            "stamp_step_ns",
            "socket_bytes",
        ];
        assert_eq!(names, want, "{text}");
        for line in text.lines().filter(|l| !l.starts_with('#')) {
            let values: Vec<u64> =
                line.split_whitespace().filter_map(|w| w.split_once('=')?.1.parse().ok()).collect();
            assert!(values.is_sorted(), "{line}");
        }
    }
}
