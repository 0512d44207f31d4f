//! Shows the datagrams that any [`Datapath`] receives to a function, for measurements.

use crate::{
    Counters, Datapath, RxBacklog, RxDatagram, RxReport, TxPacket, TxPushError, TxReport, Waker,
};
use core::{net::IpAddr, time::Duration};
use std::io;

/// A watched datapath. The function sees each datagram before the engine does, within its turn: it
/// must return quickly.
///
/// ```
/// use srd_datapath::{Datapath, mem::MemNet, send_batch, watch::Watch};
/// let net = MemNet::new();
/// let (mut a, b) = (net.endpoint("10.0.0.1:1".parse()?)?, net.endpoint("10.0.0.2:1".parse()?)?);
/// let dst = (b.local_ip(), b.port()).into();
/// let mut bytes = 0;
/// let mut b = Watch::new(b, |d| bytes += d.bytes.len());
/// send_batch(&mut a, |batch| batch.push(dst, 0, b"eight by", &[]))?.0?;
/// b.rx(&mut |_| {})?;
/// drop(b);
/// assert_eq!(bytes, 8);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Watch<D, F> {
    inner: D,
    seen: F,
}

impl<D: Datapath, F: FnMut(&RxDatagram<'_>) + Send> Watch<D, F> {
    /// Shows what `inner` receives to `seen`.
    pub fn new(inner: D, seen: F) -> Self {
        Self { inner, seen }
    }
}

impl<D: Datapath, F: FnMut(&RxDatagram<'_>) + Send> Datapath for Watch<D, F> {
    fn local_ip(&self) -> IpAddr {
        self.inner.local_ip()
    }
    fn port(&self) -> u16 {
        self.inner.port()
    }
    fn paths(&self) -> usize {
        self.inner.paths()
    }
    fn path_port(&self, path: u8) -> u16 {
        self.inner.path_port(path)
    }
    fn udp_payload_max(&self) -> usize {
        self.inner.udp_payload_max()
    }
    fn tx_room(&self) -> usize {
        self.inner.tx_room()
    }
    fn tx_ready(&self) -> bool {
        self.inner.tx_ready()
    }
    fn tx_push(&mut self, packet: &TxPacket<'_>) -> Result<(), TxPushError> {
        self.inner.tx_push(packet)
    }
    fn tx_copies(&self, len: usize) -> bool {
        self.inner.tx_copies(len)
    }
    fn tx_flush(&mut self) -> io::Result<TxReport> {
        self.inner.tx_flush()
    }
    fn tx_discard(&mut self) {
        self.inner.tx_discard();
    }
    fn rx(&mut self, sink: &mut dyn FnMut(RxDatagram<'_>)) -> io::Result<RxReport> {
        let Self { inner, seen } = self;
        inner.rx(&mut |datagram| {
            seen(&datagram);
            sink(datagram);
        })
    }
    fn rx_backlog(&self) -> RxBacklog {
        self.inner.rx_backlog()
    }
    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.inner.wait(timeout)
    }
    fn waker(&self) -> Waker {
        self.inner.waker()
    }
    fn counters(&self) -> Counters {
        self.inner.counters()
    }
}
