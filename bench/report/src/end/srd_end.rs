//! A device with one queue pair, which all SRD ends use.

use crate::{Result, options::Options};
use serde_json::{Value, json};
use srd::{
    CompletionQueue, Device, DeviceConfig, DeviceCounters, Progress, ProtectionDomain, QKey,
    QpInit, QueuePair,
};
use std::{net::IpAddr, time::Duration};

/// Q_Key of all queue pairs.
pub const QKEY: QKey = QKey(0x5D);

/// A device, a queue pair and its completion queue.
pub struct End {
    pub device: Device,
    pub pd: ProtectionDomain,
    pub cq: CompletionQueue,
    pub qp: QueuePair,
}

impl End {
    /// Opens a device; both queues hold `depth` requests.
    pub fn with(config: DeviceConfig, depth: u32) -> Result<Self> {
        let device = Device::open(config)?;
        let pd = device.pd_create()?;
        let cq = device.cq_create(2 * depth)?;
        let mut init = QpInit::srd(&cq, &cq);
        (init.sq_depth, init.rq_depth, init.inline_bytes_max) = (depth, depth, 80);
        let qp = pd.qp_create(&init)?;
        qp.activate(QKEY)?;
        Ok(Self { device, pd, cq, qp })
    }
}

/// Configuration by the options `--local IP`, `--mtu BYTES`, `--paths N`, `--slot N`, `--engine
/// caller|thread`, `--spin-us N` (of the thread), `--integrity on|off`, `--key FILE`. What the
/// environment says of sealing does not count.
pub fn config(o: &mut Options) -> Result<DeviceConfig> {
    let mut config = DeviceConfig::ip(o.need::<IpAddr>("local")?);
    config.mtu = o.get("mtu")?;
    config.paths = o.or("paths", 64)?;
    config.slot = o.get("slot")?;
    (config.key_file, config.seal) = (o.get("key")?, None);
    config.integrity = match o.or("integrity", "on".to_owned())?.as_str() {
        "on" => true,
        "off" => false,
        other => return Err(format!("--integrity {other}: must be on or off").into()),
    };
    let spin = Duration::from_micros(o.or("spin-us", 0)?);
    config.progress = match o.or("engine", "caller".to_owned())?.as_str() {
        "caller" => Progress::Caller,
        "thread" => Progress::Thread { spin },
        other => return Err(format!("--engine {other}: must be caller or thread").into()),
    };
    Ok(config)
}

/// Differences of the counters that explain a result.
pub fn counters(before: &DeviceCounters, after: &DeviceCounters) -> Value {
    let (b, a) = (before.datapath, after.datapath);
    let (f, e) = (before.engine, after.engine);
    json!({
        "turns": after.turns - before.turns,
        "waits": a.waits - b.waits,
        "tx_packets": a.tx_packets - b.tx_packets,
        "tx_syscalls": a.tx_syscalls - b.tx_syscalls,
        "tx_gso_batches": a.tx_gso_batches - b.tx_gso_batches,
        "tx_gso_packets": a.tx_gso_packets - b.tx_gso_packets,
        "tx_would_block": a.tx_would_block - b.tx_would_block,
        "tx_backlogged": a.tx_backlogged - b.tx_backlogged,
        "rx_packets": a.rx_packets - b.rx_packets,
        "rx_syscalls": a.rx_syscalls - b.rx_syscalls,
        "rx_gro_batches": a.rx_gro_batches - b.rx_gro_batches,
        "rx_gro_packets": a.rx_gro_packets - b.rx_gro_packets,
        "rxq_drops": a.rxq_drops - b.rxq_drops,
        "ack_pkts": e.ack_pkts - f.ack_pkts,
        "retrans_pkts": e.retrans_pkts - f.retrans_pkts,
        "retrans_spurious_pkts": e.retrans_spurious_pkts - f.retrans_spurious_pkts,
        "retrans_timeout_events": e.retrans_timeout_events - f.retrans_timeout_events,
        "tlp_pkts": e.tlp_pkts - f.tlp_pkts,
        "probe_pkts": e.probe_pkts - f.probe_pkts,
        "dup_pkts": e.dup_pkts - f.dup_pkts,
        "rnr_events": e.rnr_events - f.rnr_events,
        "stalls": e.stalls - f.stalls,
    })
}
