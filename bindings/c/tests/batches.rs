//! Several requests at once, and what the device then tells of peer and paths.

use srd_c::*;
use std::{ffi::CStr, mem::MaybeUninit, ptr};

const QKEY: u32 = 5;

fn words() -> String {
    // SAFETY: the string lives until the next failure of this thread.
    unsafe { CStr::from_ptr(srd_last_error()) }.to_string_lossy().into_owned()
}

/// A device on the loopback interface with a queue pair that is ready.
struct End {
    device: *mut srd_device,
    pd: *mut srd_pd,
    cq: *mut srd_cq,
    qp: *mut srd_qp,
    ah: *mut srd_ah,
}

impl End {
    fn new() -> Self {
        let (mut device, mut pd, mut ah) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
        let (mut cq, mut qp) = (ptr::null_mut(), ptr::null_mut());
        let mut init = MaybeUninit::<srd_qp_init>::uninit();
        // SAFETY: the pointers are valid.
        unsafe {
            assert_eq!(srd_device_open(ptr::null(), &raw mut device), 0, "{}", words());
            assert_eq!(srd_pd_create(device, &raw mut pd), 0);
            assert_eq!(srd_ah_create(pd, c"127.0.0.1".as_ptr(), &raw mut ah), 0);
            assert_eq!(srd_cq_create(device, 64, ptr::null(), 0, &raw mut cq), 0);
            assert_eq!(srd_qp_init_defaults(init.as_mut_ptr(), cq), 0);
            let mut init = init.assume_init();
            (init.sq_depth, init.rq_depth) = (8, 8);
            assert_eq!(srd_qp_create(pd, &raw const init, &raw mut qp), 0, "{}", words());
            assert_eq!(srd_qp_activate(qp, QKEY, 7), 0, "{}", words());
        }
        Self { device, pd, cq, qp, ah }
    }

    fn send_to(&self, other: &Self, wr_id: u64, bytes: &[u8]) -> srd_send_wr {
        srd_send_wr {
            wr_id,
            opcode: srd_opcode::Send as u32,
            ah: self.ah,
            // SAFETY: the queue pair exists.
            dst_qpn: u16::try_from(unsafe { srd_qp_number(other.qp) }).unwrap(),
            qkey: QKEY,
            sges: ptr::null(),
            num_sge: 0,
            inline_data: bytes.as_ptr().cast(),
            inline_len: u32::try_from(bytes.len()).unwrap(),
            raddr: 0,
            rkey: 0,
            imm: 0,
        }
    }

    /// The requests of the next `n` completions, in order; each must have succeeded.
    fn ended(&self, n: usize) -> Vec<u64> {
        let mut all = Vec::new();
        let mut wc = MaybeUninit::<srd_wc>::uninit();
        while all.len() < n {
            // SAFETY: the pointers are valid, and a completion was written if the result is 1.
            unsafe {
                assert_eq!(srd_cq_wait(self.cq, wc.as_mut_ptr(), 60_000_000), 1, "{}", words());
                let wc = wc.assume_init_ref();
                assert_eq!(wc.status, srd_wc_status::Ok as u32);
                all.push(wc.wr_id);
            }
        }
        all.sort_unstable();
        all
    }

    fn close(self) {
        // SAFETY: each was made above and is not used any more.
        unsafe {
            for result in [
                srd_qp_destroy(self.qp),
                srd_cq_destroy(self.cq),
                srd_ah_destroy(self.ah),
                srd_pd_destroy(self.pd),
                srd_device_close(self.device),
            ] {
                assert_eq!(result, 0, "{}", words());
            }
        }
    }
}

#[test]
fn requests_are_posted_together_and_peers_and_paths_are_told() {
    let (a, b) = (End::new(), End::new());
    let recvs: Vec<_> =
        (0..10).map(|wr_id| srd_recv_wr { wr_id, sges: ptr::null(), num_sge: 0 }).collect();
    let sends: Vec<_> = (0..10).map(|wr_id| a.send_to(&b, wr_id, &[])).collect();
    let mut wrong = [a.send_to(&b, 20, &[]), a.send_to(&b, 21, &[])];
    wrong[1].opcode = 99;
    // SAFETY: every pointer is valid, or null where that is what is tested.
    unsafe {
        // There is room for eight.
        assert_eq!(srd_qp_post_recvs(b.qp, recvs.as_ptr(), 10), 8);
        assert!(words().contains("full"), "{}", words());
        assert_eq!(srd_qp_post_recvs(b.qp, recvs.as_ptr(), 1), -libc::ENOMEM);
        // All or none.
        assert_eq!(srd_qp_post_sends(a.qp, sends.as_ptr(), 10), -libc::ENOMEM, "{}", words());
        assert_eq!(srd_qp_post_sends(a.qp, wrong.as_ptr(), 2), -libc::EINVAL, "{}", words());
        assert_eq!(srd_qp_post_sends(a.qp, sends.as_ptr(), u32::MAX), -libc::ENOMEM);
        assert_eq!(srd_qp_post_sends(a.qp, ptr::null(), 1), -libc::EINVAL);
        assert_eq!(srd_qp_post_sends(a.qp, sends.as_ptr(), 8), 0, "{}", words());
    }
    assert_eq!(a.ended(8), [0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(b.ended(8), [0, 1, 2, 3, 4, 5, 6, 7]);

    let mut paths: [MaybeUninit<srd_path_stats>; 64] = [const { MaybeUninit::uninit() }; 64];
    let mut peer = MaybeUninit::<srd_peer_stats>::uninit();
    // SAFETY: as above; what is read was written.
    unsafe {
        assert_eq!(srd_ah_paths(a.ah, ptr::null_mut(), 0), 64, "{}", words());
        assert_eq!(srd_ah_paths(a.ah, paths.as_mut_ptr().cast(), 64), 64, "{}", words());
        let paths: Vec<_> = paths.iter().map(|path| path.assume_init_ref()).collect();
        assert!(paths.iter().enumerate().all(|(i, path)| usize::from(path.path) == i));
        assert!(paths.iter().map(|path| path.packets_sent).sum::<u64>() >= 8);
        assert!(paths.iter().any(|path| path.rtt_ns_min > 0));
        assert_eq!(srd_device_peers(a.device, peer.as_mut_ptr(), 1), 1, "{}", words());
        let peer = peer.assume_init_ref();
        assert_eq!(srd::ip_from_gid(peer.gid).to_string(), "127.0.0.1");
        assert!(peer.rate_bytes_per_sec > 0 && peer.inflight_bytes_max > 0 && peer.port > 0);
        assert!(!peer.sealed && !peer.stalled && peer.outstanding == 0);
        assert_eq!(srd_ah_paths(a.ah, ptr::null_mut(), 1), -libc::EINVAL);
        assert_eq!(srd_device_peers(ptr::null(), ptr::null_mut(), 0), -libc::EINVAL);
    }
    a.close();
    b.close();
}
