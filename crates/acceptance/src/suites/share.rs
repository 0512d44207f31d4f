//! Time that programs spend inside of MPI, from a library that is preloaded into them
//! (`mpi_share.c`).

use super::fabric::{Fabric, Said};
use crate::Result;
use crate::process::{command, root, run};
use std::path::PathBuf;

/// What one run spent in MPI.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share {
    /// Seconds between the start and the end of MPI.
    pub seconds: f64,
    /// Mean share of the ranks' time in MPI, percent.
    pub percent: f64,
    /// The longest call of any rank in ms.
    pub longest_ms: f64,
}

/// Compiles the library.
///
/// # Errors
/// The compiler fails.
pub fn library(f: &Fabric) -> Result<PathBuf> {
    let path = f.folder().join("libmpi_share.so");
    let source = root().join("bindings/ibverbs/tests/programs/mpi_share.c");
    let mut c = command("mpicc", &["-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-o"]);
    run(c.arg(&path).arg(source))?;
    Ok(path)
}

impl Share {
    /// The line of the library in a program's output.
    ///
    /// # Errors
    /// There is none.
    pub fn of(said: &Said) -> Result<Self> {
        let line = said.text.lines().find(|l| l.starts_with("mpi_share: "));
        let parsed = line.and_then(|line| {
            let numbers: Vec<f64> = line.split([' ', ',']).filter_map(|w| w.parse().ok()).collect();
            let [_, seconds, percent, longest_ms] = numbers[..] else { return None };
            Some(Self { seconds, percent, longest_ms })
        });
        parsed.ok_or_else(|| format!("mpi_share printed nothing, {}", said.tail()))
    }
}

/// Means of the runs over SRD beside those over TCP, and the longest call of any run.
pub fn compare(srd: &[Share], tcp: &[Share]) -> String {
    let mean = |all: &[Share], f: fn(&Share) -> f64| {
        all.iter().map(f).sum::<f64>() / all.len().max(1) as f64
    };
    let longest = |all: &[Share]| all.iter().map(|s| s.longest_ms).fold(0.0, f64::max);
    let (ours, theirs) = (mean(srd, |s| s.seconds), mean(tcp, |s| s.seconds));
    format!(
        "{ours:.1} s, TCP {theirs:.1} s (ratio {:.2}); in MPI {:.0} %, TCP {:.0} %; the longest \
         call took {:.0} ms, TCP {:.0} ms",
        ours / theirs,
        mean(srd, |s| s.percent),
        mean(tcp, |s| s.percent),
        longest(srd),
        longest(tcp)
    )
}

/// Requires that the device counted at least so many MB.
///
/// # Errors
/// It counted less.
pub fn bytes_check(said: &Said, mb_min: f64) -> Result {
    let line = said.text.lines().find(|l| l.starts_with("srd: ") && l.contains("through SRD in"));
    let mb = line.and_then(|l| l.split(" MB").next()?.split(' ').next_back()?.parse::<f64>().ok());
    match mb {
        Some(mb) if mb >= mb_min => Ok(()),
        Some(mb) => Err(format!("the device counted {mb} MB, less than {mb_min}")),
        None => Err(format!("`srd run` printed no bytes, {}", said.tail())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str) -> Said {
        Said { text: text.into(), code: 0 }
    }

    #[test]
    fn the_line_of_the_library_is_read() {
        let text = "End\nmpi_share: 2 ranks, 12.500 s between start and end, 40.0 % in MPI, \
                    the longest call took 186.5 ms\n";
        let want = Share { seconds: 12.5, percent: 40.0, longest_ms: 186.5 };
        assert_eq!(Share::of(&said(text)), Ok(want));
        assert!(Share::of(&said("End\n")).is_err());
        let tcp = Share { seconds: 25.0, percent: 60.0, longest_ms: 2_000.0 };
        let text = compare(&[want, want], &[tcp]);
        assert!(
            text.starts_with("12.5 s, TCP 25.0 s (ratio 0.50); in MPI 40 %, TCP 60 %"),
            "{text}"
        );
    }

    #[test]
    fn bytes_of_the_device_are_required() {
        let line = "srd: 2 processes, 18854 messages, 135.9 MB through SRD in 3 s on 64 paths\n";
        assert_eq!(bytes_check(&said(line), 100.0), Ok(()));
        assert!(bytes_check(&said(line), 200.0).unwrap_err().contains("135.9"));
        assert!(bytes_check(&said("nothing"), 1.0).is_err());
    }
}
