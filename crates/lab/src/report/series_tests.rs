use super::*;
use crate::batch::{jobs_of, run_all};
use crate::spec::SpecFile;
use std::path::Path;

const SPEC: &str = "name = \"test\"\ntitle = \"test\"\nmeasure.observe = true\n\
    [network]\nshape = \"leaf-spine\"\nleaves = 2\nspines = 2\nhosts_per_leaf = 2\n\
    [workload]\npattern = \"leaf-pairs\"\npairs = 2\nflows_per_pair = 2\nbytes = 300_000\n";

/// Sum over the lines of a series of value times width, and the width of its first line in us.
fn area(csv: &str, series: &str) -> (f64, f64) {
    let cells = |line: &str| -> Vec<f64> {
        line.rsplit(',').take(3).map(|c| c.parse().expect("a number")).collect()
    };
    let lines = csv.lines().filter(|l| l.contains(series));
    let all: Vec<Vec<f64>> = lines.map(cells).collect();
    let width = |c: &Vec<f64>| c[1] - c[2];
    (all.iter().map(|c| c[0] * width(c)).sum(), width(&all[0]))
}

#[test]
fn a_long_file_gets_longer_intervals_and_keeps_its_sums() {
    let file = SpecFile::parse(SPEC, Path::new("."), false).unwrap();
    let results = run_all(&jobs_of(&file, None), 1, &|_| ()).unwrap();
    let whole = series_csv(&results);
    let lines = whole.lines().count();
    let o = results[0].observation.as_ref().unwrap();
    let intervals = o.intervals.len();
    assert!(lines > 1_000 && intervals % 2 == 1, "{lines} lines, {intervals} intervals");
    for share in [2, 3, 8] {
        let thin = series_csv_of(&results, lines / share);
        let n = thin.lines().count();
        assert!(n <= lines / share + 1 && n > lines / share / 4, "{n} of {lines}");
        for series in [",network,payload_gbps,", ",flow0,payload_gbps,", ",leaf0->host0,gbps,"] {
            let ((before, fine), (after, coarse)) = (area(&whole, series), area(&thin, series));
            assert!((before / after - 1.0).abs() < 1e-9, "{series} {before} {after}");
            let factor = (coarse / fine).round();
            assert!(factor.log2().fract() == 0.0, "{series} {factor}");
            assert!(factor > 1.0 || series.contains("network"), "{series} {factor}");
        }
    }
    // However little is allowed, each run keeps one interval.
    let least = series_csv_of(&results, 0);
    assert!(area(&least, ",network,payload_gbps,").1 >= 20.0);
    assert_eq!(least.lines().filter(|l| l.contains(",network,payload_gbps,")).count(), 1);
}
