//! What two programs tell each other before they can exchange messages, as text.

use crate::{MemoryRegion, QKey, QueuePair, RKey};
use srd_core::Qpn;
use std::{fmt, net::IpAddr, str::FromStr};

/// What a peer needs to reach a queue pair. As text it is `10.0.0.1/258/1`: IP address, number and
/// Q_Key, which any rendezvous can carry (a file, a socket, MPI, a command line), and which the
/// Python module has as `QueuePair.address`.
///
/// ```
/// use srd::{PeerInfo, QKey};
///
/// let there: PeerInfo = "10.0.0.2/513/1".parse().unwrap();
/// assert_eq!((there.qpn.0, there.qkey), (513, QKey(1)));
/// assert_eq!(there.to_string(), "10.0.0.2/513/1");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PeerInfo {
    /// Address of its device.
    pub ip: IpAddr,
    /// Its number.
    pub qpn: Qpn,
    /// The Q_Key with which it was activated.
    pub qkey: QKey,
}

impl PeerInfo {
    /// That of a queue pair, which gets this Q_Key when it is activated.
    pub fn of(qp: &QueuePair, qkey: QKey) -> Self {
        Self { ip: qp.device().ip(), qpn: qp.qpn(), qkey }
    }
}

impl fmt::Display for PeerInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.ip, self.qpn.0, self.qkey)
    }
}

impl FromStr for PeerInfo {
    type Err = PeerInfoError;

    fn from_str(text: &str) -> Result<Self, PeerInfoError> {
        let wrong = || PeerInfoError { text: text.chars().take(80).collect(), memory: false };
        let [ip, qpn, qkey] = parts(text).ok_or_else(wrong)?;
        Ok(Self {
            ip: ip.parse().map_err(|_| wrong())?,
            qpn: Qpn(qpn.parse().map_err(|_| wrong())?),
            qkey: QKey(qkey.parse().map_err(|_| wrong())?),
        })
    }
}

/// What a peer needs for RDMA on a region. As text it is `140321/7/4096`: address, remote key and
/// bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RemoteMemory {
    /// Address of its first byte, in the process that owns it.
    pub addr: u64,
    /// Its remote key.
    pub rkey: RKey,
    /// Its length in bytes.
    pub bytes: u64,
}

impl RemoteMemory {
    /// That of a region.
    pub fn of(region: &MemoryRegion) -> Self {
        Self { addr: region.addr(), rkey: region.rkey(), bytes: region.len() as u64 }
    }
}

impl fmt::Display for RemoteMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.addr, self.rkey, self.bytes)
    }
}

impl FromStr for RemoteMemory {
    type Err = PeerInfoError;

    fn from_str(text: &str) -> Result<Self, PeerInfoError> {
        let wrong = || PeerInfoError { text: text.chars().take(80).collect(), memory: true };
        let [addr, rkey, bytes] = parts(text).ok_or_else(wrong)?;
        Ok(Self {
            addr: addr.parse().map_err(|_| wrong())?,
            rkey: RKey(rkey.parse().map_err(|_| wrong())?),
            bytes: bytes.parse().map_err(|_| wrong())?,
        })
    }
}

/// The three parts of a text, without white space around it.
fn parts(text: &str) -> Option<[&str; 3]> {
    let mut parts = text.trim().split('/');
    let three = [parts.next()?, parts.next()?, parts.next()?];
    parts.next().is_none().then_some(three)
}

/// A text that is no [`PeerInfo`], or no [`RemoteMemory`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerInfoError {
    text: String,
    memory: bool,
}

impl fmt::Display for PeerInfoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.memory {
            false => {
                "queue pair: give the text of its PeerInfo, as 10.0.0.1/258/1 (IP address, \
                      number, Q_Key)"
            }
            true => {
                "region: give the text of its RemoteMemory, as 140321/7/4096 (address, remote \
                     key, bytes)"
            }
        };
        write!(f, "{:?} is no {what}", self.text)
    }
}

impl std::error::Error for PeerInfoError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_come_back_as_they_were_and_others_are_refused_with_an_example() {
        for text in ["10.0.0.1/258/1", "fd00::1/0/4294967295", "0.0.0.0/65535/0"] {
            assert_eq!(text.parse::<PeerInfo>().unwrap().to_string(), text);
            assert!(format!(" {text}\n").parse::<PeerInfo>().is_ok());
        }
        let memory = "18446744073709551615/4294967295/0";
        assert_eq!(memory.parse::<RemoteMemory>().unwrap().to_string(), memory);
        let long = "9".repeat(1 << 20);
        for text in ["", "10.0.0.1", "10.0.0.1/1/1/1", "a/1/1", "10.0.0.1/65536/1", "1/-1/1", &long]
        {
            let error = text.parse::<PeerInfo>().unwrap_err().to_string();
            assert!(error.contains("as 10.0.0.1/258/1") && error.len() < 300, "{error}");
            let error = text.parse::<RemoteMemory>().unwrap_err().to_string();
            assert!(error.contains("as 140321/7/4096"), "{error}");
        }
    }
}
