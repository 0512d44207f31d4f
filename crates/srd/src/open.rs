//! Creates an engine with a datapath from a configuration.

use crate::{
    Bind, DeviceAttr, DeviceConfig, DeviceError, PortAttr, Progress, SHARDS_MAX, caps,
    config::SecretsSink,
    entropy::randomness_from_os,
    gid_from_ip, interface, logging,
    nic::{Engine, Nic, TX_BATCH, Tables},
    path_events::{PathFeed, PathTap},
    paths_control::PathsControl,
    queue::{
        CQ_DEPTH_MAX, CQS_MAX, INLINE_BYTES_DEFAULT, INLINE_BYTES_MAX, QUEUE_DEPTH_MAX,
        RECV_SGES_MAX, SEND_SGES_MAX,
    },
    rails::Rails,
    sealing::{self, Sealing},
    settings::{LINE_MBPS_MAX, settings_file},
    share::Share,
    status::{Shown, Wanted},
    sync::lock,
};
use srd_core::{
    EngineConfig,
    config::{Integrity, RatePolicy},
    limits,
};
use srd_datapath::{Datapath, OpenError, UdpConfig, UdpDatapath, route};
use srd_seal::Policy;
use srd_wire::OVERHEAD_BYTES;
use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

/// Datagrams of one batch that are copied and sealed: one for each packet, and a few more, because
/// a packet that opens a context may become two.
const SEALED_BATCH: usize = TX_BATCH + TX_BATCH / 4;

/// Least MTU of a device in bytes.
const MTU_MIN: u16 = 64;
/// The first number that is no rate of a port in Mb/s.
const LINE_MBPS_ABOVE: u32 = LINE_MBPS_MAX + 1;

/// Engines ready to run.
pub(crate) struct Opened {
    /// One for each shard.
    pub nics: Vec<Nic>,
    pub attr: DeviceAttr,
    pub port: PortAttr,
    pub warnings: Vec<String>,
}

/// A shard's datapath, and what opening it found.
struct Net {
    datapath: Box<dyn Datapath>,
    rx_budget_bytes: Option<u32>,
    line_bytes_per_sec: Option<u64>,
    /// Networks by which paths leave in turn.
    rails: u8,
}

/// What all shards of a device open with.
struct Plan {
    engine: EngineConfig,
    /// Whether the shards share congestion state with other engines of the host.
    shares: bool,
    seal: Option<(Policy, PathBuf)>,
    secrets: Option<Arc<Mutex<SecretsSink>>>,
    secrets_on_request: bool,
    shows: Option<Wanted>,
    controlled: bool,
    /// The subscriptions to changes of the paths of all shards.
    feed: Arc<PathFeed>,
}

/// Opens sockets (or takes the given datapath) and creates the engines.
pub(crate) fn open(mut config: DeviceConfig) -> Result<Opened, DeviceError> {
    if config.port_base == 0 || config.port_base > u16::MAX - 255 {
        return Err(DeviceError::Config("port_base must be from 1 to 65280: 256 ports follow it"));
    }
    // It may ask for a seal: no device without it because of a slip of the pen.
    settings_file().map_err(DeviceError::Settings)?;
    let mut warnings = Vec::new();
    let shards = shards_of(&config)?;
    let shows = Wanted::of(&config);
    let controlled = is_controlled(&config);
    // A datapath of the caller's, or one with injected faults, says nothing about the host's
    // network.
    let own_net = config.datapath.is_some() || config.wrap.is_some();
    let nets = nets_open(&mut config, shards, &mut warnings)?;
    let seal = sealing::chosen(&config)?;
    warnings.extend(config.key_file_unused());
    let engine = engine_of(&mut config, &nets)?;
    let plan = Plan {
        shares: config.share && !own_net && engine.rate.policy == RatePolicy::Srd,
        engine,
        seal,
        secrets_on_request: config.capture_secrets_on_request,
        secrets: config.capture_secrets.take().map(|sink| Arc::new(Mutex::new(sink))),
        shows,
        controlled,
        feed: Arc::default(),
    };
    let mut attr = attr_of(&plan.engine);
    attr.max_qp *= nets.len() as u32;
    let port = port_of(&plan.engine, nets[0].datapath.port());
    let mut nics: Vec<Nic> = Vec::new();
    for net in nets {
        let mut nic = nic_open(&plan, net, &mut warnings)?;
        if let Some(first) = nics.first() {
            nic.engine.region_keys_as(&first.engine);
        }
        nics.push(nic);
    }
    let policy = plan.seal.as_ref().map(|(policy, _)| *policy);
    for (i, nic) in nics.iter_mut().enumerate() {
        for warning in shown_open(nic, plan.shows.as_ref(), policy)
            .into_iter()
            .chain(paths_control_open(nic, plan.controlled))
        {
            // Of all shards alike.
            if !warnings.contains(&warning) {
                warnings.push(warning);
            }
        }
        logging::opened(nic, policy, if i == 0 { &warnings } else { &[] });
    }
    Ok(Opened { nics, attr, port, warnings })
}

/// How many shards the device is to have: several only where their threads drive the sockets.
fn shards_of(config: &DeviceConfig) -> Result<u16, DeviceError> {
    if !(1..=SHARDS_MAX).contains(&config.shards) {
        return Err(DeviceError::Config("shards (SRD_SHARDS) must be a number from 1 to 64"));
    }
    let own_net = config.datapath.is_some() || config.wrap.is_some();
    let alone = own_net || config.progress == Progress::Caller;
    Ok(if alone { 1 } else { config.shards })
}

/// The datapaths of the shards.
fn nets_open(
    config: &mut DeviceConfig,
    shards: u16,
    warnings: &mut Vec<String>,
) -> Result<Vec<Net>, DeviceError> {
    let (rx_budget_bytes, line_bytes_per_sec, rails) = (None, None, 1);
    let mut nets = match config.datapath.take() {
        Some(datapath) => vec![Net { datapath, rx_budget_bytes, line_bytes_per_sec, rails }],
        None => udp_open(config, shards, warnings)?,
    };
    if let Some(wrap) = config.wrap.take()
        && let Some(net) = nets.pop()
    {
        nets.push(Net { datapath: wrap(net.datapath), ..net });
    }
    Ok(nets)
}

/// Configuration of the first shard's engine; those of the others differ in the slot.
fn engine_of(config: &mut DeviceConfig, nets: &[Net]) -> Result<EngineConfig, DeviceError> {
    let net = &nets[0];
    let slot = slot_of(net.datapath.as_ref(), config)?;
    let mtu = mtu_of(net.datapath.as_ref(), config.mtu)?;
    let mtu_max = config.mtu_max.filter(|_| config.mtu.is_none());
    let mtu = mtu.min(mtu_max.unwrap_or(mtu).max(MTU_MIN));
    if net.datapath.paths() < usize::from(config.paths) {
        return Err(DeviceError::Config("the datapath has fewer paths than `paths` asks for"));
    }
    let mut engine = EngineConfig::sockets(net.datapath.local_ip(), slot, mtu);
    engine.port_base = config.port_base;
    engine.qpn_start = config.qpn_start;
    engine.path.paths = config.paths;
    engine.path.live_min = engine.path.live_min.min(config.paths);
    engine.path.policy = config.path_policy;
    engine.path.rails = net.rails;
    engine.rate.policy = config.rate_policy;
    engine.integrity = if config.integrity { Integrity::On } else { Integrity::Handshakes };
    engine.engines_of_device = nets.len() as u32;
    if let Some(bytes) = net.rx_budget_bytes {
        engine.rx_budget_bytes = bytes;
    }
    match line_configured(config)?.or(net.line_bytes_per_sec) {
        Some(rate) => engine.line_set(rate),
        None => engine.line_unknown(),
    }
    if let Some(tune) = config.tune.take() {
        tune(&mut engine);
    }
    Ok(engine)
}

/// The configured rate of the port, in bytes per second.
fn line_configured(config: &DeviceConfig) -> Result<Option<u64>, DeviceError> {
    match config.line_mbps {
        Some(0 | LINE_MBPS_ABOVE..) => Err(DeviceError::Config(
            "line_mbps (SRD_LINE_MBPS) must be a whole number of Mb/s from 1 to 400000",
        )),
        mbps => Ok(mbps.map(|n| u64::from(n) * 1_000_000 / 8)),
    }
}

/// Creates the engine of one shard.
fn nic_open(plan: &Plan, net: Net, warnings: &mut Vec<String>) -> Result<Nic, DeviceError> {
    let mut engine = plan.engine.clone();
    engine.slot = (net.datapath.port() - engine.port_base) as u8;
    let share = share_join(plan.shares, &engine, warnings);
    engine.seals = plan.seal.is_some();
    let seal = plan.seal.as_ref().map(|(policy, path)| {
        let secrets = plan.secrets.as_ref().map(|sink| {
            let sink = Arc::clone(sink);
            Box::new(move |line: &str| (*lock(&sink))(line)) as SecretsSink
        });
        seal_open(&engine, *policy, path, secrets)
    });
    let mut seal = seal.transpose()?;
    if let Some(seal) = &mut seal {
        seal.secrets_on_request(plan.secrets_on_request);
    }
    engine.host_shared = share.is_some();
    engine.validate().map_err(DeviceError::Config)?;
    let tables = Tables::new(engine.ip);
    let feed = Arc::clone(&plan.feed);
    let tap = PathTap(Arc::clone(&feed));
    let engine =
        Engine::new(engine, randomness_from_os()?, Nic::now(), tap).map_err(DeviceError::Config)?;
    Ok(Nic::new(engine, feed, net.datapath, tables, seal, share))
}

/// Takes a slot in the host's table, if that is wanted and possible.
fn share_join(wanted: bool, engine: &EngineConfig, warnings: &mut Vec<String>) -> Option<Share> {
    let joined = wanted.then(|| Share::join(engine.ip)).transpose();
    joined.unwrap_or_else(|warning| {
        if !warnings.contains(&warning) {
            warnings.push(warning);
        }
        None
    })
}

/// Shows the device to tools. Returns a warning if that fails, unless another one has said already
/// what is wrong with the folder.
fn shown_open(nic: &mut Nic, wanted: Option<&Wanted>, policy: Option<Policy>) -> Option<String> {
    match Shown::open(wanted?, nic, policy) {
        Ok(shown) => {
            nic.status = Some(Box::new(shown));
            nic.status_write(Nic::now(), 0);
            None
        }
        Err(e) => nic.share.is_some().then(|| {
            format!(
                "`srd stat` and `srd top` do not see this process: no file in /dev/shm: {e} \
                 (SRD_STATUS=0 does without, and says nothing)"
            )
        }),
    }
}

/// Whether the device is to obey orders about paths.
fn is_controlled(config: &DeviceConfig) -> bool {
    config.path_control && config.datapath.is_none()
}

/// Opens the control file of paths, where wanted. Returns a warning if that fails.
fn paths_control_open(nic: &mut Nic, wanted: bool) -> Option<String> {
    match wanted.then(PathsControl::open)? {
        Ok(control) => {
            nic.paths = Some(Box::new(control));
            nic.paths_turn(Nic::now());
            None
        }
        // Where `/dev/shm` is missing, another warning has said so.
        Err(e) => nic
            .status
            .is_some()
            .then(|| format!("`srd paths deny` does not reach this process: {e}")),
    }
}

fn seal_open(
    engine: &EngineConfig,
    policy: Policy,
    path: &Path,
    secrets: Option<SecretsSink>,
) -> Result<Box<Sealing>, DeviceError> {
    let batch_bytes = SEALED_BATCH * (usize::from(engine.mtu) + OVERHEAD_BYTES);
    Sealing::open(engine, policy, path, batch_bytes, secrets).map(Box::new)
}

/// Opens the sockets of each shard: at the configured slot or the first free one, and at the free
/// ones after it.
fn udp_open(
    config: &mut DeviceConfig,
    shards: u16,
    warnings: &mut Vec<String>,
) -> Result<Vec<Net>, DeviceError> {
    let local = match &config.bind {
        Bind::Ip(ip) => interface::Local { ip: *ip, scope_id: interface::scope_of(*ip) },
        Bind::Interface(name) => interface::address_of(name)?,
    };
    let mut udp = UdpConfig::new(local.ip);
    udp.scope_id = local.scope_id;
    udp.port_base = config.port_base;
    udp.slot = config.slot;
    udp.paths = usize::from(config.paths);
    if let Some(list) = &config.rails {
        let rails = Rails::of(list, local.ip)?;
        (udp.rails, udp.rail_prefix_bits) = (rails.ips, rails.prefix_bits);
    }
    if let Some(tune) = config.tune_udp.take() {
        tune(&mut udp);
    }
    let mut sockets = vec![UdpDatapath::open(udp.clone()).map_err(DeviceError::Datapath)?];
    let mut slot = sockets[0].slot();
    for _ in 0..u8::MAX {
        if sockets.len() == usize::from(shards) {
            break;
        }
        slot = slot.wrapping_add(1);
        match UdpDatapath::open(UdpConfig { slot: Some(slot), ..udp.clone() }) {
            Ok(more) => sockets.push(more),
            Err(OpenError::SlotTaken { .. }) => {}
            Err(e) => return Err(DeviceError::Datapath(e)),
        }
    }
    if sockets.len() < usize::from(shards) {
        warnings.push(format!(
            "the device has {} shards instead of {shards}, because the other slots of {} are in \
             use: end programs, set shards (SRD_SHARDS) lower, or choose another port base",
            sockets.len(),
            local.ip
        ));
    }
    warnings.extend(sockets[0].rcvbuf_warning());
    let line_bytes_per_sec = line_of(&udp);
    let rails = 1 + udp.rails.len() as u8;
    let net = |datapath: UdpDatapath| {
        // The kernel also charges its overhead per packet: about half of the buffer holds data.
        let rx_budget = u32::try_from(datapath.rcvbuf_bytes() / 2).unwrap_or(u32::MAX);
        let rx_budget_bytes = Some(rx_budget);
        Net { datapath: Box::new(datapath), rx_budget_bytes, line_bytes_per_sec, rails }
    };
    Ok(sockets.into_iter().map(net).collect())
}

/// What the device's links carry together, if their drivers tell: each rail has as many paths, so
/// none carries more than the slowest.
fn line_of(udp: &UdpConfig) -> Option<u64> {
    let all = std::iter::once(udp.ip).chain(udp.rails.iter().copied());
    let slowest = all.map(route::link_bits_per_sec).min().flatten()?;
    Some(slowest / 8 * (udp.rails.len() as u64 + 1))
}

/// The slot that the datapath's port implies.
fn slot_of(datapath: &dyn Datapath, config: &DeviceConfig) -> Result<u8, DeviceError> {
    let slot = datapath.port().checked_sub(config.port_base).and_then(|s| u8::try_from(s).ok());
    match slot {
        Some(slot) if config.slot.is_none_or(|asked| asked == slot) => Ok(slot),
        _ => Err(DeviceError::Config(
            "the datapath's port must be port_base + slot, with a slot from 0 to 255",
        )),
    }
}

/// The device MTU: as requested if that fits the link.
fn mtu_of(datapath: &dyn Datapath, asked: Option<u16>) -> Result<u16, DeviceError> {
    let room = datapath.udp_payload_max().saturating_sub(OVERHEAD_BYTES);
    let link = u16::try_from(room).unwrap_or(u16::MAX);
    let mtu = asked.unwrap_or(link);
    if mtu > link || link < MTU_MIN {
        return Err(DeviceError::Mtu { asked: asked.unwrap_or(0), link });
    }
    if mtu < MTU_MIN {
        return Err(DeviceError::Config("mtu must be at least 64 bytes"));
    }
    Ok(mtu)
}

fn attr_of(engine: &EngineConfig) -> DeviceAttr {
    let mut device_caps = caps::RNR_RETRY
        | caps::CQ_NOTIFICATIONS
        | caps::CQ_WITH_SGID
        | caps::UNSOLICITED_WRITE_RECV;
    // Segments end on multiples of the MTU: only then is an aligned block of 128 bytes never split.
    if engine.mtu.is_multiple_of(128) {
        device_caps |= caps::DATA_POLLING_128;
    }
    if engine.rdma_read {
        device_caps |= caps::RDMA_READ;
    }
    if engine.rdma_write {
        device_caps |= caps::RDMA_WRITE;
    }
    DeviceAttr {
        max_sq_wr: QUEUE_DEPTH_MAX.min(engine.wrs_max),
        max_rq_wr: QUEUE_DEPTH_MAX,
        max_sq_sge: SEND_SGES_MAX as u32,
        max_rq_sge: RECV_SGES_MAX as u32,
        max_sge_rd: SEND_SGES_MAX as u32,
        inline_buf_size: INLINE_BYTES_DEFAULT,
        inline_buf_size_ex: INLINE_BYTES_MAX as u32,
        max_rdma_size: limits::RDMA_BYTES_MAX,
        device_caps,
        max_qp: limits::QPS_MAX as u32,
        max_cq: CQS_MAX as u32,
        max_cqe: CQ_DEPTH_MAX,
        max_mr_size: 1 << 46,
        max_wr: engine.wrs_max,
    }
}

fn port_of(engine: &EngineConfig, udp_port: u16) -> PortAttr {
    let mtu = u32::from(engine.mtu);
    let active_mtu = [4096, 2048, 1024, 512].into_iter().find(|&m| m <= mtu).unwrap_or(256);
    PortAttr {
        max_msg_sz: mtu,
        active_mtu,
        udp_port,
        ip: engine.ip,
        gid: gid_from_ip(engine.ip),
        paths: engine.path.paths,
        gid_tbl_len: 1,
        pkey_tbl_len: 1,
    }
}
