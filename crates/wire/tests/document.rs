//! `docs/wire.md` agrees with the code: its vectors, its tables of numbers, its budgets.

mod common;

use common::document::{hex_blocks, seeds, table_rows, text};
use common::samples;
use srd_wire::{
    ACK_BYTES_MAX, ACK_ECHOES_MAX, ACK_VERDICTS_MAX, ACK_WORDS_MAX, AckBlock, Backlog, CloseCode,
    Features, Flags, HEADERS_BYTES_MAX, IPV4_BYTES, IPV6_BYTES, OVERHEAD_BYTES, PacketType,
    ParseError, ReadStatus, Verdict, parse_checked, payload_bytes_max,
};
use std::collections::BTreeMap;
use std::path::Path;

#[test]
fn vectors_are_the_samples() {
    let blocks = hex_blocks(&text());
    let vectors: Vec<_> = blocks.iter().filter(|b| b.key == "vector").collect();
    let samples = samples();
    let names: Vec<&str> = vectors.iter().map(|v| v.value.as_str()).collect();
    let expected: Vec<&str> = samples.iter().map(|s| s.name).collect();
    assert_eq!(names, expected);

    for (vector, sample) in vectors.iter().zip(&samples) {
        assert_eq!(vector.bytes, sample.bytes(), "{}", sample.name);
        let mut ack = AckBlock::default();
        let (packet, payload_at) = parse_checked(&vector.bytes, &mut ack).expect(sample.name);
        assert_eq!(packet, sample.packet(), "{}", sample.name);
        assert_eq!(&vector.bytes[payload_at..], sample.tail, "{}", sample.name);
    }
}

#[test]
fn refused_vectors_are_refused_for_their_reason() {
    let blocks = hex_blocks(&text());
    let refused: Vec<_> = blocks.iter().filter(|b| b.key == "refused").collect();
    for reason in ParseError::ALL {
        assert!(refused.iter().any(|b| b.value == reason.name()), "no vector for {reason:?}");
    }
    for block in &refused {
        let mut ack = AckBlock::default();
        let reason = parse_checked(&block.bytes, &mut ack).map_err(ParseError::name);
        assert_eq!(reason, Err(block.value.as_str()), "{:02x?}", block.bytes);
    }
    let known = |b: &&common::document::HexBlock| b.key == "vector" || b.key == "refused";
    assert_eq!(blocks.iter().filter(known).count(), blocks.len(), "a block of another kind");
}

#[test]
fn refusals_are_named() {
    let rows = table_rows(&text());
    for reason in ParseError::ALL {
        let cell = format!("`{}`", reason.name());
        assert!(rows.iter().any(|row| row[0] == cell), "{cell}");
        assert!(!reason.to_string().is_empty());
    }
}

#[test]
fn table_of_types() {
    let rows = table_rows(&text());
    let types: Vec<_> = rows.iter().filter(|row| row.len() == 7 && row[0] != "number").collect();
    let types: Vec<_> = types.iter().filter(|row| !row[0].starts_with('-')).collect();
    assert_eq!(types.len(), PacketType::ALL.len());
    let yes_no = |b: bool| if b { "yes" } else { "no" };
    for (row, kind) in types.iter().zip(PacketType::ALL) {
        assert_eq!(row[0], (*kind as u8).to_string());
        assert_eq!(row[1], format!("`{kind:?}`"));
        assert_eq!(row[2], kind.body_bytes().to_string(), "{kind:?}");
        assert_eq!(row[3], yes_no(kind.is_reliable()), "{kind:?}");
        let payload = match kind {
            PacketType::Open | PacketType::OpenAck | PacketType::Probe => "zero padding",
            _ => yes_no(kind.has_payload()),
        };
        assert_eq!(row[4], payload, "{kind:?}");
        let ack = match kind {
            PacketType::Ack => "must",
            _ if kind.may_carry_ack() => "may",
            _ => "no",
        };
        assert_eq!(row[5], ack, "{kind:?}");
    }
}

#[test]
fn tables_of_codes() {
    let rows = table_rows(&text());
    let has = |number: u32, name: &str| {
        let name = format!("`{name}`");
        let found = rows.iter().any(|row| row[0] == number.to_string() && row[1] == name);
        assert!(found, "no row | {number} | {name} |");
    };
    for &verdict in Verdict::ALL {
        has(u32::from(verdict as u8), &format!("{verdict:?}"));
    }
    for &code in CloseCode::ALL {
        has(u32::from(code as u8), &format!("{code:?}"));
    }
    for &status in ReadStatus::ALL {
        has(u32::from(status as u8), &format!("{status:?}"));
    }
    for (mask, name) in [
        (Flags::ACK_BLOCK, "ACK_BLOCK"),
        (Flags::ACK_REQUEST, "ACK_REQUEST"),
        (Flags::SEALED, "SEALED"),
        (Flags::CHECKED, "CHECKED"),
        (Flags::KEY_PHASE, "KEY_PHASE"),
    ] {
        has(mask.trailing_zeros(), name);
    }
    for (mask, name) in [
        (Features::RDMA_READ, "RDMA_READ"),
        (Features::RDMA_WRITE, "RDMA_WRITE"),
        (Features::CREDITS, "CREDITS"),
        (Features::ECN, "ECN"),
        (Features::SEALED, "SEALED"),
        (Features::HOST_SIGNAL, "HOST_SIGNAL"),
        (Features::INTEGRITY, "INTEGRITY"),
    ] {
        has(mask.trailing_zeros(), name);
    }
}

#[test]
fn table_of_backlog_classes() {
    let rows = table_rows(&text());
    let row = rows.iter().find(|row| row[0] == "packets, at most").expect("backlog table");
    let limits: Vec<u32> = row[2..row.len() - 1].iter().map(|c| c.parse().unwrap()).collect();
    let classes: Vec<u32> = (9..15).map(|class| Backlog(class).packets_max()).collect();
    assert_eq!(limits, classes);
}

#[test]
fn table_of_budgets() {
    let rows = table_rows(&text());
    let budgets: Vec<_> =
        rows.iter().filter(|row| row.len() == 4 && row[1].starts_with("IPv")).collect();
    assert_eq!(budgets.len(), 7);
    for row in budgets {
        let number = |i: usize| row[i].parse::<u32>().unwrap();
        let ip_bytes = if row[1] == "IPv4" { IPV4_BYTES } else { IPV6_BYTES };
        let mtu = payload_bytes_max(number(0), ip_bytes).map(u32::from);
        assert_eq!(mtu, Some(number(3)), "{row:?}");
        assert_eq!(number(2) - number(3), OVERHEAD_BYTES as u32, "{row:?}");
    }
}

#[test]
fn sizes_in_the_text() {
    let text = text();
    for phrase in [
        format!("UDP payload of the link − {OVERHEAD_BYTES}, where"),
        format!("at most {ACK_BYTES_MAX}. It"),
        format!("Headers never exceed {HEADERS_BYTES_MAX} bytes"),
        format!("number of bitmap words, at most {ACK_WORDS_MAX} "),
        format!("number of entries with verdicts, at most {ACK_VERDICTS_MAX} "),
        format!("number of echoes, at most {ACK_ECHOES_MAX} "),
    ] {
        assert!(text.contains(&phrase), "{phrase}");
    }
}

#[test]
fn seeds_of_the_fuzz_target_are_the_vectors() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/wire_parse");
    let files = std::fs::read_dir(&folder).expect("seeds");
    let found: BTreeMap<String, Vec<u8>> = files
        .map(|file| {
            let path = file.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            (name, std::fs::read(path).unwrap())
        })
        .collect();
    let expected: BTreeMap<String, Vec<u8>> = seeds(&text()).into_iter().collect();
    let remedy = "empty fuzz/seeds/wire_parse, then run \
        `cargo run -p srd-wire --example seeds -- fuzz/seeds/wire_parse`";
    assert!(found == expected, "seeds differ from the vectors of docs/wire.md: {remedy}");
}
