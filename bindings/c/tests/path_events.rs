//! A subscription from C tells what an operator's orders do to the paths of a device. The addresses
//! are this test's own, since all devices of the user obey.

use srd_c::*;
use srd_share::{PathControl, PathMask};
use std::{
    ffi::CStr,
    mem::MaybeUninit,
    net::{IpAddr, UdpSocket},
    ptr,
};

const MINUTE_US: i64 = 60_000_000;

fn words() -> String {
    // SAFETY: the string lives until the next failure of this thread.
    unsafe { CStr::from_ptr(srd_last_error()) }.to_string_lossy().into_owned()
}

/// Opens a device at an address.
fn open(address: &CStr) -> *mut srd_device {
    let (mut config, mut device) = (MaybeUninit::<srd_device_config>::uninit(), ptr::null_mut());
    // SAFETY: the pointers are valid.
    unsafe {
        assert_eq!(srd_device_config_init(config.as_mut_ptr()), 0);
        let mut config = config.assume_init();
        (config.bind, config.paths, config.mtu) = (address.as_ptr(), 8, 1024);
        assert_eq!(srd_device_open(&raw const config, &raw mut device), 0, "{}", words());
    }
    device
}

/// A queue pair of a device that is ready to send and to receive 64 bytes.
struct End {
    device: *mut srd_device,
    pd: *mut srd_pd,
    cq: *mut srd_cq,
    qp: *mut srd_qp,
}

impl End {
    fn new(address: &CStr) -> Self {
        let device = open(address);
        let (mut pd, mut cq, mut qp) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
        let mut init = MaybeUninit::<srd_qp_init>::uninit();
        // SAFETY: the pointers are valid.
        unsafe {
            assert_eq!(srd_pd_create(device, &raw mut pd), 0);
            assert_eq!(srd_cq_create(device, 16, ptr::null(), 0, &raw mut cq), 0);
            assert_eq!(srd_qp_init_defaults(init.as_mut_ptr(), cq), 0);
            let mut init = init.assume_init();
            init.inline_bytes_max = 32;
            assert_eq!(srd_qp_create(pd, &raw const init, &raw mut qp), 0, "{}", words());
            assert_eq!(srd_qp_activate(qp, 5, 0), 0, "{}", words());
        }
        Self { device, pd, cq, qp }
    }

    fn close(self) {
        // SAFETY: each was made above and is not used any more.
        unsafe {
            for result in [
                srd_qp_destroy(self.qp),
                srd_cq_destroy(self.cq),
                srd_pd_destroy(self.pd),
                srd_device_close(self.device),
            ] {
                assert_eq!(result, 0, "{}", words());
            }
        }
    }
}

/// Wakes a device at rest, as the command that gives an order does.
fn wake(device: *const srd_device, ip: IpAddr) {
    let mut attr = MaybeUninit::<srd_device_attr>::uninit();
    // SAFETY: the pointers are valid, and the function fills in all.
    let attr = unsafe {
        assert_eq!(srd_device_query(device, attr.as_mut_ptr()), 0, "{}", words());
        attr.assume_init()
    };
    UdpSocket::bind((ip, 0)).unwrap().send_to(&[], (ip, attr.udp_port)).unwrap();
}

#[test]
fn changes_of_paths_are_told() {
    let (a, b) = (End::new(c"127.0.78.1"), End::new(c"127.0.78.2"));
    let [from, to]: [IpAddr; 2] = ["127.0.78.1", "127.0.78.2"].map(|ip| ip.parse().unwrap());
    let control = PathControl::open().unwrap();
    let (mut events, mut ah) = (ptr::null_mut(), ptr::null_mut());
    let mut event = srd_path_event { at_ns: 0, gid: [0; 16], path: 0, from: 0, to: 0 };
    let mask = |paths: &[u8]| {
        let mut mask = PathMask::NONE;
        paths.iter().for_each(|path| mask.put(*path, true));
        mask
    };
    // SAFETY: every pointer is valid, or null where that is what is tested.
    unsafe {
        assert_eq!(srd_path_events_open(a.device, &raw mut events), 0, "{}", words());
        assert_eq!(srd_path_events_get(events, &raw mut event, 0), 0);
        assert!(srd_path_events_fd(events) >= 0);
        // A message makes the device know the address, though it finds no receive.
        assert_eq!(srd_ah_create(a.pd, c"127.0.78.2".as_ptr(), &raw mut ah), 0, "{}", words());
        let send = srd_send_wr {
            wr_id: 1,
            opcode: srd_opcode::Send as u32,
            ah,
            dst_qpn: u16::try_from(srd_qp_number(b.qp)).unwrap(),
            qkey: 5,
            sges: ptr::null(),
            num_sge: 0,
            inline_data: [1_u8; 8].as_ptr().cast(),
            inline_len: 8,
            raddr: 0,
            rkey: 0,
            imm: 0,
        };
        assert_eq!(srd_qp_post_send(a.qp, &raw const send), 0, "{}", words());
        let mut wc = MaybeUninit::<srd_wc>::uninit();
        while srd_cq_poll(a.cq, wc.as_mut_ptr(), 1) == 0 {
            std::thread::yield_now();
        }
        control.change(to, 8, 1, |_| mask(&[2, 5])).unwrap();
        wake(a.device, from);
        let active = srd_path_state::Active as u8;
        let denied = srd_path_state::Denied as u8;
        for path in [2, 5] {
            assert_eq!(srd_path_events_get(events, &raw mut event, MINUTE_US), 1, "{}", words());
            assert_eq!((event.path, event.from, event.to), (path, active, denied));
            assert_eq!(srd::ip_from_gid(event.gid), to);
            assert!(event.at_ns > 0);
        }
        control.change(to, 8, 1, |_| PathMask::NONE).unwrap();
        wake(a.device, from);
        for path in [2, 5] {
            assert_eq!(srd_path_events_get(events, &raw mut event, -1), 1, "{}", words());
            assert_eq!((event.path, event.from, event.to), (path, denied, active));
        }
        assert_eq!(srd_path_events_get(events, &raw mut event, 2_000), 0, "nothing else");
        assert_eq!(srd_path_events_missed(events), 0);
        // Misuse.
        assert_eq!(srd_path_events_get(events, ptr::null_mut(), 0), -libc::EINVAL);
        assert_eq!(srd_path_events_open(ptr::null(), &raw mut events), -libc::EINVAL);
        assert_eq!(srd_path_events_fd(ptr::null()), -libc::EINVAL);
        assert_eq!(srd_path_events_missed(ptr::null()), -libc::EINVAL);
        assert_eq!(srd_path_events_close(ptr::null_mut()), -libc::EINVAL);
        assert_eq!(srd_device_close(a.device), -libc::EBUSY, "the subscription is of the device");
        let mut more = Vec::new();
        for _ in 1..16 {
            let mut one = ptr::null_mut();
            assert_eq!(srd_path_events_open(a.device, &raw mut one), 0, "{}", words());
            more.push(one);
        }
        let mut one = ptr::null_mut();
        assert!(srd_path_events_open(a.device, &raw mut one) < 0 && one.is_null());
        for one in more {
            assert_eq!(srd_path_events_close(one), 0);
        }
        assert_eq!(srd_path_events_close(events), 0);
        assert_eq!(srd_ah_destroy(ah), 0);
    }
    a.close();
    b.close();
}
