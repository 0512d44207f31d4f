//! GOAL text, the schedule language of LogGOPSim:
//!
//! ```text
//! num_ranks 2
//! rank 0 {
//!   a: calc 1500                 // nanoseconds
//!   b: send 65536b to 1 tag 7 cpu 0 nic 0
//!   b requires a                 // b begins when a is done
//! }
//! rank 1 {
//!   c: recv 65536b from 0 tag 7
//! }
//! ```
//!
//! `tag`, `cpu` and `nic` may be left out and are then 0. `irequires` waits for the start of the
//! other operation instead of its end. A label may be left out where nothing refers to it.
//! Comments are `//` and `#` to the end of the line, and `/* */`. Messages between two ranks with
//! one tag are matched with the receives in the order of the text.

use super::schedule::{Dependence, OPS_MAX, OpId, OpKind, Schedule, Waits};
use srd_fabric::NS;
use std::collections::{BTreeMap, HashMap, HashSet};

/// Most ranks of a file.
const RANKS_MAX: u32 = 1 << 20;
/// Longest computation in ns, about 11 days.
const CALC_NS_MAX: u64 = 1_000_000_000_000_000;

/// Parses GOAL text.
///
/// # Errors
/// The text names the line and what is wrong with it.
pub fn parse(text: &str) -> Result<Schedule, String> {
    let mut reader = Reader::default();
    for (line, words) in lines(text)? {
        reader.line(line, &words).map_err(|(line, e)| format!("line {line}: {e}"))?;
    }
    reader.end()
}

/// The words of every line that has any, with its number from 1.
fn lines(text: &str) -> Result<Vec<(usize, Vec<String>)>, String> {
    let mut out = Vec::new();
    // Line in which a comment began that has not ended.
    let mut comment = None;
    for (line, mut rest) in (1..).zip(text.lines()) {
        let mut clean = String::new();
        loop {
            if comment.is_some() {
                let Some(end) = rest.find("*/") else { break };
                (comment, rest) = (None, &rest[end + 2..]);
            }
            let begin = ["/*", "//", "#"].iter().filter_map(|b| rest.find(b)).min();
            let Some(begin) = begin else {
                clean += rest;
                break;
            };
            clean += &rest[..begin];
            clean.push(' ');
            if !rest[begin..].starts_with("/*") {
                break;
            }
            (comment, rest) = (Some(line), &rest[begin + 2..]);
        }
        // Braces and colons are words of their own.
        let spaced = clean.replace('{', " { ").replace('}', " } ").replace(':', " : ");
        let words: Vec<String> = spaced.split_whitespace().map(String::from).collect();
        if !words.is_empty() {
            out.push((line, words));
        }
    }
    match comment {
        Some(line) => Err(format!("line {line}: this comment has no end: */ is missing")),
        None => Ok(out),
    }
}

/// A send or receive that has no partner yet.
#[derive(Clone, Copy, Debug)]
struct Half {
    op: OpId,
    line: usize,
    bytes: u64,
}

/// Sends and receives of one sender, receiver and tag, in the order of the text.
#[derive(Debug, Default)]
struct Pairing {
    sends: Vec<Half>,
    recvs: Vec<Half>,
}

/// A dependence by name.
#[derive(Debug)]
struct Named {
    line: usize,
    op: String,
    on: String,
    waits: Waits,
}

#[derive(Debug, Default)]
struct Reader {
    schedule: Option<Schedule>,
    /// Line of every operation.
    line_of: Vec<usize>,
    /// The rank whose block is open, and the line where it began.
    rank: Option<(u32, usize)>,
    seen: HashSet<u32>,
    labels: HashMap<String, (OpId, usize)>,
    named: Vec<Named>,
    pairings: BTreeMap<(u32, u32, u32), Pairing>,
}

/// The number in a word.
fn number(word: Option<&str>, what: &str) -> Result<u64, String> {
    let word = word.ok_or_else(|| format!("{what} is missing"))?;
    word.parse().map_err(|_| format!("{what} must be a number, not \"{word}\""))
}

fn small(word: Option<&str>, what: &str) -> Result<u32, String> {
    let n = number(word, what)?;
    u32::try_from(n).map_err(|_| format!("{what} = {n} is too large"))
}

impl Reader {
    /// Reads one line; an error has the line that it is about.
    fn line(&mut self, line: usize, words: &[String]) -> Result<(), (usize, String)> {
        let mut words: Vec<&str> = words.iter().map(String::as_str).collect();
        // A brace may stand in the line of the rank, of its last operation, or alone.
        let closes = words.last() == Some(&"}");
        if closes {
            words.pop();
        }
        self.statement(line, &words).map_err(|e| (line, e))?;
        if closes {
            self.rank_end(line)?;
        }
        Ok(())
    }

    fn statement(&mut self, line: usize, words: &[&str]) -> Result<(), String> {
        match (words, &self.schedule) {
            ([], _) => Ok(()),
            (["num_ranks", n], None) => {
                let ranks = small(Some(n), "num_ranks")?;
                if !(1..=RANKS_MAX).contains(&ranks) {
                    return Err(format!("num_ranks = {ranks} must be from 1 to {RANKS_MAX}"));
                }
                self.schedule = Some(Schedule::new(ranks, 0));
                Ok(())
            }
            (["num_ranks", ..], Some(_)) => Err("num_ranks stands here for the second time".into()),
            (_, None) => Err("the first statement must be `num_ranks N`".into()),
            (["rank", n, "{", rest @ ..], Some(s)) => {
                let (rank, ranks) = (small(Some(n), "rank")?, s.ranks);
                self.rank_begin(rank, ranks, line)?;
                // The first operation may stand in the line of the rank.
                if rest.is_empty() { Ok(()) } else { self.inside(line, rank, rest) }
            }
            (["rank", ..], _) => Err("a rank begins with `rank N {` in one line".into()),
            (_, _) => {
                let Some((rank, _)) = self.rank else {
                    return Err(format!("`{}` stands outside of a rank's block", words.join(" ")));
                };
                self.inside(line, rank, words)
            }
        }
    }

    fn rank_begin(&mut self, rank: u32, ranks: u32, line: usize) -> Result<(), String> {
        if let Some((open, at)) = self.rank {
            return Err(format!(
                "the block of rank {open} from line {at} has no end: }} is missing"
            ));
        }
        if rank >= ranks {
            return Err(format!("rank {rank} does not exist: num_ranks is {ranks}"));
        }
        if !self.seen.insert(rank) {
            return Err(format!("rank {rank} has a block already"));
        }
        self.rank = Some((rank, line));
        Ok(())
    }

    fn inside(&mut self, line: usize, rank: u32, words: &[&str]) -> Result<(), String> {
        if let [op, word @ ("requires" | "irequires"), on] = words {
            let waits = if *word == "requires" { Waits::End } else { Waits::Start };
            self.named.push(Named { line, op: (*op).into(), on: (*on).into(), waits });
            return Ok(());
        }
        let (label, words) = match words {
            [label, ":", rest @ ..] => (Some(*label), rest),
            _ => (None, words),
        };
        let op = self.operation(line, rank, words)?;
        let Some(label) = label else { return Ok(()) };
        match self.labels.insert(label.into(), (op, line)) {
            None => Ok(()),
            Some((_, at)) => Err(format!("label `{label}` is that of line {at} already")),
        }
    }

    fn operation(&mut self, line: usize, rank: u32, words: &[&str]) -> Result<OpId, String> {
        let (verb, rest) = words.split_first().ok_or("an operation is missing after the label")?;
        let schedule = self.schedule.as_mut().ok_or("num_ranks is missing")?;
        if schedule.ops.len() == OPS_MAX {
            return Err(format!("there are more than {OPS_MAX} operations"));
        }
        let op = match *verb {
            "calc" => {
                let ns = number(rest.first().copied(), "the duration of calc")?;
                if ns > CALC_NS_MAX {
                    return Err(format!("calc {ns} must be at most {CALC_NS_MAX} ns"));
                }
                let options = Options::of(rest.get(1..).unwrap_or(&[]), false)?;
                schedule.work_ps += ns * NS;
                schedule.add(rank, OpKind::Calc { ps: ns * NS, cpu: options.cpu })
            }
            "send" | "recv" => {
                let sends = *verb == "send";
                let preposition = if sends { "to" } else { "from" };
                let [bytes, word, peer, options @ ..] = rest else {
                    return Err(format!("write `{verb} BYTESb {preposition} RANK [tag N]`"));
                };
                if *word != preposition {
                    return Err(format!("expected `{preposition}`, not `{word}`"));
                }
                let bytes = number(Some(bytes.strip_suffix('b').unwrap_or(bytes)), "the size")?;
                if bytes == 0 {
                    return Err("a message has at least 1 byte".into());
                }
                let peer = small(Some(peer), "the rank")?;
                if peer >= schedule.ranks {
                    return Err(format!(
                        "rank {peer} does not exist: num_ranks is {}",
                        schedule.ranks
                    ));
                }
                let options = Options::of(options, true)?;
                // The partner is filled in at the end of the text.
                let kind = if sends { OpKind::Send { to: 0, bytes } } else { OpKind::Recv };
                let op = schedule.add(rank, kind);
                let (from, to) = if sends { (rank, peer) } else { (peer, rank) };
                let pairing = self.pairings.entry((from, to, options.tag)).or_default();
                let half = Half { op, line, bytes };
                if sends {
                    pairing.sends.push(half)
                } else {
                    pairing.recvs.push(half)
                }
                op
            }
            other => {
                return Err(format!(
                    "`{other}` is no operation; expected send, recv, calc, or `LABEL requires \
                     LABEL`"
                ));
            }
        };
        self.line_of.push(line);
        Ok(op)
    }

    /// Ends a rank's block; labels are its own.
    fn rank_end(&mut self, line: usize) -> Result<(), (usize, String)> {
        let (Some(schedule), Some((rank, _))) = (self.schedule.as_mut(), self.rank.take()) else {
            return Err((line, "this } ends no rank's block".into()));
        };
        for n in self.named.drain(..) {
            let find = |label: &str| {
                let found = self.labels.get(label).map(|(op, _)| *op);
                found.ok_or_else(|| (n.line, format!("rank {rank} has no label `{label}`")))
            };
            let (op, on) = (find(&n.op)?, find(&n.on)?);
            schedule.dependences.push(Dependence { op, on, waits: n.waits });
        }
        self.labels.clear();
        Ok(())
    }

    fn end(mut self) -> Result<Schedule, String> {
        if let Some((rank, line)) = self.rank {
            return Err(format!("line {line}: the block of rank {rank} has no end: }} is missing"));
        }
        let mut schedule = self.schedule.take().ok_or("num_ranks is missing: the file is empty")?;
        for ((from, to, tag), pairing) in &self.pairings {
            pair(&mut schedule, pairing).map_err(|(line, e)| {
                format!("line {line}: {e} (from rank {from} to rank {to}, tag {tag})")
            })?;
        }
        let circle = schedule.cycle();
        if circle.is_empty() {
            return Ok(schedule);
        }
        let lines: Vec<String> =
            circle.iter().take(16).map(|op| self.line_of[*op as usize].to_string()).collect();
        let more = if circle.len() > lines.len() { ", ..." } else { "" };
        let word = if circle.len() == 1 { "line" } else { "lines" };
        Err(format!(
            "{word} {}{more}: these operations wait for each other in a circle; none can begin",
            lines.join(", ")
        ))
    }
}

/// Gives every send its receive.
fn pair(schedule: &mut Schedule, p: &Pairing) -> Result<(), (usize, String)> {
    let (sends, recvs) = (p.sends.len(), p.recvs.len());
    if let Some(recv) = p.recvs.get(sends) {
        return Err((
            recv.line,
            format!("nobody sends this receive's message: {recvs} receives, {sends} sends"),
        ));
    }
    if let Some(send) = p.sends.get(recvs) {
        return Err((
            send.line,
            format!("nobody receives this message: {sends} sends, {recvs} receives"),
        ));
    }
    for (send, recv) in p.sends.iter().zip(&p.recvs) {
        if send.bytes > recv.bytes {
            return Err((
                recv.line,
                format!(
                    "a receive of {} bytes for the message of {} bytes in line {}",
                    recv.bytes, send.bytes, send.line
                ),
            ));
        }
        schedule.ops[send.op as usize].kind = OpKind::Send { to: recv.op, bytes: send.bytes };
    }
    Ok(())
}

/// What may follow an operation.
#[derive(Debug, Default)]
struct Options {
    tag: u32,
    cpu: u32,
}

impl Options {
    fn of(words: &[&str], message: bool) -> Result<Self, String> {
        let mut out = Self::default();
        let mut seen: Vec<&str> = Vec::new();
        for pair in words.chunks(2) {
            let name = pair[0];
            let value = small(pair.get(1).copied(), name);
            match name {
                "tag" if message => out.tag = value?,
                "cpu" => out.cpu = value?,
                // A host has one card, which serialises the messages of all its numbers.
                "nic" => drop(value?),
                _ => return Err(format!("`{name}` is not expected here")),
            }
            if seen.contains(&name) {
                return Err(format!("`{name}` stands twice"));
            }
            seen.push(name);
        }
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PING_PONG: &str = "\
num_ranks 2 // two
/* a comment
   of two lines */ rank 0 {
  l1: send 10b to 1 tag 3 cpu 0 nic 0
  l2: recv 10b from 1 tag 3
  l3: calc 100 cpu 1
  l2 irequires l1
  l3 requires l2
}
rank 1 { # the echo
  l1: recv 12b from 0 tag 3
  l2: send 10 to 0 tag 3
  l2 requires l1 }
";

    fn refused(text: &str) -> String {
        parse(text).expect_err(text)
    }

    #[test]
    fn operations_and_dependences_are_read() {
        let s = parse(PING_PONG).unwrap();
        assert_eq!((s.ranks, s.ops.len(), s.work_ps), (2, 5, 100 * NS));
        assert_eq!(s.ops[0].kind, OpKind::Send { to: 3, bytes: 10 });
        assert_eq!(s.ops[4].kind, OpKind::Send { to: 1, bytes: 10 });
        assert_eq!(s.ops[2].kind, OpKind::Calc { ps: 100 * NS, cpu: 1 });
        let d = |op, on, waits| Dependence { op, on, waits };
        let want = [d(1, 0, Waits::Start), d(2, 1, Waits::End), d(4, 3, Waits::End)];
        assert_eq!(s.dependences, want);
    }

    #[test]
    fn line_breaks_around_braces_are_free() {
        let other = "num_ranks 2\nrank 0 { l1: send 10b to 1 tag 3 }\n\
                     rank 1 {\n\n l1: recv 10b from 0 tag 3\n}\n";
        let s = parse(other).unwrap();
        assert_eq!((s.ops.len(), s.ops[0].kind), (2, OpKind::Send { to: 1, bytes: 10 }));
        assert!(parse(&other.replace("0 { l1", "0 l1")).unwrap_err().contains("rank N {"));
    }

    #[test]
    fn a_wrong_line_is_named_with_what_is_wrong() {
        let change = |from: &str, to: &str| refused(&PING_PONG.replace(from, to));
        let cases = [
            (change("to 1", "to 2"), "line 4: rank 2 does not exist: num_ranks is 2"),
            (change("rank 1 {", "rank 3 {"), "line 10: rank 3 does not exist"),
            (change("rank 1 {", "rank 0 {"), "line 10: rank 0 has a block already"),
            (change("l3: calc", "l2: calc"), "line 6: label `l2` is that of line 5 already"),
            (change("l3 requires l2", "l3 requires l9"), "line 8: rank 0 has no label `l9`"),
            (change("calc 100", "calc x"), "line 6: the duration of calc must be a number"),
            (change("calc 100 cpu 1", "calc"), "line 6: the duration of calc is missing"),
            (change("10b to", "0b to"), "line 4: a message has at least 1 byte"),
            (change("10b to", "99999999999999999999b to"), "line 4: the size must be a number"),
            (change("send 10b to", "send 10b from"), "line 4: expected `to`, not `from`"),
            (change("send 10b", "put 10b"), "line 4: `put` is no operation"),
            (change("12b", "9b"), "line 11: a receive of 9 bytes for the message of 10 bytes"),
            (change("cpu 0", "cpu"), "line 4: cpu must be a number"),
            (change("cpu 0 nic 0", "cpu 0 cpu 1"), "line 4: `cpu` stands twice"),
            (change("nic 0", "gpu 0"), "line 4: `gpu` is not expected here"),
            (change("num_ranks 2", "num_ranks 0"), "line 1: num_ranks = 0 must be from 1"),
            (change("num_ranks 2", ""), "line 3: the first statement must be `num_ranks N`"),
            (change("l1 }", "l1"), "line 10: the block of rank 1 has no end"),
            (change("two lines */", "two lines"), "line 2: this comment has no end"),
            (refused(""), "num_ranks is missing"),
        ];
        for (said, want) in cases {
            assert!(said.contains(want), "{said}\nwanted: {want}");
        }
    }

    #[test]
    fn messages_without_a_partner_are_refused() {
        let e = refused("num_ranks 2\nrank 1 {\na: recv 8b from 0 tag 1\n}");
        assert!(e.starts_with("line 3: nobody sends this receive's message"), "{e}");
        let e = refused("num_ranks 2\nrank 1 {\na: send 8b to 0 tag 1\n}");
        assert!(e.starts_with("line 3: nobody receives this message"), "{e}");
        // Another tag is another message.
        let e = refused(&PING_PONG.replace("send 10 to 0 tag 3", "send 10 to 0 tag 4"));
        assert!(e.contains("nobody"), "{e}");
    }

    #[test]
    fn circles_are_named_by_their_lines() {
        let e = refused(&PING_PONG.replace("l2 irequires l1", "l1 requires l2"));
        for line in [4, 5, 11, 12] {
            assert!(e.contains(&line.to_string()), "{e}");
        }
        assert!(e.contains("wait for each other"), "{e}");
        let e = refused("num_ranks 1\nrank 0 {\na: calc 1\na requires a\n}");
        assert!(e.starts_with("line 3:"), "{e}");
    }
}
