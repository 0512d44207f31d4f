//! A client that violates the protocol must not disturb a server.

use crate::common::{PORT_BASE, Scratch, Server, same};
use srd::{
    Access, AddressHandle, CompletionOp, CompletionQueue, Device, DeviceConfig, MemoryRegion,
    ProtectionDomain, QKey, QpInit, Qpn, QueuePair, RecvWr, SendWr, WorkCompletion,
};
use std::{cell::RefCell, collections::VecDeque, os::unix::fs::PermissionsExt, time::Duration};

/// Q_Key of the request queue pair, given in docs/tool.md.
const CONTROL_QKEY: QKey = QKey(0x5352_4400);
const REPLY_QKEY: QKey = QKey(7);
const BUFFER: usize = 2048;

/// A device that sends arbitrary messages.
struct Attacker {
    qp: QueuePair,
    memory: MemoryRegion,
    ah: AddressHandle,
    cq: CompletionQueue,
    /// Completions that arrived while another was awaited.
    heard: RefCell<VecDeque<WorkCompletion>>,
    server: Qpn,
    _pd: ProtectionDomain,
}

impl Attacker {
    fn new(server: &Server) -> Self {
        let mut config = DeviceConfig::loopback();
        config.port_base = PORT_BASE;
        let device = Device::open(config).unwrap();
        let pd = device.pd_create().unwrap();
        let cq = device.cq_create(512).unwrap();
        let qp = pd.qp_create(&QpInit::srd(&cq, &cq)).unwrap();
        qp.activate(REPLY_QKEY).unwrap();
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let memory = pd.mr_allocate(65 * BUFFER, access).unwrap();
        for i in 0..64 {
            let sge = memory.sge(i * BUFFER, BUFFER as u32);
            qp.post_recv(&RecvWr { wr_id: i as u64, sges: &[sge] }).unwrap();
        }
        let port: u16 = server.address.rsplit(':').next().unwrap().parse().unwrap();
        let ah = pd.ah_create("127.0.0.1".parse().unwrap()).unwrap();
        Self {
            qp,
            memory,
            ah,
            cq,
            heard: RefCell::default(),
            server: Qpn((port - PORT_BASE) << 8),
            _pd: pd,
        }
    }

    /// Sends bytes, and waits for the acknowledgment.
    fn say_to(&self, qpn: Qpn, qkey: QKey, bytes: &[u8]) {
        self.memory.write_at(64 * BUFFER, bytes).unwrap();
        let sge = [self.memory.sge(64 * BUFFER, bytes.len() as u32)];
        let wr = SendWr::send(99, &self.ah, qpn, qkey);
        let wr = if bytes.is_empty() { wr } else { wr.sges(&sge) };
        self.qp.post_send(&wr).unwrap();
        loop {
            let wc = self.next();
            if wc.op == CompletionOp::Send {
                return;
            }
            self.heard.borrow_mut().push_back(wc);
        }
    }

    fn next(&self) -> WorkCompletion {
        self.cq.wait(Duration::from_secs(20)).unwrap().expect("within 20 s")
    }

    fn say(&self, bytes: &[u8]) {
        self.say_to(self.server, CONTROL_QKEY, bytes);
    }

    /// Returns the kind of the next message.
    fn hear_any(&self) -> u8 {
        let next = self.heard.borrow_mut().pop_front();
        let wc = next.unwrap_or_else(|| self.next());
        let all = self.memory.to_vec(wc.wr_id as usize * BUFFER, wc.byte_len as usize).unwrap();
        let sge = self.memory.sge(wc.wr_id as usize * BUFFER, BUFFER as u32);
        self.qp.post_recv(&RecvWr { wr_id: wc.wr_id, sges: &[sge] }).unwrap();
        all[16]
    }

    /// Waits for a message of this kind; returns the queue pair that sent it, and its body.
    fn hear(&self, kind: u8) -> (Qpn, Vec<u8>) {
        loop {
            let next = self.heard.borrow_mut().pop_front();
            let wc = next.unwrap_or_else(|| self.next());
            let all = self.memory.to_vec(wc.wr_id as usize * BUFFER, wc.byte_len as usize).unwrap();
            let sge = self.memory.sge(wc.wr_id as usize * BUFFER, BUFFER as u32);
            self.qp.post_recv(&RecvWr { wr_id: wc.wr_id, sges: &[sge] }).unwrap();
            if all[16] == kind {
                return (wc.src_qpn, all[17..].to_vec());
            }
        }
    }
}

/// A message in the format of docs/tool.md.
fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut m = b"SRT\x01".to_vec();
    m.extend(1_u64.to_le_bytes());
    m.extend(REPLY_QKEY.0.to_le_bytes());
    m.push(kind);
    m.extend(body);
    m
}

fn put_open(size: u64, name: &str) -> Vec<u8> {
    let mut body = size.to_le_bytes().to_vec();
    body.extend((name.len() as u16).to_le_bytes());
    body.extend(name.as_bytes());
    message(8, &body)
}

fn perf_open(qps: u8, depth: u32, size: u32) -> Vec<u8> {
    let mut body = vec![0, 0, 0, qps];
    body.extend(depth.to_le_bytes());
    body.extend(size.to_le_bytes());
    body.extend([0; 12]);
    message(2, &body)
}

#[test]
fn malformed_messages_are_counted_and_ignored() {
    let s = Scratch::new("nonsense");
    let file = s.file("file", 100_000);
    let server = Server::start(&["--dir", &s.path("in")]);
    let attacker = Attacker::new(&server);
    attacker.say(b"");
    attacker.say(b"SRT");
    attacker.say(&[0xff; 1100]);
    for kind in 0..=255 {
        attacker.say(&message(kind, &[]));
        attacker.say(&message(kind, &[0xff; 40]));
    }
    // The answer to another protocol version says so.
    let mut other = message(0, &[]);
    other[3] = 9;
    attacker.say(&other);
    for (qps, depth, size) in
        [(0, 1, 1), (65, 1, 1), (1, 0, 1), (64, u32::MAX, 1), (1, 1, u32::MAX)]
    {
        attacker.say(&perf_open(qps, depth, size));
        let (_, text) = attacker.hear(1);
        assert!(text.len() > 3, "a refusal with a text");
    }
    attacker.say(&put_open(u64::MAX, "huge"));
    attacker.hear(1);
    assert!(s.names("in").is_empty());
    server.run(&["cp", &file, "{}:fine"]).ok();
    server.run(&["perf", "lat", "{}", "--iters", "100"]).ok();
    let done = server.end();
    assert!(!done.stdout.contains(" 0 messages were malformed"), "{done:#?}");
}

#[test]
fn a_copy_that_breaks_the_rules_leaves_nothing() {
    let s = Scratch::new("rules");
    let file = s.file("file", 100_000);
    let server = Server::start(&["--dir", &s.path("in")]);
    let chunk = |index: u64, len: u32| {
        message(12, &[&index.to_le_bytes()[..], &len.to_le_bytes()].concat())
    };
    let wrong_hash = message(14, &[0; 32]);
    let rules: [(u64, Vec<Vec<u8>>); 7] = [
        (1000, vec![chunk(1, 1000)]),
        (1000, vec![chunk(u64::MAX, 1000)]),
        (1000, vec![chunk(0, 999)]),
        (1 << 20, vec![chunk(0, 512 << 10), chunk(0, 512 << 10)]),
        (1000, vec![wrong_hash.clone()]),
        (0, vec![wrong_hash]),
        (1000, vec![b"garbage".to_vec()]),
    ];
    for (size, messages) in rules {
        // One attacker per case: the server remembers the client of a session.
        let attacker = Attacker::new(&server);
        attacker.say(&put_open(size, "evil"));
        let (session, ready) = attacker.hear(9);
        let qkey = u32::from_le_bytes(ready[..4].try_into().unwrap());
        for m in messages {
            attacker.say_to(session, QKey(qkey), &m);
        }
        attacker.hear(1);
        assert!(s.names("in").is_empty());
    }
    server.run(&["cp", &file, "{}:fine"]).ok();
    assert!(same(&file, s.path("in/fine")));
    let done = server.end();
    assert!(done.stdout.contains("1 copies; 7 copies failed"), "{done:#?}");
}

#[test]
fn a_greedy_client_cannot_starve_another() {
    let limits = ["--qps-max", "100", "--memory-max", "8m"];
    let server = Server::start(&limits);
    // Each request alone fits; together they are one client that exceeds its limit.
    let greedy = [Attacker::new(&server), Attacker::new(&server)];
    greedy[0].say(&perf_open(40, 1, 1000));
    greedy[0].hear(3);
    greedy[1].say(&perf_open(40, 1, 1000));
    let (_, text) = greedy[1].hear(1);
    let text = String::from_utf8_lossy(&text);
    assert!(text.contains("--client-qps-max"), "{text}");
    greedy[1].say(&perf_open(1, 100, 50_000));
    let (_, text) = greedy[1].hear(1);
    let text = String::from_utf8_lossy(&text);
    assert!(text.contains("--client-memory-max"), "{text}");
    // Another host gets the rest.
    let other = ["perf", "lat", "{}", "--ip", "127.0.0.2", "--iters", "100"];
    server.run(&other).ok();
    // Resources of a session are free after it has ended.
    drop(greedy);
    let again = Attacker::new(&server);
    again.say(&perf_open(45, 1, 1000));
    let mut waited = 0;
    while again.hear_any() != 3 {
        waited += 1;
        // Clients that exit without a message are detected by pings.
        assert!(waited < 300, "the queue pairs of clients that have gone are still in use");
        std::thread::sleep(Duration::from_millis(100));
        again.say(&perf_open(45, 1, 1000));
    }
    drop(again);
    let done = server.end();
    assert!(done.stderr.contains("is refused a measurement"), "{done:#?}");
}

#[test]
fn allow_and_read_only_restrict_clients() {
    let s = Scratch::new("allow");
    let file = s.file("file", 100_000);
    let server = Server::start(&["--dir", &s.path("in"), "--allow", "127.0.0.2/31"]);
    let perf = |ip| ["perf", "lat", "{}", "--ip", ip, "--iters", "100"];
    server.run(&perf("127.0.0.3")).ok();
    server.run(&perf("127.0.0.1")).fails(1, "--allow");
    server.end();
    let server = Server::start(&["--dir", &s.path("in"), "--read-only"]);
    server.run(&["cp", &file, "{}:new"]).fails(1, "--read-only");
    assert!(s.names("in").is_empty());
    std::fs::copy(&file, s.path("in/given")).unwrap();
    server.run(&["cp", "{}:given", &s.path("got")]).ok();
    assert!(same(&file, s.path("got")));
    server.end();
}

#[test]
fn without_the_token_there_is_no_session() {
    let s = Scratch::new("token");
    let file = s.file("file", 100_000);
    let token = |name: &str, byte: u8, mode: u32| {
        std::fs::write(s.path(name), [byte; 40]).unwrap();
        std::fs::set_permissions(s.path(name), PermissionsExt::from_mode(mode)).unwrap();
        s.path(name)
    };
    let own = token("own", b'a', 0o600);
    let (other, open) = (token("other", b'b', 0o600), token("open", b'a', 0o644));
    let server = Server::start(&["--dir", &s.path("in"), "--token-file", &own]);
    let perf = ["perf", "lat", "{}", "--iters", "100"];
    let put = ["cp", &file, "{}:new"];
    server.run(&perf).fails(1, "--token-file");
    server.run(&put).fails(1, "--token-file");
    let with = |args: &[&str], file| server.run(&[args, &["--token-file", file]].concat());
    with(&put, &other).fails(1, "another token");
    with(&put, &open).fails(1, "chmod 600");
    assert!(s.names("in").is_empty());
    // A wrong proof, and a request without one.
    let attacker = Attacker::new(&server);
    let inner = put_open(100, "evil")[16..].to_vec();
    attacker.say(&message(18, &[&[7; 32][..], &inner].concat()));
    let (_, text) = attacker.hear(1);
    assert!(String::from_utf8_lossy(&text).contains("prove"), "{text:?}");
    attacker.say(&perf_open(1, 1, 1));
    attacker.hear(1);
    assert!(s.names("in").is_empty());
    with(&perf, &own).ok();
    with(&put, &own).ok();
    with(&["cp", "{}:new", &s.path("got")], &own).ok();
    assert!(same(&file, s.path("got")));
    server.end();
    // A client with a token sends no file to a server without it.
    let server = Server::start(&["--dir", &s.path("in")]);
    let put = ["cp", &file, "{}:more", "--token-file", &own];
    server.run(&put).fails(1, "has no --token-file");
    assert_eq!(s.names("in"), ["new"]);
    server.end();
}

#[test]
fn the_disk_of_a_server_does_not_fill() {
    let s = Scratch::new("disk");
    let file = s.file("file", 100_000);
    let keep = ["--disk-keep", "8000000G"];
    let limits: [(&[&str], &str); 3] = [
        (&["--client-disk-max", "50k"], "--client-disk-max"),
        (&keep, "--disk-keep"),
        // Accepted, and refused once the space is reserved.
        (&[keep[0], keep[1], "--disk-max", "1G"], "must keep 7.6 PiB of its disk free"),
    ];
    for (options, words) in limits {
        let server = Server::start(&[&["--dir", &s.path("in")], options].concat());
        server.run(&["cp", &file, "{}:new"]).fails(1, words);
        assert!(s.names("in").is_empty());
        server.end();
    }
}

#[test]
fn a_client_without_acknowledgments_does_not_block_answers() {
    let server = Server::start(&[]);
    // All from one host, with more requests than the server has buffers for answers.
    let deaf: Vec<Attacker> = (0..4).map(|_| Attacker::new(&server)).collect();
    for attacker in &deaf {
        for _ in 0..300 {
            attacker.say(&message(4, &[]));
        }
    }
    server.run(&["perf", "lat", "{}", "--ip", "127.0.0.2", "--iters", "100"]).ok();
    drop(deaf);
    server.end();
}
