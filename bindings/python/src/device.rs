//! Devices and peers.

use crate::{
    errors::{DeviceError, device},
    path_events::PathEvents,
    queue_pair::QueuePair,
    region::Region,
};
use pyo3::prelude::*;
use srd::{AddressHandle, DeviceConfig, PeerInfo, ProtectionDomain, QKey, Qpn};
use std::net::IpAddr;

/// A device of software SRD on an address of this host, with a thread of its own.
#[pyclass(frozen, module = "srd._native")]
pub struct Device {
    device: srd::Device,
    pd: ProtectionDomain,
}

/// A queue pair of another process: where messages go to.
#[pyclass(frozen, module = "srd._native")]
pub struct Peer {
    /// Its host.
    pub ah: AddressHandle,
    /// Its number.
    pub qpn: Qpn,
    /// Its Q_Key.
    pub qkey: QKey,
}

#[pymethods]
impl Device {
    #[new]
    #[pyo3(signature = (*, ip=None, interface=None, paths=64, mtu=None, port_base=18700, slot=None,
        key_file=None, seal=None))]
    #[allow(clippy::too_many_arguments, reason = "named arguments of Python")]
    fn new(
        py: Python<'_>,
        ip: Option<&str>,
        interface: Option<&str>,
        paths: u16,
        mtu: Option<u16>,
        port_base: u16,
        slot: Option<u8>,
        key_file: Option<std::path::PathBuf>,
        seal: Option<String>,
    ) -> PyResult<Self> {
        let mut config = match (ip, interface) {
            (Some(_), Some(_)) => {
                return Err(DeviceError::new_err("give ip or interface, not both"));
            }
            (Some(ip), None) => DeviceConfig::ip(address(ip)?),
            (None, Some(name)) => DeviceConfig::interface(name),
            (None, None) => DeviceConfig::loopback(),
        };
        (config.paths, config.mtu, config.port_base, config.slot) = (paths, mtu, port_base, slot);
        config.key_file = key_file.or(config.key_file);
        config.seal = seal.or(config.seal);
        let device = py.detach(|| srd::Device::open(config)).map_err(self::device)?;
        let pd = device.pd_create().map_err(self::device)?;
        Ok(Self { device, pd })
    }

    /// The local address.
    #[getter]
    fn ip(&self) -> String {
        self.device.ip().to_string()
    }

    /// Largest message in bytes.
    #[getter]
    fn mtu(&self) -> usize {
        self.device.mtu()
    }

    /// What is slow on this host, and how to correct it.
    #[getter]
    fn warnings(&self) -> Vec<String> {
        self.device.warnings().to_vec()
    }

    /// Allocates zeroed memory of the device: a buffer of `nbytes` bytes.
    #[pyo3(signature = (nbytes, *, remote_write=false, remote_read=false))]
    fn region(&self, nbytes: usize, remote_write: bool, remote_read: bool) -> PyResult<Region> {
        Region::allocate(&self.pd, nbytes, remote_write, remote_read)
    }

    /// Registers a writable buffer, for example an array of numpy; it stays the caller's.
    #[pyo3(signature = (buffer, *, remote_write=false, remote_read=false))]
    fn register(
        &self,
        buffer: &Bound<'_, PyAny>,
        remote_write: bool,
        remote_read: bool,
    ) -> PyResult<Region> {
        Region::register(&self.pd, buffer, remote_write, remote_read)
    }

    /// Makes a queue pair with room for `depth` sends and as many receives.
    #[pyo3(signature = (*, depth=256, qkey=1))]
    fn queue_pair(&self, depth: u32, qkey: u32) -> PyResult<QueuePair> {
        QueuePair::create(&self.device, &self.pd, depth, qkey)
    }

    /// The queue pair with this `QueuePair.address`. A peer may use RDMA on regions of this device
    /// while such an object for its host exists.
    fn peer(&self, address: &str) -> PyResult<Peer> {
        let wrong = || {
            DeviceError::new_err(format!(
                "{address:?} is no address of a queue pair: give QueuePair.address of the other \
                 side, as 10.0.0.1/258/1 (IP address, number, Q_Key)"
            ))
        };
        let PeerInfo { ip, qpn, qkey } = address.parse().map_err(|_| wrong())?;
        Ok(Peer { ah: self.pd.ah_create(ip).map_err(self::device)?, qpn, qkey })
    }

    /// Subscribes to the changes of all paths of the device, from now on; a device has 16
    /// subscriptions at most. `srd.aio.path_events` is the same for asyncio.
    fn path_events(&self) -> PyResult<PathEvents> {
        PathEvents::open(&self.device)
    }

    /// Closes the device: peers learn the results of their requests first, which takes a second at
    /// most. Outstanding requests end without a completion.
    fn close(&self, py: Python<'_>) {
        py.detach(|| self.device.close());
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __exit__(&self, py: Python<'_>, _kind: Py<PyAny>, _value: Py<PyAny>, _trace: Py<PyAny>) {
        self.close(py);
    }

    fn __repr__(&self) -> String {
        format!("<Device {} slot {}>", self.device.ip(), self.device.slot())
    }
}

#[pymethods]
impl Peer {
    /// Address of its host.
    #[getter]
    fn ip(&self) -> String {
        self.ah.ip().to_string()
    }

    fn __repr__(&self) -> String {
        format!("<Peer {}/{}/{}>", self.ah.ip(), self.qpn.0, self.qkey)
    }
}

fn address(text: &str) -> PyResult<IpAddr> {
    text.parse().map_err(|_| {
        DeviceError::new_err(format!(
            "{text:?} is no IP address; `ip -br addr` lists those of this host"
        ))
    })
}
