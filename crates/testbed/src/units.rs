//! Numbers with units, on the command line and in tables.

use std::time::Duration;

/// Splits `text` into its number and the rest, in lower case.
pub fn split(text: &str) -> Option<(f64, String)> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number: f64 = text[..end].parse().ok()?;
    Some((number, text[end..].trim().to_ascii_lowercase()))
}

/// Parses bits per second: `500M`, `1G`, `2.5Gbit`.
pub fn rate_bits(text: &str) -> Result<u64, String> {
    let wrong = || format!("`{text}` is not a rate; write bits per second, as 200M or 1G");
    let rate = bits_per_sec(text).ok_or_else(wrong)?;
    if (8_000.0..1e12).contains(&rate) {
        return Ok(rate as u64);
    }
    let what = match rate {
        0.0 => "is no rate: nothing would ever move",
        r if r < 8_000.0 => "is too slow",
        _ => "is too fast",
    };
    Err(format!("`{text}` {what}; write from 8k to below 1000G bits per second, as 200M or 1G"))
}

/// As [`rate_bits`], with a unit, where a bare number could mean bits or bytes, or be a share.
pub fn rate_bits_unit(text: &str) -> Result<u64, String> {
    match split(text) {
        Some((number, unit)) if unit.is_empty() && number > 0.0 => {
            Err(format!("`{text}` has no unit; write bits per second with one, as 200M or 1G"))
        }
        _ => rate_bits(text),
    }
}

/// As [`rate_bits`], without limits.
pub fn bits_per_sec(text: &str) -> Option<f64> {
    let (number, unit) = split(text)?;
    let scale = match unit.trim_end_matches("/s").trim_end_matches("bit") {
        "" => 1.0,
        "k" => 1e3,
        "m" => 1e6,
        "g" => 1e9,
        _ => return None,
    };
    Some(number * scale)
}

/// Parses bytes: `200k`, `2M`, `64KiB`. Powers of 1000, or of 1024 with an `i`.
pub fn bytes(text: &str) -> Result<u64, String> {
    let wrong = || format!("`{text}` is not a size; write bytes, or 200k, 2M, 64KiB");
    let (number, unit) = split(text).ok_or_else(wrong)?;
    let scale = match unit.trim_end_matches('b') {
        "" => 1.0,
        "k" => 1e3,
        "m" => 1e6,
        "g" => 1e9,
        "ki" => 1024.0,
        "mi" => 1024.0 * 1024.0,
        "gi" => 1024.0 * 1024.0 * 1024.0,
        _ => return Err(wrong()),
    };
    let n = number * scale;
    if n < 1e15 { Ok(n as u64) } else { Err(wrong()) }
}

/// Parses a share (`1%`, `0.01`); returns parts per million.
pub fn share_ppm(text: &str) -> Result<u32, String> {
    let wrong = || format!("`{text}` is not a share of the packets; write 1% or 0.01");
    let (number, unit) = split(text).ok_or_else(wrong)?;
    let share = match unit.as_str() {
        "" => number,
        "%" => number / 100.0,
        _ => return Err(wrong()),
    };
    if share <= 1.0 { Ok((share * 1e6).round() as u32) } else { Err(wrong()) }
}

/// Parses a time: `2`, `500ms`, `3s`, `30m`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is not a time; write seconds, or 500ms, 3s, 30m");
    let (number, unit) = split(text).ok_or_else(wrong)?;
    let seconds = match unit.as_str() {
        "" | "s" => number,
        "us" => number / 1e6,
        "ms" => number / 1e3,
        "m" | "min" => number * 60.0,
        _ => return Err(wrong()),
    };
    if seconds <= 1e7 { Ok(Duration::from_secs_f64(seconds)) } else { Err(wrong()) }
}

/// Bits per second as text: `200 Mb/s`.
pub fn rate_text(bits_per_sec: u64) -> String {
    let mega = bits_per_sec as f64 / 1e6;
    if mega >= 1000.0 { format!("{} Gb/s", mega / 1000.0) } else { format!("{mega} Mb/s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_read() {
        assert_eq!(rate_bits("200M"), Ok(200_000_000));
        assert_eq!(rate_bits("2.5Gbit/s"), Ok(2_500_000_000));
        assert_eq!(bytes("200k"), Ok(200_000));
        assert_eq!(bytes("64KiB"), Ok(65_536));
        assert_eq!(share_ppm("1%"), Ok(10_000));
        assert_eq!(duration("1500ms"), Ok(Duration::from_millis(1500)));
        for bad in ["", "x", "5 apples", "-1"] {
            assert!(rate_bits(bad).is_err() && bytes(bad).is_err() && share_ppm(bad).is_err());
            assert!(duration(bad).is_err());
        }
        assert_eq!(rate_bits_unit("0.2Gbit/s"), Ok(200_000_000));
        for bad in ["200", "200000000", "0", "0M", "-200M", "200X", "M", "fast", "200%"] {
            let why = rate_bits_unit(bad).unwrap_err();
            assert!(why.contains(bad) && why.contains("as 200M or 1G"), "{why}");
        }
        for zero in ["0", "0M", "0.0G"] {
            let why = rate_bits_unit(zero).unwrap_err();
            assert!(why.contains("nothing would ever move") && why.contains("from 8k to"), "{why}");
        }
        assert!(rate_bits_unit("1k").unwrap_err().contains("too slow"));
        assert!(rate_bits_unit("1000G").unwrap_err().contains("too fast"));
        assert!(rate_bits("10").is_err(), "ten bits per second is a typing error");
        assert!(share_ppm("150%").is_err());
    }
}
