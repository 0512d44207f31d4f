//! Two devices with a queue pair each, over every datapath and way of driving.

use srd::{
    Access, AddressHandle, CompletionQueue, Device, DeviceConfig, MemoryRegion, Progress,
    ProtectionDomain, QKey, QpInit, QueuePair, WorkCompletion,
    datapath::{
        fault::{Fault, FaultHandle, Rates},
        mem::{MemConfig, MemNet},
    },
};
use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

pub const QKEY: QKey = QKey(0x1DEA);
pub const ALL_ACCESS: Access = Access::ALL;
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A device with one of everything.
pub struct Node {
    pub device: Device,
    pub pd: ProtectionDomain,
    pub cq: CompletionQueue,
    pub qp: QueuePair,
}

impl Node {
    pub fn new(device: Device) -> Self {
        Self::with(device, 512, |_| {})
    }

    pub fn with(device: Device, cq_depth: u32, change: impl FnOnce(&mut QpInit<'_>)) -> Self {
        let pd = device.pd_create().unwrap();
        let cq = device.cq_create(cq_depth).unwrap();
        let mut init = QpInit::srd(&cq, &cq);
        init.inline_bytes_max = 80;
        change(&mut init);
        let qp = pd.qp_create(&init).unwrap();
        qp.activate(QKEY).unwrap();
        Self { device, pd, cq, qp }
    }

    pub fn ah_to(&self, other: &Self) -> AddressHandle {
        self.pd.ah_create(other.device.ip()).unwrap()
    }

    pub fn memory(&self, len: usize) -> MemoryRegion {
        self.pd.mr_allocate(len, ALL_ACCESS).unwrap()
    }

    /// The next completion here, while both sides make progress.
    pub fn next(&self, other: &Self) -> WorkCompletion {
        self.next_within(other, PATIENCE).expect("no completion in time")
    }

    pub fn next_within(&self, other: &Self, patience: Duration) -> Option<WorkCompletion> {
        let end = Instant::now() + patience;
        while Instant::now() < end {
            if let Some(wc) = self.cq.poll_one().unwrap() {
                return Some(wc);
            }
            other.device.progress().unwrap();
            std::thread::yield_now();
        }
        None
    }

    /// The next `n` completions, by `wr_id`.
    pub fn next_n(&self, other: &Self, n: usize) -> Vec<WorkCompletion> {
        let mut all: Vec<_> = (0..n).map(|_| self.next(other)).collect();
        all.sort_by_key(|wc| wc.wr_id);
        all
    }

    pub fn assert_quiet(&self, other: &Self) {
        let wc = self.next_within(other, Duration::from_millis(50));
        assert_eq!(wc, None, "an unexpected completion");
    }
}

/// A network in memory whose hosts are 10.0.0.1, 10.0.0.2, …
pub struct MemWorld {
    pub net: MemNet,
    pub config: MemConfig,
}

impl MemWorld {
    pub fn new(mtu: u16) -> Self {
        let config = MemConfig {
            udp_payload_max: usize::from(mtu) + srd_wire::OVERHEAD_BYTES,
            ..MemConfig::default()
        };
        Self { net: MemNet::new(), config }
    }

    pub fn config(&self, host: u8) -> DeviceConfig {
        let addr = SocketAddr::from(([10, 0, 0, host], srd::PORT_BASE_DEFAULT));
        DeviceConfig::custom(Box::new(self.net.endpoint_with(addr, self.config).unwrap()))
    }

    pub fn device(&self, host: u8, progress: Progress) -> Device {
        let mut config = self.config(host);
        config.progress = progress;
        Device::open(config).unwrap()
    }

    /// A device that loses, repeats and reorders, and the handle that changes how.
    pub fn faulty(&self, host: u8, progress: Progress, rates: Rates) -> (Device, FaultHandle) {
        let addr = SocketAddr::from(([10, 0, 0, host], srd::PORT_BASE_DEFAULT));
        let inner = self.net.endpoint_with(addr, self.config).unwrap();
        let fault = Fault::new(inner, u64::from(host), rates, rates);
        let handle = fault.handle();
        let mut config = DeviceConfig::custom(Box::new(fault));
        config.progress = progress;
        (Device::open(config).unwrap(), handle)
    }
}

pub const THREAD: Progress = Progress::Thread { spin: Duration::ZERO };

/// Loses 2 %, repeats 2 %, holds back 5 %.
pub const BAD_NETWORK: Rates = Rates {
    loss_ppm: 20_000,
    duplicate_ppm: 20_000,
    reorder_ppm: 50_000,
    reorder_packets_max: 16,
    delay_packets: 0,
    corrupt_ppm: 0,
    ce_ppm: 0,
};

/// Two devices over memory.
pub fn mem_pair(mtu: u16, progress: Progress) -> (Device, Device) {
    let world = MemWorld::new(mtu);
    (world.device(1, progress), world.device(2, progress))
}

/// Two devices over loopback sockets.
pub fn loopback_pair(mtu: u16, progress: Progress) -> (Device, Device) {
    let open = || {
        let mut config = DeviceConfig::loopback();
        config.progress = progress;
        config.mtu = Some(mtu);
        config.paths = 8;
        Device::open(config).unwrap()
    };
    (open(), open())
}

/// Runs a test over both datapaths, driven in both ways, and over a bad network.
pub fn everywhere(mtu: u16, test: impl Fn(Device, Device)) {
    for progress in [Progress::Caller, THREAD] {
        let (a, b) = mem_pair(mtu, progress);
        test(a, b);
        let (a, b) = loopback_pair(mtu, progress);
        test(a, b);
        let world = MemWorld::new(mtu);
        let (a, _) = world.faulty(1, progress, BAD_NETWORK);
        let (b, _) = world.faulty(2, progress, BAD_NETWORK);
        test(a, b);
    }
}

/// Bytes that differ everywhere.
pub fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        })
        .collect()
}
