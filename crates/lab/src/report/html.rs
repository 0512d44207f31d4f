//! A self-contained page per experiment: tables, plots, parameters, and the plotting library once.

use super::charts::{Chart, case_name, cdf, completion, observed};
use super::rows::Row;
use super::sweeps::sweeps;
use super::{cases, copa, phases, table, table_of};
use crate::figure::{Figure, escape};
use crate::figures::figures;
use crate::level;
use crate::packet::{ETHERNET_BYTES, ETHERNET_FRAME_BYTES_MIN, ETHERNET_GAP_BYTES};
use crate::plots::plots;
use crate::result::RunResult;
use crate::spec::{Spec, Transport};
#[cfg(feature = "cli")]
use plotly::Plot;
use serde_json::Value;
use std::fmt::Write as _;

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// With more cases than this, their plots are collapsed at first.
const OPEN_MAX: usize = 4;

/// Names and values of parameters.
type Parameters = Vec<(String, String)>;

/// The page of one experiment. `command`: the command line that reproduces it.
#[cfg(feature = "cli")]
pub fn page(results: &[RunResult], command: &str) -> String {
    page_with(results, command, &plot_library())
}

/// As [`page`], with the text of [`plot_library`] from elsewhere: it has 4 MB, so that of several
/// programs that are installed together one has it.
pub fn page_with(results: &[RunResult], command: &str, library: &str) -> String {
    let spec = &results[0].spec;
    let mut body = String::new();
    head(&mut body, results, command);
    let mut n = 0;
    for (_, figure) in plots(results) {
        add_figure(&mut body, &figure);
    }
    body.push_str("<h2>All cases</h2>\n");
    let rows: Vec<Row> = results.iter().map(Row::of).collect();
    for figure in sweeps(&rows) {
        add_figure(&mut body, &figure);
    }
    let mut charts = phases::congestion(results);
    charts.extend(phases::phases(results));
    charts.extend(copa::figures(results));
    if results.iter().any(|r| !r.fct_ps.is_empty()) {
        charts.extend([completion(results), cdf(results)]);
    }
    for chart in charts {
        add_chart(&mut body, &chart, &mut n);
    }
    let groups = cases(results);
    for case in &groups {
        add_case(&mut body, case, groups.len() <= OPEN_MAX, &mut n);
    }
    add_parameters(&mut body, results);
    definitions(&mut body);
    let script = format!("<script>\n{SCRIPT}</script>\n");
    document(&format!("{}: {}", spec.name, spec.title), library, &body, &script)
}

/// A whole page. `head`: more elements of its head; `end`: what follows its contents.
pub fn document(title: &str, head: &str, body: &str, end: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{}</title>\n<style>\n{STYLE}</style>\n{head}\n</head>\n<body>\n<main>\n{body}\
         </main>\n{end}</body>\n</html>\n",
        escape(title),
    )
}

/// The page of an experiment whose runs were joined from several reports. `commands`: one per
/// line.
pub fn rows_page(name: &str, title: &str, rows: &[Row], commands: &str) -> String {
    let mut body = format!(
        "<h1>{}: {}</h1>\n<pre>{}</pre>\n<p>{} runs.</p>\n<pre>{}</pre>\n",
        escape(name),
        escape(title),
        escape(commands),
        rows.len(),
        escape(&table_of(rows, false)),
    );
    for figure in sweeps(rows) {
        add_figure(&mut body, &figure);
    }
    document(&format!("{name}: {title}"), "", &body, "")
}

/// A figure with its heading and explanation.
pub fn add_figure(out: &mut String, figure: &Figure) {
    let _ = write!(
        out,
        "<figure class=\"drawn\">\n<h3>{}</h3>\n{}<figcaption>{}</figcaption>\n</figure>\n",
        escape(&figure.title),
        figure.svg(),
        escape(&figure.note),
    );
}

/// The plotting library as a script element, without the formula renderer that it includes.
#[cfg(feature = "cli")]
pub fn plot_library() -> String {
    let all = Plot::offline_js_sources();
    let end = "</script>";
    all.find(end).map_or(all.clone(), |at| all[..at + end.len()].to_string())
}

fn head(out: &mut String, results: &[RunResult], command: &str) {
    let spec = &results[0].spec;
    let hash = results.iter().fold(0u64, |h, r| h.rotate_left(9) ^ r.hash);
    let seeds: std::collections::BTreeSet<u64> = results.iter().map(|r| r.seed).collect();
    let seeds: Vec<String> = seeds.iter().map(u64::to_string).collect();
    let _ = write!(
        out,
        "<h1>{}: {}</h1>\n<p class=\"command\"><code>{}</code></p>\n<p>srd {}, {} runs, seeds {}. \
         Hash of all runs: <code>{hash:016x}</code>. The same command gives the same hash on any \
         machine and with any number of threads; only the columns kpkt/cpu-s, Mev/s and MB \
         differ.</p>\n<pre>{}</pre>\n",
        escape(&spec.name),
        escape(&spec.title),
        escape(command),
        env!("CARGO_PKG_VERSION"),
        results.len(),
        seeds.join(", "),
        escape(&match table(results, true) {
            empty if empty.is_empty() => figures(results, true).trim_start().to_string(),
            table => table,
        }),
    );
    add_level(out, results);
}

/// What is not level in the comparison.
fn add_level(out: &mut String, results: &[RunResult]) {
    if let Some(reason) = &results[0].spec.not_level {
        let _ = writeln!(out, "<p>Not level: {}.</p>", escape(reason.trim_end_matches('.')));
        return;
    }
    let specs: Vec<Spec> = cases(results).iter().map(|c| c[0].spec.clone()).collect();
    for warning in level::warnings(&specs) {
        let _ = writeln!(out, "<p>Not level: {}.</p>", escape(&warning));
    }
}

fn add_chart(out: &mut String, chart: &Chart, n: &mut usize) {
    *n += 1;
    // Escaped, so that the data cannot end their script element.
    let data = chart.plot.to_json().replace('<', "\\u003c");
    let _ = write!(
        out,
        "<figure>\n<h3>{}</h3>\n<div class=\"plot\" id=\"plot{n}\"></div>\n\
         <script type=\"application/json\" id=\"plot{n}-data\">{data}</script>\n\
         <figcaption>{}</figcaption>\n</figure>\n",
        escape(&chart.title),
        escape(&chart.note),
    );
}

fn add_case(out: &mut String, case: &[RunResult], open: bool, n: &mut usize) {
    let Some(r) = case.iter().find(|r| r.observation.is_some()) else { return };
    let Some(o) = &r.observation else { return };
    let _ = write!(
        out,
        "<details{}>\n<summary><h2>{}</h2></summary>\n<p>Run with seed {}, hash \
         <code>{:016x}</code>. {} intervals of {} us from {} to {} us",
        if open { " open" } else { "" },
        escape(case_name(r)),
        r.seed,
        r.hash,
        o.intervals.len(),
        o.interval_ps as f64 / 1e6,
        o.start_ps as f64 / 1e6,
        o.end_ps as f64 / 1e6,
    );
    if o.merges > 0 {
        let _ = write!(out, " (made of finer ones; pairs merged {} times)", o.merges);
    }
    out.push_str(".</p>\n");
    for fault in &r.spec.fault {
        let text = serde_json::to_string(fault).unwrap_or_default();
        let _ = writeln!(out, "<p>Fault: <code>{}</code></p>", escape(&text));
    }
    for chart in observed(o) {
        add_chart(out, &chart, n);
    }
    busiest(out, o);
    out.push_str("</details>\n");
}

fn busiest(out: &mut String, o: &crate::observe::Observation) {
    out.push_str(
        "<details>\n<summary>The busiest links</summary>\n<table>\n<tr><th>link</th>\
         <th>packets</th><th>bytes</th><th>largest queue, B</th><th>drops</th></tr>\n",
    );
    for l in &o.busiest {
        let _ = writeln!(
            out,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            l.name, l.packets, l.bytes, l.queue_max, l.drops
        );
    }
    out.push_str("</table>\n</details>\n");
}

/// Parameters of all cases: those of the experiment, then of each protocol, with a column for each
/// distinct set.
fn add_parameters(out: &mut String, results: &[RunResult]) {
    let groups = cases(results);
    out.push_str("<h2>Parameters of the experiment</h2>\n");
    let column = |c: &&[RunResult]| {
        let value = serde_json::to_value(&c[0].spec).unwrap_or_default();
        let mut flat = Vec::new();
        flatten("", &value, &mut flat);
        flat.retain(|(k, _)| {
            !["name", "title", "case"].contains(&k.as_str())
                && !k.starts_with("axis")
                && !k.starts_with("plot")
        });
        (case_name(&c[0]).to_string(), flat)
    };
    comparison(out, &groups.iter().map(column).collect::<Vec<_>>());
    out.push_str("<h2>Parameters of the protocols</h2>\n<div class=\"side\">\n");
    for (transport, name) in [
        (Transport::Srd, "SRD"),
        (Transport::Tcp, "TCP"),
        (Transport::Copa, "COPA"),
        (Transport::Saa, "In order"),
    ] {
        let of = groups.iter().filter(|c| c[0].transport() == transport);
        let columns: Vec<_> =
            of.map(|c| (case_name(&c[0]).to_string(), c[0].parameters())).collect();
        if !columns.is_empty() {
            let _ = writeln!(out, "<div>\n<h3>{name}</h3>");
            comparison(out, &columns);
            out.push_str("</div>\n");
        }
    }
    out.push_str("</div>\n");
}

fn flatten(prefix: &str, value: &Value, out: &mut Parameters) {
    let join = |key: &str| if prefix.is_empty() { key.into() } else { format!("{prefix}.{key}") };
    match value {
        Value::Null => {}
        Value::Object(map) => map.iter().for_each(|(k, v)| flatten(&join(k), v, out)),
        Value::Array(all) if all.iter().any(Value::is_object) => {
            all.iter().enumerate().for_each(|(i, v)| flatten(&join(&i.to_string()), v, out));
        }
        Value::String(text) => out.push((prefix.into(), text.clone())),
        other => out.push((prefix.into(), other.to_string())),
    }
}

/// A table with one line per name; equal columns are merged, and values common to all columns are
/// shown once.
fn comparison(out: &mut String, columns: &[(String, Parameters)]) {
    let mut distinct: Vec<(Vec<&str>, &Parameters)> = Vec::new();
    for (case, values) in columns {
        match distinct.iter_mut().find(|(_, v)| *v == values) {
            Some((names, _)) => names.push(case),
            None => distinct.push((vec![case], values)),
        }
    }
    let mut names: Vec<&str> = Vec::new();
    for (name, _) in distinct.iter().flat_map(|(_, v)| v.iter()) {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    out.push_str("<table>\n<tr><th></th>");
    for (cases, _) in &distinct {
        let _ = write!(out, "<th>{}</th>", escape(&cases.join(", ")));
    }
    out.push_str("</tr>\n");
    let value = |v: &Parameters, name: &str| {
        v.iter().find(|(k, _)| k == name).map_or(String::new(), |(_, v)| v.clone())
    };
    for name in names {
        let values: Vec<String> = distinct.iter().map(|(_, v)| value(v, name)).collect();
        let same = values.windows(2).all(|w| w[0] == w[1]);
        let _ = write!(out, "<tr{}><td>{}</td>", ["", " class=\"same\""][usize::from(same)], name);
        if same {
            let _ = write!(out, "<td colspan=\"{}\">{}</td>", values.len(), escape(&values[0]));
        } else {
            values.iter().for_each(|v| {
                let _ = write!(out, "<td>{}</td>", escape(v));
            });
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</table>\n");
}

fn definitions(out: &mut String) {
    let _ = write!(
        out,
        "<h2>Definitions</h2>\n<dl>\n\
         <dt>Bytes</dt><dd>Rates, queues and floors count what is on the wire: the UDP or TCP \
         payload with all headers inside it, UDP 8 or TCP with options, IPv4 20, Ethernet \
         {ETHERNET_BYTES}, preamble and gap {ETHERNET_GAP_BYTES}; a frame has at least \
         {ETHERNET_FRAME_BYTES_MIN} bytes. Throughput and flow lengths count the user's payload \
         alone.</dd>\n\
         <dt>Flow completion time</dt><dd>From the moment the flow is posted until its sender has \
         the last completion (SRD: the acknowledgment has come back) or its receiver the last \
         byte in order (TCP).</dd>\n\
         <dt>Ideal</dt><dd>The time of the payload alone at the slower end of a flow, shared by \
         all flows that end there: no headers, no round trip.</dd>\n\
         <dt>Floor</dt><dd>The time of all bytes with all headers that a flow's slower end must \
         carry no later than the flow's own last byte, plus the base round trip of its last \
         packet. The last of several equal flows cannot end earlier; flows that share an end \
         fairly all reach it together; one that ends earlier took from the others.</dd>\n\
         <dt>max/min</dt><dd>Slowest over fastest flow of one round, in the worst round of all \
         seeds.</dd>\n\
         <dt>retx %</dt><dd>Data packets sent again per hundred different data packets; spurious: \
         those that were not lost.</dd>\n\
         <dt>Hash</dt><dd>Over every delivery of a run: when, from whom, to whom, what.</dd>\n\
         </dl>\n"
    );
}
