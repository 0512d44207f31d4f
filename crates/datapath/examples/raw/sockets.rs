//! The four modes over plain system calls on connected sockets: the least that UDP costs.
#![allow(unsafe_code, reason = "system calls without any layer between")]

use crate::{
    Args, Result,
    report::{Meter, Report},
};
use srd_datapath::clock::now_ns;
use std::{
    io::{self, ErrorKind},
    net::UdpSocket,
    os::fd::AsRawFd,
    ptr,
    time::Duration,
};

const BUFFER_BYTES: usize = 65_536;
const MESSAGES: usize = 32;

fn option_set(socket: &UdpSocket, level: i32, name: i32, value: usize) -> io::Result<()> {
    let value = value as i32;
    // SAFETY: the option value is an i32 on this stack frame, 4 bytes long.
    let rc =
        unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, (&raw const value).cast(), 4) };
    if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn wait(socket: &UdpSocket, events: i16, timeout_ms: i32) {
    let mut poll = libc::pollfd { fd: socket.as_raw_fd(), events, revents: 0 };
    // SAFETY: one pollfd on this stack frame. An error reads like an early return.
    unsafe { libc::poll(&raw mut poll, 1, timeout_ms) };
}

/// Calls sendmmsg (or recvmmsg) on `messages` made of `iovecs`; returns how many went.
fn many(
    socket: &UdpSocket,
    iovecs: &mut [libc::iovec],
    call: unsafe extern "C" fn(i32, *mut libc::mmsghdr, libc::c_uint) -> libc::c_int,
    lens: &mut [usize; MESSAGES],
) -> io::Result<usize> {
    let mut headers: [libc::mmsghdr; MESSAGES] =
        // SAFETY: all-zero headers are valid values of that plain struct.
        unsafe { core::mem::zeroed() };
    for (header, iovec) in headers.iter_mut().zip(iovecs.iter_mut()) {
        header.msg_hdr.msg_iov = ptr::from_mut(iovec);
        header.msg_hdr.msg_iovlen = 1;
    }
    let count = iovecs.len().min(MESSAGES) as u32;
    // SAFETY: `count` headers, each with one iovec of a buffer that the caller owns.
    let rc = unsafe { call(socket.as_raw_fd(), headers.as_mut_ptr(), count) };
    if rc < 0 {
        return Err(io::Error::last_os_error());
    }
    for (len, header) in lens.iter_mut().zip(&headers[..rc as usize]) {
        *len = header.msg_len as usize;
    }
    Ok(rc as usize)
}

/// # Safety
/// As `sendmmsg`.
unsafe extern "C" fn send_many(fd: i32, headers: *mut libc::mmsghdr, count: u32) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { libc::sendmmsg(fd, headers, count, libc::MSG_DONTWAIT) }
}

/// # Safety
/// As `recvmmsg`.
unsafe extern "C" fn receive_many(fd: i32, headers: *mut libc::mmsghdr, count: u32) -> i32 {
    // SAFETY: the caller's promise; a null timeout means none.
    unsafe { libc::recvmmsg(fd, headers, count, libc::MSG_DONTWAIT, ptr::null_mut()) }
}

fn iovecs(buffer: &mut [u8], each: usize) -> Vec<libc::iovec> {
    let iovec = |b: &mut [u8]| libc::iovec { iov_base: b.as_mut_ptr().cast(), iov_len: b.len() };
    buffer.chunks_exact_mut(each).map(iovec).collect()
}

pub fn tx(args: &Args) -> Result<Report> {
    let remote = args.remote.ok_or("no remote")?;
    let open = || -> io::Result<UdpSocket> {
        let socket = UdpSocket::bind((args.local, 0))?;
        socket.connect(remote)?;
        socket.set_nonblocking(true)?;
        option_set(&socket, libc::SOL_SOCKET, libc::SO_SNDBUF, args.sndbuf)?;
        if args.gso {
            option_set(&socket, libc::SOL_UDP, libc::UDP_SEGMENT, args.size)?;
        }
        Ok(socket)
    };
    let sockets = (0..args.paths).map(|_| open()).collect::<io::Result<Vec<_>>>()?;
    let packets = args.packets_per_send().min(if args.gso { 64 } else { MESSAGES });
    let mut buffer = vec![1u8; packets * args.size];
    let mut messages = iovecs(&mut buffer, if args.gso { packets * args.size } else { args.size });
    let end = now_ns() + args.duration.as_nanos() as u64;
    let (mut report, mut meter, mut at) = (Report::default(), Meter::default(), 0);
    meter.start();
    while now_ns() < end {
        let socket = &sockets[at % sockets.len()];
        at += 1;
        report.syscalls += 1;
        match many(socket, &mut messages, send_many, &mut [0; MESSAGES]) {
            Ok(sent) => report.packets += (sent * if args.gso { packets } else { 1 }) as u64,
            Err(error) if error.kind() == ErrorKind::WouldBlock => wait(socket, libc::POLLOUT, 10),
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
            Err(error) => return Err(format!("send: {error}").into()),
        }
    }
    meter.stop();
    meter.read(&mut report);
    report.bytes = report.packets * args.size as u64;
    Ok(report)
}

fn receiver(args: &Args) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind((args.local, args.port))?;
    socket.set_nonblocking(true)?;
    option_set(&socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, args.rcvbuf)
        .or_else(|_| option_set(&socket, libc::SOL_SOCKET, libc::SO_RCVBUF, args.rcvbuf))?;
    if args.gso {
        option_set(&socket, libc::SOL_UDP, libc::UDP_GRO, 1)?;
    }
    Ok(socket)
}

pub fn rx(args: &Args) -> Result<Report> {
    let socket = receiver(args)?;
    let mut buffer = vec![0u8; MESSAGES * BUFFER_BYTES];
    let mut messages = iovecs(&mut buffer, BUFFER_BYTES);
    let (mut report, mut meter) = (Report::default(), Meter::default());
    let mut lens = [0; MESSAGES];
    loop {
        report.syscalls += 1;
        match many(&socket, &mut messages, receive_many, &mut lens) {
            Ok(count) => {
                meter.start();
                for len in &lens[..count] {
                    report.bytes += *len as u64;
                    report.packets += len.div_ceil(args.size) as u64;
                }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                if meter.pause() > 500_000_000 {
                    break;
                }
                if !args.spin {
                    wait(&socket, libc::POLLIN, 1);
                }
            }
            Err(error) => return Err(format!("receive: {error}").into()),
        }
    }
    meter.read(&mut report);
    Ok(report)
}

/// Receives one packet by spinning or blocking; `None` after `patience`.
fn receive_one<T>(
    args: &Args,
    patience: Duration,
    mut receive: impl FnMut() -> io::Result<T>,
) -> Result<Option<T>> {
    let end = now_ns() + patience.as_nanos() as u64;
    loop {
        match receive() {
            Ok(got) => return Ok(Some(got)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                // A blocking socket returns this after its timeout.
                if !args.spin || now_ns() > end {
                    return Ok(None);
                }
            }
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => return Ok(None),
            Err(error) => return Err(format!("receive: {error}").into()),
        }
    }
}

pub fn ping(args: &Args) -> Result<Report> {
    let patience = Duration::from_secs(1);
    let socket = UdpSocket::bind((args.local, 0))?;
    socket.connect(args.remote.ok_or("no remote")?)?;
    socket.set_nonblocking(args.spin)?;
    socket.set_read_timeout(Some(patience))?;
    let (payload, mut buffer) = (vec![1u8; args.size], vec![0u8; BUFFER_BYTES]);
    let end = now_ns() + args.duration.as_nanos() as u64;
    let (mut report, mut meter) = (Report::default(), Meter::default());
    meter.start();
    while now_ns() < end {
        let sent_ns = now_ns();
        report.syscalls += 1;
        let sent = socket.send(&payload).is_ok();
        if !sent || receive_one(args, patience, || socket.recv(&mut buffer))?.is_none() {
            report.lost += 1;
            continue;
        }
        report.rtt_ns.push(now_ns() - sent_ns);
        report.packets += 1;
        report.bytes += args.size as u64;
    }
    meter.stop();
    meter.read(&mut report);
    Ok(report)
}

pub fn pong(args: &Args) -> Result<Report> {
    let patience = Duration::from_millis(100);
    let socket = receiver(args)?;
    socket.set_nonblocking(args.spin)?;
    socket.set_read_timeout(Some(patience))?;
    let mut buffer = vec![0u8; BUFFER_BYTES];
    let (mut report, mut meter) = (Report::default(), Meter::default());
    loop {
        if let Some((len, from)) = receive_one(args, patience, || socket.recv_from(&mut buffer))? {
            meter.start();
            report.packets += 1;
            report.bytes += len as u64;
            report.syscalls += 1;
            socket.send_to(&buffer[..len], from)?;
        } else if meter.pause() > 2_000_000_000 {
            break;
        }
    }
    meter.read(&mut report);
    Ok(report)
}
