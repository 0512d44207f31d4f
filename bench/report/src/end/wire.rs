//! Verifies the properties of the link: segmented sends cross it as packets, and the receiver
//! merges them again.

use super::{say_ready, stop_flag};
use crate::{Result, options::Options};
use serde_json::{Value, json};
use srd_datapath::{Datapath, UdpConfig, UdpDatapath, send_batch};
use std::{
    net::{IpAddr, SocketAddr},
    sync::atomic::Ordering,
    time::Duration,
};

/// Number of segmented sends, and of packets in each.
const SENDS: usize = 64;
const PACKETS: usize = 8;
const BYTES: usize = 1400;

fn open(o: &mut Options, slot: u8) -> Result<UdpDatapath> {
    let mut config = UdpConfig::new(o.need::<IpAddr>("local")?);
    (config.paths, config.slot) = (1, Some(slot));
    Ok(UdpDatapath::open(config)?)
}

/// Receives packets and counts them.
pub fn serve(o: &mut Options) -> Result<Value> {
    let mut d = open(o, 0)?;
    o.end()?;
    let stop = stop_flag();
    say_ready(&json!({"port": d.port()}));
    while !stop.load(Ordering::Relaxed) {
        d.wait(Some(Duration::from_millis(50)))?;
        while d.rx(&mut |_| ())?.datagrams > 0 {}
    }
    let c = d.counters();
    Ok(json!({"packets": c.rx_packets, "merged": c.rx_gro_packets}))
}

/// Sends segmented messages to `--remote IP:PORT`.
pub fn drive(o: &mut Options) -> Result<Value> {
    let remote: SocketAddr = o.need("remote")?;
    let mut d = open(o, 1)?;
    o.end()?;
    let payload = [0x5D; BYTES];
    for _ in 0..SENDS {
        let (pushed, _) = send_batch(&mut d, |tx| {
            (0..PACKETS).try_for_each(|_| tx.push(remote, 0, &[], &[&payload]))
        })?;
        pushed?;
        // Slow enough that the receiver loses none.
        std::thread::sleep(Duration::from_millis(1));
    }
    let c = d.counters();
    Ok(json!({"packets": c.tx_packets, "segmented": c.tx_gso_packets}))
}

/// Describes what the ends and the link's counter prove.
pub fn figures(sent: &Value, crossed: u64, received: &Value) -> Result<String> {
    let count = |value: &Value, name: &str| value[name].as_u64().ok_or("no counter");
    let (packets, segmented) = (count(sent, "packets")?, count(sent, "segmented")?);
    let (arrived, merged) = (count(received, "packets")?, count(received, "merged")?);
    let all = (SENDS * PACKETS) as u64;
    if segmented < all {
        return Err(format!("only {segmented} of {all} packets were sent segmented").into());
    }
    if crossed < packets {
        let wrong = "segmented sends cross the link in one piece: tx-udp-segmentation is still on";
        return Err(format!("{wrong} ({crossed} packets for {packets})").into());
    }
    if merged < arrived / 2 {
        return Err(format!("GRO merges only {merged} of {arrived} packets").into());
    }
    Ok(format!(
        "{packets} packets sent in {SENDS} segmented messages crossed the link as {crossed} \
         packets, and the receiver got {merged} of {arrived} merged"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_links_are_refused() {
        let sent = json!({"packets": 512, "segmented": 512});
        let good = json!({"packets": 512, "merged": 500});
        assert!(figures(&sent, 513, &good).unwrap().contains("crossed the link as 513"));
        let whole = figures(&sent, 64, &good).unwrap_err().to_string();
        assert!(whole.contains("tx-udp-segmentation"), "{whole}");
        let no_gro = json!({"packets": 512, "merged": 0});
        assert!(figures(&sent, 512, &no_gro).unwrap_err().to_string().contains("GRO"));
    }
}
