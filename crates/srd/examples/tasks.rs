//! Two processes under tokio: one asks, the other answers, and each waits by `.await`.
//!
//! ```sh
//! cargo run --release -p srd --example tasks -- answer 10.0.0.1:7000           # on one host
//! cargo run --release -p srd --example tasks -- ask 10.0.0.1:7000 10.0.0.2     # on the other
//! cargo run -p srd --example tasks                                             # both here
//! ```
//!
//! SRD's futures need no runtime; here tokio carries the rendezvous, limits waiting, and ends the
//! answering side when the other one has gone. The device drives itself (`Progress::Thread`, the
//! default), so the runtime's threads sleep while nothing happens.

use srd::{
    Access, CompletionOp, CompletionQueue, Device, DeviceConfig, MemoryRegion, PeerInfo,
    ProtectionDomain, QKey, QpInit, QueuePair, RecvWr, SendWr, WorkCompletion,
};
use std::{
    env,
    hash::{BuildHasher as _, RandomState},
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    net::{TcpListener, TcpStream},
    process::Command,
    time::timeout,
};

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Questions in all.
const QUESTIONS: u64 = 1_000;
/// Questions without an answer at a time, and receives posted on each side.
const WINDOW: u64 = 16;
/// Bytes of the buffer of each receive.
const BUFFER: usize = 64;
/// Longest wait for a completion.
const PATIENCE: Duration = Duration::from_secs(30);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result {
    let args: Vec<String> = env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        [] => both().await,
        ["answer", at] => {
            let stream = TcpListener::bind(at).await?.accept().await?.0;
            let ip = stream.local_addr()?.ip();
            answer(stream, ip).await
        }
        ["ask", to, own] => ask(TcpStream::connect(to).await?, own.parse()?).await,
        _ => Err("usage: tasks [answer IP:PORT | ask IP:PORT OWN-IP]".into()),
    }
}

/// Answers here, and starts the other side as a process of its own.
async fn both() -> Result {
    let ip = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let listener = TcpListener::bind((ip, 0)).await?;
    let at = listener.local_addr()?.to_string();
    let mut other = Command::new(env::current_exe()?).args(["ask", &at, "127.0.0.1"]).spawn()?;
    answer(listener.accept().await?.0, ip).await?;
    match other.wait().await?.success() {
        true => Ok(()),
        false => Err("the other side failed".into()),
    }
}

/// One side's device, with a receive posted for each message that can be on its way.
struct End {
    pd: ProtectionDomain,
    cq: CompletionQueue,
    qp: QueuePair,
    inbox: MemoryRegion,
}

impl End {
    /// Opens a device at this address, and tells the other side of it: returns its answer, too.
    async fn open(ip: IpAddr, stream: &mut BufReader<TcpStream>) -> Result<(Self, PeerInfo)> {
        let device = Device::open(DeviceConfig::ip(ip))?;
        let pd = device.pd_create()?;
        let cq = device.cq_create(2 * WINDOW as u32 + 2)?;
        let qp = pd.qp_create(&QpInit::srd(&cq, &cq))?;
        // A random one, so that messages for a former process are refused.
        let qkey = QKey(RandomState::new().hash_one(0) as u32);
        qp.activate(qkey)?;
        let inbox = pd.mr_allocate(WINDOW as usize * BUFFER, Access::LOCAL_WRITE)?;
        let end = Self { pd, cq, qp, inbox };
        (0..WINDOW).try_for_each(|slot| end.receive(slot))?;

        let own = PeerInfo::of(&end.qp, qkey);
        stream.write_all(format!("{own}\n").as_bytes()).await?;
        let mut line = String::new();
        stream.read_line(&mut line).await?;
        Ok((end, line.parse()?))
    }

    /// Posts the receive of this slot.
    fn receive(&self, slot: u64) -> Result {
        let piece = self.inbox.sge(slot as usize * BUFFER, BUFFER as u32);
        Ok(self.qp.post_recv(&RecvWr::recv(slot).sges(&[piece]))?)
    }

    /// The number that a message carries, whose receive is posted again.
    fn number(&self, done: &WorkCompletion) -> Result<u64> {
        let mut bytes = [0; 8];
        self.inbox.read_at(done.wr_id as usize * BUFFER, &mut bytes)?;
        self.receive(done.wr_id)?;
        Ok(u64::from_le_bytes(bytes))
    }
}

/// Answers each number by its square, until the other side has closed the connection.
pub async fn answer(stream: TcpStream, ip: IpAddr) -> Result {
    let mut stream = BufReader::new(stream);
    let (end, peer) = End::open(ip, &mut stream).await?;
    let to = end.pd.ah_create(peer.ip)?;
    let mut goodbye = String::new();
    loop {
        let done = tokio::select! {
            done = end.cq.next() => done?.ok()?,
            bye = stream.read_line(&mut goodbye) => {
                println!("{ip}: the other side has gone");
                return bye.map(drop).map_err(Into::into);
            }
        };
        if done.op == CompletionOp::Recv {
            let n = end.number(&done)?;
            let square = (n * n).to_le_bytes();
            end.qp.post_send(&SendWr::send(n, &to, peer.qpn, peer.qkey).inline(&square))?;
        }
    }
}

/// Asks all questions, as many at a time as the window permits.
pub async fn ask(stream: TcpStream, ip: IpAddr) -> Result {
    let mut stream = BufReader::new(stream);
    let (end, peer) = End::open(ip, &mut stream).await?;
    let to = end.pd.ah_create(peer.ip)?;
    let question = |n: u64| {
        let send = SendWr::send(n, &to, peer.qpn, peer.qkey);
        end.qp.post_send(&send.inline(&n.to_le_bytes()))
    };
    (0..WINDOW).try_for_each(question)?;
    // Answers come in any order, as everything of SRD does.
    let mut sum = 0;
    for next in WINDOW..QUESTIONS + WINDOW {
        let answer = loop {
            let done = timeout(PATIENCE, end.cq.next()).await??.ok()?;
            if done.op == CompletionOp::Recv {
                break end.number(&done)?;
            }
        };
        sum += answer;
        if next < QUESTIONS {
            question(next)?;
        }
    }
    println!("{ip}: the sum of {QUESTIONS} squares is {sum}");
    match sum == (0..QUESTIONS).map(|n| n * n).sum() {
        true => Ok(()),
        false => Err("that is another sum than meant".into()),
    }
}
