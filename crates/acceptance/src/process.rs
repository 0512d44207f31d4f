//! Starts other programs.

use crate::Result;
use std::{
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
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

/// Cargo's output folder: the one that this program lies in, because the user's configuration may
/// name another one than `target`.
pub fn target_dir() -> PathBuf {
    if let Some(named) = std::env::var_os("CARGO_TARGET_DIR") {
        return PathBuf::from(named);
    }
    let here = std::env::current_exe().ok();
    here.as_deref().and_then(marked).unwrap_or_else(|| root().join("target"))
}

/// The folder above this program that Cargo has marked as one that backups leave out.
fn marked(program: &Path) -> Option<PathBuf> {
    let mut above = program.ancestors();
    above.find(|folder| folder.join("CACHEDIR.TAG").is_file()).map(PathBuf::from)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_folder_is_where_cargo_puts_programs() {
        let folder = std::env::temp_dir().join(format!("srd-marked-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("debug")).unwrap();
        let program = folder.join("debug/xtask");
        assert_ne!(marked(&program), Some(folder.clone()));
        std::fs::write(folder.join("CACHEDIR.TAG"), "").unwrap();
        assert_eq!(marked(&program), Some(folder.clone()));
        std::fs::remove_dir_all(&folder).unwrap();
        // And so for this program, wherever it was built.
        let own = std::env::current_exe().unwrap();
        assert!(own.starts_with(std::path::absolute(target_dir()).unwrap()), "{own:?}");
    }
}
