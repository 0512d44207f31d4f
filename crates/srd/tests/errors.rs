//! What is refused, by the post or by the peer, and with which words.

use crate::common;
use crate::common::{ALL_ACCESS, Node, QKEY, THREAD, everywhere, mem_pair};
use srd::{
    Access, CompletionOp, Error, PostError, Progress, QKey, QpInit, QpModify, QpState, Qpn, RKey,
    RecvWr, SendWr, Status,
};

#[test]
fn the_peer_refuses_with_the_right_status() {
    everywhere(1000, |a, b| {
        let (a, b) = (Node::new(a), Node::new(b));
        let ah = a.ah_to(&b);
        let (m, there) = (a.memory(2000), b.memory(100));
        let qpn = b.qp.qpn();
        let no_such = Qpn(qpn.0 ^ 0x55);
        let mut expected = Vec::new();
        let mut post = |wr: SendWr<'_>, status| {
            let wr = SendWr { wr_id: expected.len() as u64, ..wr };
            a.qp.post_send(&wr).unwrap();
            expected.push(status);
        };
        let write = |len| SendWr::write(0, &ah, qpn, QKEY).inline(&[7; 80][..len]);
        // Without an address handle for the requester, no RDMA.
        post(write(8).remote(there.addr(), there.rkey()), Status::RemoteUnknownPeer);
        assert_eq!(a.next(&b).status, Status::RemoteUnknownPeer);
        let _to_a = b.ah_to(&a);
        let read_only = b.pd.mr_allocate(64, Access::REMOTE_READ).unwrap();
        let hidden = b.pd.mr_allocate(64, Access::LOCAL_WRITE).unwrap();
        let foreign_pd = b.device.pd_create().unwrap();
        let foreign = foreign_pd.mr_allocate(64, ALL_ACCESS).unwrap();

        post(SendWr::send(0, &ah, no_such, QKEY), Status::RemoteBadDestQpn);
        post(SendWr::send(0, &ah, qpn, QKey(QKEY.0 + 1)), Status::RemoteBadDestQpn);
        post(write(8).remote(there.addr() + 93, there.rkey()), Status::RemoteBadAddress);
        post(write(8).remote(there.addr() - 1, there.rkey()), Status::RemoteBadAddress);
        post(write(8).remote(u64::MAX - 3, there.rkey()), Status::RemoteBadAddress);
        post(write(8).remote(there.addr(), RKey(there.rkey().0 ^ 0x100)), Status::RemoteBadAddress);
        post(write(8).remote(read_only.addr(), read_only.rkey()), Status::RemoteBadAddress);
        post(write(8).remote(foreign.addr(), foreign.rkey()), Status::RemoteBadAddress);
        let sges = [m.sge(0, 8)];
        let read = SendWr::read(0, &ah, qpn, QKEY).sges(&sges);
        post(read.remote(hidden.addr(), hidden.rkey()), Status::RemoteBadAddress);
        post(read.remote(there.addr() + 93, there.rkey()), Status::RemoteBadAddress);
        // A failure disturbs nobody: the last one succeeds.
        post(write(8).remote(there.addr() + 92, there.rkey()), Status::Ok);

        for wc in a.next_n(&b, expected.len() - 1) {
            assert_eq!(wc.status, expected[wc.wr_id as usize], "request {}", wc.wr_id);
        }
        assert_eq!(there.to_vec(84, 16).unwrap(), [0, 0, 0, 0, 0, 0, 0, 0, 7, 7, 7, 7, 7, 7, 7, 7]);
        assert_eq!(read_only.to_vec(0, 64).unwrap(), [0; 64]);
        assert_eq!(foreign.to_vec(0, 64).unwrap(), [0; 64]);
        b.assert_quiet(&a);
    });
}

#[test]
fn a_message_longer_than_the_receive_fails_and_leaves_the_receive() {
    let (a, b) = mem_pair(1000, Progress::Caller);
    let (a, b) = (Node::new(a), Node::new(b));
    let ah = a.ah_to(&b);
    let m = b.memory(64);
    b.qp.post_recv(&RecvWr { wr_id: 5, sges: &[m.sge(0, 10)] }).unwrap();
    a.qp.post_send(&SendWr::send(1, &ah, b.qp.qpn(), QKEY).inline(&[1; 11])).unwrap();
    assert_eq!(a.next(&b).status, Status::RemoteBadLength);
    b.assert_quiet(&a);
    a.qp.post_send(&SendWr::send(2, &ah, b.qp.qpn(), QKEY).inline(&[2; 10])).unwrap();
    assert!(a.next(&b).is_ok());
    assert_eq!((b.next(&a).wr_id, m.to_vec(0, 11).unwrap()), (5, [vec![2; 10], vec![0]].concat()));
}

#[test]
fn rnr_ends_after_its_retries_or_waits_for_a_receive() {
    for progress in [Progress::Caller, THREAD] {
        let (a, b) = mem_pair(1000, progress);
        let (a, b) = (Node::new(a), Node::new(b));
        let few = a.pd.qp_create(&QpInit::srd(&a.cq, &a.cq)).unwrap();
        few.activate_with(QKEY, 1).unwrap();
        let ah = a.ah_to(&b);
        few.post_send(&SendWr::send(1, &ah, b.qp.qpn(), QKEY).inline(b"nobody")).unwrap();
        assert_eq!(a.next(&b).status, Status::RemoteRnr);

        // For ever: it arrives when there is a receive at last.
        a.qp.post_send(&SendWr::send(2, &ah, b.qp.qpn(), QKEY).inline(b"late")).unwrap();
        a.assert_quiet(&b);
        let m = b.memory(64);
        b.qp.post_recv(&RecvWr { wr_id: 9, sges: &[m.sge(0, 64)] }).unwrap();
        assert!(a.next(&b).is_ok());
        assert_eq!((b.next(&a).wr_id, m.to_vec(0, 4).unwrap()), (9, b"late".to_vec()));
        assert!(b.device.counters().unwrap().engine.rnr_events >= 2);
    }
}

#[test]
fn posts_are_refused_with_a_reason() {
    let (a, b) = mem_pair(1000, Progress::Caller);
    let (a, b) = (Node::new(a), Node::new(b));
    let ah = a.ah_to(&b);
    let m = a.memory(2000);
    let send = SendWr::send(1, &ah, b.qp.qpn(), QKEY);
    let one = |s| [s];
    let refused = |wr: SendWr<'_>| a.qp.post_send(&wr).unwrap_err();

    assert_eq!(refused(send.sges(&one(m.sge(0, 1001)))), PostError::BadLength);
    assert_eq!(refused(send.sges(&one(m.sge(1995, 6)))), PostError::OutOfBounds);
    let mut bad = m.sge(0, 1);
    bad.lkey.0 ^= 1;
    assert_eq!(refused(send.sges(&one(bad))), PostError::BadLkey);
    assert_eq!(refused(send.sges(&[m.sge(0, 1); 3])), PostError::TooManySges);
    assert_eq!(refused(send.inline(&[0; 81])), PostError::BadInline);
    assert_eq!(refused(SendWr::read(1, &ah, b.qp.qpn(), QKEY).inline(&[0])), PostError::BadInline);
    let other_pd = a.device.pd_create().unwrap();
    let other = other_pd.mr_allocate(10, ALL_ACCESS).unwrap();
    assert_eq!(refused(send.sges(&one(other.sge(0, 1)))), PostError::WrongPd);
    let foreign = other_pd.ah_create(b.device.ip()).unwrap();
    assert_eq!(refused(SendWr { ah: &foreign, ..send }), PostError::BadAh);
    let constant = a.pd.mr_allocate(10, Access::NONE).unwrap();
    let read = SendWr::read(1, &ah, b.qp.qpn(), QKEY);
    assert_eq!(refused(read.sges(&one(constant.sge(0, 1)))), PostError::BadAccess);
    let recv = |s| a.qp.post_recv(&RecvWr { wr_id: 1, sges: &[s] }).unwrap_err();
    assert_eq!(recv(constant.sge(0, 1)), PostError::BadAccess);
    assert_eq!(recv(m.sge(2000, 1)), PostError::OutOfBounds);

    let fresh = a.pd.qp_create(&QpInit::srd(&a.cq, &a.cq)).unwrap();
    assert_eq!(fresh.post_send(&send), Err(PostError::BadState));
    let empty = RecvWr { wr_id: 1, sges: &[] };
    assert_eq!(fresh.post_recv(&empty), Err(PostError::BadState));
    let ud = a.pd.qp_create(&QpInit::ud(&a.cq, &a.cq)).unwrap();
    ud.activate(QKEY).unwrap();
    assert_eq!(ud.post_send(&read), Err(PostError::BadOpcode));
    assert_eq!(ud.post_recv(&empty), Err(PostError::BadLength));
    assert_eq!(a.qp.sends_outstanding() + a.qp.recvs_outstanding(), 0, "nothing was taken in");
}

#[test]
fn full_queues_are_errors_and_recover() {
    for progress in [Progress::Caller, THREAD] {
        let (a, b) = mem_pair(1000, progress);
        let a = Node::with(a, 6, |init| (init.sq_depth, init.rq_depth) = (4, 4));
        let b = Node::new(b);
        let ah = a.ah_to(&b);
        let send = SendWr::send(1, &ah, b.qp.qpn(), QKEY);
        let recv = RecvWr { wr_id: 2, sges: &[] };
        for round in 0..50 {
            for _ in 0..4 {
                a.qp.post_send(&send).unwrap();
            }
            assert_eq!(a.qp.post_send(&send), Err(PostError::QueueFull));
            assert_eq!(a.qp.post_recv(&recv), Ok(()));
            assert_eq!(a.qp.post_recv(&recv), Ok(()));
            assert_eq!(a.qp.post_recv(&recv), Err(PostError::CqFull), "round {round}");
            // Nobody had posted a receive: the sends were waiting.
            for _ in 0..4 {
                b.qp.post_recv(&RecvWr { wr_id: 3, sges: &[] }).unwrap();
                assert!(a.next(&b).is_ok());
                assert!(b.next(&a).is_ok());
            }
            let to_a = b.ah_to(&a);
            for _ in 0..2 {
                b.qp.post_send(&SendWr::send(4, &to_a, a.qp.qpn(), QKEY)).unwrap();
                assert!(b.next(&a).is_ok());
                assert_eq!(a.next(&b).op, CompletionOp::Recv);
            }
        }
    }
}

#[test]
fn the_table_of_requests_is_a_limit_of_the_device() {
    let world = common::MemWorld::new(1000);
    let mut config = world.config(1);
    config.progress = Progress::Caller;
    config.tune = Some(Box::new(|engine| engine.wrs_max = 3));
    let a = Node::with(srd::Device::open(config).unwrap(), 64, |init| init.sq_depth = 3);
    let second = a.pd.qp_create(&QpInit { sq_depth: 3, ..QpInit::srd(&a.cq, &a.cq) }).unwrap();
    second.activate(QKEY).unwrap();
    let b = Node::new(world.device(2, THREAD));
    let ah = a.ah_to(&b);
    let wr = SendWr::send(1, &ah, b.qp.qpn(), QKEY);
    a.qp.post_send(&wr).unwrap();
    a.qp.post_send(&wr).unwrap();
    second.post_send(&wr).unwrap();
    assert_eq!(second.post_send(&wr), Err(PostError::NoRoom));
    for _ in 0..3 {
        b.qp.post_recv(&RecvWr { wr_id: 1, sges: &[] }).unwrap();
    }
    assert!(a.next_n(&b, 3).iter().all(|wc| wc.is_ok()));
    second.post_send(&wr).unwrap();
}

#[test]
fn states_follow_the_table() {
    let (a, _b) = mem_pair(1000, THREAD);
    let pd = a.pd_create().unwrap();
    let cq = a.cq_create(8).unwrap();
    let qp = pd.qp_create(&QpInit::srd(&cq, &cq)).unwrap();
    let to = |state| QpModify { state: Some(state), ..QpModify::default() };
    let refused = |change| matches!(qp.modify(change), Err(Error::Invalid(_)));
    assert!(refused(to(QpState::Init)), "a Q_Key is needed");
    assert!(refused(to(QpState::Rts)), "not from RESET");
    qp.modify(QpModify { qkey: Some(QKey(5)), ..to(QpState::Init) }).unwrap();
    assert!(refused(to(QpState::Rts)));
    qp.modify(to(QpState::Rtr)).unwrap();
    assert!(refused(QpModify { rnr_retry: Some(9), ..to(QpState::Rts) }), "0 to 8");
    assert_eq!(qp.state(), QpState::Rtr, "a refused change changes nothing");
    assert_eq!(qp.query().unwrap().rnr_retry, srd::RNR_RETRY_INFINITE, "it was never set");
    qp.modify(QpModify { rnr_retry: Some(3), ..to(QpState::Rts) }).unwrap();
    let attr = qp.query().unwrap();
    assert_eq!((attr.state, attr.qkey, attr.rnr_retry), (QpState::Rts, QKey(5), 3));
    qp.post_recv(&RecvWr { wr_id: 1, sges: &[] }).unwrap();
    qp.modify(to(QpState::Err)).unwrap();
    let wc = cq.wait(common::PATIENCE).unwrap().expect("flushed");
    assert_eq!((wc.wr_id, wc.status), (1, Status::Flushed));
    assert_eq!(qp.post_recv(&RecvWr { wr_id: 1, sges: &[] }), Err(PostError::BadState));
    qp.modify(to(QpState::Reset)).unwrap();
    qp.activate(QKey(6)).unwrap();
    assert_eq!(qp.state(), QpState::Rts);
}

#[test]
fn nobody_there_is_told_from_silence() {
    let world = common::MemWorld::new(1000);
    let mut config = world.config(1);
    config.progress = THREAD;
    config.tune = Some(Box::new(|engine| {
        engine.loss.unreachable_after = srd_core::Span::from_ms(200);
        engine.loss.unresponsive_after = srd_core::Span::from_ms(200);
    }));
    let a = Node::new(srd::Device::open(config).unwrap());
    let nobody = a.pd.ah_create("10.0.0.9".parse().unwrap()).unwrap();
    a.qp.post_send(&SendWr::send(1, &nobody, Qpn(0), QKEY)).unwrap();
    assert_eq!(a.next(&a).status, Status::LocalUnreachRemote);
    assert!(matches!(a.device.event_get(), Some(srd::AsyncEvent::PeerUnreachable(_))));

    let (b, faults) = world.faulty(2, THREAD, srd::datapath::fault::Rates::default());
    let b = Node::new(b);
    let ah = a.ah_to(&b);
    b.qp.post_recv(&RecvWr { wr_id: 1, sges: &[] }).unwrap();
    a.qp.post_send(&SendWr::send(2, &ah, b.qp.qpn(), QKEY)).unwrap();
    assert!(a.next(&b).is_ok());
    faults.rx_off(true);
    a.qp.post_send(&SendWr::send(3, &ah, b.qp.qpn(), QKEY)).unwrap();
    assert_eq!(a.next(&b).status, Status::LocalUnrespRemote);
    // It comes back, and work flows without any call.
    faults.rx_off(false);
    b.qp.post_recv(&RecvWr { wr_id: 2, sges: &[] }).unwrap();
    a.qp.post_send(&SendWr::send(4, &ah, b.qp.qpn(), QKEY)).unwrap();
    assert!(a.next(&b).is_ok());
}

#[test]
fn opening_says_what_to_do() {
    let text = |config| srd::Device::open(config).unwrap_err().to_string();
    let mut config = srd::DeviceConfig::loopback();
    config.mtu = Some(65_500);
    assert!(text(config).contains("does not fit the link"));
    let first = srd::Device::open(srd::DeviceConfig::loopback()).unwrap();
    let mut config = srd::DeviceConfig::loopback();
    config.slot = Some(first.slot());
    assert!(text(config).contains("in use"));
    assert!(text(srd::DeviceConfig::interface("nope0")).contains("does not exist"));
    let mut config = srd::DeviceConfig::loopback();
    config.paths = 3;
    assert!(text(config).contains("power of two"));
    let config = srd::DeviceConfig::ip("192.0.2.1".parse().unwrap());
    assert!(text(config).contains("192.0.2.1"));
}

/// A request that the engine does not take leaves its place in the ring before its slot is free,
/// and its slot is free before its completion can be seen.
#[test]
fn places_of_refused_requests_are_free_when_their_slots_are() {
    const DEPTH: u32 = 16;
    const REQUESTS: u64 = 100_000;
    let (a, _b) = mem_pair(1000, THREAD);
    let (pd, cq) = (a.pd_create().unwrap(), a.cq_create(4 * DEPTH).unwrap());
    let mut init = QpInit::srd(&cq, &cq);
    (init.sq_depth, init.rq_depth) = (DEPTH, DEPTH);
    let qp = pd.qp_create(&init).unwrap();
    qp.activate(QKEY).unwrap();
    let ah = pd.ah_create(a.ip()).unwrap();
    let nowhere = [srd::Sge { addr: 0, len: 1, lkey: srd::LKey(u32::MAX) }];
    let (mut posted, mut ended) = (0, 0);
    while ended < REQUESTS {
        while posted < REQUESTS {
            let wr = SendWr::send(posted, &ah, qp.qpn(), QKEY).sges(&nowhere);
            match qp.enqueue_send(&wr, srd::Faults::AtCompletion) {
                Ok(()) => posted += 1,
                Err(e) => {
                    assert_eq!(e, PostError::QueueFull);
                    assert!(posted - ended >= u64::from(DEPTH), "a slot was held too long");
                    break;
                }
            }
        }
        qp.doorbell();
        while let Some(wc) = cq.poll_one().unwrap() {
            assert_eq!((wc.wr_id, wc.status), (ended, Status::LocalInvalidLkey));
            ended += 1;
        }
    }
    assert_eq!(qp.sends_outstanding(), 0);
}
