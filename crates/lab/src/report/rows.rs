//! Summary of each run, as `NAME-summary.csv` keeps it: what tables and plots over cases are made
//! of, for results of this process and for those read back.

use crate::figures_app::{APP_COLUMNS, app_cells};
use crate::figures_phase::{PHASE_COLUMNS, phase_cells};
use crate::result::{Detail, RunResult};
use srd_fabric::DropReason;
use std::sync::OnceLock;

/// Columns before those of axes.
const HEAD: [&str; 2] = ["experiment", "case"];
/// Columns between axes and numbers.
const TEXTS: [&str; 4] = ["transport", "control", "seed", "hash"];
/// Prefix of the columns of axes: labels.
const AXIS: &str = "axis_";
/// Prefix of the columns of axes that are one number: values.
const VALUE: &str = "value_";
/// Numbers of every run.
const NUMBERS: &str = "hosts,flows,rounds,unfinished,failures,base_rtt_us,ideal_us,floor_us,\
    fct_min_us,fct_median_us,fct_p99_us,fct_max_us,fct_mean_us,over_floor_median,over_floor_p99,\
    over_floor_max,max_over_min,data_packets,retransmitted,spurious,timeouts,tail_probes,acks,\
    duplicates,packets_sent,marked,last_hop_bytes_max";

/// A case's value on an axis.
#[derive(Clone, Debug, PartialEq)]
pub struct OnAxis {
    pub name: String,
    pub label: String,
    /// The number, if the axis is one.
    pub value: Option<f64>,
}

/// Speed and memory of a run, which are not kept in files.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    pub packets_per_cpu_s: f64,
    pub events_per_cpu_us: f64,
    pub memory_bytes: u64,
}

/// One run.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    pub experiment: String,
    pub case: String,
    pub axes: Vec<OnAxis>,
    pub transport: String,
    /// Congestion control, as far as the transport has several.
    pub control: String,
    pub seed: u64,
    pub hash: u64,
    /// In the order of [`number_columns`]; `None`: undefined for this run.
    numbers: Vec<Option<f64>>,
    pub cost: Option<Cost>,
}

/// Names of the columns with numbers.
fn number_columns() -> &'static [String] {
    static COLUMNS: OnceLock<Vec<String>> = OnceLock::new();
    COLUMNS.get_or_init(number_columns_make)
}

fn number_columns_make() -> Vec<String> {
    let drops = DropReason::ALL.iter().map(|d| format!("drops_{}", d.name().replace(' ', "_")));
    let own = |list: &'static str| list.split(',').map(|c| c.trim().to_string());
    own(NUMBERS)
        .chain(drops)
        .chain(["events".to_string(), "simulated_us".to_string()])
        .chain(own(PHASE_COLUMNS))
        .chain(own(APP_COLUMNS))
        .collect()
}

/// Whether there is such a column of numbers.
pub fn is_column(name: &str) -> bool {
    number_columns().iter().any(|c| c == name)
}

impl Row {
    /// The summary of a run.
    pub fn of(r: &RunResult) -> Self {
        let axis = |a: &crate::spec::AxisValue| OnAxis {
            name: a.name.clone(),
            label: a.label.clone(),
            value: a.value,
        };
        Self {
            experiment: r.spec.name.clone(),
            case: r.spec.case.clone(),
            axes: r.spec.axis.iter().map(axis).collect(),
            transport: format!("{:?}", r.transport()).to_lowercase(),
            control: control(r),
            seed: r.seed,
            hash: r.hash,
            numbers: numbers(r),
            cost: Some(Cost {
                packets_per_cpu_s: r.packets_per_cpu_s(),
                events_per_cpu_us: r.events as f64 * 1e3 / r.cpu_ns.max(1) as f64,
                memory_bytes: r.memory_bytes,
            }),
        }
    }

    /// A number by its column; `None` if the run has none, or there is no such column.
    pub fn get(&self, column: &str) -> Option<f64> {
        let at = number_columns().iter().position(|c| c == column)?;
        self.numbers[at]
    }

    /// A number that every run has.
    pub fn number(&self, column: &str) -> f64 {
        self.get(column).unwrap_or(0.0)
    }

    /// Packets lost by the network.
    pub fn drops(&self) -> f64 {
        let of =
            number_columns().iter().zip(&self.numbers).filter(|(c, _)| c.starts_with("drops_"));
        of.filter_map(|(_, n)| *n).sum()
    }

    /// Retransmitted data packets in percent.
    pub fn retransmitted_percent(&self) -> f64 {
        100.0 * self.number("retransmitted") / self.number("data_packets").max(1.0)
    }

    /// Marked packets in percent of those sent.
    pub fn marked_percent(&self) -> f64 {
        100.0 * self.number("marked") / self.number("packets_sent").max(1.0)
    }

    /// Name in tables.
    pub fn name(&self) -> &str {
        if self.case.is_empty() { &self.experiment } else { &self.case }
    }

    /// The value on an axis.
    pub fn on(&self, axis: &str) -> Option<&OnAxis> {
        self.axes.iter().find(|a| a.name == axis)
    }
}

/// The congestion control of a run.
fn control(r: &RunResult) -> String {
    match &r.detail {
        Detail::Srd { .. } => r.spec.engine.rate_policy.clone().unwrap_or_else(|| "srd".into()),
        Detail::Tcp { config, .. } => format!("{:?}", config.algorithm).to_lowercase(),
        Detail::Rival(_) => match r.spec.transport {
            crate::spec::Transport::Ue => r.spec.ue.cc.clone().unwrap_or_else(|| "nscc".into()),
            _ if r.spec.rc.ib_cc == Some(true) => "ib-cc".into(),
            _ if r.spec.rc.dcqcn == Some(false) => "none".into(),
            _ => "dcqcn".into(),
        },
        Detail::Copa(_) => {
            let policy = r.spec.copa.clone().unwrap_or_default().policy;
            serde_json::to_value(policy)
                .ok()
                .and_then(|v| v.as_str().map(Into::into))
                .unwrap_or_default()
        }
        Detail::Saa(_) | Detail::Static(_) => String::new(),
    }
}

fn numbers(r: &RunResult) -> Vec<Option<f64>> {
    let (s, t) = (&r.summary, &r.tally);
    let (f, o) = (&s.fct_us, &s.over_floor);
    let us = |ps: u64| ps as f64 / 1e6;
    let n = |n: u64| n as f64;
    let mut out = vec![
        f64::from(r.hosts),
        r.flows.len() as f64,
        r.fct_ps.len() as f64,
        r.unfinished() as f64,
        n(r.failures),
        us(r.base_rtt_ps),
        us(r.ideal_ps.iter().copied().max().unwrap_or(0)),
        s.floor_us,
    ];
    out.extend([f.min, f.median, f.p99, f.max, f.mean, o.median, o.p99, o.max, s.max_over_min]);
    out.extend([r.data_packets, t.retransmitted, t.spurious, t.timeouts, t.tail_probes].map(n));
    out.extend([t.acks, t.duplicates, r.packets_sent, r.marked, r.last_hop_bytes_max].map(n));
    out.extend(DropReason::ALL.iter().map(|d| n(r.drops.of(*d))));
    out.extend([n(r.events), us(r.end_ps)]);
    out.into_iter().map(Some).chain(phase_cells(r)).chain(app_cells(r)).collect()
}

/// Names of the axes of some runs, in order of appearance, and whether each is a number.
pub fn axes_of<'a>(rows: impl Iterator<Item = &'a [OnAxis]>) -> Vec<(String, bool)> {
    let mut out: Vec<(String, bool)> = Vec::new();
    for axis in rows.flatten() {
        match out.iter_mut().find(|(name, _)| *name == axis.name) {
            Some((_, number)) => *number |= axis.value.is_some(),
            None => out.push((axis.name.clone(), axis.value.is_some())),
        }
    }
    out
}

/// Names of the columns of these axes.
pub fn axis_columns(axes: &[(String, bool)]) -> Vec<String> {
    let of = |(name, number): &(String, bool)| {
        let value = number.then(|| format!("{VALUE}{name}"));
        std::iter::once(format!("{AXIS}{name}")).chain(value)
    };
    axes.iter().flat_map(of).collect()
}

/// Cells of these axes for a case.
pub fn axis_cells(axes: &[(String, bool)], of: &[OnAxis]) -> Vec<String> {
    let mut out = Vec::new();
    for (name, number) in axes {
        let on = of.iter().find(|a| a.name == *name);
        out.push(on.map_or(String::new(), |a| a.label.clone()));
        if *number {
            out.push(on.and_then(|a| a.value).map_or(String::new(), |v| v.to_string()));
        }
    }
    out
}

/// Text of a CSV file with these records.
pub fn csv_text(records: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for record in records {
        writer.write_record(&record).expect("memory takes everything");
    }
    let bytes = writer.into_inner().expect("memory takes everything");
    String::from_utf8(bytes).expect("made of text")
}

/// The file of these runs, one line each.
pub fn write(rows: &[Row]) -> String {
    let axes = axes_of(rows.iter().map(|r| r.axes.as_slice()));
    let text = |columns: &[&str]| columns.iter().map(|c| (*c).to_string()).collect::<Vec<_>>();
    let head = [text(&HEAD), axis_columns(&axes), text(&TEXTS), number_columns().to_vec()].concat();
    let line = |r: &Row| {
        let mut out = vec![r.experiment.clone(), r.case.clone()];
        out.extend(axis_cells(&axes, &r.axes));
        out.extend([r.transport.clone(), r.control.clone(), r.seed.to_string()]);
        out.push(format!("{:016x}", r.hash));
        out.extend(r.numbers.iter().map(|n| n.map_or(String::new(), |n| n.to_string())));
        out
    };
    csv_text(std::iter::once(head).chain(rows.iter().map(line)))
}

/// Reads back what [`write`] wrote.
///
/// # Errors
/// The text says what is wrong and in which line.
pub fn read(text: &str) -> Result<Vec<Row>, String> {
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let head = reader.headers().map_err(|e| e.to_string())?.clone();
    let at = |name: &str| {
        head.iter().position(|h| h == name).ok_or_else(|| {
            format!("there is no column `{name}`: written by another version of the lab?")
        })
    };
    let fixed = [HEAD.as_slice(), &TEXTS].concat().into_iter().map(at);
    let fixed: Vec<usize> = fixed.collect::<Result<_, _>>()?;
    let numbers = number_columns().iter().map(|c| at(c)).collect::<Result<Vec<_>, _>>()?;
    let mut rows = Vec::new();
    for (i, record) in reader.records().enumerate() {
        let line = i + 2;
        let record = record.map_err(|e| e.to_string())?;
        let cell = |at: usize| record.get(at).unwrap_or("");
        let wrong =
            |at: usize| format!("line {line}: `{}` is no {}", cell(at), head.get(at).unwrap_or(""));
        let number = |at: usize| match cell(at) {
            "" => Ok(None),
            text => text.parse::<f64>().map(Some).map_err(|_| wrong(at)),
        };
        let mut axes = Vec::new();
        for (at, name) in head.iter().enumerate() {
            let Some(name) = name.strip_prefix(AXIS).filter(|_| !cell(at).is_empty()) else {
                continue;
            };
            let value = head.iter().position(|h| h.strip_prefix(VALUE) == Some(name));
            let value = value.map(number).transpose()?.flatten();
            axes.push(OnAxis { name: name.into(), label: cell(at).into(), value });
        }
        rows.push(Row {
            experiment: cell(fixed[0]).into(),
            case: cell(fixed[1]).into(),
            axes,
            transport: cell(fixed[2]).into(),
            control: cell(fixed[3]).into(),
            seed: cell(fixed[4]).parse().map_err(|_| wrong(fixed[4]))?,
            hash: u64::from_str_radix(cell(fixed[5]), 16).map_err(|_| wrong(fixed[5]))?,
            numbers: numbers.iter().map(|at| number(*at)).collect::<Result<_, _>>()?,
            cost: None,
        });
    }
    Ok(rows)
}

/// Splits rows into cases, in order.
pub fn cases(rows: &[Row]) -> Vec<&[Row]> {
    rows.chunk_by(|a, b| a.case == b.case && a.experiment == b.experiment).collect()
}
