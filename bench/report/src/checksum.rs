//! The cost of the checksum of each datagram: a section of the page that can be generated alone.

use crate::{
    Result,
    figures::{Figures, Spread},
    measure::Measured,
    page::{self, shown},
    rows::{Driver, Row, SIZES},
};
use std::fmt::Write;

/// First and last line of the section.
const BEGIN: &str = "<!-- made by `cargo xtask report --checksum` -->";
const END: &str = "<!-- end of what report --checksum makes -->";

/// Description, row with the checksum, and row without it.
fn pairs() -> impl Iterator<Item = (String, Row, Row)> {
    SIZES.into_iter().flat_map(|size| {
        let send = Row::SrdSend { size, driver: Driver::Caller };
        [
            (format!("sends of {size} B"), send, Row::SrdSendUnchecked { size }),
            (
                format!("writes, packets of {size} B"),
                Row::SrdWrite { size },
                Row::SrdWriteUnchecked { size },
            ),
        ]
    })
}

/// The rows of the section, each next to the one that it is compared with.
pub fn rows() -> Vec<Row> {
    let with_raw = |size| Row::RawStream { size };
    let both = pairs().flat_map(|(_, with, without)| [with, without]);
    SIZES.into_iter().map(with_raw).chain(both).collect()
}

/// The section, including its first and last line.
pub fn part(m: &Measured) -> Result<String> {
    let mut out = String::new();
    let load = Spread::of(m.loads.iter().copied());
    writeln!(
        out,
        "{BEGIN}

## The checksum

Every datagram carries a CRC-32C unless it is disabled (`--unchecked`); each end calculates it \
once per packet. Made by `cargo xtask report --checksum --runs {} --seconds {}` under the \
conditions above, load average {}: rows with and without in turn, ratios within one round. \
CPU time varies with other load on a shared machine (caches and memory are shared), so that the \
extremes of few rounds lie far apart; the median over many short rounds is more reliable.

| | Gb per CPU-s with | without | with / without | ns of both ends per packet with | without | \
 with − without |
|-|-|-|-|-|-|-|",
        m.plan.runs,
        m.plan.seconds,
        shown(load, 1),
    )?;
    for (what, with, without) in pairs() {
        let per_cpu = |f: &Figures| f.gbit_per_cpu;
        let ns = |f: &Figures| f.ns_per_packet[0] + f.ns_per_packet[1];
        writeln!(
            out,
            "| {what} | {} | {} | {} | {:.0} | {:.0} | {} |",
            shown(m.spread(with, per_cpu), 2),
            shown(m.spread(without, per_cpu), 2),
            shown(m.ratio(with, without, per_cpu), 3),
            m.spread(with, ns).median,
            m.spread(without, ns).median,
            shown(m.difference(with, without, ns), 0),
        )?;
    }
    writeln!(out, "\n| Without SRD | Gb per CPU-s |\n|-|-|")?;
    for size in SIZES {
        let raw = m.spread(Row::RawStream { size }, |f| f.gbit_per_cpu);
        writeln!(out, "| raw UDP, packets of {size} B | {} |", shown(raw, 2))?;
    }
    writeln!(
        out,
        "\nInstructions of one calculation, by callgrind, which does not support the widest \
         registers of newer processors and therefore counts the code for older ones \
         ([{}](../{})):\n\n| Packet | Instructions |\n|-|-|",
        page::TABLE,
        page::TABLE
    )?;
    for line in page::file(page::TABLE).lines() {
        if let Some((size, count)) = line.strip_prefix("checksum-").and_then(|l| l.split_once(','))
        {
            writeln!(out, "| {size} B of payload | {count} |")?;
        }
    }
    writeln!(out, "\n{END}")?;
    Ok(page::wrapped(&out))
}

/// Replaces this section in the page.
pub fn put(page: &str, part: &str) -> Result<String> {
    page::replace(page, part, [BEGIN, END])
        .ok_or_else(|| "the page has no section about the checksum: generate the whole page".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_part_is_replaced() {
        let part = format!("{BEGIN}\nnew\n{END}\n");
        let page = format!("before\n\n{BEGIN}\nold\n{END}\n\nafter\n");
        let new = put(&page, &part).unwrap();
        assert_eq!(new, format!("before\n\n{part}\nafter\n"));
        assert_eq!(put(&new, &part).unwrap(), new);
        assert!(put("before", &part).is_err());
    }

    #[test]
    fn rows_are_paired_with_their_reference() {
        let rows = rows();
        for (_, with, without) in pairs() {
            let at = rows.iter().position(|r| *r == with).unwrap();
            assert_eq!(rows[at + 1], without);
        }
    }
}
