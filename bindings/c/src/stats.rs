//! What a device knows of its peers and of the paths to them.

use crate::{
    device::{srd_ah, srd_device},
    fail::run,
    handle::{at, places, put},
    path_events::srd_path_state,
};
use std::ffi::c_int;

/// One path to an address.
#[repr(C)]
pub struct srd_path_stats {
    /// Smoothed round trip in ns; 0 = none measured.
    pub rtt_ns_smoothed: u64,
    /// Least round trip in ns; 0 = none measured.
    pub rtt_ns_min: u64,
    /// Packets sent on it.
    pub packets_sent: u64,
    /// Those of them that were declared lost.
    pub packets_lost: u64,
    /// Packets acknowledged with the mark of congestion (CE).
    pub packets_ce: u64,
    /// Number of the path.
    pub path: u8,
    /// A srd_path_state.
    pub state: u8,
}

/// One peer: a device at another address or port. Rate, bytes in flight and round trips are those
/// of its address, which several peers may share.
#[repr(C)]
pub struct srd_peer_stats {
    /// Its address as a GID.
    pub gid: [u8; 16],
    /// Bytes per second at which packets leave.
    pub rate_bytes_per_sec: u64,
    /// Bytes in flight.
    pub inflight_bytes: u64,
    /// Most bytes in flight: the congestion window.
    pub inflight_bytes_max: u64,
    /// Smoothed round trip in ns.
    pub rtt_ns_smoothed: u64,
    /// Recent least round trip in ns.
    pub rtt_ns_min: u64,
    /// Send requests that have not ended.
    pub outstanding: u32,
    /// Its UDP port.
    pub port: u16,
    /// No path to it answers.
    pub stalled: bool,
    /// Each packet is encrypted and authenticated.
    pub sealed: bool,
}

/// Reads at most `n` paths to the host of an address handle, in the order of their numbers. Returns
/// how many paths there are, which may be more: 0 if nothing was ever sent there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srd_ah_paths(
    ah: *const srd_ah,
    paths: *mut srd_path_stats,
    n: u32,
) -> c_int {
    run(|| {
        // SAFETY: the contract of the header.
        let ah = &unsafe { at(ah, "the address handle") }?.0;
        let all = ah.pd().device().path_stats(ah.ip())?;
        // SAFETY: as above.
        for (place, p) in unsafe { places(paths, n) }?.zip(&all) {
            let state = match p.state {
                "retired" => srd_path_state::Failed,
                "probing" => srd_path_state::Probing,
                "denied" => srd_path_state::Denied,
                _ => srd_path_state::Active,
            };
            let value = srd_path_stats {
                rtt_ns_smoothed: p.rtt_ns_smoothed,
                rtt_ns_min: p.rtt_ns_min,
                packets_sent: p.packets_sent,
                packets_lost: p.packets_lost,
                packets_ce: p.packets_ce,
                path: p.path,
                state: state as u8,
            };
            // SAFETY: one of the places.
            unsafe { put(place, value) }?;
        }
        Ok(all.len() as c_int)
    })
}

/// Reads at most `n` peers of a device. Returns how many there are, which may be more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srd_device_peers(
    device: *const srd_device,
    peers: *mut srd_peer_stats,
    n: u32,
) -> c_int {
    run(|| {
        // SAFETY: the contract of the header.
        let all = unsafe { at(device, "the device") }?.0.context_stats()?;
        // SAFETY: as above.
        for (place, c) in unsafe { places(peers, n) }?.zip(&all) {
            let value = srd_peer_stats {
                gid: srd::gid_from_ip(c.peer.ip),
                rate_bytes_per_sec: c.rate_bytes_per_sec,
                inflight_bytes: c.inflight_bytes,
                inflight_bytes_max: c.inflight_bytes_max,
                rtt_ns_smoothed: c.srtt_ns,
                rtt_ns_min: c.rtt_ns_min,
                outstanding: c.outstanding,
                port: c.peer.port,
                stalled: c.stalled,
                sealed: c.sealed,
            };
            // SAFETY: one of the places.
            unsafe { put(place, value) }?;
        }
        Ok(c_int::try_from(all.len()).unwrap_or(c_int::MAX))
    })
}
