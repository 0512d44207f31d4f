//! `demo`: MPI on a fabric (`mpi::demo`), the tool's own demonstration, or a copy of a file between
//! two processes over 64 paths that lose packets.

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
    process::{Child, Command, Stdio},
    thread::JoinHandle,
    time::{Duration, Instant},
};

/// Address of both processes: the loopback interface.
const HOST: &str = "127.0.0.1";
/// File name of the copy.
const NAME: &str = "copy.bin";

/// Parameters of the copy.
struct Plan {
    mib: u64,
    /// Share of its packets that each side drops.
    loss: String,
    paths: String,
    /// Payload per packet: that of an Ethernet link instead of the loopback interface's 64 KiB.
    mtu: String,
}

impl Plan {
    /// Arguments of the server. With `--once` it ends after one copy.
    fn serve<'a>(&'a self, folder: &'a str) -> Vec<&'a str> {
        let mut args = vec!["serve", "--once", "--dir", folder, "--ip", HOST];
        args.extend(self.both());
        args
    }

    /// Arguments of the client. `to` is the address that the server printed, with the name of the
    /// copy.
    fn copy<'a>(&'a self, file: &'a str, to: &'a str) -> Vec<&'a str> {
        let mut args = vec!["cp", file, to];
        args.extend(self.both());
        args
    }

    fn both(&self) -> [&str; 6] {
        ["--paths", &self.paths, "--mtu", &self.mtu, "--loss", &self.loss]
    }
}

/// `demo`, `demo --net`, or `demo --copy [--mib N] [--loss SHARE] [--paths N] [--mtu BYTES]`.
pub fn run_command(args: &mut Args) -> Result {
    if args.flag("--net") {
        args.end()?;
        let program = tools::build_tool()?;
        return run(&mut command(&program.to_string_lossy(), &["net", "demo"]));
    }
    if !args.flag("--copy") {
        args.end()?;
        return crate::mpi::demo::run(true);
    }
    let loss: f64 = args.value("--loss")?.unwrap_or(0.01);
    if !(0.0..=0.5).contains(&loss) {
        return Err("--loss is a share of the packets, from 0 to 0.5".into());
    }
    let plan = Plan {
        mib: args.value("--mib")?.unwrap_or(64),
        loss: loss.to_string(),
        paths: args.value::<u16>("--paths")?.unwrap_or(64).to_string(),
        mtu: args.value::<u16>("--mtu")?.unwrap_or(1408).to_string(),
    };
    args.end()?;
    show(&plan)
}

/// The gate's run: the MPI demonstration where a fabric can be built, and a small copy.
pub fn gate() -> Result {
    crate::mpi::demo::run(false)?;
    let text = String::from;
    show(&Plan { mib: 16, loss: text("0.01"), paths: text("64"), mtu: text("1408") })
}

fn show(plan: &Plan) -> Result {
    let program = tools::build_tool()?.to_string_lossy().into_owned();
    let folder = Folder::make()?;
    let original = folder.0.join("original.bin");
    random_file(&original, plan.mib << 20)?;
    let inbox = folder.0.join("inbox");
    std::fs::create_dir(&inbox).map_err(|e| format!("cannot make {}: {e}", inbox.display()))?;

    let inbox_name = inbox.to_string_lossy();
    let server = Server::start(command(&program, &plan.serve(&inbox_name)))?;
    let Plan { mib, loss, paths, mtu } = plan;
    println!("\n{mib} MiB in packets of {mtu} bytes over {paths} paths; each side loses {loss}");
    let to = format!("{}:{NAME}", server.address);
    let from = original.to_string_lossy();
    let start = Instant::now();
    run(&mut command(&program, &plan.copy(&from, &to)))?;
    let seconds = start.elapsed().as_secs_f64();
    server.end();

    let bytes = compare(&original, &inbox.join(NAME))?;
    let rate = bytes as f64 / 1e6 / seconds;
    println!("\nThe copy is identical: {bytes} bytes in {seconds:.2} s, {rate:.0} MB/s.");
    Ok(())
}

/// A temporary folder, removed when dropped.
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

/// The receiving process, killed when dropped.
struct Server {
    child: Child,
    /// The address that the server printed.
    address: String,
    /// Prints the server's output until it ends.
    reader: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts the server and waits for the line with its address.
    fn start(mut c: Command) -> Result<Self> {
        let child = c.stdout(Stdio::piped()).spawn();
        let mut child = child.map_err(|e| format!("cannot start `srd serve`: {e}"))?;
        let stdout = child.stdout.take();
        let mut server = Self { child, address: String::new(), reader: None };
        let stdout = stdout.ok_or("`srd serve` has no output")?;
        let mut lines = BufReader::new(stdout).lines().map_while(std::io::Result::ok);
        let show = |line: &str| println!("server: {line}");
        let found = lines.by_ref().find_map(|line| {
            show(&line);
            address_of(&line)
        });
        server.address = found.ok_or("`srd serve` ended before it printed its address")?;
        server.reader = Some(std::thread::spawn(move || lines.for_each(|line| show(&line))));
        Ok(server)
    }

    /// Waits for the server's summary; the server ends by itself after one copy.
    fn end(mut self) {
        for _ in 0..50 {
            if !matches!(self.child.try_wait(), Ok(None)) {
                break;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Fails if the server has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
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

/// Compares two files byte by byte; returns their length.
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
