use super::*;

/// An empty folder below the system's for temporary files, removed at the end.
struct Room(PathBuf);

impl Room {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("srd-{name} {}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    /// A folder with these files, each with its own path as its content.
    fn with(&self, name: &str, files: &[&str]) -> PathBuf {
        let folder = self.0.join(name);
        for file in files {
            make_folder(&folder.join(file)).unwrap();
            fs::write(folder.join(file), file).unwrap();
        }
        folder
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn an_update_replaces_and_a_refused_one_changes_nothing() {
    let room = Room::new("update");
    let old = room.with("old", &["bin/srd", "share/gone", "lib/srd/libefa.so.1"]);
    let new = room.with("new", &["bin/srd", "share/added", "lib/srd/libefa.so.1"]);
    let prefix = room.with("prefix", &["bin/other"]);
    put(&old, &prefix).unwrap();
    // Another program's file where the update has one: the old installation stays whole.
    fs::write(prefix.join("share/added"), "another program's").unwrap();
    let refused = put(&new, &prefix).unwrap_err();
    assert!(refused.contains("share/added exists"), "{refused}");
    assert!(prefix.join("share/gone").exists() && prefix.join("bin/srd").exists());
    fs::remove_file(prefix.join("share/added")).unwrap();
    put(&new, &prefix).unwrap();
    assert!(!prefix.join("share/gone").exists() && prefix.join("share/added").exists());
    assert_eq!(uninstall(&prefix).unwrap(), 3);
    assert_eq!(tree::entries(&prefix).unwrap(), ["bin/other", "bin"].map(PathBuf::from));
    let again = uninstall(&prefix).unwrap_err();
    assert!(again.contains("did not install below this prefix"), "{again}");
}

#[test]
fn a_prefix_is_removed_with_what_is_in_it_and_nothing_outside() {
    let room = Room::new("list");
    let prefix = room.0.join("prefix");
    let files = room.with("files", &["bin/srd", "lib/srd/libefa.so.1"]);
    put(&files, &prefix).unwrap();
    uninstall(&prefix).unwrap();
    assert!(!prefix.exists(), "a prefix that was made is removed");
    put(&files, &prefix).unwrap();
    fs::write(prefix.join(LIST), "bin/srd\n../outside\n").unwrap();
    let refused = uninstall(&prefix).unwrap_err();
    assert!(refused.contains("`../outside` is no path below the prefix"), "{refused}");
    assert!(prefix.join("bin/srd").exists() && prefix.join(LIST).exists());
}

#[test]
fn a_prefix_that_cannot_be_written_is_refused_and_left_as_it_is() {
    let room = Room::new("writable");
    let prefix = room.0.join("new/prefix");
    writable(&prefix).unwrap();
    assert!(!prefix.exists() && !room.0.join("new").exists());
    assert_eq!(fs::read_dir(&room.0).unwrap().count(), 0);
    fs::write(room.0.join("new"), "a file").unwrap();
    let refused = writable(&prefix).unwrap_err();
    assert!(refused.contains("cannot install into") && refused.contains("--prefix"), "{refused}");
}
