//! `srd man` and `srd completions`: manual pages and completions for shells, made from the same
//! definitions as `--help`.

use crate::{
    args::Cli,
    failure::{Failure, Result},
};
use clap::CommandFactory as _;
use clap_complete::Shell;
use std::{
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
};

const EXAMPLES_MAN: &str = "Examples:
  srd man | man -l -                       read the page of `srd`
  srd man --dir ~/.local/share/man/man1    one file for each command: srd.1, srd-serve.1, ...";

const EXAMPLES_COMPLETIONS: &str = "Examples:
  srd completions bash > ~/.local/share/bash-completion/completions/srd
  srd completions zsh > ~/.zfunc/_srd       with ~/.zfunc in the shell's fpath
  srd completions fish > ~/.config/fish/completions/srd.fish";

/// Arguments of `srd man`.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES_MAN)]
pub struct ManArgs {
    /// Write the pages of all commands into this folder, which is made if it does not exist
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
}

/// Arguments of `srd completions`.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES_COMPLETIONS)]
pub struct CompletionsArgs {
    /// The shell
    pub shell: Shell,
}

/// Prints the page of the tool, or writes the pages of all commands.
///
/// # Errors
/// A file cannot be written.
pub fn man(args: &ManArgs) -> Result {
    let command = Cli::command();
    match &args.dir {
        None => {
            let mut page = Vec::new();
            clap_mangen::Man::new(command).render(&mut page)?;
            print(&page)
        }
        Some(dir) => pages(command, dir)
            .map_err(|e| Failure::new(format!("cannot write pages to {}: {e}", dir.display()))),
    }
}

/// Prints what a shell needs to complete commands and options.
///
/// # Errors
/// Standard output cannot be written.
pub fn completions(args: &CompletionsArgs) -> Result {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "srd", &mut text);
    print(&text)
}

fn pages(command: clap::Command, dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    clap_mangen::generate_to(command, dir)
}

/// A reader that has read enough is no failure.
fn print(bytes: &[u8]) -> Result {
    match io::stdout().lock().write_all(bytes) {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Err(Failure::output_closed()),
        other => Ok(other?),
    }
}
