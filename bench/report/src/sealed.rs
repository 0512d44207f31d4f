//! What sealing costs, beside TCP with TLS 1.3 and QUIC: a section of the page that is generated
//! alone.

use crate::{
    KEPT_FROM, Result,
    figures::{Figures, Spread},
    measure::Measured,
    page::{self, shown},
    rows::{self, Row, SIZES, Wait},
};
use srd::seal::{
    End, Ends, Ephemeral, Greeting, Initiator, KeyRing, KeySlots, Limits, Offer, PARAMS_BYTES,
    SEALED_OPEN_ACK_BYTES, SECRET_BYTES, Session, Suite, Suites,
};
use srd_datapath::process_cpu_ns;
use std::{fmt::Write, net::Ipv4Addr};

/// First and last line of the section.
pub const BEGIN: &str = "<!-- made by `cargo xtask report --sealed` -->";
const END: &str = "<!-- end of what report --sealed makes -->";
/// Measurements of the cipher alone, and packets of each.
const CIPHER_RUNS: usize = 9;
const CIPHER_PACKETS: u32 = 20_000;
/// Peers of the handshakes.
const PEERS: u32 = 10_000;

/// The rows of the section, those that are compared one after the other.
pub fn rows() -> Vec<Row> {
    let streams = SIZES.into_iter().flat_map(|size| {
        [
            raw_of(size),
            Row::SrdWrite { size },
            Row::SrdWriteSealed { size },
            Row::TlsStream { size },
            Row::QuicStream { size },
        ]
    });
    streams.chain([Row::SrdPing(Wait::Spin), Row::SrdPingSealed]).collect()
}

/// CPU time in ns of sealing and opening a packet with this payload, by the crate alone.
fn cipher_ns(size: u32) -> Result<Spread> {
    /// Bytes of a packet of a write before its payload, and behind it.
    const HEADERS: usize = 24 + 20;
    const TAG: usize = 16;
    let suite = Suites::of_this_machine().first();
    let mut runs = Vec::new();
    for _ in 0..CIPHER_RUNS {
        let mut random = [7; SECRET_BYTES];
        let mut session = Session::with_itself(suite, Limits::default(), &mut random, 0)
            .map_err(|e| format!("a session: {e:?}"))?;
        let mut packet = vec![0; HEADERS + size as usize + TAG];
        let begin = process_cpu_ns();
        for number in 0..CIPHER_PACKETS {
            packet[0] = srd_wire::VERSION << 5;
            packet[1] = 0;
            packet[8..12].copy_from_slice(&number.to_be_bytes());
            session.sender.seal(number.into(), &mut packet)?;
            session.receiver.open(&mut packet)?;
        }
        runs.push((process_cpu_ns() - begin) as f64 / f64::from(CIPHER_PACKETS));
    }
    Ok(Spread::of(runs))
}

/// CPU time in us of both sides for the handshake with a new peer, while one side keeps all.
fn handshake_us() -> Result<f64> {
    const PARAMS: [u8; PARAMS_BYTES] = [3; PARAMS_BYTES];
    let ring = KeyRing::parse(format!("1 {}01\n", "5a".repeat(31)).as_bytes())?;
    let suites = Suites::new(&[Suite::Aes256Gcm]).ok_or("a list of one suite")?;
    let (offer, limits) = (Offer { suites, params: &PARAMS }, Limits::default());
    let mut slots = KeySlots::new(PEERS as usize);
    let ephemeral = |peer: u32, side: u8| {
        let mut bytes = [side; SECRET_BYTES];
        bytes[..4].copy_from_slice(&peer.to_be_bytes());
        Ephemeral::take(&mut bytes)
    };
    let begin = process_cpu_ns();
    for peer in 1..=PEERS {
        let end = |ip: u32| End { ip: Ipv4Addr::from_bits(ip).into(), port: 18_700 };
        let ends = Ends { initiator: end(0x0a00_0000 + peer), responder: end(0x0b00_0001) };
        let refused = |e: srd::seal::Refusal| format!("a handshake: {e:?}");
        let mut initiator =
            Initiator::new(ring.sending(), &ends, limits, peer, &offer, ephemeral(peer, 1))
                .map_err(refused)?;
        let (mut open, mut ack) = ([0; 1472], [0; SEALED_OPEN_ACK_BYTES]);
        initiator.write(&[0; 24], &mut open).map_err(refused)?;
        let greeting = Greeting::read(&open, &ends, limits, &ring).map_err(refused)?;
        let proposal = greeting.propose().map_err(refused)?;
        let mut half = proposal.answer(&offer, ephemeral(peer, 2)).map_err(refused)?;
        half.write(&[0; 24], &mut ack).map_err(refused)?;
        initiator.finish(&ack).map_err(refused)?.0.session(0, 0).map_err(refused)?;
        let keys = half.keys_take().ok_or("a handshake gives keys")?;
        slots.insert(peer, keys.session(0, 0).map_err(refused)?)?;
    }
    Ok((process_cpu_ns() - begin) as f64 / f64::from(PEERS) / 1e3)
}

/// Whether the kernel could encrypt for TLS itself.
fn kernel_tls() -> &'static str {
    let list = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_ulp").unwrap_or_default();
    match list.split_whitespace().any(|name| name == "tls") {
        true => "This kernel has TLS of its own (kTLS), which rustls does not use here.",
        false => "This kernel has no TLS of its own (kTLS).",
    }
}

/// The section, including its first and last line.
pub fn part(m: &Measured) -> Result<String> {
    let mut out = String::new();
    writeln!(
        out,
        "{BEGIN}

## Sealed

Writes over SRD without and with a key file ([sealing.md](sealing.md)), TCP with TLS 1.3 (rustls \
over the kernel's sockets) and QUIC (quinn), each between two processes, all with AES-256-GCM of \
AWS-LC ([`bench/secure`](../bench/secure/src/main.rs)). {} Made by `cargo xtask report --sealed \
--runs {} --seconds {}`, load average {}: rows in turn, ratios within one round, medians (least to \
most). Open SRD has a checksum, which sealed packets do not need.

| packets of | | Gb per CPU-s | ns of both ends per packet | beside SRD open | beside SRD sealed |
|-|-|-|-|-|-|",
        kernel_tls(),
        m.plan.runs,
        m.plan.seconds,
        shown(Spread::of(m.loads.iter().copied()), 1),
    )?;
    let per_cpu = |f: &Figures| f.gbit_per_cpu;
    let ns = |f: &Figures| f.ns_per_packet[0] + f.ns_per_packet[1];
    for size in SIZES {
        let (open, sealed) = (Row::SrdWrite { size }, Row::SrdWriteSealed { size });
        for (row, name) in [
            (raw_of(size), "raw UDP, not sealed"),
            (open, "SRD, open"),
            (sealed, "SRD, sealed"),
            (Row::TlsStream { size }, "TCP with TLS 1.3"),
            (Row::QuicStream { size }, "QUIC"),
        ] {
            writeln!(
                out,
                "| {size} B | {name} | {} | {} | {} | {} |",
                shown(m.spread(row, per_cpu), 2),
                shown(m.spread(row, ns), 0),
                shown(m.ratio(row, open, per_cpu), 2),
                shown(m.ratio(row, sealed, per_cpu), 2),
            )?;
        }
    }
    bound(m, &mut out)?;
    costs(m, &mut out)?;
    writeln!(out, "\n{END}")?;
    Ok(page::wrapped(&out))
}

/// Raw UDP with as many packets per call as SRD sends.
fn raw_of(size: u32) -> Row {
    let burst = Row::RawBurst { size };
    if rows::all().contains(&burst) { burst } else { Row::RawStream { size } }
}

/// What keeps any transport over datagrams below TLS: what raw UDP takes without protocol and
/// cipher.
fn bound(m: &Measured, out: &mut String) -> Result<()> {
    let per_cpu = |f: &Figures| f.gbit_per_cpu;
    let ns = |f: &Figures| f.ns_per_packet[0] + f.ns_per_packet[1];
    let [small, large] = SIZES.map(|size| {
        let (raw, tls) = (raw_of(size), Row::TlsStream { size });
        (shown(m.ratio(raw, tls, per_cpu), 2), shown(m.spread(raw, ns), 0))
    });
    writeln!(
        out,
        "\nRaw UDP with the same bursts, which has neither protocol nor cipher nor a copy to its \
         destination, has {} of TLS's figure with packets of {} B ({} ns at both ends), and {} of \
         it with {} B ({} ns). The kernel merges TCP's segments, so that one wake-up and one \
         record of 16 KiB stand for a dozen packets; each datagram is opened and acknowledged by \
         itself.",
        small.0, SIZES[0], small.1, large.0, SIZES[1], large.1
    )?;
    Ok(())
}

/// What is beside the streams: the cipher alone, round trips, handshakes.
fn costs(m: &Measured, out: &mut String) -> Result<()> {
    let ns = |f: &Figures| f.ns_per_packet[0] + f.ns_per_packet[1];
    writeln!(
        out,
        "\nThe cipher alone (sealing and opening in place, packets in the cache), and what sealing \
         adds to both ends of SRD beyond it (less the checksum, which it saves):\n\n\
         | packets of | cipher, ns | sealed less open, ns | beyond the cipher, ns |\n|-|-|-|-|"
    )?;
    for size in SIZES {
        let added = m.difference(Row::SrdWriteSealed { size }, Row::SrdWrite { size }, ns);
        let cipher = cipher_ns(size)?;
        writeln!(
            out,
            "| {size} B | {} | {} | {:.0} |",
            shown(cipher, 0),
            shown(added, 0),
            added.median - cipher.median
        )?;
    }
    let rtt = |f: &Figures| f.rtt_us[0];
    let (open, sealed) = (Row::SrdPing(Wait::Spin), Row::SrdPingSealed);
    writeln!(
        out,
        "\nPing-pong of 64 B, polling, median round trip: {} us open, {} us sealed, {} us more. A \
         handshake takes {:.0} us of CPU of both sides together, the crate alone, by {PEERS} peers \
         in turn.",
        shown(m.spread(open, rtt), 2),
        shown(m.spread(sealed, rtt), 2),
        shown(m.difference(sealed, open, rtt), 2),
        handshake_us()?
    )?;
    Ok(())
}

/// Replaces this section in the page, or puts it before the one that another command makes, which
/// is the last.
pub fn put(page: &str, part: &str) -> String {
    page::put(page, part, [BEGIN, END], &[KEPT_FROM])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_part_is_replaced() {
        let part = format!("{BEGIN}\nnew\n{END}\n");
        let page = format!("before\n\n{KEPT_FROM}\nafter\n");
        let with = put(&page, &part);
        assert_eq!(with, format!("before\n\n{part}\n{KEPT_FROM}\nafter\n"));
        assert_eq!(put(&with, &part), with);
        assert_eq!(put("alone\n", &part), format!("alone\n\n{part}"));
    }

    #[test]
    fn the_cipher_and_the_handshake_are_measured() {
        assert!(cipher_ns(1400).unwrap().median > 0.0);
    }
}
