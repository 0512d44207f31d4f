//! Cached address handles, so that a client with many requests uses only one.

use crate::failure::Result;
use srd::{AddressHandle, ProtectionDomain};
use std::{collections::HashMap, net::IpAddr};

/// Most cached handles. Users hold references, so the cache may be cleared at any time.
const HANDLES_MAX: usize = 1024;

/// The cache: address handles by IP address.
pub struct Handles {
    pd: ProtectionDomain,
    by_ip: HashMap<IpAddr, AddressHandle>,
}

impl Handles {
    /// An empty cache.
    pub fn new(pd: ProtectionDomain) -> Self {
        Self { pd, by_ip: HashMap::new() }
    }

    /// The handle for `ip`.
    ///
    /// # Errors
    /// The device has too few resources.
    pub fn get(&mut self, ip: IpAddr) -> Result<AddressHandle> {
        if let Some(ah) = self.by_ip.get(&ip) {
            return Ok(ah.clone());
        }
        if self.by_ip.len() >= HANDLES_MAX {
            self.by_ip.clear();
        }
        let ah = self.pd.ah_create(ip)?;
        self.by_ip.insert(ip, ah.clone());
        Ok(ah)
    }
}
