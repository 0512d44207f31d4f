//! Reports a peer once on standard error if it never answers, is the process itself, or can only be
//! reached with smaller packets: a program's own report of the error (MPI: "internal error") does
//! not say what to do.

use crate::{refused, settings::warn};
use srd::{AsyncEvent, Endpoint};
use std::{
    collections::BTreeSet,
    net::IpAddr,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

/// Most peers reported.
const NAMED_MAX: usize = 8;
/// UDP ports used by the engines of a host.
const PORTS: u16 = 256;

/// Peers reported so far.
#[derive(Default)]
pub(crate) struct Silent {
    told: Mutex<BTreeSet<(IpAddr, u16)>>,
    /// Addresses reported for smaller packets.
    narrow: Mutex<BTreeSet<IpAddr>>,
    /// A peer has refused this process, because they do not agree on sealing.
    refused: AtomicBool,
}

impl Silent {
    /// Reports an event that requires action, unless its peer was already reported.
    pub(crate) fn watch(&self, event: &AsyncEvent, port_base: u16, seconds: u64) {
        let text = match event {
            AsyncEvent::PeerUnreachable(peer) => self.silent(*peer, port_base, seconds),
            AsyncEvent::PeerIsSelf(peer) => self.own(*peer),
            AsyncEvent::PathMtu { ip, payload_max } => self.narrow(*ip, *payload_max),
            AsyncEvent::SealRefused { peer, .. } => self.seal(*peer, event),
            event => event.seal_text(),
        };
        if let Some(text) = text {
            warn(&text);
        }
        match event {
            AsyncEvent::SealRefused { .. } => self.refused.store(true, Ordering::Relaxed),
            AsyncEvent::PeerUnreachable(_) if self.refused.swap(false, Ordering::Relaxed) => {
                refused::end_soon();
            }
            _ => {}
        }
    }

    /// Registers the peer; an error if it is not to be reported, with a final line if there is one.
    fn name(&self, peer: Endpoint) -> Result<(), Option<String>> {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.len() > NAMED_MAX || !told.insert((peer.ip, peer.port)) {
            return Err(None);
        }
        if told.len() > NAMED_MAX {
            return Err(Some("more peers cannot be reached; they are not listed".to_owned()));
        }
        Ok(())
    }

    fn seal(&self, peer: Endpoint, event: &AsyncEvent) -> Option<String> {
        self.name(peer).map_or_else(|instead| instead, |()| event.seal_text())
    }

    fn own(&self, peer: Endpoint) -> Option<String> {
        if let Err(instead) = self.name(peer) {
            return instead;
        }
        let (ip, port) = (peer.ip, peer.port);
        Some(format!(
            "{ip}, UDP port {port}, is this process itself, and it refused a request sent to that \
             address; if another process was meant, it has ended and this process has taken \
             over its port: use the current address of the peer, or restart the whole job"
        ))
    }

    /// Only the first change of an address, which is to smaller packets, is reported.
    fn narrow(&self, ip: IpAddr, payload_max: u16) -> Option<String> {
        let mut told = self.narrow.lock().unwrap_or_else(PoisonError::into_inner);
        if told.len() >= NAMED_MAX || !told.insert(ip) {
            return None;
        }
        Some(format!(
            "packets to {ip} are now limited to {payload_max} bytes of payload, because larger \
             ones do not pass the path or the local link; longer messages end with status 6; \
             correct the MTU of the path (larger packets are probed from time to time), or \
             restart the job with SRD_MTU={payload_max} on all hosts"
        ))
    }

    fn silent(&self, peer: Endpoint, port_base: u16, seconds: u64) -> Option<String> {
        if let Err(instead) = self.name(peer) {
            return instead;
        }
        let (ip, port, last) = (peer.ip, peer.port, port_base.saturating_add(PORTS - 1));
        Some(format!(
            "{ip}, UDP port {port}, did not answer within {seconds} s (smaller packets were tried, \
             too); requests to it end with status 15; either its program has ended, or UDP \
             ports {port_base} to {last} are blocked, or it uses another SRD_PORT_BASE: to find \
             out, run `srd serve --ip {ip}` on that host and `srd doctor {ip}` on this one"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use srd::QKey;

    #[test]
    fn each_peer_is_told_of_once_and_not_too_many() {
        let silent = Silent::default();
        let peer = |n: u8| Endpoint { ip: IpAddr::from([10, 0, 0, n]), port: 20_003 };
        let text = silent.silent(peer(1), 20_000, 20).unwrap();
        for word in ["10.0.0.1", "20003", "20 s", "20000 to 20255", "srd doctor 10.0.0.1"] {
            assert!(text.contains(word), "{word}: {text}");
        }
        assert!(!text.contains('\n'), "one line");
        let own = Silent::default().own(peer(1)).unwrap();
        assert!(own.contains("10.0.0.1, UDP port 20003, is this process itself"), "{own}");
        assert_eq!(silent.silent(peer(1), 20_000, 20), None);
        let text = silent.narrow(peer(1).ip, 1280).unwrap();
        assert!(text.contains("to 10.0.0.1 ") && text.contains("SRD_MTU=1280"), "{text}");
        assert_eq!(silent.narrow(peer(1).ip, 8832), None);
        let narrow = (2..100).filter_map(|n| silent.narrow(peer(n).ip, 1280)).count();
        assert_eq!(narrow, NAMED_MAX - 1, "and the one before");
        let named = (2..100).filter_map(|n| silent.silent(peer(n), 20_000, 20)).count();
        assert_eq!(named, NAMED_MAX, "with the line that says that there are more");
    }

    #[test]
    fn a_device_tells_of_a_peer_that_is_not_there() {
        use std::sync::{Arc, Mutex};
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (saw, mut config) = (Arc::clone(&seen), srd::DeviceConfig::loopback());
        config.tune = Some(Box::new(|e| e.loss.unreachable_after = srd::Span::from_ms(50)));
        config.watch = Some(Box::new(move |event| saw.lock().unwrap().push(*event)));
        let device = srd::Device::open(config).unwrap();
        let (pd, cq) = (device.pd_create().unwrap(), device.cq_create(8).unwrap());
        let qp = pd.qp_create(&srd::QpInit::srd(&cq, &cq)).unwrap();
        qp.activate(QKey(1)).unwrap();
        let nowhere = pd.ah_create([127, 99, 98, 97].into()).unwrap();
        qp.post_send(&srd::SendWr::send(1, &nowhere, srd::Qpn(0xff00), QKey(1))).unwrap();
        let wc = cq.wait(std::time::Duration::from_secs(60)).unwrap().expect("an end");
        assert!(!wc.is_ok());
        let told = seen.lock().unwrap().iter().any(
            |e| matches!(e, AsyncEvent::PeerUnreachable(p) if p.ip.to_string() == "127.99.98.97"),
        );
        assert!(told, "{:?}", seen.lock().unwrap());
    }
}
