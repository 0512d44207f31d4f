//! The part of an experiment that somebody asks for.

use crate::check::{check, place};
use crate::run::ready;
use crate::spec::SpecFile;

/// An experiment, and what of it is to be run: the options of `srd lab run` with their meaning.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// Name of an experiment, or a spec file.
    pub name: String,
    /// The reduced set: fewer seeds, no slow cases.
    pub quick: bool,
    /// Only the cases whose names contain this text.
    pub case: Option<String>,
    /// Changes to every case, each a line of TOML such as `engine.paths = 16`.
    pub set: Vec<String>,
    /// Fields with several values each, such as `engine.paths = 16,64`.
    pub sweep: Vec<String>,
    /// Whether series are recorded.
    pub observe: bool,
    /// Whether the first run of each case is recorded for Perfetto.
    pub timeline: bool,
}

impl Request {
    /// Reads the experiment, selects the part and checks each of its cases; runs nothing. The part
    /// may be empty: [`Request::nothing`] says why.
    ///
    /// # Errors
    /// The text says what is wrong and where.
    pub fn load(&self) -> Result<SpecFile, String> {
        let name = &self.name;
        let mut file = SpecFile::load_with(name, self.quick, &self.set, &self.sweep)?;
        figures_check(name, &file)?;
        if let Some(part) = &self.case {
            file.cases.retain(|case| case.case.contains(part.as_str()));
        }
        cases_check(name, &file)?;
        for case in &mut file.cases {
            case.measure.observe |= self.observe;
            case.measure.timeline |= self.timeline;
        }
        Ok(file)
    }

    /// Why the part is empty.
    pub fn nothing(&self) -> String {
        let name = &self.name;
        let names = SpecFile::load_with(name, self.quick, &self.set, &self.sweep).map(|file| {
            let named = file.cases.iter().filter(|case| !case.case.is_empty());
            named.map(|case| format!("\"{}\"", case.case)).collect::<Vec<_>>()
        });
        let names = names.unwrap_or_default();
        match (&self.case, self.quick) {
            (Some(part), _) if names.is_empty() => format!(
                "{name}: no case contains \"{part}\", as no case has a name; leave out --case"
            ),
            (Some(part), _) => {
                format!("{name}: no case contains \"{part}\"; the cases are {}", names.join(", "))
            }
            (None, _) => format!("{name}: --quick omits all its cases"),
        }
    }
}

/// Checks the figures that a file declares.
pub(crate) fn figures_check(name: &str, file: &SpecFile) -> Result<(), String> {
    let figures = file.cases.first().map_or(&[][..], |first| &first.plot);
    let checked = figures.iter().try_for_each(|plot| plot.check(&file.cases));
    checked.map_err(|e| format!("{name}: {e}"))
}

/// Checks every case, with its network and files; runs nothing.
pub(crate) fn cases_check(name: &str, file: &SpecFile) -> Result<(), String> {
    file.cases.iter().try_for_each(|case| {
        let checked = check(case).and_then(|()| ready(case, &file.folder));
        checked.map_err(|e| format!("{}: {e}", place(name, &case.case)))
    })
}
