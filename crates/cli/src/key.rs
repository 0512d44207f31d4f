//! `srd key`: makes, shows and changes the key file of a cluster.

use crate::{
    dropin::KEY_VARIABLE,
    failure::{Failure, Result},
    output,
};
use srd::seal::{KeyFile, KeyFileError, Rotation, key_file_new, key_file_rotate};
use std::path::PathBuf;

const EXAMPLES: &str = "Examples:
  srd key new ~/srd.keys                     makes a file with one key; copy it to all hosts
  SRD_KEY_FILE=~/srd.keys srd serve          serves those who have it
  srd cp --key ~/srd.keys a.bin host:a.bin   copies over sealed packets
  srd key rotate ~/srd.keys                  does the next step to a new key

The file stays readable by its owner alone (mode 0600). Who has it reads the traffic and can pose
as any host: copy it over secure ways only, for example scp -p.";

/// The commands on key files.
#[derive(clap::Subcommand, Debug)]
#[command(after_help = EXAMPLES)]
pub enum KeyCommand {
    /// Make a key file with one random key. An existing file is never touched
    New(KeyArgs),
    /// Show the numbers and fingerprints of the keys, never a key
    Show(KeyArgs),
    /// Do the next of three steps to a new key: add it, use it for sending, drop the old ones.
    /// Between two steps the file must reach all hosts; running processes read it within a second.
    /// Running jobs go on with the new key; only requests that do not end within 10 seconds of the
    /// last step, such as messages whose receiver posts no receive, fail
    Rotate(KeyArgs),
}

/// The file.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct KeyArgs {
    /// The key file [default: SRD_KEY_FILE]
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,
}

impl KeyArgs {
    fn file(&self) -> Result<PathBuf> {
        let variable = srd::setting(KEY_VARIABLE).filter(|path| !path.is_empty());
        self.file
            .clone()
            .or(variable.map(PathBuf::from))
            .ok_or_else(|| Failure::usage(format!("name the key file, here or in {KEY_VARIABLE}")))
    }
}

/// Runs a command.
///
/// # Errors
/// The file cannot be read or written; the text says what to do.
pub fn run(command: &KeyCommand) -> Result {
    let fail = |e: KeyFileError| Failure::usage(e.to_string());
    match command {
        KeyCommand::New(args) => {
            let path = args.file()?;
            key_file_new(&path).map_err(fail)?;
            let path = path.display();
            output::line(&format!("made {path} with key 1; copy it to all hosts (scp -p)"))
        }
        KeyCommand::Show(args) => {
            let file = KeyFile::open(&args.file()?).map_err(fail)?;
            for (i, id) in file.ring().ids().enumerate() {
                let Some(key) = file.ring().accepted(id) else { continue };
                let fingerprint = u32::from_be_bytes(key.fingerprint());
                let purpose = if i == 0 { "sends and accepts" } else { "accepts" };
                output::line(&format!("key {id}: {purpose}, fingerprint {fingerprint:08x}"))?;
            }
            Ok(())
        }
        KeyCommand::Rotate(args) => {
            let step = key_file_rotate(&args.file()?).map_err(fail)?;
            output::line(&match step {
                Rotation::Added(id) => format!(
                    "step 1 of 3: key {id} is accepted; copy the file to all hosts, then rotate \
                     again"
                ),
                Rotation::Promoted(id) => format!(
                    "step 2 of 3: key {id} is used for sending; copy the file to all hosts, then \
                     rotate again"
                ),
                Rotation::Retired(id) => format!(
                    "step 3 of 3: only key {id} is left; copy the file to all hosts. \
                     Running jobs go on with it"
                ),
            })
        }
    }
}
