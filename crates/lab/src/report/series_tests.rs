use super::*;
use crate::batch::{jobs_of, run_all};
use crate::spec::SpecFile;
use std::path::Path;

const SPEC: &str = "name = \"test\"\ntitle = \"test\"\nmeasure.observe = true\n\
    [network]\nshape = \"leaf-spine\"\nleaves = 2\nspines = 2\nhosts_per_leaf = 2\n\
    [workload]\npattern = \"leaf-pairs\"\npairs = 2\nflows_per_pair = 2\n";

/// The shortest run with an odd number of intervals, whose last one has no partner.
fn run_odd() -> Vec<RunResult> {
    let run = |bytes| {
        let spec = format!("{SPEC}bytes = {bytes}\n");
        let file = SpecFile::parse(&spec, Path::new("."), false).unwrap();
        run_all(&jobs_of(&file, None), 1, &|_| ()).unwrap()
    };
    let odd = |r: &Vec<RunResult>| r[0].observation.as_ref().unwrap().intervals.len() % 2 == 1;
    (300_000..600_000).step_by(5_000).map(run).find(odd).expect("a run of odd length")
}

/// Sum of value times width over the lines of a series, and the width of its first line in us.
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
    let results = run_odd();
    let whole = series_csv(&results);
    let lines = whole.lines().count();
    assert!(lines > 1_000, "{lines} lines");
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
    // Each run keeps at least one interval.
    let least = series_csv_of(&results, 0);
    assert!(area(&least, ",network,payload_gbps,").1 >= 20.0);
    assert_eq!(least.lines().filter(|l| l.contains(",network,payload_gbps,")).count(), 1);
}
