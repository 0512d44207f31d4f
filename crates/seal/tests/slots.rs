//! The table of keys: packets find their keys by tag, keys change, and what was removed is gone.

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
        assert_eq!((found.id, found.by_present), (*id, true));
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
    assert_eq!(slots.add(id, 7, session()), Err(SlotError::Tag));
    slots.add(id, 8, session()).unwrap();
    assert_eq!(slots.insert(8, session()), Err(SlotError::Tag));
    assert!(slots.remove(id));
    slots.insert(7, session()).unwrap();
    slots.insert(8, session()).unwrap();
    assert_eq!(slots.len(), 2);
}

#[test]
fn new_keys_take_over_when_the_peer_has_shown_them() {
    let mut draw = Draw(3);
    let mut slots = KeySlots::new(1);
    let (own, mut old) = sessions(&mut draw, 0, 0);
    let id = slots.insert(1, own).unwrap();
    assert_eq!(slots.switch(id), Err(SlotError::Gone), "nothing to switch to");

    // A new handshake, begun by somebody who may have replayed it: nothing changes.
    let (own, _) = sessions(&mut draw, 0, 0);
    slots.add(id, 2, own).unwrap();
    assert!(slots.open(&mut sealed(&mut old.sender, 1)).unwrap().by_present);
    // Another one replaces it, and the peer speaks with its keys.
    let (own, mut new) = sessions(&mut draw, 0, 0);
    slots.add(id, 3, own).unwrap();
    let mut of_replaced = sealed(&mut new.sender, 2);
    assert_eq!(slots.open(&mut of_replaced), Err(OpenError::UnknownTag));
    let found = slots.open(&mut sealed(&mut new.sender, 3)).unwrap();
    assert_eq!((found.id, found.by_present), (id, false));
    slots.switch(id).unwrap();

    // What is sent is for the new keys; late packets of the old ones are opened for a while.
    let mut packet = plain(9, 0, b"x");
    slots.seal(id, 0, &mut packet).unwrap().unwrap();
    assert!(new.receiver.open(&mut packet.clone()).is_ok());
    assert!(old.receiver.open(&mut packet).is_err());
    assert!(!slots.open(&mut sealed(&mut old.sender, 1)).unwrap().by_present);
    slots.other_drop(id).unwrap();
    assert_eq!(slots.open(&mut sealed(&mut old.sender, 1)), Err(OpenError::UnknownTag));
    assert!(slots.open(&mut sealed(&mut new.sender, 3)).unwrap().by_present);
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
    assert_eq!(slots.add(id, 5, sessions(&mut draw, 0, 0).0), Err(SlotError::Gone));
    assert_eq!(slots.switch(id), Err(SlotError::Gone));
    assert_eq!(slots.other_drop(id), Err(SlotError::Gone));
    assert!(!slots.remove(id));
    assert_eq!(slots.open(&mut sealed(&mut next.sender, 1)).unwrap().id, new);
    assert_eq!(slots.open(&mut sealed(&mut peer.sender, 1)), Err(OpenError::Seal));
}

/// Random inserts, additions, switches and removals against a list.
#[test]
fn the_table_agrees_with_a_list() {
    for seed in 0..5 {
        let mut draw = Draw(seed);
        let mut slots = KeySlots::new(6);
        // (slot, present, other): tag and the peer's end of the keys.
        type Entry = (SlotId, (u32, Session), Option<(u32, Session)>);
        let mut list: Vec<Entry> = Vec::new();
        for step in 0..300 {
            let (own, peer) = sessions(&mut draw, 0, 0);
            let tag = 1 + draw.below(20) as u32;
            let used = list.iter().any(|(_, present, other)| {
                present.0 == tag || other.as_ref().is_some_and(|other| other.0 == tag)
            });
            let at = draw.below(1 + list.len() as u64) as usize;
            match draw.below(4) {
                0 => match slots.insert(tag, own) {
                    Ok(id) => {
                        assert!(!used && list.len() < 6, "seed {seed} step {step}");
                        list.push((id, (tag, peer), None));
                    }
                    Err(error) => {
                        let full = list.len() == 6;
                        let expected = if full { SlotError::Full } else { SlotError::Tag };
                        assert!(full || used, "seed {seed} step {step}");
                        assert_eq!(error, expected);
                    }
                },
                1 if at < list.len() => {
                    let added = slots.add(list[at].0, tag, own);
                    assert_eq!(added.is_ok(), !used, "seed {seed} step {step}");
                    if added.is_ok() {
                        list[at].2 = Some((tag, peer));
                    }
                }
                2 if at < list.len() => {
                    let entry = &mut list[at];
                    let switched = slots.switch(entry.0).is_ok();
                    assert_eq!(switched, entry.2.is_some(), "seed {seed} step {step}");
                    if let Some(other) = &mut entry.2 {
                        std::mem::swap(&mut entry.1, other);
                    }
                }
                3 if at < list.len() && draw.below(2) == 0 => {
                    assert!(slots.remove(list.swap_remove(at).0));
                }
                _ => {}
            }
            assert_eq!(slots.len(), list.len());
            for (id, present, other) in &mut list {
                let mut packet = sealed(&mut present.1.sender, present.0);
                let found = slots.open(&mut packet).unwrap();
                assert_eq!((found.id, found.by_present), (*id, true), "seed {seed} step {step}");
                if let Some(other) = other {
                    let mut packet = sealed(&mut other.1.sender, other.0);
                    let found = slots.open(&mut packet).unwrap();
                    assert_eq!((found.id, found.by_present), (*id, false));
                }
            }
        }
    }
}
