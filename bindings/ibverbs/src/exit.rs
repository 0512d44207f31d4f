//! The end of the process: devices close their contexts and leave the figures of what went through
//! them where `srd run` asks for them.

use crate::{devices, settings::warn};
use srd::Device;
use srd_guard::guarded;
use std::{
    env, fs,
    io::Write,
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// How long the end of a process waits for its devices: more than the second and a bit that a
/// device takes at most for its peers' sake.
const CLOSE_MAX: Duration = Duration::from_secs(3);
/// How often it looks.
const CLOSE_LOOK: Duration = Duration::from_micros(200);

/// What went through the devices of this process.
#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    messages: u64,
    bytes: u64,
    received: u64,
    packets: u64,
    retransmitted: u64,
    paths: u32,
    peers: u64,
}

static TOTALS: Mutex<Totals> = Mutex::new(Totals {
    messages: 0,
    bytes: 0,
    received: 0,
    packets: 0,
    retransmitted: 0,
    paths: 0,
    peers: 0,
});
/// The process that opened a device last: a child of `fork` has nothing to report.
static OWNER: AtomicU32 = AtomicU32::new(0);
static OPENED: AtomicBool = AtomicBool::new(false);

/// A device was opened: the end of the process matters from now on.
pub(crate) fn install() {
    OWNER.store(std::process::id(), Ordering::Relaxed);
    OPENED.store(true, Ordering::Relaxed);
}

/// Adds the figures of a device that goes.
pub(crate) fn account(device: &Device) {
    let Ok(counters) = device.counters() else { return };
    let engine = &counters.engine;
    let mut totals = TOTALS.lock().unwrap_or_else(PoisonError::into_inner);
    totals.messages += engine.send_wrs + engine.rdma_read_wrs + engine.rdma_write_wrs;
    totals.bytes += engine.send_bytes + engine.rdma_read_bytes + engine.rdma_write_bytes;
    // Reads that were served count, too: their peer did the asking.
    totals.received +=
        engine.recv_bytes + engine.rdma_write_recv_bytes + engine.rdma_read_resp_bytes;
    totals.packets += engine.tx_pkts;
    totals.retransmitted += engine.retrans_pkts;
    totals.paths = totals.paths.max(counters.paths_used);
    totals.peers += engine.contexts_opened;
}

/// Called by the loader when the process ends, after the destructors of libraries above this one.
#[guarded]
pub(crate) extern "C" fn at_exit() {
    if !OPENED.load(Ordering::Relaxed) || OWNER.load(Ordering::Relaxed) != std::process::id() {
        return;
    }
    close_all();
    if let Some(folder) = env::var_os("SRD_STATS_DIR")
        && let Err(e) = leave(Path::new(&folder))
    {
        warn(&format!("the figures cannot be left in {}: {e}", folder.display()));
    }
}

/// Closes the devices, unless that takes too long. The process may end in a handler of a signal
/// that came while its thread held one of the library's locks: nobody gives that back any more.
/// Therefore another thread does the work, and this one waits with a bound.
fn close_all() {
    let done = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&done);
    let started = thread::Builder::new().name("srd-exit".to_owned()).spawn(move || {
        for device in devices::entries().iter().filter_map(devices::Entry::opened) {
            account(&device);
            device.close();
        }
        told.store(true, Ordering::Release);
    });
    let deadline = Instant::now() + CLOSE_MAX;
    while started.is_ok() && !done.load(Ordering::Acquire) {
        if Instant::now() > deadline {
            warn("the device is not closed in order: its lock is held (exit in a signal handler?)");
            return;
        }
        thread::sleep(CLOSE_LOOK);
    }
}

/// Writes the figures as one line of JSON.
fn leave(folder: &Path) -> std::io::Result<()> {
    let t = *TOTALS.lock().unwrap_or_else(PoisonError::into_inner);
    let program = fs::read_to_string("/proc/self/comm").unwrap_or_default();
    // The name may hold anything: keep what needs no quoting.
    let program: String =
        program.trim().chars().filter(|c| c.is_ascii_graphic() && !"\"\\".contains(*c)).collect();
    let pid = std::process::id();
    // Processes of several hosts (or containers) may have one number: the folder may be shared.
    let mut at = folder.join(format!("{program}-{pid}"));
    for n in 1.. {
        let made = fs::File::options().write(true).create_new(true).open(at.with_extension("json"));
        match made {
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {
                at = folder.join(format!("{program}-{pid}-{n}"));
            }
            made => {
                return writeln!(
                    made?,
                    "{{\"program\":\"{program}\",\"pid\":{pid},\"messages\":{},\"bytes\":{},\
                     \"received\":{},\"packets\":{},\"retransmitted\":{},\"paths\":{},\
                     \"peers\":{}}}",
                    t.messages, t.bytes, t.received, t.packets, t.retransmitted, t.paths, t.peers
                );
            }
        }
    }
    Ok(())
}
