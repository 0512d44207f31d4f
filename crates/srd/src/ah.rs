//! Address handles: remote hosts by address.

use crate::{Error, ProtectionDomain, nic::Nic};
use srd_core::AhId;
use std::{net::IpAddr, sync::Arc};

/// A remote host that requests can be sent to. Cheap to clone.
///
/// When the last handle is dropped, outstanding requests through it end with status 4
/// ([`Status::LocalInvalidAh`](crate::Status::LocalInvalidAh)): keep one until they have completed.
#[derive(Clone, Debug)]
pub struct AddressHandle(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    pd: ProtectionDomain,
    id: AhId,
    ip: IpAddr,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.pd.device().destroy_on_all(|shard, nic| {
            let now = Nic::now();
            nic.take_posts(shard, now);
            let _ = nic.engine.ah_destroy(now, self.id);
            nic.deliver(shard);
        });
    }
}

impl AddressHandle {
    pub(crate) fn create(pd: &ProtectionDomain, ip: IpAddr) -> Result<Self, Error> {
        let ip = ip.to_canonical();
        if ip.is_ipv4() != pd.device().ip().is_ipv4() {
            return Err(Error::Invalid(
                "the address and the device's differ in family (IPv4, IPv6)",
            ));
        }
        if ip.is_unspecified() || ip.is_multicast() {
            return Err(Error::Invalid("the address must be that of one host"));
        }
        // Every shard needs it: peers whose RDMA it permits may use any of them.
        let create = |nic: &mut Nic, chosen: Option<AhId>| {
            let created = match chosen {
                None => nic.engine.ah_create(Nic::now(), pd.id(), ip),
                Some(id) => nic.engine.ah_create_as(pd.id(), ip, id).map(|()| id),
            };
            created.map_err(|e| Error::from_core(e, "address handle"))
        };
        let destroy = |nic: &mut Nic, id| {
            let _ = nic.engine.ah_destroy(Nic::now(), id);
        };
        let id = pd.device().create_on_all(create, destroy)?;
        Ok(Self(Arc::new(Inner { pd: pd.clone(), id, ip })))
    }

    /// Its number; completions of receives name the sender by it.
    pub fn id(&self) -> AhId {
        self.0.id
    }

    /// The remote address.
    pub fn ip(&self) -> IpAddr {
        self.0.ip
    }

    /// The remote address as a GID.
    pub fn gid(&self) -> [u8; 16] {
        crate::gid_from_ip(self.0.ip)
    }

    /// Its protection domain.
    pub fn pd(&self) -> &ProtectionDomain {
        &self.0.pd
    }
}
