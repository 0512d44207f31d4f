//! The measured rows; each is a pair of command lines.

use crate::{
    Result,
    net::{FAR_IP, NEAR_IP, Net},
    pair::{self, EndOutputs, LIFE_SECONDS, Ready, Server, json_of},
};
use serde_json::Value;
use srd_core::EngineConfig;
use std::{
    net::{IpAddr, Ipv4Addr},
    path::PathBuf,
};

/// Port of the TCP and raw UDP servers.
const PORT: &str = "18990";
/// Bytes of one RDMA write, rounded down to whole packets.
const WRITE_BYTES: u32 = 256 << 10;

/// Packets of one segmented send of raw UDP, or as many as fit into one.
const RAW_BATCH: u16 = 8;

/// Packets of SRD's longest bursts on one path, where each has `size` bytes of payload.
pub fn burst_of(size: u32) -> u16 {
    let nobody = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    EngineConfig::sockets(nobody, 0, size as u16).burst_packets
}

/// How an end waits for packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    Spin,
    Block,
}

impl Wait {
    pub const BOTH: [Self; 2] = [Self::Spin, Self::Block];

    pub fn word(self) -> &'static str {
        if self == Self::Spin { "spin" } else { "block" }
    }
}

/// Who drives the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    Caller,
    Thread,
}

impl Driver {
    fn word(self) -> &'static str {
        if self == Self::Caller { "caller" } else { "thread" }
    }
}

/// One measurement. Sizes are bytes of payload of one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Row {
    RawStream {
        size: u32,
    },
    /// As `RawStream`, with segmented sends of as many packets as SRD's longest bursts have.
    RawBurst {
        size: u32,
    },
    SrdSend {
        size: u32,
        driver: Driver,
    },
    SrdWrite {
        size: u32,
    },
    /// As the two rows above, driven by the caller, but without checksum.
    SrdSendUnchecked {
        size: u32,
    },
    SrdWriteUnchecked {
        size: u32,
    },
    TcpStream {
        size: u32,
    },
    /// As `SrdWrite`, with a key file.
    SrdWriteSealed {
        size: u32,
    },
    /// One stream of TCP with TLS 1.3, or of QUIC.
    TlsStream {
        size: u32,
    },
    QuicStream {
        size: u32,
    },
    /// As `SrdPing` with polling, with a key file.
    SrdPingSealed,
    RawPing(Wait),
    SrdPing(Wait),
    TcpPing(Wait),
    RawRate,
    /// As `RawRate`, with a system call for each packet, as packets to many peers need.
    RawSingle,
    SrdRate {
        peers: u32,
    },
}

/// Payload sizes: of ordinary links and of links with jumbo frames.
pub const SIZES: [u32; 2] = [1400, 8900];
/// Number of peers in the rows with many peers.
pub const PEERS: u32 = 1000;

/// Every row, in the order of one round.
pub fn all() -> Vec<Row> {
    let mut rows = Vec::new();
    for size in SIZES {
        rows.push(Row::RawStream { size });
        if burst_of(size) > RAW_BATCH {
            rows.push(Row::RawBurst { size });
        }
        rows.push(Row::SrdSend { size, driver: Driver::Caller });
        rows.push(Row::SrdWrite { size });
        rows.push(Row::SrdSendUnchecked { size });
        rows.push(Row::SrdWriteUnchecked { size });
        rows.push(Row::SrdSend { size, driver: Driver::Thread });
        rows.push(Row::TcpStream { size });
    }
    for wait in Wait::BOTH {
        rows.extend([Row::RawPing(wait), Row::SrdPing(wait), Row::TcpPing(wait)]);
    }
    rows.extend([Row::RawRate, Row::SrdRate { peers: 1 }]);
    rows.extend([Row::RawSingle, Row::SrdRate { peers: PEERS }]);
    rows
}

/// The programs that run the ends.
pub struct Programs {
    pub own: PathBuf,
    pub raw: PathBuf,
    /// The ends of TLS and QUIC, which only the rows about sealing need.
    pub secure: PathBuf,
    /// The key file of sealed rows.
    pub key: PathBuf,
}

impl Programs {
    /// This program, and the example `raw` next to it.
    pub fn find() -> Result<Self> {
        let own = std::env::current_exe()?;
        let raw = own.parent().ok_or("no folder")?.join("examples").join("raw");
        let secure = "bench/secure/target/release/srd-secure".into();
        let key = own.with_file_name("report-keys");
        if !key.exists() {
            srd::seal::key_file_new(&key)?;
        }
        if raw.is_file() {
            return Ok(Self { own, raw, secure, key });
        }
        let build = "cargo build --release -p srd-datapath --example raw";
        Err(format!("{} does not exist; build it: {build}", raw.display()).into())
    }
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(String::from).collect()
}

impl Row {
    /// Name on the command line and in tables.
    pub fn name(self) -> String {
        match self {
            Self::RawStream { size } => format!("raw-{size}"),
            Self::RawBurst { size } => format!("raw-burst-{size}"),
            Self::SrdSend { size, driver: Driver::Caller } => format!("srd-send-{size}"),
            Self::SrdSend { size, driver: Driver::Thread } => format!("srd-send-thread-{size}"),
            Self::SrdWrite { size } => format!("srd-write-{size}"),
            Self::SrdSendUnchecked { size } => format!("srd-send-unchecked-{size}"),
            Self::SrdWriteUnchecked { size } => format!("srd-write-unchecked-{size}"),
            Self::TcpStream { size } => format!("tcp-{size}"),
            Self::SrdWriteSealed { size } => format!("srd-write-sealed-{size}"),
            Self::TlsStream { size } => format!("tls-{size}"),
            Self::QuicStream { size } => format!("quic-{size}"),
            Self::SrdPingSealed => "srd-ping-sealed".into(),
            Self::RawPing(wait) => format!("raw-ping-{}", wait.word()),
            Self::SrdPing(wait) => format!("srd-ping-{}", wait.word()),
            Self::TcpPing(wait) => format!("tcp-ping-{}", wait.word()),
            Self::RawRate => "raw-rate".into(),
            Self::RawSingle => "raw-single".into(),
            Self::SrdRate { peers } => format!("srd-rate-{peers}"),
        }
    }

    /// Finds a row by its name.
    pub fn named(name: &str) -> Result<Self> {
        let every = || all().into_iter().chain(crate::sealed::rows());
        let found = every().find(|r| r.name() == name);
        let names = || every().map(|r| r.name()).collect::<Vec<_>>().join(" ");
        found.ok_or_else(|| format!("there is no row `{name}`; the rows are {}", names()).into())
    }

    /// Command lines of the serving and the driving end, without values from the server's output.
    pub fn commands(self, p: &Programs, seconds: f64) -> [Vec<String>; 2] {
        let (own, raw) = (p.own.display(), p.raw.display());
        let end = |name: &str, rest: String| format!("{own} end {name} {rest}");
        let timed = |rest: String| format!("timeout {LIFE_SECONDS} {rest}");
        let to = format!("--local {NEAR_IP} --remote {FAR_IP} --seconds {seconds}");
        let raw_stream = |size: u32, batch: u16| {
            let both = format!("--size {size} --paths 64 --batch {batch}");
            let far = format!("{raw} rx --local {FAR_IP} --port {PORT} {both}");
            let near = format!("{raw} tx --local {NEAR_IP} --remote {FAR_IP}:{PORT} {both}");
            [timed(far), timed(format!("{near} --duration {seconds}"))]
        };
        let pair = match self {
            Self::RawStream { size } => raw_stream(size, RAW_BATCH),
            Self::RawBurst { size } => raw_stream(size, burst_of(size)),
            Self::RawRate => raw_stream(64, RAW_BATCH),
            Self::RawSingle => raw_stream(64, 1),
            Self::SrdSendUnchecked { size } => {
                let plain = Self::SrdSend { size, driver: Driver::Caller };
                return plain.commands(p, seconds).map(unchecked);
            }
            Self::SrdWriteUnchecked { size } => {
                return Self::SrdWrite { size }.commands(p, seconds).map(unchecked);
            }
            Self::SrdWriteSealed { size } => {
                return Self::SrdWrite { size }.commands(p, seconds).map(|all| sealed(all, p));
            }
            Self::SrdPingSealed => {
                return Self::SrdPing(Wait::Spin).commands(p, seconds).map(|all| sealed(all, p));
            }
            Self::TlsStream { size } => secure(p, "tls", size, seconds),
            Self::QuicStream { size } => secure(p, "quic", size, seconds),
            Self::SrdSend { size, driver } => {
                let driver = driver.word();
                let both = format!("--mtu {size} --size {size} --depth 1024 --engine {driver}");
                let far = format!("--local {FAR_IP} {both}");
                [end("stream-serve", far), end("stream-drive", format!("{to} {both}"))]
            }
            Self::SrdWrite { size } => {
                let block = WRITE_BYTES / size * size;
                let both = format!("--mtu {size} --size {block} --depth 8");
                let far = format!("--local {FAR_IP} --peer {NEAR_IP} --region {block} {both}");
                [end("stream-serve", far), end("stream-drive", format!("{to} --op write {both}"))]
            }
            Self::TcpStream { size } => {
                // 12 bytes of each segment are used by the timestamp option.
                let mss = size + 12;
                // iperf3 accepts only whole seconds, and 0 means no limit.
                let seconds = seconds.ceil();
                let far = format!("iperf3 -s -1 --forceflush -B {FAR_IP} -p {PORT}");
                let near =
                    format!("iperf3 -c {FAR_IP} -p {PORT} -C cubic -M {mss} -t {seconds} -J");
                [timed(far), timed(near)]
            }
            Self::RawPing(wait) => {
                let both = format!("--size 64 --wait {}", wait.word());
                let far = format!("{raw} pong --local {FAR_IP} --port {PORT} {both}");
                let near = format!("{raw} ping --local {NEAR_IP} --remote {FAR_IP}:{PORT} {both}");
                [timed(far), timed(format!("{near} --duration {seconds}"))]
            }
            Self::SrdPing(wait) => {
                let both = format!("--size 64 --wait {}", wait.word());
                let far = format!("--local {FAR_IP} {both}");
                [end("ping-serve", far), end("ping-drive", format!("{to} {both}"))]
            }
            Self::TcpPing(wait) => {
                let both = format!("--size 64 --wait {}", wait.word());
                let near = format!("--remote {FAR_IP}:{PORT} {both} --seconds {seconds}");
                let far = format!("--local {FAR_IP}:{PORT} {both}");
                [end("tcp-serve", far), end("tcp-drive", near)]
            }
            Self::SrdRate { peers } => {
                let near = format!("{to} --mtu 1400 --size 64 --depth 1024");
                let far = format!("--local {FAR_IP} --peers {peers} --size 64");
                [end("many-serve", far), end("many-drive", near)]
            }
        };
        pair.map(|text| words(&text))
    }

    fn ready(self) -> Ready {
        match self {
            Self::RawStream { .. }
            | Self::RawBurst { .. }
            | Self::RawPing(_)
            | Self::RawRate
            | Self::RawSingle => Ready::Wait(150),
            Self::TcpStream { .. } => Ready::Text("listening"),
            _ => Ready::Line,
        }
    }

    /// Values of the server's first output that the driving end needs.
    fn needs(self) -> &'static [&'static str] {
        match self {
            Self::SrdWrite { .. }
            | Self::SrdWriteUnchecked { .. }
            | Self::SrdWriteSealed { .. } => &["qpn", "rkey", "addr"],
            Self::TlsStream { .. } | Self::QuicStream { .. } => &["cert"],
            Self::SrdSend { .. }
            | Self::SrdSendUnchecked { .. }
            | Self::SrdPing(_)
            | Self::SrdPingSealed => &["qpn"],
            Self::SrdRate { .. } => &["qpns"],
            _ => &[],
        }
    }

    /// Runs the row once.
    pub fn run(self, net: &Net, programs: &Programs, seconds: f64) -> Result<EndOutputs> {
        let [serve, mut drive] = self.commands(programs, seconds);
        let server = Server::start(net, &serve, self.ready())?;
        for name in self.needs() {
            drive.extend([format!("--{name}"), plain(&server.said[*name])]);
        }
        let driven = pair::drive(net, &drive)?;
        let far = server.finish()?;
        let near = match self {
            Self::TcpStream { .. } => serde_json::from_str(&driven)?,
            _ => json_of(&driven)?,
        };
        let far = if far.contains('{') && !matches!(self, Self::TcpStream { .. }) {
            json_of(&far)?
        } else {
            Value::Null
        };
        Ok(EndOutputs { near, far })
    }
}

/// The same command with a key file.
fn sealed(mut words: Vec<String>, p: &Programs) -> Vec<String> {
    words.extend(["--key".into(), p.key.display().to_string()]);
    words
}

/// Both ends of a stream of TLS or QUIC.
fn secure(p: &Programs, kind: &str, size: u32, seconds: f64) -> [String; 2] {
    let program = format!("timeout {LIFE_SECONDS} {}", p.secure.display());
    [
        format!("{program} {kind}-serve --local {FAR_IP}:{PORT} --size {size}"),
        format!(
            "{program} {kind}-drive --remote {FAR_IP}:{PORT} --size {size} --seconds {seconds}"
        ),
    ]
}

/// The same command with the checksum disabled.
fn unchecked(mut words: Vec<String>) -> Vec<String> {
    words.extend(["--integrity".into(), "off".into()]);
    words
}

/// A value as a word; lists are separated by commas.
fn plain(value: &Value) -> String {
    match value {
        Value::Array(all) => all.iter().map(plain).collect::<Vec<_>>().join(","),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_found_by_its_name() {
        for row in all().into_iter().chain(crate::sealed::rows()) {
            assert_eq!(Row::named(&row.name()).unwrap(), row);
        }
        assert!(Row::named("x").unwrap_err().to_string().contains("raw-1400"));
    }

    #[test]
    fn ends_agree_on_size_and_port() {
        let (own, raw) = ("own".into(), "raw".into());
        let p = Programs { own, raw, secure: "secure".into(), key: "keys".into() };
        let [serve, drive] = Row::RawStream { size: 1400 }.commands(&p, 1.0).map(|w| w.join(" "));
        assert!(serve.contains("--port 18990") && drive.contains(":18990"), "{serve} | {drive}");
        let [serve, _] = Row::RawBurst { size: 1400 }.commands(&p, 1.0).map(|w| w.join(" "));
        assert!(serve.contains("--batch 44") && burst_of(8900) == 7, "{serve}");
        let [serve, drive] = Row::SrdWrite { size: 1400 }.commands(&p, 1.0).map(|w| w.join(" "));
        assert!(serve.contains("--size 261800") && drive.contains("--size 261800"));
    }
}
