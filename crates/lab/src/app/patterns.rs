//! Schedules of typical parallel programs: each rank computes its share of a step, exchanges data
//! with others, and begins the next step when it has everything.

use super::collectives;
use super::schedule::{OPS_MAX, OpId, OpKind, Schedule};
use crate::pattern::sides_of;
use crate::spec::{AppAlgorithm, AppPattern, AppSpec};
use srd_fabric::{Ps, Rng, US};

/// The ends of what each rank has done so far; empty at the beginning.
pub(super) type Ends = Vec<Vec<OpId>>;

/// Whether a program can have `ranks` ranks.
///
/// # Errors
/// The text names the field and what to give instead.
pub fn suits(app: &AppSpec, ranks: u32) -> Result<(), String> {
    if ranks < 2 {
        return Err(format!(
            "app.ranks = {ranks}: the program sends no message; give at least two ranks"
        ));
    }
    exchange_of(app, ranks).map(|_| ())
}

/// The schedule of a program with `ranks` ranks. `rng`: for the imbalance.
///
/// # Errors
/// If the number of ranks does not suit the program, or the schedule becomes too long.
pub fn schedule_of(app: &AppSpec, ranks: u32, rng: &mut Rng) -> Result<Schedule, String> {
    if ranks == 0 {
        return Err("app.ranks must be at least 1".into());
    }
    let pattern = exchange_of(app, ranks)?;
    let mut s = Schedule::new(ranks, app.steps);
    let whole = app.compute_us * US as f64;
    s.work_ps = (whole * f64::from(app.steps)) as Ps;
    let serial = app.serial_percent / 100.0;
    let share = whole * (serial + (1.0 - serial) / f64::from(ranks)) / f64::from(app.exchanges);
    let mut ends: Ends = vec![Vec::new(); ranks as usize];
    for step in 0..app.steps {
        for _ in 0..app.exchanges {
            if share > 0.0 {
                compute(&mut s, &mut ends, share, app.imbalance, rng);
            }
            pattern.add(&mut s, &mut ends);
        }
        for _ in 0..app.reductions {
            collectives::doubling(&mut s, 8, &mut ends);
        }
        for (rank, ends) in (0..).zip(&mut ends) {
            *ends = vec![s.step_end(rank, step, std::mem::take(ends))];
        }
        if s.ops.len() > OPS_MAX {
            return Err(format!(
                "app: {} operations after step {} are too many; give fewer ranks, steps or \
                 exchanges, or a larger app.slice_bytes",
                s.ops.len(),
                step + 1
            ));
        }
    }
    Ok(s)
}

/// One exchange of a pattern, with its numbers.
enum Exchange {
    Halo { faces: Vec<(u32, u32, u64)> },
    Alltoall { bytes: u64 },
    Ring { bytes: u64, slice_bytes: u64 },
    Tree { bytes: u64, slice_bytes: u64 },
    Doubling { bytes: u64 },
    HalvingDoubling { bytes: u64 },
}

fn exchange_of(app: &AppSpec, ranks: u32) -> Result<Exchange, String> {
    let (bytes, slice_bytes) = (app.bytes, app.slice_bytes);
    Ok(match app.pattern {
        AppPattern::Halo3d => Exchange::Halo { faces: faces(ranks, bytes) },
        AppPattern::Alltoall => Exchange::Alltoall { bytes: (bytes / u64::from(ranks)).max(1) },
        // Rank i holds 1/N of the array before and after, and 1/N of that goes to each rank.
        AppPattern::Spectral => {
            Exchange::Alltoall { bytes: (bytes / u64::from(ranks).pow(2)).max(1) }
        }
        AppPattern::Allreduce => match app.algorithm.unwrap_or(AppAlgorithm::Ring) {
            AppAlgorithm::Ring => Exchange::Ring { bytes, slice_bytes },
            AppAlgorithm::Tree => Exchange::Tree { bytes, slice_bytes },
            AppAlgorithm::Doubling => Exchange::Doubling { bytes },
            AppAlgorithm::HalvingDoubling if ranks.is_power_of_two() => {
                Exchange::HalvingDoubling { bytes }
            }
            AppAlgorithm::HalvingDoubling => {
                return Err(format!(
                    "app.algorithm = \"halving-doubling\" needs a power of two, not {ranks} ranks; \
                     give another algorithm"
                ));
            }
        },
    })
}

impl Exchange {
    fn add(&self, s: &mut Schedule, ends: &mut Ends) {
        match self {
            Self::Halo { faces } => halo(s, faces, ends),
            Self::Alltoall { bytes } => collectives::alltoall(s, *bytes, ends),
            Self::Ring { bytes, slice_bytes } => collectives::ring(s, *bytes, *slice_bytes, ends),
            Self::Tree { bytes, slice_bytes } => collectives::tree(s, *bytes, *slice_bytes, ends),
            Self::Doubling { bytes } => collectives::doubling(s, *bytes, ends),
            Self::HalvingDoubling { bytes } => collectives::halving_doubling(s, *bytes, ends),
        }
    }
}

/// A computation of every rank.
fn compute(s: &mut Schedule, ends: &mut Ends, share: f64, imbalance: f64, rng: &mut Rng) {
    /// Resolution of the drawn spread.
    const PARTS: u64 = 1 << 30;
    for (rank, ends) in (0..).zip(ends.iter_mut()) {
        let drawn = if imbalance == 0.0 {
            0.0
        } else {
            2.0 * rng.below(PARTS) as f64 / (PARTS - 1) as f64 - 1.0
        };
        let calc =
            s.add(rank, OpKind::Calc { ps: (share * (1.0 + imbalance * drawn)) as Ps, cpu: 0 });
        s.after(calc, std::mem::replace(ends, vec![calc]));
    }
}

/// The messages of a halo exchange: sender, receiver and bytes of the face between their boxes.
fn faces(ranks: u32, bytes: u64) -> Vec<(u32, u32, u64)> {
    let sides = sides_of(ranks);
    let mut out = Vec::new();
    for rank in 0..ranks {
        let at = [rank % sides[0], rank / sides[0] % sides[1], rank / sides[0] / sides[1]];
        for axis in 0..3 {
            // A face is cut by the sides of the other two axes.
            let cuts = u64::from(sides[(axis + 1) % 3]) * u64::from(sides[(axis + 2) % 3]);
            // On a side of two there is one neighbour, on a side of one none.
            for by in [1, sides[axis] - 1].into_iter().take(sides[axis].saturating_sub(1) as usize)
            {
                let mut to = at;
                to[axis] = (at[axis] + by) % sides[axis];
                let to = to[0] + sides[0] * (to[1] + sides[1] * to[2]);
                out.push((rank, to, (bytes / cuts).max(1)));
            }
        }
    }
    out
}

/// All faces at once; a rank is done when it has sent and received all of its own.
fn halo(s: &mut Schedule, faces: &[(u32, u32, u64)], ends: &mut Ends) {
    let mut next: Ends = vec![Vec::new(); ends.len()];
    for (from, to, bytes) in faces {
        let (send, recv) = s.message(*from, *to, *bytes);
        s.after(send, ends[*from as usize].iter().copied());
        // A rank receives when it has computed: it cannot run ahead of itself.
        s.after(recv, ends[*to as usize].iter().copied());
        next[*from as usize].push(send);
        next[*to as usize].push(recv);
    }
    for (rank, (ends, next)) in (0..).zip(ends.iter_mut().zip(next)) {
        if !next.is_empty() {
            *ends = vec![s.join(rank, next)];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn app(text: &str) -> AppSpec {
        toml::from_str(text).unwrap_or_else(|e| panic!("{e}\n{text}"))
    }

    fn made(text: &str, ranks: u32) -> Schedule {
        let s = schedule_of(&app(text), ranks, &mut Rng::new(1)).unwrap();
        assert!(s.cycle().is_empty(), "{text}: can be executed");
        s
    }

    /// Bytes that each rank sends, and receives.
    fn volumes(s: &Schedule) -> Vec<(u64, u64)> {
        let mut out = vec![(0, 0); s.ranks as usize];
        for (_, from, to, bytes) in s.messages() {
            out[from as usize].0 += bytes;
            out[to as usize].1 += bytes;
        }
        out
    }

    #[test]
    fn a_halo_sends_the_surface_of_a_box() {
        // 4 x 4 x 4 boxes of a grid whose face is 1,600 bytes: six faces of 100 bytes.
        let s = made("pattern = \"halo3d\"\nbytes = 1_600", 64);
        assert!(volumes(&s).iter().all(|v| *v == (600, 600)));
        // 4 x 2 x 2: the long axis has faces of 400 bytes to two neighbours; the other two have
        // one neighbour each, behind faces of 200 bytes.
        let s = made("pattern = \"halo3d\"\nbytes = 1_600", 16);
        assert!(volumes(&s).iter().all(|v| *v == (1_200, 1_200)), "{:?}", volumes(&s));
        // One rank has nobody.
        assert_eq!(made("pattern = \"halo3d\"\nbytes = 1_600", 1).messages().count(), 0);
    }

    #[test]
    fn computations_are_shared_and_add_up() {
        let text = "pattern = \"halo3d\"\nbytes = 8\ncompute_us = 640.0\nsteps = 3\nexchanges = 2\n\
                    serial_percent = 10.0";
        let s = made(text, 8);
        let sum: u64 = s
            .ops
            .iter()
            .map(|op| match op.kind {
                OpKind::Calc { ps, .. } => ps,
                _ => 0,
            })
            .sum();
        // A rank computes 64 + 576 / 8 = 136 us of each step.
        assert_eq!(sum, 8 * 3 * 136 * US);
        assert_eq!(s.work_ps, 3 * 640 * US);
    }

    #[test]
    fn imbalance_spreads_around_the_mean() {
        let text =
            "pattern = \"halo3d\"\nbytes = 8\ncompute_us = 1000.0\nsteps = 50\nimbalance = 0.2";
        let s = made(text, 10);
        let all: Vec<f64> = s
            .ops
            .iter()
            .filter_map(|op| match op.kind {
                OpKind::Calc { ps, .. } => Some(ps as f64 / (100 * US) as f64),
                _ => None,
            })
            .collect();
        let mean = all.iter().sum::<f64>() / all.len() as f64;
        assert!((mean - 1.0).abs() < 0.02, "{mean}");
        assert!(all.iter().all(|x| (0.8..=1.2).contains(x)));
        assert!(all.iter().any(|x| *x > 1.15) && all.iter().any(|x| *x < 0.85));
    }

    #[test]
    fn a_transpose_moves_what_stays_nowhere() {
        // 8 ranks hold 800 bytes each; 7/8 of them go to others, twice per step.
        let s = made("pattern = \"spectral\"\nbytes = 6_400\nexchanges = 2", 8);
        assert!(volumes(&s).iter().all(|v| *v == (1_400, 1_400)));
    }

    #[test]
    fn what_does_not_suit_is_refused() {
        let text = "pattern = \"allreduce\"\nalgorithm = \"halving-doubling\"\nbytes = 8";
        let e = schedule_of(&app(text), 6, &mut Rng::new(1)).unwrap_err();
        assert!(e.contains("power of two, not 6"), "{e}");
        let refused = |more: &str| {
            app(&format!("pattern = \"halo3d\"\nbytes = 8\n{more}")).check().unwrap_err()
        };
        assert!(refused("algorithm = \"ring\"").contains("app.algorithm"));
        assert!(refused("imbalance = 1.5").contains("app.imbalance = 1.5"));
        assert!(refused("steps = 0").contains("app.steps = 0"));
        assert!(refused("serial_percent = -1.0").contains("app.serial_percent"));
        assert!(refused("published = [{ of = \"a\" }]").contains("efficiency_percent"));
        assert!(refused("published = [{ of = \"a\", time_ratio = 0.5 }]").contains("against"));
    }
}
