//! `srd run` and `srd env`.

use super::{HostFiles, LeadArgs, STATS_VARIABLE, figures};
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

A program that ends well but sent nothing through SRD makes `srd run` fail: it would have used
something else without a word. --allow-fallback turns that off.

Exit codes: that of the program; 1 if nothing went through SRD; 127 if it cannot be started.";

/// Exit code of shells: the program cannot be started.
const NOT_STARTED: u8 = 127;

/// Programs that look but do not talk: silence is no failure of theirs.
const LOOKERS: [&str; 5] = ["fi_info", "ibv_devices", "ibv_devinfo", "ucx_info", "ompi_info"];

/// Arguments of `srd run`.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct RunArgs {
    /// What leads programs to the device.
    #[command(flatten)]
    pub lead: LeadArgs,
    /// Say nothing about what went through SRD
    #[arg(long)]
    pub quiet: bool,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    pub command: Vec<OsString>,
}

/// Arguments of `srd env`.
#[derive(clap::Args, Debug)]
pub struct EnvArgs {
    /// What leads programs to the device.
    #[command(flatten)]
    pub lead: LeadArgs,
}

/// Prints what `srd run` sets, for a shell: `eval "$(srd env)"`.
///
/// # Errors
/// The libraries are nowhere.
pub fn print_env(args: &EnvArgs) -> Result {
    let (variables, files) = args.lead.variables()?;
    // The shell's programs read them.
    files.into_iter().for_each(HostFiles::keep);
    for (name, value) in variables {
        let quoted = value.to_string_lossy().replace('\'', r"'\''");
        output::line(&format!("export {name}='{quoted}'"))?;
    }
    Ok(())
}

/// Runs a program.
///
/// # Errors
/// It cannot be started, it ended badly, or it used something else than SRD.
pub fn run(args: &RunArgs, stop: &Stop) -> Result {
    let folder = Folder::new()?;
    let Some((program, rest)) = args.command.split_first() else {
        return Err(Failure::usage("name a program after `--`"));
    };
    let mut command = Command::new(program);
    // The files go when the program has ended.
    let (variables, _files) = args.lead.variables()?;
    command.args(rest).envs(variables).env(STATS_VARIABLE, &folder.0);
    let child = command.spawn().map_err(|e| {
        let text = format!("cannot start {}: {e}", program.display());
        Failure::with_code(NOT_STARTED, text)
    })?;
    let status = wait(child, stop)?;
    let sum = figures::collect(&folder.0)?;
    if sum.speakers > 0 && !args.quiet {
        output::note(&format!("srd: {}", sum.text()));
    }
    match code_of(status) {
        0 if sum.speakers == 0 && !args.lead.allow_fallback && !looks_only(program) => {
            let opened = if sum.processes > 0 { "opened a device, but sent" } else { "sent" };
            Err(Failure::new(format!(
                "the program {opened} nothing through SRD: it used something else, or did not \
                 communicate (--allow-fallback accepts that)"
            )))
        }
        0 => Ok(()),
        // The program has said what is wrong.
        code => Err(Failure::with_code(code, "")),
    }
}

/// Waits for the program. Asked to end, it asks the program, which ends in its own way.
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
            // It may have ended just now.
            let _ = pid.map(|pid| kill_process(pid, Signal::TERM));
        }
        sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

fn looks_only(program: &OsString) -> bool {
    let name = PathBuf::from(program);
    name.file_name().is_some_and(|n| LOOKERS.iter().any(|l| n == *l))
}

/// The exit code as shells have it: 128 and the signal's number for a program that was killed.
fn code_of(status: ExitStatus) -> u8 {
    match (status.code(), status.signal()) {
        (Some(code), _) => u8::try_from(code).unwrap_or(1),
        (None, Some(signal)) => u8::try_from(128 + signal).unwrap_or(1),
        (None, None) => 1,
    }
}

/// A folder of our own for the figures, gone at the end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Self> {
        let base = env::temp_dir();
        for n in 0..1000 {
            let path = base.join(format!("srd-run-{}-{n}", std::process::id()));
            match fs::DirBuilder::new().mode(0o700).create(&path) {
                // Ranks may run as another user of this host.
                Ok(()) => {
                    fs::set_permissions(&path, fs::Permissions::from_mode(0o1733))?;
                    return Ok(Self(path));
                }
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(Failure::new(format!("{}: {e}", path.display()))),
            }
        }
        Err(Failure::new(format!("{} is full of our folders", base.display())))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left behind does no harm.
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
    fn lookers_are_known_by_their_name_alone() {
        assert!(looks_only(&"/usr/bin/fi_info".into()));
        assert!(!looks_only(&"fi_pingpong".into()));
    }
}
