//! Faults in a lossless network.

use crate::event::{ARRIVE_CREDITED, Event, ROOM};
use crate::fault::{Effect, Fault, FaultError};
use crate::link::CHOSEN;
use crate::net::Net;
use crate::stats::DropReason;
use crate::topo::LinkId;

/// Refuses faults that have no meaning in a network without queue drops.
pub(crate) fn fault_check(fault: &Fault) -> Result<(), FaultError> {
    let refuse = |what: &str| {
        Err(FaultError::new(format!(
            "{what}: not possible with credits, which promise room to every packet; use \
             flow_control = \"drop\""
        )))
    };
    match fault {
        Fault::Buffer { bytes: Some(_), .. } => refuse("another buffer size"),
        Fault::Impair { effect: Effect::Duplicate { prob, .. }, .. } if *prob > 0.0 => {
            refuse("duplicated packets")
        }
        Fault::Impair { effect: Effect::Delay { prob, .. }, .. } if *prob > 0.0 => {
            refuse("delayed packets")
        }
        _ => Ok(()),
    }
}

impl<P> Net<P> {
    /// Drops every packet that waits for these links or is on their wires.
    pub fn credited_cut(&mut self, links: &[LinkId]) {
        for link in links {
            self.links[link.0 as usize].flags |= CHOSEN;
        }
        let all = &self.links;
        let chosen = |l: u32| all[l as usize].flags & CHOSEN != 0;
        let lost = self.wheel.extract(|e| e.kind() == ARRIVE_CREDITED && chosen(e.id()));
        for link in links {
            self.links[link.0 as usize].flags &= !CHOSEN;
        }
        for entry in lost {
            self.credited_discard(Some(entry.event.id()), entry.event.b, DropReason::Cut);
        }
        for link in links {
            let hot = &mut self.links[link.0 as usize];
            hot.busy_until = hot.busy_until.min(self.now);
            let Some(ll) = self.lossless.as_deref_mut() else { return };
            let waiting = ll.voqs.drain(&mut ll.cells, link.0);
            let bytes = |p: &u32| u64::from(ll.cells[*p as usize].bytes);
            let output = &mut ll.outputs[link.0 as usize];
            output.packets -= waiting.len() as u32;
            output.bytes -= waiting.iter().map(bytes).sum::<u64>();
            // A card that lost its waiting packets has room.
            let room = std::mem::take(&mut output.room_wanted);
            if room {
                let host = self.links[(link.0 ^ 1) as usize].to;
                self.schedule(self.now, Event::new(ROOM, host, 0));
            }
            for packet in waiting {
                self.credited_discard(Some(link.0), packet, DropReason::Cut);
            }
        }
    }
}
