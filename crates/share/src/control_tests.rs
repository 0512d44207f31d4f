use super::*;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// A name for the file of one test; removed with everything at the end.
struct Place(PathBuf);

impl Place {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        Self(Path::new(FOLDER).join(format!("srd-control-test-{}-{n}", std::process::id())))
    }
    fn open(&self) -> PathControl {
        PathControl::open_at(&self.0, || None).unwrap()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn ip(n: usize) -> IpAddr {
    format!("10.1.{}.{}", n / 256, n % 256).parse().unwrap()
}

fn mask(paths: impl IntoIterator<Item = u8>) -> PathMask {
    let mut mask = PathMask::NONE;
    paths.into_iter().for_each(|path| mask.put(path, true));
    mask
}

fn orders(control: &PathControl) -> Vec<PathOrder> {
    control.orders().expect("a whole table").1
}

#[test]
fn orders_reach_another_that_has_the_file_open() {
    let place = Place::new();
    let (command, device) = (place.open(), place.open());
    assert_eq!((device.number(), orders(&device)), (0, vec![]));
    let denied = command.change(ip(1), 64, 0, |_| mask(0..16)).unwrap();
    assert_eq!(denied, mask(0..16));
    let order = PathOrder { ip: ip(1), least: 1, mask: mask(0..16) };
    assert_eq!((device.number(), orders(&device)), (1, vec![order]));
    command.change("fd00::7".parse().unwrap(), 64, 3, |_| mask([200])).unwrap();
    // The mapped form of an IPv4 address is that address.
    let mapped = "::ffff:10.1.0.1".parse().unwrap();
    command.change(mapped, 64, 1, |before| before.below(4)).unwrap();
    let mut all = orders(&device);
    all.sort_by_key(|order| order.ip);
    let v6 = PathOrder { ip: "fd00::7".parse().unwrap(), least: 3, mask: mask([200]) };
    assert_eq!(all, [PathOrder { mask: mask(0..4), ..order }, v6]);
    assert_eq!(device.number(), 3);
}

#[test]
fn too_few_paths_and_a_full_table_are_refused_and_change_nothing() {
    let place = Place::new();
    let control = place.open();
    let refused = control.change(ip(0), 8, 0, |_| mask(0..8)).unwrap_err().to_string();
    assert!(refused.contains("0 paths") && refused.contains("deny fewer"), "{refused}");
    assert!(control.change(ip(0), 8, 4, |_| mask(0..5)).is_err());
    assert_eq!(control.number(), 0);
    for n in 0..DENIALS_MAX {
        control.change(ip(n), 8, 1, |_| mask([1])).unwrap();
    }
    let full = control.change(ip(DENIALS_MAX), 8, 1, |_| mask([1])).unwrap_err().to_string();
    assert!(full.contains("allow the paths of an address first"), "{full}");
    assert_eq!(orders(&control).len(), DENIALS_MAX);
    control.change(ip(5), 8, 1, |_| PathMask::NONE).unwrap();
    control.change(ip(DENIALS_MAX), 8, 1, |_| mask([1])).unwrap();
}

/// An order may leave fewer paths than a device has today, which has fewer paths than the devices
/// before it: to allow some of them is right in any case.
#[test]
fn what_only_allows_is_never_refused_and_keeps_the_least_number() {
    let place = Place::new();
    let control = place.open();
    control.change(ip(1), 64, 8, |_| mask(0..16)).unwrap();
    let allowed = control.change(ip(1), 16, 32, |_| mask(1..16)).unwrap();
    assert_eq!(allowed, mask(1..16));
    assert_eq!(orders(&control), [PathOrder { ip: ip(1), least: 8, mask: allowed }]);
    assert!(control.change(ip(1), 16, 32, |_| mask(1..17)).is_err(), "another path is denied");
    control.change(ip(1), 64, 32, |_| mask(1..17)).unwrap();
    assert_eq!(orders(&control)[0].least, 32);
    assert_eq!(control.change(ip(1), 1, 1, |_| PathMask::NONE).unwrap(), PathMask::NONE);
    assert!(orders(&control).is_empty());
}

/// Number 0 says that there was no order yet, and never comes back.
#[test]
fn the_numbers_of_tables_go_round_without_zero() {
    let place = Place::new();
    let control = place.open();
    control.map.words()[1].store(u64::MAX, Ordering::Release);
    control.change(ip(1), 64, 1, |_| mask([3])).unwrap();
    assert_eq!((control.number(), orders(&control).len()), (1, 1));
}

#[test]
fn the_file_is_there_while_it_is_needed() {
    let place = Place::new();
    let (device, command) = (place.open(), place.open());
    command.change(ip(1), 8, 1, |_| mask([1])).unwrap();
    drop((device, command));
    assert!(place.0.exists(), "an order is in force");
    let (device, command) = (place.open(), place.open());
    assert_eq!(orders(&device).len(), 1, "also for devices opened later");
    command.change(ip(1), 8, 1, |_| PathMask::NONE).unwrap();
    drop(command);
    assert!(place.0.exists(), "a device has it open");
    drop(device);
    assert!(!place.0.exists());
}

#[test]
fn files_of_others_are_refused() {
    let place = Place::new();
    drop(place.open());
    make(&place.0, &PathTable::default()).unwrap();
    fs::set_permissions(&place.0, fs::Permissions::from_mode(0o644)).unwrap();
    let refused = PathControl::open_at(&place.0, || None).unwrap_err().to_string();
    assert!(refused.contains("not a file of this user alone"), "{refused}");
    fs::remove_file(&place.0).unwrap();
    symlink("/dev/null", &place.0).unwrap();
    assert!(PathControl::open_at(&place.0, || None).is_err());
    fs::remove_file(&place.0).unwrap();
    fs::write(&place.0, [7; 100]).unwrap();
    fs::set_permissions(&place.0, fs::Permissions::from_mode(0o600)).unwrap();
    assert!(
        PathControl::open_at(&place.0, || None).unwrap_err().to_string().contains("another length")
    );
    if user() == 0 {
        fs::remove_file(&place.0).unwrap();
        make(&place.0, &PathTable::default()).unwrap();
        std::os::unix::fs::chown(&place.0, Some(65_534), None).unwrap();
        assert!(
            PathControl::open_at(&place.0, || None).is_err(),
            "root does not obey others either"
        );
    }
}

/// Whatever a copy holds, it is used only if it is whole; and the next order repairs it.
#[test]
fn a_damaged_table_is_not_used_and_ends_with_the_next_order() {
    let place = Place::new();
    let control = place.open();
    control.change(ip(1), 8, 1, |_| mask([1])).unwrap();
    // What a command leaves that was killed amid its writing: the other copy is filled in part.
    for (at, word) in control.copy(2).iter().enumerate().take(9) {
        word.store(at as u64 * 77, Relaxed);
        assert_eq!(orders(&control).len(), 1);
    }
    for at in 0..COPY_HEAD_WORDS + ENTRY_WORDS {
        let word = &control.copy(control.number())[at];
        let before = word.load(Relaxed);
        for wrong in [before ^ 1, u64::MAX, before ^ 1 << 63] {
            word.store(wrong, Relaxed);
            assert!(control.orders().is_none(), "word {at}");
        }
        word.store(before, Relaxed);
        assert!(control.orders().is_some());
    }
    control.copy(1)[1].store(1, Relaxed);
    control.change(ip(2), 8, 1, |_| mask([2])).unwrap();
    assert_eq!(orders(&control), [PathOrder { ip: ip(2), least: 1, mask: mask([2]) }]);
}

/// What is to be probed once stays beside the orders, and orders do not repeat it.
#[test]
fn a_probe_is_ordered_once_and_changes_no_denial() {
    let place = Place::new();
    let (command, device) = (place.open(), place.open());
    command.change(ip(1), 64, 1, |_| mask([3])).unwrap();
    let probes: Vec<_> = (0..PATH_PROBES_MAX).map(|n| (ip(n), mask([n as u8, 255]))).collect();
    command.probe(&probes).unwrap();
    let table = device.table().unwrap();
    assert_eq!((table.number, table.probes_number, &table.probes), (2, 2, &probes));
    assert_eq!(table.orders, [PathOrder { ip: ip(1), least: 1, mask: mask([3]) }]);
    command.change(ip(1), 64, 1, |_| PathMask::NONE).unwrap();
    let table = device.table().unwrap();
    assert_eq!((table.number, table.probes_number), (3, 2), "nothing new to probe");
    let refused = command.probe(&[probes.clone(), probes].concat()).unwrap_err().to_string();
    assert!(refused.contains("at most 8 addresses"), "{refused}");
    drop((command, device));
    assert!(!place.0.exists(), "a probe keeps no file");
}

/// A reader that is root reads what any user wrote: no bytes end it, and only whole tables count.
#[test]
fn tables_of_all_users_are_read_whatever_they_hold() {
    let folder = Path::new(FOLDER).join(format!("srd-control-test-all-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir(&folder).unwrap();
    let place = |uid: u32| folder.join(format!("{PREFIX}{uid}-n1"));
    let list = || tables_in(&folder, &place).unwrap();
    let me = user();
    let control = PathControl::open_at(&place(me), || None).unwrap();
    control.change(ip(1), 64, 1, |_| mask([3])).unwrap();
    control.probe(&[(ip(2), mask([4]))]).unwrap();
    // Names that are no user's, of another network, of somebody else; no file; another length.
    for name in [format!("+{me}-n1"), format!("{me}-n2"), "x-n1".into(), format!("{}-n1", me + 1)] {
        fs::copy(place(me), folder.join(format!("{PREFIX}{name}"))).unwrap();
    }
    symlink(place(me), place(me + 2)).unwrap();
    fs::create_dir(place(me + 3)).unwrap();
    assert_eq!(list(), [(me, control.table())]);
    let whole = fs::read(place(me)).unwrap();
    let path = place(me);
    let mut rng = srd_core::Rng::from_seed(7);
    let tables = [control.table(), Some(PathTable::default())];
    let before =
        PathTable { number: 1, probes_number: 0, probes: vec![], ..control.table().unwrap() };
    for round in 0..4000 {
        let mut bytes = whole.clone();
        // The head and the counts more often than the rest.
        let room = if round % 2 == 0 { 8 * 9 } else { bytes.len() };
        for _ in 0..1 + rng.below(3) {
            let at = rng.below(room as u32) as usize;
            bytes[at] ^= 1 << rng.below(8);
        }
        fs::write(&path, &bytes).unwrap();
        let [(_, table)] = &list()[..] else { panic!("one table") };
        let known = table.is_none() || tables.contains(table) || table.as_ref() == Some(&before);
        assert!(known, "{table:?}");
        let wild: Vec<u64> = (0..COPY_WORDS).map(|_| rng.next_u64() >> rng.below(64)).collect();
        assert_eq!(table_of(2, &wild[..rng.below(COPY_WORDS as u32) as usize]), None);
    }
    for len in [0, 8, whole.len() - 1, whole.len() + 8] {
        fs::write(&path, vec![0; len]).unwrap();
        assert_eq!(list(), [], "{len} bytes");
    }
    drop(control);
    fs::remove_dir_all(&folder).unwrap();
}

/// Set for the child of the next test: the file that it writes without end.
const VICTIM: &str = "SRD_CONTROL_TEST_VICTIM";

/// Not a test of its own: the child process that is killed.
#[test]
fn a_command_writes_without_end() {
    let Some(path) = std::env::var_os(VICTIM) else { return };
    let control = PathControl::open_at(Path::new(&path), || None).unwrap();
    for n in 0..u64::MAX {
        let low = (n % 250) as u8;
        control.change(ip(1), 256, 1, |_| mask(0..low + 1)).unwrap();
    }
}

/// A command is killed at random instructions, again and again: a reader always finds a whole
/// table, and the next command gets the lock.
#[test]
fn a_command_may_be_killed_at_any_instruction() {
    let place = Place::new();
    let reader = place.open();
    let mut numbers = vec![];
    for round in 0..12 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "control::tests::a_command_writes_without_end"])
            .env(VICTIM, &place.0)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let before = reader.number();
        while reader.number() < before + 20 {
            thread::sleep(Duration::from_micros(200));
            assert!(child.try_wait().unwrap().is_none(), "it writes without end");
        }
        thread::sleep(Duration::from_micros(round * 37));
        child.kill().unwrap();
        child.wait().unwrap();
        let (number, orders) = reader.orders().expect("a whole table");
        let of_child = orders.iter().find(|order| order.ip == ip(1)).expect("it was written");
        let len = of_child.mask.len();
        assert_eq!(of_child.mask, mask(0..len as u8), "a mask that one command wrote");
        reader.change(ip(2), 256, 1, |_| mask([round as u8])).unwrap();
        assert_eq!(reader.number(), number + 1);
        numbers.push(number);
    }
    assert!(numbers.is_sorted());
}

/// The first table of a user begins with the standing orders, later ones of the same file do not;
/// what is not a file of their owner alone to write is not believed.
#[test]
fn a_new_table_begins_with_the_standing_orders() {
    use crate::standing::change_at;
    let (all, user_place) = (Place::new(), Place::new());
    let standing = || table_read(&all.0, user()).flatten();
    let give = |ip, least, change: fn(PathMask) -> PathMask| {
        change_at(&all.0, user(), ip, (64, least), change)
    };
    assert_eq!(standing(), None);
    give(ip(1), 4, |_| mask(0..16)).unwrap();
    give(ip(2), 1, |_| mask([7])).unwrap();
    assert!(give(ip(3), 4, |_| mask(0..61)).is_err(), "three remain");
    assert_eq!(fs::metadata(&all.0).unwrap().permissions().mode() & 0o777, 0o644);
    let open = || PathControl::open_at(&user_place.0, standing).unwrap();
    let first = open();
    let wanted = [
        PathOrder { ip: ip(1), least: 4, mask: mask(0..16) },
        PathOrder { ip: ip(2), least: 1, mask: mask([7]) },
    ];
    assert_eq!((first.number(), &orders(&first)[..]), (1, &wanted[..]));
    // They are in the user's hands now.
    first.change(ip(1), 64, 1, |_| PathMask::NONE).unwrap();
    assert_eq!(orders(&open()), wanted[1..]);
    first.change(ip(2), 64, 1, |_| PathMask::NONE).unwrap();
    drop(first);
    assert!(!user_place.0.exists(), "no order and no device");
    give(ip(1), 1, |before| before.below(2)).unwrap();
    assert_eq!(orders(&open())[0].mask.len() + orders(&open())[1].mask.len(), 3);
    open().change(ip(1), 64, 1, |_| PathMask::NONE).unwrap();
    open().change(ip(2), 64, 1, |_| PathMask::NONE).unwrap();
    fs::set_permissions(&all.0, fs::Permissions::from_mode(0o666)).unwrap();
    assert_eq!(standing(), None, "anybody could have written it");
    fs::set_permissions(&all.0, fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!(table_read(&all.0, user() + 1), None, "of somebody else");
    assert_eq!(standing().unwrap().orders.len(), 2);
    give(ip(1), 1, |_| PathMask::NONE).unwrap();
    give(ip(2), 1, |_| PathMask::NONE).unwrap();
    assert!(!all.0.exists());
}
