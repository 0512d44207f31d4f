//! Statuses as words and as files: every field goes both ways, damage is noticed, dead processes
//! vanish.

use super::file::testing::{create_at, list_in, names, status_of};
use super::*;
use crate::process::Owner;
use srd_core::Rng;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{self, PathBuf};

/// A status with as many peers and paths, whose fields are all different from each other.
fn status(rng: &mut Rng, peers: usize, paths: u16) -> Status {
    let mut next = |bits: u32| rng.next_u64() >> (64 - bits);
    let mut s = Status {
        program: "a.out".into(),
        rank: Some(next(8) as u32),
        name: "srd0".into(),
        local: IpAddr::from([10, 0, 0, next(8) as u8]),
        port: next(16) as u16,
        slot: next(8) as u8,
        mtu: next(16) as u16,
        paths,
        seal: SealMode::Prefer,
        opened_ns: next(64),
        written_ns: next(64),
        qps: next(32) as u32,
        contexts: next(32) as u32,
        contexts_sealed: next(32) as u32,
        addresses: next(32) as u32,
        counters: std::array::from_fn(|_| next(64)),
        peers: Vec::new(),
    };
    for i in 0..peers {
        let path = |path| Path {
            path,
            port: next(16) as u16,
            echoed: next(1) == 1,
            state: PathState::ALL[usize::from(path) % 5],
            rtt_ns_smoothed: next(32) as u32,
            rtt_ns_min: next(32) as u32,
            packets_sent: next(64),
            packets_lost: next(64),
            packets_ce: next(64),
        };
        let each = if i < STATUS_PATHED_MAX { paths as u8 } else { 0 };
        let paths = (0..each).map(path).collect();
        s.peers.push(Peer {
            ip: IpAddr::V6(Ipv6Addr::from_bits(u128::from(next(64)) << 64 | 1)),
            contexts: next(32) as u32,
            contexts_sealed: next(32) as u32,
            contexts_stalled: next(32) as u32,
            outstanding: next(32) as u32,
            packets_in_flight: next(32) as u32,
            inflight_bytes: next(64),
            inflight_bytes_max: next(64),
            rate_bytes_per_sec: next(64),
            delivered_bytes_per_sec: next(64),
            rtt_ns_smoothed: next(32) as u32,
            rtt_ns_min: next(32) as u32,
            packets_sent: next(64),
            packets_lost: next(64),
            packets_ce: next(64),
            path_counts: std::array::from_fn(|_| next(32) as u32),
            limits: std::array::from_fn(|_| next(32) as u32),
            paths,
        });
    }
    s
}

/// A folder of its own in memory, removed at the end.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let path =
            path::Path::new("/dev/shm").join(format!("srd-test-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        Self(path)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn every_field_goes_both_ways_and_the_largest_status_fits_exactly() {
    let mut rng = Rng::from_seed(1);
    for (peers, paths) in [(0, 64), (3, 1), (STATUS_PEERS_MAX, 64), (STATUS_PEERS_MAX, 255)] {
        let mut before = status(&mut rng, peers, paths);
        let (kept, mut words) = (before.clone(), Vec::new());
        fields::put(&mut before, &mut words);
        assert_eq!(before, kept, "what fits is not changed");
        assert_eq!(fields::take(&words), kept);
        assert_eq!(words.len() == fields::words_max(paths), peers == STATUS_PEERS_MAX);
    }
    let mut much = status(&mut rng, STATUS_PEERS_MAX + 7, 16);
    much.name = "n".repeat(99);
    let mut words = Vec::new();
    fields::put(&mut much, &mut words);
    assert_eq!(words.len(), fields::words_max(16));
    assert_eq!((much.peers.len(), much.name.len()), (STATUS_PEERS_MAX, STATUS_NAME_BYTES_MAX));
}

#[test]
fn names_of_counters_and_states_are_different_from_each_other() {
    let mut names: Vec<_> = Counter::ALL.iter().map(|c| c.name()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), Counter::COUNT);
    for (i, counter) in Counter::ALL.iter().enumerate() {
        assert_eq!(*counter as usize, i);
        assert!(!counter.help().is_empty());
    }
    assert!(PathState::ALL.into_iter().all(|state| PathState::of(state.name()) == state));
}

#[test]
fn a_device_is_listed_with_its_newest_status_until_it_closes() {
    let place = Place::new("listed");
    let [here, elsewhere] = names(std::process::id()).map(|name| place.0.join(name));
    let mut file = create_at(&here, 16).unwrap();
    let other = create_at(&elsewhere, 16).unwrap();
    assert_eq!(fs::metadata(&here).unwrap().permissions().mode() & 0o777, 0o600);
    let list = list_in(&place.0, StatusScope::Host).unwrap();
    assert_eq!((list.rows.len(), list.unread), (0, 2), "nothing has been written yet");
    let mut rng = Rng::from_seed(2);
    let mut before = None;
    for _ in 0..5 {
        let mut wrote = status(&mut rng, 2, 16);
        file.write(&mut wrote);
        let list = list_in(&place.0, StatusScope::Network).unwrap();
        assert_eq!(list.rows.len(), 1);
        assert_eq!((list.rows[0].pid, &list.rows[0].status), (std::process::id(), &wrote));
        assert_eq!(list.rows[0].before, before);
        before = Some(wrote);
    }
    drop(file);
    drop(other);
    assert!(!here.exists() && !elsewhere.exists());
    assert_eq!(list_in(&place.0, StatusScope::Host).unwrap(), StatusList::default());
}

#[test]
fn files_of_ended_processes_are_removed_and_other_files_are_not_touched() {
    let place = Place::new("ended");
    let [name, _] = names(std::process::id()).map(|name| place.0.join(name));
    let mut file = create_at(&name, 16).unwrap();
    file.write(&mut status(&mut Rng::from_seed(3), 1, 16));
    // The same words without the lock: the process that had it was killed.
    let words = fs::read(&name).unwrap();
    let killed = place.0.join(&names(7)[0]);
    fs::write(&killed, &words).unwrap();
    // The lock is held, but by a child of another process, which has ended.
    let orphan = place.0.join(&names(8)[0]);
    let owner = Owner::of(1 << 21, 5).word();
    fs::write(&orphan, [&words[..16], &owner.to_ne_bytes(), &words[24..]].concat()).unwrap();
    let held = File::open(&orphan).unwrap();
    held.try_lock().unwrap();
    let foreign = place.0.join("srd-status-v2-none");
    fs::write(&foreign, &words).unwrap();
    let list = list_in(&place.0, StatusScope::Host).unwrap();
    assert_eq!(list.rows.len(), 1, "{list:?}");
    assert!(!killed.exists() && orphan.exists() && foreign.exists() && name.exists());
    // Another device in the same place, of a process with the same number.
    fs::write(&killed, &words).unwrap();
    drop(create_at(&killed, 16).unwrap());
    assert!(!killed.exists());
}

/// Another user fills the folder with names that come first: the files are his, whatever they say.
#[test]
fn files_in_the_name_of_somebody_else_hide_nobody() {
    let place = Place::new("others");
    let [name, _] = names(std::process::id());
    let mut file = create_at(&place.0.join(&name), 16).unwrap();
    file.write(&mut status(&mut Rng::from_seed(5), 1, 16));
    let head = "srd-status-v2-";
    let (uid, rest) = name.strip_prefix(head).unwrap().split_once('-').unwrap();
    let other = uid.parse::<u32>().unwrap() + 1;
    // A number may begin with a plus, which comes before all digits.
    for i in 0..4096 {
        File::create(place.0.join(format!("{head}+{other}-{rest}{i}"))).unwrap();
    }
    let list = list_in(&place.0, StatusScope::Host).unwrap();
    assert_eq!((list.rows.len(), list.foreign, list.unread), (1, 0, 0));
    drop(file);
}

#[test]
fn damage_is_noticed_and_no_bytes_cause_a_panic() {
    let place = Place::new("damage");
    let [name, _] = names(std::process::id()).map(|name| place.0.join(name));
    let mut file = create_at(&name, 4).unwrap();
    let mut rng = Rng::from_seed(4);
    let (mut old, mut new) = (status(&mut rng, 9, 4), status(&mut rng, 9, 4));
    file.write(&mut old);
    file.write(&mut new);
    let bytes = fs::read(&name).unwrap();
    let words: Vec<u64> = bytes.as_chunks().0.iter().map(|w| u64::from_ne_bytes(*w)).collect();
    assert_eq!(status_of(&words).as_ref(), Some(&new));
    for _ in 0..20_000 {
        let mut damaged = words.clone();
        let at = rng.next_u64() as usize % damaged.len();
        damaged[at] ^= 1 << (rng.next_u64() % 64);
        // The head says whose file it is: everything else is protected by the checksums.
        let seen = status_of(&damaged);
        let known = seen.is_none() || seen.as_ref() == Some(&old) || seen.as_ref() == Some(&new);
        assert!(known || at < 3, "word {at} of {}", damaged.len());
        let wild: Vec<u64> = (0..at).map(|_| rng.next_u64() >> (rng.next_u64() % 64)).collect();
        let _ = fields::take(&wild);
        damaged.truncate(at);
        let _ = status_of(&damaged);
    }
}
