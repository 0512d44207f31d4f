//! Runs programs that use EFA on software SRD: `srd run`, `srd env`, `srd doctor`. A started
//! program gets two libraries in place of the system's, and environment variables that make MPI
//! libraries and libfabric use them and nothing else.

mod cluster;
mod contained;
pub mod doctor;
mod entropy;
mod limits;
mod rails;
pub mod run;

mod figures;
mod forward;

use crate::{
    device::key_check,
    failure::{Failure, Result},
    output,
};
use srd::seal::{KeyFile, Policy};
use std::{
    env,
    ffi::OsString,
    fs,
    hash::{BuildHasher, RandomState},
    io::Write,
    os::unix::{ffi::OsStrExt, fs::DirBuilderExt},
    path::{Path, PathBuf},
};

/// The libraries, in the order in which they are loaded: two that replace rdma-core's, and one that
/// answers where programs look for devices without verbs.
const LIBRARIES: [&str; 3] = ["libibverbs.so.1", "libefa.so.1", "libsrd_places.so.1"];
/// Variable that names the libraries' folder.
const DIR_VARIABLE: &str = "SRD_VERBS_DIR";
/// Variable that names the folder for each process's statistics.
const STATS_VARIABLE: &str = "SRD_STATS_DIR";

/// Variable with the path of the key file.
pub const KEY_VARIABLE: &str = "SRD_KEY_FILE";
/// Variable that says which contexts are sealed.
const SEAL_VARIABLE: &str = "SRD_SEAL";

/// Variables that make programs use the device: name, value and reason.
const FIXED: &[(&str, &str, &str)] = &[
    // perftest and UCX check these numbers before they use EFA's features.
    ("SRD_VENDOR_ID", "0x1d0f", "perftest and UCX ask for EFA's vendor"),
    ("SRD_PART_ID", "0xefa1", "perftest and UCX ask for a part they know"),
    ("FI_PROVIDER", "efa", "libfabric: this provider or none"),
    ("FI_EFA_ENABLE_SHM_TRANSFER", "0", "ranks of one host use SRD, too, not shared memory"),
    ("OMPI_MCA_pml", "cm", "Open MPI: libfabric's matching, not UCX and not TCP"),
    ("OMPI_MCA_mtl", "ofi", "Open MPI: as pml"),
    ("OMPI_MCA_mtl_ofi_provider_include", "efa", "Open MPI: as pml"),
    ("OMPI_MCA_btl", "self,ofi", "Open MPI: one-sided operations through libfabric, never TCP"),
    ("OMPI_MCA_btl_ofi_provider_include", "efa", "Open MPI: as btl"),
    ("OMPI_MCA_osc", "^ucx", "Open MPI: one-sided operations through libfabric"),
    // osc/rdma maps five MPI operations to atomics, and ends the program at any other operation.
    ("OMPI_MCA_osc_rdma_acc_use_amo", "0", "Open MPI: accumulate with all operations"),
    ("MPIR_CVAR_CH4_NETMOD", "ofi", "MPICH: libfabric"),
    ("MPIR_CVAR_NOLOCAL", "1", "MPICH: ranks of one host use SRD, too"),
    ("I_MPI_FABRICS", "ofi", "Intel MPI: libfabric, not shared memory"),
    ("I_MPI_OFI_PROVIDER", "efa", "Intel MPI: this provider or none"),
];

/// Variables that suit most programs, each kept if the caller has set it: name, value and reason.
/// libfabric 1.17, which uses RDMA reads only on request, cuts longer messages into packets
/// otherwise, posts and copies each by itself, and takes 1.1 (128 KiB) to 2 times (16 MiB) as long.
/// The device's completion counters, which libfabric uses from 2.6 on, do not count what peers do.
const TUNED: &[(&str, &str, &str)] = &[
    ("FI_EFA_USE_DEVICE_RDMA", "1", "libfabric: receivers read long messages by RDMA"),
    ("FI_EFA_INTER_MIN_READ_MESSAGE_SIZE", "131072", "libfabric: from this length in bytes on"),
    ("FI_EFA_USE_HW_CNTR", "0", "libfabric: counts by itself, also what peers read and write"),
];

/// Names and values of environment variables.
pub type Variables = Vec<(String, OsString)>;

/// Options of both `run` and `env`.
#[derive(Clone, Debug, clap::Args)]
pub struct LaunchArgs {
    /// Network interfaces to use, separated by commas [default: the interface of the default route]
    #[arg(long, value_name = "NAME")]
    pub interface: Option<String>,
    /// Hosts for the ranks of an MPI program, separated by commas, each with its number of ranks if
    /// not 1: a:2,b:2
    #[arg(long, value_name = "HOSTS")]
    pub hosts: Option<String>,
    /// Folder of libibverbs.so.1 and libefa.so.1 [default: next to this program, or SRD_VERBS_DIR]
    #[arg(long, value_name = "DIR")]
    pub verbs_dir: Option<PathBuf>,
    /// File with the secret keys of the cluster, at the same path on all hosts: all packets are
    /// encrypted and authenticated. `srd key new FILE` makes one [default: SRD_KEY_FILE]
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
    /// Allow shared memory between ranks of one host, and let MPI libraries choose other transports
    #[arg(long)]
    pub allow_fallback: bool,
}

impl LaunchArgs {
    /// The variables for a program, in order, and the host files that they name. `command` is the
    /// program with its arguments, empty if it is not known yet.
    ///
    /// # Errors
    /// The libraries are not found, --hosts is malformed, the key file or the policy of
    /// the seal is wrong, or the command keeps the variables from other hosts.
    pub fn variables(&self, command: &[OsString]) -> Result<(Variables, Option<HostFiles>)> {
        let dir = libraries(self.verbs_dir.as_deref())?;
        let mut out: Variables = vec![
            ("LD_LIBRARY_PATH".into(), joined([dir.clone()], "LD_LIBRARY_PATH")?),
            ("LD_PRELOAD".into(), joined(preloaded(&dir), "LD_PRELOAD")?),
        ];
        for (name, value, _) in FIXED {
            let strict = !(name.starts_with("SRD_") || *name == "FI_PROVIDER");
            if strict && self.allow_fallback {
                continue;
            }
            // An SRD_ variable that the caller has set is kept; others are replaced to enforce SRD.
            let keeps = name.starts_with("SRD_") && srd::setting(name).is_some();
            if !keeps {
                out.push(((*name).into(), (*value).into()));
            }
        }
        out.extend(tuned(|name| env::var_os(name)));
        if let Some(interface) = &self.interface {
            out.push(("SRD_INTERFACE".into(), interface.into()));
        }
        out.extend(self.key_variables()?);
        let files = self.hosts.as_deref().map(HostFiles::new).transpose()?;
        out.extend(files.iter().flat_map(HostFiles::variables));
        let mut names: Vec<&str> = out.iter().map(|(name, _)| name.as_str()).collect();
        // Open MPI complains about names of variables that are not set, as it is for `srd env`.
        if !command.is_empty() {
            names.push(STATS_VARIABLE);
        }
        out.extend(forward::variables(&names, command)?);
        Ok((out, files))
    }
}

/// The variables of [`TUNED`] with the caller's values, where it has set them. They are passed on
/// in either case, so that the processes of all hosts get the same.
fn tuned(set: impl Fn(&str) -> Option<OsString>) -> impl Iterator<Item = (String, OsString)> {
    let value = move |name, default: &str| set(name).unwrap_or_else(|| default.into());
    TUNED.iter().map(move |(name, default, _)| ((*name).into(), value(name, default)))
}

impl LaunchArgs {
    /// The path of the key file, never a key, and the policy: those of the caller's environment,
    /// too, because they have to reach the other hosts.
    fn key_variables(&self) -> Result<Variables> {
        let mut out = Variables::new();
        let inherited = srd::setting(KEY_VARIABLE).filter(|path| !path.is_empty());
        if let Some(file) = self.key.clone().or(inherited.map(PathBuf::from)) {
            // An error now, and not in each process.
            KeyFile::open(&file).map_err(|e| Failure::usage(e.to_string()))?;
            out.push((KEY_VARIABLE.into(), absolute(&file)?.into()));
        }
        let policy = srd::setting(SEAL_VARIABLE).filter(|name| !name.is_empty());
        if let Some(text) = &policy {
            policy_check(&text.to_string_lossy(), !out.is_empty())?;
        }
        if self.key.is_some() {
            key_check(policy.as_deref().and_then(|name| name.to_str()), SEAL_VARIABLE)?;
        }
        if let Some(text) = srd::DeviceConfig::loopback().key_file_unused() {
            output::note(&format!("srd: warning: {text}"));
        }
        out.extend(policy.map(|name| (SEAL_VARIABLE.into(), name)));
        Ok(out)
    }
}

/// Refuses now what each process of the program would refuse.
fn policy_check(policy: &str, keyed: bool) -> Result {
    match Policy::from_name(policy) {
        None => Err(Failure::usage(format!(
            "{SEAL_VARIABLE}={policy}: it must be never, prefer or require"
        ))),
        Some(Policy::Prefer | Policy::Require) if !keyed => Err(Failure::usage(format!(
            "{SEAL_VARIABLE}={policy} needs a key file: name one (--key FILE, {KEY_VARIABLE}), \
             which `srd key new FILE` makes, or set {SEAL_VARIABLE}=never"
        ))),
        Some(_) => Ok(()),
    }
}

/// Host files for MPI launchers: one for Open MPI and one for MPICH, in a private folder that is
/// removed when this value is dropped.
#[derive(Debug)]
pub struct HostFiles(PathBuf);

impl HostFiles {
    fn new(hosts: &str) -> Result<Self> {
        let (mut open, mut hydra) = (String::new(), String::new());
        for host in hosts.split(',') {
            let (name, ranks) = host.split_once(':').unwrap_or((host, "1"));
            if name.is_empty() || ranks.parse::<u32>().is_ok_and(|n| n == 0) {
                return Err(Failure::usage(format!("--hosts {hosts}: write hosts as a:2,b:2")));
            }
            ranks.parse::<u32>().map_err(|_| {
                Failure::usage(format!("--hosts {hosts}: `{ranks}` is not a number of ranks"))
            })?;
            open.push_str(&format!("{name} slots={ranks}\n"));
            hydra.push_str(&format!("{name}:{ranks}\n"));
        }
        // Hashers of the standard library have random keys: an unpredictable name prevents others
        // from creating it (or a link) first.
        let random = RandomState::new().hash_one(std::process::id());
        let folder = env::temp_dir().join(format!("srd-hosts-{random:016x}"));
        let fail = |e| Failure::new(format!("{}: {e}", folder.display()));
        // Fails if the name exists, even as a link.
        fs::DirBuilder::new().mode(0o700).create(&folder).map_err(fail)?;
        let files = Self(folder.clone());
        for (file, text) in [(files.open(), open), (files.hydra(), hydra)] {
            fs::File::create_new(file)
                .and_then(|mut f| f.write_all(text.as_bytes()))
                .map_err(fail)?;
        }
        Ok(files)
    }

    fn open(&self) -> PathBuf {
        self.0.join("openmpi")
    }

    fn hydra(&self) -> PathBuf {
        self.0.join("hydra")
    }

    fn variables(&self) -> [(String, OsString); 3] {
        [
            ("OMPI_MCA_orte_default_hostfile".into(), self.open().into()),
            ("PRTE_MCA_prte_default_hostfile".into(), self.open().into()),
            ("HYDRA_HOST_FILE".into(), self.hydra().into()),
        ]
    }

    /// Does not remove the files.
    pub fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for HostFiles {
    fn drop(&mut self) {
        // Remaining files are harmless.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The libraries as the loader preloads them: by path, so that a library path within the program
/// changes nothing. It takes a space for the end of a path, and finds what has none by
/// `LD_LIBRARY_PATH`.
fn preloaded(dir: &Path) -> [PathBuf; 3] {
    let spaced = dir.as_os_str().as_bytes().contains(&b' ');
    LIBRARIES.map(|name| if spaced { name.into() } else { dir.join(name) })
}

/// These paths followed by the current value of the variable, separated by colons.
fn joined<const N: usize>(first: [PathBuf; N], variable: &str) -> Result<OsString> {
    let old = env::var_os(variable).unwrap_or_default();
    let new: Vec<PathBuf> = first.into();
    let rest = env::split_paths(&old).filter(|p| !p.as_os_str().is_empty() && !new.contains(p));
    env::join_paths(new.iter().cloned().chain(rest))
        .map_err(|e| Failure::new(format!("{variable}: {e}")))
}

/// Finds the folder that contains the libraries: the one that is asked for, the libraries that the
/// tool itself contains, or those beside it.
///
/// # Errors
/// There is none; the text says how to build the libraries.
pub fn libraries(asked: Option<&Path>) -> Result<PathBuf> {
    let variable = srd::setting(DIR_VARIABLE).map(PathBuf::from);
    if let Some(dir) = asked.map(Path::to_path_buf).or(variable) {
        return if complete(&dir) {
            absolute(&dir)
        } else {
            let missing = LIBRARIES.iter().find(|name| !dir.join(name).is_file());
            let missing = missing.copied().unwrap_or_default();
            Err(Failure::usage(format!("{} does not contain {missing}", dir.display())))
        };
    }
    if let Some(dir) = contained::folder()? {
        return absolute(&dir);
    }
    let exe = env::current_exe()?;
    let here = exe.parent().unwrap_or(Path::new("/"));
    // Relative to an installed program (by pip, too), or to the output of `cargo xtask verbs`.
    let places = ["verbs", "../lib/srd", "../verbs", "../../verbs"];
    match places.iter().map(|p| here.join(p)).find(|dir| complete(dir)) {
        Some(dir) => absolute(&dir),
        None => Err(Failure::new(
            "libibverbs.so.1 and libefa.so.1 of software SRD are not installed with this program. \
             In a checkout, `cargo install --path crates/cli` makes a program that contains them, \
             and `./x install --prefix ~/.local` installs all; or build them \
             with `cargo xtask verbs --out DIR`, and name the folder with --verbs-dir or \
             SRD_VERBS_DIR",
        )),
    }
}

fn complete(dir: &Path) -> bool {
    LIBRARIES.iter().all(|name| dir.join(name).is_file())
}

fn absolute(dir: &Path) -> Result<PathBuf> {
    Ok(std::fs::canonicalize(dir)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn hosts_are_written_for_both_kinds_of_launchers() {
        let files = HostFiles::new("a:2,b").unwrap();
        let mode = fs::metadata(&files.0).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        let vars = files.variables();
        let read = |i: usize| fs::read_to_string(&vars[i].1).unwrap();
        assert_eq!(read(0), "a slots=2\nb slots=1\n");
        assert_eq!(read(2), "a:2\nb:1\n");
        drop(files);
        assert!(!Path::new(&vars[0].1).exists());
        for wrong in ["", "a:0", "a:x", ":2"] {
            assert!(HostFiles::new(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn tuning_of_the_caller_is_kept_and_passed_on() {
        let rdma = |set: Option<&str>| {
            let all: Vec<_> =
                tuned(|name| set.filter(|_| name.ends_with("_RDMA")).map(OsString::from)).collect();
            assert!(all.len() == TUNED.len() && all.iter().any(|(_, value)| value == "131072"));
            all.into_iter().find(|(name, _)| name == "FI_EFA_USE_DEVICE_RDMA").unwrap().1
        };
        assert_eq!((rdma(None), rdma(Some("0"))), ("1".into(), "0".into()));
    }

    #[test]
    fn a_path_with_a_space_is_not_preloaded_in_two_halves() {
        let [first, ..] = preloaded(Path::new("/opt/srd/lib/srd"));
        assert_eq!(first, Path::new("/opt/srd/lib/srd/libibverbs.so.1"));
        assert_eq!(preloaded(Path::new("/opt/my srd")), LIBRARIES.map(PathBuf::from));
    }

    #[test]
    fn a_folder_without_libraries_is_reported() {
        let text = libraries(Some(Path::new("/proc"))).unwrap_err().to_string();
        assert!(text.contains("/proc does not contain libibverbs.so.1"), "{text}");
    }
}
