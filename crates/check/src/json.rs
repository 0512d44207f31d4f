//! Summary of many runs as JSON, for programs that add up the runs of many machines.

use crate::class::Class;
use crate::ledger::Tally;
use crate::summary::{Failure, Summary};
use std::fmt::Write as _;

/// One line: an object with `first`, `end` (the seed behind the last one), `seeds` (worlds),
/// `replays`, `hash` (16 hexadecimal digits), `counters`, `worlds` (by class of faults) and
/// `failures`.
pub(crate) fn summary(sum: &Summary) -> String {
    let hash = format!("{:016x}", sum.hash);
    let counters = object(counters(sum).into_iter().map(|(name, n)| (name.into(), n)));
    let worlds = Class::ALL.into_iter().map(|c| (format!("{c:?}"), sum.classes[c as usize]));
    let failures: Vec<String> = sum.failures.iter().map(failure).collect();
    format!(
        "{{\"first\":{},\"end\":{},\"seeds\":{},\"replays\":{},\"hash\":{},\"counters\":{},\
         \"worlds\":{},\"failures\":[{}]}}",
        sum.range.start,
        sum.range.end,
        sum.seeds,
        sum.replays,
        text(&hash),
        counters,
        object(worlds),
        failures.join(","),
    )
}

fn failure(f: &Failure) -> String {
    format!(
        "{{\"seed\":{},\"classes\":{},\"oracle\":{},\"what\":{}}}",
        f.seed,
        text(&f.classes.to_string()),
        text(&format!("{:?}", f.violation.oracle)),
        text(&f.violation.what),
    )
}

fn counters(sum: &Summary) -> [(&'static str, u64); 22] {
    let Tally {
        packets,
        received,
        requests,
        completed,
        failed,
        judged,
        retransmitted,
        sizes,
        recalls,
        rnr,
        restarts,
        stale,
        forged,
        leaps,
        refused,
        overflowed,
        churned,
        denials,
    } = sum.tally;
    [
        ("packets", packets),
        ("received", received),
        ("requests", requests),
        ("completed", completed),
        ("failed", failed),
        ("judged", judged),
        ("retransmitted", retransmitted),
        ("sizes", sizes),
        ("recalls", recalls),
        ("rnr", rnr),
        ("restarts", restarts),
        ("stale", stale),
        ("forged", forged),
        ("leaps", leaps),
        ("refused", refused),
        ("overflowed", overflowed),
        ("churned", churned),
        ("denials", denials),
        ("lost", sum.lost_total()),
        ("duplicated", sum.duplicated),
        ("corrupted", sum.corrupted),
        ("marked", sum.marked),
    ]
}

fn object(members: impl Iterator<Item = (String, u64)>) -> String {
    let members: Vec<String> = members.map(|(name, n)| format!("{}:{n}", text(&name))).collect();
    format!("{{{}}}", members.join(","))
}

/// A string with what JSON does not permit in it escaped.
fn text(plain: &str) -> String {
    let mut out = String::from('"');
    for c in plain.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c < ' ' => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::class::Classes;
    use crate::ledger::{Oracle, Violation};

    #[test]
    fn every_number_is_in_the_line() {
        let what = "a \"quoted\" C:\\path\nand a second line".into();
        let violation = Violation { oracle: Oracle::Window, at: 0, what };
        let mut sum = Summary {
            seeds: 3,
            replays: 1,
            range: 40..43,
            hash: 0xab,
            tally: Tally { packets: 1_000, denials: 2, ..Tally::default() },
            marked: 8,
            failures: vec![Failure {
                seed: 41,
                classes: Classes::default().with(Class::Loss).with(Class::Burst),
                violation,
            }],
            ..Summary::default()
        };
        sum.classes[Class::Loss as usize] = 2;
        let line = summary(&sum);
        assert!(!line.contains('\n'), "{line}");
        for part in [
            r#"{"first":40,"end":43,"seeds":3,"replays":1,"hash":"00000000000000ab","counters":{"#,
            r#""packets":1000,"#,
            r#""denials":2,"lost":0,"#,
            r#""marked":8},"worlds":{"Loss":2,"Burst":0,"#,
            r#""failures":[{"seed":41,"classes":"Loss Burst","oracle":"Window","#,
            r#""what":"a \"quoted\" C:\\path\u000aand a second line"}]}"#,
        ] {
            assert!(line.contains(part), "{part}\n{line}");
        }
    }
}
