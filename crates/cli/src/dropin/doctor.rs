//! `srd doctor`: checks this host, and prints a command that fixes each problem.

use super::{
    LaunchArgs, cluster,
    cluster::member::{Wanted, chosen},
    entropy, libraries, limits,
    rails::{Networks, Silent, firewall_command, ordinal},
};
use crate::{
    device::{mtu_set, number_set, port_base},
    failure::{Failure, Result},
    host::HostName,
    output,
    paths::{self, Survey},
    signals::Stop,
};
use srd::{Device, DeviceConfig, InterfaceAddress, Progress, datapath::route, interface_addresses};
use std::{
    env,
    net::{IpAddr, SocketAddr},
    process::Command,
    time::Duration,
};

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

/// Arguments of `srd doctor`.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct DoctorArgs {
    /// Server to check the network path to: HOST, HOST:PORT or [IPV6]:PORT
    #[arg(value_name = "HOST[:PORT]", value_parser = HostName::parse)]
    pub host: Option<HostName>,
    /// Network interface to check [default: that of SRD_INTERFACE or SRD_IP, else that of the
    /// default route]
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
    let (at, base) = (interface(args, &mut found)?, port_base()?);
    if let Some(at) = &at {
        device(at, base, &mut found)?;
    }
    limits::check(&mut found)?;
    programs(args, &mut found)?;
    if let Some(host) = &args.host {
        peer(host, at.as_ref(), base, stop, &mut found)?;
        ways(host, at.as_ref(), base, &mut found)?;
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
    let wanted = Wanted::of(args.interface.as_deref());
    // IPv4 first, unless the server's address is IPv6.
    let v6 = args.host.as_ref().is_some_and(|h| h.host.contains(':'));
    let Some(at) = chosen(&all, &wanted, v6) else {
        let advice =
            "`ip -br addr` lists the interfaces; `ip link set NAME up` and `ip addr add` fix them";
        found.tell(Verdict::Failed, &wanted.missing(), advice)?;
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

/// Opens a device on the interface, with the settings that the drop-in libraries would use: checks
/// sockets, ports, MTU and buffers.
fn device(at: &InterfaceAddress, base: u16, found: &mut Findings) -> Result {
    let mut config = DeviceConfig::ip(at.ip);
    // Shards, which take sockets and slots each, are those of threads.
    let shards = config.shards;
    config.progress =
        if shards > 1 { Progress::Thread { spin: Duration::ZERO } } else { Progress::Caller };
    config.port_base = base;
    config.mtu = mtu_set()?;
    config.paths = number_set("SRD_PATHS", "number of paths")?.unwrap_or(config.paths);
    let mtu_set = config.mtu;
    let device = match Device::open(config) {
        Ok(device) => device,
        Err(e) => return found.tell(Verdict::Failed, &format!("no device: {e}"), ""),
    };
    let port = device.port();
    let opens = format!("a device opens: UDP port {}, {} paths", port.udp_port, port.paths);
    found.good(&match device.shard_count() {
        1 => opens,
        n => format!("{opens}, {n} shards (SRD_SHARDS), each with a port and sockets of its own"),
    })?;
    if let Some(mtu) = mtu_set {
        found.good(&format!("packets carry {mtu} bytes (SRD_MTU)"))?;
    } else if device.mtu() >= GOOD_MTU_BYTES {
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
    if let Some(further) = Networks::of_settings(at.ip, base)?.further() {
        found.good(&format!("the device also receives at {further} (SRD_RAILS)"))?;
    }
    for warning in device.warnings() {
        found.tell(Verdict::Advice, warning, "")?;
    }
    if let Some(bits) = route::link_bits_per_sec(at.ip) {
        found.good(&format!("the link runs at {} Gb/s", bits / 1_000_000_000))?;
    }
    Ok(())
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
    base: u16,
    stop: &Stop,
    found: &mut Findings,
) -> Result {
    let ip: Option<IpAddr> = at.map(|a| a.ip);
    let survey = match paths::survey(host, ip, base, mtu_set()?, stop) {
        Ok(survey) => survey,
        // The server did not answer smaller packets either.
        Err(e) => {
            let (first, last) = match ip {
                Some(ip) => Networks::of_settings(ip, base)?.ports_all(),
                None => (base, base + 255),
            };
            let advice = format!(
                "there: srd serve --ip ADDRESS; open UDP ports {first} to {last} of both hosts"
            );
            return found.tell(Verdict::Failed, &e.to_string(), &advice);
        }
    };
    if let Some(ip) = ip {
        let networks = Networks::of_settings(ip, base)?;
        if let Some((what, advice)) = silent_trouble(&networks, &survey) {
            return found.tell(Verdict::Failed, &what, &advice);
        }
    }
    let Survey { server, answering, total, rtt_us_min, rtt_us_max, narrow, .. } = survey;
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
    found.tell(Verdict::Advice, &what, &format!("srd paths {server}"))
}

/// Finding and advice if nothing comes back from one of the networks of `SRD_RAILS`.
fn silent_trouble(networks: &Networks, survey: &Survey) -> Option<(String, String)> {
    let server: SocketAddr = survey.server.parse().ok()?;
    let Silent { rail, paths } = *networks.silent(server.ip(), survey).first()?;
    let what = format!(
        "{server}: none of the {paths} paths by the {} network of SRD_RAILS answers",
        ordinal(rail)
    );
    let (first, last) = networks.ports(rail);
    let advice = format!(
        "the other host needs the same SRD_RAILS; open UDP ports {first} to {last} of both hosts \
         in that network ({}); `ip route` shows whether there is a route",
        firewall_command((first, last))
    );
    Some((what, advice))
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
fn ways(host: &HostName, at: Option<&InterfaceAddress>, base: u16, found: &mut Findings) -> Result {
    // A host name that does not resolve has been reported already.
    let resolved = host.resolve(base, at.map(|a| a.ip));
    let Ok(server) = resolved else { return Ok(()) };
    match entropy::measure(&server, base) {
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
    use srd::datapath::udp::{RAIL_PORTS, RAILS_MAX};
    use std::fs;

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
        let rails = (base + RAIL_PORTS, base + RAIL_PORTS * RAILS_MAX as u16 - 1);
        for (name, (first, last)) in
            [("software-srd", (base, base + 255)), ("software-srd-rails", rails)]
        {
            let text = fs::read_to_string(format!("{files}/{name}.xml")).unwrap();
            let port = format!("<port protocol=\"udp\" port=\"{first}-{last}\"/>");
            assert!(text.contains(&port), "{name} lacks {port}");
        }
    }
}
