//! One end of a pair of engines on the simplest possible network in virtual time. The benchmarks
//! count different things, so each has its own loop; the construction of an end and its view of the
//! other end are shared.
#![forbid(unsafe_code)]

use srd_core::{
    CqId, Engine, EngineConfig, PdId, QpInit, QpModify, QpState, QpType, Qpn, RecvRequest, Rng,
    RxMeta, Span, Time, Transmit,
};
use std::net::{IpAddr, Ipv4Addr};

/// Result with an error text.
pub type Result<T> = std::result::Result<T, String>;

/// Payload of one packet at a link MTU of 1500 bytes, rounded down.
pub const MTU: u16 = 1408;
/// Q_Key of all queue pairs.
pub const QKEY: u32 = 0x11;
/// One-way delay between the engines; the base RTT is twice this.
pub const HOP: Span = Span::from_us(3);
/// Packets requested in one poll, as by a datapath.
pub const BATCH: usize = 64;
/// Start time.
pub const START: Time = Time(1_000_000);

/// One engine with one queue pair.
pub struct End {
    /// The engine.
    pub engine: Engine,
    /// Its completion queue, for sends and receives.
    pub cq: CqId,
    /// Its protection domain.
    pub pd: PdId,
    /// Its queue pair, ready to send.
    pub qp: Qpn,
}

/// Address of an end.
pub fn end_ip(host: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, host))
}

/// Address of a peer; one engine acts as all peers.
pub fn peer_ip(peer: u32) -> IpAddr {
    IpAddr::V4(Ipv4Addr::from(0x0A01_0000 + peer))
}

/// Configuration of an end.
pub fn config(host: u8) -> EngineConfig {
    EngineConfig::sockets(end_ip(host), 0, MTU)
}

/// Receive metadata of a packet; its source is the address that the receiver sends to.
pub fn meta(t: &Transmit<'_>) -> RxMeta {
    RxMeta { src_ip: t.dst.ip, ce: false, rxq_drops: 0, waited: Span::ZERO }
}

/// An error as text.
pub fn text(e: impl std::fmt::Debug) -> String {
    format!("{e:?}")
}

impl End {
    /// Creates an end with queues for `depth` requests and receives; `seed` determines its random
    /// numbers.
    ///
    /// # Errors
    /// The engine refuses its configuration, or has too few resources for the objects.
    pub fn new(config: EngineConfig, seed: u64, depth: u32) -> Result<Self> {
        let now = START;
        let mut engine = Engine::new(config, Rng::from_seed(seed), now, ())?;
        let pd = engine.pd_create().map_err(text)?;
        let cq = engine.cq_create(4 * depth).map_err(text)?;
        let init = QpInit {
            kind: QpType::Srd,
            pd,
            send_cq: cq,
            recv_cq: cq,
            sq_depth: depth,
            rq_depth: depth,
            unsolicited_write_recv: false,
        };
        let qp = engine.qp_create(now, init).map_err(text)?;
        let moves = [
            QpModify { state: Some(QpState::Init), qkey: Some(QKEY), rnr_retry: None },
            QpModify { state: Some(QpState::Rtr), ..QpModify::default() },
            QpModify { state: Some(QpState::Rts), qkey: None, rnr_retry: Some(7) },
        ];
        for m in moves {
            engine.qp_modify(now, qp, m).map_err(text)?;
        }
        Ok(Self { engine, cq, pd, qp })
    }

    /// Posts a receive of `len` bytes.
    ///
    /// # Errors
    /// The receive queue or the completion queue is full.
    pub fn receive_post(&mut self, len: u32) -> Result<()> {
        self.engine.post_recv(self.qp, &RecvRequest { wr_id: 0, len }).map(drop).map_err(text)
    }

    /// Fires the timers that are due.
    pub fn timers(&mut self, now: Time) {
        if self.engine.next_timeout() <= now {
            self.engine.handle_timeout(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use srd_core::{Opcode, SendRequest, Status, TxSink};

    /// Delivers packets at once.
    struct Wire<'a>(&'a mut Engine, Time, u32);

    impl TxSink for Wire<'_> {
        fn push(&mut self, t: &Transmit<'_>) {
            self.2 += 1;
            let _ = self.0.handle(self.1, &meta(t), &t.packet);
        }
    }

    /// Lets one end transmit; returns the number of packets that arrived at the other end.
    fn sent(from: &mut End, to: &mut End, now: &mut Time) -> u32 {
        from.timers(*now);
        let mut wire = Wire(&mut to.engine, *now + HOP, 0);
        from.engine.poll_transmit(*now, BATCH, &mut wire);
        let packets = wire.2;
        *now += HOP;
        to.engine.rx_burst_end(*now);
        packets
    }

    #[test]
    fn two_ends_exchange_messages() {
        let mut near = End::new(config(1), 1, 8).unwrap();
        let mut far = End::new(config(2), 2, 8).unwrap();
        let ah = near.engine.ah_create(START, near.pd, peer_ip(0)).unwrap();
        for _ in 0..8 {
            far.receive_post(100).unwrap();
        }
        assert!(far.receive_post(100).is_err(), "the queue is as deep as it was asked for");
        let wr = SendRequest {
            wr_id: 0,
            op: Opcode::Send,
            ah,
            dst_qpn: far.qp,
            qkey: QKEY,
            len: 100,
            rkey: 0,
            raddr: 0,
            imm: 0,
        };
        for _ in 0..8 {
            near.engine.post_send(START, near.qp, &wr).unwrap();
        }
        let (mut now, mut done, mut packets) = (START, 0, 0);
        while done < 8 {
            packets += sent(&mut near, &mut far, &mut now);
            packets += sent(&mut far, &mut near, &mut now);
            while let Some(c) = near.engine.cq_poll(near.cq) {
                assert_eq!(c.status, Status::Ok);
                done += 1;
            }
            assert!(now < START + Span::from_secs(1), "{done} of 8 messages");
        }
        assert!(packets >= 10, "a handshake and the messages: {packets}");
    }

    #[test]
    fn peer_and_end_addresses_differ() {
        let peers: Vec<IpAddr> = [0, 1, 65_535].map(peer_ip).into();
        assert_eq!(peers.iter().collect::<std::collections::BTreeSet<_>>().len(), 3);
        assert!([1, 2].iter().all(|h| !peers.contains(&end_ip(*h))));
        assert_eq!(config(2).ip, end_ip(2));
    }
}
