//! A scientific application over SRD and over TCP: LAMMPS with a melting box of atoms. Both must
//! print the same numbers.

use super::fabric::Fabric;
use crate::{Result, mpi::stage::Transport, process::root};

/// Number of ranks, two on each host.
const RANKS: u32 = 4;
/// Time limit of a run in seconds.
const LIMIT_S: u32 = 150;
/// Allowed relative difference, caused by the order of summation within the executed steps.
const TOLERANCE: f64 = 1e-6;
/// Rows of numbers that a complete run prints.
const ROWS: usize = 11;

/// Runs the application over both; returns a remark for the table.
///
/// # Errors
/// A run fails, or the numbers differ.
pub fn run(f: &Fabric) -> Result<String> {
    let input = root().join("bindings/ibverbs/tests/programs/melt.lammps");
    let line = format!("lmp -in {} -log none", input.display());
    let one = |over| {
        let said = f.mpi_over(over, LIMIT_S, RANKS, &line)?;
        super::cases::expect_end_over(over, &said)?;
        let rows = rows(&said.text);
        if rows.len() != ROWS {
            return Err(format!("{}: {} rows of numbers, not {ROWS}", over.name(), rows.len()));
        }
        Ok((said, rows))
    };
    let (_, tcp) = one(Transport::TcpBtl)?;
    let (said, srd) = one(Transport::Srd)?;
    let worst = difference(&tcp, &srd);
    if worst > TOLERANCE {
        return Err(format!("energies differ by {worst:e} from those over TCP"));
    }
    let same = if worst == 0.0 {
        "every digit as over TCP".to_owned()
    } else {
        format!("at most {worst:.0e} from TCP")
    };
    Ok(format!("{} numbers, {same}; {}", ROWS * srd[0].len(), super::cases::through(&said)?))
}

/// The rows of numbers after the heading.
fn rows(text: &str) -> Vec<Vec<f64>> {
    let numbers = |line: &str| {
        let words: Option<Vec<f64>> = line.split_whitespace().map(|w| w.parse().ok()).collect();
        words.filter(|w| !w.is_empty())
    };
    let lines = text.lines().skip_while(|l| !l.starts_with("Step ")).skip(1);
    lines.map_while(numbers).collect()
}

/// Largest relative difference; infinite if the shapes differ.
fn difference(a: &[Vec<f64>], b: &[Vec<f64>]) -> f64 {
    if a.len() != b.len() {
        return f64::INFINITY;
    }
    let row = |(x, y): (&Vec<f64>, &Vec<f64>)| {
        if x.len() != y.len() {
            return f64::INFINITY;
        }
        let one = |(p, q): (&f64, &f64)| (p - q).abs() / p.abs().max(q.abs()).max(1e-300);
        x.iter().zip(y).map(one).fold(0.0, f64::max)
    };
    a.iter().zip(b).map(row).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_after_the_heading_are_compared() {
        let text = "x 1\nStep Temp E\n  0 1.5 -2\n 20 1.25 -2.5\nLoop time of 1\n 3 4 5\n";
        let all = rows(text);
        assert_eq!(all, [vec![0.0, 1.5, -2.0], vec![20.0, 1.25, -2.5]]);
        assert_eq!(difference(&all, &all), 0.0);
        let mut other = all.clone();
        other[1][2] = -2.0;
        assert_eq!(difference(&all, &other), 0.2);
        assert!(difference(&all, &all[..1]).is_infinite());
    }
}
