//! A server: one SRD host, or several that share its address and card like processes.

use crate::host::{Remote, SrdHost};
use crate::observe::{Counted, Resent};
use crate::packet::LabPacket;
use crate::prefetch::prefetch;
use srd_fabric::{Delivered, Host, HostId, HostIo, Ps};

/// Position of the process index in a call's token; the round is above, the flow's number below.
const PROCESS_SHIFT: u32 = 24;
const PROCESS_MASK: u64 = 0xff << PROCESS_SHIFT;

/// Processes of one host, each with its own engine.
pub struct SrdServer {
    first: SrdHost,
    more: Vec<SrdHost>,
    /// Due time of each process' timer; `Ps::MAX` = none.
    due: Vec<Ps>,
    /// The process that is served first when the card has room.
    turn: usize,
    /// UDP port of the first process.
    port: u16,
}

impl SrdServer {
    /// A server of 1 to 256 processes.
    pub fn new(processes: Vec<SrdHost>) -> Self {
        let port = processes[0].engine().config().port_base;
        let due = vec![Ps::MAX; processes.len()];
        let sharing = processes.len() as u64;
        let mut processes = processes.into_iter().map(|p| p.ring_shared(sharing));
        let first = processes.next().expect("there is at least one");
        Self { first, more: processes.collect(), due, turn: 0, port }
    }

    /// All processes.
    pub fn processes(&self) -> impl Iterator<Item = &SrdHost> {
        std::iter::once(&self.first).chain(&self.more)
    }

    fn process(&mut self, k: usize) -> &mut SrdHost {
        if k == 0 { &mut self.first } else { &mut self.more[k - 1] }
    }

    /// Prepares process `k` to receive from `from`.
    ///
    /// # Errors
    /// If its engine's tables are full.
    pub fn receive_from(&mut self, k: usize, from: HostId) -> Result<Remote, String> {
        self.process(k).receive_from(from)
    }

    /// Adds a flow to process `k`; returns the token that starts it.
    ///
    /// # Errors
    /// If its engine's tables are full.
    pub fn flow_add(
        &mut self,
        k: usize,
        flow: u32,
        dst: HostId,
        bytes: u64,
        remote: Remote,
    ) -> Result<u64, String> {
        let token = self.process(k).flow_add(flow, dst, bytes, remote)?;
        if token >= 1 << PROCESS_SHIFT {
            return Err(format!("a process has at most {} flows", 1 << PROCESS_SHIFT));
        }
        Ok(token | (k as u64) << PROCESS_SHIFT)
    }

    /// Calls one process and keeps its timer separate from the others'.
    fn act(
        &mut self,
        k: usize,
        io: &mut HostIo<'_, LabPacket>,
        act: impl FnOnce(&mut SrdHost, &mut HostIo<'_, LabPacket>),
    ) {
        act(self.process(k), io);
        self.due[k] = io.timer();
        match self.due.iter().min() {
            Some(&at) if at < Ps::MAX => io.timer_set(at),
            _ => io.timer_clear(),
        }
    }
}

impl Counted for SrdServer {
    fn resent(&self) -> Resent {
        self.processes().map(Counted::resent).fold(Resent::default(), Resent::plus)
    }
    fn path_packets(&self, sum: &mut Vec<u64>) {
        self.processes().for_each(|p| p.path_packets(sum));
    }
}

impl Host<LabPacket> for SrdServer {
    fn look_ahead(&self) {
        self.first.engine().ahead(prefetch);
    }

    #[inline]
    fn fetch(at: *const u8, bytes: usize) {
        prefetch(at, bytes);
    }

    fn on_packet(&mut self, now: Ps, p: Delivered<LabPacket>, io: &mut HostIo<'_, LabPacket>) {
        if self.more.is_empty() {
            return self.first.on_packet(now, p, io);
        }
        // A packet for a port without process is dropped, as a kernel does.
        let k = usize::from(p.dport.wrapping_sub(self.port));
        if k < self.due.len() {
            self.act(k, io, |host, io| host.on_packet(now, p, io));
        }
    }

    fn on_ring(&mut self, now: Ps, io: &mut HostIo<'_, LabPacket>) {
        if self.more.is_empty() {
            return self.first.on_ring(now, io);
        }
        for k in 0..self.due.len() {
            self.act(k, io, |host, io| host.on_ring(now, io));
        }
    }

    fn on_timer(&mut self, now: Ps, io: &mut HostIo<'_, LabPacket>) {
        if self.more.is_empty() {
            return self.first.on_timer(now, io);
        }
        let n = self.due.len();
        let start = self.turn;
        for k in (start..start + n).map(|k| k % n) {
            if self.due[k] <= now {
                let before = io.nic_backlog_bytes();
                self.act(k, io, |host, io| host.on_timer(now, io));
                if io.nic_backlog_bytes() > before {
                    self.turn = (k + 1) % n;
                }
            }
        }
        // The last process set the host's timer without regard to the earlier ones.
        if let Some(&at) = self.due.iter().min().filter(|at| **at < Ps::MAX) {
            io.timer_set(at);
        }
    }

    fn on_call(&mut self, now: Ps, token: u64, io: &mut HostIo<'_, LabPacket>) {
        let k = ((token & PROCESS_MASK) >> PROCESS_SHIFT) as usize;
        let token = token & !PROCESS_MASK;
        if self.more.is_empty() {
            return self.first.on_call(now, token, io);
        }
        self.act(k, io, |host, io| host.on_call(now, token, io));
    }
}
