//! libfabric's own tests, from a folder of built programs given on the command line: the quick set
//! without tests of connections, which EFA does not support, and the tests that libfabric has only
//! for EFA. Each test runs on SRD and on libfabric's `tcp` provider.

use super::{
    fabric::{Fabric, Said},
    suite::{End, Row, quoted},
};
use crate::Result;
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Time limit of one test in seconds, as in fabtests' own script.
const TEST_SECONDS_MAX: u32 = 120;
/// Exit codes of tests whose requirements the provider does not meet: `FI_ENODATA` and `FI_ENOSYS`.
const NOT_THERE: [i32; 2] = [61, 38];
/// Expected exit code of tests with names that cannot be resolved.
const NO_DATA: i32 = 61;

/// Programs without a peer.
const ALONE: [&str; 8] = [
    "fi_getinfo_test -s SERVER GOOD",
    "fi_av_test -g GOOD -n 1 -s SERVER -e rdm",
    "fi_av_test -g GOOD -n 1 -s SERVER -e dgram",
    "fi_dom_test -n 2",
    "fi_eq_test",
    "fi_cq_test",
    "fi_mr_test",
    "fi_cntr_test",
];

/// Programs that must reject a name that does not exist.
const REFUSING: [&str; 2] = ["fi_dgram g00n13s", "fi_rdm g00n13s"];

/// Programs with a server and a client.
const PAIRS: [&str; 50] = [
    "fi_av_xfer -e rdm",
    "fi_av_xfer -e dgram",
    "fi_cq_data -e rdm",
    "fi_cq_data -e dgram",
    "fi_dgram",
    "fi_dgram_waitset",
    "fi_poll -t queue",
    "fi_poll -t counter",
    "fi_rdm",
    "fi_rdm -U",
    "fi_rdm_rma_event",
    "fi_rdm_rma_trigger",
    "fi_shared_ctx",
    "fi_shared_ctx -e dgram",
    "fi_rdm_tagged_peek",
    "fi_scalable_ep",
    "fi_rdm_shared_av",
    "fi_multi_mr -e rdm -V",
    "fi_multi_ep -e rdm -v",
    "fi_recv_cancel -e rdm -V",
    "fi_unexpected_msg -e rdm -I 10",
    "fi_msg_inject -A inject -v",
    "fi_msg_inject -N -A inject -v",
    "fi_msg_inject -A inj_complete -v",
    "fi_msg_inject -N -A inj_complete -v",
    "fi_bw -e rdm -v -T 1",
    "fi_bw -e rdm -v -T 1 -U",
    "fi_rdm_multi_client -C 10 -I 5",
    "fi_rdm_multi_client -C 10 -I 5 -U",
    "fi_rma_bw -e rdm -o write -I 5",
    "fi_rma_bw -e rdm -o write -I 5 -U",
    "fi_rma_bw -e rdm -o read -I 5",
    "fi_rma_bw -e rdm -o read -I 5 -U",
    "fi_rma_bw -e rdm -o writedata -I 5",
    "fi_rma_bw -e rdm -o writedata -I 5 -U",
    "fi_rdm_atomic -I 5 -o all",
    "fi_rdm_atomic -I 5 -o all -U",
    "fi_rdm_cntr_pingpong -I 5",
    "fi_multi_recv -e rdm -I 5",
    "fi_rdm_pingpong -I 5",
    "fi_rdm_pingpong -I 5 -U",
    "fi_rdm_pingpong -I 5 -v",
    "fi_rdm_pingpong -I 5 -v -U",
    "fi_rdm_tagged_pingpong -I 5",
    "fi_rdm_tagged_pingpong -I 5 -v -U",
    "fi_rdm_tagged_bw -I 5",
    "fi_rdm_tagged_bw -I 5 -v",
    "fi_rdm_tagged_bw -I 5 -v -U",
    "fi_dgram_pingpong -I 5",
    "fi_dgram_pingpong -I 5 -k",
];

/// Tests that libfabric has only for EFA: receivers that are not ready.
const EFA_ALONE: [&str; 27] = [
    "fi_efa_rnr_read_cq_error",
    "fi_efa_rnr_queue_resend -c 0 -S 1048576",
    "fi_efa_rnr_queue_resend -c 0 -o read -S 4",
    "fi_efa_rnr_queue_resend -c 0 -A read -S 4",
    "fi_efa_rnr_queue_resend -c 0 -U -S 4",
    "fi_efa_rnr_queue_resend -c 1 -S 4",
    "fi_efa_rnr_queue_resend -c 1 -T -S 4",
    "fi_efa_rnr_queue_resend -c 1 -S 16384",
    "fi_efa_rnr_queue_resend -c 1 -T -S 16384",
    "fi_efa_rnr_queue_resend -c 1 -S 1048576",
    "fi_efa_rnr_queue_resend -c 1 -T -S 1048576",
    "fi_efa_rnr_queue_resend -c 1 -o write -S 4",
    "fi_efa_rnr_queue_resend -c 1 -o write -S 1048576",
    "fi_efa_rnr_queue_resend -c 1 -o read -S 4",
    "fi_efa_rnr_queue_resend -c 1 -o read -S 1048576",
    "fi_efa_rnr_queue_resend -c 1 -A write -S 4",
    "fi_efa_rnr_queue_resend -c 1 -A read -S 4",
    "fi_efa_rnr_queue_resend -c 1 -A cswap -S 4",
    "fi_efa_rnr_queue_resend -c 1 -U -S 4",
    "fi_efa_rnr_queue_resend -c 1 -T -U -S 4",
    "fi_efa_rnr_queue_resend -c 1 -U -S 16384",
    "fi_efa_rnr_queue_resend -c 1 -T -U -S 16384",
    "fi_efa_rnr_queue_resend -c 1 -U -S 1048576",
    "fi_efa_rnr_queue_resend -c 1 -T -U -S 1048576",
    "fi_efa_rnr_queue_resend -c 1 -o write -U -S 4",
    "fi_efa_rnr_queue_resend -c 1 -o write -U -S 1048576",
    "fi_efa_rnr_queue_resend -c 1 -A write -U -S 4",
];

/// The folder with the programs.
pub struct Fabtests(PathBuf);

/// Provider of a test. Each has its own two hosts, so that both can run at the same time.
#[derive(Clone, Copy, PartialEq)]
enum On {
    Srd,
    Tcp,
}

impl On {
    /// The hosts, one on each leaf.
    fn nodes(self) -> [&'static str; 2] {
        match self {
            Self::Srd => ["h0x0", "h1x0"],
            Self::Tcp => ["h0x1", "h1x1"],
        }
    }

    /// Addresses of the hosts.
    fn addresses(self) -> [&'static str; 2] {
        match self {
            Self::Srd => ["10.1.0.10", "10.1.1.10"],
            Self::Tcp => ["10.1.0.11", "10.1.1.11"],
        }
    }
}

impl Fabtests {
    /// Checks whether the programs exist.
    ///
    /// # Errors
    /// They do not exist.
    pub fn at(folder: &Path) -> Result<Self> {
        let shown = folder.display();
        let folder = fs::canonicalize(folder).map_err(|e| format!("{shown}: {e}"))?;
        if !folder.join("fi_rdm_pingpong").is_file() {
            return Err(format!(
                "--fabtests-bin: {shown} has no fi_rdm_pingpong; build libfabric's fabtests with \
                 ./autogen.sh && ./configure --prefix=DIR && make install, and name DIR/bin"
            ));
        }
        Ok(Self(folder))
    }

    /// Version of libfabric; fabtests have no version of their own.
    pub fn version(&self) -> String {
        super::version("fi_pingpong")
    }

    /// Runs all tests between two hosts of the fabric.
    ///
    /// # Errors
    /// The tests cannot be started.
    pub fn run(&self, f: &Fabric) -> Result<Vec<Row>> {
        let mut rows = Vec::new();
        for test in ALONE {
            self.one(test, |on| self.alone(f, test, on, false), &mut rows)?;
        }
        for test in REFUSING {
            self.one(test, |on| self.alone(f, test, on, true), &mut rows)?;
        }
        for test in PAIRS.iter().chain(&EFA_ALONE) {
            self.one(test, |on| self.pair(f, test, on), &mut rows)?;
        }
        Ok(rows)
    }

    /// Runs one test on both providers.
    fn one(
        &self,
        test: &str,
        run: impl Fn(On) -> Result<(End, String)> + Sync,
        rows: &mut Vec<Row>,
    ) -> Result {
        if !self.0.join(test.split(' ').next().unwrap_or(test)).is_file() {
            println!("  none   {test}: these fabtests do not have it");
            return Ok(());
        }
        let tcp = !EFA_ALONE.contains(&test);
        let (srd, beside) = std::thread::scope(|s| {
            let other = tcp.then(|| s.spawn(|| run(On::Tcp)));
            let srd = run(On::Srd);
            (srd, other.map(|other| other.join()))
        });
        let (end, said) = srd?;
        let beside = match beside {
            Some(Ok(ended)) => Some(ended?.0),
            Some(Err(_)) => return Err(format!("{test}: the thread of its run ended early")),
            None => None,
        };
        let said = said.replace(&format!("{}/", self.0.display()), "");
        println!("  {end}   {test}  {}", if end == End::Pass { "" } else { &said });
        rows.push(Row { name: test.to_owned(), end, beside, said });
        Ok(())
    }

    /// Command line of a test, under `srd run` for SRD.
    fn line(&self, f: &Fabric, test: &str, on: On, rest: &str) -> String {
        let [server, client] = on.addresses();
        let test = test.replace("SERVER", server).replace("GOOD", client);
        let (program, options) = test.split_once(' ').unwrap_or((&test, ""));
        let program = quoted(&self.0.join(program).display().to_string());
        match on {
            // Tests without a peer send nothing, nor do tests that end early.
            On::Srd => f.under("--allow-fallback", &format!("{program} {options} -p efa {rest}")),
            On::Tcp => format!("{program} {options} -p tcp {rest}"),
        }
    }

    fn alone(&self, f: &Fabric, test: &str, on: On, refusing: bool) -> Result<(End, String)> {
        let said = f.plain(on.nodes()[0], TEST_SECONDS_MAX, &self.line(f, test, on, ""))?;
        Ok(match said.code {
            NO_DATA if refusing => (End::Pass, String::new()),
            _ if refusing => (End::Fail, last(&said)),
            0 => (End::Pass, String::new()),
            code if NOT_THERE.contains(&code) => (End::Skip, last(&said)),
            _ => (End::Fail, last(&said)),
        })
    }

    fn pair(&self, f: &Fabric, test: &str, on: On) -> Result<(End, String)> {
        // EFA addresses are not IP addresses, so the tests exchange them over a TCP connection.
        let [a, b] = on.addresses();
        let (server, client) = match on {
            On::Srd => ("-E".to_owned(), format!("-E {a}")),
            On::Tcp => (format!("-s {a}"), format!("-s {b} {a}")),
        };
        let (server, client) = (self.line(f, test, on, &server), self.line(f, test, on, &client));
        let run = || f.plain_pair(on.nodes(), TEST_SECONDS_MAX, [&server, &client]);
        let mut said = run()?;
        if came_early(&said) {
            said = run()?;
        }
        let [server, client] = said;
        let codes = [server.code, client.code];
        Ok(if codes == [0, 0] {
            (End::Pass, String::new())
        } else if codes.iter().all(|code| NOT_THERE.contains(code)) {
            (End::Skip, last(&client))
        } else {
            (End::Fail, format!("server: {}; client: {}", last(&server), last(&client)))
        })
    }
}

/// On a busy machine a client may start before its server listens: the client fails at once and the
/// server waits until its time limit. Such a test is repeated.
fn came_early([server, client]: &[Said; 2]) -> bool {
    server.code == 124 && client.code == 1
}

/// The last line of a program's own output.
fn last(said: &Said) -> String {
    let own = |l: &&str| !l.trim().is_empty() && !l.starts_with("srd: ");
    let line = said.text.lines().rfind(own).unwrap_or("");
    let what = if said.code == 124 { "no end".into() } else { format!("exit code {}", said.code) };
    format!("{what}: {}", line.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_of_the_program_itself_counts() {
        let text = "a\nfi_x(): common.c:1, ret=-5\nsrd: 1 process\n\n".to_owned();
        assert_eq!(last(&Said { text, code: 5 }), "exit code 5: fi_x(): common.c:1, ret=-5");
        assert_eq!(last(&Said { text: String::new(), code: 124 }), "no end: ");
    }

    #[test]
    fn no_test_is_named_twice() {
        let mut all: Vec<_> = PAIRS.iter().chain(&EFA_ALONE).chain(&ALONE).collect();
        let before = all.len();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), before);
    }
}
