//! `demo`: a real file goes from one process to another over 64 paths that lose packets.

use crate::{
    Result,
    args::Args,
    process::{command, run},
    tools,
};
use std::{
    fs::File,
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
    process::{Child, Stdio},
    time::Instant,
};

/// Address of both processes: the loopback interface.
const HOST: &str = "127.0.0.1";
/// Name of the copy.
const NAME: &str = "copy.bin";

/// Command lines of the tool, all in one place.
fn serve_args<'a>(folder: &'a str, loss: &'a str) -> Vec<&'a str> {
    vec!["serve", "--dir", folder, "--ip", HOST, "--port-slot", "auto", "--loss", loss]
}

/// See [`serve_args`]. `host` is what the server said it listens on.
fn copy_args<'a>(file: &'a str, to: &'a str, paths: &'a str, loss: &'a str) -> Vec<&'a str> {
    vec!["cp", file, to, "--paths", paths, "--loss", loss]
}

/// `demo [--mib N] [--loss SHARE] [--paths N]`.
pub fn run_command(args: &mut Args) -> Result {
    let mib: u64 = args.value("--mib")?.unwrap_or(64);
    let loss: f64 = args.value("--loss")?.unwrap_or(0.01);
    let paths: u32 = args.value("--paths")?.unwrap_or(64);
    args.end()?;
    if !(0.0..=0.5).contains(&loss) {
        return Err("--loss is a share of the packets, from 0 to 0.5".into());
    }
    let program = tools::build_release("srd-cli", "srd")?.to_string_lossy().into_owned();
    let folder = Folder::make()?;
    let original = folder.0.join("original.bin");
    random_file(&original, mib << 20)?;
    let inbox = folder.0.join("inbox");
    std::fs::create_dir(&inbox).map_err(|e| format!("cannot make {}: {e}", inbox.display()))?;

    let loss = loss.to_string();
    let server = Server::start(&program, &inbox.to_string_lossy(), &loss)?;
    println!("copying {mib} MiB over {paths} paths; each side loses {loss} of its packets");
    let to = format!("{}:{NAME}", server.address);
    let start = Instant::now();
    let from = original.to_string_lossy();
    run(&mut command(&program, &copy_args(&from, &to, &paths.to_string(), &loss)))?;
    let seconds = start.elapsed().as_secs_f64();
    drop(server);

    let copy = inbox.join(NAME);
    let bytes = compare(&original, &copy)?;
    let rate = bytes as f64 / 1e6 / seconds;
    println!("\nThe copy is identical: {bytes} bytes in {seconds:.2} s, {rate:.0} MB/s.");
    Ok(())
}

/// A folder of our own that goes away at the end.
struct Folder(PathBuf);

impl Folder {
    fn make() -> Result<Self> {
        let path = std::env::temp_dir().join(format!("srd-demo-{}", std::process::id()));
        std::fs::create_dir(&path).map_err(|e| format!("cannot make {}: {e}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(e) = std::fs::remove_dir_all(&self.0) {
            eprintln!("xtask: cannot remove {}: {e}", self.0.display());
        }
    }
}

/// The receiving process; ended when dropped.
struct Server {
    child: Child,
    /// What it said it listens on.
    address: String,
}

impl Server {
    /// Starts it and waits for the line that tells its address.
    fn start(program: &str, folder: &str, loss: &str) -> Result<Self> {
        let fail = |e: std::io::Error| format!("cannot start `srd serve`: {e}");
        let mut c = command(program, &serve_args(folder, loss));
        let mut child = c.stdout(Stdio::piped()).spawn().map_err(fail)?;
        let stdout = child.stdout.take();
        let mut server = Self { child, address: String::new() };
        let mut lines = BufReader::new(stdout.ok_or("`srd serve` has no output")?).lines();
        let found = lines.by_ref().map_while(std::io::Result::ok).find_map(|line| {
            println!("{line}");
            address_of(&line)
        });
        server.address = found.ok_or("`srd serve` ended before it told its address")?;
        // Somebody must read on, or the server would wait for its reader one day.
        std::thread::spawn(move || lines.map_while(std::io::Result::ok).for_each(drop));
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing to kill.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The first word of a line that is an address of this host with a port.
fn address_of(line: &str) -> Option<String> {
    let word = |w: &str| w.trim_end_matches([',', '.', ';']).to_string();
    line.split_whitespace().map(word).find(|w| {
        w.strip_prefix(HOST)
            .and_then(|w| w.strip_prefix(':'))
            .is_some_and(|port| port.parse::<u16>().is_ok())
    })
}

fn random_file(path: &Path, bytes: u64) -> Result {
    let fail = |e| format!("cannot fill {}: {e}", path.display());
    let source = File::open("/dev/urandom").map_err(fail)?;
    let mut file = File::create(path).map_err(fail)?;
    std::io::copy(&mut source.take(bytes), &mut file).map_err(fail)?;
    Ok(())
}

/// Compares two files byte by byte; their length.
fn compare(a: &Path, b: &Path) -> Result<u64> {
    let open = |path: &Path| {
        let file = File::open(path).map_err(|e| format!("cannot open {}: {e}", path.display()))?;
        Ok::<_, String>(BufReader::with_capacity(1 << 20, file))
    };
    let (mut left, mut right) = (open(a)?, open(b)?);
    let mut at = 0;
    loop {
        let read = |e| format!("cannot read the copy back: {e}");
        let (l, r) = (left.fill_buf().map_err(read)?, right.fill_buf().map_err(read)?);
        let n = l.len().min(r.len());
        if n == 0 {
            let same = l.len() == r.len();
            return same.then_some(at).ok_or_else(|| format!("lengths differ beyond byte {at}"));
        }
        if let Some(first) = (0..n).find(|&i| l[i] != r[i]) {
            return Err(format!("the copy differs at byte {}", at + first as u64));
        }
        left.consume(n);
        right.consume(n);
        at += n as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_address() {
        let line = "listening on 127.0.0.1:18703, 64 paths";
        assert_eq!(address_of(line).as_deref(), Some("127.0.0.1:18703"));
        assert_eq!(address_of("serving 127.0.0.1"), None);
    }

    #[test]
    fn compares_files() {
        let folder = std::env::temp_dir().join(format!("srd-compare-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let a = file("a", "hello");
        assert_eq!(compare(&a, &file("b", "hello")), Ok(5));
        assert!(compare(&a, &file("c", "hellO")).unwrap_err().contains("byte 4"));
        assert!(compare(&a, &file("d", "hell")).unwrap_err().contains("lengths"));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
