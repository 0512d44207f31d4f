//! What an experiment asks of a rival's host: connections, messages, and their ends.

use srd_fabric::{Host, HostId, HostIo, Ps};

/// A message whose last packet is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// The tag that it was posted with.
    pub tag: u64,
    /// When the sender learnt it.
    pub at: Ps,
}

/// New payload at a receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Got {
    /// The sender.
    pub src: HostId,
    /// The sender's number of the connection.
    pub conn: u32,
    /// Bytes.
    pub bytes: u32,
}

/// Reports of a host since they were last taken.
#[derive(Clone, Debug, Default)]
pub struct Reports {
    /// Messages complete at this sender.
    pub done: Vec<Done>,
    /// Payload that has arrived at this receiver.
    pub got: Vec<Got>,
}

/// Repetitions of a host, for tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Repeats {
    /// Data packets sent again.
    pub packets: u64,
    /// Timeouts.
    pub timeouts: u64,
    /// Data packets that the receiver already had.
    pub duplicates: u64,
    /// Acknowledgments sent.
    pub acks: u64,
}

/// A host on which messages are sent over connections.
pub trait FlowHost<P>: Host<P> {
    /// Makes a connection to `dst` and returns its number.
    fn connect(&mut self, dst: HostId) -> u32;
    /// Sends a message on a connection.
    fn post(&mut self, conn: u32, tag: u64, bytes: u64, io: &mut HostIo<'_, P>);
    /// Reports since the last call.
    fn reports(&mut self) -> &mut Reports;
    /// Repetitions since the start.
    fn repeats(&self) -> Repeats;
    /// Bytes of the ends of all its connections, with their queues.
    fn state_bytes(&self) -> u64;
    /// Names and values of all counters of this host.
    fn counts(&self) -> Vec<(&'static str, u64)>;
}
