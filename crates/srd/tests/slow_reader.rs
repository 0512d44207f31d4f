//! A program that drives its device too rarely, on sockets: what its peer is told.

use crate::common::*;
use srd::{Device, DeviceConfig, Progress, SendWr};
use srd_core::config::HostPolicy;
use std::time::{Duration, Instant};

const WRITES: u64 = 3_000;
const BYTES: u32 = 16_384;

fn node(policy: HostPolicy) -> Node {
    let mut config = DeviceConfig::loopback();
    config.progress = Progress::Caller;
    config.tune = Some(Box::new(move |engine| engine.rate.host_policy = policy));
    Node::with(Device::open(config).unwrap(), 2_048, |init| init.sq_depth = 1_024)
}

/// Writes to a reader that takes a turn only after the sender had its own. The least and the most
/// that the sender was let have in flight, and the most packets that the reader's socket dropped.
fn budgets(policy: HostPolicy) -> (u32, u32) {
    let (writer, reader) = (node(policy), node(policy));
    let (ah, _back) = (writer.ah_to(&reader), reader.ah_to(&writer));
    let (from, to) = (writer.memory(BYTES as usize), reader.memory(BYTES as usize));
    let (mut posted, mut ended, mut least, mut most) = (0, 0, u32::MAX, 0);
    let end = Instant::now() + PATIENCE;
    while ended < WRITES {
        assert!(Instant::now() < end, "{ended} of {WRITES} writes ended");
        let turn = Instant::now();
        while turn.elapsed() < Duration::from_millis(2) {
            let sges = [from.sge(0, BYTES)];
            let to = (to.addr(), to.rkey());
            let wr = SendWr::write(posted, &ah, reader.qp.qpn(), QKEY).remote(to.0, to.1);
            while posted < WRITES
                && writer.qp.post_send(&SendWr { wr_id: posted, ..wr.sges(&sges) }).is_ok()
            {
                posted += 1;
            }
            writer.device.progress().unwrap();
            while let Some(wc) = writer.cq.poll_one().unwrap() {
                assert!(wc.is_ok(), "{wc:?}");
                ended += 1;
            }
        }
        reader.device.progress().unwrap();
        writer.device.progress().unwrap();
        // What holds before anything was told is the size of the socket.
        if let Some(c) = writer.device.context_stats().unwrap().first()
            && c.state == "Open"
        {
            (least, most) = (least.min(c.rx_budget), most.max(c.rx_budget));
        }
    }
    (least, most)
}

#[test]
fn a_reader_that_falls_behind_lets_its_peer_have_less_in_flight() {
    let (least, most) = budgets(HostPolicy::Off);
    assert_eq!(least, most, "all of the socket");
    let (told, most) = budgets(HostPolicy::Budget);
    assert!(told < least && told < most, "{told} bytes, {least} without");
}
