//! Numbers with units, on the command line and in tables.

pub use srd_testbed::units::share_ppm;
use srd_testbed::units::{bits_per_sec, split};
use std::time::Duration;

/// Longest time of an option.
const TIME_MAX: Duration = Duration::from_secs(1_000_000);

/// `number * scale`, if the result is an integer that fits.
fn whole(number: f64, scale: u64) -> Option<u64> {
    let value = number * scale as f64;
    // Above 2^53 not every integer is representable.
    (value.fract() == 0.0 && value <= 9_007_199_254_740_992.0).then_some(value as u64)
}

/// Parses bytes: `64`, `8K`, `1M`, `2GiB` (powers of 1024).
pub fn bytes(text: &str) -> Result<u64, String> {
    let wrong = || format!("`{text}` is not a size; write bytes, or 8K, 1M, 2G");
    let (number, unit) = split(text).ok_or_else(wrong)?;
    let scale = match unit.trim_end_matches("ib").trim_end_matches('b') {
        "" => 1,
        "k" => 1 << 10,
        "m" => 1 << 20,
        "g" => 1 << 30,
        _ => return Err(wrong()),
    };
    whole(number, scale).ok_or_else(wrong)
}

/// Parses the bytes of one message or RDMA operation, at most 1 GiB.
pub fn message_bytes(text: &str) -> Result<u32, String> {
    let n = bytes(text)?;
    match u32::try_from(n) {
        Ok(n) if n <= srd::RDMA_BYTES_MAX => Ok(n),
        _ => Err("an operation has at most 1 GiB".into()),
    }
}

/// Parses bits per second (`500M`, `10G`, `2.5Gbit`); returns bytes per second.
pub fn rate_bytes_per_sec(text: &str) -> Result<u64, String> {
    let wrong = || format!("`{text}` is not a rate; write bits per second, as 500M or 10G");
    let rate = bits_per_sec(text).ok_or_else(wrong)? / 8.0;
    if (1.0..1e15).contains(&rate) { Ok(rate as u64) } else { Err(wrong()) }
}

/// Parses a time: `2`, `0.5`, `500ms`, `2s`, `1m`.
pub fn duration(text: &str) -> Result<Duration, String> {
    match srd_testbed::units::duration(text)? {
        time if !time.is_zero() && time <= TIME_MAX => Ok(time),
        _ => {
            Err(format!("`{text}`: a time must be above zero and at most {} s", TIME_MAX.as_secs()))
        }
    }
}

/// Bytes as text: `1.5 GiB`.
pub fn bytes_text(bytes: u64) -> String {
    let units = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", units[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (text, n) in [("0", 0), ("64", 64), ("8K", 8192), ("1.5k", 1536), ("2GiB", 2 << 30)] {
            assert_eq!(bytes(text), Ok(n), "{text}");
        }
        for text in ["", "K", "1.5", "-1", "1X", "1e5", "99999999999G", "1.2.3"] {
            assert!(bytes(text).is_err(), "{text}");
        }
        assert_eq!(message_bytes("1G"), Ok(1 << 30));
        assert!(message_bytes("1025M").is_err());
    }

    #[test]
    fn rates_and_shares() {
        assert_eq!(rate_bytes_per_sec("10G"), Ok(1_250_000_000));
        assert_eq!(rate_bytes_per_sec("2.5Gbit/s"), Ok(312_500_000));
        assert!(rate_bytes_per_sec("0").is_err() && rate_bytes_per_sec("fast").is_err());
        assert_eq!(share_ppm("1%"), Ok(10_000));
        assert_eq!(share_ppm("0.01"), Ok(10_000));
        assert_eq!(share_ppm("100%"), Ok(1_000_000));
        assert!(share_ppm("2").is_err() && share_ppm("1percent").is_err());
    }

    #[test]
    fn times() {
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("2"), Ok(Duration::from_secs(2)));
        for text in ["0", "-1", "1h", "nan", "inf", "1e9"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_as_text() {
        assert_eq!(bytes_text(1023), "1023 B");
        assert_eq!(bytes_text(1536), "1.5 KiB");
        assert_eq!(bytes_text(5 << 40), "5.0 TiB");
        assert_eq!(bytes_text(u64::MAX), "16384.0 PiB");
    }
}
