//! A process that speaks the wire format, opens a context as anybody may, and then lies with the
//! tag that it was given: the honest transfer beside it goes on, and what was asked of it ends.

use super::{
    forge::{Dice, Heard, forge},
    party::{self, Party},
};
use crate::{
    bench::block::now_ns,
    error::{NetError, Result},
    fabric::Fabric,
    spec::{FabricSpec, Node},
};
use srd::{
    PORT_BASE_DEFAULT, Qpn,
    datapath::{Datapath as _, Finish, TxPacket, UdpConfig, UdpDatapath, send_batch},
};
use srd_wire::{
    AckBlock, Backlog, Body, Features, Flags, HEADERS_BYTES_MAX, Header, OpenParams, Packet,
    PacketType, emit, parse, stamp,
};
use std::{
    net::SocketAddr,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

/// How long each of the two transfers lasts.
const TIME: Duration = Duration::from_secs(3);
/// What was asked of the liar ends within this after it has fallen silent: three times the 5 s that
/// a peer is given.
const SILENCE_MAX: Duration = Duration::from_secs(15);
/// Lies between two pauses, and the pause: about as many packets as the transfer has.
const BURST: usize = 32;
/// See [`BURST`].
const PAUSE: Duration = Duration::from_millis(1);
/// How often the victim asks the liar for something.
const ASK_EACH: Duration = Duration::from_millis(5);

/// Runs the check. The same seed gives the same lies (not the same moments).
///
/// # Errors
/// Honest data was lost, damaged or delivered twice, or lost more than half of its rate, or a
/// request to the liar never ended.
pub fn check(seed: u64) -> Result<String> {
    let spec = FabricSpec {
        hosts: 2,
        host_bits_per_sec: 500_000_000,
        uplink_bits_per_sec: 500_000_000,
        ..FabricSpec::default()
    };
    let (fabric, _) = Fabric::build(&spec)?;
    let mut a = Party::open(&fabric, (0, 0))?;
    let mut b = Party::open(&fabric, (1, 0))?;
    let quiet = party::exchange(&mut a, &mut b, TIME, SILENCE_MAX, |_| Ok(()))?;
    let place = spec.ip(0, 1);
    let target = SocketAddr::new(b.device.ip(), PORT_BASE_DEFAULT + u16::from(b.device.slot()));
    let mut liar = fabric.ns(Node::Host(0, 1))?.inside(|| {
        let mut config = UdpConfig::new(place);
        (config.paths, config.slot) = (4, Some(0));
        Liar::open(config, target, seed)
    })?;
    let handle = b.handle(place)?;
    let over = AtomicBool::new(false);
    let mut asked = 0;
    let (loud, told) = thread::scope(|s| {
        let lies = s.spawn(|| liar.lie(&over));
        let mut due = Instant::now();
        let done = party::exchange(&mut a, &mut b, TIME, SILENCE_MAX, |b| {
            if Instant::now() >= due {
                due = Instant::now() + ASK_EACH;
                // The liar is known by slot 0: the high byte of the queue pair's number.
                asked += b.ask_stranger(&handle, Qpn(0))?;
            }
            Ok(())
        });
        over.store(true, Ordering::Relaxed);
        let told = lies.join().map_err(|_| NetError::new("the liar's thread ended early"));
        Ok::<_, NetError>((done?, told??))
    })?;
    let ends = b.strangers_end(SILENCE_MAX)?;
    let share = loud.per_sec() / quiet.per_sec();
    let text = format!(
        "seed {seed}: {:.0} blocks/s without, {:.0} ({:.0} %) beside a liar with {} lies in {} \
         contexts; of {asked} requests to it each has ended: {ends:?}",
        quiet.per_sec(),
        loud.per_sec(),
        share * 100.0,
        told.lies,
        told.contexts
    );
    if told.contexts == 0 {
        return Err(NetError::new(format!("{text}; no context was opened: nothing is shown")));
    }
    if share < 0.5 { Err(NetError::new(text)) } else { Ok(text) }
}

/// What a liar has done.
#[derive(Clone, Copy, Debug, Default)]
struct Told {
    lies: u64,
    contexts: u32,
}

struct Liar {
    datapath: UdpDatapath,
    to: SocketAddr,
    dice: Dice,
    heard: Heard,
    cookie: u64,
    /// Its incarnation; 0 = a new one is due.
    life: u64,
    is_open: bool,
    told: Told,
    opened: Instant,
}

impl Liar {
    fn open(config: UdpConfig, to: SocketAddr, seed: u64) -> Result<Self> {
        Ok(Self {
            datapath: UdpDatapath::open(config)?,
            to,
            dice: Dice(seed),
            heard: Heard::default(),
            cookie: 0,
            life: 0,
            is_open: false,
            told: Told::default(),
            opened: Instant::now() - Duration::from_secs(1),
        })
    }

    /// Lies until told to stop; then it is silent for ever.
    fn lie(&mut self, over: &AtomicBool) -> Result<Told> {
        while !over.load(Ordering::Relaxed) {
            self.hear()?;
            if !self.is_open {
                if self.opened.elapsed() > Duration::from_millis(20) {
                    self.ask_in()?;
                }
            } else {
                self.burst()?;
            }
            thread::sleep(PAUSE);
        }
        Ok(self.told)
    }

    /// An honest Open, but for what comes after it.
    fn ask_in(&mut self) -> Result {
        self.opened = Instant::now();
        // One life until it is let in: the cookie of a challenge is for this tag and incarnation.
        if self.life == 0 {
            self.life = self.dice.next();
            self.heard.own_tag = self.dice.next() as u32;
            (self.heard.psn, self.heard.tx_num) = (1000, 1);
        }
        let params = OpenParams {
            tag: self.heard.own_tag,
            incarnation: self.life,
            echo_tag: 0,
            psn_start: self.heard.psn,
            tx_num_start: u64::from(self.heard.tx_num),
            window: 4096,
            mtu: 8000,
            reads_max: 64,
            write_imms_max: 64,
            rx_budget: u32::MAX,
            features: Features(Features::RDMA_READ | Features::RDMA_WRITE | Features::ECN),
            cookie: self.cookie,
        };
        let packet = Packet {
            header: Header {
                kind: PacketType::Open,
                flags: Flags(Flags::CHECKED),
                backlog: Backlog(0),
                path: 0,
                slot: 0,
                dst_tag: 0,
                tx_num: self.heard.tx_num,
                timestamp: (now_ns() / 16) as u32,
                psn: self.heard.psn,
                una_delta: 0,
                ack_echo: 0,
            },
            ack: None,
            body: Body::Open(params),
            payload_len: 0,
        };
        let mut bytes = [0; HEADERS_BYTES_MAX];
        let len = emit(&packet, &mut bytes);
        let padded_len = self.datapath.udp_payload_max();
        let (headers, finish) = (&bytes[..len], Some(stamp as Finish));
        let open = TxPacket { dst: self.to, path: 0, headers, payload: &[], padded_len, finish };
        // A refused push is a lost packet: the next Open follows.
        let _ = self.datapath.tx_push(&open);
        self.datapath.tx_flush()?;
        Ok(())
    }

    /// Takes what has come from the victim.
    fn hear(&mut self) -> Result {
        let mut ack = AckBlock::default();
        let Self { datapath, heard, cookie, life, is_open, told, .. } = self;
        while datapath
            .rx(&mut |datagram| {
                let Ok((packet, _)) = parse(datagram.bytes, &mut ack) else { return };
                heard.note(&packet);
                match packet.body {
                    Body::OpenAck(p) if p.echo_tag == heard.own_tag => {
                        heard.tag = p.tag;
                        told.contexts += u32::from(!*is_open);
                        *is_open = true;
                    }
                    // The victim opens a context of its own accord: its tag will do as well.
                    Body::Open(p) if *is_open => heard.tag = p.tag,
                    Body::Challenge { cookie: c, .. } => *cookie = c,
                    Body::Reset { .. } | Body::CloseAck => (*is_open, *life) = (false, 0),
                    _ => {}
                }
            })?
            .more
        {}
        Ok(())
    }

    fn burst(&mut self) -> Result {
        let Self { datapath, dice, heard, to, told, .. } = self;
        let room = datapath.udp_payload_max();
        send_batch(datapath, |batch| {
            let mut bytes = Vec::new();
            for _ in 0..BURST {
                forge(dice, heard, (now_ns() / 16) as u32, &mut bytes);
                let path = dice.below(4) as u8;
                if bytes.len() <= room && batch.push(*to, path, &bytes, &[]).is_ok() {
                    told.lies += 1;
                }
            }
        })?;
        Ok(())
    }
}
