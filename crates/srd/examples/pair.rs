//! Two processes that exchange a message and write into each other's memory, on one host or two.
//!
//! ```sh
//! cargo run --release -p srd --example pair -- listen 10.0.0.1:7000            # on one host
//! cargo run --release -p srd --example pair -- connect 10.0.0.1:7000 10.0.0.2  # on the other
//! cargo run -p srd --example pair                                              # both here
//! ```
//!
//! The rendezvous is a TCP connection, over which each side sends a line of text: its queue pair
//! ([`PeerInfo`]) and its memory ([`RemoteMemory`]). Everything after that is SRD: a message, and a
//! write with immediate data, which the other side learns of by a completion.

use srd::{
    Access, CompletionOp, CompletionQueue, Device, DeviceConfig, PeerInfo, QKey, QpInit, RecvWr,
    RemoteMemory, SendWr, WorkCompletion,
};
use std::{
    env,
    io::{BufRead as _, BufReader, Write as _},
    net::{IpAddr, Ipv4Addr, TcpListener, TcpStream},
    process::Command,
    time::Duration,
};

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Both sides use the same.
const QKEY: QKey = QKey(0x11);
/// What one side writes into the memory of the other.
const BYTES: usize = 1 << 20;
/// The value that the writer sends along, by which the other side knows which write it was.
const IMMEDIATE: u32 = 7;
/// Longest wait for a completion.
const PATIENCE: Duration = Duration::from_secs(30);

fn main() -> Result {
    let args: Vec<String> = env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        [] => both(),
        ["listen", at] => {
            let listener = TcpListener::bind(at)?;
            let stream = listener.accept()?.0;
            let ip = stream.local_addr()?.ip();
            exchange(stream, ip, 1)
        }
        ["connect", to, own] => exchange(TcpStream::connect(to)?, own.parse()?, 2),
        _ => Err("usage: pair [listen IP:PORT | connect IP:PORT OWN-IP]".into()),
    }
}

/// Listens here, and starts the other side as a process of its own.
fn both() -> Result {
    let ip = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let listener = TcpListener::bind((ip, 0))?;
    let at = listener.local_addr()?.to_string();
    let mut other =
        Command::new(env::current_exe()?).args(["connect", &at, "127.0.0.1"]).spawn()?;
    exchange(listener.accept()?.0, ip, 1)?;
    match other.wait()?.success() {
        true => Ok(()),
        false => Err("the other side failed".into()),
    }
}

/// One side, which sends from this address. `mark` is what it fills its memory with: 1 or 2, and
/// the other side the other one.
pub fn exchange(stream: TcpStream, ip: IpAddr, mark: u8) -> Result {
    // A thread of the device drives it, so that it answers while this one does something else.
    let device = Device::open(DeviceConfig::ip(ip))?;
    let pd = device.pd_create()?;
    let cq = device.cq_create(16)?;
    let qp = pd.qp_create(&QpInit::srd(&cq, &cq))?;
    qp.activate(QKEY)?;
    let own = pd.mr_allocate(BYTES, Access::LOCAL_WRITE)?;
    own.write_at(0, &vec![mark; BYTES])?;
    let open = pd.mr_allocate(BYTES, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
    let inbox = pd.mr_allocate(device.mtu(), Access::LOCAL_WRITE)?;

    // Room for a message and for the notice of a write, before the other side knows of us.
    qp.post_recv(&RecvWr::recv(1).sges(&[inbox.sge(0, inbox.len() as u32)]))?;
    qp.post_recv(&RecvWr::recv(2).sges(&[inbox.sge(0, inbox.len() as u32)]))?;
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    writeln!(&stream, "{} {}", PeerInfo::of(&qp, QKEY), RemoteMemory::of(&open))?;
    let line = lines.next().ok_or("the other side has gone")??;
    let (peer, memory) = line.split_once(' ').ok_or("no such line")?;
    let (peer, memory): (PeerInfo, RemoteMemory) = (peer.parse()?, memory.parse()?);

    // The handle is needed for what this side sends, and lets the other one write.
    let to = pd.ah_create(peer.ip)?;
    writeln!(&stream, "ready")?;
    lines.next().ok_or("the other side has gone")??;

    let text = format!("hello from {ip}");
    let send = SendWr::send(3, &to, peer.qpn, peer.qkey);
    // Sent from memory of the device, as larger messages are; `inline` copies at once.
    let words = pd.mr_allocate(text.len(), Access::LOCAL_WRITE)?;
    words.write_at(0, text.as_bytes())?;
    qp.post_send(&send.sges(&[words.sge(0, text.len() as u32)]))?;
    let write = SendWr::write(4, &to, peer.qpn, peer.qkey).remote(memory.addr, memory.rkey);
    let bytes = u32::try_from(memory.bytes)?.min(BYTES as u32);
    qp.post_send(&write.imm(IMMEDIATE).sges(&[own.sge(0, bytes)]))?;

    // Two requests of this side and two of the other, in any order.
    for _ in 0..4 {
        let done = next(&cq)?;
        match done.op {
            CompletionOp::Recv => {
                let said = inbox.to_vec(0, done.byte_len as usize)?;
                println!("{ip}: {:?} from {}", String::from_utf8_lossy(&said), peer.ip);
            }
            CompletionOp::RecvRdmaImm => {
                let all = open.to_vec(0, BYTES)?;
                let good = done.imm == Some(IMMEDIATE) && all.iter().all(|b| *b == 3 - mark);
                println!("{ip}: {BYTES} bytes were written here, as meant: {good}");
                if !good {
                    return Err("other bytes than meant".into());
                }
            }
            _ => {}
        }
    }
    // The other side may still need this one.
    writeln!(&stream, "done")?;
    lines.next().ok_or("the other side has gone")??;
    Ok(())
}

fn next(cq: &CompletionQueue) -> Result<WorkCompletion> {
    Ok(cq.wait(PATIENCE)?.ok_or("no completion came")?.ok()?)
}
