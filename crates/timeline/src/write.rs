//! Writes a timeline as trace-event JSON: one event per line.

use crate::{Event, Group, ROWS_MAX, Timeline, Track, Value, What};
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Rows of a track that are in use: when each ends, ns.
type Ends = Vec<u64>;

impl Timeline {
    /// Writes the timeline, in the order of time. Returns how many events are not in it: those of
    /// [`Timeline::left_out`], and slices beyond [`ROWS_MAX`].
    ///
    /// # Errors
    /// Those of the writer.
    pub fn write(&self, out: &mut impl Write) -> io::Result<u64> {
        let mut order: Vec<&Event> = self.events.iter().collect();
        order.sort_by_key(|event| event.at_ns);
        let mut rows: BTreeMap<Track, Ends> = BTreeMap::new();
        let placed: Vec<Option<usize>> = order.iter().map(|e| row_of(&mut rows, e)).collect();
        let left_out = self.left_out + placed.iter().filter(|row| row.is_none()).count() as u64;
        let title = text(&self.title);
        write!(out, "{{\"displayTimeUnit\":\"ns\",\"otherData\":{{\"title\":{title},")?;
        write!(out, "\"events_left_out\":{left_out}}},\"traceEvents\":[")?;
        let mut lines = Lines { out, any: false };
        self.names_write(&mut lines, &rows)?;
        for (event, row) in order.into_iter().zip(placed) {
            let Some(row) = row else { continue };
            lines.event(self, event, row)?;
        }
        writeln!(lines.out, "\n]}}")?;
        Ok(left_out)
    }

    /// Names and order of groups and rows.
    fn names_write<W: Write>(
        &self,
        lines: &mut Lines<'_, W>,
        rows: &BTreeMap<Track, Ends>,
    ) -> io::Result<()> {
        for (i, name) in self.groups.iter().enumerate() {
            let pid = pid(Group(i as u32));
            lines.meta("process_name", pid, 0, &format!("\"name\":{}", text(name)))?;
            lines.meta("process_sort_index", pid, 0, &format!("\"sort_index\":{i}"))?;
        }
        for (track, ends) in rows {
            let of = &self.tracks[track.0 as usize];
            for row in 0..ends.len().max(1) {
                let name = match row {
                    0 => of.name.clone(),
                    _ => format!("{} ({})", of.name, row + 1),
                };
                let (pid, tid) = (pid(of.group), tid(*track, row));
                lines.meta("thread_name", pid, tid, &format!("\"name\":{}", text(&name)))?;
                let sort = u64::from(of.order) * ROWS_MAX as u64 + row as u64;
                lines.meta("thread_sort_index", pid, tid, &format!("\"sort_index\":{sort}"))?;
            }
        }
        Ok(())
    }
}

/// The first row of the event's track that is free when it begins. `None`: there is none.
fn row_of(rows: &mut BTreeMap<Track, Ends>, event: &Event) -> Option<usize> {
    match event.what {
        What::Counter(..) => Some(0),
        What::Instant(track) => {
            rows.entry(track).or_default();
            Some(0)
        }
        What::Slice(track, end_ns) => {
            let ends = rows.entry(track).or_default();
            let free = ends.iter().position(|end| *end <= event.at_ns).unwrap_or(ends.len());
            if free == ROWS_MAX {
                return None;
            }
            if free == ends.len() {
                ends.push(0);
            }
            // A slice of no length takes its row, too, so that no other begins at the same time.
            ends[free] = end_ns.max(event.at_ns + 1);
            Some(free)
        }
    }
}

/// Numbers of processes and threads in the file; 0 means something else to some readers.
fn pid(group: Group) -> u64 {
    u64::from(group.0) + 1
}

fn tid(track: Track, row: usize) -> u64 {
    (u64::from(track.0) + 1) * ROWS_MAX as u64 + row as u64
}

struct Lines<'a, W> {
    out: &'a mut W,
    any: bool,
}

impl<W: Write> Lines<'_, W> {
    fn begin(&mut self) -> io::Result<()> {
        let comma = if self.any { ",\n" } else { "\n" };
        self.any = true;
        self.out.write_all(comma.as_bytes())
    }

    fn meta(&mut self, name: &str, pid: u64, tid: u64, args: &str) -> io::Result<()> {
        self.begin()?;
        write!(
            self.out,
            "{{\"ph\":\"M\",\"name\":\"{name}\",\"pid\":{pid},\"tid\":{tid},\"args\":{{{args}}}}}"
        )
    }

    fn event(&mut self, all: &Timeline, event: &Event, row: usize) -> io::Result<()> {
        self.begin()?;
        let (name, ts) = (text(&event.name), us(event.at_ns));
        let place = |track: Track| {
            let group = all.tracks[track.0 as usize].group;
            format!("\"pid\":{},\"tid\":{}", pid(group), tid(track, row))
        };
        match event.what {
            What::Slice(track, end_ns) => {
                let (dur, place) = (us(end_ns - event.at_ns), place(track));
                write!(self.out, "{{\"ph\":\"X\",\"name\":{name},\"ts\":{ts},\"dur\":{dur},")?;
                write!(self.out, "{place},\"args\":{{")?;
            }
            What::Instant(track) => {
                let place = place(track);
                write!(self.out, "{{\"ph\":\"i\",\"s\":\"t\",\"name\":{name},\"ts\":{ts},")?;
                write!(self.out, "{place},\"args\":{{")?;
            }
            What::Counter(group, value) => {
                let pid = pid(group);
                write!(self.out, "{{\"ph\":\"C\",\"name\":{name},\"ts\":{ts},\"pid\":{pid},")?;
                // JSON knows no infinity.
                let value = if value.is_finite() { value } else { 0.0 };
                write!(self.out, "\"args\":{{\"value\":{value}")?;
            }
        }
        for (i, (name, value)) in event.values.iter().enumerate() {
            let comma = if i > 0 { "," } else { "" };
            match value {
                Value::Number(n) => write!(self.out, "{comma}{}:{n}", text(name))?,
                Value::Text(t) => write!(self.out, "{comma}{}:{}", text(name), text(t))?,
            }
        }
        write!(self.out, "}}}}")
    }
}

/// A time in us, the unit of the format, with the digits of ns.
fn us(ns: u64) -> String {
    format!("{}.{:03}", ns / 1000, ns % 1000)
}

/// A text as JSON.
fn text(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
