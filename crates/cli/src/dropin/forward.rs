//! How the variables reach the processes that Open MPI starts on other hosts. Its daemons there
//! have the environment of a remote shell, and pass on only variables whose names are in a list;
//! those that begin with `OMPI_` need no list.

use super::Variables;
use crate::failure::{Failure, Result};
use std::{env, ffi::OsString, path::Path, process::Command};

/// The list as a parameter of Open MPI's. Version 4 aborts a job whose user passes variables both
/// by it and by `mpirun -x`; version 5 accepts both.
const LIST: &str = "OMPI_MCA_mca_base_env_list";
/// The list that Open MPI 4 fills from its parameter files, and merges with those of `-x`.
/// Version 5 does not read it.
const LIST_OF_FILES: &str = "OMPI_MCA_mca_base_env_list_internal";
/// The separator of the first list, if it is not a semicolon.
const SEPARATOR: &str = "OMPI_MCA_mca_base_env_list_delimiter";
/// The parameter's name on a command line.
const PARAMETER: &str = "mca_base_env_list";

/// File names of Open MPI's launchers; a suffix such as `.openmpi` may follow.
const LAUNCHERS: [&str; 5] = ["mpirun", "mpiexec", "orterun", "prterun", "oshrun"];

/// First version that accepts the list together with `-x`.
const MERGES_SINCE: u32 = 5;

/// Setting of the devices' PCI address, and its value for none.
const PCI: (&str, &str) = ("SRD_PCI", "none");
/// First version of MPICH that does not ask its hwloc about a device without a PCI address. The
/// hwloc in MPICH's wheel does not look for PCI devices at all, so that asking ends the program.
const MPICH_WITHOUT_PCI: [u32; 3] = [5, 0, 1];

/// The variables that make Open MPI pass `names` on, and the caller's variables `SRD_…`. `command`
/// is the program to be started and its arguments.
///
/// # Errors
/// The command line has a list of its own, which would replace this one.
pub fn variables(names: &[&str], command: &[OsString]) -> Result<Variables> {
    if command.iter().any(|word| word == PARAMETER) {
        return Err(Failure::usage(format!(
            "`--mca {PARAMETER}` would keep the variables of software SRD from other hosts; pass \
             your variables by `-x NAME` instead"
        )));
    }
    let own = env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let mut all: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
    all.extend(own.filter(|name| name.starts_with("SRD_") && !names.contains(&name.as_str())));
    let caller = env::var(LIST).ok().filter(|list| !list.is_empty());
    let separator = env::var(SEPARATOR).ok().filter(|s| !s.is_empty());
    let told = told(launcher(command));
    let mut out = lists(&all, caller, separator.as_deref(), version_in(&told));
    if is_without_pci(&told) && srd::setting(PCI.0).is_none() {
        out.push((PCI.0.into(), PCI.1.into()));
    }
    Ok(out)
}

/// The lists for a version of Open MPI. One that the caller has set is continued.
fn lists(
    names: &[String],
    caller: Option<String>,
    separator: Option<&str>,
    version: Option<u32>,
) -> Variables {
    if let Some(caller) = caller {
        let separator = separator.unwrap_or(";");
        return vec![(LIST.into(), [&[caller], names].concat().join(separator).into())];
    }
    let list = names.join(";");
    let mut out: Variables = vec![(LIST_OF_FILES.into(), list.into())];
    if version.is_some_and(|version| version >= MERGES_SINCE) {
        out.push((LIST.into(), names.join(separator.unwrap_or(";")).into()));
    }
    out
}

/// The launcher that a command line names, else the one that a script would find.
fn launcher(command: &[OsString]) -> OsString {
    let is_launcher = |word: &&OsString| {
        let name = Path::new(word).file_name().unwrap_or_default().to_string_lossy().into_owned();
        LAUNCHERS.contains(&name.split('.').next().unwrap_or_default())
    };
    command.iter().find(is_launcher).cloned().unwrap_or_else(|| LAUNCHERS[0].into())
}

/// What a launcher says of its version; nothing if there is no such program.
fn told(launcher: OsString) -> String {
    let out = Command::new(launcher).arg("--version").output();
    out.map_or_else(|_| String::new(), |out| String::from_utf8_lossy(&out.stdout).into_owned())
}

/// Whether it is a launcher of MPICH whose ranks accept devices without a PCI address:
/// `HYDRA build details:`, and in the next line `Version: 5.0.2`.
fn is_without_pci(text: &str) -> bool {
    let mut lines = text.lines();
    if lines.next().is_none_or(|line| !line.starts_with("HYDRA build details")) {
        return false;
    }
    let version = lines.next().and_then(|line| line.trim().strip_prefix("Version:"));
    // A release candidate ends with letters.
    let digits = |part: &str| {
        let end = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
        part[..end].parse::<u32>().ok()
    };
    let numbers: Option<Vec<u32>> = version.and_then(|v| v.trim().split('.').map(digits).collect());
    numbers.is_some_and(|numbers| numbers.as_slice() >= &MPICH_WITHOUT_PCI[..])
}

/// First number of the version of Open MPI: `mpirun (Open MPI) 4.1.4`. None if it is another MPI.
fn version_in(text: &str) -> Option<u32> {
    let (_, version) = text.lines().next()?.split_once("(Open MPI) ")?;
    version.split('.').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    fn names_of(variables: &Variables) -> Vec<&str> {
        variables.iter().map(|(name, _)| name.as_str()).collect()
    }

    #[test]
    fn each_version_gets_the_list_that_it_merges_with_x() {
        let names = ["A".to_owned(), "B".to_owned()];
        assert_eq!(names_of(&lists(&names, None, None, Some(4))), [LIST_OF_FILES]);
        assert_eq!(names_of(&lists(&names, None, None, None)), [LIST_OF_FILES]);
        let five = lists(&names, None, Some(","), Some(5));
        assert_eq!(five[0], (LIST_OF_FILES.into(), "A;B".into()));
        assert_eq!(five[1], (LIST.into(), "A,B".into()));
        // A list of the caller's together with that of files is an error in version 4.
        let own = lists(&names, Some("C=1".into()), None, Some(4));
        assert_eq!(own, [(LIST.to_owned(), "C=1;A;B".into())]);
    }

    #[test]
    fn the_launcher_is_found_behind_other_programs() {
        assert_eq!(
            launcher(&words("timeout 60 /opt/bin/mpirun.openmpi -n 2 ./a")),
            "/opt/bin/mpirun.openmpi"
        );
        assert_eq!(launcher(&words("./mpirun_all.sh")), "mpirun");
        assert_eq!(version_in("mpirun (Open MPI) 5.0.11\n\nReport bugs"), Some(5));
        assert_eq!(version_in("HYDRA build details:\n    Version: 4.2"), None);
    }

    #[test]
    fn newer_versions_of_mpich_get_devices_without_a_pci_address() {
        let of = |version: &str| {
            is_without_pci(&format!("HYDRA build details:\n    Version:    {version}\n    Release"))
        };
        assert!(of("5.0.1") && of("5.0.2") && of("5.0.1rc3") && of("5.1.0") && of("6.0"));
        assert!(!of("5.0.0") && !of("4.3.2") && !of("5.0") && !of("unreleased") && !of(""));
        assert!(!is_without_pci("") && !is_without_pci("HYDRA build details:"));
        assert!(!is_without_pci("Intel(R) MPI Library for Linux* OS, Version 2021.14"));
        assert!(!is_without_pci("mpirun (Open MPI) 5.0.11\n"));
    }

    #[test]
    fn a_list_on_the_command_line_is_refused() {
        let line = words("mpirun --mca mca_base_env_list FOO ./a");
        let text = variables(&["A"], &line).unwrap_err().to_string();
        assert!(text.contains("-x NAME"), "{text}");
    }
}
