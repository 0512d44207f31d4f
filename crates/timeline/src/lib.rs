//! Traces that Perfetto (<https://ui.perfetto.dev>) opens: groups of tracks with slices, instants
//! and counters over time, written in the trace-event format (JSON).
//!
//! A group is what Perfetto calls a process, and a track one of its threads. Slices of one track
//! may overlap, as the messages of a queue pair do; the format allows that only for slices that are
//! within each other. A track is therefore written as several rows, as few as hold its slices
//! without an overlap.
//!
//! ```
//! let mut timeline = srd_timeline::Timeline::new("an example");
//! let host = timeline.group("host 1");
//! let messages = timeline.track(host, "queue pair 3", 0);
//! timeline.slice(messages, "write", 1_000, 5_000, vec![("bytes", 4096_u32.into())]);
//! timeline.instant(messages, "sent again", 2_500, Vec::new());
//! timeline.counter(host, "window (bytes)", 1_000, 65_536.0);
//! let mut file = Vec::new();
//! timeline.write(&mut file).unwrap();
//! assert!(String::from_utf8(file).unwrap().contains(r#""ts":1.000,"dur":4.000"#));
//! ```
#![forbid(unsafe_code)]

mod write;

use std::borrow::Cow;

/// Most events of a timeline, slices, instants and values of counters together: some 150 MB of
/// JSON, which Perfetto still opens. Those beyond are left out, and counted.
pub const EVENTS_MAX: usize = 1_000_000;
/// Most groups, and most tracks. Events of those beyond are left out, and counted.
pub const TRACKS_MAX: usize = 100_000;
/// Most rows of a track. Slices that would need more are left out, and counted.
pub const ROWS_MAX: usize = 256;

/// A group of tracks, such as a host or a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Group(u32);

/// A track of a group, such as a queue pair or a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Track(u32);

/// What is not among the tables, because they are full.
const NONE: u32 = u32::MAX;

/// Name of an event.
pub type Name = Cow<'static, str>;

/// A value that is shown with an event.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A number.
    Number(u64),
    /// A text.
    Text(String),
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl From<u32> for Value {
    fn from(number: u32) -> Self {
        Self::Number(number.into())
    }
}

impl From<u8> for Value {
    fn from(number: u8) -> Self {
        Self::Number(number.into())
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

/// Values that are shown with an event, with their names.
pub type Values = Vec<(&'static str, Value)>;

#[derive(Clone, Debug)]
enum What {
    /// Ends at this time, ns.
    Slice(Track, u64),
    Instant(Track),
    Counter(Group, f64),
}

#[derive(Clone, Debug)]
struct Event {
    at_ns: u64,
    name: Name,
    what: What,
    values: Values,
}

#[derive(Clone, Debug)]
struct Row {
    group: Group,
    name: String,
    order: u32,
}

/// A trace that is being recorded. Its times are ns from any origin.
#[derive(Clone, Debug)]
pub struct Timeline {
    title: String,
    groups: Vec<String>,
    tracks: Vec<Row>,
    events: Vec<Event>,
    left_out: u64,
}

impl Timeline {
    /// An empty timeline. `title`: what was recorded, such as the command.
    pub fn new(title: &str) -> Self {
        let title = title.into();
        Self { title, groups: Vec::new(), tracks: Vec::new(), events: Vec::new(), left_out: 0 }
    }

    /// A new group of tracks. Groups are shown in the order in which they are made.
    pub fn group(&mut self, name: &str) -> Group {
        if self.groups.len() >= TRACKS_MAX {
            return Group(NONE);
        }
        self.groups.push(name.into());
        Group(self.groups.len() as u32 - 1)
    }

    /// A new track. Tracks of a group are shown by `order`, and then in the order in which they are
    /// made.
    pub fn track(&mut self, group: Group, name: &str, order: u32) -> Track {
        if self.tracks.len() >= TRACKS_MAX || group.0 == NONE {
            return Track(NONE);
        }
        self.tracks.push(Row { group, name: name.into(), order });
        Track(self.tracks.len() as u32 - 1)
    }

    /// What lasted from `from_ns` to `to_ns`.
    pub fn slice(
        &mut self,
        track: Track,
        name: impl Into<Name>,
        from_ns: u64,
        to_ns: u64,
        values: Values,
    ) {
        let what = What::Slice(track, to_ns.max(from_ns));
        self.push(track.0, Event { at_ns: from_ns, name: name.into(), what, values });
    }

    /// What happened at a time.
    pub fn instant(&mut self, track: Track, name: impl Into<Name>, at_ns: u64, values: Values) {
        let what = What::Instant(track);
        self.push(track.0, Event { at_ns, name: name.into(), what, values });
    }

    /// A counter of the group has this value from this time on. The unit is in the name.
    pub fn counter(&mut self, group: Group, name: impl Into<Name>, at_ns: u64, value: f64) {
        let (name, what) = (name.into(), What::Counter(group, value));
        self.push(group.0, Event { at_ns, name, what, values: Vec::new() });
    }

    /// Events that were left out because of [`EVENTS_MAX`] and [`TRACKS_MAX`].
    pub const fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Whether nothing was recorded.
    pub const fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    fn push(&mut self, place: u32, event: Event) {
        if place == NONE || self.events.len() >= EVENTS_MAX {
            self.left_out += 1;
            return;
        }
        self.events.push(event);
    }
}

#[cfg(test)]
mod tests;
