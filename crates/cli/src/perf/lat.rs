//! Latency: one operation at a time.

use super::{
    Limit,
    session::{Run, Session},
};
use crate::{app::message::Operation, failure::Result, signals::Stop};
use srd::{CompletionOp, WorkCompletion};
use std::time::Instant;

/// Runs until the limit. Records half of the round-trip time, but for reads the whole.
///
/// # Errors
/// An operation fails, or the user requests a stop.
pub fn run(session: &mut Session, size: u32, limit: Limit, stop: &Stop) -> Result<Run> {
    let mut run = Run::new();
    let start = Instant::now();
    session.heard(start);
    let half = if session.plan.operation == Operation::Read { 1 } else { 2 };
    let mut own_outstanding = 0;
    let mut began = start;
    loop {
        while !session.post(0, size)? {
            // The echo arrived before the acknowledgment of the message that it answers.
            own_outstanding -= collect(session, stop)?.own;
        }
        own_outstanding += 1;
        let mut answered = false;
        while !answered {
            let got = collect(session, stop)?;
            own_outstanding -= got.own;
            answered = if session.plan.echo { got.echoes > 0 } else { got.own > 0 };
        }
        let now = Instant::now();
        run.iterations += 1;
        run.latency.saturating_record((now - began).as_nanos() as u64 / half);
        session.heard(now);
        run.elapsed = now - start;
        began = now;
        let over = match limit {
            Limit::Iterations(n) => run.iterations >= n,
            Limit::Time(t) => run.elapsed >= t,
        };
        if over {
            break;
        }
    }
    while own_outstanding > 0 {
        own_outstanding -= collect(session, stop)?.own;
    }
    Ok(run)
}

/// Completions of one poll.
struct Got {
    /// Number of completed operations of this client.
    own: u32,
    /// Number of messages and writes received from the server.
    echoes: u32,
}

#[inline]
fn collect(session: &mut Session, stop: &Stop) -> Result<Got> {
    let mut wcs = [WorkCompletion::default(); 4];
    let n = session.completions(&mut wcs, stop)?;
    let mut got = Got { own: 0, echoes: 0 };
    for wc in &wcs[..n] {
        if matches!(wc.op, CompletionOp::Recv | CompletionOp::RecvRdmaImm) {
            session.post_recv(&session.qps[0], wc.wr_id)?;
            got.echoes += 1;
        } else {
            got.own += 1;
        }
    }
    Ok(got)
}
