//! The HPC Challenge benchmark over SRD and over Open MPI's TCP: every test must succeed, and the
//! results of the linear solver must have the same digits.

use super::cases::{expect_end_over, through};
use super::fabric::{Fabric, Said};
use super::share;
use crate::{Result, mpi::stage::Transport};
use std::collections::BTreeMap;
use std::fs;

/// Time limit of a run in seconds.
const LIMIT_S: u32 = 400;
/// Least payload of a run in MB that the device must have counted.
const MB_MIN: f64 = 1.0;
/// Results that follow from the input alone.
const SAME: [&str; 5] = ["HPL_RnormI", "HPL_AnormI", "HPL_XnormI", "HPL_BnormI", "PTRANS_residual"];
/// The input: a small problem for two ranks in one row. Lines without a comment are free text.
const INPUT: &str = "\
HPLinpack benchmark input file
two ranks
HPL.out      output file
8            device out
1            problem sizes
400          N
1            block sizes
80           NB
0            process mapping
1            process grids
1            P
2            Q
16.0         threshold
1            panel factorisations
2            PFACT
1            stopping criteria
4            NBMIN
1            panels in recursion
2            NDIV
1            recursive factorisations
1            RFACT
1            broadcasts
1            BCAST
1            lookahead depths
1            DEPTH
2            swap
64           swapping threshold
0            L1 transposed
0            U transposed
1            equilibration
8            alignment
separator
0            further sizes for PTRANS
1200         N
0            further block sizes for PTRANS
40           NB
";

/// Runs the benchmark over both; returns a remark for the table.
///
/// # Errors
/// A run or one of its tests fails, or the digits differ.
pub fn run(f: &Fabric) -> Result<String> {
    let (_, tcp) = one(f, Transport::TcpBtl)?;
    let (said, srd) = one(f, Transport::Srd)?;
    share::bytes_check(&said, MB_MIN)?;
    for name in SAME {
        let (a, b) = (srd.get(name), tcp.get(name));
        if a.is_none() || a != b {
            return Err(format!("{name} is {a:?}, over TCP {b:?}"));
        }
    }
    let figure = |all: &BTreeMap<String, String>, name: &str| -> Result<f64> {
        let value = all.get(name).and_then(|v| v.parse().ok());
        value.ok_or_else(|| format!("hpccoutf.txt has no {name}"))
    };
    let mut remark = "all tests succeed, digits as over TCP".to_owned();
    for (name, what, unit) in [
        ("RandomlyOrderedRingLatency_usec", "ring latency", "us"),
        ("RandomlyOrderedRingBandwidth_GBytes", "ring bandwidth", "GB/s"),
        ("MPIRandomAccess_GUPs", "random access", "GUP/s"),
    ] {
        let (ours, theirs) = (figure(&srd, name)?, figure(&tcp, name)?);
        remark += &format!("; {what} {ours:.3e} {unit}, TCP {theirs:.3e}");
    }
    Ok(format!("{remark}; {}", through(&said)?))
}

/// One run, and the names and values of its summary.
fn one(f: &Fabric, over: Transport) -> Result<(Said, BTreeMap<String, String>)> {
    let folder = f.folder().join("hpcc");
    let fail = |e: std::io::Error| format!("{}: {e}", folder.display());
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).map_err(fail)?;
    fs::write(folder.join("hpccinf.txt"), INPUT).map_err(fail)?;
    let said = f.mpi_spread(over, LIMIT_S, 2, &format!("--wdir {} hpcc", folder.display()))?;
    expect_end_over(over, &said)?;
    let text = fs::read_to_string(folder.join("hpccoutf.txt")).map_err(fail)?;
    let summary = summary(&text);
    let bad = summary.iter().find(|(name, value)| match name.as_str() {
        "Success" => value.as_str() != "1",
        name => name.ends_with("_Errors") && value.as_str() != "0",
    });
    match bad {
        Some((name, value)) => Err(format!("{}: {name}={value}", over.name())),
        None if summary.contains_key("Success") => Ok((said, summary)),
        None => Err(format!("{}: the summary has no Success", over.name())),
    }
}

/// Names and values of the summary at the end of the output.
fn summary(text: &str) -> BTreeMap<String, String> {
    let lines = text.lines().skip_while(|l| !l.starts_with("Begin of Summary section"));
    let pairs = lines.filter_map(|l| l.split_once('='));
    pairs.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_values_of_the_summary_are_read() {
        let text = "x=1\nBegin of Summary section.\nSuccess=1\nHPL_RnormI=3.5e-13\n\nEnd\n";
        let all = summary(text);
        assert_eq!((all.len(), all["Success"].as_str()), (2, "1"));
        assert_eq!(all["HPL_RnormI"], "3.5e-13");
        assert_eq!(INPUT.lines().nth(5), Some("400          N"), "the size is in line 6");
    }
}
