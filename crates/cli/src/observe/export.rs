//! `srd export`: what processes show, as metrics for Prometheus.

use super::{
    http::{self, Answer},
    metrics,
    text::CONTENT_TYPE,
    totals::Totals,
};
use crate::{
    failure::{Failure, Result},
    output,
    signals::Stop,
    units,
};
use srd_share::status::{StatusList, StatusScope, status_list};
use std::{
    fs::{self, File},
    io::{self, Write},
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process,
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

const EXAMPLES: &str = "Examples:
  srd export --listen 0.0.0.0:9876      serve http://HOST:9876/metrics until Ctrl-C or SIGTERM
  srd export --textfile /var/lib/node_exporter/textfile_collector/srd.prom
                                        write the file for node_exporter every 15 s
  srd export                            write the metrics once, to look at
  srd export --dashboard > srd.json     the dashboard for Grafana, to import

Exported are the processes of this user (root: of all users) in this network namespace: what all
together did, with the names of node_exporter for EFA (node_infiniband_port_data_*, _efa_*), and
what each process, peer and (--paths) path does, with names that begin with srd_. The counters of
all together begin at zero when the exporter starts, and keep what ended processes did.

Exit codes: 0 done or ended by a signal, 1 /dev/shm cannot be read, the file cannot be written or
the address cannot be used, 2 wrong usage.";

/// The dashboard.
pub const DASHBOARD: &str = include_str!("../../assets/grafana.json");

/// How often processes are looked at: what a process does after the last look, when it ends, is not
/// counted in the totals.
const LOOK: Duration = Duration::from_secs(1);
/// Age of what is known of the processes up to which a request gets it: however many ask, the
/// processes are looked at so often at most.
const FRESH: Duration = Duration::from_millis(100);
/// How often it looks whether it is to end.
const STOP_CHECK: Duration = Duration::from_millis(50);

/// Arguments of `srd export`.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ExportArgs {
    /// Serve the metrics by HTTP at this address, as 127.0.0.1:9876 or [::]:9876
    #[arg(long, value_name = "IP:PORT", value_parser = listen_at,
          conflicts_with_all = ["textfile", "dashboard"])]
    listen: Option<SocketAddr>,
    /// Write the metrics to this file again and again; its name must end with .prom
    #[arg(long, value_name = "FILE", value_parser = prom_file, conflicts_with = "dashboard")]
    textfile: Option<PathBuf>,
    /// Time between two writes of the file
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = units::duration,
          requires = "textfile")]
    interval: Duration,
    /// Also export each path to each peer: for 64 paths 448 samples per peer
    #[arg(long)]
    paths: bool,
    /// Export the processes in all network namespaces (containers, `srd net`)
    #[arg(long)]
    all: bool,
    /// Print the dashboard for Grafana
    #[arg(long, conflicts_with_all = ["paths", "all"])]
    dashboard: bool,
}

fn listen_at(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        format!("`{text}` is no address with a port; write it as 127.0.0.1:9876 or [::]:9876")
    })
}

fn prom_file(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    if path.extension().is_none_or(|end| end != "prom") || path.file_stem().is_none() {
        return Err("the name must end with .prom: node_exporter reads no other files".into());
    }
    Ok(path)
}

/// Runs the command.
///
/// # Errors
/// See the exit codes.
pub fn run(args: &ExportArgs, stop: &Stop) -> Result {
    if args.dashboard {
        return output::line(DASHBOARD.trim_end());
    }
    let exporter = Arc::new(Exporter::new(args));
    exporter.look()?;
    match (&args.listen, &args.textfile) {
        (Some(at), _) => serve(&exporter, *at, stop),
        (None, Some(file)) => write_often(&exporter, file, args.interval, stop),
        (None, None) => {
            output::line(exporter.text().trim_end())?;
            Ok(())
        }
    }
}

/// What is exported.
struct Exporter {
    scope: StatusScope,
    paths: bool,
    state: Mutex<State>,
}

/// What is known of the processes.
#[derive(Default)]
struct State {
    list: StatusList,
    totals: Totals,
    /// When they were looked at.
    at: Option<Instant>,
}

impl Exporter {
    fn new(args: &ExportArgs) -> Self {
        let scope = if args.all { StatusScope::Host } else { StatusScope::Network };
        Self { scope, paths: args.paths, state: Mutex::default() }
    }

    /// Looks at the processes.
    fn look(&self) -> Result {
        let list = status_list(self.scope).map_err(|e| {
            Failure::new(format!("cannot read /dev/shm, in which processes show their status: {e}"))
        })?;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.totals.add(&list.rows, self.paths);
        (state.list, state.at) = (list, Some(Instant::now()));
        Ok(())
    }

    /// Looks at the processes unless that was done just now.
    fn look_again(&self) -> Result {
        let at = self.state.lock().unwrap_or_else(PoisonError::into_inner).at;
        if at.is_some_and(|at| at.elapsed() < FRESH) { Ok(()) } else { self.look() }
    }

    fn text(&self) -> String {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let State { list, totals, .. } = &*state;
        metrics::text(&list.rows, totals, list.foreign, self.paths)
    }

    /// Looks again and again until it is to end or `each`, called after every look, fails.
    fn watch(&self, stop: &Stop, mut each: impl FnMut() -> Result) -> Result {
        loop {
            self.look()?;
            each()?;
            let end = Instant::now() + LOOK;
            while Instant::now() < end {
                if stop.asked() {
                    return Ok(());
                }
                thread::sleep(STOP_CHECK);
            }
        }
    }
}

/// Writes the file again and again.
fn write_often(exporter: &Exporter, file: &Path, interval: Duration, stop: &Stop) -> Result {
    let mut due = Instant::now();
    exporter.watch(stop, || {
        if Instant::now() >= due {
            replace(file, &exporter.text()).map_err(|e| {
                Failure::new(format!(
                    "cannot write {}: {e}; see the folder's owner and rights",
                    file.display()
                ))
            })?;
            due = Instant::now() + interval;
        }
        Ok(())
    })
}

/// Replaces a file: a reader finds the old text or the new one, whole.
fn replace(file: &Path, text: &str) -> io::Result<()> {
    // node_exporter reads files that end with .prom only.
    let half = file.with_extension(format!("prom.{}", process::id()));
    // What has the name is a rest, or a link that somebody else has put there: nothing is written
    // through it.
    let _ = fs::remove_file(&half);
    let done = File::options()
        .write(true)
        .create_new(true)
        .open(&half)
        .and_then(|mut new| new.write_all(text.as_bytes()))
        .and_then(|()| fs::rename(&half, file));
    if done.is_err() {
        let _ = fs::remove_file(&half);
    }
    done
}

/// Serves the metrics by HTTP.
fn serve(exporter: &Arc<Exporter>, at: SocketAddr, stop: &Stop) -> Result {
    let fail =
        |e| Failure::new(format!("cannot listen at {at}: {e}; choose another address or port"));
    let listener = TcpListener::bind(at).map_err(fail)?;
    output::line(&format!("http://{}/metrics", listener.local_addr().map_err(fail)?))?;
    let answering = Arc::clone(exporter);
    // It ends with the process.
    thread::spawn(move || {
        http::serve(&listener, move |method, path| answer(&answering, method, path));
    });
    exporter.watch(stop, || Ok(()))
}

fn answer(exporter: &Exporter, method: &str, path: &str) -> Answer {
    let (status, kind, text) = match (method, path) {
        ("GET" | "HEAD", "/metrics") => {
            // A look that fails leaves what the last one found.
            let _ = exporter.look_again();
            ("200 OK", CONTENT_TYPE, exporter.text())
        }
        ("GET" | "HEAD", "/") => {
            let text = "<!DOCTYPE html><title>srd export</title><a href=\"/metrics\">Metrics</a>\n";
            ("200 OK", "text/html; charset=utf-8", text.to_owned())
        }
        ("GET" | "HEAD", _) => ("404 Not Found", "text/plain", "see /metrics\n".to_owned()),
        _ => ("405 Method Not Allowed", "text/plain", "only GET and HEAD\n".to_owned()),
    };
    Answer { status, kind, text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn nothing_is_written_through_a_link() {
        let folder = std::env::temp_dir().join(format!("srd-replace-{}", process::id()));
        fs::create_dir(&folder).unwrap();
        let (file, victim) = (folder.join("srd.prom"), folder.join("victim"));
        fs::write(&victim, "victim").unwrap();
        symlink(&victim, folder.join(format!("srd.prom.{}", process::id()))).unwrap();
        replace(&file, "text").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "text");
        assert_eq!(fs::read_to_string(&victim).unwrap(), "victim");
        fs::remove_dir_all(&folder).unwrap();
    }
}
