//! The table as a file: real processes that are killed at any instruction, files of others and of
//! other layouts, two users.

use srd_core::{HostNote, HostView, Rng, Span, Time};
use srd_share::{Member, Owner, Segment, segment_path};
use std::fs::{self, OpenOptions, Permissions};
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const IP: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// Tells a copy of this test program what to do.
const ROLE: &str = "SRD_SHARE_TEST_FILE";

/// A file of its own for each test, removed at the end.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let pid = std::process::id();
        Self(Path::new("/dev/shm").join(format!("srd-share-test-{name}-{pid}-1")))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn now_ns() -> u64 {
    // All processes of a test read the same clock: the time since the machine started.
    let text = fs::read_to_string("/proc/uptime").expect("Linux has it");
    let seconds: f64 =
        text.split_whitespace().next().and_then(|s| s.parse().ok()).expect("a number");
    (seconds * 1e9) as u64
}

fn tell(member: &mut Member, now_ns: u64, rate: u64) -> HostView {
    let now = Time(now_ns);
    let note = HostNote {
        ip: IP,
        until: now + Span::from_ms(50),
        backlogged: true,
        rate_host: rate,
        rate_own: rate,
        delivered: rate,
        lost_permille: 0,
        inflight: 1,
        inflight_max: 2,
        rtt_ns_min: 3,
        rtt_ns_smoothed: 4,
        packets_sent: 5,
        packets_lost: 6,
    };
    member.exchange(now_ns, now, &note)
}

/// Starts a copy of this program that does what the test `role` does there.
fn copy_of(role: &str, file: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("it runs"));
    command.args(["--exact", role, "--ignored", "--nocapture"]).env(ROLE, file);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

fn start(role: &str, file: &Path) -> Child {
    copy_of(role, file).spawn().expect("a copy of this program runs")
}

/// Not a test of its own: joins, writes for ever, leaves and joins again now and then.
#[test]
#[ignore = "a role that the other tests start"]
fn role_writer() {
    let Some(file) = std::env::var_os(ROLE) else { return };
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(60) {
        let (segment, mut member) = Segment::join(Path::new(&file), IP).expect("it can join");
        for _ in 0..500 {
            let view = tell(&mut member, now_ns(), 1_000);
            assert!((1..=256).contains(&view.senders));
        }
        drop(member);
        segment.leave();
    }
}

/// Not a test of its own: whether the file of another user can be used.
#[test]
#[ignore = "a role that the other tests start"]
fn role_stranger() {
    let Some(file) = std::env::var_os(ROLE) else { return };
    let text = Segment::open(Path::new(&file)).expect_err("it is another user's").to_string();
    assert!(text.contains("another user"), "{text}");
    assert_ne!(segment_path(), Path::new(&file), "users have files of their own");
}

#[test]
fn processes_killed_at_any_moment_leave_nothing_that_harms() {
    let place = Place::new("kill");
    let (_segment, mut member) = Segment::join(&place.0, IP).expect("there is room");
    let mut rng = Rng::from_seed(u64::from(std::process::id()));
    let mut writers: Vec<Child> = (0..3).map(|_| start("role_writer", &place.0)).collect();
    let (mut met, mut kills) = (0, 0);
    let begin = Instant::now();
    while kills < 40 || met < 3 {
        assert!(begin.elapsed() < Duration::from_secs(120), "{kills} kills, met {met}");
        let pause = Duration::from_micros(u64::from(rng.below(30_000)));
        let until = Instant::now() + pause;
        while Instant::now() < until {
            let view = tell(&mut member, now_ns(), 1_000);
            assert!((1..=200).contains(&view.senders), "{view:?}");
            assert_eq!(view.rate_bytes_per_sec, 1_000, "all say the same: {view:?}");
            met = met.max(view.senders);
        }
        let k = rng.below(writers.len() as u32) as usize;
        writers[k].kill().expect("it is ours");
        let ended = writers[k].wait().expect("it has ended");
        assert_eq!(ended.signal(), Some(9), "no writer ends by itself: {ended}");
        writers[k] = start("role_writer", &place.0);
        kills += 1;
    }
    for writer in &mut writers {
        writer.kill().expect("it is ours");
        writer.wait().expect("it has ended");
    }
    // What the dead said ends by itself; their slots are there for others.
    let later = now_ns() + 1_000_000_000;
    assert_eq!(tell(&mut member, later, 1_000).senders, 1);
    let (segment, other) = Segment::join(&place.0, IP).expect("there is room");
    let lives = segment.table().snapshot(later, Owner::is_alive).members.len();
    assert_eq!(lives, 2, "only this process has slots");
    assert!(other.index() < 8, "slots of the dead are taken again: {}", other.index());
}

#[test]
fn a_file_of_another_layout_is_replaced() {
    let place = Place::new("layout");
    let size = {
        let _made = Segment::join(&place.0, IP).expect("there is room");
        fs::metadata(&place.0).expect("it is there").len()
    };
    // Another version: the same size, other words. Then a file that is too short, and an empty one.
    for content in [vec![0xAB; size as usize], vec![0xAB; 100], vec![]] {
        fs::write(&place.0, &content).expect("it is ours");
        let (_segment, mut member) = Segment::join(&place.0, IP).expect("it makes a new one");
        assert_eq!(tell(&mut member, now_ns(), 9).senders, 1);
        let meta = fs::metadata(&place.0).expect("it is there");
        assert_eq!((meta.len(), meta.mode() & 0o777), (size, 0o600));
    }
}

#[test]
fn the_last_one_removes_the_file_and_those_before_do_not() {
    let place = Place::new("last");
    let (first, a) = Segment::join(&place.0, IP).expect("there is room");
    let (second, b) = Segment::join(&place.0, IP).expect("there is room");
    drop(a);
    first.leave();
    assert!(place.0.exists());
    drop(b);
    second.leave();
    assert!(!place.0.exists());
    assert!(Segment::look(&place.0).expect("nothing is wrong").is_none());
}

#[test]
fn what_others_could_have_made_is_refused() {
    let place = Place::new("foreign");
    let refused = |words: &str| {
        let text = Segment::open(&place.0).expect_err("it is refused").to_string();
        assert!(text.contains(words) && text.contains("remove it"), "no {words:?} in {text}");
    };
    Segment::open(&place.0).expect("it makes one");
    fs::set_permissions(&place.0, Permissions::from_mode(0o666)).expect("it is ours");
    refused("other users may open it");
    fs::remove_file(&place.0).expect("it is ours");
    let target = Place::new("target");
    OpenOptions::new().write(true).create(true).truncate(true).open(&target.0).expect("made");
    symlink(&target.0, &place.0).expect("made");
    refused("symbolic link");
    fs::remove_file(&place.0).expect("it is ours");
    fs::create_dir(&place.0).expect("made");
    let text = Segment::open(&place.0).expect_err("it is refused").to_string();
    fs::remove_dir(&place.0).expect("it is ours");
    assert!(text.contains("srd-share-test-foreign"), "{text}");
    let missing = Path::new("/dev/shm/no-such-folder/file");
    let text = Segment::open(missing).expect_err("there is no folder").to_string();
    assert!(text.contains("no-such-folder") && text.contains("cannot be made"), "{text}");
}

/// Needs root, to be two users; otherwise there is nobody to compare with.
#[test]
fn users_have_tables_of_their_own() {
    let me = fs::metadata("/proc/self").expect("Linux has it").uid();
    if me != 0 {
        eprintln!("not root: only one user to test with");
        return;
    }
    let place = Place::new("users");
    Segment::open(&place.0).expect("it makes one");
    // The program must be where the other user may run it.
    let program =
        std::env::temp_dir().join(format!("srd-share-test-program-{}", std::process::id()));
    // Another process copies it: a child that another test starts meanwhile would inherit our open
    // file, and a program that is open for writing does not start.
    let here = std::env::current_exe().expect("it runs");
    let copied = Command::new("cp").arg(here).arg(&program).status().expect("there is cp");
    assert!(copied.success(), "copied");
    fs::set_permissions(&program, Permissions::from_mode(0o755)).expect("it is ours");
    let mut stranger = Command::new(&program);
    stranger.args(["--exact", "role_stranger", "--ignored"]).env(ROLE, &place.0).current_dir("/");
    let done = stranger.uid(65_534).gid(65_534).output();
    let _ = fs::remove_file(&program);
    let done = done.expect("it runs");
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(done.status.success() && text.contains("1 passed"), "{text}");
    chown(&place.0, Some(65_534), None).expect("root may");
    let refused = Segment::open(&place.0).expect_err("it is another user's").to_string();
    assert!(refused.contains("another user"), "{refused}");
}
