//! Files of a report: the page is self-contained, its plots have the right data, and the tables
//! keep every digit.

use serde_json::Value;
use srd_lab::{Origin, RunResult, csv, jobs_of, json, page, run_all, series_csv, summary_csv};
use std::path::Path;

const SPEC: &str = "name = \"test\"\ntitle = \"a <title> & more\"\nseeds = 2\n\
    measure.observe = true\n\
    [network]\nshape = \"leaf-spine\"\nleaves = 2\nspines = 2\nhosts_per_leaf = 2\n\
    buffer_bytes = 100_000\n\
    [workload]\npattern = \"leaf-pairs\"\npairs = 2\nflows_per_pair = 2\nbytes = 300_000\n\
    [[cases]]\ncase = \"SRD\"\n\
    [[cases]]\ncase = \"SRD, a lossy \\\"core\\\"\"\n\
    fault = [{ kind = \"core-loss\", prob = 0.02 }]\n\
    [[cases]]\ncase = \"TCP\"\ntransport = \"tcp\"\n";

fn results() -> Vec<RunResult> {
    let file = srd_lab::spec::SpecFile::parse(SPEC, Path::new("."), false).unwrap();
    run_all(&jobs_of(&file, None), 2, &|_| ()).unwrap()
}

/// Data of each plot of a page.
fn plots(page: &str) -> Vec<Value> {
    let begin = "<script type=\"application/json\"";
    let data = |part: &str| {
        let text = part.split_once('>').unwrap().1.split_once("</script>").unwrap().0;
        serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text:.200}"))
    };
    page.split(begin).skip(1).map(data).collect()
}

fn len(v: &Value) -> usize {
    v.as_array().unwrap_or_else(|| panic!("not a list: {v:.100}")).len()
}

#[test]
fn every_plot_of_a_page_holds_series_of_equal_length() {
    let results = results();
    let page = page(&results, "srd lab run 'a <file>'");
    let plots = plots(&page);
    // Two plots of all cases; then ten for each SRD case, and one less for TCP, which has no paths.
    assert_eq!(plots.len(), 2 + 10 + 10 + 9);
    let drawn = page.matches("<div class=\"plot\"").count();
    assert_eq!(drawn, plots.len());
    for plot in &plots {
        assert!(plot["layout"].is_object());
        assert_eq!(plot["config"]["toImageButtonOptions"]["format"], "svg");
        for trace in plot["data"].as_array().unwrap() {
            match trace["type"].as_str() {
                Some("heatmap") => {
                    assert_eq!(len(&trace["z"]), len(&trace["y"]));
                    let rows = trace["z"].as_array().unwrap();
                    assert!(rows.iter().all(|row| len(row) == len(&trace["x"])));
                }
                Some("scatter" | "bar") => {
                    assert_eq!(len(&trace["x"]), len(&trace["y"]), "{trace:.200}");
                    assert!(len(&trace["x"]) > 0);
                }
                other => panic!("a plot of type {other:?}"),
            }
        }
    }
    // Throughput of the first case: the sum over its points is the number of bytes sent.
    let throughput = &plots[2]["data"][0];
    let (x, y) = (throughput["x"].as_array().unwrap(), throughput["y"].as_array().unwrap());
    let of =
        |i: usize| y[i].as_f64().unwrap() * (x[i + 1].as_f64().unwrap() - x[i].as_f64().unwrap());
    let bytes: f64 = (0..x.len() - 1).map(of).sum::<f64>() * 125.0;
    assert!((bytes / 1.2e6 - 1.0).abs() < 1e-3, "{bytes} bytes of 1.2 MB");
}

#[test]
fn a_page_needs_no_network_and_says_what_was_run() {
    let results = results();
    let page = page(&results, "srd lab run 'a <file>'");
    let library = "function(){";
    assert!(page.contains(library) && page.len() > 3_000_000 && page.len() < 6_000_000);
    let (own, rest) = page.split_once("<script").unwrap();
    let own = own.to_string() + rest.split_once("</script>").unwrap().1;
    for outside in ["src=", "href=", "http://", "https://", "@import", "url("] {
        assert!(!own.contains(outside), "the page asks for something: {outside}");
    }
    assert!(own.contains("srd lab run 'a &lt;file&gt;'"));
    assert!(own.contains("a &lt;title&gt; &amp; more") && !own.contains("a <title>"));
    for r in results.iter().filter(|r| r.observation.is_some()) {
        assert!(own.contains(&format!("{:016x}", r.hash)));
        for (name, _) in r.parameters() {
            assert!(own.contains(&format!("<td>{name}</td>")), "{name}");
        }
    }
    // A parameter with different values has a column per value, one with equal values has one cell.
    assert!(own.contains("<tr class=\"same\"><td>network.spines</td><td colspan=\"3\">2</td>"));
    assert!(own.contains("<tr><td>transport</td><td>srd</td><td>srd</td><td>tcp</td></tr>"));
}

#[test]
fn tables_for_programs_keep_every_digit() {
    let results = results();
    assert!(results.iter().all(|r| r.observation.is_some() == (r.seed == 1)), "the first seed");
    let flows = csv(&results);
    assert_eq!(flows.lines().count(), 1 + 6 * 4);
    for (line, r) in summary_csv(&results).lines().skip(1).zip(&results) {
        // A name with a comma and quotes is quoted.
        let line = line.replace("\"SRD, a lossy \"\"core\"\"\"", "lossy");
        let cells: Vec<&str> = line.split(',').collect();
        let head = summary_csv(&results[..1]);
        let place = |name| head.lines().next().unwrap().split(',').position(|h| h == name).unwrap();
        let number = |name| cells[place(name)].parse::<f64>().unwrap();
        assert_eq!(number("fct_max_us"), r.summary.fct_us.max);
        assert_eq!(number("over_floor_max"), r.summary.over_floor.max);
        assert_eq!(number("retransmitted"), r.tally.retransmitted as f64);
        assert_eq!(cells[place("hash")], format!("{:016x}", r.hash));
        assert_eq!(cells.len(), head.lines().next().unwrap().split(',').count());
    }
    let series = series_csv(&results);
    let value = |l: &str| l.rsplit(',').next().unwrap().parse::<f64>().unwrap();
    let under_way = series.lines().filter(|l| l.starts_with("test,SRD,1,flows,under_way,"));
    assert_eq!(under_way.map(value).fold(0.0, f64::max), 4.0);
    let origin = Origin { command: "srd lab run x", commit: Some("0123") };
    let json = json(&results, origin);
    assert_eq!(len(&json["runs"]), results.len());
    assert_eq!((&json["command"], &json["commit"]), (&"srd lab run x".into(), &"0123".into()));
    assert!(json["version"].is_string());
}
