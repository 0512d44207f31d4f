//! Processes with time limits, and temporary folders.

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    sync::{Arc, Mutex},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// Port base of tests that need no particular one: servers and clients take free slots.
pub const PORT_BASE: u16 = 21_000;
/// Time limit of all operations: a stuck copy is given up after 45 s.
pub const LIMIT: Duration = Duration::from_secs(90);

/// A command line of the tool.
pub fn srd(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_srd"));
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Result of a process.
#[derive(Debug)]
pub struct Done {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
    pub took: Duration,
}

impl Done {
    /// Requires success.
    pub fn ok(self) -> Self {
        assert_eq!(self.code, Some(0), "{self:#?}");
        self
    }

    /// Requires an exit code, and an error text with these words.
    pub fn fails(self, code: i32, words: &str) -> Self {
        assert_eq!(self.code, Some(code), "{self:#?}");
        assert!(self.stderr.contains(words), "no {words:?} in {self:#?}");
        assert!(!self.stderr.contains("panicked"), "{self:#?}");
        self
    }
}

/// A process that is killed when dropped.
pub struct Running {
    child: Child,
    stdout: Arc<Mutex<String>>,
    stderr: Arc<Mutex<String>>,
    readers: Vec<JoinHandle<()>>,
    begin: Instant,
}

/// Collects output as it is written.
fn collect(from: impl Read + Send + 'static, into: Arc<Mutex<String>>) -> JoinHandle<()> {
    thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            let mut text = into.lock().unwrap();
            text.push_str(&line);
            text.push('\n');
        }
    })
}

impl Running {
    pub fn start(mut command: Command) -> Self {
        let mut child = command.spawn().unwrap();
        let (stdout, stderr) = (Arc::default(), Arc::default());
        let readers = vec![
            collect(child.stdout.take().unwrap(), Arc::clone(&stdout)),
            collect(child.stderr.take().unwrap(), Arc::clone(&stderr)),
        ];
        Self { child, stdout, stderr, readers, begin: Instant::now() }
    }

    pub fn stdout(&self) -> String {
        self.stdout.lock().unwrap().clone()
    }

    pub fn stderr(&self) -> String {
        self.stderr.lock().unwrap().clone()
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Waits for the end of the process, at most [`LIMIT`].
    pub fn wait(&mut self) -> Done {
        let status = self.exit_status();
        let took = self.begin.elapsed();
        self.readers.drain(..).for_each(|r| r.join().unwrap());
        Done { code: status.code(), stdout: self.stdout(), stderr: self.stderr(), took }
    }

    fn exit_status(&mut self) -> ExitStatus {
        let deadline = Instant::now() + LIMIT;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            let (out, err) = (self.stdout(), self.stderr());
            assert!(Instant::now() < deadline, "hangs; stdout: {out}; stderr: {err}");
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs the tool until it exits.
pub fn run(args: &[&str]) -> Done {
    Running::start(srd(args)).wait()
}

/// Waits until a condition holds, at most [`LIMIT`].
pub fn until(what: &str, mut so: impl FnMut() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !so() {
        assert!(Instant::now() < deadline, "never happened: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// A server of one test.
pub struct Server {
    pub process: Running,
    /// Address and port, as clients write them.
    pub address: String,
    port_base: String,
}

impl Server {
    /// Starts a server in a free slot.
    pub fn start(args: &[&str]) -> Self {
        Self::start_at(PORT_BASE, "127.0.0.1", args)
    }

    pub fn start_at(port_base: u16, ip: &str, args: &[&str]) -> Self {
        Self::adopt(srd(&Self::args(port_base, ip, args)), port_base)
    }

    pub fn args<'a>(port_base: u16, ip: &'a str, args: &[&'a str]) -> Vec<&'a str> {
        // Leaked: a few bytes per test.
        let base: &'static str = port_base.to_string().leak();
        let mut all = vec!["serve", "--ip", ip, "--port-base", base];
        all.extend(args);
        all
    }

    /// Starts a command that becomes a server.
    pub fn adopt(command: Command, port_base: u16) -> Self {
        let mut process = Running::start(command);
        let mut address = None;
        until("the server tells its address", || {
            let out = process.stdout();
            let words = out.lines().find_map(|l| l.strip_prefix("listening on "));
            address = words.and_then(|w| w.split(',').next()).map(str::to_owned);
            assert!(address.is_some() || process.is_running(), "{}", process.stderr());
            address.is_some()
        });
        Self { process, address: address.unwrap(), port_base: port_base.to_string() }
    }

    /// A client's command: `{}` stands for the server's address.
    pub fn client(&self, args: &[&str]) -> Command {
        let args: Vec<String> = args.iter().map(|a| a.replace("{}", &self.address)).collect();
        let mut all = vec![args[0].as_str(), "--port-base", &self.port_base];
        all.extend(args[1..].iter().map(String::as_str));
        srd(&all)
    }

    /// Runs a client until it exits.
    pub fn run(&self, args: &[&str]) -> Done {
        Running::start(self.client(args)).wait()
    }

    /// Ends the server with SIGTERM, and requires success.
    pub fn end(mut self) -> Done {
        self.process.signal(rustix::process::Signal::TERM);
        self.process.wait().ok()
    }
}

/// A temporary folder, removed when the test ends.
pub struct Scratch(pub PathBuf);

impl Scratch {
    pub fn new(name: &str) -> Self {
        // Two tests may use the same name.
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let (pid, number) = (std::process::id(), NEXT.fetch_add(1, Relaxed));
        let path = std::env::temp_dir().join(format!("srd-tool-{name}-{pid}-{number}"));
        fs::create_dir_all(path.join("in")).unwrap();
        Self(path)
    }

    /// The path of a name in the folder.
    pub fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }

    /// Creates a file of non-repeating bytes.
    pub fn file(&self, name: &str, len: usize) -> String {
        let mut x = 0x9e37_79b9_7f4a_7c15_u64 ^ len as u64;
        let mut bytes = Vec::with_capacity(len + 8);
        while bytes.len() < len {
            // xorshift64 (Marsaglia 2003)
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            bytes.extend(x.to_le_bytes());
        }
        bytes.truncate(len);
        let path = self.path(name);
        fs::write(&path, bytes).unwrap();
        path
    }

    /// Names in a subfolder, including hidden ones.
    pub fn names(&self, folder: &str) -> Vec<String> {
        let list = fs::read_dir(self.0.join(folder)).unwrap();
        let mut names: Vec<_> =
            list.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Whether two files have the same content.
pub fn same(a: impl AsRef<Path>, b: impl AsRef<Path>) -> bool {
    fs::read(a).unwrap() == fs::read(b).unwrap()
}
