//! The four modes over this crate's UDP datapath.

use crate::{
    Args, Result,
    report::{Meter, Report},
};
use core::{net::SocketAddr, time::Duration};
use srd_datapath::{Datapath, UdpConfig, UdpDatapath, clock::now_ns, send_batch};

fn open(args: &Args) -> Result<UdpDatapath> {
    let receives = args.mode == "rx" || args.mode == "pong";
    let mut config = UdpConfig::new(args.local);
    config.port_base = if receives { args.port } else { UdpConfig::new(args.local).port_base };
    config.slot = receives.then_some(0);
    config.paths = args.paths;
    config.gso = args.gso;
    config.gso_segments_max = args.batch;
    config.sndbuf_bytes_per_path = args.sndbuf;
    config.rcvbuf_bytes = args.rcvbuf;
    Ok(UdpDatapath::open(config)?)
}

pub fn tx(args: &Args) -> Result<Report> {
    let mut d = open(args)?;
    let remote = args.remote.ok_or("no remote")?;
    let payload = vec![1u8; args.size];
    let end = now_ns() + args.duration.as_nanos() as u64;
    let (mut report, mut meter, mut path) = (Report::default(), Meter::default(), 0);
    meter.start();
    while now_ns() < end {
        if !d.tx_ready() {
            d.wait(Some(Duration::from_millis(10)))?;
        }
        let packets = args.packets_per_send().min(d.tx_room());
        let (pushed, _) = send_batch(&mut d, |tx| {
            (0..packets).try_for_each(|_| tx.push(remote, path, &[], &[&payload]))
        })?;
        pushed?;
        path = ((usize::from(path) + 1) % args.paths) as u8;
    }
    meter.stop();
    meter.read(&mut report);
    let c = d.counters();
    (report.packets, report.bytes, report.syscalls) = (c.tx_packets, c.tx_bytes, c.tx_syscalls);
    Ok(report)
}

pub fn rx(args: &Args) -> Result<Report> {
    let mut d = open(args)?;
    let (mut report, mut meter) = (Report::default(), Meter::default());
    loop {
        let mut bytes = 0;
        let seen = d.rx(&mut |r| bytes += r.bytes.len() as u64)?.datagrams;
        if seen > 0 {
            meter.start();
            report.bytes += bytes;
            report.packets += seen as u64;
            continue;
        }
        if meter.pause() > 500_000_000 {
            break;
        }
        if !args.spin {
            d.wait(Some(Duration::from_millis(1)))?;
        }
    }
    meter.read(&mut report);
    (report.syscalls, report.lost) = (d.counters().rx_syscalls, d.counters().rxq_drops);
    Ok(report)
}

/// Sends one packet; the first byte of its port field says where answers go.
fn send(d: &mut UdpDatapath, to: SocketAddr, path: u8, payload: &[u8]) -> Result<()> {
    let port = d.port().to_be_bytes();
    send_batch(d, |tx| tx.push(to, path, &port, &[&payload[2..]]))?.0?;
    Ok(())
}

pub fn ping(args: &Args) -> Result<Report> {
    let mut d = open(args)?;
    let remote = args.remote.ok_or("no remote")?;
    let payload = vec![1u8; args.size];
    let end = now_ns() + args.duration.as_nanos() as u64;
    let (mut report, mut meter, mut path) = (Report::default(), Meter::default(), 0);
    meter.start();
    while now_ns() < end {
        let sent_ns = now_ns();
        send(&mut d, remote, path, &payload)?;
        path = ((usize::from(path) + 1) % args.paths) as u8;
        let mut got = 0;
        while got == 0 && now_ns() < sent_ns + 1_000_000_000 {
            if !args.spin {
                d.wait(Some(Duration::from_secs(1)))?;
            }
            got = d.rx(&mut |_| {})?.datagrams;
        }
        if got == 0 {
            report.lost += 1;
            continue;
        }
        report.rtt_ns.push(now_ns() - sent_ns);
        report.packets += 1;
        report.bytes += args.size as u64;
    }
    meter.stop();
    meter.read(&mut report);
    Ok(report)
}

pub fn pong(args: &Args) -> Result<Report> {
    let mut d = open(args)?;
    let (mut report, mut meter, mut path) = (Report::default(), Meter::default(), 0);
    let mut answer = Vec::new();
    loop {
        let mut from = None;
        d.rx(&mut |r| {
            answer.clear();
            answer.extend_from_slice(r.bytes);
            from = Some(r.src.ip());
        })?;
        let port = answer.first_chunk::<2>().map(|bytes| u16::from_be_bytes(*bytes));
        if let (Some(ip), Some(port)) = (from, port) {
            meter.start();
            report.packets += 1;
            report.bytes += answer.len() as u64;
            send(&mut d, (ip, port).into(), path, &answer)?;
            path = ((usize::from(path) + 1) % args.paths) as u8;
        } else if meter.pause() > 2_000_000_000 {
            break;
        } else if !args.spin {
            d.wait(Some(Duration::from_millis(100)))?;
        }
    }
    meter.read(&mut report);
    Ok(report)
}
