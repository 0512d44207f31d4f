//! Writes a capture with its sealed packets opened by the secrets that it holds.

use crate::{
    captured::{BLOCK_INTERFACE, BLOCK_PACKET, BLOCK_SECRETS, blocks, origin_of, packet_of, word},
    failure::{Failure, Result},
    output,
};
use srd::{
    datapath::{
        capture::SECRETS_KIND,
        pcapng::{PcapNg, Record},
    },
    seal::{CaptureSecret, Receiver},
};
use srd_wire::{Flags, HEADER_BYTES};
use std::{
    collections::HashMap,
    fs::{self, File, OpenOptions},
    io::BufWriter,
    net::SocketAddr,
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

/// What became of the packets.
#[derive(Default)]
struct Counts {
    packets: u64,
    opened: u64,
    closed: u64,
}

/// Reads the capture `from` and writes `to`.
///
/// # Errors
/// Wrong usage if `from` is no capture of software SRD or has no secrets, and if `to` exists.
pub fn run(from: &Path, to: &Path) -> Result {
    let file = fs::read(from)
        .map_err(|e| Failure::usage(format!("cannot read the capture {}: {e}", from.display())))?;
    let blocks = blocks(&file).map_err(|e| Failure::usage(format!("{}: {e}", from.display())))?;
    if !blocks
        .iter()
        .any(|(kind, body)| *kind == BLOCK_SECRETS && word(body, 0) == Some(SECRETS_KIND))
    {
        return Err(Failure::usage(format!(
            "{} holds no secrets: capture again with --capture-secrets beside --capture and --key",
            from.display()
        )));
    }
    // What was encrypted is readable in it.
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    let out = options.open(to).map_err(|e| {
        Failure::usage(format!(
            "cannot make {}: {e}; name a file that does not exist",
            to.display()
        ))
    })?;
    let counts = write(&blocks, out)
        .map_err(|e| Failure::new(format!("cannot write {}: {e}", to.display())))?;
    // Kind, two lengths and body.
    let whole: usize = blocks.iter().map(|(_, body)| body.len() + 12).sum();
    if whole < file.len() {
        output::note(&format!(
            "srd: warning: {} ends within a block: it was cut, or is still being written; what is \
             behind its last whole block is left out",
            from.display()
        ));
    }
    output::line(&format!(
        "{} packets, {} opened, {} sealed ones left as they are (handshakes, and contexts whose \
         secrets are not in the capture)",
        counts.packets, counts.opened, counts.closed
    ))
}

fn write(blocks: &[(u32, &[u8])], out: File) -> std::io::Result<Counts> {
    let mut trace = PcapNg::without_interfaces(BufWriter::new(out))?;
    let mut interfaces = 0;
    let (mut receivers, mut counts) = (HashMap::new(), Counts::default());
    for (kind, body) in blocks {
        if *kind == BLOCK_SECRETS && word(body, 0) == Some(SECRETS_KIND) {
            secrets_take(body, &mut receivers);
        } else if *kind == BLOCK_INTERFACE {
            trace.interface_copy(body)?;
            interfaces += 1;
        } else if *kind == BLOCK_PACKET
            && let Some((record, mut payload)) = packet_of(body)
            && let Some((interface, missing)) = origin_of(body)
            && interface < interfaces
        {
            counts.packets += 1;
            if payload.get(1).is_some_and(|flags| flags & Flags::SEALED != 0) {
                let opened = open(&mut payload, record.dst, &mut receivers);
                counts.opened += u64::from(opened);
                counts.closed += u64::from(!opened);
            }
            let record = Record { payload: &payload, ..record };
            trace.write_on(interface, &record, payload.len() + missing)?;
        }
    }
    trace.flush()?;
    Ok(counts)
}

/// Receivers of the contexts whose packets go to an address with a tag, the newest one last.
type Receivers = HashMap<(SocketAddr, u32), Vec<Receiver>>;

fn secrets_take(body: &[u8], receivers: &mut Receivers) {
    let length = word(body, 4).unwrap_or(0) as usize;
    let text = body.get(8..8 + length).and_then(|text| std::str::from_utf8(text).ok());
    for secret in text.unwrap_or_default().lines().filter_map(|l| l.parse::<CaptureSecret>().ok()) {
        let to = SocketAddr::new(secret.to.ip, secret.to.port);
        receivers.entry((to, secret.tag)).or_default().push(secret.receiver());
    }
}

/// Opens a sealed packet in place; says whether it did.
fn open(payload: &mut Vec<u8>, to: SocketAddr, receivers: &mut Receivers) -> bool {
    let Some(tag) = payload.get(4..8).and_then(|b| b.first_chunk()).map(|b| u32::from_be_bytes(*b))
    else {
        return false;
    };
    for receiver in receivers.get_mut(&(to, tag)).into_iter().flatten().rev() {
        // A packet that does not fit is left undefined.
        let mut packet = payload.clone();
        if let Ok(opened) = receiver.open(&mut packet) {
            *payload = packet[opened.packet].to_vec();
            return payload.len() >= HEADER_BYTES;
        }
    }
    false
}
