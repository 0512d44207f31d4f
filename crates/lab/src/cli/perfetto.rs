//! The file of `run --perfetto`.

use super::Failure;
use crate::result::RunResult;
use crate::spec::{SpecFile, Transport};
use srd_timeline::Timeline;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

/// Most cases that an error names.
const NAMES_MAX: usize = 12;

/// A file for the recording of a run, which was made before the run.
pub struct Recording {
    path: PathBuf,
    file: File,
}

impl Recording {
    /// Makes the file. One run fills it, so there must be one case only.
    pub fn new(path: &Path, files: &[(&str, SpecFile)]) -> Result<Self, Failure> {
        let cases: Vec<_> = files.iter().flat_map(|(_, file)| &file.cases).collect();
        if cases.len() > 1 {
            let some = cases.iter().take(NAMES_MAX);
            let names: Vec<_> = some.map(|c| format!("\"{}\"", c.case)).collect();
            let more = if cases.len() > NAMES_MAX { ", ..." } else { "" };
            return Err(Failure::Usage(format!(
                "--perfetto records one run, but there are {} cases: choose one by --case, of \
                 {}{more}",
                cases.len(),
                names.join(", ")
            )));
        }
        if cases.iter().any(|case| case.transport == Transport::Static) {
            return Err(Failure::Usage(
                "--perfetto: a case of transport \"static\" has no time to record".into(),
            ));
        }
        let fail = |e| Failure::Failed(format!("{}: {e}", path.display()));
        Ok(Self { path: path.into(), file: File::create(path).map_err(fail)? })
    }

    /// Writes the recording of a result.
    pub fn write(self, result: &RunResult) -> Result<(), Failure> {
        let Some(timeline) = &result.timeline else {
            return Err(Failure::Failed("the run was not recorded".into()));
        };
        let fail = |e| Failure::Failed(format!("{}: {e}", self.path.display()));
        let left_out = save(timeline, self.file).map_err(fail)?;
        if left_out > 0 {
            eprintln!(
                "{}: {left_out} events are left out, because a recording has at most {}: fewer \
                 flows, or smaller ones, are recorded whole",
                self.path.display(),
                srd_timeline::EVENTS_MAX
            );
        }
        Ok(())
    }
}

fn save(timeline: &Timeline, file: File) -> std::io::Result<u64> {
    let mut out = BufWriter::new(file);
    let left_out = timeline.write(&mut out)?;
    out.flush()?;
    Ok(left_out)
}
