//! Collective operations as messages. Each function continues the ranks from what they have done
//! (`ends`) and leaves what they have to wait for next.

use super::patterns::Ends;
use super::schedule::{OpId, Schedule};

/// Messages that a rank has under way in an all-to-all, and on each edge of a tree.
const WINDOW: usize = 8;

/// Pieces that a rank of a tree has under way for each hop of their way up to the root and down
/// again. Without a limit pieces on their way up get ahead of those on their way down, and links
/// that have nothing but the latter to carry idle at the end.
const PIECES_PER_HOP: usize = 4;

/// Cuts `bytes` into `parts` parts that differ by at most one byte; the size of part `i`.
const fn part(bytes: u64, parts: u64, i: u64) -> u64 {
    (i + 1) * bytes / parts - i * bytes / parts
}

/// Number of pieces of at most `slice_bytes`.
fn slices(bytes: u64, slice_bytes: u64) -> u64 {
    bytes.div_ceil(slice_bytes).max(1)
}

/// Every rank to every other, the next one first; at most [`WINDOW`] messages of a rank are under
/// way, so that no rank is overrun by all the others.
pub fn alltoall(s: &mut Schedule, bytes: u64, ends: &mut Ends) {
    let n = s.ranks;
    let mut next: Ends = vec![Vec::new(); ends.len()];
    let mut sent: Vec<Vec<OpId>> = vec![Vec::new(); ends.len()];
    for k in 1..n {
        for from in 0..n {
            let to = (from + k) % n;
            let (send, recv) = s.message(from, to, bytes);
            let sent = &mut sent[from as usize];
            match sent.len().checked_sub(WINDOW) {
                Some(i) => s.after(send, [sent[i]]),
                None => s.after(send, ends[from as usize].iter().copied()),
            }
            sent.push(send);
            s.after(recv, ends[to as usize].iter().copied());
            next[to as usize].push(recv);
        }
    }
    for (rank, next) in (0..).zip(&mut next) {
        next.append(&mut sent[rank as usize]);
        if !next.is_empty() {
            ends[rank as usize] = vec![s.join(rank, std::mem::take(next))];
        }
    }
}

/// Ring allreduce: N - 1 steps that sum and N - 1 that distribute, 1/N of the buffer in each, cut
/// into pieces that are passed on as they arrive.
pub fn ring(s: &mut Schedule, bytes: u64, slice_bytes: u64, ends: &mut Ends) {
    let n = s.ranks;
    if n < 2 {
        return;
    }
    let pieces = slices(bytes.div_ceil(n.into()), slice_bytes);
    // The receives of each rank in the step before, by piece.
    let mut held: Vec<Vec<OpId>> = vec![Vec::new(); n as usize];
    for step in 0..2 * (n - 1) {
        let mut got: Vec<Vec<OpId>> = vec![Vec::new(); n as usize];
        for from in 0..n {
            let to = (from + 1) % n;
            let chunk = (from + 2 * n - step) % n;
            let chunk_bytes = part(bytes, n.into(), chunk.into());
            for piece in 0..pieces {
                let piece_bytes = part(chunk_bytes, pieces, piece).max(1);
                let (send, recv) = s.message(from, to, piece_bytes);
                match held[from as usize].get(piece as usize) {
                    Some(before) => s.after(send, [*before]),
                    None => s.after(send, ends[from as usize].iter().copied()),
                }
                s.after(recv, ends[to as usize].iter().copied());
                got[to as usize].push(recv);
            }
        }
        held = got;
    }
    // What arrives in the last step continues nothing, and implies all that came before it; sends
    // end by themselves.
    for (rank, held) in (0..).zip(held) {
        ends[rank as usize] = vec![s.join(rank, held)];
    }
}

/// Allreduce on two binary trees: each sums half of the buffer upwards and distributes it
/// downwards, piece by piece. Half of the ranks are inner ones of each tree, so that all of them
/// send and receive about twice the buffer.
pub fn tree(s: &mut Schedule, bytes: u64, slice_bytes: u64, ends: &mut Ends) {
    let n = s.ranks;
    if n < 2 {
        return;
    }
    let mut next: Ends = vec![Vec::new(); ends.len()];
    let pieces = slices(bytes.div_ceil(2), slice_bytes);
    // The second tree is the first one, shifted by one rank: its leaves are inner ranks of the
    // first.
    let mut trees: Vec<Tree> = (0..2).map(|half| Tree::new(n, half)).collect();
    for piece in 0..pieces {
        for (half, tree) in (0..).zip(&mut trees) {
            let piece_bytes = part(part(bytes, 2, half), pieces, piece).max(1);
            tree.piece(s, piece_bytes, ends, &mut next);
        }
    }
    for (rank, next) in (0..).zip(next) {
        ends[rank as usize] = vec![s.join(rank, next)];
    }
}

/// A tree of ranks, and what is under way on its edges.
struct Tree {
    parents: Vec<Option<u32>>,
    /// Nodes, the root first and the deepest last.
    order: Vec<u32>,
    /// Rank of node 0.
    shift: u32,
    /// Sends of each node to its parent, and of its parent to it.
    up: Vec<Vec<OpId>>,
    down: Vec<Vec<OpId>>,
    /// Receives of the whole sum at each node, by piece.
    whole: Vec<Vec<OpId>>,
    /// Most pieces of a node that have not come back as a part of the whole sum.
    ahead: usize,
}

impl Tree {
    fn new(n: u32, shift: u32) -> Self {
        let parents = in_order_tree(n);
        let depth =
            |node: u32| std::iter::successors(Some(node), |node| parents[*node as usize]).count();
        let mut order: Vec<u32> = (0..n).collect();
        order.sort_by_key(|node| depth(*node));
        let hops = order.last().map_or(0, |deepest| 2 * (depth(*deepest) - 1));
        let none = vec![Vec::new(); n as usize];
        let (up, down, whole) = (none.clone(), none.clone(), none);
        Self { order, shift, up, down, whole, ahead: PIECES_PER_HOP * hops.max(2), parents }
    }

    /// A message between two ranks, of which at most [`WINDOW`] are under way on an edge: what one
    /// piece may not do is to keep the others of its sender waiting.
    fn send(
        s: &mut Schedule,
        edge: &mut Vec<OpId>,
        from: u32,
        to: u32,
        bytes: u64,
    ) -> (OpId, OpId) {
        let (send, recv) = s.message(from, to, bytes);
        s.after(send, edge.len().checked_sub(WINDOW).map(|i| edge[i]));
        edge.push(send);
        (send, recv)
    }

    /// One piece up the tree and down again.
    fn piece(&mut self, s: &mut Schedule, bytes: u64, ends: &Ends, next: &mut Ends) {
        let n = self.parents.len();
        let rank_of = |node: u32| (node + self.shift) % n as u32;
        // What each node has of the sum of its part of the tree, and then of the whole.
        let mut summed: Vec<Vec<OpId>> = vec![Vec::new(); n];
        for node in self.order.iter().rev() {
            let Some(parent) = self.parents[*node as usize] else { continue };
            let (from, to) = (rank_of(*node), rank_of(parent));
            let (send, recv) = Self::send(s, &mut self.up[*node as usize], from, to, bytes);
            s.after(send, ends[from as usize].iter().copied());
            s.after(send, summed[*node as usize].iter().copied());
            let whole = &self.whole[*node as usize];
            s.after(send, whole.len().checked_sub(self.ahead).map(|i| whole[i]));
            s.after(recv, ends[to as usize].iter().copied());
            summed[parent as usize].push(recv);
        }
        for node in &self.order {
            let to = rank_of(*node);
            if let Some(parent) = self.parents[*node as usize] {
                let from = rank_of(parent);
                let (send, recv) = Self::send(s, &mut self.down[*node as usize], from, to, bytes);
                s.after(send, summed[parent as usize].iter().copied());
                s.after(recv, ends[to as usize].iter().copied());
                summed[*node as usize] = vec![recv];
                self.whole[*node as usize].push(recv);
            }
            next[to as usize].extend(&summed[*node as usize]);
        }
    }
}

/// Parent of each node in a binary tree in which a node's subtrees are the numbers below and above
/// it: node i, counted from 1, is at the height of the number of zeros that end i in binary, so
/// every second node is a leaf.
fn in_order_tree(n: u32) -> Vec<Option<u32>> {
    let root = 1u32 << n.ilog2();
    let parent = |i: u32| {
        if i == root {
            return None;
        }
        let bit = 1 << i.trailing_zeros();
        // Towards the next height; numbers above n do not exist, and their parents replace them.
        let mut up = (i ^ bit) | bit << 1;
        while up > n {
            let bit = 1 << up.trailing_zeros();
            up = (up ^ bit) | bit << 1;
        }
        Some(up)
    };
    (1..=n).map(|i| parent(i).map(|p| p - 1)).collect()
}

/// Recursive doubling: in each of log2 N steps a rank exchanges the whole buffer with the one whose
/// number differs in one bit. Ranks beyond the largest power of two hand their buffer to another
/// before, and get the result after.
pub fn doubling(s: &mut Schedule, bytes: u64, ends: &mut Ends) {
    let n = s.ranks;
    let core = if n == 0 { 0 } else { 1 << n.ilog2() };
    for extra in core..n {
        pass(s, extra, extra - core, bytes, ends);
    }
    let mut bit = 1;
    while bit < core {
        exchange(s, core, |rank| rank ^ bit, |_| bytes, ends);
        bit <<= 1;
    }
    for extra in core..n {
        pass(s, extra - core, extra, bytes, ends);
    }
}

/// Recursive halving, in which each rank ends with the sum of 1/N of the buffer, then doubling, in
/// which it collects the rest. N is a power of two.
pub fn halving_doubling(s: &mut Schedule, bytes: u64, ends: &mut Ends) {
    let n = s.ranks;
    let steps = n.ilog2();
    let size = |step: u32| (bytes >> (step + 1)).max(1);
    for step in 0..steps {
        exchange(s, n, |rank| rank ^ n >> (step + 1), |_| size(step), ends);
    }
    for step in (0..steps).rev() {
        exchange(s, n, |rank| rank ^ n >> (step + 1), |_| size(step), ends);
    }
}

/// One message from one rank to another, which both wait for.
fn pass(s: &mut Schedule, from: u32, to: u32, bytes: u64, ends: &mut Ends) {
    let (send, recv) = s.message(from, to, bytes);
    s.after(send, ends[from as usize].iter().copied());
    s.after(recv, ends[to as usize].iter().copied());
    ends[from as usize] = vec![send];
    ends[to as usize] = vec![recv];
}

/// Ranks 0 to `n` - 1 send to their partners, and wait for what they receive and have sent.
fn exchange(
    s: &mut Schedule,
    n: u32,
    partner: impl Fn(u32) -> u32,
    bytes: impl Fn(u32) -> u64,
    ends: &mut Ends,
) {
    let mut next: Ends = vec![Vec::new(); n as usize];
    for from in 0..n {
        let to = partner(from);
        let (send, recv) = s.message(from, to, bytes(from));
        s.after(send, ends[from as usize].iter().copied());
        s.after(recv, ends[to as usize].iter().copied());
        next[from as usize].push(send);
        next[to as usize].push(recv);
    }
    for (ends, next) in ends.iter_mut().zip(next) {
        *ends = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::schedule::OpKind;

    /// A collective of `ranks` ranks.
    fn made(ranks: u32, add: impl Fn(&mut Schedule, &mut Ends)) -> (Schedule, Ends) {
        let mut s = Schedule::new(ranks, 0);
        let mut ends: Ends =
            (0..ranks).map(|rank| vec![s.add(rank, OpKind::Calc { ps: 1, cpu: 0 })]).collect();
        add(&mut s, &mut ends);
        assert!(s.cycle().is_empty());
        (s, ends)
    }

    /// Which ranks' buffers have contributed to what each rank has at the end.
    fn known((s, ends): &(Schedule, Ends)) -> Vec<u64> {
        let mut on: Vec<Vec<OpId>> = vec![Vec::new(); s.ops.len()];
        s.dependences.iter().for_each(|d| on[d.op as usize].push(d.on));
        for (send, ..) in s.messages() {
            let OpKind::Send { to, .. } = s.ops[send as usize].kind else { unreachable!() };
            on[to as usize].push(send);
        }
        let reach = |rank: usize| {
            let (mut seen, mut left) = (vec![false; s.ops.len()], ends[rank].clone());
            let mut ranks = 0u64;
            while let Some(op) = left.pop() {
                if !std::mem::replace(&mut seen[op as usize], true) {
                    ranks |= 1 << s.ops[op as usize].rank;
                    left.extend(&on[op as usize]);
                }
            }
            ranks
        };
        (0..s.ranks as usize).map(reach).collect()
    }

    /// Bytes that each rank sends and receives.
    fn volumes(s: &Schedule) -> Vec<(u64, u64)> {
        let mut out = vec![(0, 0); s.ranks as usize];
        for (_, from, to, bytes) in s.messages() {
            out[from as usize].0 += bytes;
            out[to as usize].1 += bytes;
        }
        out
    }

    #[test]
    fn at_the_end_everybody_has_something_of_everybody() {
        for ranks in [2, 3, 4, 7, 8, 13, 16, 29, 32] {
            let all = u64::MAX >> (64 - ranks);
            let check = |name: &str, done: &(Schedule, Ends)| {
                assert_eq!(known(done), vec![all; ranks as usize], "{name}, {ranks} ranks");
            };
            check("ring", &made(ranks, |s, e| ring(s, 10_000, 300, e)));
            check("tree", &made(ranks, |s, e| tree(s, 10_000, 300, e)));
            check("doubling", &made(ranks, |s, e| doubling(s, 10_000, e)));
            check("alltoall", &made(ranks, |s, e| alltoall(s, 10_000, e)));
            if ranks.is_power_of_two() {
                check("halving", &made(ranks, |s, e| halving_doubling(s, 10_000, e)));
            }
        }
    }

    #[test]
    fn each_rank_moves_what_its_algorithm_must_move() {
        const BYTES: u64 = 64_000;
        for ranks in [2, 4, 8, 16, 64] {
            let least = 2 * (u64::from(ranks) - 1) * BYTES / u64::from(ranks);
            let (s, _) = made(ranks, |s, e| ring(s, BYTES, 500, e));
            assert!(volumes(&s).iter().all(|v| *v == (least, least)), "ring of {ranks}");
            let (s, _) = made(ranks, |s, e| halving_doubling(s, BYTES, e));
            assert!(volumes(&s).iter().all(|v| *v == (least, least)), "halving of {ranks}");
            let (s, _) = made(ranks, |s, e| doubling(s, BYTES, e));
            let whole = u64::from(ranks.ilog2()) * BYTES;
            assert!(volumes(&s).iter().all(|v| *v == (whole, whole)), "doubling of {ranks}");
            // The roots have one child each, all other inner ranks at most two.
            let (s, _) = made(ranks, |s, e| tree(s, BYTES, 500, e));
            assert!(volumes(&s).iter().all(|v| v.0 <= 2 * BYTES && v.1 <= 2 * BYTES), "{ranks}");
            let total: u64 = volumes(&s).iter().map(|v| v.0).sum();
            assert_eq!(total, 2 * (u64::from(ranks) - 1) * BYTES, "tree of {ranks}");
        }
    }

    #[test]
    fn sizes_that_do_not_divide_lose_no_byte() {
        let sum = |bytes, parts| (0..parts).map(|i| part(bytes, parts, i)).sum::<u64>();
        for (bytes, parts) in [(10, 3), (7, 8), (1, 1), (1_000_003, 97)] {
            assert_eq!(sum(bytes, parts), bytes);
        }
        assert_eq!([1, 299, 300, 301].map(|b| slices(b, 300)), [1, 1, 1, 2]);
    }
}
