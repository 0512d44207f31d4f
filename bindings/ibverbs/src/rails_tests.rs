//! Two devices in one process, as with two NICs. Slots are assigned per address, so the first queue
//! pairs of both devices have the same number: all state must be kept per device and number.

use crate::{
    abi::{
        ibv_ah, ibv_ah_attr, ibv_async_event, ibv_context, ibv_cq, ibv_pd, ibv_qp, ibv_qp_attr,
        ibv_qp_init_attr, ibv_recv_wr, ibv_send_wr, ibv_wc,
    },
    context::{ibv_close_device, ibv_open_device},
    cq::{ibv_create_cq, ibv_destroy_cq, poll_cq},
    devices::Entry,
    events::{ibv_ack_async_event, ibv_get_async_event},
    num::*,
    pd::{Ah, ibv_alloc_pd, ibv_create_ah, ibv_dealloc_pd, ibv_destroy_ah},
    qp::{Qp, ibv_destroy_qp, ibv_modify_qp, srd_efadv_create_driver_qp},
    recv::post_recv,
    wr::post_send,
};
use std::{
    net::{IpAddr, Ipv4Addr},
    ptr,
    sync::atomic::{AtomicU8, Ordering},
    time::{Duration, Instant},
};

const QKEY: u32 = 0x1111;
/// Depth of the queues.
const DEPTH: u32 = 4;
/// Limit for a test that hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// A loopback address that no other process uses at the moment, so that its first device gets slot
/// 0.
fn address() -> IpAddr {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let [.., high, low] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, high | 0x80, low, NEXT.fetch_add(1, Ordering::Relaxed)).into()
}

/// A device with one queue pair in RTS.
struct Rail {
    ip: IpAddr,
    context: *mut ibv_context,
    pd: *mut ibv_pd,
    cq: *mut ibv_cq,
    qp: *mut ibv_qp,
}

impl Rail {
    fn new() -> Self {
        Self::with_number(None)
    }

    /// A rail whose queue pair has this number.
    fn with_number(number: Option<u32>) -> Self {
        let ip = address();
        // SAFETY: the calls follow the rules of verbs, here and below.
        unsafe {
            let context = ibv_open_device(Entry::leaked(ip, "lo"));
            assert!(!context.is_null());
            libc::fcntl((*context).async_fd, libc::F_SETFL, libc::O_NONBLOCK);
            let pd = ibv_alloc_pd(context);
            let cq = ibv_create_cq(context, 64, ptr::null_mut(), ptr::null_mut(), 0);
            let mut qp = queue_pair(pd, cq);
            // Numbers may start anywhere.
            let mut spare = Vec::new();
            while number.is_some_and(|number| (*qp).qp_num != number) {
                assert!(spare.len() < 256, "no queue pair has that number");
                spare.push(qp);
                qp = queue_pair(pd, cq);
            }
            spare.into_iter().for_each(|qp| assert_eq!(ibv_destroy_qp(qp), 0));
            let rail = Self { ip, context, pd, cq, qp };
            rail.step(IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
            rail.step(IBV_QPS_RTR, 0);
            rail.step(IBV_QPS_RTS, IBV_QP_SQ_PSN);
            rail
        }
    }

    fn step(&self, state: i64, mask: i64) {
        let mut attr = ibv_qp_attr { qp_state: int(state), ..ibv_qp_attr::default() };
        (attr.port_num, attr.en_sqd_async_notify, attr.qkey) = (1, 1, QKEY);
        // SAFETY: the queue pair lives.
        assert_eq!(unsafe { ibv_modify_qp(self.qp, &raw mut attr, int(mask | IBV_QP_STATE)) }, 0);
    }

    fn number(&self) -> u32 {
        // SAFETY: the queue pair lives.
        unsafe { (*self.qp).qp_num }
    }

    fn ah(&self, ip: IpAddr) -> *mut ibv_ah {
        let mut attr = ibv_ah_attr { port_num: 1, ..ibv_ah_attr::default() };
        attr.grh.dgid.0 = srd::gid_from_ip(ip);
        // SAFETY: the domain lives.
        let ah = unsafe { ibv_create_ah(self.pd, &raw mut attr) };
        assert!(!ah.is_null());
        ah
    }

    /// Posts an empty receive.
    fn receive(&self) {
        let mut wr =
            ibv_recv_wr { wr_id: 1, next: ptr::null_mut(), sg_list: ptr::null_mut(), num_sge: 0 };
        // SAFETY: one request without data.
        assert_eq!(unsafe { post_recv(self.qp, &raw mut wr, &mut ptr::null_mut()) }, 0);
    }

    /// Posts an empty message and returns the result.
    fn send(&self, ah: *mut ibv_ah, to: &Self) -> i32 {
        // SAFETY: numbers and null pointers make a request.
        let mut wr: ibv_send_wr = unsafe { std::mem::zeroed() };
        (wr.opcode, wr.ah) = (int(IBV_WR_SEND), ah);
        (wr.remote_qpn, wr.remote_qkey) = (to.number(), QKEY);
        // SAFETY: one request without data.
        unsafe { post_send(self.qp, &raw mut wr, &mut ptr::null_mut()) }
    }

    /// The next completion.
    fn poll(&self) -> ibv_wc {
        let began = Instant::now();
        // SAFETY: numbers make a completion.
        let mut wc: ibv_wc = unsafe { std::mem::zeroed() };
        // SAFETY: the queue lives, and there is room for one.
        while unsafe { poll_cq(self.cq, 1, &raw mut wc) } == 0 {
            assert!(began.elapsed() < PATIENCE, "no completion");
        }
        assert_eq!(wc.status, int(IBV_WC_SUCCESS));
        wc
    }

    fn end(self, handles: &[*mut ibv_ah]) {
        // SAFETY: all of them live; in the order that verbs demands.
        unsafe {
            assert!(handles.iter().all(|&ah| ibv_destroy_ah(ah) == 0));
            assert_eq!((ibv_destroy_qp(self.qp), ibv_destroy_cq(self.cq)), (0, 0));
            assert_eq!((ibv_dealloc_pd(self.pd), ibv_close_device(self.context)), (0, 0));
        }
    }
}

/// A new queue pair.
///
/// # Safety
/// Domain and queue live.
unsafe fn queue_pair(pd: *mut ibv_pd, cq: *mut ibv_cq) -> *mut ibv_qp {
    let mut init = ibv_qp_init_attr::driver(cq, DEPTH);
    // SAFETY: required of the caller.
    let qp = unsafe { srd_efadv_create_driver_qp(pd, &raw mut init, 0) };
    assert!(!qp.is_null());
    qp
}

/// Two devices whose queue pairs have the same number.
fn rails() -> [Rail; 2] {
    let first = Rail::new();
    let second = Rail::with_number(Some(first.number()));
    let rails = [first, second];
    assert_eq!(rails[0].number(), rails[1].number(), "the test needs equal numbers");
    rails
}

#[test]
fn each_device_gets_the_events_of_its_own_queue_pair() {
    let rails = rails();
    for rail in &rails {
        rail.step(IBV_QPS_SQD, IBV_QP_EN_SQD_ASYNC_NOTIFY);
        let mut event = ibv_async_event { element: ptr::null_mut(), event_type: -1 };
        // SAFETY: the context is open.
        unsafe {
            assert_eq!(ibv_get_async_event(rail.context, &raw mut event), 0, "an event is lost");
            assert_eq!(event.element, rail.qp.cast());
            ibv_ack_async_event(&raw mut event);
        }
    }
    rails.into_iter().for_each(|rail| rail.end(&[]));
}

#[test]
fn completions_name_senders_by_the_handles_of_their_own_device() {
    let ([a, b], sender) = (rails(), Rail::new());
    // The sender is the first handle of one device and the second of the other.
    let handles_a = [a.ah(sender.ip)];
    let handles_b = [b.ah(a.ip), b.ah(sender.ip)];
    // SAFETY: the handles live.
    let number = |ah| unsafe { Ah::of(ah) }.number();
    assert_ne!(number(handles_a[0]), number(handles_b[1]));
    let to = [sender.ah(a.ip), sender.ah(b.ip)];
    for (rail, to, expected) in [(&a, to[0], handles_a[0]), (&b, to[1], handles_b[1])] {
        rail.receive();
        assert_eq!(sender.send(to, rail), 0);
        assert_eq!(rail.poll().slid, number(expected), "the sender's handle on its own device");
        sender.poll();
    }
    a.end(&handles_a);
    b.end(&handles_b);
    sender.end(&to);
}

#[test]
fn what_one_device_polls_makes_no_room_in_the_queue_of_the_other() {
    let [a, b] = rails();
    let own = [a.ah(a.ip), b.ah(b.ip)];
    for (rail, ah) in [(&a, own[0]), (&b, own[1])] {
        for _ in 0..DEPTH {
            rail.receive();
            assert_eq!(rail.send(ah, rail), 0);
        }
    }
    let began = Instant::now();
    // SAFETY: the queue pair lives.
    while unsafe { Qp::of(a.qp) }.qp.sends_outstanding() > 0 {
        assert!(began.elapsed() < PATIENCE, "the device is not done");
        std::thread::yield_now();
    }
    // The other device's sends and receives are polled.
    for _ in 0..2 * DEPTH {
        b.poll();
    }
    assert_eq!(b.send(own[1], &b), 0, "its own places are free");
    assert_eq!(a.send(own[0], &a), libc::ENOMEM, "nothing of this one was polled");
    a.end(&own[..1]);
    b.end(&own[1..]);
}
