//! Packets of an honest engine whose fields are changed on the way.

use super::liar_acks::{ECHO_LATER_MAX, VERDICTS, WAIT_MAX, entry};
use crate::draw::Draw;
use srd_core::wire::{self, AckBlock, Body, Packet, ReadStatus};

/// Changes some fields of an engine's packet, which remains well-formed; a packet that cannot be
/// changed is left as it is.
pub(crate) fn mutate(d: &mut Draw, bytes: &mut Vec<u8>) {
    let mut ack = AckBlock::default();
    let Ok((p, start)) = wire::parse(bytes, &mut ack) else { return };
    let (mut header, mut body, had_ack) = (p.header, p.body, p.ack.is_some());
    let payload: Vec<u8> = bytes[start..start + usize::from(p.payload_len)].to_vec();
    let tail = bytes.len() - start;
    for _ in 0..d.range(1, 3) {
        match d.below(14) {
            0 => header.psn = header.psn.wrapping_add(d.pick(&[1, 2, 64, u32::MAX, 1 << 15])),
            1 => header.una_delta = d.pick(&[0, 1, 64, u16::MAX]),
            2 => header.tx_num = header.tx_num.wrapping_add(d.pick(&[1, 9000, 0x7FFF_0000])),
            3 => header.timestamp ^= d.bits() as u32,
            4 => header.path ^= d.bits() as u8,
            5 => header.ack_echo = d.bits() as u16,
            6 => ack.cum = ack.cum.wrapping_add(d.pick(&[1, 2, 64, u32::MAX, u32::MAX - 3])),
            7 => ack.base = ack.base.wrapping_add(d.pick(&[1, 64, u32::MAX])),
            8 => {
                for w in &mut ack.words {
                    *w ^= d.bits() & d.bits() & d.bits();
                }
            }
            9 => {
                let psn = ack.cum.wrapping_add(d.below(8) as u32).wrapping_sub(4);
                let verdict = d.pick(&VERDICTS);
                let _ = ack.verdicts.try_push(entry(d, psn, verdict));
                ack.partial ^= d.percent(20);
            }
            10 => ack.rx_budget = d.pick(&[0, 1, 4096, u32::MAX]),
            11 => {
                for e in &mut ack.echoes {
                    let wait = d.below(WAIT_MAX) as u16;
                    e.delay = d.pick(&[0, wait, u16::MAX]);
                    let later = d.pick(&[1, 100, ECHO_LATER_MAX / 4, 1 << 20, u64::from(u32::MAX)]);
                    e.timestamp = e.timestamp.wrapping_add(later as u32);
                }
            }
            12 => ack.credit = ack.credit.wrapping_add(d.pick(&[1, 1 << 20, 1 << 31])),
            _ => body_mutate(d, &mut body),
        }
    }
    let ack = had_ack.then_some(&ack);
    let payload_len = if body.may_have_payload() { payload.len() as u16 } else { 0 };
    let packet = Packet { header, ack, body, payload_len };
    let mut new = vec![0; packet.headers_len()];
    wire::emit(&packet, &mut new);
    if payload_len > 0 {
        new.extend(payload);
    } else if matches!(body, Body::Open(_)) {
        new.resize(new.len() + tail, 0);
    }
    wire::stamp(&mut new);
    *bytes = new;
}

fn body_mutate(d: &mut Draw, body: &mut Body) {
    match body {
        Body::Open(o) | Body::OpenAck(o) => match d.below(5) {
            0 => o.window = d.pick(&[0, 1, 16, 32_768, 65_535]),
            1 => o.mtu = d.pick(&[0, 63, 64, 65_535]),
            2 => o.reads_max = d.pick(&[0, 65_535]),
            3 => o.psn_start = d.bits() as u32,
            _ => o.write_imms_max = d.pick(&[0, 65_535]),
        },
        Body::ReadResp(r) => {
            r.offset = r.offset.wrapping_add(d.pick(&[1, 64, u32::MAX]));
            if d.percent(30) {
                r.status = ReadStatus::RegionGone;
            }
        }
        Body::ReadReq(_, r) => r.len ^= d.bits() as u32 >> d.below(32),
        Body::WriteImm { msg_len, .. } => *msg_len ^= d.bits() as u32 >> d.below(32),
        Body::Cancel { msg_id } => *msg_id ^= d.bits() as u32 & 0xFF,
        _ => {}
    }
}

#[cfg(test)]
#[path = "mutate_tests.rs"]
mod tests;
