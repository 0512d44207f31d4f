//! What zero bytes at the end do to a CRC-32C: this joins the checksums of two pieces.
//!
//! A CRC is linear: with initial value and final XOR all ones, the checksum of two pieces is the
//! second's own, XOR the first's after as many zero bytes as the second has. Zeros are a linear map
//! of the 32 bits, and the map for a length is a product of one map per hexadecimal digit.

/// The polynomial, reflected (RFC 3720).
const POLYNOMIAL: u32 = 0x82f6_3b78;
/// Most zero bytes of one step; a datagram has fewer.
pub const ZEROS_MAX: usize = 0xffff;

/// A linear map of 32 bits: for each of their eight digits and each of its values, the image.
type Map = [[u32; 16]; 8];

/// For each hexadecimal digit of a length, lowest first, and each of its values from one: the map
/// of so many zero bytes.
static MAPS: [[Map; 15]; 4] = maps();

/// The value that `crc` becomes after `len` zero bytes, at most [`ZEROS_MAX`], with neither initial
/// value nor final XOR.
#[inline]
pub fn append(mut crc: u32, len: usize) -> u32 {
    for (place, maps) in MAPS.iter().enumerate() {
        let digit = (len >> (4 * place)) & 15;
        if let Some(map) = digit.checked_sub(1).and_then(|at| maps.get(at)) {
            crc = image(map, crc);
        }
    }
    crc
}

#[inline]
const fn image(map: &Map, of: u32) -> u32 {
    let (mut sum, mut at) = (0, 0);
    while at < 8 {
        sum ^= map[at][((of >> (4 * at)) & 15) as usize];
        at += 1;
    }
    sum
}

const fn maps() -> [[Map; 15]; 4] {
    let mut maps = [[one_byte(); 15]; 4];
    let mut place = 0;
    while place < 4 {
        if place > 0 {
            maps[place][0] = product(&maps[place - 1][0], &maps[place - 1][14]);
        }
        let mut at = 1;
        while at < 15 {
            maps[place][at] = product(&maps[place][0], &maps[place][at - 1]);
            at += 1;
        }
        place += 1;
    }
    maps
}

/// The map of one zero byte.
const fn one_byte() -> Map {
    let mut map = [[0; 16]; 8];
    let mut at = 0;
    while at < 8 {
        let mut value = 0;
        while value < 16 {
            let (mut crc, mut bit) = ((value as u32) << (4 * at), 0);
            while bit < 8 {
                crc = (crc >> 1) ^ ((crc & 1) * POLYNOMIAL);
                bit += 1;
            }
            map[at][value] = crc;
            value += 1;
        }
        at += 1;
    }
    map
}

/// `second`, then `first`.
const fn product(first: &Map, second: &Map) -> Map {
    let mut map = [[0; 16]; 8];
    let mut at = 0;
    while at < 8 {
        let mut value = 0;
        while value < 16 {
            map[at][value] = image(first, second[at][value]);
            value += 1;
        }
        at += 1;
    }
    map
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_change_a_crc_as_its_bits_say() {
        for start in [1, 0x8000_0000, 0xdead_beef, u32::MAX] {
            let mut by_bits = start;
            for len in 0..=ZEROS_MAX {
                assert_eq!(append(start, len), by_bits, "{start:08x} and {len} zeros");
                by_bits = (0..8).fold(by_bits, |c, _| (c >> 1) ^ ((c & 1) * POLYNOMIAL));
            }
        }
    }
}
