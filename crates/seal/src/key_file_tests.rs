//! Key files on disk: access, errors, changes, rotation.

use super::*;
use crate::{KeyRingFault, RING_KEYS_MAX};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::sync::atomic::{AtomicU32, Ordering};

/// A folder that is removed at the end of the test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("srd-seal-{}-{number}", std::process::id()));
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn file(&self, text: &str) -> PathBuf {
        let path = self.0.join("keys");
        write(&path, text, 0o600);
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn write(path: &Path, text: &str, mode: u32) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

const A: &str = "00112233445566778899aabbccddeeff00112233445566778899AABBCCDDEEFF";
const B: &str = "0102030405060708090a0b0c0d0e0f100102030405060708090a0b0c0d0e0f10";

fn ids(file: &KeyFile) -> Vec<u32> {
    file.ring().ids().collect()
}

fn parse_error(text: &str) -> (usize, KeyRingFault) {
    let error = KeyRing::parse(text.as_bytes()).expect_err("accepted");
    assert!(!error.to_string().contains(&A[..16]), "an error shows a part of a key: {error}");
    (error.line, error.fault)
}

#[test]
fn lines_comments_and_order() {
    let text = format!("# old and new\n\n  12\t{A}  \r\n   # indented\n4294967295 {B}");
    let ring = KeyRing::parse(text.as_bytes()).unwrap();
    assert_eq!(ring.ids().collect::<Vec<_>>(), [12, u32::MAX]);
    assert_eq!(ring.sending().id(), 12);
    assert!(ring.accepted(u32::MAX).is_some());
    assert!(ring.accepted(1).is_none());
    // Upper and lower case are one key.
    let lower = KeyRing::parse(format!("12 {}", A.to_lowercase()).as_bytes()).unwrap();
    assert!(ring.holds(lower.sending()));
    assert!(!format!("{ring:?}").contains("ccdd"), "debug output shows a key");
}

#[test]
fn wrong_lines_are_named() {
    use KeyRingFault::*;
    assert_eq!(parse_error(""), (0, Empty));
    assert_eq!(parse_error("# only a comment\n"), (0, Empty));
    assert_eq!(parse_error(&format!("# c\n{A}\n")), (2, Words));
    assert_eq!(parse_error(&format!("1 {A} # comment\n")), (1, Words));
    for id in ["0", "-1", "+1", "x", "4294967296", "1.0"] {
        assert_eq!(parse_error(&format!("{id} {A}")), (1, Id), "{id}");
    }
    assert_eq!(parse_error("1 correct-horse-battery-staple"), (1, Length(28)));
    assert_eq!(parse_error(&format!("1 {A}0")), (1, Length(65)));
    assert_eq!(parse_error(&format!("1 {}g", &A[..63])), (1, Digit(64)));
    assert_eq!(parse_error(&format!("1 {}", "ab".repeat(32))), (1, Weak));
    assert_eq!(parse_error(&format!("1 {A}\n2 {B}\n1 {B}\n")), (3, IdTwice(1)));
    assert_eq!(parse_error(&format!("\n1 {A}\n2 {A}\n")), (3, KeyTwice(2)));
    assert_eq!(parse_error(&format!("1 {A}\n2\0 {B}")), (2, Text));
    assert_eq!(KeyRing::parse(b"1 \xff\xfe").expect_err("accepted").fault, Length(2));

    let many = |count: usize| -> String {
        (1..=count).map(|id| format!("{id} {}{id:02x}\n", &A[..62])).collect()
    };
    assert_eq!(KeyRing::parse(many(RING_KEYS_MAX).as_bytes()).unwrap().ids().count(), 16);
    assert_eq!(parse_error(&many(RING_KEYS_MAX + 1)), (17, Many));
}

#[test]
fn others_must_have_no_access() {
    let folder = Folder::new();
    let path = folder.file(&format!("1 {A}\n"));
    for mode in [0o600, 0o400] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        KeyFile::open(&path).unwrap_or_else(|error| panic!("mode {mode:o}: {error}"));
    }
    for mode in [0o644, 0o640, 0o604, 0o620, 0o602, 0o610, 0o601, 0o660, 0o777] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let error = KeyFile::open(&path).expect_err("opened").to_string();
        assert!(error.contains(&format!("mode {mode:04o}")), "{error}");
        assert!(error.ends_with(&format!("run: chmod 600 '{}'", path.display())), "{error}");
    }
}

#[test]
fn the_command_that_mends_is_safe_to_paste() {
    let path = Path::new("/tmp/it's; rm x");
    let error = access_check(path, true, 0o644, 5, 5).expect_err("accepted").to_string();
    assert!(error.ends_with(r"chmod 600 '/tmp/it'\''s; rm x'"), "{error}");
}

#[test]
fn the_owner_must_be_the_user() {
    let path = Path::new("keys");
    assert!(access_check(path, true, 0o100_600, 1000, 1000).is_ok());
    for (owner, user) in [(1000, 1001), (0, 1000), (1000, 0)] {
        let error = access_check(path, true, 0o100_600, owner, user).expect_err("accepted");
        assert!(matches!(error, KeyFileError::Owner(_, o, u) if (o, u) == (owner, user)));
        assert!(error.to_string().ends_with(&format!("run: sudo chown {user} 'keys'")));
    }
    // The true owner of a true file.
    let folder = Folder::new();
    let path = folder.file(&format!("1 {A}\n"));
    let user = rustix::process::geteuid().as_raw();
    assert_eq!(fs::metadata(&path).unwrap().uid(), user);
    assert!(KeyFile::open(&path).is_ok());
}

#[test]
fn what_is_no_file_is_refused_at_once() {
    let folder = Folder::new();
    assert!(matches!(KeyFile::open(&folder.0), Err(KeyFileError::Kind(_))));
    assert!(matches!(KeyFile::open(&folder.0.join("absent")), Err(KeyFileError::Io(..))));
    let pipe = folder.0.join("pipe");
    let made = std::process::Command::new("mkfifo").arg("-m").arg("600").arg(&pipe).status();
    assert!(made.expect("mkfifo belongs to the base system").success());
    // Without O_NONBLOCK this would wait for a writer for ever.
    assert!(matches!(KeyFile::open(&pipe), Err(KeyFileError::Kind(_))));
    let long = folder.file(&"#\n".repeat(40_000));
    assert!(matches!(KeyFile::open(&long), Err(KeyFileError::Long(_))));
    let path = folder.file(&format!("1 {A}\n"));
    let link = folder.0.join("link");
    symlink(&path, &link).unwrap();
    assert!(KeyFile::open(&link).is_ok());
}

#[test]
fn a_changed_file_is_read_again() {
    let folder = Folder::new();
    let path = folder.file(&format!("1 {A}\n"));
    let mut file = KeyFile::open(&path).unwrap();
    assert_eq!(file.refresh().unwrap(), None);

    // Written in place.
    write(&path, &format!("1 {A}\n2 {B}\n"), 0o600);
    let change = file.refresh().unwrap().expect("seen");
    assert_eq!(change, RingChange { added: vec![2], removed: vec![], sending: None });
    assert_eq!(file.refresh().unwrap(), None);

    // Replaced by another file.
    let new = folder.0.join("new");
    write(&new, &format!("2 {B}\n1 {A}\n"), 0o600);
    fs::rename(&new, &path).unwrap();
    let change = file.refresh().unwrap().expect("seen");
    assert_eq!(change, RingChange { sending: Some(2), ..RingChange::default() });

    // A comment alone changes nothing.
    write(&new, &format!("# comment\n2 {B}\n1 {A}\n"), 0o600);
    fs::rename(&new, &path).unwrap();
    assert_eq!(file.refresh().unwrap(), None);

    // Another key under the same number is a new one, and the old one is gone.
    write(&new, &format!("2 {A}\n"), 0o600);
    fs::rename(&new, &path).unwrap();
    let change = file.refresh().unwrap().expect("seen");
    assert_eq!(
        change,
        RingChange { added: vec![2], removed: vec![2, 1], sending: Some(2) },
        "the order is that of the files"
    );
}

#[test]
fn a_change_within_the_tick_of_the_reading_is_seen() {
    let folder = Folder::new();
    let path = folder.file(&format!("1 {A}\n"));
    let mut file = KeyFile::open(&path).unwrap();
    // The same length, and, as if both were of one tick, the same stamp.
    write(&path, &format!("2 {B}\n"), 0o600);
    file.stamp = Some(Stamp::of(&fs::metadata(&path).unwrap()));
    assert_eq!(file.refresh().unwrap().expect("seen").added, [2]);
    assert!(file.settled);
    // From then on an unchanged file is not read any more, so not even this is seen.
    write(&path, &format!("3 {A}\n"), 0o600);
    file.stamp = Some(Stamp::of(&fs::metadata(&path).unwrap()));
    assert_eq!(file.refresh().unwrap(), None);
}

#[test]
fn a_bad_new_version_keeps_the_old_keys() {
    let folder = Folder::new();
    let path = folder.file(&format!("1 {A}\n"));
    let mut file = KeyFile::open(&path).unwrap();
    write(&path, "half a li", 0o600);
    assert!(matches!(file.refresh(), Err(KeyFileError::Text(..))));
    assert_eq!(ids(&file), [1]);
    assert_eq!(file.refresh().unwrap(), None, "told once");

    write(&path, &format!("2 {B}\n"), 0o644);
    assert!(matches!(file.refresh(), Err(KeyFileError::Mode(..))));
    assert_eq!(ids(&file), [1]);
    // A change of the mode alone is a change.
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(file.refresh().unwrap().expect("seen").removed, [1]);
    assert_eq!(ids(&file), [2]);

    fs::remove_file(&path).unwrap();
    assert!(matches!(file.refresh(), Err(KeyFileError::Io(..))));
    assert_eq!(file.refresh().unwrap(), None, "told once");
    assert_eq!(ids(&file), [2]);
    write(&path, &format!("3 {A}\n"), 0o600);
    assert_eq!(file.refresh().unwrap().expect("seen").added, [3]);
}

#[test]
fn a_new_file_is_private_and_random() {
    let folder = Folder::new();
    let (one, two) = (folder.0.join("one"), folder.0.join("two"));
    key_file_new(&one).unwrap();
    key_file_new(&two).unwrap();
    assert_eq!(fs::metadata(&one).unwrap().mode() & 0o777, 0o600);
    let (one_ring, two_ring) = (KeyFile::open(&one).unwrap(), KeyFile::open(&two).unwrap());
    assert_eq!(ids(&one_ring), [1]);
    assert!(!one_ring.ring().holds(two_ring.ring().sending()), "the same key twice");
    let before = fs::read(&one).unwrap();
    assert!(matches!(key_file_new(&one), Err(KeyFileError::Exists(_))));
    assert_eq!(fs::read(&one).unwrap(), before);
}

#[test]
fn rotation_never_leaves_two_hosts_without_a_common_key() {
    let folder = Folder::new();
    let path = folder.0.join("keys");
    key_file_new(&path).unwrap();
    let mut rings = vec![KeyFile::open(&path).unwrap()];
    let steps: Vec<Rotation> = (0..6)
        .map(|_| {
            let step = key_file_rotate(&path).unwrap();
            rings.push(KeyFile::open(&path).unwrap());
            step
        })
        .collect();
    use Rotation::*;
    assert_eq!(steps, [Added(2), Promoted(2), Retired(2), Added(3), Promoted(3), Retired(3)]);
    let order: Vec<Vec<u32>> = rings.iter().map(ids).collect();
    assert_eq!(order[..5], [vec![1], vec![1, 2], vec![2, 1], vec![2], vec![2, 3]]);
    // Hosts are at most one step apart: what either sends with, the other accepts.
    for pair in rings.windows(2) {
        for (from, to) in [(&pair[0], &pair[1]), (&pair[1], &pair[0])] {
            assert!(to.ring().holds(from.ring().sending()));
        }
    }
}

#[test]
fn rotation_keeps_comments_mode_and_links() {
    let folder = Folder::new();
    let path = folder.file(&format!("# top\n7 {A}\n# bottom"));
    let link = folder.0.join("link");
    symlink(&path, &link).unwrap();
    assert_eq!(key_file_rotate(&link).unwrap(), Rotation::Added(8));
    assert_eq!(key_file_rotate(&link).unwrap(), Rotation::Promoted(8));
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    let text = fs::read_to_string(&path).unwrap();
    let starts: Vec<&str> = text.lines().map(|line| &line[..2]).collect();
    assert_eq!(starts, ["# ", "8 ", "7 ", "# "], "{text}");
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    assert_eq!(key_file_rotate(&link).unwrap(), Rotation::Retired(8));
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.starts_with("# top\n8 ") && text.ends_with("\n# bottom\n"), "{text}");
}

#[test]
fn rotation_that_cannot_go_on_changes_nothing() {
    let folder = Folder::new();
    let path = folder.file(&format!("4294967295 {A}\n"));
    let before = fs::read(&path).unwrap();
    assert!(matches!(key_file_rotate(&path), Err(KeyFileError::Ids(_))));
    assert_eq!(fs::read(&path).unwrap(), before);
    assert!(!beside(&path).exists(), "the lock is left behind");

    fs::write(beside(&path), "").unwrap();
    let error = key_file_rotate(&path).expect_err("two at once");
    assert!(matches!(error, KeyFileError::Busy(_)));
    assert!(error.to_string().ends_with("keys.new'"), "{error}");
    assert!(beside(&path).exists(), "the lock of another was removed");
    fs::remove_file(beside(&path)).unwrap();

    write(&path, &format!("1 {A}\n"), 0o640);
    assert!(matches!(key_file_rotate(&path), Err(KeyFileError::Mode(..))));
    assert!(matches!(key_file_rotate(&folder.0.join("absent")), Err(KeyFileError::Io(..))));
}
