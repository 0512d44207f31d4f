//! Statistics that each process of a program writes when it ends.

use crate::failure::Result;
use serde::Deserialize;
use std::{fs, path::Path};

/// Statistics of one process, as the drop-in library writes them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Figures {
    /// Name of the program.
    pub program: String,
    /// Messages, RDMA reads and RDMA writes that the process posted.
    pub messages: u64,
    /// Bytes of those.
    pub bytes: u64,
    /// Bytes received, or written or read by peers.
    pub received: u64,
    /// Messages received, and writes of peers with immediate data.
    pub arrived: u64,
    /// Bytes of `received` that peers have read.
    pub served: u64,
    /// Packets sent.
    pub packets: u64,
    /// Packets retransmitted.
    pub retransmitted: u64,
    /// Paths used.
    pub paths: u32,
    /// Whether all that the process sent was sealed.
    pub sealed: bool,
}

/// Sums over all processes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// Processes that opened a device.
    pub processes: usize,
    /// Processes that posted messages.
    pub senders: usize,
    /// Messages.
    pub messages: u64,
    /// Bytes.
    pub bytes: u64,
    /// Bytes received, or written or read by peers.
    pub received: u64,
    /// Messages received, and writes of peers with immediate data.
    pub arrived: u64,
    /// Bytes of `received` that peers have read.
    pub served: u64,
    /// Packets.
    pub packets: u64,
    /// Packets retransmitted.
    pub retransmitted: u64,
    /// Largest number of paths that one process used.
    pub paths: u32,
    /// Processes that sent or received messages, and have sent packets without a seal.
    pub unsealed: usize,
}

/// Reads and adds the statistics in a folder.
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
        self.senders += usize::from(f.messages + f.received > 0);
        self.unsealed += usize::from(f.messages + f.received > 0 && !f.sealed);
        self.messages += f.messages;
        self.bytes += f.bytes;
        self.received += f.received;
        self.arrived += f.arrived;
        self.served += f.served;
        self.packets += f.packets;
        self.retransmitted += f.retransmitted;
        self.paths = self.paths.max(f.paths);
    }

    /// A summary in one line. What came from peers is in it if that is more than what was posted
    /// here: the peers are not of this job then (within one, both are the same).
    pub fn text(&self) -> String {
        format!(
            "{}, {}, {:.1} MB through SRD in {} on {}, {} sent again, {}{}",
            plural(self.senders as u64, "process"),
            plural(self.messages, "message"),
            self.bytes as f64 / 1e6,
            plural(self.packets, "packet"),
            plural(self.paths.into(), "path"),
            self.retransmitted,
            if self.received > self.bytes { self.peers_text() } else { String::new() },
            if self.unsealed == 0 { "sealed" } else { "not sealed" }
        )
    }

    /// What peers sent, wrote and read, each part followed by a comma.
    fn peers_text(&self) -> String {
        let came = self.received.saturating_sub(self.served);
        let mut text = String::new();
        if came > 0 {
            let messages = plural(self.arrived, "message");
            text += &format!("{messages} and {:.1} MB received, ", came as f64 / 1e6);
        }
        if self.served > 0 {
            text += &format!("{:.1} MB read by peers, ", self.served as f64 / 1e6);
        }
        text
    }
}

fn plural(n: u64, word: &str) -> String {
    let end = match n {
        1 => "",
        _ if word.ends_with('s') => "es",
        _ => "s",
    };
    format!("{n} {word}{end}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_add_up_and_silent_processes_are_not_senders() {
        let line = r#"{"program":"a","pid":7,"messages":2,"bytes":1500000,"received":0,
            "packets":3,"retransmitted":1,"paths":64,"peers":1}"#;
        let mut sum = Sum::default();
        sum.add(&serde_json::from_str(line).unwrap());
        sum.add(&Figures::default());
        assert_eq!((sum.processes, sum.senders, sum.paths), (2, 1, 64));
        assert_eq!(
            sum.text(),
            "1 process, 2 messages, 1.5 MB through SRD in 3 packets on 64 paths, 1 sent again, not \
             sealed"
        );
        let mut sum = Sum::default();
        let sealed = line.replace("\"peers\":1", "\"sealed\":true");
        sum.add(&serde_json::from_str(&sealed).unwrap());
        assert!(sum.text().ends_with("1 sent again, sealed"));
    }

    /// Servers of measurements send nothing, and are told what they received.
    #[test]
    fn what_peers_sent_is_told_where_it_is_more_than_what_was_posted() {
        let line = r#"{"messages":0,"bytes":0,"received":8900000,"arrived":1000,"served":0,
            "packets":1098,"paths":15,"sealed":true}"#;
        let told = |line: &str| {
            let mut sum = Sum::default();
            sum.add(&serde_json::from_str(line).unwrap());
            sum.text()
        };
        assert_eq!(
            told(line),
            "1 process, 0 messages, 0.0 MB through SRD in 1098 packets on 15 paths, 0 sent again, \
             1000 messages and 8.9 MB received, sealed"
        );
        let served = told(&line.replace("\"served\":0", "\"served\":8900000"));
        assert!(served.ends_with("0 sent again, 8.9 MB read by peers, sealed"), "{served}");
        let within = told(&line.replace("\"bytes\":0", "\"bytes\":8900000"));
        assert!(within.ends_with("0 sent again, sealed"), "{within}");
    }
}
