//! A process that follows the wire format, opens a context like any peer, and then lies with the
//! tag that it was assigned. The honest transfer beside it must continue, and requests to the liar
//! must end.

use super::{
    forge::{self, Draft, Manner},
    heard::{Dice, Heard},
    party::{self, Party},
    pretend::{self, Act},
};
use crate::{
    error::{NetError, Result},
    fabric::Fabric,
    spec::{FabricSpec, Node},
};
use srd::{
    PORT_BASE_DEFAULT, Qpn,
    datapath::{Datapath as _, UdpConfig, UdpDatapath, send_batch},
};
use srd_wire::{AckBlock, Body, PacketType, parse};
use std::{
    net::{IpAddr, SocketAddr},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

/// Duration of each of the two transfers.
const TIME: Duration = Duration::from_secs(3);
/// Time within which requests to the liar must end after it stops sending: three times the 5 s of
/// silence that a peer is allowed.
const SILENCE_MAX: Duration = Duration::from_secs(15);
/// The liars, one per slot of one host: name, whether it is stateful, and whether its contexts use
/// checksums.
const LIARS: [(&str, bool, bool); 4] = [
    ("random", false, true),
    ("random, no checksums", false, false),
    ("stateful", true, true),
    ("stateful, no checksums", true, false),
];
/// Packets of one liar between two pauses. With the pause, all liars together send about as many
/// packets as the transfer.
const BURST: usize = 8;
/// Pause between two bursts.
const PAUSE: Duration = Duration::from_millis(1);
/// Interval of the victim's requests to the liars.
const ASK_EACH: Duration = Duration::from_millis(5);

/// Runs the check. The same seed gives the same packets, but at other times. `kept` is the share of
/// its rate that the transfer must keep.
///
/// # Errors
/// A block was lost, damaged or duplicated, the transfer kept too little of its rate, or a request
/// to a liar did not end.
pub fn check(seed: u64, kept: f64) -> Result<String> {
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
    let mut liars = fabric.ns(Node::Host(0, 1))?.inside(|| {
        let open = |slot| Liar::open(place, slot, target, seed, b.bait());
        (0..LIARS.len() as u8).map(open).collect::<Result<Vec<_>>>()
    })?;
    let handle = b.handle(place)?;
    let over = AtomicBool::new(false);
    let mut asked = 0;
    let (loud, told) = thread::scope(|s| {
        let lies: Vec<_> = liars.iter_mut().map(|liar| s.spawn(|| liar.lie(&over))).collect();
        let (mut due, mut slot) = (Instant::now(), 0);
        let done = party::exchange(&mut a, &mut b, TIME, SILENCE_MAX, |b| {
            if Instant::now() >= due {
                due = Instant::now() + ASK_EACH;
                // The high byte of the queue pair number selects the liar, because it is the slot.
                slot = (slot + 1) % LIARS.len() as u16;
                asked += b.ask_stranger(&handle, Qpn(slot << 8))?;
            }
            Ok(())
        });
        over.store(true, Ordering::Relaxed);
        let told = lies.into_iter().map(|l| l.join());
        let told: Vec<_> = told
            .map(|t| t.map_err(|_| NetError::new("a liar's thread ended early"))?)
            .collect::<Result<_>>()?;
        Ok::<_, NetError>((done?, told))
    })?;
    let ends = b.strangers_end(SILENCE_MAX)?;
    let share = loud.per_sec() / quiet.per_sec();
    let each = LIARS.iter().zip(&told);
    let each: Vec<String> = each
        .map(|((name, ..), t)| format!("{name}: {} lies in {} contexts", t.lies, t.contexts))
        .collect();
    let text = format!(
        "seed {seed}: {:.0} blocks/s without, {:.0} ({:.0} %) beside liars ({}); of {asked} \
         requests to them each has ended: {ends:?}",
        quiet.per_sec(),
        loud.per_sec(),
        share * 100.0,
        each.join("; ")
    );
    if told.iter().any(|t| t.contexts == 0) {
        return Err(NetError::new(format!(
            "{text}; a liar opened no context, so it tested nothing"
        )));
    }
    if share < kept { Err(NetError::new(text)) } else { Ok(text) }
}

/// Counters of a liar.
#[derive(Clone, Copy, Debug, Default)]
struct LiarCounters {
    lies: u64,
    contexts: u32,
}

struct Liar {
    datapath: UdpDatapath,
    to: SocketAddr,
    manner: Manner,
    dice: Dice,
    heard: Heard,
    act: Act,
    /// Pending packets that an honest peer would send at once.
    owed: Vec<Draft>,
    is_open: bool,
    told: LiarCounters,
    opened: Instant,
}

impl Liar {
    fn open(ip: IpAddr, slot: u8, to: SocketAddr, seed: u64, bait: (u32, u64)) -> Result<Self> {
        let mut config = UdpConfig::new(ip);
        (config.paths, config.slot) = (4, Some(slot));
        let datapath = UdpDatapath::open(config)?;
        let (_, stateful, checked) = LIARS[usize::from(slot)];
        Ok(Self {
            manner: Manner { stateful, checked, slot, room: datapath.udp_payload_max() },
            datapath,
            to,
            dice: Dice(seed.wrapping_mul(LIARS.len() as u64).wrapping_add(u64::from(slot))),
            heard: Heard { bait, ..Heard::default() },
            act: Act::default(),
            owed: Vec::new(),
            is_open: false,
            told: LiarCounters::default(),
            opened: Instant::now() - Duration::from_secs(1),
        })
    }

    /// Sends lies until `over` is set, and nothing afterwards.
    fn lie(&mut self, over: &AtomicBool) -> Result<LiarCounters> {
        while !over.load(Ordering::Relaxed) {
            self.receive()?;
            if !self.is_open && self.opened.elapsed() > Duration::from_millis(20) {
                self.open_context();
            }
            self.burst()?;
            thread::sleep(PAUSE);
        }
        Ok(self.told)
    }

    /// Sends an honest Open.
    fn open_context(&mut self) {
        self.opened = Instant::now();
        let Self { heard, dice, manner, .. } = self;
        // The incarnation stays the same until the context is open, because a challenge's cookie is
        // bound to it and to the tag.
        if heard.life == 0 {
            heard.life = dice.next();
            heard.own_tag = dice.next() as u32;
            (heard.psn, heard.tx_num, heard.told, heard.cookie) = (1000, 1, 1000, 0);
        }
        let open = Body::Open(forge::params(dice, heard, *manner, false));
        let psn = heard.psn;
        self.owed.push(Draft { body: open, ack: None, payload: 0, psn, una_delta: 0 });
    }

    /// Handles packets from the victim.
    fn receive(&mut self) -> Result {
        let mut ack = AckBlock::default();
        let Self { datapath, heard, is_open, told, dice, manner, owed, .. } = self;
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
                    // The victim opens a context itself: the tag in its Open can be used, too.
                    Body::Open(p) if heard.life != 0 => {
                        heard.tag = p.tag;
                        told.contexts += u32::from(!*is_open);
                        *is_open = true;
                    }
                    Body::Reset { .. } | Body::CloseAck => {
                        (*is_open, heard.life, heard.tag) = (false, 0, 0);
                    }
                    _ => {}
                }
                let kind = packet.header.kind;
                if kind != PacketType::Open || heard.life != 0 {
                    owed.extend(pretend::answer(dice, heard, *manner, kind));
                }
            })?
            .more
        {}
        Ok(())
    }

    fn burst(&mut self) -> Result {
        let Self { datapath, dice, heard, to, told, manner, act, owed, is_open, .. } = self;
        let lies = if *is_open { BURST } else { 0 };
        send_batch(datapath, |batch| {
            let mut bytes = Vec::new();
            for _ in 0..owed.len() + lies {
                let draft = match (owed.pop(), manner.stateful) {
                    (Some(owed), _) => owed,
                    (None, true) => act.step(dice, heard, *manner),
                    (None, false) => forge::forge(dice, heard, *manner),
                };
                forge::datagram(dice, heard, *manner, &draft, &mut bytes);
                let path = dice.below(4) as u8;
                // A packet that is not queued counts as lost.
                if batch.push(*to, path, &bytes, &[]).is_ok() {
                    told.lies += 1;
                }
            }
        })?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Packets of one liar, recorded by the other as if they were its victim's.
    fn lies_of((_, stateful, checked): (&str, bool, bool)) -> (BTreeSet<u8>, [u32; 4]) {
        let manner = Manner { stateful, checked, slot: 0, room: 8900 };
        let other = Manner { stateful: false, ..manner };
        let (mut dice, mut act) = (Dice(1), Act::default());
        let mut heard = Heard { tag: 7, own_tag: 9, life: 5, cookie: 3, ..Heard::default() };
        let mut echo = heard.clone();
        let (mut kinds, mut seen) = (BTreeSet::new(), [0; 4]);
        let (mut out, mut ack) = (Vec::new(), AckBlock::default());
        for _ in 0..100_000 {
            let draft = forge::forge(&mut dice, &mut echo, other);
            forge::datagram(&mut dice, &mut echo, other, &draft, &mut out);
            heard.note(&parse(&out, &mut ack).unwrap().0);
            let draft = match stateful {
                true => act.step(&mut dice, &mut heard, manner),
                false => forge::forge(&mut dice, &mut heard, manner),
            };
            forge::datagram(&mut dice, &mut heard, manner, &draft, &mut out);
            let (packet, _) = srd_wire::parse_checked(&out, &mut ack).unwrap();
            kinds.insert(packet.header.kind as u8);
            seen[0] += u32::from(packet.header.flags.has(srd_wire::Flags::CHECKED));
            let Some(ack) = packet.ack else { continue };
            seen[1] += u32::from(ack.partial);
            for e in &ack.verdicts {
                seen[2] += u32::from(matches!(e.others, srd_wire::Others::Run(2..)));
                seen[3] += u32::from(matches!(e.others, srd_wire::Others::Mask(_)));
            }
        }
        (kinds, seen)
    }

    #[test]
    fn each_liar_sends_all_packet_types() {
        for liar in LIARS {
            let (kinds, [checked, partial, runs, masks]) = lies_of(liar);
            assert_eq!(kinds.len(), 18, "{liar:?}: {kinds:?}");
            assert!(partial > 1000 && runs > 1000 && masks > 1000, "{liar:?}");
            assert_eq!(checked > 50_000, liar.2, "{liar:?}: {checked} with a checksum");
        }
    }
}
