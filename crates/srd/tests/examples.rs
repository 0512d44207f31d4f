//! The examples run, and check what they exchange.

use crate::pair;
use std::{
    net::{IpAddr, Ipv4Addr, TcpListener, TcpStream},
    thread,
};

#[test]
fn the_two_sides_of_a_pair_exchange_messages_and_memory() {
    let ip = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let listener = TcpListener::bind((ip, 0)).unwrap();
    let at = listener.local_addr().unwrap();
    let other = thread::spawn(move || {
        pair::exchange(TcpStream::connect(at).unwrap(), ip, 2).map_err(|e| e.to_string())
    });
    pair::exchange(listener.accept().unwrap().0, ip, 1).unwrap();
    other.join().unwrap().unwrap();
}
