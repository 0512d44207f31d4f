//! Starts other programs.

use crate::Result;
use std::{
    io::{BufRead, BufReader, Write},
    path::PathBuf,
    process::{Command, Stdio},
};

/// The repository's root: the nearest folder above the running package that contains a
/// `Cargo.lock`.
pub fn root() -> PathBuf {
    let here = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    let above = here.ancestors().find(|folder| folder.join("Cargo.lock").is_file());
    above.map_or_else(|| here.clone(), PathBuf::from)
}

/// Cargo's output folder.
pub fn target_dir() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// A command that runs in the repository's root.
pub fn command(program: &str, args: &[&str]) -> Command {
    let mut c = Command::new(program);
    c.args(args).current_dir(root());
    c
}

/// The cargo that runs this program, so that the toolchain is the pinned one.
pub fn cargo(args: &[&str]) -> Command {
    command(&std::env::var("CARGO").unwrap_or_else(|_| "cargo".into()), args)
}

/// The command line as text, for messages.
fn shown(c: &Command) -> String {
    let program = PathBuf::from(c.get_program());
    let name = program.file_name().unwrap_or(c.get_program()).to_string_lossy().into_owned();
    c.get_args().fold(name, |all, arg| format!("{all} {}", arg.to_string_lossy()))
}

/// Runs a command with this process's standard streams; fails unless it succeeds.
pub fn run(c: &mut Command) -> Result {
    println!("$ {}", shown(c));
    let status = c.status().map_err(|e| format!("cannot start `{}`: {e}", shown(c)))?;
    if status.success() { Ok(()) } else { Err(format!("`{}` ended with {status}", shown(c))) }
}

/// Runs a command and returns its standard output.
pub fn output(c: &mut Command) -> Result<String> {
    let out = c.output().map_err(|e| format!("cannot start `{}`: {e}", shown(c)))?;
    if out.status.success() {
        return Ok(String::from_utf8_lossy(&out.stdout).into_owned());
    }
    let stderr = String::from_utf8_lossy(&out.stderr);
    Err(format!("`{}` ended with {}:\n{}", shown(c), out.status, stderr.trim_end()))
}

/// Runs a command, prints its standard output while it is written, and passes each line to `seen`.
pub fn watch(c: &mut Command, mut seen: impl FnMut(&str)) -> Result {
    println!("$ {}", shown(c));
    let fail = |e| format!("cannot run `{}`: {e}", shown(c));
    let mut child = Command::new(c.get_program());
    child.args(c.get_args()).stdout(Stdio::piped());
    child.envs(c.get_envs().filter_map(|(name, value)| Some((name, value?))));
    if let Some(dir) = c.get_current_dir() {
        child.current_dir(dir);
    }
    let mut child = child.spawn().map_err(fail)?;
    let stdout = child.stdout.take().ok_or_else(|| fail(std::io::ErrorKind::BrokenPipe.into()))?;
    let mut shown_lines = std::io::stdout().lock();
    for line in BufReader::new(stdout).lines() {
        let line = line.map_err(fail)?;
        writeln!(shown_lines, "{line}").map_err(fail)?;
        seen(&line);
    }
    let status = child.wait().map_err(fail)?;
    if status.success() { Ok(()) } else { Err(format!("`{}` ended with {status}", shown(c))) }
}
