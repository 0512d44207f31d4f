//! A device with its engine and its sockets, at two ends of the loopback interface: what a message
//! costs in this process. The kernel's part is not counted. `cargo xtask bench-instructions` runs
//! this under callgrind.
#![deny(unsafe_code)]

mod clock;

use srd::{
    Access, AddressHandle, CompletionQueue, Device, DeviceConfig, MemoryRegion, Progress, QKey,
    QpInit, QueuePair, RecvWr, SendWr, WorkCompletion,
};
use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

const QKEY: QKey = QKey(0x11);
const BYTES: usize = 64;
/// Depth of each queue, and messages outstanding in a flow.
const DEPTH: u32 = 512;
/// Messages before the counted ones: both ends then know paths and round-trip times.
const WARM_UP: u64 = 2_000;
/// A longer wait means that something hangs.
const HANG: Duration = Duration::from_secs(60);

/// Name, operations and counted function of each scenario: one direction of a ping-pong at both
/// ends, and the sender of a flow.
const SCENARIOS: [&str; 2] =
    ["device-hop 4000 device_round", "device-send 20000 device_posts_and_polls"];

type Result<T = ()> = std::result::Result<T, String>;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match args[..] {
        ["scenarios"] => {
            SCENARIOS.iter().for_each(|s| println!("{s}"));
            Ok(())
        }
        ["run", name, n] => run(name, n),
        _ => Err("usage: srd-bench-device scenarios, or: srd-bench-device run SCENARIO N".into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("srd-bench-device: {message}");
            ExitCode::FAILURE
        }
    }
}

fn run(name: &str, operations: &str) -> Result {
    let n = operations.parse().map_err(|_| format!("`{operations}` is not a count"))?;
    match name {
        "device-hop" => hops(n),
        "device-send" => flow(n),
        _ => Err(format!("there is no scenario `{name}`")),
    }
}

fn text(e: impl std::fmt::Display) -> String {
    e.to_string()
}

struct End {
    cq: CompletionQueue,
    qp: QueuePair,
    to: AddressHandle,
    inbox: MemoryRegion,
}

impl End {
    fn open(device: &Device, peer: &Device) -> Result<Self> {
        let pd = device.pd_create().map_err(text)?;
        let cq = device.cq_create(2 * DEPTH).map_err(text)?;
        let mut init = QpInit::srd(&cq, &cq);
        (init.sq_depth, init.rq_depth, init.inline_bytes_max) = (DEPTH, DEPTH, 80);
        let qp = pd.qp_create(&init).map_err(text)?;
        qp.activate(QKEY).map_err(text)?;
        let to = pd.ah_create(peer.ip()).map_err(text)?;
        let inbox = pd.mr_allocate(DEPTH as usize * BYTES, Access::LOCAL_WRITE).map_err(text)?;
        let end = Self { cq, qp, to, inbox };
        (0..u64::from(DEPTH)).try_for_each(|index| end.receive_post(index))?;
        Ok(end)
    }

    fn receive_post(&self, index: u64) -> Result {
        let sge = self.inbox.sge(index as usize * BYTES, BYTES as u32);
        self.qp.post_recv(&RecvWr { wr_id: index, sges: &[sge] }).map_err(text)
    }

    fn send(&self, peer: &Self) -> Result {
        let wr = SendWr::send(0, &self.to, peer.qp.qpn(), QKEY);
        self.qp.post_send(&wr.inline(&[0x5D; BYTES])).map_err(text)
    }

    /// Polls once. Posts each receive again; returns how many messages came, and how many left.
    fn poll(&self, taken: &mut [WorkCompletion]) -> Result<(u64, u64)> {
        let n = self.cq.poll(taken).map_err(text)?;
        let mut received = 0;
        for wc in &taken[..n] {
            let wc = wc.ok().map_err(text)?;
            if wc.op.is_recv() {
                self.receive_post(wc.wr_id)?;
                received += 1;
            }
        }
        Ok((received, n as u64 - received))
    }

    /// Polls until a message has come. Its sender is driven as well while none comes: the message
    /// may wait there for its turn.
    fn receive(&self, sender: &Self, taken: &mut [WorkCompletion]) -> Result {
        let start = Instant::now();
        loop {
            let came = self.poll(taken)?.0;
            match came {
                0 if start.elapsed() > HANG => return Err("no message came".into()),
                0 => sender.poll(taken)?,
                1 => return Ok(()),
                _ => return Err(format!("{came} messages came, and one was sent")),
            };
        }
    }
}

/// Both ends. Their devices are driven by this thread, which polls. They share nothing with other
/// processes and show no status: both happen at intervals, in which callgrind does a fiftieth of
/// the work.
fn ends() -> Result<(End, End)> {
    let open = || {
        let mut config = DeviceConfig::loopback();
        (config.progress, config.mtu, config.seal) = (Progress::Caller, Some(1400), None);
        (config.share, config.status) = (false, false);
        Device::open(config).map_err(text)
    };
    let (near, far) = (open()?, open()?);
    Ok((End::open(&near, &far)?, End::open(&far, &near)?))
}

/// A message there and another one back, until each of `hops` was a message.
fn hops(hops: u64) -> Result {
    let (near, far) = ends()?;
    let taken = &mut [WorkCompletion::default(); 64];
    // The first round opens the contexts, for which both ends must be driven.
    near.send(&far)?;
    let start = Instant::now();
    while far.poll(taken)?.0 == 0 {
        near.poll(taken)?;
        if start.elapsed() > HANG {
            return Err("the first message did not come".into());
        }
    }
    far.send(&near)?;
    far.poll(taken)?;
    near.receive(&far, taken)?;
    for _ in 0..WARM_UP {
        round(&near, &far, taken)?;
    }
    for _ in 0..hops / 2 {
        device_round(&near, &far, taken)?;
    }
    leave(near, far)
}

/// Ends without closing the devices: a device that closes waits for answers in the kernel, where
/// the clock of this program stands still.
fn leave(near: End, far: End) -> Result {
    std::mem::forget((near, far));
    Ok(())
}

/// The counted function: two hops.
#[inline(never)]
fn device_round(near: &End, far: &End, taken: &mut [WorkCompletion]) -> Result {
    round(near, far, taken)
}

/// Two hops.
#[inline(always)]
fn round(near: &End, far: &End, taken: &mut [WorkCompletion]) -> Result {
    near.send(far)?;
    // This poll lets the message leave, and finds nothing.
    near.poll(taken)?;
    far.receive(near, taken)?;
    far.send(near)?;
    far.poll(taken)?;
    near.receive(far, taken)
}

/// A flow of `n` messages to the far end, with as many outstanding as the queues hold.
fn flow(n: u64) -> Result {
    let (near, far) = ends()?;
    let taken = &mut [WorkCompletion::default(); 64];
    let mut posted = 0;
    let mut done = 0;
    let start = Instant::now();
    while done < WARM_UP + n {
        let room = (WARM_UP + n - posted).min(u64::from(DEPTH) + done - posted);
        done += device_posts_and_polls(&near, &far, room, taken)?;
        posted += room;
        while far.poll(taken)?.0 > 0 {}
        if start.elapsed() > HANG {
            return Err(format!("{done} of {n} messages were sent"));
        }
    }
    leave(near, far)
}

/// The counted function: posts `n` messages, and polls once.
#[inline(never)]
fn device_posts_and_polls(
    near: &End,
    far: &End,
    n: u64,
    taken: &mut [WorkCompletion],
) -> Result<u64> {
    (0..n).try_for_each(|_| near.send(far))?;
    Ok(near.poll(taken)?.1)
}

#[cfg(test)]
mod tests {
    use super::{SCENARIOS, run};

    #[test]
    fn every_scenario_completes() {
        for s in SCENARIOS {
            let name = s.split(' ').next().unwrap();
            run(name, "100").unwrap_or_else(|e| panic!("{name}: {e}"));
        }
    }
}
