//! The other side of `srd doctor --hosts`, started on each host: introduces itself, serves probes,
//! and answers questions until its standard input ends.

use super::{Answer, Hello, Probe, Question, address_in, launch::LINE_BYTES_MAX, now_ns};
use crate::{
    device::{mtu_set, port_base},
    dropin::{doctor::DoctorArgs, entropy, libraries, rails::Networks},
    failure::{Failure, Result},
    host::HostName,
    output, paths, serve,
    signals::Stop,
};
use srd::{InterfaceAddress, datapath::route, interface_addresses};
use std::{
    io::{BufRead as _, BufReader, Read as _},
    net::{IpAddr, SocketAddr, UdpSocket},
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

/// A member without a question for this long ends: its asker is gone.
const IDLE_MAX: Duration = Duration::from_secs(150);
/// Interval at which a wait checks for a stop request.
const STOP_CHECK: Duration = Duration::from_millis(100);

/// Serves and answers. `name` is what the asker calls this host.
///
/// # Errors
/// This host has no usable interface, or no device opens.
pub fn run(args: &DoctorArgs, name: &str, stop: &Stop) -> Result {
    let at = own(args, name)?;
    let (port_base, mtu) = (port_base()?, mtu_set()?);
    let (tell, told) = mpsc::channel();
    let opened = move |device: &srd::Device| {
        let server = SocketAddr::new(device.ip(), device.port().udp_port);
        // The receiver waits, unless this process ends already.
        let _ = tell.send((server, device.mtu(), device.warnings().to_vec()));
    };
    let (ip, serving) = (at.ip, stop.clone());
    let server = thread::spawn(move || serve::probes(ip, port_base, opened, &serving));
    let Ok((server, payload, warnings)) = told.recv() else {
        let ended = server.join().map_err(|_| Failure::new("the server ended early"))?;
        return ended.and(Err(Failure::new("the server ended early")));
    };
    let libraries = libraries(args.verbs_dir.as_deref());
    say(&Answer::Hello(Hello {
        wire: srd_wire::VERSION,
        interface: at.name,
        link_mtu: route::mtu_of_interface(at.ip)?,
        payload,
        server,
        port_base,
        networks: Some(Networks::of_settings(at.ip, port_base)?),
        warnings,
        libraries: libraries.map(|dir| dir.display().to_string()).map_err(|e| e.to_string()),
    }))?;
    let questions = questions();
    while let Some(question) = next(&questions, stop) {
        say(&match question {
            Question::Clock => Answer::Clock(now_ns()),
            Question::Probe(to) => Answer::Probe(probe(at.ip, to, port_base, mtu, stop)),
        })?;
    }
    Ok(())
}

fn say(answer: &Answer) -> Result {
    let text = serde_json::to_string(answer).map_err(|e| Failure::new(e.to_string()))?;
    output::line(&text)
}

/// Reads questions until standard input ends.
fn questions() -> Receiver<Question> {
    let (tell, questions) = mpsc::channel();
    thread::spawn(move || {
        let mut input = BufReader::new(std::io::stdin().lock());
        loop {
            let mut line = Vec::new();
            let read = input.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line);
            let Ok(question) = serde_json::from_slice(&line) else { return };
            if read.is_err() || tell.send(question).is_err() {
                return;
            }
        }
    });
    questions
}

/// The next question; `None` if there will be none.
fn next(questions: &Receiver<Question>, stop: &Stop) -> Option<Question> {
    let until = Instant::now() + IDLE_MAX;
    while !stop.asked() && Instant::now() < until {
        match questions.recv_timeout(STOP_CHECK) {
            Ok(question) => return Some(question),
            Err(RecvTimeoutError::Disconnected) => return None,
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
    None
}

/// Probes the paths to another member's server.
fn probe(own: IpAddr, to: SocketAddr, port_base: u16, mtu: Option<u16>, stop: &Stop) -> Probe {
    let host = HostName { host: to.ip().to_string(), port: Some(to.port()) };
    let paths = paths::survey(&host, Some(own), port_base, mtu, stop);
    let server = host.resolve(port_base, Some(own));
    let ways = server
        .map_err(|e| e.to_string())
        .and_then(|server| entropy::measure(&server, port_base).map_err(|e| e.to_string()));
    Probe { paths: paths.map_err(|e| e.to_string()), ways }
}

/// The interface that programs use here: that of the option, of the address by which the asker
/// calls this host, of the settings, or of the default route, as the drop-in libraries choose it.
fn own(args: &DoctorArgs, name: &str) -> Result<InterfaceAddress> {
    let all = interface_addresses()?;
    let wanted = match (&args.interface, address_in(name)) {
        (None, Some(ip)) => Wanted::Address(ip),
        _ => Wanted::of(args.interface.as_deref()),
    };
    let at = chosen(&all, &wanted, false).ok_or_else(|| {
        Failure::new(format!("{}; `ip -br addr` lists the interfaces", wanted.missing()))
    })?;
    if at.up {
        Ok(at.clone())
    } else {
        let name = &at.name;
        Err(Failure::new(format!("interface {name} is down: ip link set {name} up")))
    }
}

/// Which interface is wanted.
pub enum Wanted {
    /// The one of this name.
    Name(String),
    /// The one that has this address.
    Address(IpAddr),
    /// That of the default route, if there is one.
    Default(Option<IpAddr>),
}

impl Wanted {
    /// The one of the option, else of the settings, else of the default route.
    pub fn of(interface: Option<&str>) -> Self {
        let setting = |name| srd::setting(name).and_then(|text| text.into_string().ok());
        let first = |list: String| {
            list.split(',').next().map(|word| word.trim().to_owned()).filter(|w| !w.is_empty())
        };
        let name = interface.map(str::to_owned);
        if let Some(name) = name.or_else(|| setting("SRD_INTERFACE").and_then(first)) {
            return Self::Name(name);
        }
        match setting("SRD_IP").and_then(first).and_then(|ip| ip.parse().ok()) {
            Some(ip) => Self::Address(ip),
            None => Self::Default(default_source()),
        }
    }

    /// What is wrong if there is none.
    pub fn missing(&self) -> String {
        match self {
            Self::Name(name) => format!("interface {name} does not exist or has no address"),
            Self::Address(ip) => format!("{ip} is not an address of this host"),
            Self::Default(_) => "no interface except loopback is up and has an address".into(),
        }
    }
}

/// The wanted one of `all`; with an IPv6 address if `v6`, else with an IPv4 address, if it has one.
pub fn chosen<'a>(
    all: &'a [InterfaceAddress],
    wanted: &Wanted,
    v6: bool,
) -> Option<&'a InterfaceAddress> {
    let best = |of: &dyn Fn(&&InterfaceAddress) -> bool| {
        all.iter().filter(|a| of(a)).min_by_key(|a| a.ip.is_ipv6() != v6)
    };
    match wanted {
        Wanted::Name(name) => best(&|a| a.name == *name),
        Wanted::Address(ip) => best(&|a| a.ip == *ip),
        Wanted::Default(source) => {
            let at = best(&|a| Some(a.ip) == *source);
            let at = at.or_else(|| best(&|a| a.up && !a.loopback))?;
            if at.ip.is_ipv6() == v6 { Some(at) } else { best(&|a| a.name == at.name) }
        }
    }
}

/// The source address of packets to the default route. Sends nothing.
fn default_source() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    // An address reserved for documentation, reached by the default route.
    socket.connect("192.0.2.1:9").ok()?;
    socket.local_addr().ok().map(|a| a.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interface_is_chosen_as_the_libraries_choose_it() {
        let at = |name: &str, ip: &str, up, loopback| InterfaceAddress {
            name: name.into(),
            ip: ip.parse().unwrap(),
            up,
            loopback,
        };
        let all = [
            at("lo", "127.0.0.1", true, true),
            at("e0", "fd00::1", true, false),
            at("e0", "10.0.0.1", true, false),
            at("e1", "10.0.1.1", true, false),
        ];
        let ip = |wanted| chosen(&all, &wanted, false).map(|a| a.ip.to_string());
        assert_eq!(ip(Wanted::Name("e0".into())).unwrap(), "10.0.0.1");
        assert_eq!(ip(Wanted::Default(Some("10.0.1.1".parse().unwrap()))).unwrap(), "10.0.1.1");
        assert_eq!(ip(Wanted::Default(None)).unwrap(), "10.0.0.1");
        assert_eq!(ip(Wanted::Address("fd00::1".parse().unwrap())).unwrap(), "fd00::1");
        assert_eq!(ip(Wanted::Address("10.0.9.9".parse().unwrap())), None);
        // The other family's address of the same interface, where it has one.
        let v6 = |source: &str| {
            let wanted = Wanted::Default(Some(source.parse().unwrap()));
            chosen(&all, &wanted, true).map(|a| a.ip.to_string()).unwrap()
        };
        assert_eq!((v6("10.0.0.1").as_str(), v6("10.0.1.1").as_str()), ("fd00::1", "10.0.1.1"));
    }
}
