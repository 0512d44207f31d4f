//! Calls that belong together, in an order that nobody wants: requests that the queue pair does not
//! have, and what a program may do in the middle of a poll.

use crate::{
    abi::{ibv_ah, ibv_ah_attr, ibv_cq, ibv_cq_ex, ibv_pd, ibv_qp, ibv_qp_attr, ibv_qp_ex, ibv_wc},
    abi::{ibv_comp_channel, ibv_context, ibv_qp_init_attr, ibv_recv_wr},
    channel::{ibv_create_comp_channel, ibv_destroy_comp_channel, req_notify_cq},
    context::{ibv_close_device, ibv_open_device},
    cq::{ibv_create_cq, ibv_destroy_cq, poll_cq},
    devices::Entry,
    num::*,
    pd::{ibv_alloc_pd, ibv_create_ah, ibv_dealloc_pd, ibv_destroy_ah},
    qp::{ibv_destroy_qp, ibv_modify_qp, ibv_query_qp, srd_efadv_create_driver_qp},
    recv::post_recv,
};
use libc::c_int;
use std::{
    net::Ipv4Addr,
    ptr,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

const QKEY: u32 = 0x1111;
/// Limit for a test that hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// A queue pair that sends to itself.
struct Node {
    context: *mut ibv_context,
    channel: *mut ibv_comp_channel,
    pd: *mut ibv_pd,
    cq: *mut ibv_cq_ex,
    qp: *mut ibv_qp_ex,
    ah: *mut ibv_ah,
}

impl Node {
    fn new() -> Self {
        let mut gid = ibv_ah_attr { port_num: 1, ..ibv_ah_attr::default() };
        gid.grh.dgid.0 = srd::gid_from_ip(Ipv4Addr::LOCALHOST.into());
        // SAFETY: the calls follow the rules of verbs, here and below, or are refused.
        unsafe {
            let context = ibv_open_device(Entry::leaked(Ipv4Addr::LOCALHOST.into(), "lo"));
            assert!(!context.is_null());
            let channel = ibv_create_comp_channel(context);
            let pd = ibv_alloc_pd(context);
            let cq = ibv_create_cq(context, 64, ptr::null_mut(), channel, 0);
            let mut init = ibv_qp_init_attr::driver(cq, 8);
            let qp = srd_efadv_create_driver_qp(pd, &raw mut init, 0);
            let steps = [
                (IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY),
                (IBV_QPS_RTR, 0),
                (IBV_QPS_RTS, IBV_QP_SQ_PSN),
            ];
            for (state, mask) in steps {
                let mut attr = ibv_qp_attr { qp_state: int(state), ..ibv_qp_attr::default() };
                (attr.port_num, attr.qkey) = (1, QKEY);
                assert_eq!(ibv_modify_qp(qp, &raw mut attr, int(mask | IBV_QP_STATE)), 0);
            }
            let ah = ibv_create_ah(pd, &raw mut gid);
            Self { context, channel, pd, cq: cq.cast(), qp: qp.cast(), ah }
        }
    }

    fn receive(&self) {
        let mut wr =
            ibv_recv_wr { wr_id: 1, next: ptr::null_mut(), sg_list: ptr::null_mut(), num_sge: 0 };
        // SAFETY: one request without data.
        assert_eq!(unsafe { post_recv(self.qp(), &raw mut wr, &mut ptr::null_mut()) }, 0);
    }

    fn qp(&self) -> *mut ibv_qp {
        self.qp.cast()
    }

    fn cq(&self) -> *mut ibv_cq {
        self.cq.cast()
    }

    /// Requests from start to end of a session: what `wr_complete` returns.
    fn session(&self, requests: &[Request]) -> c_int {
        let qp = self.qp;
        // SAFETY: within a session, and the address handle lives.
        unsafe {
            ((*qp).wr_start)(qp);
            for request in requests {
                let flags = if *request == Request::Flag { 1 << 7 } else { IBV_SEND_SIGNALED };
                ((*qp).wr_id, (*qp).wr_flags) = (2, flags as u32);
                match request {
                    Request::Send | Request::Flag => ((*qp).wr_send)(qp),
                    Request::None => ((*qp).wr_local_inv)(qp),
                }
                ((*qp).wr_set_ud_addr)(qp, self.ah, (*self.qp()).qp_num, QKEY);
            }
            ((*qp).wr_complete)(qp)
        }
    }

    /// Numbers of the requests that end until none has ended for a while.
    fn ended(&self) -> Vec<u64> {
        let (mut ended, mut last) = (Vec::new(), Instant::now());
        while last.elapsed() < Duration::from_millis(200) {
            // SAFETY: numbers make a completion.
            let mut wc: ibv_wc = unsafe { std::mem::zeroed() };
            // SAFETY: the queue lives.
            if unsafe { poll_cq(self.cq(), 1, &raw mut wc) } == 1 {
                assert_eq!(wc.status, int(IBV_WC_SUCCESS));
                ended.push(wc.wr_id);
                last = Instant::now();
            }
        }
        ended.sort_unstable();
        ended
    }

    /// Destroys the rest, after the queue pair.
    fn end(&self) {
        // SAFETY: nobody uses them.
        unsafe {
            assert_eq!([ibv_destroy_ah(self.ah), ibv_destroy_cq(self.cq())], [0; 2]);
            assert_eq!([ibv_destroy_comp_channel(self.channel), ibv_dealloc_pd(self.pd)], [0; 2]);
            assert_eq!(ibv_close_device(self.context), 0);
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Request {
    Send,
    /// With a flag that does not exist.
    Flag,
    /// Of an operation that the queue pair does not have.
    None,
}

#[test]
fn a_session_keeps_its_first_error_and_posts_nothing_then() {
    use Request::{Flag, None, Send};
    let node = Node::new();
    node.receive();
    assert_eq!(node.session(&[None]), libc::EOPNOTSUPP);
    assert_eq!(node.session(&[Send, None, Send]), libc::EOPNOTSUPP);
    assert_eq!(node.session(&[Send, None, Flag]), libc::EOPNOTSUPP, "the first error");
    assert_eq!(node.session(&[Flag, None, Send]), libc::EINVAL, "the first error");
    assert_eq!(node.session(&[]), 0);
    assert_eq!(node.ended(), [], "a part of a session was posted");
    assert_eq!(node.session(&[Send]), 0);
    assert_eq!(node.ended(), [1, 2]);
    // SAFETY: nobody uses it.
    assert_eq!(unsafe { ibv_destroy_qp(node.qp()) }, 0);
    node.end();
}

/// As EFA's do. `ib_send_bw` sets no number of retries, and its receiver may come late.
#[test]
fn a_queue_pair_retries_for_ever_unless_a_number_was_set() {
    let node = Node::new();
    let (mut attr, mask) = (ibv_qp_attr::default(), int(IBV_QP_RNR_RETRY));
    // SAFETY: the queue pair lives, and the structures are written.
    unsafe {
        let mut init = ibv_qp_init_attr::driver(node.cq(), 8);
        assert_eq!(ibv_query_qp(node.qp(), &raw mut attr, mask, &raw mut init), 0);
        assert_eq!(attr.rnr_retry, srd::RNR_RETRY_INFINITE);
        assert_eq!(ibv_destroy_qp(node.qp()), 0);
    }
    node.end();
}

/// EFA's library takes no lock to arm a queue, so programs do that whenever they like.
#[test]
fn in_the_middle_of_a_poll_a_queue_can_be_armed_and_its_queue_pair_destroyed() {
    let (done, wait) = mpsc::channel();
    let body = move || {
        let node = Node::new();
        let cq = node.cq;
        node.receive();
        assert_eq!(node.session(&[Request::Send]), 0);
        let end = Instant::now() + PATIENCE;
        // SAFETY: the queue lives until the end.
        unsafe {
            let start = || ((*cq).start_poll)(cq, ptr::null_mut());
            while start() != 0 {
                // Of a poll that found nothing there is no end.
                ((*cq).end_poll)(cq);
                assert!(Instant::now() < end, "no completion came");
            }
            assert_eq!(req_notify_cq(node.cq(), 0), 0);
            assert_eq!(start(), libc::EDEADLK);
            assert_eq!(poll_cq(node.cq(), 1, ptr::null_mut()), -1);
            assert_eq!(ibv_destroy_qp(node.qp()), 0);
            ((*cq).end_poll)(cq);
            assert_eq!(start(), libc::ENOENT, "completions of a queue pair that is gone");
        }
        node.end();
        done.send(()).unwrap();
    };
    let thread = thread::spawn(body);
    let ended = wait.recv_timeout(PATIENCE);
    assert_ne!(ended, Err(mpsc::RecvTimeoutError::Timeout), "a call waits for its own thread");
    thread.join().unwrap();
}
