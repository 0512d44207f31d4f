use super::*;
use std::{fs, os::unix::fs::symlink};

/// A temporary folder, removed when the test ends.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("srd-files-{name}-{}", std::process::id()));
        fs::create_dir_all(path.join("in/sub")).unwrap();
        Self(path)
    }

    fn folder(&self) -> Folder {
        Folder::open(&self.0.join("in")).unwrap()
    }

    fn names(&self, below: &str) -> Vec<String> {
        let list = fs::read_dir(self.0.join(below)).unwrap();
        let mut names: Vec<_> =
            list.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn write(folder: &Folder, name: &str, data: &[u8]) -> Result {
    let mut target = folder.create(name, data.len() as u64)?;
    target.write(data)?;
    target.sync()?;
    target.commit()
}

#[test]
fn files_appear_when_complete_and_replace_older_ones() {
    let s = Scratch::new("commit");
    let folder = s.folder();
    for name in ["new", "sub/new", "with spaces and ü"] {
        let mut target = folder.create(name, 3).unwrap();
        target.write(b"abc").unwrap();
        assert!(!s.0.join("in").join(name).exists(), "no name before it is complete");
        target.commit().unwrap();
        assert_eq!(fs::read(s.0.join("in").join(name)).unwrap(), b"abc");
        write(&folder, name, b"longer than before").unwrap();
        assert_eq!(fs::read(s.0.join("in").join(name)).unwrap(), b"longer than before");
        let (_, size) = folder.read(name).unwrap();
        assert_eq!(size, 18);
    }
    write(&folder, "empty", b"").unwrap();
    assert_eq!(fs::read(s.0.join("in/empty")).unwrap(), b"");
    assert_eq!(s.names("in"), ["empty", "new", "sub", "with spaces and ü"]);
}

#[test]
fn dropped_targets_leave_no_file() {
    let s = Scratch::new("drop");
    let folder = s.folder();
    let mut target = folder.create("gone", 1 << 20).unwrap();
    target.write(&[1; 4096]).unwrap();
    drop(target);
    assert_eq!(s.names("in"), ["sub"]);
    // A temporary file with a name, as on file systems without `O_TMPFILE`.
    let dir = folder_open(rustix::fs::CWD, &s.0.join("in"), true).unwrap();
    fs::write(s.0.join("in/.named.part"), b"x").unwrap();
    let file = File::create(s.0.join("in/.named.part")).unwrap();
    drop(Target::with_temporary(dir, Path::new("gone"), file, Path::new(".named.part")));
    assert_eq!(s.names("in"), ["sub"]);
}

#[test]
fn named_temporary_files_are_renamed() {
    let s = Scratch::new("named");
    let dir = folder_open(rustix::fs::CWD, &s.0.join("in"), true).unwrap();
    let file = File::create(s.0.join("in/.named.part")).unwrap();
    let mut target =
        Target::with_temporary(dir, Path::new("final"), file, Path::new(".named.part"));
    target.write(b"abc").unwrap();
    target.commit().unwrap();
    assert_eq!(s.names("in"), ["final", "sub"]);
}

#[test]
fn names_cannot_lead_outside() {
    let s = Scratch::new("escape");
    fs::write(s.0.join("secret"), b"secret").unwrap();
    fs::create_dir(s.0.join("other")).unwrap();
    symlink("../secret", s.0.join("in/link")).unwrap();
    symlink("..", s.0.join("in/up")).unwrap();
    symlink(s.0.join("other"), s.0.join("in/far")).unwrap();
    let folder = s.folder();
    let absolute = s.0.join("secret").display().to_string();
    let bad = [
        "",
        "/",
        ".",
        "..",
        "../secret",
        "sub/../../secret",
        "sub/..",
        "./link",
        "link",
        "up/secret",
        "far/new",
        "sub/",
        "sub//x",
        "a\0b",
        "/etc/passwd",
        "/dev/null",
        absolute.as_str(),
        "sub",
    ];
    for name in bad {
        assert!(folder.read(name).is_err(), "read {name:?}");
        assert!(folder.create(name, 1).is_err(), "create {name:?}");
    }
    let deep = vec!["a"; 100].join("/");
    assert!(folder.create(&deep, 1).unwrap_err().to_string().contains("too many parts"));
    assert!(folder.create(&"n".repeat(300), 1).unwrap_err().to_string().contains("too long"));
    assert_eq!(fs::read(s.0.join("secret")).unwrap(), b"secret");
    assert!(s.names("other").is_empty());
    assert_eq!(s.names("in"), ["far", "link", "sub", "up"]);
}

#[test]
fn special_files_are_refused() {
    let s = Scratch::new("special");
    let fifo = s.0.join("in/fifo");
    let made = rustix::fs::mknodat(rustix::fs::CWD, &fifo, FileType::Fifo, Mode::RWXU, 0);
    made.unwrap();
    let folder = s.folder();
    assert!(folder.read("fifo").unwrap_err().to_string().contains("not a regular file"));
    assert!(folder.create("fifo", 1).unwrap_err().to_string().contains("not a regular file"));
    assert!(local_read(Path::new("/dev/zero")).unwrap_err().to_string().contains("device"));
    assert!(local_read(&s.0).unwrap_err().to_string().contains("folder"));
    assert!(local_create(Path::new("/dev/null"), "x", 1).is_err());
}

#[test]
fn a_local_folder_takes_the_file_under_its_own_name() {
    let s = Scratch::new("local");
    local_create(&s.0.join("in"), "name", 0).unwrap().commit().unwrap();
    local_create(&s.0.join("in/other"), "name", 0).unwrap().commit().unwrap();
    assert_eq!(s.names("in"), ["name", "other", "sub"]);
    let e = local_create(&s.0.join("in/no/such"), "x", 0).unwrap_err().to_string();
    assert!(e.contains("no such file or folder"), "{e}");
}

#[test]
fn files_larger_than_the_disk_are_refused_at_once() {
    let s = Scratch::new("full");
    let e = s.folder().create("huge", 1 << 62).unwrap_err().to_string();
    assert!(e.contains("no space") || e.contains("too large"), "{e}");
    assert_eq!(s.names("in"), ["sub"]);
}
