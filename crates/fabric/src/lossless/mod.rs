//! Lossless switches: input buffers, with credits or pauses ([`pfc`]) instead of drops.
//!
//! The model is that of InfiniBand-like switches. Each link ends in an *input buffer* for each
//! lane. A packet in it waits in a *virtual output queue*, behind packets of the same input, lane
//! and output only. Inputs have infinite speedup: each free output takes a packet from any input,
//! independently of what the input sends to other outputs. [`Service`] determines the next input.
//! Switches store and forward.
//!
//! A packet leaves only when the buffer at the far end has room for it. The sender tracks the room
//! by *credits*, bytes for each lane: sending consumes them, and they return one link delay after
//! the last bit of the packet has left that buffer. So no queue overflows; a standing queue fills
//! the buffers upstream instead. Hosts empty their buffer at once.
//!
//! Buffers that wait for each other in a cycle never move again. Such a [`Deadlock`] ends the run;
//! [`crate::World::deadlock`] names the cycle. In a tree whose rings have one lane it is found with
//! the event that closes the cycle. In a network that has cycles only on detours around failed
//! links, the search is periodic: the deadlock is found within a few drain times of a buffer.
//!
//! Faults lose packets here, too: packets on a cut wire, packets queued for it, packets without a
//! route. Their room is freed at once. Control symbols (credits) are never lost.
//!
//! Flow control is decided in one place: `Lossless::room` says whether a packet may leave,
//! `Lossless::sent` and `Lossless::freed` do the accounting.

mod deadlock;
mod fault;
mod hop;
pub mod pfc;
mod register;
mod voq;

pub use deadlock::Deadlock;
pub(crate) use fault::fault_check;
pub use pfc::{Pauses, PfcConfig};
pub use register::RegisterOp;
pub(crate) use register::Registers;
use voq::Voqs;

use crate::link::Profile;
use crate::topo::{LinkId, Node, Ps, Topology, TopologyError};
use crate::tree::KaryNTree;

/// Most lanes of a link: the rings of a tree need two.
pub const LANES_MAX: u32 = 2;
/// Marks the absence of a link, flow or packet.
pub(crate) const NONE: u32 = u32::MAX;

/// Protection of switch queues against overflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum FlowControl {
    /// None: output queues drop packets that do not fit.
    #[default]
    Drop,
    /// Credits for input buffers; see the [module](self).
    Credits(CreditConfig),
    /// Pauses of links whose input buffer fills; see [`pfc`].
    Pfc(PfcConfig),
}

/// Settings of credit flow control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreditConfig {
    /// Input buffer of each link and lane in bytes; no packet may be larger.
    pub input_bytes: u64,
    /// Lanes of each link, 1 or 2.
    pub lanes: u32,
    /// Order in which an output serves waiting packets.
    pub service: Service,
}

/// The order in which an output serves waiting packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Service {
    /// One packet from each input in turn, independently of the number of its flows.
    #[default]
    RoundRobin,
    /// First come, first served.
    Fcfs,
}

/// Accounting of an input buffer. Always `free + wire + held + returning` = size of the buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Credits {
    /// Bytes that the sender may still send.
    pub free: u64,
    /// Bytes on the wire towards the buffer.
    pub wire: u64,
    /// Bytes in the buffer.
    pub held: u64,
    /// Bytes that are leaving or have left the buffer, not yet known to the sender.
    pub returning: u64,
}

impl Credits {
    /// Sum of all four, in bytes.
    pub const fn total(&self) -> u64 {
        self.free + self.wire + self.held + self.returning
    }
}

/// Position of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Place {
    /// None: the cell is free, or the host has the packet.
    #[default]
    Gone,
    /// On a wire, or being sent.
    Wire,
    /// In the input buffer, not yet routed.
    Arrived,
    /// In a virtual output queue.
    Waiting,
    /// Arrived at a host that is stalled.
    Held,
}

/// State of a packet in the switches, under the packet's number.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cell {
    pub next: u32,
    pub bytes: u32,
    pub dst: u32,
    pub hash: u32,
    /// The link on which it arrived, travels, or will leave its card.
    pub link: u32,
    /// The output for which it waits.
    pub out: u32,
    /// The flow whose circuit it follows, or [`NONE`].
    pub flow: u32,
    pub ring_hops: u16,
    pub hops: u16,
    /// Lane of `link` and of `out`.
    pub lane: u8,
    pub out_lane: u8,
    pub place: Place,
    pub last: bool,
    /// Whether it carries a register operation: see `Lossless::tags`.
    pub register: bool,
    /// Whether it took the default route because its circuit was torn down.
    pub strayed: bool,
    /// Whether the next register already includes the packet's change.
    pub counted: bool,
    /// Position in the order of arrivals.
    pub arrived: u64,
}

/// One output of a switch, or a host's card.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    pub packets: u32,
    pub bytes: u64,
    /// Time of the queued wake-up event; [`Ps::MAX`] = none.
    pub wake_at: Ps,
    /// Whether the host waits for room in this card.
    pub room_wanted: bool,
}

/// State of a lossless network.
#[derive(Clone, Debug)]
pub(crate) struct Lossless {
    pub config: CreditConfig,
    pub cells: Vec<Cell>,
    /// Register state that each packet carries.
    pub tags: Vec<register::Carried>,
    pub registers: Registers,
    outputs: Vec<Output>,
    voqs: Voqs,
    /// Input buffers, by link and lane.
    buffers: Vec<Credits>,
    arrivals: u64,
    /// Whether buffers can wait for each other in a cycle. If so, each event that may close a cycle
    /// is followed by a deadlock search.
    circles: bool,
    /// Whether a deadlock search is queued.
    watching: bool,
    watch_ps: Ps,
    /// State of priority flow control, which replaces credits.
    pub pfc: Option<pfc::Pfc>,
    pub deadlock: Option<Deadlock>,
}

impl Cell {
    /// Whether the packet waits in a switch.
    const fn waits(&self) -> bool {
        matches!(self.place, Place::Waiting) && self.link != NONE
    }
}

impl Lossless {
    /// A network with empty buffers.
    pub fn new(topo: &Topology, config: CreditConfig) -> Result<Self, TopologyError> {
        let CreditConfig { input_bytes, lanes, .. } = config;
        let fail = |text: String| Err(TopologyError::new(text));
        if lanes == 0 || lanes > LANES_MAX {
            return fail(format!("lanes = {lanes}: a link has 1 or {LANES_MAX}"));
        }
        if input_bytes == 0 || input_bytes > 1 << 40 {
            return fail(format!("input buffers of {input_bytes} bytes: give 1 to 2^40"));
        }
        let links = topo.links();
        let idle = Output { packets: 0, bytes: 0, wake_at: Ps::MAX, room_wanted: false };
        let free = Credits { free: input_bytes, ..Credits::default() };
        let slowest = (0..links).map(|l| Profile::new(*topo.port(LinkId(l))));
        let drain = slowest.map(|p| p.bytes_to_ps(input_bytes.min(1 << 20)) + 2 * p.delay_ps).max();
        Ok(Self {
            config,
            cells: Vec::new(),
            tags: Vec::new(),
            registers: Registers::new(links),
            outputs: vec![idle; links as usize],
            voqs: Voqs::new(topo, config.service, lanes),
            buffers: vec![free; (links * lanes) as usize],
            arrivals: 0,
            circles: lanes < LANES_MAX && topo.tree().is_some_and(KaryNTree::has_rings),
            watching: false,
            watch_ps: drain.unwrap_or(0).max(1) * deadlock::WATCH_DRAINS,
            pfc: None,
            deadlock: None,
        })
    }

    /// A network with empty buffers whose links are paused when a buffer fills.
    pub fn with_pfc(topo: &Topology, config: PfcConfig) -> Result<Self, TopologyError> {
        let pfc = pfc::Pfc::new(topo, config)?;
        let slowest = (0..topo.links()).map(|l| Profile::new(*topo.port(LinkId(l))));
        let drain = slowest.map(|p| p.bytes_to_ps(config.xoff_bytes) + 2 * p.delay_ps).max();
        let watch_ps = drain.unwrap_or(0).max(1).saturating_mul(deadlock::WATCH_DRAINS);
        Ok(Self { pfc: Some(pfc), watch_ps, circles: false, ..Self::new(topo, config.credits())? })
    }

    /// Largest packet in bytes.
    pub fn packet_bytes_max(&self) -> u64 {
        self.pfc.as_ref().map_or(self.config.input_bytes, |p| p.packet_bytes().into())
    }

    /// Whether the sender of a link is paused.
    fn paused(&self, link: u32) -> bool {
        self.pfc.as_ref().is_some_and(|p| p.paused(link))
    }

    const fn buffer(&self, link: u32, lane: u8) -> usize {
        link as usize * self.config.lanes as usize + lane as usize
    }

    /// Accounting of the buffer at the end of a link.
    pub fn credits(&self, link: u32, lane: u8) -> Credits {
        self.buffers[self.buffer(link, lane)]
    }

    /// Bytes queued for a link.
    pub fn waiting_bytes(&self, link: u32) -> u64 {
        self.outputs[link as usize].bytes
    }

    /// Whether the far end of a link has room for a packet.
    fn room(&self, link: u32, lane: u8, bytes: u32) -> bool {
        self.buffers[self.buffer(link, lane)].free >= u64::from(bytes)
    }

    /// Accounts for a packet that leaves on a link.
    fn sent(&mut self, link: u32, lane: u8, bytes: u32) {
        let at = self.buffer(link, lane);
        self.buffers[at].free -= u64::from(bytes);
        self.buffers[at].wire += u64::from(bytes);
    }

    /// Accounts for its arrival at the far end.
    fn landed(&mut self, link: u32, lane: u8, bytes: u32) {
        let at = self.buffer(link, lane);
        self.buffers[at].wire -= u64::from(bytes);
        self.buffers[at].held += u64::from(bytes);
    }

    /// Whether the buffers at the end of a link are stuck: they hold packets, none is arriving, and
    /// no credit is returning. Their packets may wait forever.
    fn still(&self, link: u32) -> bool {
        let first = self.buffer(link, 0);
        let lanes = &self.buffers[first..first + self.config.lanes as usize];
        lanes.iter().any(|b| b.held > 0 && b.wire == 0 && b.returning == 0)
    }

    /// Accounts for a packet that leaves the buffer; the sender does not know yet.
    fn leaves(&mut self, link: u32, lane: u8, bytes: u32) {
        let at = self.buffer(link, lane);
        self.buffers[at].held -= u64::from(bytes);
        self.buffers[at].returning += u64::from(bytes);
    }

    /// Returns the credit to the sender.
    fn freed(&mut self, link: u32, lane: u8, bytes: u32) {
        let at = self.buffer(link, lane);
        self.buffers[at].returning -= u64::from(bytes);
        self.buffers[at].free += u64::from(bytes);
    }

    /// Returns the room of a packet that is lost on the wire.
    fn lost(&mut self, link: u32, lane: u8, bytes: u32) {
        let at = self.buffer(link, lane);
        self.buffers[at].wire -= u64::from(bytes);
        self.buffers[at].free += u64::from(bytes);
    }

    /// Puts a packet into its virtual output queue.
    fn queue(&mut self, packet: u32) {
        self.arrivals += 1;
        let cell = &mut self.cells[packet as usize];
        (cell.place, cell.arrived, cell.next) = (Place::Waiting, self.arrivals, NONE);
        let output = &mut self.outputs[cell.out as usize];
        output.packets += 1;
        output.bytes += u64::from(cell.bytes);
        self.voqs.push(&mut self.cells, packet);
    }

    /// Takes the packet that an output sends next, if any may leave.
    fn pick(&mut self, out: u32) -> Option<u32> {
        let lanes = self.config.lanes as usize;
        let buffers = &self.buffers[out as usize * lanes..][..lanes];
        let fits = |c: &Cell| buffers[c.out_lane as usize].free >= u64::from(c.bytes);
        let packet = self.voqs.pick(&mut self.cells, out, fits)?;
        self.output_less(out, self.cells[packet as usize].bytes);
        Some(packet)
    }

    fn output_less(&mut self, out: u32, bytes: u32) {
        let output = &mut self.outputs[out as usize];
        output.packets -= 1;
        output.bytes -= u64::from(bytes);
    }

    /// Compares the accounting with the packets themselves.
    pub fn check(&self) -> Result<(), String> {
        let mut counted = vec![(0, 0); self.buffers.len()];
        let mut waiting = vec![(0, 0); self.outputs.len()];
        for cell in &self.cells {
            if cell.place == Place::Waiting {
                let (packets, bytes) = &mut waiting[cell.out as usize];
                *packets += 1;
                *bytes += u64::from(cell.bytes);
            }
            if cell.link == NONE {
                continue;
            }
            let (wire, held) = &mut counted[self.buffer(cell.link, cell.lane)];
            match cell.place {
                Place::Gone => {}
                Place::Wire => *wire += u64::from(cell.bytes),
                Place::Arrived | Place::Waiting | Place::Held => *held += u64::from(cell.bytes),
            }
        }
        for (i, (books, counted)) in self.buffers.iter().zip(counted).enumerate() {
            let (link, lane) = (i as u32 / self.config.lanes, i as u32 % self.config.lanes);
            if books.total() != self.config.input_bytes || (books.wire, books.held) != counted {
                return Err(format!(
                    "link {link}, lane {lane}: {books:?} of {} bytes; packets: {} on the wire, {} \
                     in the buffer",
                    self.config.input_bytes, counted.0, counted.1
                ));
            }
        }
        for (i, (output, counted)) in self.outputs.iter().zip(waiting).enumerate() {
            if (output.packets, output.bytes) != counted {
                return Err(format!("output {i}: {output:?}; packets: {counted:?}"));
            }
        }
        Ok(())
    }
}

/// Whether a link ends at a switch.
fn ends_at_switch(topo: &Topology, link: LinkId) -> bool {
    matches!(topo.to(link), Node::Switch(_))
}
