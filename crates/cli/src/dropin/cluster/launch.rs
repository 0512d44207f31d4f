//! Starts members on other hosts, and talks to them through the launcher's standard streams.

use super::{Answer, Hello, Question};
use crate::{
    dropin::doctor::DoctorArgs,
    failure::{Failure, Result},
    signals::Stop,
};
use std::{
    env,
    io::{BufRead as _, BufReader, Read, Write as _},
    process::{Child, ChildStdin, Command, Stdio},
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{self, Receiver, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

/// Launcher without `--launcher`: never asks for a password, and gives up soon.
const SSH: [&str; 5] = ["ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10"];
/// Longest line of a member; longer ones are cut.
pub const LINE_BYTES_MAX: u64 = 64 << 10;
/// Lines of other programs (greetings of a login) before a member's first.
const FOREIGN_LINES_MAX: usize = 200;
/// Bytes of the error output that are kept.
const ERRORS_BYTES_MAX: usize = 8 << 10;
/// Time for a member to end after its last question.
const END_MAX: Duration = Duration::from_secs(2);
/// Time for the error output of a member that has ended to arrive.
const WORDS_MAX: Duration = Duration::from_secs(1);
/// Interval at which a wait checks for a stop request.
const STOP_CHECK: Duration = Duration::from_millis(100);
/// Exit code of shells for a program that does not exist.
const NOT_FOUND: i32 = 127;

/// How members are started.
pub struct Launcher {
    words: Vec<String>,
    program: String,
    options: String,
}

/// Why a member did not start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lost {
    /// The launcher does not exist, or does not reach the host: its last words.
    Launcher(String),
    /// The tool is not there.
    Program,
    /// The tool is there, but does not know this check: its version, and its last words.
    Version(String, String),
    /// The tool of this version cannot serve there: its last words.
    Failed(String),
}

impl Launcher {
    /// By the options.
    ///
    /// # Errors
    /// The launcher is empty, or this program's path is unknown.
    pub fn new(args: &DoctorArgs) -> Result<Self> {
        let words: Vec<String> = match &args.launcher {
            Some(line) => line.split_whitespace().map(str::to_owned).collect(),
            None => SSH.map(str::to_owned).into(),
        };
        if words.is_empty() {
            return Err(Failure::usage("--launcher: name a program"));
        }
        let program = match &args.program {
            Some(program) => program.clone(),
            None => env::current_exe()?.display().to_string(),
        };
        let mut options = String::new();
        if let Some(name) = &args.interface {
            options.push_str(&format!(" --interface {}", quoted(name)));
        }
        if let Some(dir) = &args.verbs_dir {
            options.push_str(&format!(" --verbs-dir {}", quoted(&dir.display().to_string())));
        }
        Ok(Self { words, program, options })
    }

    #[cfg(test)]
    pub fn for_tests(line: &str) -> Self {
        let words = match line {
            "ssh" => SSH.map(str::to_owned).into(),
            other => other.split_whitespace().map(str::to_owned).collect(),
        };
        Self { words, program: "/opt/s r d/srd".into(), options: " --interface e0".into() }
    }

    /// A command line for a user that runs `line` on a host.
    pub fn shown(&self, host: &str, line: &str) -> String {
        let plain = if self.words == SSH { "ssh".to_owned() } else { self.words.join(" ") };
        format!("{plain} {host} {}", quoted(line))
    }

    /// Starts a member, and waits for its introduction. Returns its version, too.
    ///
    /// # Errors
    /// It did not start.
    pub fn start(&self, host: &str, stop: &Stop) -> Result<(Remote, String, Hello), Lost> {
        let line = self.line(host, env::vars());
        let mut command = Command::new(&self.words[0]);
        command.args(&self.words[1..]).arg(host).arg(line);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = child
            .spawn()
            .map_err(|e| Lost::Launcher(format!("cannot start {}: {e}", self.words[0])))?;
        let mut remote = Remote::new(child);
        let until = Instant::now() + super::START_MAX;
        let mut version = None;
        for _ in 0..FOREIGN_LINES_MAX {
            let Ok(line) = remote.line(until, stop) else { break };
            if let Some(text) = line.strip_prefix("srd ") {
                version.get_or_insert(plain(text));
            } else if let Ok(Answer::Hello(hello)) = serde_json::from_str(&line) {
                return Ok((remote, version.unwrap_or_default(), hello));
            }
        }
        Err(remote.lost(version))
    }

    /// The command line for the other host's shell. The first program tells the version, in words
    /// that every version of the tool has.
    fn line(&self, host: &str, variables: impl Iterator<Item = (String, String)>) -> String {
        let program = quoted(&self.program);
        let mut line = format!("{program} --version && exec env");
        for (name, value) in variables.filter(|(name, _)| is_ours(name)) {
            line.push_str(&format!(" {name}={}", quoted(&value)));
        }
        line + &format!(" {program} doctor --member {}{}", quoted(host), self.options)
    }
}

/// Whether a variable is passed on, as `srd run` does.
fn is_ours(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    name.strip_prefix("SRD_").is_some_and(|rest| rest.chars().all(plain))
}

/// A word for the shell of the other host.
fn quoted(word: &str) -> String {
    let safe = |c: char| c.is_ascii_alphanumeric() || "_-./:,=@%+".contains(c);
    if !word.is_empty() && word.chars().all(safe) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Text of another host without control characters, which would act on the terminal.
pub fn plain(text: &str) -> String {
    text.trim().chars().map(|c| if c.is_control() { ' ' } else { c }).take(400).collect()
}

/// A started member. Dropping it ends the member.
pub struct Remote {
    child: Child,
    questions: Option<ChildStdin>,
    lines: Receiver<String>,
    errors: Arc<Mutex<String>>,
    /// Disconnected when the error output has ended.
    errors_open: Receiver<()>,
}

impl Remote {
    fn new(mut child: Child) -> Self {
        let (tell, lines) = mpsc::channel();
        if let Some(out) = child.stdout.take() {
            thread::spawn(move || lines_of(out, |line| tell.send(line).is_ok()));
        }
        let errors = Arc::new(Mutex::new(String::new()));
        let (open, errors_open) = mpsc::channel();
        if let Some(err) = child.stderr.take() {
            let errors = Arc::clone(&errors);
            thread::spawn(move || {
                let _open: mpsc::Sender<()> = open;
                lines_of(err, |line| {
                    let mut kept = errors.lock().unwrap_or_else(PoisonError::into_inner);
                    if kept.len() + line.len() < ERRORS_BYTES_MAX {
                        kept.push_str(&line);
                        kept.push('\n');
                    }
                    true
                });
            });
        }
        Self { questions: child.stdin.take(), child, lines, errors, errors_open }
    }

    /// The next line.
    fn line(&self, until: Instant, stop: &Stop) -> Result<String, String> {
        loop {
            match self.lines.recv_timeout(STOP_CHECK) {
                Ok(line) => return Ok(line),
                Err(RecvTimeoutError::Disconnected) => return Err(self.last_words()),
                Err(RecvTimeoutError::Timeout) if stop.asked() => return Err("interrupted".into()),
                Err(RecvTimeoutError::Timeout) if Instant::now() >= until => {
                    return Err("no answer from there".into());
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// Asks a question, and waits for the answer at most `patience`.
    ///
    /// # Errors
    /// There is no answer; the text says why.
    pub fn ask(
        &mut self,
        question: &Question,
        patience: Duration,
        stop: &Stop,
    ) -> Result<Answer, String> {
        let text = serde_json::to_string(question).map_err(|e| e.to_string())?;
        let pipe = self.questions.as_mut().ok_or("the member has ended")?;
        let sent = pipe.write_all(format!("{text}\n").as_bytes()).and_then(|()| pipe.flush());
        if sent.is_err() {
            return Err(self.last_words());
        }
        let line = self.line(Instant::now() + patience, stop);
        let answer = line.and_then(|line| serde_json::from_str(&line).map_err(|e| e.to_string()));
        if answer.is_err() {
            // A late answer would be taken for that to the next question.
            self.questions = None;
        }
        answer
    }

    /// Why there is no introduction.
    fn lost(&mut self, version: Option<String>) -> Lost {
        self.questions = None;
        let code = self.code();
        let words = self.last_words();
        match version {
            None if code == Some(NOT_FOUND) => Lost::Program,
            None => Lost::Launcher(words),
            // An older tool refuses the option.
            Some(version) if code == Some(2) && words.contains("--member") => {
                Lost::Version(version, words)
            }
            Some(_) => Lost::Failed(words),
        }
    }

    /// Exit code of the launcher, which is that of the command; ends it if it does not end soon.
    fn code(&mut self) -> Option<i32> {
        let until = Instant::now() + END_MAX;
        while Instant::now() < until {
            match self.child.try_wait() {
                Ok(None) => thread::sleep(Duration::from_millis(10)),
                Ok(Some(status)) => return status.code(),
                Err(_) => return None,
            }
        }
        // Both fail only if it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
        None
    }

    /// What it wrote on its error output: the tool's own line, else the last one.
    fn last_words(&self) -> String {
        // What it wrote before it ended may still be in the pipe.
        let _ = self.errors_open.recv_timeout(WORDS_MAX);
        let said = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        let lines = || said.lines().map(plain).filter(|line| !line.is_empty());
        let own = lines().find(|line| line.starts_with("error: ") || line.starts_with("srd: "));
        own.or_else(|| lines().next_back()).unwrap_or_else(|| "it ended without a word".into())
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        self.questions = None;
        self.code();
    }
}

/// Passes each line on, until `each` returns false.
fn lines_of(from: impl Read, mut each: impl FnMut(String) -> bool) {
    let mut from = BufReader::new(from);
    loop {
        let mut line = Vec::new();
        match from.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {
                let text = String::from_utf8_lossy(&line);
                if !each(text.trim_end().to_owned()) {
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_survives_a_shell_and_has_our_variables() {
        let variables = [("SRD_KEY_FILE", "/a 'b'"), ("HOME", "/root"), ("SRD_X;rm", "1")];
        let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(
            Launcher::for_tests("ssh").line("10.0.0.1", variables.into_iter()),
            [
                r"'/opt/s r d/srd' --version && exec env SRD_KEY_FILE='/a '\''b'\'''",
                "'/opt/s r d/srd' doctor --member 10.0.0.1 --interface e0",
            ]
            .join(" ")
        );
        assert_eq!(
            Launcher::for_tests("ssh").shown("a", "ip link set e0 up"),
            "ssh a 'ip link set e0 up'"
        );
        assert_eq!(Launcher::for_tests("rsh -x").shown("a", "true"), "rsh -x a true");
    }

    #[test]
    fn text_of_other_hosts_does_not_act_on_the_terminal() {
        assert_eq!(plain("\x1b[2Jgone\r\n"), " [2Jgone");
        assert_eq!(plain(&"x".repeat(9000)).len(), 400);
    }
}
