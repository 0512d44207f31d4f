//! What the processes of a program say at their ends about what went through SRD.

use crate::failure::Result;
use serde::Deserialize;
use std::{fs, path::Path};

/// Figures of one process, as the library leaves them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Figures {
    /// Its name.
    pub program: String,
    /// Messages, reads and writes that it posted.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes received, or written or read by peers.
    pub received: u64,
    /// Packets sent.
    pub packets: u64,
    /// Packets sent again.
    pub retransmitted: u64,
    /// Paths used.
    pub paths: u32,
}

/// Figures of all processes together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// Processes that opened a device.
    pub processes: usize,
    /// Of them those with messages.
    pub speakers: usize,
    /// Messages.
    pub messages: u64,
    /// Bytes.
    pub bytes: u64,
    /// Packets.
    pub packets: u64,
    /// Packets sent again.
    pub retransmitted: u64,
    /// Most paths that one process used.
    pub paths: u32,
}

/// Reads and adds the figures in a folder.
///
/// # Errors
/// The folder cannot be read.
pub fn collect(folder: &Path) -> Result<Sum> {
    let mut sum = Sum::default();
    for entry in fs::read_dir(folder)? {
        let Ok(text) = fs::read_to_string(entry?.path()) else { continue };
        if let Ok(figures) = serde_json::from_str::<Figures>(&text) {
            sum.add(&figures);
        }
    }
    Ok(sum)
}

impl Sum {
    fn add(&mut self, f: &Figures) {
        self.processes += 1;
        self.speakers += usize::from(f.messages + f.received > 0);
        self.messages += f.messages;
        self.bytes += f.bytes;
        self.packets += f.packets;
        self.retransmitted += f.retransmitted;
        self.paths = self.paths.max(f.paths);
    }

    /// One line for people.
    pub fn text(&self) -> String {
        let plural = |n: u64, word: &str| format!("{n} {word}{}", if n == 1 { "" } else { "s" });
        format!(
            "{}, {}, {:.1} MB through SRD in {} on {}, {} sent again",
            plural(self.speakers as u64, "process").replace("processs", "processes"),
            plural(self.messages, "message"),
            self.bytes as f64 / 1e6,
            plural(self.packets, "packet"),
            plural(self.paths.into(), "path"),
            self.retransmitted
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_add_up_and_silent_processes_do_not_count_as_speakers() {
        let line = r#"{"program":"a","pid":7,"messages":2,"bytes":1500000,"received":0,
            "packets":3,"retransmitted":1,"paths":64,"peers":1}"#;
        let mut sum = Sum::default();
        sum.add(&serde_json::from_str(line).unwrap());
        sum.add(&Figures::default());
        assert_eq!((sum.processes, sum.speakers, sum.paths), (2, 1, 64));
        assert_eq!(
            sum.text(),
            "1 process, 2 messages, 1.5 MB through SRD in 3 packets on 64 paths, 1 sent again"
        );
    }
}
