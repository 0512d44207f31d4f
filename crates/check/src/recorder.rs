//! Records events inside an engine, and checks the choice of paths.

use rustc_hash::FxHashMap;
use srd_core::config::PathPolicy;
use srd_core::events::{Event, Observer};
use srd_core::wire::Verdict;
use srd_core::{ContextId, Endpoint, EngineConfig, PathMask, Psn, Time};
use std::net::IpAddr;

/// State of the paths to one address.
#[derive(Debug, Default)]
struct Paths {
    /// Contexts with engines there; the paths are forgotten with the last one.
    contexts: u32,
    /// Retired paths.
    retired: PathMask,
    /// Paths that an operator denied; none is in both sets.
    denied: PathMask,
}

impl Paths {
    fn is_retired(&self, path: u8) -> bool {
        self.retired.has(path)
    }

    fn set(&mut self, path: u8, to: &str) {
        self.retired.put(path, matches!(to, "retired" | "probing"));
        self.denied.put(path, to == "denied");
    }

    fn out(&self) -> u32 {
        u32::from(self.retired.len())
    }
}

/// Records internal events for the oracles.
#[derive(Debug, Default)]
pub struct Recorder {
    /// Whether to keep every event as text, too.
    verbose: bool,
    /// Verdict on the packet just handled: context, PSN, verdict.
    pub judged: Option<(ContextId, Psn, Verdict)>,
    /// Whether there was a second verdict within one call.
    pub judged_twice: bool,
    /// Contexts that changed state: peer, old state, new state.
    pub moves: Vec<(Endpoint, &'static str, &'static str)>,
    /// Events as text.
    pub lines: Vec<String>,
    /// Number of paths, of paths that must stay in use, and whether the policy observes path
    /// health.
    paths_all: u32,
    paths_least: u32,
    heeds_health: bool,
    spreads: bool,
    paths: FxHashMap<IpAddr, Paths>,
    peers: FxHashMap<ContextId, IpAddr>,
    /// Path of each lost packet not yet retransmitted, by context and PSN.
    lost_on: FxHashMap<(ContextId, Psn), u8>,
    /// Address whose path was retired last.
    path_last: Option<IpAddr>,
    path_wrong: Option<String>,
}

impl Recorder {
    /// A recorder for an engine of this configuration.
    pub fn new(cfg: &EngineConfig, verbose: bool) -> Self {
        let policy = cfg.path.policy;
        Self {
            verbose,
            paths_all: u32::from(cfg.path.paths),
            paths_least: u32::from(cfg.path.live_min),
            heeds_health: matches!(policy, PathPolicy::Srd | PathPolicy::RttP2c),
            spreads: policy != PathPolicy::Ecmp,
            ..Self::default()
        }
    }

    fn wrong(&mut self, what: impl FnOnce() -> String) {
        self.path_wrong.get_or_insert_with(what);
    }

    /// Forgets the paths with the last context to their address.
    fn context(&mut self, ctx: ContextId, ip: IpAddr, from: &'static str, to: &'static str) {
        let paths = self.paths.entry(ip).or_default();
        if from.is_empty() {
            self.peers.insert(ctx, ip);
            paths.contexts += 1;
        }
        if to == "Closed" {
            paths.contexts = paths.contexts.saturating_sub(1);
            if paths.contexts == 0 {
                self.paths.remove(&ip);
            }
            self.lost_on.retain(|at, _| at.0 != ctx);
        }
    }

    fn path(&mut self, ip: IpAddr, path: u8, to: &str) {
        self.paths.entry(ip).or_default().set(path, to);
        self.path_last = (to != "live").then_some(ip);
    }

    /// Checks at the end of a call that enough paths are in use; returns the first violation.
    pub fn paths_check(&mut self) -> Option<String> {
        if let Some(ip) = self.path_last.take()
            && let Some(paths) = self.paths.get(&ip)
        {
            let allowed = self.paths_all.saturating_sub(paths.denied.len().into());
            let left = allowed.saturating_sub(paths.out());
            if left < self.paths_least.min(allowed) {
                self.wrong(|| format!("{left} paths to {ip} remain in use"));
            }
        }
        self.path_wrong.take()
    }

    /// No packet may take a retired path; a retransmission takes another path than the loss, if
    /// there is one.
    fn sent(&mut self, ctx: ContextId, psn: Psn, path: u8) {
        let lost_on = self.lost_on.remove(&(ctx, psn));
        let Some(paths) = self.peers.get(&ctx).and_then(|ip| self.paths.get(ip)) else { return };
        let (out, retired) = (paths.out(), paths.is_retired(path));
        let allowed = self.paths_all - u32::from(paths.denied.len());
        if self.heeds_health && retired {
            self.wrong(|| format!("psn {} takes path {path}, which is retired", psn.0));
        }
        let choice = allowed - if self.heeds_health { out } else { 0 };
        if self.spreads && choice > 1 && lost_on == Some(path) {
            self.wrong(|| format!("psn {} takes path {path}, on which it was lost", psn.0));
        }
    }
}

impl Observer for Recorder {
    fn event(&mut self, _: Time, e: Event) {
        match e {
            Event::Judged { ctx, psn, verdict } => {
                self.judged_twice |= self.judged.replace((ctx, psn, verdict)).is_some();
            }
            Event::Context { ctx, peer, from, to } => {
                self.moves.push((peer, from, to));
                self.context(ctx, peer.ip, from, to);
            }
            Event::Forgotten { peer, .. } => self.moves.push((peer, "Open", "Forgotten")),
            Event::Path { ip, path, to, .. } => self.path(ip, path, to),
            Event::Sent { ctx, psn, path, .. } => self.sent(ctx, psn, path),
            Event::Lost { ctx, psn, path, .. } => {
                self.lost_on.insert((ctx, psn), path);
            }
            Event::Acked { ctx, psn } => {
                self.lost_on.remove(&(ctx, psn));
            }
            _ => {}
        }
        if self.verbose && !matches!(e, Event::Rate { .. } | Event::Rtt { .. }) {
            self.lines.push(format!("{e:?}"));
        }
    }
}
