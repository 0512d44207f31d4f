//! The dissector for Wireshark, in tshark: the vectors of docs/wire.md, and captures of copies.

use crate::common::{PORT_BASE, Scratch, Server, run};
use srd::datapath::pcapng::{PcapNg, Record, Way};
use srd_wire::{AckBlock, Body, Flags, Others, ParseError, parse, parse_checked};
use std::{
    fs::{self, File},
    os::unix::fs::PermissionsExt,
    process::Command,
};

/// A block's key, name and bytes.
type Vector = (String, String, Vec<u8>);

/// Blocks of hexadecimal digits in docs/wire.md.
fn vectors() -> Vec<Vector> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/wire.md");
    let text = fs::read_to_string(path).unwrap();
    let mut all = Vec::new();
    for block in text.split("```hex ").skip(1) {
        let (head, rest) = block.split_once('\n').unwrap();
        let (key, name) = head.split_once('=').unwrap();
        let lines = rest.lines().take_while(|line| *line != "```");
        let digits = lines.flat_map(|line| line.split('#').next().unwrap().split_whitespace());
        let bytes = digits.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect();
        all.push((key.to_owned(), name.to_owned(), bytes));
    }
    assert!(all.len() > 40, "{} vectors", all.len());
    all
}

/// Runs tshark with the dissector that `srd wireshark` prints, and returns the values of fields for
/// each packet. `None`, with a note, on a machine without tshark.
pub fn fields(
    s: &Scratch,
    capture: &str,
    filter: &str,
    fields: &[&str],
) -> Option<Vec<Vec<String>>> {
    let script = s.path("srd.lua");
    fs::write(&script, run(&["wireshark"]).ok().stdout).unwrap();
    let mut tshark = Command::new("tshark");
    // Its own settings and plugins must not matter.
    tshark.env("HOME", &s.0).env("WIRESHARK_CONFIG_DIR", s.path("in"));
    tshark.args(["-X", &format!("lua_script:{script}"), "-r", capture, "-T", "fields"]);
    tshark.args(["-E", "separator=;", "-E", "aggregator=,", "-Y", filter]);
    // A path may have a port that another protocol claims.
    tshark.args(["-o", "udp.try_heuristic_first:TRUE"]);
    for field in fields {
        tshark.args(["-e", field]);
    }
    let out = match tshark.output() {
        Ok(out) => out,
        Err(e) => {
            eprintln!("SKIPPED: tshark: {e}; `./x install-deps` installs it");
            return None;
        }
    };
    let told = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success() && !told.contains("Lua"), "{told}");
    let text = String::from_utf8(out.stdout).unwrap();
    assert!(!text.contains("Lua Error"), "{text}");
    Some(text.lines().map(|line| line.split(';').map(str::to_owned).collect()).collect())
}

fn capture_write(file: &str, vectors: &[Vector], port: u16) {
    let mut trace = PcapNg::new(File::create(file).unwrap()).unwrap();
    let src = "10.0.0.1:40000".parse().unwrap();
    let dst = format!("10.0.0.2:{port}").parse().unwrap();
    for (_, _, bytes) in vectors {
        let record = Record { unix_ns: 1, way: Way::Out, src, dst, ecn: 2, payload: bytes };
        trace.write(&record).unwrap();
    }
    trace.flush().unwrap();
}

const SHOWN: [&str; 26] = [
    "srd.type",
    "srd.backlog",
    "srd.flags",
    "srd.path",
    "srd.slot",
    "srd.dst_tag",
    "srd.tx_num",
    "srd.timestamp",
    "srd.psn",
    "srd.una_delta",
    "srd.ack_echo",
    "srd.ack.cum",
    "srd.ack.base",
    "srd.ack.rx_budget",
    "srd.ack.word",
    "srd.ack.verdict.code",
    "srd.ack.verdict.psns",
    "srd.ack.echo.delay",
    "srd.ack.echo.ce",
    "srd.src_qpn",
    "srd.dst_qpn",
    "srd.msg_id",
    "srd.raddr",
    "srd.imm",
    "srd.open.features",
    "srd.payload",
];

/// What the fields must be, from this project's own parser.
fn expected(bytes: &[u8]) -> Vec<String> {
    let mut ack = AckBlock::default();
    let (packet, at) = parse_checked(bytes, &mut ack).unwrap();
    let (h, body) = (packet.header, packet.body);
    let joined = |all: Vec<String>| all.join(",");
    let block =
        |of: &dyn Fn(&AckBlock) -> Vec<String>| packet.ack.map_or(String::new(), |a| joined(of(a)));
    let psns = |others: Others| match others {
        Others::Run(len) => u32::from(len),
        Others::Mask(mask) => mask,
    };
    let message =
        |of: &dyn Fn(&srd_wire::Message) -> u32| body.message().map(|m| of(m).to_string());
    let raddr = match body {
        Body::Write(_, rdma) | Body::WriteImm { rdma, .. } => Some(rdma.raddr),
        Body::ReadReq(_, read) => Some(read.raddr),
        _ => None,
    };
    let msg_id = match body {
        Body::ReadResp(read) => Some(read.msg_id.to_string()),
        _ => message(&|m| m.msg_id),
    };
    let features = match body {
        Body::Open(params) | Body::OpenAck(params) => Some(params.features.0),
        _ => None,
    };
    let payload: String = bytes[at..].iter().map(|byte| format!("{byte:02x}")).collect();
    vec![
        (h.kind as u8).to_string(),
        h.backlog.0.to_string(),
        format!("0x{:02x}", h.flags.0),
        h.path.to_string(),
        h.slot.to_string(),
        format!("0x{:08x}", h.dst_tag),
        h.tx_num.to_string(),
        h.timestamp.to_string(),
        h.psn.to_string(),
        h.una_delta.to_string(),
        h.ack_echo.to_string(),
        block(&|a| vec![a.cum.to_string()]),
        block(&|a| vec![a.base.to_string()]),
        block(&|a| vec![a.rx_budget.to_string()]),
        block(&|a| a.words.iter().map(|w| format!("0x{w:016x}")).collect()),
        block(&|a| a.verdicts.iter().map(|v| (v.verdict as u8).to_string()).collect()),
        block(&|a| a.verdicts.iter().map(|v| psns(v.others).to_string()).collect()),
        block(&|a| a.echoes.iter().map(|e| e.delay.to_string()).collect()),
        block(&|a| a.echoes.iter().map(|e| u8::from(e.ce).to_string()).collect()),
        message(&|m| m.src_qpn.into()).unwrap_or_default(),
        message(&|m| m.dst_qpn.into()).unwrap_or_default(),
        msg_id.unwrap_or_default(),
        raddr.map(|raddr| format!("0x{raddr:016x}")).unwrap_or_default(),
        body.imm().map(|imm| format!("0x{imm:08x}")).unwrap_or_default(),
        features.map(|features| format!("0x{features:08x}")).unwrap_or_default(),
        if packet.body.may_have_payload() { payload } else { String::new() },
    ]
}

#[test]
fn every_vector_is_shown_as_the_parser_reads_it() {
    let s = Scratch::new("dissected");
    let capture = s.path("vectors.pcapng");
    let (good, bad): (Vec<_>, Vec<_>) =
        vectors().into_iter().partition(|(key, ..)| key == "vector");
    capture_write(&capture, &good, 18_700);
    let Some(rows) = fields(&s, &capture, "srd", &SHOWN) else { return };
    assert_eq!(rows.len(), good.len());
    for ((_, name, bytes), row) in good.iter().zip(&rows) {
        let wanted = expected(bytes);
        for ((field, wanted), found) in SHOWN.iter().zip(&wanted).zip(row) {
            assert_eq!(found, wanted, "{field} of {name}");
        }
    }
    let refused = fields(&s, &capture, "srd.refused", &["frame.number"]).unwrap();
    assert!(refused.is_empty(), "refused: {refused:?}");
    // Each refused vector is marked with the receiver's reason. Without keys a receiver refuses
    // sealed packets, too, which the dissector shows.
    capture_write(&capture, &bad, 18_700);
    let rows = fields(&s, &capture, "srd", &["_ws.expert.message", "srd.flag.sealed"]).unwrap();
    assert_eq!(rows.len(), bad.len());
    for ((_, reason, bytes), row) in bad.iter().zip(&rows) {
        let error = parse_checked(bytes, &mut AckBlock::default()).unwrap_err();
        if error == ParseError::Sealed {
            assert_eq!(row[..], ["", "1"], "{reason}");
        } else {
            assert!(row[0].contains(&format!("{}: ", error.name())), "{reason}: {row:?}");
        }
    }
}

#[test]
fn packets_on_other_ports_are_found_by_what_proves_them() {
    let s = Scratch::new("found");
    let (capture, foreign) = (s.path("other.pcapng"), s.path("foreign.pcapng"));
    let all = vectors();
    let good: Vec<_> = all.into_iter().filter(|(key, ..)| key == "vector").collect();
    capture_write(&capture, &good, 4000);
    let Some(rows) = fields(&s, &capture, "srd", &["frame.number"]) else { return };
    // From the first one with a checksum on.
    let first = good.iter().position(|(_, name, _)| name == "open-checked").unwrap();
    assert_eq!(rows.len(), good.len() - first);
    // The same without any that proves it, and what is none at all.
    let unproven = |(_, _, bytes): &Vector| bytes[1] & Flags::CHECKED == 0;
    let plain: Vec<_> = good.into_iter().filter(unproven).collect();
    capture_write(&foreign, &plain, 4000);
    assert_eq!(fields(&s, &foreign, "srd", &["frame.number"]).unwrap().len(), 0);
    let noise: Vec<Vector> = (0..=255_u8)
        .map(|first| {
            (
                String::new(),
                String::new(),
                (0..60_u8).map(|at| first ^ at.wrapping_mul(7)).collect(),
            )
        })
        .collect();
    capture_write(&foreign, &noise, 4000);
    assert_eq!(fields(&s, &foreign, "srd", &["frame.number"]).unwrap().len(), 0);
}

#[test]
fn captures_of_copies_are_shown_whole_and_seals_are_opened_by_their_secrets() {
    let s = Scratch::new("unsealed");
    let (dir, key, open) = (s.path("in"), s.path("keys"), s.path("open.pcapng"));
    let (capture, original) = (s.path("capture.pcapng"), s.file("original", 100_000));
    run(&["key", "new", &key]).ok();
    let plain = Server::start_at(PORT_BASE, "127.0.0.1", &["--dir", &dir]);
    plain.run(&["cp", &original, "{}:copy", "--capture", &capture]).ok();
    run(&["wireshark", "--unseal", &capture, &open]).fails(2, "holds no secrets");
    run(&["wireshark", "--unseal", &original, &open]).fails(2, "not a capture that software SRD");
    let udp = |file: &str, filter: &str| {
        fields(&s, file, filter, &["frame.number"]).map(|rows| rows.len())
    };
    let Some(packets) = udp(&capture, "udp") else { return };
    assert!(packets > 10, "{packets}");
    assert_eq!(udp(&capture, "srd && !srd.refused"), Some(packets));
    assert!(udp(&capture, "srd.checksum.ok == 1").unwrap() > 10);

    let server = Server::start_at(PORT_BASE, "127.0.0.1", &["--dir", &dir, "--key", &key]);
    let line =
        ["cp", &original, "{}:sealed", "--key", &key, "--capture", &capture, "--capture-secrets"];
    server.run(&line).ok();
    let packets = udp(&capture, "udp").unwrap();
    assert_eq!(udp(&capture, "srd.flag.sealed == 1 && !srd.refused"), Some(packets));
    assert_eq!(udp(&capture, "srd.payload"), Some(0));
    assert!(udp(&capture, "srd.sealed_open.mac").unwrap() > 0);
    let done = run(&["wireshark", "--unseal", &capture, &open]).ok();
    assert!(done.stdout.contains(&format!("{packets} packets, ")), "{}", done.stdout);
    assert!(!done.stderr.contains("ends within a block"), "{}", done.stderr);
    run(&["wireshark", "--unseal", &capture, &open]).fails(2, "name a file that does not exist");
    let (cut, rest) = (s.path("cut.pcapng"), s.path("rest.pcapng"));
    let bytes = fs::read(&capture).unwrap();
    fs::write(&cut, &bytes[..bytes.len() - 5]).unwrap();
    let told = run(&["wireshark", "--unseal", &cut, &rest]).ok().stderr;
    assert!(told.contains("ends within a block"), "{told}");
    assert_eq!(fs::metadata(&open).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(udp(&open, "srd && !srd.refused"), Some(packets));
    // Handshakes stay closed, and nothing else.
    let closed = udp(&open, "srd.flag.sealed == 1").unwrap();
    assert_eq!(udp(&open, "srd.type >= 9 && srd.type <= 13"), Some(closed));
    let (file, seen) = (fs::read(&original).unwrap(), fs::read(&open).unwrap());
    for piece in [&file[..32], &file[50_000..50_032], &file[99_968..]] {
        assert!(seen.windows(32).any(|w| w == piece), "the file is in the opened capture");
    }
}

#[test]
fn filters_that_are_named_are_known_to_the_dissector() {
    let s = Scratch::new("filters");
    let capture = s.path("vectors.pcapng");
    capture_write(&capture, &vectors(), 18_700);
    let help = run(&["wireshark", "--help"]).ok().stdout;
    let (_, useful) = help.split_once("Useful filters: ").unwrap();
    let useful = useful.split_whitespace().collect::<Vec<_>>().join(" ");
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/observe.md");
    let manual = fs::read_to_string(path).unwrap();
    let section = manual.split("## Wireshark").nth(1).unwrap().split("\n## ").next().unwrap();
    let quoted = section.split(['`', '\'']).filter(|word| word.starts_with("srd."));
    let named: Vec<&str> =
        useful.split(", ").chain(quoted.filter(|word| *word != "srd.lua")).collect();
    assert!(named.len() > 8, "{named:?}");
    for filter in named {
        // An unknown name ends tshark with an error.
        if fields(&s, &capture, filter, &["frame.number"]).is_none() {
            return;
        }
    }
    let refused = fields(&s, &capture, "srd.ack.verdict", &["srd.ack.verdict.code"]);
    assert!(refused.is_some_and(|rows| !rows.is_empty()), "a vector has a verdict");
}

#[test]
fn the_dissector_is_installed_where_wireshark_looks() {
    let s = Scratch::new("plugins");
    let folder = s.path("in/plugins");
    run(&["wireshark", "--install", "--dir", &folder]).ok();
    let installed = fs::read_to_string(format!("{folder}/srd.lua")).unwrap();
    assert_eq!(installed, run(&["wireshark"]).ok().stdout);
    run(&["wireshark", "--dir", &folder]).fails(2, "--install");
    let file = s.file("file", 1);
    run(&["wireshark", "--install", "--dir", &file]).fails(1, "cannot write");
    // What the parser refuses as sealed is what the dissector shows as sealed.
    let sealed = vectors().into_iter().find(|(_, name, _)| name == "sealed").unwrap().2;
    assert_eq!(parse(&sealed, &mut AckBlock::default()).map(|_| ()), Err(ParseError::Sealed));
}
