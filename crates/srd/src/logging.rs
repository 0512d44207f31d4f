//! The log: what happens to devices, peers and paths, through the crate `log`.
//!
//! Nothing is logged for a packet or a message. A line is made where an event is reported, and at
//! most once per second from the counters of the device's status.

use crate::{AsyncEvent, DeviceCounters, nic::Nic, settings::setting};
use log::{Level, LevelFilter, Log, Metadata, Record, log};
use srd_core::{Span, Time};
use srd_seal::Policy;
use srd_share::status::{Counter, Status};
use std::{
    fs::File,
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::PathBuf,
    process,
    time::{SystemTime, UNIX_EPOCH},
};

/// Target of all lines.
const TARGET: &str = "srd";
/// Environment variable with the level: off, error, warn, info, debug.
const LEVEL_VARIABLE: &str = "SRD_LOG";
/// Environment variable with the file to append to.
const FILE_VARIABLE: &str = "SRD_LOG_FILE";
/// Least time between two lines about counters.
const EVERY: Span = Span::from_secs(1);

/// Writes the log of this process to standard error, or appends it to the file that the environment
/// variable `SRD_LOG_FILE` names. `SRD_LOG` is the level: `off` (as if not set), `error`, `warn`,
/// `info` or `debug`. Has no effect if the program has installed a logger of its own.
///
/// # Errors
/// The text says which variable is wrong and what to do; nothing is logged then.
pub fn log_from_env() -> Result<(), String> {
    let text = setting(LEVEL_VARIABLE).unwrap_or_default().to_string_lossy().into_owned();
    if text.is_empty() {
        return Ok(());
    }
    let level: LevelFilter = match text.to_ascii_lowercase().parse() {
        Ok(level) if level <= LevelFilter::Debug => level,
        _ => {
            return Err(format!(
                "{LEVEL_VARIABLE}={text}: it must be off, error, warn, info or debug"
            ));
        }
    };
    let mut file = None;
    if let Some(path) = setting(FILE_VARIABLE).filter(|path| !path.is_empty()) {
        let path = PathBuf::from(path);
        let opened = File::options().append(true).create(true).mode(0o600).open(&path);
        file = Some(opened.map_err(|e| {
            format!(
                "{FILE_VARIABLE}={} cannot be opened ({e}): name a file in a folder that exists \
                 and that this user may write to",
                path.display()
            )
        })?);
    }
    // An error says that there is a logger already.
    if log::set_boxed_logger(Box::new(Lines { level, file })).is_ok() {
        log::set_max_level(level);
    }
    Ok(())
}

/// Writes lines. It needs no thread-local value that ends with its thread, as the loggers that we
/// know do: such a value takes the lock of the dynamic loader. A program that unloads the library
/// which closes a device holds that lock, and waits for the threads of the device, whose first line
/// may be that of their end.
struct Lines {
    level: LevelFilter,
    /// Standard error without.
    file: Option<File>,
}

impl Log for Lines {
    fn enabled(&self, line: &Metadata<'_>) -> bool {
        line.level() <= self.level && line.target().starts_with(TARGET)
    }

    fn log(&self, line: &Record<'_>) {
        if !self.enabled(line.metadata()) {
            return;
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let (pid, level) = (process::id(), line.level().as_str().to_ascii_lowercase());
        let (s, ms) = (now.as_secs(), now.subsec_millis());
        let text = format!("{s}.{ms:03} srd[{pid}] {level}: {}\n", line.args());
        // One call for a line, so that processes do not write into each other's. Nobody can be
        // told of an error.
        let _ = match &self.file {
            Some(file) => (&*file).write_all(text.as_bytes()),
            None => io::stderr().write_all(text.as_bytes()),
        };
    }

    fn flush(&self) {}
}

/// A device was opened.
pub(crate) fn opened(nic: &Nic, seal: Option<Policy>, warnings: &[String]) {
    let engine = nic.engine.config();
    log!(
        target: TARGET,
        Level::Info,
        "device {} UDP port {} opened: {} paths per address, messages of at most {} bytes, {}",
        engine.ip,
        nic.net.port(),
        engine.path.paths,
        engine.mtu,
        match seal {
            None | Some(Policy::Never) => "not sealed",
            Some(Policy::Prefer) => "sealed with peers that have a key",
            Some(Policy::Require) => "sealed",
        }
    );
    for warning in warnings {
        log!(target: TARGET, Level::Warn, "{warning}");
    }
}

/// A device is closed.
pub(crate) fn closed(nic: &Nic) {
    let c = DeviceCounters::collect(nic, 0).engine;
    log!(
        target: TARGET,
        Level::Info,
        "device {} UDP port {} closed: {} messages sent, {} received, {} packets sent, {} of them \
         again, {} received",
        nic.engine.config().ip,
        nic.net.port(),
        c.send_wrs + c.rdma_read_wrs + c.rdma_write_wrs,
        c.recv_wrs,
        c.tx_pkts,
        c.retrans_pkts,
        c.rx_pkts
    );
}

/// An event was reported.
pub(crate) fn event(event: &AsyncEvent) {
    let level = level_of(event);
    if level <= log::max_level() {
        log!(target: TARGET, level, "{}", text_of(event));
    }
}

fn level_of(event: &AsyncEvent) -> Level {
    match event {
        AsyncEvent::DeviceFatal | AsyncEvent::DatapathError(_) | AsyncEvent::QpFatal(_) => {
            Level::Error
        }
        AsyncEvent::PathChanged { .. } => Level::Info,
        AsyncEvent::SqDrained(_) => Level::Debug,
        _ => Level::Warn,
    }
}

fn text_of(event: &AsyncEvent) -> String {
    match event {
        AsyncEvent::PeerUnresponsive(p) => {
            format!("peer {} UDP port {} does not answer any more", p.ip, p.port)
        }
        AsyncEvent::PeerUnreachable(p) => {
            format!("peer {} UDP port {} has never answered", p.ip, p.port)
        }
        AsyncEvent::PeerReset(p) => format!("peer {} UDP port {} has restarted", p.ip, p.port),
        AsyncEvent::PeerIsSelf(p) => {
            format!("peer {} UDP port {} is this device itself: the peer has ended", p.ip, p.port)
        }
        AsyncEvent::PathChanged { ip, path, retired: true } => {
            format!("path {path} to {ip} is out of use: it does not answer")
        }
        AsyncEvent::PathChanged { ip, path, retired: false } => {
            format!("path {path} to {ip} is in use again")
        }
        AsyncEvent::PathMtu { ip, payload_max } => {
            format!("packets to {ip} carry at most {payload_max} bytes now")
        }
        AsyncEvent::QpFatal(qpn) => format!("queue pair {} is in the error state", qpn.0),
        AsyncEvent::SqDrained(qpn) => format!("all requests of queue pair {} have ended", qpn.0),
        AsyncEvent::DeviceFatal => "the device has failed: all requests end with an error".into(),
        AsyncEvent::DatapathError(errno) => {
            format!("the network fails: {}", std::io::Error::from_raw_os_error(*errno))
        }
        other => other.seal_text().unwrap_or_else(|| format!("{other:?}")),
    }
}

/// Counters whose growth is worth a line of the level info.
const NOTED: [Counter; 8] = [
    Counter::ContextsOpened,
    Counter::ContextsClosed,
    Counter::ContextsForgotten,
    Counter::Stalls,
    Counter::PathsRetired,
    Counter::PathsReturned,
    Counter::EventsDropped,
    Counter::RxqDrops,
];
/// Counters that are shown, too, at the level debug.
const TRAFFIC: [Counter; 8] = [
    Counter::TxPkts,
    Counter::RxPkts,
    Counter::RetransPkts,
    Counter::RetransTimeoutEvents,
    Counter::RnrEvents,
    Counter::CePkts,
    Counter::RxDrops,
    Counter::TxWouldBlock,
];

/// What the counters were when they were logged last.
#[derive(Debug, Default)]
pub(crate) struct Growth {
    due: Time,
    before: Option<[u64; Counter::COUNT]>,
}

impl Growth {
    /// Logs by how much counters have grown, if that is due, or if it is the last time.
    pub(crate) fn note(&mut self, now: Time, status: &Status, last: bool) {
        if log::max_level() < Level::Info || now < self.due && !last {
            return;
        }
        self.due = now + EVERY;
        let before = self.before.replace(status.counters).unwrap_or([0; Counter::COUNT]);
        let grown = |of: &[Counter]| {
            let by = |c: &Counter| status.counter(*c).saturating_sub(before[*c as usize]);
            let all = of.iter().map(|c| (c.name(), by(c))).filter(|(_, by)| *by > 0);
            all.map(|(name, by)| format!(" {name} +{by}")).collect::<String>()
        };
        let (noted, traffic) = (grown(&NOTED), grown(&TRAFFIC));
        if !noted.is_empty() {
            log!(target: TARGET, Level::Info, "{}:{noted}", status.name);
        }
        if !traffic.is_empty() {
            log!(target: TARGET, Level::Debug, "{}:{traffic}", status.name);
        }
    }
}
