//! A capture of real traffic, read by another program where there is one.

use srd_datapath::{Datapath, capture::Capture, mem::MemNet, send_batch};
use std::{path::PathBuf, process::Command};

/// A file that is removed at the end of a test, however it ends.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn a_capture_file_is_whole_and_tcpdump_reads_it() {
    let file = Scratch(std::env::temp_dir().join(format!("srd-{}.pcapng", std::process::id())));
    for (here, there) in [("10.0.0.1:7", "10.0.0.2:8"), ("[2001:db8::1]:7", "[2001:db8::2]:8")] {
        let net = MemNet::new();
        let (here, there) = (here.parse().unwrap(), there.parse().unwrap());
        let inner = net.endpoint(here).unwrap();
        let mut a = Capture::to_file(inner, &file.0).unwrap();
        let b = net.endpoint(there).unwrap();
        for len in 1..=20usize {
            let bytes = vec![len as u8; len];
            send_batch(&mut a, |tx| tx.push(there, 3, &bytes, &[])).unwrap().0.unwrap();
        }
        a.finish().unwrap();
        assert_eq!(b.port(), 8);
        // Section 28 bytes, interface 32; each packet 44 of frame and option, headers, padding.
        let headers = if here.is_ipv4() { 28 } else { 48 };
        let packets = (1..=20usize).map(|len| 44 + (headers + len).next_multiple_of(4));
        let want = 28 + 32 + packets.sum::<usize>() as u64;
        assert_eq!(std::fs::metadata(&file.0).unwrap().len(), want);
        tcpdump_check(&file.0, here.is_ipv4());
    }
}

/// With `-v`, tcpdump checks the checksums of both headers.
fn tcpdump_check(file: &std::path::Path, v4: bool) {
    let Ok(out) = Command::new("tcpdump").args(["-nvv", "-r"]).arg(file).output() else {
        eprintln!("tcpdump is not installed: the file was checked by its length only");
        return;
    };
    let text = String::from_utf8_lossy(&out.stdout);
    let (src, dst) = match v4 {
        true => ("10.0.0.1.40003", "10.0.0.2.8"),
        false => ("2001:db8::1.40003", "2001:db8::2.8"),
    };
    for len in 1..=20 {
        let line = format!("{src} > {dst}: [udp sum ok] UDP, length {len}\n");
        assert!(text.contains(&line), "no {line:?} in\n{text}");
    }
    assert!(!text.contains("bad"), "{text}");
}
