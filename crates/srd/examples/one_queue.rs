//! What a thread that polls one completion queue, or waits for it, exchanges through a device with
//! 1, 2 or more shards, on the loopback interface.
//!
//! ```sh
//! cargo run --release -p srd --example one_queue -- 1 4 8 1 4 8
//! cargo run --release -p srd --example one_queue -- wait 1 2 8
//! ```
//!
//! Each number is a run with as many shards at both ends. Two processes exchange messages of 64
//! bytes through 8 queue pairs, four under way of each. Each process has one thread, which polls
//! one queue and so drives all shards, as programs of the drop-in libraries do. Run something
//! beside it that takes the processors, for example `while :; do :; done` once for each, to see
//! what it does on a busy machine. Columns: messages per second of the clock and per second of
//! processor time of this end, switches of its threads per 1000 messages, the longest time between
//! two completions in milliseconds, and packets sent again. After `wait`, both ends wait for
//! completions in the place of polls.

use srd::{
    Access, CompletionOp, CompletionQueue, Device, DeviceConfig, Progress, QKey, QpInit, Qpn,
    QueuePair, RecvWr, SendWr, WorkCompletion,
};
use std::{
    env, fs,
    io::{self, BufRead as _, BufReader},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

const QKEY: QKey = QKey(1);
const QPS: usize = 8;
/// Messages under way of each queue pair.
const DEPTH: usize = 4;
/// Messages of a run, each way.
const MESSAGES: usize = 40_000;
const BYTES: u32 = 64;
/// As in the drop-in libraries.
const IDLE: Duration = Duration::from_micros(300);
/// Ticks of a second in `/proc/self/stat`, on all Linux machines.
const TICKS: f64 = 100.0;

fn main() -> Result {
    let args: Vec<String> = env::args().skip(1).collect();
    match args.split_first() {
        Some((word, [how, rest @ ..])) if word == "answer" => answer(how == "wait", rest),
        Some((word, rest)) if word == "wait" => ask_all(true, rest),
        _ => ask_all(false, &args),
    }
}

/// A run for each number of shards.
fn ask_all(waits: bool, all: &[String]) -> Result {
    println!("shards  messages/s  messages/CPU-s  switches/1000  longest ms  sent again");
    all.iter().try_for_each(|shards| ask(waits, shards))
}

/// One end of an exchange.
struct End {
    device: Device,
    cq: CompletionQueue,
    qps: Vec<QueuePair>,
    /// Whether its thread waits rather than polls.
    waits: bool,
}

impl End {
    fn new(waits: bool, shards: &str) -> Result<Self> {
        let mut config = DeviceConfig::loopback();
        (config.shards, config.paths) = (shards.parse()?, 16);
        config.progress = Progress::Shared { idle: IDLE };
        let device = Device::open(config)?;
        let (pd, cq) = (device.pd_create()?, device.cq_create(1024)?);
        let mut qps = Vec::new();
        for _ in 0..QPS {
            let qp = pd.qp_create(&QpInit::srd(&cq, &cq))?;
            qp.activate(QKEY)?;
            qps.push(qp);
        }
        Ok(Self { device, cq, qps, waits })
    }

    fn numbers(&self) -> Vec<String> {
        self.qps.iter().map(|qp| qp.qpn().0.to_string()).collect()
    }

    /// Takes completions, if there are any.
    fn take(&self, out: &mut [WorkCompletion]) -> Result<usize> {
        if !self.waits {
            return Ok(self.cq.poll(out)?);
        }
        let Some(first) = self.cq.wait(Duration::from_secs(1))? else { return Ok(0) };
        out[0] = first;
        Ok(1)
    }

    /// Receives all messages, and sends as many: the first ones if it `begins`, and one for each
    /// that it receives. Returns the longest time between two completions.
    fn exchange(&self, peers: &[Qpn], begins: bool) -> Result<Duration> {
        let pd = self.qps[0].pd();
        let to = pd.ah_create(self.device.ip())?;
        let memory = pd.mr_allocate(2 * BYTES as usize, Access::LOCAL_WRITE)?;
        let (text, inbox) = ([memory.sge(0, BYTES)], [memory.sge(BYTES as usize, BYTES)]);
        let receive = |i: usize| self.qps[i].post_recv(&RecvWr::recv(i as u64).sges(&inbox));
        let send = |i: usize| {
            let wr = SendWr::send(i as u64, &to, peers[i], QKEY);
            self.qps[i].post_send(&wr.sges(&text))
        };
        let mut to_send = [MESSAGES / QPS; QPS];
        for i in (0..QPS).flat_map(|i| [i; DEPTH]) {
            receive(i)?;
            if begins {
                send(i)?;
                to_send[i] -= 1;
            }
        }
        let (mut left, mut last, mut longest) = (2 * MESSAGES, Instant::now(), Duration::ZERO);
        let mut out = [WorkCompletion::default(); 16];
        while left > 0 {
            let n = self.take(&mut out)?;
            if n > 0 {
                longest = longest.max(last.elapsed());
                last = Instant::now();
            }
            left -= n;
            for wc in &out[..n] {
                let wc = wc.ok()?;
                let i = wc.wr_id as usize;
                if wc.op != CompletionOp::Recv {
                    continue;
                }
                receive(i)?;
                if to_send[i] > 0 {
                    to_send[i] -= 1;
                    send(i)?;
                }
            }
        }
        Ok(longest)
    }
}

fn numbers(words: &[impl AsRef<str>]) -> Result<Vec<Qpn>> {
    words.iter().map(|word| Ok(Qpn(word.as_ref().parse()?))).collect()
}

/// The end that begins; it starts the other one.
fn ask(waits: bool, shards: &str) -> Result {
    let end = End::new(waits, shards)?;
    let mut command = Command::new(env::current_exe()?);
    let how = if waits { "wait" } else { "poll" };
    command.args(["answer", how, shards]).args(end.numbers());
    let mut other = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut line = String::new();
    BufReader::new(other.stdout.take().ok_or("no output")?).read_line(&mut line)?;
    let peers = numbers(&line.split_whitespace().collect::<Vec<_>>())?;
    let (cpu, switched, start) = (processor_time()?, switches()?, Instant::now());
    let longest = end.exchange(&peers, true)?;
    let (wall, cpu) = (start.elapsed().as_secs_f64(), processor_time()? - cpu);
    let n = MESSAGES as f64;
    println!(
        "{shards:>6}  {:>10.0}  {:>14.0}  {:>13.1}  {:>10.1}  {:>10}",
        n / wall,
        n / cpu,
        (switches()? - switched) as f64 * 1e3 / n,
        longest.as_secs_f64() * 1e3,
        end.device.counters()?.engine.retrans_pkts
    );
    drop(other.stdin.take());
    other.wait()?;
    Ok(())
}

/// The other end, until its standard input ends.
fn answer(waits: bool, args: &[String]) -> Result {
    let end = End::new(waits, &args[0])?;
    println!("{}", end.numbers().join(" "));
    end.exchange(&numbers(&args[1..])?, false)?;
    io::stdin().read_line(&mut String::new())?;
    Ok(())
}

/// Processor time of this process in seconds.
fn processor_time() -> Result<f64> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    let fields: Vec<&str> = stat.rsplit_once(')').ok_or("no name")?.1.split_whitespace().collect();
    // utime and stime: fields 14 and 15 of the whole line, which begins two fields earlier.
    Ok((fields[11].parse::<f64>()? + fields[12].parse::<f64>()?) / TICKS)
}

/// How often threads of this process gave up a processor, or lost it.
fn switches() -> Result<u64> {
    let mut all = 0;
    for task in fs::read_dir("/proc/self/task")? {
        let status = fs::read_to_string(task?.path().join("status"))?;
        let counts = status.lines().filter(|line| line.contains("_ctxt_switches:"));
        all +=
            counts.filter_map(|l| l.rsplit('\t').next()?.trim().parse::<u64>().ok()).sum::<u64>();
    }
    Ok(all)
}
