//! `srd run` and `srd env`.

use super::{HostFiles, LaunchArgs, STATS_VARIABLE, figures};
use crate::{
    failure::{Failure, Result},
    output,
    signals::Stop,
};
use rustix::process::{Pid, Signal, kill_process};
use std::{
    env,
    ffi::OsString,
    fs, io,
    os::unix::{
        fs::{DirBuilderExt as _, PermissionsExt as _},
        process::ExitStatusExt as _,
    },
    path::PathBuf,
    process::{Child, Command, ExitStatus},
    thread::sleep,
    time::Duration,
};

const EXAMPLES: &str = "Examples:
  srd run -- fi_info -p efa
  srd run -- mpirun -n 4 ./app
  srd run --hosts a:2,b:2 --interface eth1 -- mpirun ./app
  srd run --quiet -- ib_send_bw -d srd0 -c SRD -x 0 SERVER

If a program succeeds without having sent anything through SRD, `srd run` fails, because the
program must have used another transport. --allow-fallback turns this check off.

Exit codes: the program's; 1 if nothing was sent through SRD; 127 if the program cannot start.";

/// Exit code of shells for a program that cannot be started.
const NOT_STARTED: u8 = 127;

/// Programs that only query devices, so that sending nothing is no failure.
const QUERY_PROGRAMS: [&str; 5] =
    ["fi_info", "ibv_devices", "ibv_devinfo", "ucx_info", "ompi_info"];

/// Arguments of `srd run`.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct RunArgs {
    /// Interfaces, hosts and libraries.
    #[command(flatten)]
    pub launch: LaunchArgs,
    /// Print no summary of the SRD traffic
    #[arg(long)]
    pub quiet: bool,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    pub command: Vec<OsString>,
}

const ENV_EXAMPLES: &str = "Examples:
  eval \"$(srd env)\"             in a script, before the launcher
  srd env --task-prolog         in Slurm's task prolog, whose output sets variables of the tasks";

/// Arguments of `srd env`.
#[derive(clap::Args, Debug)]
#[command(after_help = ENV_EXAMPLES)]
pub struct EnvArgs {
    /// Print values without quotes, as Slurm reads the output of a task prolog
    #[arg(long)]
    pub task_prolog: bool,
    /// Interfaces, hosts and libraries.
    #[command(flatten)]
    pub launch: LaunchArgs,
}

/// Prints the variables that `srd run` sets, for a shell: `eval "$(srd env)"`.
///
/// # Errors
/// The libraries are not found.
pub fn print_env(args: &EnvArgs) -> Result {
    let (variables, files) = args.launch.variables(&[])?;
    // The programs that the shell starts read the host files.
    files.into_iter().for_each(HostFiles::keep);
    for (name, value) in variables {
        output::line(&export_line(&name, &value.to_string_lossy(), args.task_prolog)?)?;
    }
    Ok(())
}

/// The line that sets a variable: for a shell, or for Slurm, which takes the rest of the line as it
/// is.
fn export_line(name: &str, value: &str, task_prolog: bool) -> Result<String> {
    if !task_prolog {
        return Ok(format!("export {name}='{}'", value.replace('\'', r"'\''")));
    }
    if value.contains('\n') {
        return Err(Failure::new(format!("{name}: a task prolog cannot set values of two lines")));
    }
    Ok(format!("export {name}={value}"))
}

/// Runs a program, and checks that it used SRD.
///
/// # Errors
/// The program cannot be started, failed, or used another transport.
pub fn run(args: &RunArgs, stop: &Stop) -> Result {
    let folder = Folder::new()?;
    let Some((program, rest)) = args.command.split_first() else {
        return Err(Failure::usage("name a program after `--`"));
    };
    let mut command = Command::new(program);
    // The host files are removed when the program has ended.
    let (variables, _files) = args.launch.variables(&args.command)?;
    command.args(rest).envs(variables).env(STATS_VARIABLE, &folder.0);
    let child = command.spawn().map_err(|e| {
        let text = format!("cannot start {}: {e}", program.display());
        Failure::with_code(NOT_STARTED, text)
    })?;
    let status = wait(child, stop)?;
    let sum = figures::collect(&folder.0)?;
    if sum.senders > 0 && !args.quiet {
        output::note(&format!("srd: {}", sum.text()));
    }
    match code_of(status) {
        0 if sum.senders == 0 && !args.launch.allow_fallback && !is_query(program) => {
            let opened = if sum.processes > 0 { "opened a device, but sent" } else { "sent" };
            Err(Failure::new(format!(
                "the program {opened} nothing through SRD: it used another transport, or did not \
                 communicate (--allow-fallback accepts this)"
            )))
        }
        0 => Ok(()),
        // The program has reported its error.
        code => Err(Failure::with_code(code, "")),
    }
}

/// Waits for the program to end. A stop request is passed on to it once, as SIGTERM.
fn wait(mut child: Child, stop: &Stop) -> Result<ExitStatus> {
    let mut told = false;
    let mut pause = Duration::from_millis(1);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if stop.asked() && !told {
            told = true;
            let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
            // Fails if the program has ended meanwhile.
            let _ = pid.map(|pid| kill_process(pid, Signal::TERM));
        }
        sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

fn is_query(program: &OsString) -> bool {
    let name = PathBuf::from(program);
    name.file_name().is_some_and(|n| QUERY_PROGRAMS.iter().any(|l| n == *l))
}

/// The exit code as shells report it: 128 plus the signal number for a program that was killed.
fn code_of(status: ExitStatus) -> u8 {
    match (status.code(), status.signal()) {
        (Some(code), _) => u8::try_from(code).unwrap_or(1),
        (None, Some(signal)) => u8::try_from(128 + signal).unwrap_or(1),
        (None, None) => 1,
    }
}

/// A temporary folder for the statistics, removed when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Self> {
        let base = env::temp_dir();
        for n in 0..1000 {
            let path = base.join(format!("srd-run-{}-{n}", std::process::id()));
            match fs::DirBuilder::new().mode(0o700).create(&path) {
                // Writable for all: ranks may run as another user of this host.
                Ok(()) => {
                    fs::set_permissions(&path, fs::Permissions::from_mode(0o1733))?;
                    return Ok(Self(path));
                }
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(Failure::new(format!("{}: {e}", path.display()))),
            }
        }
        Err(Failure::new(format!(
            "too many srd-run folders in {}: delete old ones",
            base.display()
        )))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Remaining files are harmless.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_those_of_shells() {
        assert_eq!(code_of(ExitStatus::from_raw(3 << 8)), 3);
        assert_eq!(code_of(ExitStatus::from_raw(9)), 137);
    }

    #[test]
    fn variables_are_quoted_for_shells_and_not_for_slurm() {
        let line = |task_prolog| export_line("A", "it's; b", task_prolog).unwrap();
        assert_eq!(line(false), r"export A='it'\''s; b'");
        assert_eq!(line(true), "export A=it's; b");
        assert!(export_line("A", "1\n2", true).is_err() && export_line("A", "1\n2", false).is_ok());
    }

    #[test]
    fn query_programs_are_known_by_their_file_name() {
        assert!(is_query(&"/usr/bin/fi_info".into()));
        assert!(!is_query(&"fi_pingpong".into()));
    }
}
