//! Process exit: closes the devices' contexts and writes the traffic statistics for `srd run`.

use crate::{devices, load, settings::warn};
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

/// Longest time that process exit waits for its devices; a device itself waits for its peers for
/// little more than a second.
const CLOSE_MAX: Duration = Duration::from_secs(3);
/// Polling interval.
const CLOSE_LOOK: Duration = Duration::from_micros(200);

/// Traffic of the devices of this process.
#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    messages: u64,
    bytes: u64,
    received: u64,
    /// Messages that came, and writes with immediate data.
    arrived: u64,
    /// Bytes of `received` that peers have read here.
    served: u64,
    packets: u64,
    retransmitted: u64,
    paths: u32,
    peers: u64,
    /// Devices that have sent something without a seal, or could not have had one.
    unsealed: u64,
}

static TOTALS: Mutex<Totals> = Mutex::new(Totals {
    messages: 0,
    bytes: 0,
    received: 0,
    arrived: 0,
    served: 0,
    packets: 0,
    retransmitted: 0,
    paths: 0,
    peers: 0,
    unsealed: 0,
});
/// The process that opened a device last; a forked child has nothing to report.
static OWNER: AtomicU32 = AtomicU32::new(0);
static OPENED: AtomicBool = AtomicBool::new(false);

/// Called when a device is opened: from now on process exit is handled.
pub(crate) fn install() {
    OWNER.store(std::process::id(), Ordering::Relaxed);
    if !OPENED.swap(true, Ordering::Relaxed) {
        load::sigusr1_survive();
    }
}

/// Adds the traffic of a device that is being closed.
pub(crate) fn account(device: &Device) {
    let Ok(counters) = device.counters() else { return };
    let engine = &counters.engine;
    let mut totals = TOTALS.lock().unwrap_or_else(PoisonError::into_inner);
    totals.messages += engine.send_wrs + engine.rdma_read_wrs + engine.rdma_write_wrs;
    totals.bytes += engine.send_bytes + engine.rdma_read_bytes + engine.rdma_write_bytes;
    // Reads served count as well, since the peer posted them.
    totals.received +=
        engine.recv_bytes + engine.rdma_write_recv_bytes + engine.rdma_read_resp_bytes;
    totals.arrived += engine.recv_wrs;
    totals.served += engine.rdma_read_resp_bytes;
    totals.packets += engine.tx_pkts;
    totals.retransmitted += engine.retrans_pkts;
    totals.paths = totals.paths.max(counters.paths_used);
    totals.peers += engine.contexts_opened;
    // With the policy prefer it depends on the peers.
    let all_sealed = |status: srd::SealStatus| status.counters.plain == 0;
    if !device.seal().is_ok_and(|status| status.is_some_and(all_sealed)) {
        totals.unsealed += 1;
    }
}

/// Called by the loader at process exit, after the destructors of libraries that depend on this
/// one.
#[guarded]
pub(crate) extern "C" fn at_exit() {
    if !OPENED.load(Ordering::Relaxed) || OWNER.load(Ordering::Relaxed) != std::process::id() {
        return;
    }
    close_all();
    if let Some(folder) = env::var_os("SRD_STATS_DIR")
        && let Err(e) = leave(Path::new(&folder))
    {
        warn(&format!("cannot write the statistics to {}: {e}", folder.display()));
    }
}

/// Closes the devices within a time limit. Exit may be called in a signal handler that interrupted
/// a thread holding one of the library's locks, which then stays locked. Therefore another thread
/// does the work, and this one waits with a limit.
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
            warn("the device was not closed: its lock is held (exit in a signal handler?)");
            return;
        }
        thread::sleep(CLOSE_LOOK);
    }
}

/// Writes the statistics as one line of JSON.
fn leave(folder: &Path) -> std::io::Result<()> {
    let t = *TOTALS.lock().unwrap_or_else(PoisonError::into_inner);
    let program = fs::read_to_string("/proc/self/comm").unwrap_or_default();
    // The program's name may contain any character: keep those that need no quoting.
    let program: String =
        program.trim().chars().filter(|c| c.is_ascii_graphic() && !"\"\\".contains(*c)).collect();
    let pid = std::process::id();
    // The folder may be shared by hosts or containers whose processes have equal ids.
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
                     \"received\":{},\"arrived\":{},\"served\":{},\"packets\":{},\
                     \"retransmitted\":{},\"paths\":{},\"peers\":{},\"sealed\":{}}}",
                    t.messages,
                    t.bytes,
                    t.received,
                    t.arrived,
                    t.served,
                    t.packets,
                    t.retransmitted,
                    t.paths,
                    t.peers,
                    t.unsealed == 0
                );
            }
        }
    }
    Ok(())
}
