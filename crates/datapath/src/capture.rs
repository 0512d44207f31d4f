//! Records the traffic of any [`Datapath`] into a pcapng trace.

use crate::{
    Counters, Datapath, RxBacklog, RxDatagram, RxReport, TxPacket, TxPushError, TxReport, Waker,
    clock,
    pcapng::{PcapNg, Record, Way},
};
use core::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};
use std::{
    fs::File,
    io::{self, BufWriter, Write},
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

/// ECN field recorded for received packets with CE.
const ECN_CE: u8 = 3;
/// ECN field recorded for other packets: ECT(0).
const ECN_ECT0: u8 = 2;

/// How the secrets in a capture are to be read (`docs/sealing.md`): the letters SRDK. The number is
/// not registered with anybody.
pub const SECRETS_KIND: u32 = 0x5352_444b;

/// Takes lines with secrets of contexts, which the capture holds before the next packet.
#[derive(Clone, Default)]
pub struct CaptureSecrets(Arc<(AtomicBool, Mutex<String>)>);

impl CaptureSecrets {
    /// Adds a line, given without its end.
    pub fn push(&self, line: &str) {
        let mut waiting = self.0.1.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.push_str(line);
        waiting.push('\n');
        self.0.0.store(true, Ordering::Release);
    }

    /// The lines since the last call, if there are any.
    fn take(&self) -> Option<String> {
        if !self.0.0.swap(false, Ordering::Acquire) {
            return None;
        }
        Some(std::mem::take(&mut *self.0.1.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

struct Pushed {
    dst: SocketAddr,
    path: u8,
    bytes_end: usize,
}

/// A recorded datapath. If the trace cannot be written, recording ends and the datapath continues.
pub struct Capture<D, W: Write = BufWriter<File>> {
    inner: D,
    trace: Option<PcapNg<W>>,
    error: Option<io::Error>,
    unix_offset_ns: u64,
    pushed: Vec<Pushed>,
    bytes: Vec<u8>,
    secrets: CaptureSecrets,
}

impl<D: Datapath> Capture<D> {
    /// Records into a new file at `path`, replacing an existing one.
    ///
    /// # Errors
    /// The file cannot be created.
    pub fn to_file(inner: D, path: &Path) -> io::Result<Self> {
        let file = File::create(path).map_err(|error| {
            let what = format!("cannot write the capture {}: {error}", path.display());
            io::Error::new(error.kind(), what)
        })?;
        Self::to_writer(inner, BufWriter::with_capacity(1 << 18, file))
    }
}

impl<D: Datapath, W: Write> Capture<D, W> {
    /// Records into `out`.
    ///
    /// # Errors
    /// Errors of writing to `out`.
    pub fn to_writer(inner: D, out: W) -> io::Result<Self> {
        Ok(Self {
            inner,
            trace: Some(PcapNg::new(out)?),
            error: None,
            unix_offset_ns: clock::unix_offset_ns(),
            pushed: Vec::new(),
            bytes: Vec::new(),
            secrets: CaptureSecrets::default(),
        })
    }

    /// Also records what `secrets` is given.
    #[must_use]
    pub fn with_secrets(mut self, secrets: CaptureSecrets) -> Self {
        self.secrets = secrets;
        self
    }

    /// The wrapped datapath.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// Why recording ended early, if it did.
    pub fn error(&self) -> Option<&io::Error> {
        self.error.as_ref()
    }

    /// Ends recording and returns the output after writing everything.
    ///
    /// # Errors
    /// The error that ended recording earlier.
    pub fn finish(mut self) -> io::Result<W> {
        match (self.trace.take(), self.error.take()) {
            (Some(trace), None) => trace.into_inner(),
            (_, error) => Err(error.unwrap_or_else(|| io::ErrorKind::BrokenPipe.into())),
        }
    }

    fn pushed_clear(&mut self) {
        self.pushed.clear();
        self.bytes.clear();
    }
}

/// Writes one record; the first error ends the trace.
fn write<W: Write>(
    trace: &mut Option<PcapNg<W>>,
    error: &mut Option<io::Error>,
    secrets: &CaptureSecrets,
    record: &Record<'_>,
) {
    let both = |trace: &mut PcapNg<W>| {
        if let Some(text) = secrets.take() {
            trace.secrets(SECRETS_KIND, text.as_bytes())?;
        }
        trace.write(record)
    };
    if let Some(Err(e)) = trace.as_mut().map(both) {
        (*trace, *error) = (None, Some(e));
    }
}

impl<D: Datapath, W: Write + Send> Datapath for Capture<D, W> {
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
        self.inner.tx_push(packet)?;
        if self.trace.is_some() {
            packet.gather_into(&mut self.bytes);
            let (dst, path, bytes_end) = (packet.dst, packet.path, self.bytes.len());
            self.pushed.push(Pushed { dst, path, bytes_end });
        }
        Ok(())
    }

    fn tx_copies(&self, len: usize) -> bool {
        self.inner.tx_copies(len)
    }

    fn tx_flush(&mut self) -> io::Result<TxReport> {
        let unix_ns = clock::now_ns() + self.unix_offset_ns;
        let report = self.inner.tx_flush()?;
        let mut at = 0;
        for p in &self.pushed {
            let src = SocketAddr::new(self.inner.local_ip(), self.inner.path_port(p.path));
            let payload = &self.bytes[at..p.bytes_end];
            at = p.bytes_end;
            let (way, ecn) = (Way::Out, ECN_ECT0);
            let record = Record { unix_ns, way, src, dst: p.dst, ecn, payload };
            write(&mut self.trace, &mut self.error, &self.secrets, &record);
        }
        self.pushed_clear();
        Ok(report)
    }

    fn tx_discard(&mut self) {
        self.inner.tx_discard();
        self.pushed_clear();
    }

    fn rx(&mut self, sink: &mut dyn FnMut(RxDatagram<'_>)) -> io::Result<RxReport> {
        let dst = SocketAddr::new(self.inner.local_ip(), self.inner.port());
        let Self { inner, trace, error, unix_offset_ns, secrets, .. } = self;
        inner.rx(&mut |datagram| {
            let unix_ns = clock::now_ns() + *unix_offset_ns;
            let ecn = if datagram.ce { ECN_CE } else { ECN_ECT0 };
            let (way, src, payload) = (Way::In, datagram.src, &*datagram.bytes);
            write(trace, error, secrets, &Record { unix_ns, way, src, dst, ecn, payload });
            sink(datagram);
        })
    }

    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.inner.wait(timeout)
    }

    fn waker(&self) -> Waker {
        self.inner.waker()
    }

    fn rx_backlog(&self) -> RxBacklog {
        self.inner.rx_backlog()
    }

    fn counters(&self) -> Counters {
        self.inner.counters()
    }
}

#[cfg(test)]
mod tests;
