//! Two hosts that send to each other.

use super::{Net, config, send_wr};
use srd_core::*;

/// Two hosts with one SRD queue pair each and address handles both ways.
pub struct Pair {
    pub net: Net,
    pub qp: [Qpn; 2],
    pub ah: [AhId; 2],
}

impl Pair {
    pub fn with(seed: u64, configs: Vec<EngineConfig>) -> Self {
        let mut net = Net::new(seed, configs);
        let now = net.now;
        let qp = [0, 1].map(|i: usize| net.hosts[i].qp(now, QpType::Srd, false));
        let to = [net.hosts[1].ip, net.hosts[0].ip];
        let ah = [0, 1].map(|i: usize| net.hosts[i].ah(now, to[i]));
        Self { net, qp, ah }
    }
    pub fn new(seed: u64) -> Self {
        Self::with(seed, vec![config(0), config(1)])
    }
    /// A pair whose context is open: one message of some bytes went from host 0 to host 1.
    pub fn opened(seed: u64, bytes: usize) -> Self {
        let mut p = Self::new(seed);
        p.net.hosts[1].recv(p.qp[1], 1, bytes as u32);
        p.send(0, 1, vec![1; bytes]).unwrap();
        assert!(p.net.run_until(Span::from_ms(50), |n| n.hosts[0].sends_done() == 1));
        p
    }
    /// Sends one batch of messages of some bytes from host 0 to host 1, and waits for them for no
    /// longer than `limit`. Their statuses.
    pub fn batch(&mut self, messages: usize, bytes: usize, limit: Span) -> Vec<Status> {
        for i in 0..messages as u64 {
            self.net.hosts[1].recv(self.qp[1], i, bytes as u32);
            self.send(0, i, vec![1; bytes]).unwrap();
        }
        self.net.run_until(limit, |n| n.hosts[0].done.len() == messages);
        let statuses = self.net.hosts[0].statuses();
        self.net.hosts[0].done.clear();
        statuses
    }
    /// Sends `n` more messages of 500 bytes from host 0 to host 1, which has receives for them: all
    /// succeed, within 150 ms.
    pub fn work(&mut self, n: usize) {
        let before = self.net.hosts[0].sends_done();
        for i in 0..n {
            self.send(0, i as u64, vec![1; 500]).unwrap();
        }
        let all = |net: &Net| net.hosts[0].sends_done() == before + n;
        let done = self.net.run_until(Span::from_ms(150), all);
        assert!(done, "{:#?}", self.net.hosts[0].engine.context_stats());
        assert!(self.net.hosts[0].statuses().iter().all(|s| *s == Status::Ok));
    }
    /// Posts `data` from host `from` to the other.
    pub fn send(
        &mut self,
        from: usize,
        wr_id: u64,
        data: Vec<u8>,
    ) -> Result<WrHandle, PostRefusal> {
        let wr = send_wr(wr_id, self.ah[from], self.qp[1 - from], data.len());
        let now = self.net.now;
        self.net.hosts[from].post(now, self.qp[from], wr, data)
    }
}
