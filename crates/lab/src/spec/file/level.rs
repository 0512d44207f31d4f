//! Defaults that make transports comparable: they depend on other fields of the case, and hold only
//! where the spec does not say otherwise.

use toml::{Table, Value};

/// Payload of a packet in bytes, of every transport, if `engine.mtu` is not given.
const PAYLOAD_BYTES: i64 = 4096;
/// Tables with the size of a packet's payload, and its field.
const PAYLOADS: [(&str, &str); 3] = [("tcp", "mss"), ("rc", "mtu"), ("ue", "mtu")];
/// Timers of DCTCP: marks keep queues short, so timeouts of tens of milliseconds, made for hosts
/// and networks of other times, would hide what the algorithm does. They belong together: a spec
/// that gives one of them has the others from TCP's defaults.
const DCTCP_TIMERS: [(&str, f64); 4] =
    [("rto_floor_ms", 1.0), ("tick_us", 100.0), ("timer_slack_us", 100.0), ("delayed_ack_ms", 0.5)];
/// Thresholds of marks: their defaults in [`crate::spec::Network`], and the fifths of a buffer that
/// they may have at most. Five fifths of a bandwidth-delay product give the same defaults.
const MARKS: [(&str, u64, u64); 2] = [("ecn_bytes_min", 27_200, 1), ("ecn_bytes_max", 108_800, 4)];

/// Sets them in the table of a case.
pub fn defaults(case: &mut Table) {
    marks(case);
    payload(case);
    timers(case);
}

fn table<'a>(case: &'a mut Table, name: &str) -> Option<&'a mut Table> {
    case.entry(name).or_insert_with(|| Value::Table(Table::new())).as_table_mut()
}

fn transport(case: &Table) -> &str {
    case.get("transport").and_then(Value::as_str).unwrap_or("srd")
}

/// Keeps marks within a small buffer.
fn marks(case: &mut Table) {
    let Some(Value::Table(network)) = case.get_mut("network") else { return };
    let Some(bytes) = queue_bytes_max(network) else { return };
    // A spec that gives one of the two means both.
    if MARKS.iter().any(|(field, ..)| network.contains_key(*field)) {
        return;
    }
    for (field, most, fifths) in MARKS {
        let within = bytes / 5 * fifths;
        if within < most {
            network.insert(field.into(), Value::Integer(within as i64));
        }
    }
}

/// Most bytes of a queue; `None` if the spec leaves it at its default, or gives no number.
fn queue_bytes_max(network: &Table) -> Option<u64> {
    let number = |field: &str| network.get(field)?.as_integer().filter(|b| *b > 0);
    let Some(shared) = number("shared_buffer_bytes") else {
        return number("buffer_bytes").map(i64::unsigned_abs);
    };
    // A single full queue leaves the rest of a shared buffer free.
    let alpha = network.get("shared_buffer_alpha");
    let alpha = alpha.and_then(|a| a.as_float().or(a.as_integer().map(|a| a as f64)));
    let alpha = alpha.filter(|a| *a > 0.0).unwrap_or(1.0);
    Some((shared as f64 * alpha / (1.0 + alpha)) as u64)
}

/// Gives all transports packets of one size.
fn payload(case: &mut Table) {
    let name = transport(case).to_string();
    let Some((at, field)) = PAYLOADS.into_iter().find(|(at, _)| *at == name) else { return };
    let engine = case.get("engine").and_then(|e| e.get("mtu"));
    let bytes = engine.cloned().unwrap_or(Value::Integer(PAYLOAD_BYTES));
    if let Some(own) = table(case, at) {
        own.entry(field).or_insert(bytes);
    }
}

/// Gives DCTCP timers that fit it.
fn timers(case: &mut Table) {
    if transport(case) != "tcp" {
        return;
    }
    let Some(tcp) = table(case, "tcp") else { return };
    let is_dctcp = tcp.get("cc").and_then(Value::as_str) == Some("dctcp");
    if is_dctcp && !DCTCP_TIMERS.iter().any(|(field, _)| tcp.contains_key(*field)) {
        for (field, value) in DCTCP_TIMERS {
            tcp.insert(field.into(), Value::Float(value));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn levelled(text: &str) -> Table {
        let mut case: Table = text.parse().unwrap();
        defaults(&mut case);
        case
    }

    #[test]
    fn marks_stay_within_small_buffers() {
        for (text, want) in [
            ("network.buffer_bytes = 100_000", Some((20_000, 80_000))),
            ("network.buffer_bytes = 136_000", None),
            ("network.k = 8", None),
            ("network.buffer_bytes = 100_000\nnetwork.ecn_bytes_max = 99_000", None),
            ("network.shared_buffer_bytes = 50_000", Some((5_000, 20_000))),
        ] {
            let case = levelled(text);
            let get = |field: &str| case["network"].get(field).and_then(Value::as_integer);
            let got = get("ecn_bytes_min").zip(get("ecn_bytes_max"));
            assert_eq!(got, want, "{text}");
        }
    }

    #[test]
    fn packets_have_one_size_unless_the_spec_says_otherwise() {
        let mss = |text: &str| levelled(text)["tcp"]["mss"].as_integer();
        assert_eq!(mss("transport = \"tcp\""), Some(4096));
        assert_eq!(mss("transport = \"tcp\"\nengine.mtu = 8000"), Some(8000));
        assert_eq!(mss("transport = \"tcp\"\ntcp.mss = 1448"), Some(1448));
        assert_eq!(levelled("transport = \"ue\"")["ue"]["mtu"].as_integer(), Some(4096));
        assert!(levelled("network.k = 4").get("tcp").is_none(), "SRD has its own default");
    }

    #[test]
    fn dctcp_has_timers_that_fit_unless_the_spec_gives_one() {
        let tcp = |text: &str| levelled(&format!("transport = \"tcp\"\ntcp.{text}"))["tcp"].clone();
        assert_eq!(tcp("cc = \"dctcp\"")["rto_floor_ms"].as_float(), Some(1.0));
        let given = tcp("cc = \"dctcp\"\ntcp.tick_us = 1_000");
        assert!(given.get("rto_floor_ms").is_none());
        assert!(tcp("cc = \"cubic\"").get("rto_floor_ms").is_none());
    }
}
