//! `srd doctor`: checks this host, and prints a command that fixes each problem.

use super::{LaunchArgs, cluster, entropy, libraries};
use crate::{
    failure::{Failure, Result},
    host::HostName,
    output,
    paths::{self, Survey},
    signals::Stop,
};
use srd::{
    Device, DeviceConfig, InterfaceAddress, Progress,
    datapath::{
        route,
        udp::{RAIL_PORTS, RAILS_MAX},
    },
    interface_addresses,
};
use std::{env, fs, net::IpAddr, process::Command};

const EXAMPLES: &str = "Examples:
  srd doctor               checks this host
  srd doctor 10.0.0.5      checks also the network path to a server (`srd serve` there), and
                           over how many ECMP paths the network spreads source ports
  srd doctor --hosts a,b,c checks these hosts and the network between all pairs of them: started
                           on each by ssh, from any host that reaches them
  srd doctor --hosts a,b --launcher \"ssh -p 2222\" --interface eth1

--hosts starts `srd doctor` on each host by the launcher (as mpirun does: LAUNCHER HOST COMMAND),
with a server that ends with it, and passes on the variables SRD_... of this host. All measure at
once, so choose a time without jobs.

Exit code: the number of required checks that failed; 0 if none failed.";

/// Packets with less payload than this make large messages noticeably more expensive.
const GOOD_MTU_BYTES: usize = 4096;
/// File descriptors that a device needs, with some for the program.
const DESCRIPTORS_MIN: u64 = 256;

/// Arguments of `srd doctor`.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct DoctorArgs {
    /// Server to check the network path to: HOST, HOST:PORT or [IPV6]:PORT
    #[arg(value_name = "HOST[:PORT]", value_parser = HostName::parse)]
    pub host: Option<HostName>,
    /// Network interface to check [default: the interface of the default route]
    #[arg(long, value_name = "NAME")]
    pub interface: Option<String>,
    /// Folder of libibverbs.so.1 and libefa.so.1 [default: next to this program, or SRD_VERBS_DIR]
    #[arg(long, value_name = "DIR")]
    pub verbs_dir: Option<std::path::PathBuf>,
    /// Hosts to check with the network between all pairs of them, as for `srd run`: a,b,c or
    /// a:2,b:2
    #[arg(long, value_name = "HOSTS", conflicts_with = "host")]
    pub hosts: Option<String>,
    /// Program with options that runs a command on another host, called with the host and the
    /// command [default: ssh -o BatchMode=yes -o ConnectTimeout=10]
    #[arg(long, value_name = "COMMAND", requires = "hosts")]
    pub launcher: Option<String>,
    /// The tool on the other hosts [default: the path of this program]
    #[arg(long, value_name = "PATH", requires = "hosts")]
    pub program: Option<String>,
    /// Answer the questions of `srd doctor --hosts`, which calls this host by this name.
    #[arg(long, value_name = "NAME", hide = true, conflicts_with_all = ["hosts", "host"])]
    pub member: Option<String>,
}

/// Result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing to do.
    Good,
    /// The system works, but could work better.
    Advice,
    /// A required condition does not hold.
    Failed,
}

/// The findings so far.
#[derive(Default)]
pub struct Findings {
    failed: u8,
}

impl Findings {
    /// Counts a finding, and prints it with the advice.
    ///
    /// # Errors
    /// The reader of the output has exited.
    pub fn tell(&mut self, verdict: Verdict, what: &str, advice: &str) -> Result {
        output::line(&self.note(verdict, what, advice))
    }

    /// Counts a finding. Returns its line, followed by a line with the advice.
    fn note(&mut self, verdict: Verdict, what: &str, advice: &str) -> String {
        let word = match verdict {
            Verdict::Good => "ok    ",
            Verdict::Advice => "advice",
            Verdict::Failed => "FAILED",
        };
        self.failed = self.failed.saturating_add(u8::from(verdict == Verdict::Failed));
        let rest = if advice.is_empty() { String::new() } else { format!("\n        {advice}") };
        format!("{word}  {what}{rest}")
    }

    fn good(&mut self, what: &str) -> Result {
        self.tell(Verdict::Good, what, "")
    }

    /// The result of all checks.
    fn end(&self) -> Result {
        match self.failed {
            0 => Ok(()),
            1 => Err(Failure::with_code(1, "1 required check failed")),
            n => Err(Failure::with_code(n, format!("{n} required checks failed"))),
        }
    }
}

/// Runs the checks.
///
/// # Errors
/// Required checks failed; the exit code is their number.
pub fn run(args: &DoctorArgs, stop: &Stop) -> Result {
    if let Some(name) = &args.member {
        return cluster::member::run(args, name, stop);
    }
    let mut found = Findings::default();
    if let Some(hosts) = &args.hosts {
        cluster::run(args, hosts, stop, &mut found)?;
        return found.end();
    }
    settings(&mut found)?;
    let at = interface(args, &mut found)?;
    if let Some(at) = &at {
        device(at, &mut found)?;
    }
    limits(&mut found)?;
    programs(args, &mut found)?;
    if let Some(host) = &args.host {
        peer(host, at.as_ref(), stop, &mut found)?;
        ways(host, at.as_ref(), &mut found)?;
    }
    found.end()
}

/// Shows the host's settings. A file that cannot be used ends every command before.
fn settings(found: &mut Findings) -> Result {
    let Some(file) = srd::settings_file().map_err(Failure::usage)? else {
        return found.good(&format!("no file of settings ({})", srd::SETTINGS_FILE));
    };
    found.good(&format!("settings of {}: {}", file.path.display(), file.values.len()))?;
    for (name, value) in &file.values {
        let set = env::var(name).ok();
        let note =
            set.map_or(String::new(), |set| format!(" (but {name}={set} in the environment)"));
        output::line(&format!("        {name}={value}{note}"))?;
    }
    Ok(())
}

/// Checks the network interface and its address.
fn interface(args: &DoctorArgs, found: &mut Findings) -> Result<Option<InterfaceAddress>> {
    let all = interface_addresses()?;
    let wanted = |a: &&InterfaceAddress| match &args.interface {
        Some(name) => a.name == *name,
        None => a.up && !a.loopback,
    };
    // IPv4 first, unless the server's address is IPv6.
    let v6 = args.host.as_ref().is_some_and(|h| h.host.contains(':'));
    let family_first = |a: &&InterfaceAddress| u8::from(a.ip.is_ipv6() != v6);
    let Some(at) = all.iter().filter(wanted).min_by_key(family_first) else {
        let what = match &args.interface {
            Some(name) => format!("interface {name} does not exist or has no address"),
            None => "no interface except loopback is up and has an address".to_owned(),
        };
        let advice =
            "`ip -br addr` lists the interfaces; `ip link set NAME up` and `ip addr add` fix them";
        found.tell(Verdict::Failed, &what, advice)?;
        return Ok(None);
    };
    if at.up {
        found.good(&format!("interface {} with {}", at.name, at.ip))?;
    } else {
        let advice = format!("ip link set {} up", at.name);
        found.tell(Verdict::Failed, &format!("interface {} is down", at.name), &advice)?;
    }
    Ok(Some(at.clone()))
}

/// Opens a device on the interface: checks sockets, ports, MTU and buffers.
fn device(at: &InterfaceAddress, found: &mut Findings) -> Result {
    let mut config = DeviceConfig::ip(at.ip);
    config.progress = Progress::Caller;
    let device = match Device::open(config) {
        Ok(device) => device,
        Err(e) => return found.tell(Verdict::Failed, &format!("no device: {e}"), ""),
    };
    let port = device.port();
    found.good(&format!("a device opens: UDP port {}, {} paths", port.udp_port, port.paths))?;
    if device.mtu() >= GOOD_MTU_BYTES {
        found.good(&format!("packets carry {} bytes", device.mtu()))?;
    } else {
        let what = format!("packets carry only {} bytes", device.mtu());
        let advice =
            format!("if the network allows larger packets: ip link set {} mtu 9000", at.name);
        found.tell(Verdict::Advice, &what, &advice)?;
    }
    match device.seal()? {
        Some(status) => found.good(&format!(
            "packets are sealed ({}), with key {} of the key file",
            status.policy.name(),
            status.keys[0]
        ))?,
        None => found.good("packets are not sealed (no SRD_KEY_FILE, or SRD_SEAL=never)")?,
    }
    for warning in device.warnings() {
        found.tell(Verdict::Advice, warning, "")?;
    }
    if let Some(bits) = route::link_bits_per_sec(at.ip) {
        found.good(&format!("the link runs at {} Gb/s", bits / 1_000_000_000))?;
    }
    Ok(())
}

/// Checks the limits of this user's processes.
fn limits(found: &mut Findings) -> Result {
    let text = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let line = text.lines().find(|l| l.starts_with("Max open files"));
    let soft = line.and_then(|l| l.split_whitespace().nth(3)).and_then(|n| n.parse::<u64>().ok());
    match soft {
        Some(n) if n < DESCRIPTORS_MIN => found.tell(
            Verdict::Failed,
            &format!("only {n} open files are allowed; a device has a socket per path"),
            "ulimit -n 4096",
        ),
        _ => found.good("enough open files are allowed"),
    }
}

/// Checks the drop-in libraries, and the programs that use them.
fn programs(args: &DoctorArgs, found: &mut Findings) -> Result {
    let launch = LaunchArgs {
        key: None,
        interface: args.interface.clone(),
        hosts: None,
        verbs_dir: args.verbs_dir.clone(),
        allow_fallback: false,
    };
    match libraries(args.verbs_dir.as_deref()) {
        Ok(dir) => found.good(&format!("drop-in libraries in {}", dir.display()))?,
        Err(e) => return found.tell(Verdict::Failed, &e.to_string(), ""),
    }
    let (variables, _files) = match launch.variables(&[]) {
        Ok(set) => set,
        Err(e) => {
            return found.tell(Verdict::Failed, &format!("`srd run` starts nothing: {e}"), "");
        }
    };
    let line_of = |program: &str, args: &[&str], word: &str| {
        let out = Command::new(program).args(args).envs(variables.iter().cloned()).output().ok()?;
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        let line = text.lines().find(|l| l.contains(word)).map(|l| l.trim().to_owned());
        Some((out.status.success(), line))
    };
    match line_of("fi_info", &["-p", "efa", "-t", "FI_EP_RDM"], "domain:") {
        Some((true, Some(line))) => {
            let version = line_of("fi_info", &["--version"], "libfabric: ").and_then(|v| v.1);
            let version = version.unwrap_or_else(|| "libfabric".to_owned());
            found.good(&format!("{version} finds the device: {line}"))?;
        }
        Some(_) => found.tell(
            Verdict::Failed,
            "libfabric does not find the device",
            "run `FI_LOG_LEVEL=warn srd run -- fi_info -p efa` to see why",
        )?,
        None => found.tell(
            Verdict::Advice,
            "libfabric's fi_info is not installed, so the drop-in libraries were not tested",
            "apt-get install libfabric-bin",
        )?,
    }
    match line_of("mpirun", &["--version"], "") {
        Some((true, Some(line))) => found.good(&format!("MPI: {line}")),
        _ => found.tell(
            Verdict::Advice,
            "mpirun is not on the PATH",
            "apt-get install openmpi-bin libopenmpi-dev",
        ),
    }
}

/// Checks whether a server answers, and on how many paths.
fn peer(
    host: &HostName,
    at: Option<&InterfaceAddress>,
    stop: &Stop,
    found: &mut Findings,
) -> Result {
    let ip: Option<IpAddr> = at.map(|a| a.ip);
    let survey = match paths::survey(host, ip, srd::PORT_BASE_DEFAULT, stop) {
        Ok(survey) => survey,
        // The server did not answer smaller packets either.
        Err(e) => {
            let (first, last) = (srd::PORT_BASE_DEFAULT, srd::PORT_BASE_DEFAULT + 255);
            let advice = format!(
                "there: srd serve --ip ADDRESS; open UDP ports {first} to {last} of both hosts"
            );
            return found.tell(Verdict::Failed, &e.to_string(), &advice);
        }
    };
    let Survey { server, answering, total, rtt_us_min, rtt_us_max, narrow } = survey;
    if let Some(mtu) = narrow {
        let (what, advice) = mtu_trouble(&server, mtu, ip);
        return found.tell(Verdict::Failed, &what, &advice);
    }
    let what = format!(
        "{server} answers on {answering} of {total} paths, {rtt_us_min:.0} to {rtt_us_max:.0} us"
    );
    if answering == total {
        return found.good(&what);
    }
    let mut advice = format!("srd paths {server}");
    if srd::setting("SRD_RAILS").is_some_and(|rails| !rails.is_empty()) {
        let (first, last) = rail_ports(srd::PORT_BASE_DEFAULT);
        advice.push_str(&format!(
            "; the networks of SRD_RAILS beside the first need UDP ports from {first} on (up to \
             {last} with four networks) open on both hosts"
        ));
    }
    found.tell(Verdict::Advice, &what, &advice)
}

/// First and last UDP port that devices with rails receive at besides those from `port_base`.
const fn rail_ports(port_base: u16) -> (u16, u16) {
    let first = port_base.saturating_add(RAIL_PORTS);
    (first, first.saturating_add(RAIL_PORTS * (RAILS_MAX as u16 - 1) - 1))
}

/// Finding and advice if only small packets reach the server.
fn mtu_trouble(server: &str, mtu: u16, own: Option<IpAddr>) -> (String, String) {
    let what = format!(
        "{server} answers packets of {mtu} bytes, but not full ones of this interface: its MTU is \
         larger than that of the network path or of the other host, so longer messages fail"
    );
    let here = own.map_or_else(|| "this host".to_owned(), |ip| ip.to_string());
    let advice = format!(
        "give the switches and both hosts the same MTU (ip link set NAME mtu 9000), or use a \
         smaller one at {here}: SRD_MTU={mtu} for `srd run`, --mtu {mtu} for `srd perf` and `srd \
         cp`"
    );
    (what, advice)
}

/// Checks over how many ECMP paths the network spreads source ports.
fn ways(host: &HostName, at: Option<&InterfaceAddress>, found: &mut Findings) -> Result {
    // A host name that does not resolve has been reported already.
    let resolved = host.resolve(srd::PORT_BASE_DEFAULT, at.map(|a| a.ip));
    let Ok(server) = resolved else { return Ok(()) };
    match entropy::measure(&server, srd::PORT_BASE_DEFAULT) {
        Ok(e) => {
            let verdict = if e.good { Verdict::Good } else { Verdict::Advice };
            found.tell(verdict, &e.what, &e.details.join("\n        "))
        }
        Err(e) => {
            let what = format!("ECMP paths to {} cannot be measured: {e}", server.ip);
            found.tell(Verdict::Advice, &what, "")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_checks_are_counted_and_advice_is_not() {
        let mut found = Findings::default();
        assert_eq!(found.note(Verdict::Advice, "a", "b"), "advice  a\n        b");
        assert_eq!(found.note(Verdict::Failed, "a", "b"), "FAILED  a\n        b");
        assert_eq!(found.note(Verdict::Good, "c", ""), "ok      c");
        assert_eq!(found.failed, 1);
    }

    #[test]
    fn services_of_firewalld_have_the_ports_of_devices() {
        let base = srd::PORT_BASE_DEFAULT;
        let files = concat!(env!("CARGO_MANIFEST_DIR"), "/../../xtask/src/package/files");
        for (name, (first, last)) in
            [("software-srd", (base, base + 255)), ("software-srd-rails", rail_ports(base))]
        {
            let text = fs::read_to_string(format!("{files}/{name}.xml")).unwrap();
            let port = format!("<port protocol=\"udp\" port=\"{first}-{last}\"/>");
            assert!(text.contains(&port), "{name} lacks {port}");
        }
    }
}
