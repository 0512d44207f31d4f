use super::*;
use crate::{mem::MemNet, send_batch};

/// Kind and body of each block.
fn blocks(mut bytes: &[u8]) -> Vec<(u32, &[u8])> {
    let mut out = Vec::new();
    while let Some((kind, rest)) = bytes.split_first_chunk::<4>() {
        let len = u32::from_le_bytes(rest[..4].try_into().unwrap()) as usize;
        out.push((u32::from_le_bytes(*kind), &bytes[8..len - 4]));
        bytes = &bytes[len..];
    }
    out
}

#[test]
fn both_directions_are_recorded_with_ports_and_direction() {
    let net = MemNet::new();
    let (here, there) = ("10.0.0.1:7".parse().unwrap(), "10.0.0.2:8".parse().unwrap());
    let mut a = Capture::to_writer(net.endpoint(here).unwrap(), Vec::new()).unwrap();
    let mut b = net.endpoint(there).unwrap();
    send_batch(&mut a, |tx| tx.push(there, 5, b"head", &[b"body"])).unwrap().0.unwrap();
    assert_eq!(b.rx(&mut |_| {}).unwrap().datagrams, 1);
    send_batch(&mut b, |tx| tx.push(here, 6, b"answer", &[])).unwrap().0.unwrap();
    let mut got = Vec::new();
    a.rx(&mut |r| got.extend_from_slice(r.bytes)).unwrap();
    assert_eq!(got, b"answer");
    a.tx_push(&TxPacket {
        dst: there,
        path: 0,
        headers: b"no",
        payload: &[],
        padded_len: 0,
        finish: None,
    })
    .unwrap();
    a.tx_discard();
    a.tx_flush().unwrap();
    let file = a.finish().unwrap();
    let packets: Vec<_> = blocks(&file).into_iter().filter(|b| b.0 == 6).collect();
    assert_eq!(packets.len(), 2, "what was discarded is not recorded");
    let port = |p: u16| p.to_be_bytes();
    let ip = &packets[0].1[20..];
    assert_eq!((&ip[12..20], &ip[28..36]), (&[10, 0, 0, 1, 10, 0, 0, 2][..], &b"headbody"[..]));
    assert_eq!((&ip[20..22], &ip[22..24]), (&port(40_005)[..], &port(8)[..]));
    let ip = &packets[1].1[20..];
    assert_eq!((&ip[20..22], &ip[22..24]), (&port(40_006)[..], &port(7)[..]));
    assert_eq!(&ip[28..34], b"answer");
    let way = |body: &[u8]| body[body.len() - 8];
    assert_eq!((way(packets[0].1), way(packets[1].1)), (2, 1));
}

/// Takes a number of bytes, then fails.
struct Limited(usize);

impl Write for Limited {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::StorageFull)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_disk_ends_the_trace_and_not_the_datapath() {
    let net = MemNet::new();
    let (here, there) = ("10.0.0.1:7".parse().unwrap(), "10.0.0.2:8".parse().unwrap());
    let mut a = Capture::to_writer(net.endpoint(here).unwrap(), Limited(200)).unwrap();
    let mut b = net.endpoint(there).unwrap();
    for _ in 0..5 {
        send_batch(&mut a, |tx| tx.push(there, 0, &[1; 50], &[])).unwrap().0.unwrap();
    }
    assert_eq!(b.rx(&mut |_| {}).unwrap().datagrams, 5);
    assert_eq!(a.error().unwrap().kind(), io::ErrorKind::StorageFull);
    assert!(a.finish().is_err());
}
