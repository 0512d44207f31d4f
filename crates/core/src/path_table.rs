//! One path-and-rate context per remote address, shared by all reliability contexts to it.

use crate::context::Keyed;
use crate::path::PathContext;
use crate::rng::Rng;
use core::net::IpAddr;
use std::collections::HashMap;

/// See the module.
#[derive(Debug)]
pub(crate) struct PathEntry {
    pub ip: IpAddr,
    pub ctx: PathContext,
    /// Reliability contexts that use it.
    pub contexts: u32,
    /// Those of them with window state.
    pub active: u32,
    /// Contexts parked until inflight is freed.
    pub waiters: Vec<u32>,
    /// The context that sent last: it carries the probes.
    pub carrier: u32,
    /// Credit units that all contexts to the address were granted so far (wraps).
    pub credit_total: u32,
}

/// See the module. Strangers choose their addresses, so the hash is keyed.
#[derive(Debug)]
pub(crate) struct PathTable {
    slots: Vec<Option<PathEntry>>,
    free: Vec<u32>,
    by_ip: HashMap<IpAddr, u32, Keyed>,
}

impl PathTable {
    pub fn new(rng: &mut Rng) -> Self {
        let by_ip = HashMap::with_hasher(Keyed::draw(rng));
        Self { slots: Vec::new(), free: Vec::new(), by_ip }
    }
    pub fn by_ip(&self, ip: &IpAddr) -> Option<u32> {
        self.by_ip.get(ip).copied()
    }
    pub fn insert(&mut self, ip: IpAddr, ctx: PathContext) -> u32 {
        let waiters = Vec::new();
        let entry =
            PathEntry { ip, ctx, contexts: 0, active: 0, waiters, carrier: 0, credit_total: 0 };
        let i = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() as u32 - 1
        });
        self.slots[i as usize] = Some(entry);
        self.by_ip.insert(ip, i);
        i
    }
    pub fn remove(&mut self, i: u32) {
        if let Some(e) = self.slots[i as usize].take() {
            self.by_ip.remove(&e.ip);
            self.free.push(i);
        }
    }
    pub fn get(&self, i: u32) -> &PathEntry {
        self.slots[i as usize].as_ref().expect("only live path contexts are referred to")
    }
    pub fn get_mut(&mut self, i: u32) -> &mut PathEntry {
        self.slots[i as usize].as_mut().expect("only live path contexts are referred to")
    }
    pub fn find_mut(&mut self, i: u32) -> Option<&mut PathEntry> {
        self.slots.get_mut(i as usize)?.as_mut()
    }
}
