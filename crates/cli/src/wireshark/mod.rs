//! `srd wireshark`: the dissector of the wire format, and captures without seals.

mod unseal;

use crate::failure::{Failure, Result};
use std::{
    env, fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
};

/// The dissector. Its tables are those of `docs/wire.md` and `docs/sealing.md`: `cargo xtask
/// wireshark` compares them.
const DISSECTOR: &str = include_str!("../../assets/srd.lua");
/// Its name in a folder of plugins.
const NAME: &str = "srd.lua";
/// Wireshark's folder of a user's plugins in Lua, below the home folder (`tshark -G folders`).
const PLUGINS: &str = ".local/lib/wireshark/plugins";

const EXAMPLES: &str = "Examples:
  srd wireshark --install                       for the Wireshark and tshark of this user
  srd wireshark > srd.lua                       then: tshark -X lua_script:srd.lua -r FILE
  srd cp --capture c.pcapng FILE HOST: && wireshark c.pcapng
  srd cp --key KEYS --capture c.pcapng --capture-secrets FILE HOST: &&
    srd wireshark --unseal c.pcapng open.pcapng && wireshark open.pcapng

Useful filters: srd.type == 1, srd.flag.ack_request, srd.ack.verdict, srd.path == 17, srd.refused";

/// Arguments of `srd wireshark`.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct WiresharkArgs {
    /// Write the dissector into the user's folder of plugins, or into that of --dir
    #[arg(long)]
    pub install: bool,
    /// Folder of plugins [default: ~/.local/lib/wireshark/plugins]
    #[arg(long, value_name = "DIR", requires = "install")]
    pub dir: Option<PathBuf>,
    /// Write CAPTURE, which holds secrets (--capture-secrets), to the new file FILE with its sealed
    /// packets opened and without the secrets. Handshakes stay closed
    #[arg(long, num_args = 2, value_names = ["CAPTURE", "FILE"], conflicts_with = "install")]
    pub unseal: Option<Vec<PathBuf>>,
}

/// Runs the command.
///
/// # Errors
/// A file cannot be read or written, or is no capture with secrets.
pub fn run(args: &WiresharkArgs) -> Result {
    if let Some([from, to]) = args.unseal.as_deref() {
        return unseal::run(from, to);
    }
    if args.install {
        return install(args.dir.as_deref());
    }
    match io::stdout().lock().write_all(DISSECTOR.as_bytes()) {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Err(Failure::output_closed()),
        other => Ok(other?),
    }
}

fn install(dir: Option<&Path>) -> Result {
    let folder = match (dir, env::home_dir()) {
        (Some(dir), _) => dir.to_path_buf(),
        (None, Some(home)) => home.join(PLUGINS),
        (None, None) => {
            return Err(Failure::usage("HOME is not set: name the folder of plugins by --dir"));
        }
    };
    let file = folder.join(NAME);
    fs::create_dir_all(&folder)
        .and_then(|()| fs::write(&file, DISSECTOR))
        .map_err(|e| Failure::new(format!("cannot write {}: {e}", file.display())))?;
    println!(
        "wrote {}; Wireshark reads it when it starts (Ctrl+Shift+L reads it again)",
        file.display()
    );
    Ok(())
}
