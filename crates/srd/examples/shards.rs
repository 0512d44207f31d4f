//! What a receiving device takes with 1, 2 or more shards, on the loopback interface.
//!
//! ```sh
//! cargo run --release -p srd --example shards -- 1 2 1 2
//! ```
//!
//! Each number is a run with as many shards. Two processes write 64 KiB pieces, in packets of
//! 1400 bytes, into the memory of a device that this process has; the device's threads do all the
//! work of this process. Columns: packets per second of the clock, packets per second of processor
//! time of this process, processors that it used, and packets per call that receives. The second
//! says what the same processor takes when others work beside it; the first depends on how many
//! processors are left beside the senders.
//!
//! On a machine with few processors the senders need what a second shard would take. There,
//! `quarter` as the first argument gives each thread of the device a quarter of a processor, by a
//! control group (as root, where groups of version 1 are at `/sys/fs/cgroup/cpu`): as if the device
//! had slow processors of its own, and the senders the rest. The first column then says what a
//! second shard gains.

use srd::{Access, Device, DeviceConfig, Progress, QKey, QpInit, Qpn, RKey, SendWr};
use std::{
    env, fs,
    io::{self, Read},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const QKEY: QKey = QKey(1);
/// Bytes of one write, and writes under way of each queue pair.
const PIECE: u32 = 1 << 16;
const DEPTH: usize = 4;
/// Queue pairs of the device, as many of each sender.
const QPS: usize = 8;
const SENDERS: usize = 2;
const WARM_UP: Duration = Duration::from_millis(500);
const MEASURED: Duration = Duration::from_secs(3);
/// Ticks of a second in `/proc/self/stat`, on all Linux machines.
const TICKS: f64 = 100.0;
/// Folder of the control groups that limit processor time.
const GROUPS: &str = "/sys/fs/cgroup/cpu";
/// A thread of the device runs one of four milliseconds; the kernel takes no shorter periods.
const PERIOD_US: u32 = 4_000;

fn main() -> Result<()> {
    let args: Vec<String> = env::args().skip(1).collect();
    if args.first().is_some_and(|first| first == "send") {
        return send(&args[1..]);
    }
    let quarter = args.first().is_some_and(|first| first == "quarter");
    println!("shards  packets/s  packets/CPU-s  CPUs  packets/call");
    for shards in &args[usize::from(quarter)..] {
        receive(shards.parse()?, quarter)?;
    }
    Ok(())
}

/// Control groups, one for each thread of a device, which may run a quarter of the time.
struct Quarters(Vec<String>);

impl Quarters {
    fn new(shards: u16) -> Result<Self> {
        let mut all = Self(Vec::new());
        // Each thread names itself when it begins to run.
        thread::sleep(WARM_UP);
        for task in fs::read_dir("/proc/self/task")? {
            let task = task?;
            if fs::read_to_string(task.path().join("comm"))?.trim() != "srd-engine" {
                continue;
            }
            let tid = task.file_name().to_string_lossy().into_owned();
            let group = format!("{GROUPS}/srd-shards-{tid}");
            fs::create_dir(&group)?;
            all.0.push(group.clone());
            fs::write(format!("{group}/cpu.cfs_period_us"), PERIOD_US.to_string())?;
            fs::write(format!("{group}/cpu.cfs_quota_us"), (PERIOD_US / 4).to_string())?;
            fs::write(format!("{group}/tasks"), tid)?;
        }
        if all.0.len() != usize::from(shards) {
            return Err(format!("{} threads of {shards} were found", all.0.len()).into());
        }
        Ok(all)
    }
}

impl Drop for Quarters {
    fn drop(&mut self) {
        for group in &self.0 {
            // The thread is gone or goes back, so that the group can be removed.
            if let Ok(tid) = fs::read_to_string(format!("{group}/tasks")) {
                let _ = fs::write(format!("{GROUPS}/tasks"), tid.trim());
            }
            let _ = fs::remove_dir(group);
        }
    }
}

fn device(shards: u16) -> Result<Device> {
    let mut config = DeviceConfig::loopback();
    (config.shards, config.mtu, config.paths) = (shards, Some(1400), 16);
    config.progress = Progress::Thread { spin: Duration::ZERO };
    Ok(Device::open(config)?)
}

/// Processor time of this process in seconds.
fn processor_time() -> Result<f64> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    let fields: Vec<&str> = stat.rsplit_once(')').ok_or("no name")?.1.split_whitespace().collect();
    // utime and stime: fields 14 and 15 of the whole line, which begins two fields earlier.
    Ok((fields[11].parse::<f64>()? + fields[12].parse::<f64>()?) / TICKS)
}

fn receive(shards: u16, quarter: bool) -> Result<()> {
    let device = device(shards)?;
    let _quarters = quarter.then(|| Quarters::new(shards)).transpose()?;
    let (pd, cq) = (device.pd_create()?, device.cq_create(64)?);
    let qps = (0..QPS).map(|_| pd.qp_create(&QpInit::srd(&cq, &cq)));
    let qps = qps.collect::<std::result::Result<Vec<_>, _>>()?;
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let memory = pd.mr_allocate(SENDERS * QPS * PIECE as usize, access)?;
    let _back = pd.ah_create(device.ip())?;
    let mut numbers = vec![memory.addr().to_string(), memory.rkey().to_string()];
    for qp in &qps {
        qp.activate(QKEY)?;
        numbers.push(qp.qpn().0.to_string());
    }
    let sender = |i: usize| {
        let mut command = Command::new(env::current_exe()?);
        command.arg("send").arg(i.to_string()).args(&numbers).stdin(Stdio::piped()).spawn()
    };
    let mut senders = (0..SENDERS).map(sender).collect::<io::Result<Vec<_>>>()?;
    thread::sleep(WARM_UP);
    let look = || -> Result<_> {
        let counters = device.counters()?;
        let calls = counters.datapath.rx_syscalls;
        Ok((counters.engine.rx_pkts, calls, processor_time()?, Instant::now()))
    };
    let (packets, calls, cpu, at) = look()?;
    thread::sleep(MEASURED);
    let (packets_after, calls_after, cpu_after, now) = look()?;
    for sender in &mut senders {
        drop(sender.stdin.take());
        sender.wait()?;
    }
    let (n, cpu) = ((packets_after - packets) as f64, cpu_after - cpu);
    let wall = (now - at).as_secs_f64();
    println!(
        "{shards:>6}  {:>9.0}  {:>13.0}  {:>4.2}  {:>12.1}",
        n / wall,
        n / cpu,
        cpu / wall,
        n / (calls_after - calls) as f64
    );
    Ok(())
}

/// Writes until the standard input ends.
fn send(args: &[String]) -> Result<()> {
    thread::spawn(|| {
        let _ = io::stdin().read(&mut [0]);
        std::process::exit(0);
    });
    let number = |i: usize| -> Result<u64> { Ok(args.get(i).ok_or("missing number")?.parse()?) };
    let (me, addr, rkey) = (number(0)? as usize, number(1)?, number(2)? as u32);
    let device = device(1)?;
    let (pd, cq) = (device.pd_create()?, device.cq_create(256)?);
    let ah = pd.ah_create(device.ip())?;
    let source = pd.mr_allocate(PIECE as usize, Access::LOCAL_WRITE)?;
    let mut qps = Vec::new();
    for i in 0..QPS {
        let qp = pd.qp_create(&QpInit::srd(&cq, &cq))?;
        qp.activate(QKEY)?;
        let there = addr + (me * QPS + i) as u64 * u64::from(PIECE);
        qps.push((qp, Qpn(number(3 + i)? as u16), there));
    }
    let post = |i: usize| {
        let (qp, to, there) = &qps[i];
        let write = SendWr::write(i as u64, &ah, *to, QKEY).remote(*there, RKey(rkey));
        qp.post_send(&write.sges(&[source.sge(0, PIECE)]))
    };
    for i in 0..QPS * DEPTH {
        post(i % QPS)?;
    }
    loop {
        if let Some(wc) = cq.wait(Duration::from_secs(1))? {
            post(wc.ok()?.wr_id as usize)?;
        }
    }
}
