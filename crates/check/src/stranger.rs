//! What strangers send, who know addresses and the format.

use crate::draw::Draw;
use srd_core::wire::{Features, OpenParams};

/// The parameters of an Open by which a stranger asks for a context, drawn anew each time.
pub(crate) fn open_of_stranger(d: &mut Draw, word: u32) -> OpenParams {
    OpenParams {
        tag: word | 1,
        incarnation: d.bits(),
        echo_tag: 0,
        psn_start: word,
        tx_num_start: d.bits() >> 33,
        window: 64,
        mtu: 1024,
        reads_max: 1,
        write_imms_max: 1,
        rx_budget: u32::MAX,
        features: Features(3),
        cookie: 0,
    }
}
