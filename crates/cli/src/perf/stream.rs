//! Bandwidth and message rate: a window of operations in flight.

use super::{
    Limit,
    session::{Run, Session},
};
use crate::{failure::Result, signals::Stop};
use srd::WorkCompletion;
use std::time::Instant;

/// Runs until the limit. Operations then in flight are awaited, but not counted.
///
/// # Errors
/// An operation fails, or the user requests a stop.
pub fn run(session: &mut Session, size: u32, limit: Limit, stop: &Stop) -> Result<Run> {
    let slots = session.inflight(size);
    let mut run = Run::new();
    let mut wcs = [WorkCompletion::default(); 64];
    let start = Instant::now();
    session.heard(start);
    let mut posted_at = vec![start; slots as usize];
    let mut free: Vec<u32> = (0..slots).rev().collect();
    let (mut to_post, deadline) = match limit {
        Limit::Iterations(n) => (n, None),
        Limit::Time(t) => (u64::MAX, Some(start + t)),
    };
    let mut now = start;
    loop {
        while to_post > 0
            && let Some(&slot) = free.last()
            && session.post(slot, size)?
        {
            free.pop();
            to_post -= 1;
            posted_at[slot as usize] = now;
        }
        if to_post == 0 && free.len() == slots as usize {
            break;
        }
        let n = session.completions(&mut wcs, stop)?;
        now = Instant::now();
        let over = deadline.is_some_and(|d| now >= d);
        if over && to_post > 0 {
            to_post = 0;
            run.elapsed = now - start;
        }
        for wc in &wcs[..n] {
            let slot = wc.wr_id as u32;
            free.push(slot);
            if to_post > 0 || deadline.is_none() {
                run.iterations += 1;
                let took = now.duration_since(posted_at[slot as usize]);
                run.latency.saturating_record(took.as_nanos() as u64);
            }
        }
        if n > 0 {
            session.heard(now);
        }
        if n > 0 && deadline.is_none() {
            run.elapsed = now - start;
        }
    }
    Ok(run)
}
