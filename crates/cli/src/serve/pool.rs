//! Address handles by address, so that a busy client costs one.

use crate::failure::Result;
use srd::{AddressHandle, ProtectionDomain};
use std::{collections::HashMap, net::IpAddr};

/// Handles kept at most. Whatever uses one holds it, so all may be forgotten at any time.
const HANDLES_MAX: usize = 1024;

/// Address handles by address.
pub struct Handles {
    pd: ProtectionDomain,
    by_ip: HashMap<IpAddr, AddressHandle>,
}

impl Handles {
    /// None yet.
    pub fn new(pd: ProtectionDomain) -> Self {
        Self { pd, by_ip: HashMap::new() }
    }

    /// The handle for `ip`.
    ///
    /// # Errors
    /// The device has no room.
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
