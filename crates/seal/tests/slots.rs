//! The table of keys: packets find their keys by tag, and what was removed is gone.

mod common;

use common::*;
use srd_seal::*;

/// A packet that `sender` seals for the context with this tag.
fn sealed(sender: &mut Sender, tag: u32) -> Vec<u8> {
    let number = sender.next();
    let mut packet = plain(tag, number, b"payload");
    sender.seal(number, &mut packet).unwrap();
    packet
}

#[test]
fn packets_find_their_keys() {
    let mut draw = Draw(1);
    let mut slots = KeySlots::new(100);
    let mut peers: Vec<(SlotId, u32, Session)> = (0..100)
        .map(|at| {
            let (own, peer) = sessions(&mut draw, 3, 3);
            let tag = 1000 + at as u32;
            (slots.insert(tag, own).unwrap(), tag, peer)
        })
        .collect();
    assert_eq!(slots.len(), 100);
    let (own, _) = sessions(&mut draw, 0, 0);
    assert_eq!(slots.insert(5, own), Err(SlotError::Full));
    for (id, tag, peer) in &mut peers {
        let mut packet = sealed(&mut peer.sender, *tag);
        let found = slots.open(&mut packet).unwrap();
        assert_eq!(found.id, *id);
        // And back, through the table.
        let number = slots.session(*id).unwrap().sender.next();
        let mut packet = plain(*tag, number, b"answer");
        slots.seal(*id, number, &mut packet).unwrap().unwrap();
        assert_eq!(slots.seal(*id, number, &mut packet), Some(Err(SealError::Flags)));
        assert_eq!(peer.receiver.open(&mut packet).unwrap().number, number);
    }
    // The tag of another context: its keys do not open the packet.
    let other_tag = peers[4].1;
    let mut packet = sealed(&mut peers[3].2.sender, other_tag);
    assert_eq!(slots.open(&mut packet), Err(OpenError::Seal));
    let mut packet = sealed(&mut peers[3].2.sender, 5);
    assert_eq!(slots.open(&mut packet), Err(OpenError::UnknownTag));
    assert_eq!(slots.session(peers[4].0).unwrap().receiver.failed(), 1);
}

#[test]
fn tags_are_unique_and_not_zero() {
    let mut draw = Draw(2);
    let mut slots = KeySlots::new(8);
    let mut session = || sessions(&mut draw, 0, 0).0;
    let id = slots.insert(7, session()).unwrap();
    assert_eq!(slots.insert(7, session()), Err(SlotError::Tag));
    assert_eq!(slots.insert(0, session()), Err(SlotError::Tag));
    assert!(slots.remove(id));
    slots.insert(7, session()).unwrap();
    slots.insert(8, session()).unwrap();
    assert_eq!(slots.len(), 2);
}

#[test]
fn a_removed_slot_is_gone_also_when_its_place_is_used_again() {
    let mut draw = Draw(4);
    let mut slots = KeySlots::new(2);
    let (own, mut peer) = sessions(&mut draw, 0, 0);
    let id = slots.insert(1, own).unwrap();
    assert!(slots.remove(id));
    assert!(!slots.remove(id));
    assert!(slots.is_empty());
    assert_eq!(slots.open(&mut sealed(&mut peer.sender, 1)), Err(OpenError::UnknownTag));

    let (own, mut next) = sessions(&mut draw, 0, 0);
    let new = slots.insert(1, own).unwrap();
    assert_ne!(new, id);
    assert!(slots.session(id).is_none() && slots.seal(id, 0, &mut plain(1, 0, b"")).is_none());
    assert!(!slots.remove(id));
    assert_eq!(slots.open(&mut sealed(&mut next.sender, 1)).unwrap().id, new);
    assert_eq!(slots.open(&mut sealed(&mut peer.sender, 1)), Err(OpenError::Seal));
}

/// Random inserts and removals against a list.
#[test]
fn the_table_agrees_with_a_list() {
    for seed in 0..5 {
        let mut draw = Draw(seed);
        let mut slots = KeySlots::new(6);
        // Slot, tag and the peer's end of the keys.
        let mut list: Vec<(SlotId, u32, Session)> = Vec::new();
        for step in 0..300 {
            let (own, peer) = sessions(&mut draw, 0, 0);
            let tag = 1 + draw.below(12) as u32;
            let used = list.iter().any(|entry| entry.1 == tag);
            let at = draw.below(1 + list.len() as u64) as usize;
            if draw.below(3) > 0 {
                match slots.insert(tag, own) {
                    Ok(id) => {
                        assert!(!used && list.len() < 6, "seed {seed} step {step}");
                        list.push((id, tag, peer));
                    }
                    Err(error) => {
                        let full = list.len() == 6;
                        let expected = if full { SlotError::Full } else { SlotError::Tag };
                        assert!(full || used, "seed {seed} step {step}");
                        assert_eq!(error, expected);
                    }
                }
            } else if at < list.len() {
                assert!(slots.remove(list.swap_remove(at).0));
            }
            assert_eq!(slots.len(), list.len());
            for (id, tag, peer) in &mut list {
                let mut packet = sealed(&mut peer.sender, *tag);
                assert_eq!(slots.open(&mut packet).unwrap().id, *id, "seed {seed} step {step}");
            }
        }
    }
}
