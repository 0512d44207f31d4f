use super::*;

fn samples() -> Vec<Body> {
    let slots = Slots { raddr: 1 << 40, rkey: RKey(7), chunk: 1 << 20, count: 16 };
    vec![
        Body::Ping,
        Body::Fail(Refusal::Busy, "zu viele Gäste".into()),
        Body::PerfOpen(PerfOpen {
            operation: Operation::Write,
            echo: true,
            spin: false,
            qps: 4,
            depth: 128,
            size: 65_536,
            raddr: u64::MAX,
            rkey: RKey(9),
        }),
        Body::PerfReady(PerfReady {
            qkey: QKey(3),
            mtu: 8928,
            raddr: 5,
            rkey: RKey(6),
            len: 1 << 33,
            qpns: (0..QPS_MAX as u16).collect(),
        }),
        Body::PerfQuery,
        Body::PerfReport(PerfReport { cpu_ns: 1, messages: 2, retransmitted: 3 }),
        Body::PerfClose,
        Body::PerfClosed,
        Body::PutOpen { size: u64::MAX, name: "a b/ü".into() },
        Body::PutReady { qkey: QKey(1), slots },
        Body::GetOpen { slots, name: "n".repeat(NAME_BYTES_MAX) },
        Body::GetReady { qkey: QKey(1), size: 0 },
        Body::Chunk { index: 1 << 60, len: 1 },
        Body::Credit { stored: 3 },
        Body::Finish { hash: [7; 32] },
        Body::Done,
        Body::Challenge { nonce: [1; 32] },
        Body::Nonce { nonce: [2; 32], proof: [3; 32] },
        Body::Proved {
            proof: [4; 32],
            body: Box::new(Body::GetOpen { slots, name: "n".repeat(NAME_BYTES_MAX) }),
        },
    ]
}

#[test]
fn every_message_survives_encoding() {
    for (kind, body) in samples().into_iter().enumerate() {
        assert_eq!(usize::from(body.kind()), kind, "samples hold every kind once");
        let message = Message { id: 42 << 32, reply_qkey: QKey(0x1234_5678), body };
        let bytes = message.to_bytes();
        assert!(bytes.len() <= MESSAGE_BYTES_MAX);
        assert_eq!(Message::from_bytes(&bytes), Ok(message));
    }
}

#[test]
fn truncated_and_lengthened_messages_are_refused() {
    for body in samples() {
        let bytes = Message { id: 1, reply_qkey: QKey(2), body }.to_bytes();
        for end in 0..bytes.len() {
            assert_eq!(Message::from_bytes(&bytes[..end]), Err(Malformed::Bytes));
        }
        let longer = [&bytes[..], &[0]].concat();
        assert_eq!(Message::from_bytes(&longer), Err(Malformed::Bytes));
    }
}

/// Whichever bytes change, parsing ends with a message or an error, and a parsed message encodes to
/// the same bytes.
#[test]
fn changed_bytes_give_a_message_or_an_error() {
    for body in samples() {
        let bytes = Message { id: 1, reply_qkey: QKey(2), body }.to_bytes();
        for at in 0..bytes.len() {
            for value in [0, 1, 2, 0x7f, 0x80, 0xff] {
                let mut changed = bytes.clone();
                changed[at] = value;
                if let Ok(message) = Message::from_bytes(&changed) {
                    assert_eq!(message.to_bytes(), changed);
                }
            }
        }
    }
}

#[test]
fn other_versions_are_detected() {
    let mut bytes = Message { id: 1, reply_qkey: QKey(2), body: Body::Ping }.to_bytes();
    bytes[3] = VERSION + 1;
    let e = Message::from_bytes(&bytes).unwrap_err();
    assert_eq!(e, Malformed::Version(VERSION + 1));
    assert!(e.to_string().contains("same release"));
    assert_eq!(Message::head_of(&bytes), Some((1, QKey(2))), "needed to send an answer");
    assert_eq!(Message::head_of(b"SRT"), None);
    assert_eq!(Message::head_of(b"something else entirely"), None);
}

#[test]
fn long_texts_are_truncated_at_characters() {
    let text = "ä".repeat(TEXT_BYTES_MAX);
    let bytes =
        Message { id: 1, reply_qkey: QKey(2), body: Body::Fail(Refusal::File, text) }.to_bytes();
    let Ok(Message { body: Body::Fail(_, text), .. }) = Message::from_bytes(&bytes) else {
        panic!("not read back");
    };
    assert_eq!(text.len(), TEXT_BYTES_MAX);
}
