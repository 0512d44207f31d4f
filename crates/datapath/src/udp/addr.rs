//! Socket addresses in the kernel's layout.

use core::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// Bytes of the longest address: a `sockaddr_in6`.
pub const BYTES_MAX: usize = 28;

/// A `sockaddr_in` or `sockaddr_in6`.
#[derive(Clone, Copy)]
#[repr(C, align(4))]
pub struct SockAddr {
    bytes: [u8; BYTES_MAX],
    len: u32,
}

impl SockAddr {
    /// Room for any address.
    pub const EMPTY: Self = Self { bytes: [0; BYTES_MAX], len: BYTES_MAX as u32 };

    /// `addr` in the kernel's layout.
    pub fn new(addr: SocketAddr) -> Self {
        let mut bytes = [0; BYTES_MAX];
        bytes[2..4].copy_from_slice(&addr.port().to_be_bytes());
        let (family, len) = match addr {
            SocketAddr::V4(v4) => {
                bytes[4..8].copy_from_slice(&v4.ip().octets());
                (libc::AF_INET as u16, 16)
            }
            SocketAddr::V6(v6) => {
                bytes[4..8].copy_from_slice(&v6.flowinfo().to_be_bytes());
                bytes[8..24].copy_from_slice(&v6.ip().octets());
                bytes[24..28].copy_from_slice(&v6.scope_id().to_ne_bytes());
                (libc::AF_INET6 as u16, BYTES_MAX as u32)
            }
        };
        bytes[..2].copy_from_slice(&family.to_ne_bytes());
        Self { bytes, len }
    }

    /// The address, if it is an IP address.
    pub fn get(&self) -> Option<SocketAddr> {
        let b = &self.bytes;
        let family = i32::from(u16::from_ne_bytes([b[0], b[1]]));
        let port = u16::from_be_bytes([b[2], b[3]]);
        if family == libc::AF_INET && self.len >= 8 {
            let ip = Ipv4Addr::new(b[4], b[5], b[6], b[7]);
            return Some(SocketAddrV4::new(ip, port).into());
        }
        if family == libc::AF_INET6 && self.len as usize == BYTES_MAX {
            let ip = Ipv6Addr::from(<[u8; 16]>::try_from(&b[8..24]).ok()?);
            let scope = u32::from_ne_bytes([b[24], b[25], b[26], b[27]]);
            // The flow label of a received packet is not part of the peer's address.
            return Some(SocketAddrV6::new(ip, port, 0, scope).into());
        }
        None
    }

    /// Bytes in use.
    pub const fn len(&self) -> u32 {
        self.len
    }

    /// Sets how many bytes the kernel has written.
    pub fn len_set(&mut self, len: u32) {
        self.len = len.min(BYTES_MAX as u32);
    }

    /// Pointer to the bytes.
    pub const fn as_ptr(&self) -> *const u8 {
        self.bytes.as_ptr()
    }

    /// Pointer to the bytes for writing: [`BYTES_MAX`] of them.
    pub const fn as_mut_ptr(&mut self) -> *mut u8 {
        self.bytes.as_mut_ptr()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_the_kernel_form() {
        for text in ["1.2.3.4:5", "255.0.255.1:65535", "[2001:db8::7]:80", "[fe80::1%3]:9"] {
            let addr: SocketAddr = text.parse().unwrap();
            assert_eq!(SockAddr::new(addr).get(), Some(addr), "{text}");
        }
    }

    #[test]
    fn other_families_and_short_addresses_are_refused() {
        let mut short = SockAddr::new("[::1]:1".parse().unwrap());
        short.len_set(16);
        assert_eq!(short.get(), None);
        assert_eq!(SockAddr::EMPTY.get(), None);
    }
}
