//! Connection matrices.

use super::{ReadError, fail, lines, number};
use crate::topo::{NS, Ps, US};
use std::collections::BTreeSet;

/// Unit of `start`. Dialects of the format differ in it, and a file does not state it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartUnit {
    /// csg-htsim, and the generators of both dialects.
    Picoseconds,
    /// uet-htsim.
    Microseconds,
}

/// One flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connection {
    /// Line number from 1.
    pub line: usize,
    /// Sender.
    pub src: u32,
    /// Receiver.
    pub dst: u32,
    /// Id given in the file, if any.
    pub id: Option<u32>,
    /// Start time; `None`: [`Connection::trigger`] starts the flow.
    pub start_ps: Option<Ps>,
    /// Size in bytes.
    pub bytes: u64,
    /// The trigger that starts the flow.
    pub trigger: Option<u32>,
    /// The trigger that fires when the flow's sender is done.
    pub send_done_trigger: Option<u32>,
    /// The trigger that fires when the flow's receiver is done.
    pub recv_done_trigger: Option<u32>,
}

/// Behaviour of a trigger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TriggerKind {
    /// The first firing starts its flows, later ones have no effect.
    OneShot,
    /// Each firing starts its flows.
    MultiShot,
    /// The `count`th firing starts its flows.
    Barrier {
        /// Number of firings needed.
        count: u32,
    },
}

/// A trigger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trigger {
    /// Id by which connections refer to the trigger.
    pub id: u32,
    /// Behaviour.
    pub kind: TriggerKind,
}

/// An uplink that is down from the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Line number from 1.
    pub line: usize,
    /// Aggregation switch.
    pub agg: u32,
    /// Uplink of the aggregation switch.
    pub link: u32,
}

/// A connection matrix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CmFile {
    /// Hosts.
    pub nodes: u32,
    /// Flows in the order of the file.
    pub connections: Vec<Connection>,
    /// Triggers.
    pub triggers: Vec<Trigger>,
    /// Failures.
    pub failures: Vec<Failure>,
}

/// Counts that the header announces.
#[derive(Default)]
struct Announced {
    nodes: Option<u32>,
    connections: Option<usize>,
    triggers: Option<usize>,
    failures: Option<usize>,
}

impl CmFile {
    /// Parses the text of a matrix.
    ///
    /// # Errors
    /// The first line that is wrong or not supported, and the reason.
    pub fn parse(text: &str, unit: StartUnit) -> Result<Self, ReadError> {
        let mut said = Announced::default();
        let mut cm =
            Self { nodes: 0, connections: Vec::new(), triggers: Vec::new(), failures: Vec::new() };
        for (line, words) in lines(text) {
            let count = words.get(1);
            match words[0].to_ascii_lowercase().as_str() {
                "nodes" => set(line, &mut said.nodes, number(line, count, "Nodes")?)?,
                "connections" => {
                    set(line, &mut said.connections, number(line, count, "Connections")?)?;
                }
                "triggers" => set(line, &mut said.triggers, number(line, count, "Triggers")?)?,
                "failures" => set(line, &mut said.failures, number(line, count, "Failures")?)?,
                "trigger" => cm.triggers.push(trigger(line, &words)?),
                "failure" => cm.failures.push(failure(line, &words)?),
                _ => cm.connections.push(connection(line, &words, unit)?),
            }
            let header = words[0].ends_with('s') && words[0].chars().all(char::is_alphabetic);
            if header && words.len() > 2 {
                return fail(line, format!("`{}` follows the number", words[2]));
            }
        }
        cm.nodes = match said.nodes {
            Some(n) => n,
            None => return fail(0, "`Nodes N` is missing"),
        };
        cm.check(&said)?;
        Ok(cm)
    }

    fn check(&self, said: &Announced) -> Result<(), ReadError> {
        if said.connections.is_none() {
            return fail(0, "`Connections C` is missing");
        }
        let counts = [
            ("Connections", said.connections, self.connections.len()),
            ("Triggers", said.triggers, self.triggers.len()),
            ("Failures", said.failures, self.failures.len()),
        ];
        for (name, said, found) in counts {
            if said.unwrap_or(0) != found {
                let said = said.map_or("says nothing".into(), |n| format!("says {n}"));
                return fail(0, format!("the header {said} of {name}, the file has {found}"));
            }
        }
        let mut triggers = BTreeSet::new();
        for t in &self.triggers {
            if !triggers.insert(t.id) {
                return fail(0, format!("trigger {} is given twice", t.id));
            }
        }
        let mut ids = BTreeSet::new();
        for c in &self.connections {
            if c.src >= self.nodes || c.dst >= self.nodes {
                let text = format!("{}->{}, but there are only {} nodes", c.src, c.dst, self.nodes);
                return fail(c.line, text);
            }
            if let Some(id) = c.id
                && !ids.insert(id)
            {
                return fail(c.line, format!("id {id} is given twice"));
            }
            let named = [c.trigger, c.send_done_trigger, c.recv_done_trigger];
            if let Some(t) = named.into_iter().flatten().find(|t| !triggers.contains(t)) {
                return fail(c.line, format!("there is no trigger {t}"));
            }
        }
        Ok(())
    }
}

fn set<T>(line: usize, place: &mut Option<T>, value: T) -> Result<(), ReadError> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => fail(line, "this count is given twice"),
    }
}

fn connection(line: usize, words: &[&str], unit: StartUnit) -> Result<Connection, ReadError> {
    let Some((src, dst)) = words[0].split_once("->") else {
        let text = format!("`{}` is neither a connection (`1->2 …`) nor a keyword", words[0]);
        return fail(line, text);
    };
    let mut c = Connection {
        line,
        src: number(line, Some(&src), "sender")?,
        dst: number(line, Some(&dst), "receiver")?,
        id: None,
        start_ps: None,
        bytes: 0,
        trigger: None,
        send_done_trigger: None,
        recv_done_trigger: None,
    };
    let mut seen = BTreeSet::new();
    let mut rest = words[1..].iter();
    while let Some(key) = rest.next() {
        if !seen.insert(*key) {
            return fail(line, format!("`{key}` is given twice"));
        }
        let value = rest.next();
        match *key {
            "id" => c.id = Some(number(line, value, "id")?),
            "start" => c.start_ps = Some(start(line, value, unit)?),
            "size" => c.bytes = number(line, value, "size")?,
            "trigger" => c.trigger = Some(number(line, value, "trigger")?),
            "send_done_trigger" => c.send_done_trigger = Some(number(line, value, key)?),
            "recv_done_trigger" => c.recv_done_trigger = Some(number(line, value, key)?),
            "prio" => return fail(line, "`prio`: priorities are not simulated"),
            other => return fail(line, format!("`{other}` is not known here")),
        }
    }
    if c.bytes == 0 {
        return fail(line, "`size` is missing or 0 (a flow without end cannot be measured)");
    }
    if c.src == c.dst {
        return fail(line, "sender and receiver are the same host");
    }
    match (c.start_ps, c.trigger) {
        (Some(_), Some(_)) => fail(line, "`start` and `trigger` exclude each other"),
        (None, None) => fail(line, "`start` or `trigger` is missing"),
        _ => Ok(c),
    }
}

/// Parses a start time. Microseconds may have up to six decimals; nothing is rounded.
fn start(line: usize, word: Option<&&str>, unit: StartUnit) -> Result<Ps, ReadError> {
    let Some(word) = word else { return fail(line, "start: a number is missing") };
    let bad = |why: &str| fail(line, format!("start: `{word}` {why}"));
    let (whole, decimals) = match (word.split_once('.'), unit) {
        (None, _) => (*word, ""),
        (Some(_), StartUnit::Picoseconds) => return bad("is not a whole number of picoseconds"),
        (Some(parts), StartUnit::Microseconds) => parts,
    };
    if decimals.len() > 6 {
        return bad("has more than six decimals: a picosecond cannot be divided");
    }
    let whole: u64 = number(line, Some(&whole), "start")?;
    let scale = if unit == StartUnit::Picoseconds { 1 } else { US };
    let Some(whole) = whole.checked_mul(scale) else { return bad("does not fit 64 bits of ps") };
    let mut rest = 0;
    if !decimals.is_empty() {
        let digits: u64 = number(line, Some(&decimals), "start")?;
        rest = digits * 10u64.pow(6 - decimals.len() as u32);
    }
    debug_assert!(rest < 1_000 * NS);
    whole.checked_add(rest).map_or_else(|| bad("does not fit 64 bits of ps"), Ok)
}

fn trigger(line: usize, words: &[&str]) -> Result<Trigger, ReadError> {
    if words.get(1) != Some(&"id") {
        return fail(line, "a trigger reads `trigger id N oneshot|multishot|barrier [count N]`");
    }
    let id = number(line, words.get(2), "trigger id")?;
    let count = match words.get(4) {
        None => None,
        Some(&"count") => Some(number::<u32>(line, words.get(5), "count")?),
        Some(other) => return fail(line, format!("`{other}` is not known here")),
    };
    if let Some(more) = words.get(6) {
        return fail(line, format!("`{more}` is unknown here"));
    }
    let kind = match (words.get(3).copied(), count) {
        (Some("oneshot"), None) => TriggerKind::OneShot,
        (Some("multishot"), None) => TriggerKind::MultiShot,
        (Some("barrier"), Some(count)) if count > 0 => TriggerKind::Barrier { count },
        (Some("barrier"), _) => return fail(line, "a barrier needs `count N` with N above 0"),
        (Some(kind), Some(_)) => return fail(line, format!("`count` has no meaning for {kind}")),
        (kind, _) => {
            let kind = kind.unwrap_or_default();
            return fail(line, format!("`{kind}` is not oneshot, multishot or barrier"));
        }
    };
    Ok(Trigger { id, kind })
}

fn failure(line: usize, words: &[&str]) -> Result<Failure, ReadError> {
    let shape = words.len() == 7
        && words[1] == "switch_type"
        && words[3] == "switch_id"
        && words[5] == "link_id";
    if !shape {
        return fail(line, "a failure reads `failure switch_type AGG switch_id N link_id N`");
    }
    if !words[2].eq_ignore_ascii_case("agg") {
        return fail(line, format!("switch_type {}: only AGG has uplinks to fail", words[2]));
    }
    let agg = number(line, words.get(4), "switch_id")?;
    Ok(Failure { line, agg, link: number(line, words.get(6), "link_id")? })
}
