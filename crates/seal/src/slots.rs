//! The table by which a receiver finds the keys of a packet.
//!
//! A packet names its context by the tag in its header; a [`KeySlots`] leads from the tag to the
//! keys. The layer keeps the number of a slot, never a key. A slot holds the keys of one context.

use crate::packet::{OpenError, Opened, SealError, Session, sealed_check};
use core::fmt;
use rustc_hash::FxHashMap;

const DST_TAG_AT: usize = 4;

/// A slot of a table. Once the slot is removed, its number names nothing any more, also when the
/// place is used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SlotId {
    index: u32,
    generation: u32,
}

/// A packet that a table has opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotOpened {
    /// The slot of its context.
    pub id: SlotId,
    /// The packet.
    pub opened: Opened,
}

/// Why a table does not take keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SlotError {
    /// All slots are in use.
    Full,
    /// The tag is 0 or belongs to other keys of the table.
    Tag,
}

impl fmt::Display for SlotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "all key slots are in use",
            Self::Tag => "the tag is 0 or in use; draw another",
        })
    }
}

impl core::error::Error for SlotError {}

/// Keys, and the tag by which packets name them.
#[derive(Debug)]
struct Tagged {
    tag: u32,
    session: Session,
}

#[derive(Debug)]
struct Slot {
    generation: u32,
    /// `None` if the slot is free.
    keys: Option<Tagged>,
}

/// A bounded table of key slots. Its memory grows up to its capacity and is used again; keys are
/// erased when they leave it.
#[derive(Debug)]
pub struct KeySlots {
    capacity: usize,
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// From the tags of all keys to their slots. The tags are our own random numbers, so nobody
    /// chooses what collides.
    tags: FxHashMap<u32, u32>,
}

impl KeySlots {
    /// An empty table for `capacity` peers, at most 2^31.
    pub fn new(capacity: usize) -> Self {
        let capacity = capacity.min(1 << 31);
        Self { capacity, slots: Vec::new(), free: Vec::new(), tags: FxHashMap::default() }
    }

    /// Slots in use.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Whether no slot is in use.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes the keys of a new peer, whose packets carry `tag`.
    ///
    /// # Errors
    /// [`SlotError::Full`], [`SlotError::Tag`]; the keys are erased then.
    pub fn insert(&mut self, tag: u32, session: Session) -> Result<SlotId, SlotError> {
        if self.len() == self.capacity {
            return Err(SlotError::Full);
        }
        self.tag_check(tag)?;
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { generation: 0, keys: None });
            (self.slots.len() - 1) as u32
        });
        let slot = &mut self.slots[index as usize];
        slot.keys = Some(Tagged { tag, session });
        self.tags.insert(tag, index);
        Ok(SlotId { index, generation: slot.generation })
    }

    /// Erases the keys of a slot and frees it. `false` if it was removed before.
    pub fn remove(&mut self, id: SlotId) -> bool {
        let Some(slot) = self.slot_mut(id) else { return false };
        let tag = slot.keys.take().map(|tagged| tagged.tag);
        slot.generation = slot.generation.wrapping_add(1);
        tag.map(|tag| self.tags.remove(&tag));
        self.free.push(id.index);
        true
    }

    /// Opens a packet in place with the keys of the tag in its header.
    ///
    /// # Errors
    /// An [`OpenError`]; the packet is dropped and counted.
    #[inline]
    pub fn open(&mut self, packet: &mut [u8]) -> Result<SlotOpened, OpenError> {
        sealed_check(packet)?;
        let tag = *packet[DST_TAG_AT..].first_chunk().expect("the length was checked");
        let tag = u32::from_be_bytes(tag);
        let index = *self.tags.get(&tag).ok_or(OpenError::UnknownTag)?;
        let slot = &mut self.slots[index as usize];
        let id = SlotId { index, generation: slot.generation };
        let keys = slot.keys.as_mut().ok_or(OpenError::UnknownTag)?;
        debug_assert_eq!(keys.tag, tag, "the table of tags names the slot");
        let opened = keys.session.receiver.open(packet)?;
        Ok(SlotOpened { id, opened })
    }

    /// Seals a packet in place with the keys of a slot, as [`crate::Sender::seal`] does.
    ///
    /// # Errors
    /// `None` if the slot was removed; a [`SealError`].
    #[inline]
    pub fn seal(
        &mut self,
        id: SlotId,
        number: u64,
        packet: &mut [u8],
    ) -> Option<Result<(), SealError>> {
        let keys = self.slot_mut(id)?.keys.as_mut()?;
        Some(keys.session.sender.seal(number, packet))
    }

    /// The keys of a slot.
    pub fn session(&mut self, id: SlotId) -> Option<&mut Session> {
        self.slot_mut(id)?.keys.as_mut().map(|tagged| &mut tagged.session)
    }

    /// The keys of a slot, to look at.
    pub fn session_ref(&self, id: SlotId) -> Option<&Session> {
        let slot = self.slots.get(id.index as usize)?;
        let keys = slot.keys.as_ref().filter(|_| slot.generation == id.generation)?;
        Some(&keys.session)
    }

    fn tag_check(&self, tag: u32) -> Result<(), SlotError> {
        if tag == 0 || self.tags.contains_key(&tag) { Err(SlotError::Tag) } else { Ok(()) }
    }

    fn slot_mut(&mut self, id: SlotId) -> Option<&mut Slot> {
        let slot = self.slots.get_mut(id.index as usize)?;
        (slot.generation == id.generation && slot.keys.is_some()).then_some(slot)
    }
}

/// Bytes of an idle slot: a place in the table; the tag and the index in the map, which is at most
/// 7/8 and at least 7/16 full, with one byte of control each.
#[cfg(test)]
pub(crate) const IDLE_BYTES: usize = size_of::<Slot>() + (size_of::<(u32, u32)>() + 1) * 16 / 7;

#[cfg(test)]
mod tests {
    use super::*;

    /// The figure of docs/sealing.md.
    #[test]
    fn an_idle_peer_is_small() {
        let bytes = IDLE_BYTES;
        let document = include_str!("../../../docs/sealing.md");
        assert!(document.contains(&format!("it then holds {bytes} bytes")), "{bytes} bytes");
        assert!(bytes <= 700);
    }
}
