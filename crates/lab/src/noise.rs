//! Delays added by a host's kernel and processors: distributions recorded on real hosts (`srd net
//! record-noise`), read from small text files, and drawn from a seeded stream.
//!
//! A line of a file is a name and points `PERCENT=VALUE`, both increasing. Values are interpolated
//! linearly between points, and constant beyond the first and last point. `#` begins a comment.

use srd_fabric::{NS, Ps, Rng};
use std::collections::BTreeMap;
use std::path::Path;

/// Models embedded in the program: name and text. A host without a model adds no delay.
pub const EMBEDDED: &[(&str, &str)] =
    &[("quiet", include_str!("../data/quiet.noise")), ("busy", include_str!("../data/busy.noise"))];
/// Name of the host without delays.
pub const IDEAL: &str = "ideal";
/// Largest value of a file, in ns or bytes: an hour, some terabytes.
const VALUE_MAX: f64 = 3.6e12;
/// Least mean time between stolen spans in ns; below it a run would make hardly any progress.
const STOLEN_GAP_NS_MIN: f64 = 1_000.0;
/// Names of a file's lines, except sends, whose names end in their number of packets.
const NAMES: [&str; 9] = [
    "wake_ns",
    "stamp_ns",
    "stamp_step_ns",
    "recv_ns",
    "recv_packet_ns",
    "batch_packets",
    "stolen_gap_ns",
    "stolen_ns",
    "socket_bytes",
];
/// Prefix of the names of sends.
const SEND: &str = "send_ns/";

/// A distribution as points of its quantiles.
#[derive(Clone, Debug, PartialEq)]
pub struct Distribution {
    /// Share from 0 to 1 and value, both increasing.
    points: Vec<(f64, f64)>,
}

impl Distribution {
    fn parse<'a>(words: impl Iterator<Item = &'a str>) -> Result<Self, String> {
        let mut points: Vec<(f64, f64)> = Vec::new();
        for word in words {
            let number = |text: &str| text.parse::<f64>().ok();
            let pair = word.split_once('=').and_then(|(p, v)| Some((number(p)?, number(v)?)));
            let (percent, value) = pair.ok_or(format!("`{word}` is not PERCENT=VALUE"))?;
            if !(0.0..=100.0).contains(&percent) || !(0.0..=VALUE_MAX).contains(&value) {
                return Err(format!(
                    "`{word}`: give a percentage from 0 to 100 and a value from 0 to {VALUE_MAX}"
                ));
            }
            if points.last().is_some_and(|(p, v)| percent / 100.0 <= *p || value < *v) {
                return Err(format!("`{word}` does not rise above the point before it"));
            }
            points.push((percent / 100.0, value));
        }
        if points.is_empty() { Err("no point PERCENT=VALUE".into()) } else { Ok(Self { points }) }
    }

    /// The quantile of the share `u`.
    pub fn at(&self, u: f64) -> f64 {
        let at = self.points.partition_point(|(share, _)| *share < u);
        let (share, value) = self.points[at.min(self.points.len() - 1)];
        match at.checked_sub(1).map(|below| self.points[below]) {
            Some((least, from)) if at < self.points.len() => {
                from + (value - from) * ((u - least) / (share - least))
            }
            _ => value,
        }
    }

    /// Mean value.
    pub fn mean(&self) -> f64 {
        let (first, last) = (self.points[0], self.points[self.points.len() - 1]);
        let parts = self.points.windows(2).map(|w| (w[1].0 - w[0].0) * (w[0].1 + w[1].1) / 2.0);
        first.0 * first.1 + parts.sum::<f64>() + (1.0 - last.0) * last.1
    }

    /// Draws a time in ps from a distribution in ns.
    pub fn draw_ps(&self, rng: &mut Rng) -> Ps {
        (self.at(rng.unit()) * NS as f64) as Ps
    }
}

/// Model of a host's kernel and processors.
#[derive(Clone, Debug, PartialEq)]
pub struct HostModel {
    /// Delay from a packet's timestamp until a process that slept has the packet, ns.
    pub wake: Distribution,
    /// Delay from a packet's arrival to the kernel's timestamp, ns.
    pub stamp: Distribution,
    /// Resolution of timestamps in ns.
    pub stamp_step_ns: u64,
    /// Duration of a receive call that returns one packet, ns.
    pub recv: Distribution,
    /// Duration per packet of a receive call that returns several, ns.
    pub recv_packet: Distribution,
    /// Packets that one receive call returns when more wait.
    pub batch: Distribution,
    /// Time between two spans in which a running thread does not run, ns.
    pub stolen_gap: Distribution,
    /// Length of these spans, ns.
    pub stolen: Distribution,
    /// Receive buffer of a socket in bytes, as the kernel counts it.
    pub socket_bytes: u64,
    /// Packets of a segmented send, increasing, and the duration of its call in ns.
    pub send: Vec<(u32, Distribution)>,
}

impl HostModel {
    /// Reads an embedded model by name, or a file in `folder`; `None` is the host without delays.
    ///
    /// # Errors
    /// The text says what is wrong, and in which line.
    pub fn load(name: &str, folder: &Path) -> Result<Option<Self>, String> {
        if name == IDEAL {
            return Ok(None);
        }
        if let Some((_, text)) = EMBEDDED.iter().find(|(known, _)| *known == name) {
            return Self::parse(text).map(Some).map_err(|e| format!("host = \"{name}\": {e}"));
        }
        let path = folder.join(name);
        let text = std::fs::read_to_string(&path).map_err(|e| {
            format!(
                "host = \"{name}\": {}: {e}; give \"ideal\", \"quiet\", \"busy\" or a file of \
                 `srd net record-noise`",
                path.display()
            )
        })?;
        Self::parse(&text).map(Some).map_err(|e| format!("host = \"{name}\": {e}"))
    }

    /// Parses the text of a file.
    ///
    /// # Errors
    /// The text says what is wrong, and in which line.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut lines: BTreeMap<&str, Distribution> = BTreeMap::new();
        let mut send = Vec::new();
        for (n, line) in text.lines().enumerate() {
            let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
            let Some(name) = words.next() else { continue };
            let fail = |e: String| format!("line {}: {name}: {e}", n + 1);
            let values = Distribution::parse(words).map_err(fail)?;
            if let Some(packets) = name.strip_prefix(SEND) {
                let packets = packets.parse::<u32>().ok().filter(|n| (1..=128).contains(n));
                let packets = packets.ok_or_else(|| fail("give 1 to 128 packets".into()))?;
                send.push((packets, values));
            } else if !NAMES.contains(&name) {
                return Err(fail(format!(
                    "unknown name; the names are {}, {SEND}N",
                    NAMES.join(", ")
                )));
            } else if lines.insert(name, values).is_some() {
                return Err(fail("given twice".into()));
            }
        }
        let mut take = |name: &str| lines.remove(name).ok_or(format!("{name} is missing"));
        send.sort_by_key(|(packets, _)| *packets);
        if send.first().is_none_or(|(packets, _)| *packets != 1) {
            return Err(format!("{SEND}1 is missing"));
        }
        let model = Self {
            wake: take("wake_ns")?,
            stamp: take("stamp_ns")?,
            stamp_step_ns: (take("stamp_step_ns")?.at(0.5) as u64).max(1),
            recv: take("recv_ns")?,
            recv_packet: take("recv_packet_ns")?,
            batch: take("batch_packets")?,
            stolen_gap: take("stolen_gap_ns")?,
            stolen: take("stolen_ns")?,
            socket_bytes: take("socket_bytes")?.at(0.5) as u64,
            send,
        };
        if model.stolen_gap.mean() < STOLEN_GAP_NS_MIN {
            return Err(format!("stolen_gap_ns is below {STOLEN_GAP_NS_MIN} on average"));
        }
        if model.socket_bytes < 20_000 {
            return Err(
                "socket_bytes: the socket holds fewer than two packets; give at least 20000".into(),
            );
        }
        Ok(model)
    }

    /// Most packets of a segmented send.
    pub fn burst_max(&self) -> usize {
        self.send.last().map_or(1, |(packets, _)| *packets as usize)
    }

    /// Draws the duration of a call that sends `packets` packets, from the next longer recorded
    /// burst.
    pub fn send_ps(&self, packets: usize, rng: &mut Rng) -> Ps {
        let at = self.send.partition_point(|(n, _)| (*n as usize) < packets);
        self.send[at.min(self.send.len() - 1)].1.draw_ps(rng)
    }
}

#[cfg(test)]
pub(crate) const SMALL: &str = "wake_ns 0=1000 50=3000 100=9000\nstamp_ns 50=100\n\
    stamp_step_ns 50=1\nrecv_ns 50=500\nrecv_packet_ns 50=200\nbatch_packets 50=8\n\
    stolen_gap_ns 50=100000\nstolen_ns 50=2000\nsocket_bytes 50=400000\n\
    send_ns/1 50=800\nsend_ns/8 50=2400\n";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_lie_evenly_between_points() {
        let d = Distribution::parse("10=100 50=300 90=700".split(' ')).unwrap();
        for (u, want) in
            [(0.0, 100.), (0.1, 100.), (0.3, 200.), (0.5, 300.), (0.7, 500.), (1.0, 700.)]
        {
            assert!((d.at(u) - want).abs() < 1e-9, "{u}: {}", d.at(u));
        }
        assert!((d.mean() - (10. + 80. + 200. + 70.)).abs() < 1e-9, "{}", d.mean());
    }

    #[test]
    fn models_by_name_are_there_and_ideal_is_none() {
        let load = |name| HostModel::load(name, Path::new("."));
        assert_eq!(load("ideal"), Ok(None));
        let (quiet, busy) = (load("quiet").unwrap().unwrap(), load("busy").unwrap().unwrap());
        assert!(
            quiet.stolen.mean() / quiet.stolen_gap.mean()
                < busy.stolen.mean() / busy.stolen_gap.mean()
        );
        assert!(quiet.burst_max() >= 8);
        let e = load("noisy").unwrap_err();
        assert!(e.contains("host = \"noisy\"") && e.contains("\"ideal\", \"quiet\""), "{e}");
    }

    #[test]
    fn sends_take_the_time_of_the_next_longer_burst() {
        let (m, mut rng) = (HostModel::parse(SMALL).unwrap(), Rng::new(1));
        let ns = [1, 2, 8, 9].map(|n| m.send_ps(n, &mut rng) / NS);
        assert_eq!(ns, [800, 2_400, 2_400, 2_400]);
    }

    #[test]
    fn what_is_no_model_is_refused_with_its_line() {
        for (change, part) in [
            ("wake_ns 50=3=4", "line 12: wake_ns: `50=3=4` is not PERCENT=VALUE"),
            ("wake_ns", "no point PERCENT=VALUE"),
            ("wake_ns 50=1", "wake_ns: given twice"),
            ("wakes 50=1", "unknown name; the names are wake_ns"),
            ("send_ns/0 50=1", "give 1 to 128 packets"),
            ("send_ns/4 50=1 40=2", "`40=2` does not rise"),
            ("send_ns/4 101=1", "percentage from 0 to 100"),
            ("send_ns/4 50=-1", "a value from 0"),
        ] {
            let e = HostModel::parse(&format!("{SMALL}{change}\n")).unwrap_err();
            assert!(e.contains(part), "{change}: {e}");
        }
        let e = HostModel::parse(&SMALL.replace("stolen_ns 50=2000\n", "")).unwrap_err();
        assert_eq!(e, "stolen_ns is missing");
        let e = HostModel::parse(&SMALL.replace("50=100000", "50=10")).unwrap_err();
        assert!(e.contains("stolen_gap_ns is below"), "{e}");
    }
}
