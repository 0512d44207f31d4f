//! What sealing costs: `cargo run --release -p srd-seal --example seal_speed`.
//!
//! Bytes per CPU-second and time per packet of this crate's own calls, of one thread, by the
//! kernel's clock of CPU time; the best of five runs of each. The packets are in the cache.

use rustix::time::{ClockId, clock_gettime};
use srd_seal::*;
use srd_wire::HEADER_BYTES;
use std::error::Error;
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// CPU time of this thread in nanoseconds.
fn cpu_ns() -> i64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// CPU nanoseconds of one call, the best of five runs of at least 50 ms.
fn cost_ns(mut call: impl FnMut() -> Outcome<()>) -> Outcome<f64> {
    let mut best = f64::MAX;
    for _ in 0..5 {
        let (start, mut calls) = (cpu_ns(), 0);
        while cpu_ns() - start < 50_000_000 {
            for _ in 0..500 {
                call()?;
            }
            calls += 500;
        }
        best = best.min((cpu_ns() - start) as f64 / f64::from(calls));
    }
    Ok(best)
}

const PARAMS: [u8; PARAMS_BYTES] = [3; PARAMS_BYTES];

struct Pair {
    ring: KeyRing,
    ends: Ends,
    offer: Offer<'static>,
    drawn: u64,
}

impl Pair {
    fn new(suite: Suite) -> Outcome<Self> {
        let ring = KeyRing::parse(format!("1 {}01\n", "5a".repeat(31)).as_bytes())?;
        let end = |host| End { ip: IpAddr::V4(Ipv4Addr::new(192, 0, 2, host)), port: 18_700 };
        let ends = Ends { initiator: end(1), responder: end(2) };
        let suites = Suites::new(&[suite]).ok_or("a list of one suite")?;
        Ok(Self { ring, ends, offer: Offer { suites, params: &PARAMS }, drawn: 0 })
    }

    /// Not random: nothing here is secret.
    fn ephemeral(&mut self) -> Ephemeral {
        self.drawn += 1;
        let mut bytes = [9; SECRET_BYTES];
        bytes[..8].copy_from_slice(&self.drawn.to_be_bytes());
        Ephemeral::take(&mut bytes)
    }

    fn handshake(&mut self) -> Outcome<(Session, Session)> {
        let limits = Limits::default();
        let (a, b) = (self.ephemeral(), self.ephemeral());
        let mut initiator =
            Initiator::new(self.ring.sending(), &self.ends, limits, 7, &self.offer, a)?;
        let (mut open, mut ack) = ([0; 1472], [0; SEALED_OPEN_ACK_BYTES]);
        initiator.write(&[0; HEADER_BYTES], &mut open)?;
        let greeting = Greeting::read(&open, &self.ends, limits, &self.ring)?;
        let mut half = greeting.propose()?.answer(&self.offer, b)?;
        half.write(&[0; HEADER_BYTES], &mut ack)?;
        let (keys, _) = initiator.finish(&ack)?;
        let keys_r = half.keys_take().ok_or("the first time")?;
        Ok((keys.session(0, 0)?, keys_r.session(0, 0)?))
    }
}

fn packets(suite: Suite, bytes: usize) -> Outcome<()> {
    let (mut at_i, _) = Pair::new(suite)?.handshake()?;
    let mut packet = vec![0x5a; HEADER_BYTES + bytes + 16];
    packet[0] = 0x30;
    let prepare = |packet: &mut [u8], number: u64| {
        packet[1] = 0;
        packet[8..12].copy_from_slice(&(number as u32).to_be_bytes());
    };
    let seal_ns = cost_ns(|| {
        let number = at_i.sender.next();
        prepare(&mut packet, number);
        Ok(at_i.sender.seal(number, black_box(&mut packet))?)
    })?;
    // One packet is opened again and again, whole each time: a new pair's first one.
    let (mut at_i, mut at_r) = Pair::new(suite)?.handshake()?;
    prepare(&mut packet, 0);
    at_i.sender.seal(0, &mut packet)?;
    let sealed = packet.clone();
    let copy_ns = cost_ns(|| {
        black_box(&mut packet).copy_from_slice(black_box(&sealed));
        Ok(())
    })?;
    let both_ns = cost_ns(|| {
        packet.copy_from_slice(&sealed);
        at_r.receiver.open(black_box(&mut packet))?;
        Ok(())
    })?;
    let open_ns = both_ns - copy_ns;
    let rate = |ns: f64| bytes as f64 / ns;
    println!(
        "{:18} {bytes:6} {seal_ns:8.0} {:8.2} {open_ns:8.0} {:8.2}",
        suite.name(),
        rate(seal_ns),
        rate(open_ns)
    );
    Ok(())
}

fn handshakes() -> Outcome<()> {
    let mut pair = Pair::new(Suite::Aes256Gcm)?;
    let both_ns = cost_ns(|| {
        black_box(pair.handshake()?);
        Ok(())
    })?;
    let initiator = {
        let a = pair.ephemeral();
        Initiator::new(pair.ring.sending(), &pair.ends, Limits::default(), 7, &pair.offer, a)?
    };
    let mut open = [0; 1472];
    initiator.write(&[0; HEADER_BYTES], &mut open)?;
    open[130] ^= 1;
    let stranger_ns = cost_ns(|| {
        let read = Greeting::read(black_box(&open), &pair.ends, Limits::default(), &pair.ring);
        if read.is_ok() { Err("a forged packet was taken".into()) } else { Ok(()) }
    })?;
    println!("\nhandshake, both sides: {:.1} us", both_ns / 1e3);
    println!("a forged SealedOpen of 1472 B, until it is refused: {:.2} us", stranger_ns / 1e3);
    Ok(())
}

fn main() -> Outcome<()> {
    println!(
        "{:18} {:>6} {:>8} {:>8} {:>8} {:>8}",
        "", "bytes", "seal ns", "GB/s", "open ns", "GB/s"
    );
    for &suite in Suite::ALL {
        for bytes in [64, 1400, 8900] {
            packets(suite, bytes)?;
        }
    }
    handshakes()
}
